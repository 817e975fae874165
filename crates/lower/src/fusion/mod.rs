//! The compiled form of a graph without a compiler: what Inductor would make of its operators, from the flow of data through them.
//!
//! The passes are Inductor's own, in small: `nodes` takes operators apart into walks over places and reductions (a norm is two), with reductions split over
//! blocks as Inductor splits them; `inline` drops what nobody reads, and computes a walk again in each of its readers where that reads little, and again in
//! backward where it saves memory; `groups` fuses what shares a value and walks alike, as long as no circle of dependences comes of it; `kernels` gives each
//! group as one launch with its bytes, and `memory` counts what is alive between them. The thresholds are those of PyTorch 2.11's `torch/_inductor` (`config.py`, `choices.py`, `scheduler.py`).
//! `docs/run-options.md` says how far it is from the real compiler's listings.

mod groups;
mod inline;
mod kernels;
mod memory;
mod nodes;
mod reductions;

use crate::eager::{Access, Flow, Peak};
pub(crate) use kernels::library;
use preflop_graph::{Phase, Step};

/// How a node of the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Walk {
    /// A call of a library, or of PyTorch's own kernels: nothing is fused with it.
    Library,
    /// Place by place.
    Pointwise,
    /// Values reduced for each place, along rows or (`outer`) across them.
    Reduction { reduced: u64, outer: bool },
}

/// What is dear about a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)]
struct Dear {
    function: bool,
    random: bool,
    atomics: bool,
    pooling_gradient: bool,
    online_softmax: bool,
    /// A change of layout, and of rows a few values wide.
    tiled: bool,
    narrow: bool,
}

/// One node: an operator, or a part of one.
#[derive(Debug, Clone)]
struct Node {
    walk: Walk,
    /// Places of the result.
    places: u64,
    reads: Vec<Access>,
    writes: Vec<Access>,
    /// The step that it is of.
    step: usize,
    phase: Phase,
    /// Loads at each place beyond one for each value that is read.
    more_loads: u32,
    /// Nodes of another order of places (a permuting copy) are not fused with this one; 0 is the order in which values lie.
    order: u32,
    /// Is the result written whatever reads it?
    written: bool,
    /// May backward compute it again?
    anew: bool,
    /// Parts that are written by kernels of their own: readers of a piece each.
    pieces: u32,
    /// A sum by PyTorch's own kernel over this many rows.
    sum: Option<(u64, u64)>,
    dear: Dear,
}

/// In place of a node's or kernel's number: there is none.
const NONE: u32 = u32::MAX;

/// The last node that writes each of so many values: values are numbered, so that what is known of them stands in lists.
fn makers(nodes: &[Node], values: usize) -> Vec<u32> {
    let mut makers = vec![NONE; values];
    for (i, n) in nodes.iter().enumerate() {
        n.writes.iter().for_each(|w| makers[w.value as usize] = i as u32);
    }
    makers
}

/// The steps of an iteration, fused, and the memory of what they make at its peak. `gradients` and `kept` are the values that outlive it.
pub(crate) fn fused(steps: &[Step], flows: &[Flow], gradients: &[u32], kept: &[u32]) -> (Vec<Step>, Peak) {
    let mut program = nodes::program(steps, flows);
    let values = gradients.iter().chain(kept).map(|v| *v as usize + 1).fold(program.values, usize::max);
    let marked = |all: &[u32]| {
        let mut marks = vec![false; values];
        for v in all {
            marks[*v as usize] = true;
        }
        marks
    };
    let outputs = marked(&[gradients, kept, &program.outputs].concat());
    inline::settle(&mut program.nodes, &outputs);
    let nodes = &program.nodes;
    let groups = kernels::kernels(nodes, groups::fuse(nodes, values), &outputs);
    let peak = memory::peak(steps, nodes, &groups, &outputs, &marked(gradients));
    (kernels::launches(steps, nodes, &groups), peak)
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_ops::{Elementwise, ElementwiseKind as E, Gemm, Op, OpCall, Rowwise, RowwiseKind};
    use preflop_units::dtype::Dtype;

    fn step(op: Op) -> Step {
        Step { name: "layer".into(), phase: Phase::Forward, call: OpCall::fwd(op, Dtype::Bf16), count: 1 }
    }

    fn walk(kind: E) -> Step {
        step(Op::Elementwise(Elementwise { kind, n: 1000 }))
    }

    /// Values of 1000 places of two bytes.
    fn flow(reads: &[u32], write: u32) -> Flow {
        let access = |value| Access { value, bytes: 2000.0 };
        let reads = reads.iter().copied().map(access).collect();
        Flow { reads, writes: vec![access(write)], moved: false }
    }

    #[test]
    fn a_chain_between_products_reads_and_writes_once() {
        let product = step(Op::Gemm(Gemm::linear(8, 8, 8, false)));
        let steps = [product.clone(), walk(E::AddBias), walk(E::Relu), product];
        let flows = [flow(&[0], 1), flow(&[1], 2), flow(&[2], 3), flow(&[3], 4)];
        let (fused, _) = fused(&steps, &flows, &[], &[4]);
        assert_eq!(fused.len(), 3);
        let Op::Fused(f) = &fused[1].call.op else { panic!("not fused") };
        assert_eq!((f.read, f.written), (2000, 2000));
    }

    #[test]
    fn what_nobody_reads_is_not_computed() {
        let steps = [walk(E::Relu), walk(E::Relu)];
        let (fused, _) = fused(&steps, &[flow(&[0], 1), flow(&[0], 2)], &[], &[2]);
        assert_eq!(fused.len(), 1);
    }

    #[test]
    fn a_kernel_never_waits_for_itself() {
        // Both walks read value 0, but the second needs a product of the first: two kernels.
        let product = step(Op::Gemm(Gemm::linear(8, 8, 8, false)));
        let steps = [walk(E::Relu), product, walk(E::Add)];
        let (fused, _) = fused(&steps, &[flow(&[0], 1), flow(&[1], 2), flow(&[0, 2], 3)], &[], &[3]);
        assert_eq!(fused.len(), 3);
        let Op::Fused(sum) = &fused[2].call.op else { panic!("not fused") };
        assert_eq!((sum.read, sum.written), (4000, 2000));
    }

    #[test]
    fn a_softmax_is_one_kernel_that_reads_once_and_its_result_takes_its_operand_s_place() {
        let softmax = step(Op::Rowwise(Rowwise { kind: RowwiseKind::Softmax, rows: 10, cols: 100 }));
        let product = step(Op::Gemm(Gemm::linear(8, 8, 8, false)));
        let steps = [product.clone(), softmax, product];
        let (fused, peak) = fused(&steps, &[flow(&[0], 1), flow(&[1], 2), flow(&[2], 3)], &[], &[3]);
        let Op::Fused(f) = &fused[1].call.op else { panic!("not fused") };
        assert_eq!((fused.len(), f.read, f.written), (3, 2000, 2000));
        // Two values of 2048 bytes as the allocator counts them: what a product reads and what it writes.
        assert_eq!(peak.activations, 4096.0);
    }
}
