//! Values alive between the kernels of a compiled program: each from the kernel that writes it to the last that reads it.

use super::kernels::Kernel;
use super::{Node, Walk};
use crate::eager::{Peak, counted, layout_workspace};
use preflop_graph::Step;
use preflop_ops::{Conv, Op};
use std::collections::{HashMap, HashSet};

/// The peak over all kernels. What exists before the program (weights, inputs) is not counted; a fused kernel writes over a value of the same size that it is the
/// last to read.
pub(super) fn peak(
    steps: &[Step],
    nodes: &[Node],
    kernels: &[Kernel],
    outputs: &HashSet<u32>,
    gradients: &HashSet<u32>,
) -> Peak {
    let mut last: HashMap<u32, usize> = HashMap::new();
    for (k, kernel) in kernels.iter().enumerate() {
        kernel.reads.iter().for_each(|r| _ = last.insert(r.value, k));
    }
    let ends = |value: u32, k: usize| !outputs.contains(&value) && last.get(&value).is_none_or(|l| *l <= k);
    let mut alive: HashMap<u32, f64> = HashMap::new();
    let (mut now, mut grown) = (0.0_f64, 0.0_f64);
    let mut most = Peak::default();
    for (k, kernel) in kernels.iter().enumerate() {
        let first = &nodes[kernel.members[0]];
        let fused = first.walk != Walk::Library;
        let dying: Vec<u32> =
            kernel.reads.iter().map(|r| r.value).filter(|v| alive.contains_key(v) && ends(*v, k)).collect();
        let mut free: Vec<f64> = if fused { dying.iter().map(|v| alive[v]).collect() } else { Vec::new() };
        let adds = kernel.members.iter().any(|n| nodes[*n].dear.atomics);
        for w in &kernel.writes {
            // What is added to stays where it is.
            let bytes =
                if adds { free.iter().copied().fold(counted(w.bytes), f64::max) } else { counted(w.bytes) };
            match free.iter().position(|f| *f == bytes) {
                Some(at) => _ = free.swap_remove(at),
                None => now += bytes,
            }
            if gradients.contains(&w.value) {
                grown += bytes;
            }
            alive.insert(w.value, bytes);
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
                alive.remove(v);
            }
        } else {
            now -= dying.iter().filter_map(|v| alive.remove(v)).sum::<f64>();
        }
        for w in kernel.writes.iter().filter(|w| !last.contains_key(&w.value) && !outputs.contains(&w.value))
        {
            now -= alive.remove(&w.value).unwrap_or(0.0);
        }
    }
    most
}
