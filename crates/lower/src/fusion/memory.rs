//! Values alive between the kernels of a compiled program: each from the kernel that writes it to the last that reads it.

use super::kernels::Kernel;
use super::{NONE, Node, Walk};
use crate::eager::{Peak, counted, layout_workspace};
use preflop_graph::Step;
use preflop_ops::{Conv, Op};

/// The peak over all kernels. What exists before the program (weights, inputs) is not counted; a fused kernel writes over a value of the same size that it is the
/// last to read.
pub(super) fn peak(
    steps: &[Step],
    nodes: &[Node],
    kernels: &[Kernel],
    outputs: &[bool],
    gradients: &[bool],
) -> Peak {
    let mut last = vec![NONE; outputs.len()];
    for (k, kernel) in kernels.iter().enumerate() {
        kernel.reads.iter().for_each(|r| last[r.value as usize] = k as u32);
    }
    let ends = |value: usize, k: usize| !outputs[value] && (last[value] == NONE || last[value] as usize <= k);
    let mut alive: Vec<Option<f64>> = vec![None; outputs.len()];
    let (mut now, mut grown) = (0.0_f64, 0.0_f64);
    let mut most = Peak::default();
    for (k, kernel) in kernels.iter().enumerate() {
        let first = &nodes[kernel.members[0]];
        let fused = first.walk != Walk::Library;
        let read = kernel.reads.iter().map(|r| r.value as usize);
        let dying: Vec<usize> = read.filter(|v| alive[*v].is_some() && ends(*v, k)).collect();
        let mut free: Vec<f64> =
            if fused { dying.iter().filter_map(|v| alive[*v]).collect() } else { Vec::new() };
        let adds = kernel.members.iter().any(|n| nodes[*n].dear.atomics);
        for w in &kernel.writes {
            // What is added to stays where it is.
            let bytes =
                if adds { free.iter().copied().fold(counted(w.bytes), f64::max) } else { counted(w.bytes) };
            match free.iter().position(|f| *f == bytes) {
                Some(at) => _ = free.swap_remove(at),
                None => now += bytes,
            }
            if gradients[w.value as usize] {
                grown += bytes;
            }
            alive[w.value as usize] = Some(bytes);
        }
        let call = &steps[first.step].call;
        let workspace = match &call.op {
            Op::Conv(c) if !fused => {
                layout_workspace(&Conv { channels_last: true, ..*c }, call.pass, call.dtype)
            }
            _ => 0.0,
        };
        if now + workspace > most.activations + most.gradients + most.workspace {
            most = Peak { activations: now - grown, gradients: grown, workspace };
        }
        // Those that were written over are free already.
        if fused {
            now -= free.iter().sum::<f64>();
            for v in &dying {
                alive[*v] = None;
            }
        } else {
            now -= dying.iter().filter_map(|v| alive[*v].take()).sum::<f64>();
        }
        for value in kernel.writes.iter().map(|w| w.value as usize) {
            if last[value] == NONE && !outputs[value] {
                now -= alive[value].take().unwrap_or(0.0);
            }
        }
    }
    most
}
