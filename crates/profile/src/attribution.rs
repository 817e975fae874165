//! Which operator asked for a GPU event: correlation number -> host call -> innermost enclosing operator on
//! that thread; the module and the pass follow from the operator.

use super::table::{Cursor, MOST_NUMBERS, Record};
use super::{CallKind, HostCall, HostOp, NameId, Profile, Table};
use preflop_graph::Phase;
use serde::Serialize;
use std::collections::{HashMap, VecDeque};

/// No record.
pub const NONE: u32 = u32::MAX;

/// Where a GPU event comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// This operator (index into the profile's operators).
    Operator(u32),
    /// A replayed graph: no operator was recorded.
    Graph,
    /// Launched before the recording began: no call was recorded.
    Orphan,
    /// Launched outside any operator.
    NoOperator,
}

const GRAPH: u32 = u32::MAX;
const ORPHAN: u32 = u32::MAX - 1;
const OUTSIDE: u32 = u32::MAX - 2;

/// The links of GPU events, in order: an operator's number, or one of the three above.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Links(Vec<u32>);

impl Links {
    fn push(&mut self, link: Link) {
        self.0.push(match link {
            Link::Operator(op) => op,
            Link::Graph => GRAPH,
            Link::Orphan => ORPHAN,
            Link::NoOperator => OUTSIDE,
        });
    }

    /// The link of one event.
    pub fn at(&self, event: u32) -> Link {
        match self.0[event as usize] {
            GRAPH => Link::Graph,
            ORPHAN => Link::Orphan,
            OUTSIDE => Link::NoOperator,
            op => Link::Operator(op),
        }
    }
}

/// The links of a profile.
#[derive(Debug, Clone, PartialEq)]
pub struct Attribution {
    /// One per GPU event.
    pub links: Links,
    /// The host call of each GPU event, or [`NONE`].
    pub calls: Vec<u32>,
    /// The enclosing operator of each operator, or [`NONE`]; an analysis gives them up once work has its owners.
    pub parents: Vec<u32>,
    /// The innermost module of each operator, or the empty name.
    pub modules: Vec<NameId>,
    /// The pass each operator belongs to.
    pub phases: Vec<Phase>,
}

/// Links every GPU event of the profile.
pub fn attribute(profile: &Profile) -> Attribution {
    let parents = parents(&profile.ops);
    let call_ops = enclosing_ops(profile);
    let launches = profile.calls.iter().map(|c| if c.kind == CallKind::Sync { 0 } else { c.correlation });
    let (call_of, external) =
        (Numbered::new(launches), Numbered::new(profile.ops.iter().map(|o| o.external)));
    let (mut call_of, mut external) = (call_of.search(), external.search());
    let mut links = Links(Vec::with_capacity(profile.gpu_events.len()));
    let mut calls = Vec::with_capacity(profile.gpu_events.len());
    let mut host_calls = profile.calls.iter();
    for event in &profile.gpu_events {
        let call = call_of.find(event.correlation);
        let op = call
            .and_then(|c| call_ops.get(c as usize).copied())
            .filter(|&op| op != NONE)
            .or_else(|| external.find(event.external));
        let replayed =
            event.graph || call.is_some_and(|c| host_calls.at(c as usize).kind == CallKind::GraphLaunch);
        links.push(match (op, call) {
            _ if replayed => Link::Graph,
            (Some(op), _) => Link::Operator(op),
            (None, Some(_)) => Link::NoOperator,
            (None, None) => Link::Orphan,
        });
        calls.push(call.unwrap_or(NONE));
    }
    drop(call_ops);
    let phases = phases(profile, &parents);
    let modules = modules(profile, &parents);
    Attribution { links, calls, parents, modules, phases }
}

/// A recorder's number of a record, and the record.
#[derive(Clone, Copy)]
struct Number(i64, u32);

impl Record for Number {
    type Kind = ();
    const NUMBERS: usize = 3;

    fn split(&self) -> ((), [i64; MOST_NUMBERS]) {
        ((), [self.0, 0, i64::from(self.1), 0])
    }

    fn join((): (), [number, _, record, _]: [i64; MOST_NUMBERS]) -> Self {
        Self(number, record as u32)
    }
}

/// Records by a recorder's numbers of them, which are asked for in much the order in which they were given.
struct Numbered(Table<Number>);

impl Numbered {
    /// The number of each record in turn; 0 for none.
    fn new(numbers: impl Iterator<Item = i64>) -> Self {
        let numbered = numbers.enumerate().filter(|(_, n)| *n != 0);
        let mut records: Table<Number> = numbered.map(|(i, n)| Number(n, i as u32)).collect();
        records.sort_by_key(|n| n.0);
        Self(records)
    }

    fn search(&self) -> Search<'_> {
        Search { numbered: &self.0, cursor: self.0.iter() }
    }
}

/// A search that begins behind what was found last.
struct Search<'a> {
    numbered: &'a Table<Number>,
    cursor: Cursor<'a, Number>,
}

impl Search<'_> {
    /// Of several records with one number the last counts.
    fn find(&mut self, number: i64) -> Option<u32> {
        if number == 0 {
            return None;
        }
        let mut found = self.cursor.next().filter(|n| n.0 == number);
        if found.is_none() {
            let first = self.numbered.partition_point(|n| n.0 < number);
            if first == self.numbered.len() {
                return None;
            }
            found = Some(self.cursor.at(first)).filter(|n| n.0 == number);
        }
        // With a number that is not there the cursor stands behind the next larger one.
        while let Some(later) = self.cursor.peek().filter(|n| found.is_some_and(|f| f.0 == n.0)) {
            self.cursor.next();
            found = Some(later);
        }
        found.map(|n| n.1)
    }
}

/// What is open on each thread, innermost last: records with their ends.
#[derive(Default)]
struct Open(HashMap<NameId, Vec<(u32, i64)>>);

impl Open {
    /// The innermost that is open on a thread at a moment: what ended before is left.
    fn innermost(&mut self, thread: NameId, now: i64) -> u32 {
        let Some(stack) = self.0.get_mut(&thread) else { return NONE };
        while stack.last().is_some_and(|(_, end)| *end <= now) {
            stack.pop();
        }
        stack.last().map_or(NONE, |(record, _)| *record)
    }

    /// Opens a record; gives the one around it.
    fn enter(&mut self, thread: NameId, record: u32, (start, end): (i64, i64)) -> u32 {
        let around = self.innermost(thread, start);
        self.0.entry(thread).or_default().push((record, end));
        around
    }
}

fn op_span(op: &HostOp) -> (i64, i64) {
    (op.start_ns, op.start_ns.saturating_add(op.dur_ns))
}

fn parents(ops: &Table<HostOp>) -> Vec<u32> {
    let mut open = Open::default();
    ops.iter().enumerate().map(|(i, op)| open.enter(op.thread, i as u32, op_span(&op))).collect()
}

/// The innermost operator around each call; nothing where there is no operator at all.
fn enclosing_ops(profile: &Profile) -> Vec<u32> {
    if profile.ops.is_empty() {
        return Vec::new();
    }
    let mut open = Open::default();
    let mut ops = profile.ops.iter().enumerate().peekable();
    let around = |call: HostCall| {
        while let Some((i, op)) = ops.next_if(|(_, op)| op.start_ns <= call.start_ns) {
            open.enter(op.thread, i as u32, op_span(&op));
        }
        open.innermost(call.thread, call.start_ns)
    };
    profile.calls.iter().map(around).collect()
}

/// Prefix of the annotation that PyTorch puts around an optimizer's step.
const OPTIMIZER_STEP: &str = "Optimizer.step";

fn phases(profile: &Profile, parents: &[u32]) -> Vec<Phase> {
    let mut steps: HashMap<NameId, VecDeque<(i64, i64)>> = HashMap::new();
    for mark in profile.marks.iter().filter(|m| profile.names.text(m.name).starts_with(OPTIMIZER_STEP)) {
        let end = mark.start_ns.saturating_add(mark.dur_ns);
        steps.entry(mark.thread).or_default().push_back((mark.start_ns, end));
    }
    // Operators come by start: a step that ended before one of them concerns no other.
    let mut in_step = |op: &HostOp| {
        let Some(steps) = steps.get_mut(&op.thread) else { return false };
        while steps.front().is_some_and(|step| step.1 <= op.start_ns) {
            steps.pop_front();
        }
        steps.front().is_some_and(|step| step.0 <= op.start_ns)
    };
    let mut phases: Vec<Phase> = Vec::with_capacity(profile.ops.len());
    for (i, op) in profile.ops.iter().enumerate() {
        // Parents come before their children, as operators are sorted by start and then longest first.
        let parent = parents[i];
        let inherited = if parent == NONE { None } else { phases.get(parent as usize).copied() };
        phases.push(match inherited {
            Some(phase @ (Phase::Backward | Phase::Optimizer)) => phase,
            _ if op.backward => Phase::Backward,
            Some(phase) => phase,
            None if in_step(&op) => Phase::Optimizer,
            None => Phase::Forward,
        });
    }
    phases
}

fn modules(profile: &Profile, parents: &[u32]) -> Vec<NameId> {
    let mut modules = vec![NameId::EMPTY; profile.ops.len()];
    if profile.modules.is_empty() {
        return modules;
    }
    let mut open = Open::default();
    let mut calls = profile.modules.iter().enumerate().peekable();
    let mut records = profile.modules.iter();
    for (op, module) in profile.ops.iter().zip(&mut modules) {
        while let Some((i, call)) = calls.next_if(|(_, call)| call.start_ns <= op.start_ns) {
            let end = call.start_ns.saturating_add(call.dur_ns);
            open.enter(call.thread, i as u32, (call.start_ns, end));
        }
        let inside = open.innermost(op.thread, op.start_ns);
        if inside != NONE {
            *module = records.at(inside as usize).name;
        }
    }
    // A backward operator belongs to the module of the forward operator with its sequence number.
    let mut forward: HashMap<i64, NameId> = HashMap::new();
    for (op, module) in profile.ops.iter().zip(&modules) {
        if op.sequence >= 0 && !op.backward && !module.is_empty() {
            forward.entry(op.sequence).or_insert(*module);
        }
    }
    for (i, op) in profile.ops.iter().enumerate() {
        if !modules[i].is_empty() {
            continue;
        }
        let own = if op.backward { forward.get(&op.sequence).copied() } else { None };
        let parent = parents[i];
        modules[i] = own.unwrap_or(if parent == NONE { NameId::EMPTY } else { modules[parent as usize] });
    }
    modules
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mark;
    use crate::fixtures::{call, event, op, profile};

    #[test]
    fn innermost_operator_on_the_thread_wins() {
        let mut p = profile();
        p.ops =
            vec![op(&mut p.names, "aten::linear", 0, 100), op(&mut p.names, "aten::addmm", 10, 50)].into();
        p.calls =
            vec![call(&mut p.names, 20, 5, 7), call(&mut p.names, 70, 5, 8), call(&mut p.names, 200, 5, 9)]
                .into();
        p.gpu_events = vec![
            event(&mut p.names, "k", 30, 5, 7),
            event(&mut p.names, "k", 80, 5, 8),
            event(&mut p.names, "k", 210, 5, 9),
            event(&mut p.names, "k", 300, 5, 99),
        ]
        .into();
        let a = attribute(&p);
        assert_eq!(
            [0, 1, 2, 3].map(|i| a.links.at(i)),
            [Link::Operator(1), Link::Operator(0), Link::NoOperator, Link::Orphan]
        );
        assert_eq!(a.parents, vec![NONE, 0]);
    }

    #[test]
    fn of_several_calls_with_one_number_the_last_counts() {
        let numbered = Numbered::new([5, 0, 7, 5, 6].into_iter());
        let mut calls = numbered.search();
        assert_eq!(
            [5, 6, 7, 9, 0, 5].map(|n| calls.find(n)),
            [Some(3), Some(4), Some(2), None, None, Some(3)]
        );
    }

    #[test]
    fn operators_within_an_optimizer_step_of_their_thread_are_its() {
        let mut p = profile();
        p.ops = [5, 30, 60, 95].map(|at| op(&mut p.names, "aten::add", at, 1)).into_iter().collect();
        let (step, other) = (p.names.add("Optimizer.step#Adam.step"), p.names.add("another thread"));
        let thread = p.ops.at(0).thread;
        let mark = |start_ns, dur_ns, thread| Mark { start_ns, dur_ns, name: step, thread };
        p.marks =
            vec![mark(0, 20, other), mark(20, 30, thread), mark(25, 2, thread), mark(90, 10, thread)].into();
        let phases = attribute(&p).phases;
        assert_eq!(phases, [Phase::Forward, Phase::Optimizer, Phase::Forward, Phase::Optimizer]);
    }

    #[test]
    fn graph_replays_have_no_operator() {
        let mut p = profile();
        p.ops = vec![op(&mut p.names, "aten::mm", 0, 100)].into();
        let mut launch = call(&mut p.names, 20, 5, 7);
        launch.kind = CallKind::GraphLaunch;
        p.calls = vec![launch].into();
        p.gpu_events = vec![event(&mut p.names, "k", 30, 5, 7)].into();
        assert_eq!(attribute(&p).links.at(0), Link::Graph);
    }

    #[test]
    fn backward_takes_the_forward_module() {
        let mut p = profile();
        let mut forward = op(&mut p.names, "aten::linear", 10, 20);
        forward.sequence = 5;
        let mut node = op(&mut p.names, "autograd::engine::evaluate_function: AddmmBackward0", 100, 50);
        node.sequence = 5;
        node.backward = true;
        let inner = op(&mut p.names, "aten::mm", 110, 10);
        p.ops = vec![forward, node, inner].into();
        let name = p.names.add("nn.Module: Linear_0");
        let thread = p.ops.at(0).thread;
        p.modules = vec![Mark { start_ns: 0, dur_ns: 50, name, thread }].into();
        let a = attribute(&p);
        assert_eq!(a.modules, vec![name; 3]);
        assert_eq!(a.phases, vec![Phase::Forward, Phase::Backward, Phase::Backward]);
    }
}
