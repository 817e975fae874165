//! Which operator asked for a GPU event: correlation number -> host call -> innermost enclosing operator on
//! that thread; the module and the pass follow from the operator.

use super::{CallKind, HostOp, Mark, NameId, Profile};
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

/// The links of a profile.
#[derive(Debug, Clone, PartialEq)]
pub struct Attribution {
    /// One per GPU event.
    pub links: Vec<Link>,
    /// The host call of each GPU event, or [`NONE`].
    pub calls: Vec<u32>,
    /// The enclosing operator of each operator, or [`NONE`].
    pub parents: Vec<u32>,
    /// The innermost module of each operator, or the empty name.
    pub modules: Vec<NameId>,
    /// The pass each operator belongs to.
    pub phases: Vec<Phase>,
}

/// Links every GPU event of the profile.
pub fn attribute(profile: &Profile) -> Attribution {
    let ops_by_thread = by_thread(&profile.ops, |o| o.thread);
    let parents = parents(&profile.ops, &ops_by_thread);
    let call_ops = enclosing_ops(profile, &ops_by_thread);
    let launches = profile.calls.iter().map(|c| if c.kind == CallKind::Sync { 0 } else { c.correlation });
    let mut call_of = Numbered::new(launches);
    let mut external = Numbered::new(profile.ops.iter().map(|o| o.external));
    let mut links = Vec::with_capacity(profile.gpu_events.len());
    let mut calls = Vec::with_capacity(profile.gpu_events.len());
    for event in &profile.gpu_events {
        let call = call_of.find(event.correlation);
        let op = call
            .map(|c| call_ops[c as usize])
            .filter(|&op| op != NONE)
            .or_else(|| external.find(event.external));
        let replayed =
            event.graph || call.is_some_and(|c| profile.calls[c as usize].kind == CallKind::GraphLaunch);
        links.push(match (op, call) {
            _ if replayed => Link::Graph,
            (Some(op), _) => Link::Operator(op),
            (None, Some(_)) => Link::NoOperator,
            (None, None) => Link::Orphan,
        });
        calls.push(call.unwrap_or(NONE));
    }
    let phases = phases(profile, &parents);
    let modules = modules(profile, &parents, &ops_by_thread);
    Attribution { links, calls, parents, modules, phases }
}

/// Records by a recorder's numbers of them, which are asked for in much the order in which they were given.
struct Numbered {
    /// Numbers with the records that have them, in order.
    records: Vec<(i64, u32)>,
    /// Behind the one that was found last.
    next: usize,
}

impl Numbered {
    /// The number of each record in turn; 0 for none.
    fn new(numbers: impl Iterator<Item = i64>) -> Self {
        let mut records: Vec<(i64, u32)> =
            numbers.enumerate().filter(|(_, n)| *n != 0).map(|(i, n)| (n, i as u32)).collect();
        records.sort_unstable();
        // Of several records with one number the last counts.
        records.dedup_by(|later, kept| {
            later.0 == kept.0 && {
                kept.1 = later.1;
                true
            }
        });
        Self { records, next: 0 }
    }

    fn find(&mut self, number: i64) -> Option<u32> {
        let here = |at: usize| self.records.get(at).is_some_and(|r| r.0 == number);
        let at = if here(self.next) {
            self.next
        } else {
            self.records.binary_search_by_key(&number, |r| r.0).ok()?
        };
        self.next = at + 1;
        Some(self.records[at].1)
    }
}

fn by_thread<T>(items: &[T], thread: impl Fn(&T) -> NameId) -> HashMap<NameId, Vec<u32>> {
    let mut map: HashMap<NameId, Vec<u32>> = HashMap::new();
    for (i, item) in items.iter().enumerate() {
        map.entry(thread(item)).or_default().push(i as u32);
    }
    map
}

/// Pops what has ended before `now`.
fn leave<T>(stack: &mut Vec<u32>, items: &[T], end: impl Fn(&T) -> i64, now: i64) {
    while stack.last().is_some_and(|&top| end(&items[top as usize]) <= now) {
        stack.pop();
    }
}

fn op_end(op: &HostOp) -> i64 {
    op.start_ns.saturating_add(op.dur_ns)
}

fn parents(ops: &[HostOp], threads: &HashMap<NameId, Vec<u32>>) -> Vec<u32> {
    let mut parents = vec![NONE; ops.len()];
    for indices in threads.values() {
        let mut stack: Vec<u32> = Vec::new();
        for &i in indices {
            leave(&mut stack, ops, op_end, ops[i as usize].start_ns);
            parents[i as usize] = stack.last().copied().unwrap_or(NONE);
            stack.push(i);
        }
    }
    parents
}

fn enclosing_ops(profile: &Profile, ops: &HashMap<NameId, Vec<u32>>) -> Vec<u32> {
    let mut enclosing = vec![NONE; profile.calls.len()];
    for (thread, calls) in by_thread(&profile.calls, |c| c.thread) {
        let Some(ops) = ops.get(&thread) else { continue };
        let mut stack: Vec<u32> = Vec::new();
        let mut next = 0;
        for call in calls {
            let now = profile.calls[call as usize].start_ns;
            while next < ops.len() && profile.ops[ops[next] as usize].start_ns <= now {
                leave(&mut stack, &profile.ops, op_end, profile.ops[ops[next] as usize].start_ns);
                stack.push(ops[next]);
                next += 1;
            }
            leave(&mut stack, &profile.ops, op_end, now);
            enclosing[call as usize] = stack.last().copied().unwrap_or(NONE);
        }
    }
    enclosing
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
            None if in_step(op) => Phase::Optimizer,
            None => Phase::Forward,
        });
    }
    phases
}

fn modules(profile: &Profile, parents: &[u32], ops_by_thread: &HashMap<NameId, Vec<u32>>) -> Vec<NameId> {
    let mut modules = vec![NameId::EMPTY; profile.ops.len()];
    if profile.modules.is_empty() {
        return modules;
    }
    for (thread, marks) in by_thread(&profile.modules, |m| m.thread) {
        let Some(ops) = ops_by_thread.get(&thread) else { continue };
        let end = |m: &Mark| m.start_ns.saturating_add(m.dur_ns);
        let mut stack: Vec<u32> = Vec::new();
        let mut next = 0;
        for &op in ops {
            let now = profile.ops[op as usize].start_ns;
            while next < marks.len() && profile.modules[marks[next] as usize].start_ns <= now {
                let start = profile.modules[marks[next] as usize].start_ns;
                leave(&mut stack, &profile.modules, end, start);
                stack.push(marks[next]);
                next += 1;
            }
            leave(&mut stack, &profile.modules, end, now);
            if let Some(&top) = stack.last() {
                modules[op as usize] = profile.modules[top as usize].name;
            }
        }
    }
    // A backward operator belongs to the module of the forward operator with its sequence number.
    let mut forward: HashMap<i64, NameId> = HashMap::new();
    for (op, module) in profile.ops.iter().zip(&modules) {
        if op.sequence >= 0 && !op.backward && !module.is_empty() {
            forward.entry(op.sequence).or_insert(*module);
        }
    }
    for i in 0..profile.ops.len() {
        if !modules[i].is_empty() {
            continue;
        }
        let op = &profile.ops[i];
        let own = if op.backward { forward.get(&op.sequence).copied() } else { None };
        let parent = parents[i];
        modules[i] = own.unwrap_or(if parent == NONE { NameId::EMPTY } else { modules[parent as usize] });
    }
    modules
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{call, event, op, profile};

    #[test]
    fn innermost_operator_on_the_thread_wins() {
        let mut p = profile();
        p.ops = vec![op(&mut p.names, "aten::linear", 0, 100), op(&mut p.names, "aten::addmm", 10, 50)];
        p.calls =
            vec![call(&mut p.names, 20, 5, 7), call(&mut p.names, 70, 5, 8), call(&mut p.names, 200, 5, 9)];
        p.gpu_events = vec![
            event(&mut p.names, "k", 30, 5, 7),
            event(&mut p.names, "k", 80, 5, 8),
            event(&mut p.names, "k", 210, 5, 9),
            event(&mut p.names, "k", 300, 5, 99),
        ];
        let a = attribute(&p);
        assert_eq!(a.links, vec![Link::Operator(1), Link::Operator(0), Link::NoOperator, Link::Orphan]);
        assert_eq!(a.parents, vec![NONE, 0]);
    }

    #[test]
    fn of_several_calls_with_one_number_the_last_counts() {
        let mut calls = Numbered::new([5, 0, 7, 5, 6].into_iter());
        assert_eq!(
            [5, 6, 7, 9, 0, 5].map(|n| calls.find(n)),
            [Some(3), Some(4), Some(2), None, None, Some(3)]
        );
    }

    #[test]
    fn operators_within_an_optimizer_step_of_their_thread_are_its() {
        let mut p = profile();
        p.ops = [5, 30, 60, 95].map(|at| op(&mut p.names, "aten::add", at, 1)).to_vec();
        let (step, other) = (p.names.add("Optimizer.step#Adam.step"), p.names.add("another thread"));
        let thread = p.ops[0].thread;
        let mark = |start_ns, dur_ns, thread| Mark { start_ns, dur_ns, name: step, thread };
        p.marks = vec![mark(0, 20, other), mark(20, 30, thread), mark(25, 2, thread), mark(90, 10, thread)];
        let phases = attribute(&p).phases;
        assert_eq!(phases, [Phase::Forward, Phase::Optimizer, Phase::Forward, Phase::Optimizer]);
    }

    #[test]
    fn graph_replays_have_no_operator() {
        let mut p = profile();
        p.ops = vec![op(&mut p.names, "aten::mm", 0, 100)];
        let mut launch = call(&mut p.names, 20, 5, 7);
        launch.kind = CallKind::GraphLaunch;
        p.calls = vec![launch];
        p.gpu_events = vec![event(&mut p.names, "k", 30, 5, 7)];
        assert_eq!(attribute(&p).links, vec![Link::Graph]);
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
        p.ops = vec![forward, node, inner];
        let name = p.names.add("nn.Module: Linear_0");
        let thread = p.ops[0].thread;
        p.modules = vec![Mark { start_ns: 0, dur_ns: 50, name, thread }];
        let a = attribute(&p);
        assert_eq!(a.modules, vec![name; 3]);
        assert_eq!(a.phases, vec![Phase::Forward, Phase::Backward, Phase::Backward]);
    }
}
