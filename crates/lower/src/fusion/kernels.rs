//! Groups of nodes as launches.

use super::{NONE, Node, Walk};
use crate::eager::Access;
use preflop_graph::{Phase, Step};
use preflop_ops::{Conv, Fused, FusedForm, FusedTraits, Gemm, Op, OpCall, Pass, Rowwise, RowwiseKind};
use preflop_units::dtype::Dtype;

/// Values of a row that a block holds at once: of more, or across rows, it loops (`persistent_reduction` of `choices.py`).
const HELD_ALONG: u64 = 1024;
const HELD_ACROSS: u64 = 64;

/// A group with what goes in and what leaves it.
pub(super) struct Kernel {
    pub members: Vec<usize>,
    pub reads: Vec<Access>,
    pub writes: Vec<Access>,
}

/// In place of a group's number: several.
const SEVERAL: u32 = NONE - 1;

/// What each group reads from outside and writes for others.
pub(super) fn kernels(nodes: &[Node], groups: Vec<Vec<usize>>, outputs: &[bool]) -> Vec<Kernel> {
    // By value: the group that reads it, and the last one that was seen to make it.
    let (mut reader, mut maker) = (vec![NONE; outputs.len()], vec![NONE; outputs.len()]);
    for (g, members) in groups.iter().enumerate() {
        for r in members.iter().flat_map(|n| &nodes[*n].reads) {
            let known = &mut reader[r.value as usize];
            *known = if *known == NONE || *known == g as u32 { g as u32 } else { SEVERAL };
        }
    }
    let kernel = |(g, members): (usize, Vec<usize>)| {
        let group = g as u32;
        members.iter().flat_map(|n| &nodes[*n].writes).for_each(|w| maker[w.value as usize] = group);
        let mut reads: Vec<Access> = Vec::new();
        for r in members.iter().flat_map(|n| &nodes[*n].reads).filter(|r| maker[r.value as usize] != group) {
            super::inline::merge(&mut reads, *r);
        }
        let leaves = |w: &&Access| {
            let reader = reader[w.value as usize];
            reader != NONE && reader != group || outputs[w.value as usize]
        };
        let library = nodes[members[0]].walk == Walk::Library;
        let writes = members
            .iter()
            .flat_map(|n| &nodes[*n].writes)
            .filter(|w| library || leaves(w))
            .copied()
            .collect();
        Kernel { members, reads, writes }
    };
    groups.into_iter().enumerate().map(kernel).collect()
}

/// The launches of all groups, and the optimizer's steps as they are.
pub(super) fn launches(steps: &[Step], nodes: &[Node], kernels: &[Kernel]) -> Vec<Step> {
    let mut out = Vec::with_capacity(kernels.len());
    for kernel in kernels {
        let first = &nodes[kernel.members[0]];
        let step = &steps[first.step];
        if first.walk != Walk::Library {
            let members: Vec<&Node> = kernel.members.iter().map(|i| &nodes[*i]).collect();
            let name = members.last().map_or(&step.name, |n| &steps[n.step].name).clone();
            let call = OpCall::new(Op::Fused(fused(kernel, &members)), Pass::Fwd, step.call.dtype);
            let count = members.iter().map(|n| n.pieces).max().unwrap_or(1);
            out.push(Step { name, phase: step.phase, call, count });
        } else if let Some((rows, cols)) = first.sum {
            let op = Op::Rowwise(Rowwise { kind: RowwiseKind::SumCols, rows, cols });
            out.push(Step { call: OpCall::fwd(op, Dtype::Fp32), ..step.clone() });
        } else {
            out.push(library(step));
        }
    }
    out.extend(steps.iter().filter(|s| s.phase == Phase::Optimizer).cloned());
    out
}

/// One launch.
fn fused(kernel: &Kernel, members: &[&Node]) -> Fused {
    let reduction = members.iter().find_map(|n| match n.walk {
        Walk::Reduction { reduced, outer } => Some((n.places, reduced, outer)),
        _ => None,
    });
    let any = |what: fn(&Node) -> bool| members.iter().any(|n| what(n));
    let form = match reduction {
        None if any(|n| n.dear.tiled) => FusedForm::Tiled,
        None => FusedForm::Pointwise,
        Some((_, reduced, true)) if reduced > HELD_ACROSS => FusedForm::LoopedOuter,
        Some((_, reduced, false)) if reduced > HELD_ALONG => FusedForm::LoopedInner,
        Some(_) => FusedForm::Persistent,
    };
    let pieces = members.iter().map(|n| n.pieces).max().unwrap_or(1).max(1);
    let (elements, reduced) = reduction.map_or((members[0].places, 1), |r| (r.0, r.1));
    let share = |all: &[Access]| (all.iter().map(|a| a.bytes).sum::<f64>() / f64::from(pieces)) as u64;
    let more: u32 = members.iter().map(|n| n.more_loads).sum();
    Fused {
        form,
        read: share(&kernel.reads),
        written: share(&kernel.writes),
        elements: (elements / u64::from(pieces)).max(1),
        reduced,
        loads: (kernel.reads.len() as u32 + more).max(1),
        stores: (kernel.writes.len() as u32).max(1),
        traits: FusedTraits {
            functions: members.iter().filter(|n| n.dear.function).count().min(2) as u8,
            random: any(|n| n.dear.random),
            atomics: any(|n| n.dear.atomics),
            pooling_gradient: any(|n| n.dear.pooling_gradient),
            online_softmax: any(|n| n.dear.online_softmax),
            narrow: any(|n| n.dear.narrow),
        },
    }
}

/// A call of a library as compiled code makes it.
pub(crate) fn library(step: &Step) -> Step {
    let mut step = step.clone();
    match step.call.op {
        Op::Conv(conv) => step.call.op = Op::Conv(Conv { channels_last: true, ..conv }),
        Op::Gemm(product) => step.call.op = Op::Gemm(padded(product, step.call.dtype)),
        _ => {}
    }
    step
}

/// A product with sizes that 16-byte loads can take: Inductor pads others where arithmetic binds them.
pub(super) fn padded(product: Gemm, dtype: Dtype) -> Gemm {
    /// FLOPs per byte from which arithmetic binds a product, on all GPUs with tensor cores.
    const BOUND_BY_ARITHMETIC: f64 = 100.0;
    let aligned = (16.0 / dtype.size()) as u64;
    let intensity = product.flops().0 / product.traffic(dtype).total().0.max(1.0);
    if !dtype.is_half() || intensity < BOUND_BY_ARITHMETIC {
        return product;
    }
    let up = |size: u64| size.next_multiple_of(aligned.max(1));
    Gemm { m: up(product.m), n: up(product.n), k: up(product.k), ..product }
}
