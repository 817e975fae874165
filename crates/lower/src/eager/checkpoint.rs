//! Activation checkpointing, as `torch.utils.checkpoint(.., use_reentrant=False)` does it.
//!
//! A segment of the forward drops what its operators saved and keeps what goes into it. When backward first wants a saved tensor of it, the
//! segment's forward runs again up to the last operator that saves something, and backward goes on. Every saved tensor passes through two hooks in
//! Python and, when it is wanted, a third.

use super::backward::GradNode;
use super::{Lowering, Value};
use preflop_graph::graph::{Graph, GraphOp};
use preflop_graph::{Mode, ModelError, Phase};
use std::ops::Range;

/// Host time of the three hooks of one saved tensor, in module calls: 1.8 to 3.0 linear layers with their modules, which are two of the host's
/// counts (`python/bench/measure_checkpoint.py`).
const HOOKS: u64 = 5;
/// Host time of one segment (contexts, state of the random generators), in module calls; measured as above, 20 to 37 linear layers.
const SEGMENT: u64 = 50;

/// A part of the forward that is computed again.
#[derive(Debug)]
pub(super) struct Segment {
    nodes: Range<usize>,
    /// What it recorded for backward.
    tape: Range<usize>,
    /// What goes in: tensors of the graph with their values.
    inputs: Vec<(u32, Value)>,
    /// Tensors saved in it.
    saved: usize,
}

/// The segments of a graph that are still to come in the forward, and those that backward has not reached.
#[derive(Debug, Default)]
pub(super) struct Segments {
    coming: Vec<Range<usize>>,
    open: Option<Segment>,
    done: Vec<Segment>,
    /// Steps up to the last operator that saved something.
    pub needed: usize,
}

impl Segments {
    pub fn of(graph: &Graph, training: bool) -> Self {
        let mut coming = if training { graph.segments() } else { Vec::new() };
        coming.reverse();
        Self { coming, ..Self::default() }
    }
}

impl Lowering<'_> {
    /// Before node `at` of the forward: a segment may begin, and its inputs are kept.
    pub(super) fn enter_segment(&mut self, at: usize) {
        let Some(nodes) = self.segments.coming.pop_if(|s| s.start == at) else { return };
        let made: Vec<u32> =
            self.graph.nodes[nodes.clone()].iter().flat_map(|n| n.outputs.iter().copied()).collect();
        let mut inputs: Vec<(u32, Value)> = Vec::new();
        for &t in self.graph.nodes[nodes.clone()].iter().flat_map(|n| &n.inputs) {
            let known = made.contains(&t) || inputs.iter().any(|(i, _)| *i == t);
            if let Some(v) = self.values[t as usize].filter(|_| !known) {
                self.memory.retain(v.storage);
                inputs.push((t, v));
            }
        }
        let start = self.tape.len();
        self.segments.open = Some(Segment { nodes, tape: start..start, inputs, saved: 0 });
    }

    /// After node `at` of the forward: a segment that ends here drops what it saved.
    pub(super) fn leave_segment(&mut self, at: usize) {
        let Some(mut segment) = self.segments.open.take_if(|s| s.nodes.end == at + 1) else { return };
        segment.tape.end = self.tape.len();
        for node in &mut self.tape[segment.tape.clone()] {
            segment.saved += node.saved.len();
            for s in node.saved.drain(..) {
                self.memory.release(s);
            }
        }
        if segment.saved == 0 {
            self.release_inputs(&segment);
            return;
        }
        self.segments.done.push(segment);
    }

    fn release_inputs(&mut self, segment: &Segment) {
        for (_, v) in &segment.inputs {
            self.memory.release(v.storage);
        }
    }

    /// Before backward runs recorded operator `at`: its segment is computed again if it has to be.
    pub(super) fn recompute(
        &mut self,
        tape: &mut [GradNode],
        at: usize,
        mode: Mode,
    ) -> Result<(), ModelError> {
        let Some(found) = self.segments.done.iter().rposition(|s| s.tape.contains(&at)) else {
            return Ok(());
        };
        let segment = self.segments.done.remove(found);
        let graph = self.graph;
        let (first, current) = (self.steps.len(), self.current);
        self.segments.needed = first;
        self.phase = Phase::Forward;
        for &(t, v) in &segment.inputs {
            self.values[t as usize] = Some(v);
        }
        let autocast = self.policy.autocast.is_some();
        let mut dying: Vec<(usize, u32)> = Vec::new();
        for at in segment.nodes.clone() {
            let node = &graph.nodes[at];
            if !node.when.holds(mode, autocast) || matches!(node.op, GraphOp::Input | GraphOp::Cache) {
                continue;
            }
            self.current = at as u32;
            self.host.module_calls += u64::from(node.modules);
            self.node(node)?;
            for &t in &node.outputs {
                if let Some(v) = self.values[t as usize] {
                    self.memory.retain(v.storage);
                    dying.push((last_use(graph, &segment.nodes, t), t));
                }
            }
            self.free_temporaries();
            for (_, t) in dying.extract_if(.., |(last, _)| *last <= at) {
                if let Some(v) = self.values[t as usize].take() {
                    self.memory.release(v.storage);
                }
            }
        }
        for (_, t) in dying {
            if let Some(v) = self.values[t as usize].take() {
                self.memory.release(v.storage);
            }
        }
        for &(t, _) in &segment.inputs {
            self.values[t as usize] = None;
        }
        self.release_inputs(&segment);
        for p in 0..self.cast_cache.len() {
            if let Some(v) = self.cast_cache[p].take() {
                self.memory.release(v.storage);
            }
        }
        self.hand_over(&mut tape[segment.tape.clone()]);
        self.host.module_calls += HOOKS * segment.saved as u64 + SEGMENT;
        // What follows the last saved tensor is not computed again.
        self.steps.truncate(self.segments.needed.max(first));
        self.flow_truncated();
        for step in &mut self.steps[first..] {
            step.phase = Phase::Backward;
        }
        (self.phase, self.current) = (Phase::Backward, current);
        Ok(())
    }

    /// Gives the operators that were recorded in the forward what their second run saved. A weight that the autocast cache held in the forward
    /// is cast anew, which records an operator more.
    fn hand_over(&mut self, tape: &mut [GradNode]) {
        let mut wanting = tape.iter_mut().peekable();
        for node in std::mem::take(&mut self.tape) {
            match wanting.next_if(|w| std::mem::discriminant(&w.kind) == std::mem::discriminant(&node.kind)) {
                Some(old) => (old.saved, old.wanted) = (node.saved, node.wanted),
                None => node.saved.into_iter().for_each(|s| self.memory.release(s)),
            }
        }
    }
}

/// The last node of a segment that reads or makes a tensor.
fn last_use(graph: &Graph, nodes: &Range<usize>, tensor: u32) -> usize {
    let uses =
        |at: &usize| graph.nodes[*at].inputs.iter().chain(&graph.nodes[*at].outputs).any(|&t| t == tensor);
    let last = nodes.clone().rev().find(uses).unwrap_or(nodes.start);
    let held = graph.held.iter().filter(|(t, _)| *t == tensor).map(|(_, node)| *node as usize).max();
    held.map_or(last, |h| h.max(last).min(nodes.end - 1))
}
