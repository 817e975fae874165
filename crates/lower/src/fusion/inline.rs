//! Which values are written: those that a library reads or that outlive the iteration, and those that would cost more to compute again.

use super::{Node, Walk};
use crate::eager::Access;
use preflop_graph::Phase;
use std::collections::{HashMap, HashSet};

/// Values that a walk may read and still be computed again in several readers, and in one (`realize_reads_threshold`, `realize_acc_reads_threshold`).
const READS_SHARED: usize = 4;
const READS: usize = 8;
/// A library that reads less of a value than this share reads a piece of it, which has a kernel of its own.
const PIECE: f64 = 0.6;

/// Drops nodes that nothing needs, and those whose results their readers compute themselves: readers then read what these read.
pub(super) fn settle(nodes: &mut Vec<Node>, outputs: &HashSet<u32>) {
    drop_dead(nodes, outputs);
    let makers = makers(nodes);
    let mut readers: HashMap<u32, Vec<usize>> = HashMap::new();
    for (i, n) in nodes.iter().enumerate() {
        for r in &n.reads {
            let all = readers.entry(r.value).or_default();
            if all.last() != Some(&i) {
                all.push(i);
            }
        }
    }
    // What stands for a value that is not written, and what does in backward.
    let mut inlined: HashMap<u32, Standing> = HashMap::new();
    let mut again: HashMap<u32, Standing> = HashMap::new();
    // Values of the forward that backward reads, those of libraries and reductions first.
    let in_backward = |u: &usize| nodes[*u].phase == Phase::Backward;
    let backward = |v: &u32| readers.get(v).is_some_and(|all| all.iter().any(in_backward));
    let made = nodes.iter().filter(|n| n.phase == Phase::Forward && n.walk != Walk::Pointwise);
    let mut saved: HashSet<u32> = made.flat_map(|n| &n.writes).map(|w| w.value).filter(backward).collect();
    let mut keep = vec![true; nodes.len()];
    for i in 0..nodes.len() {
        if nodes[i].walk == Walk::Library {
            continue;
        }
        let forward = nodes[i].phase == Phase::Forward;
        let anew = Standing::of(&nodes[i], |v| again.get(&v).or_else(|| inlined.get(&v)));
        let own = if forward { Standing::of(&nodes[i], |v| inlined.get(&v)) } else { anew.clone() };
        let node = &mut nodes[i];
        (node.order, node.dear.function) = (own.order, own.function);
        node.reads.clone_from(&own.reads);
        if node.walk != Walk::Pointwise {
            continue;
        }
        let node = &nodes[i];
        let users: Vec<usize> =
            node.writes.iter().filter_map(|w| readers.get(&w.value)).flatten().copied().collect();
        let needs = |u: &usize| nodes[*u].walk == Walk::Library || nodes[*u].written;
        let mut written = node.written
            || node.writes.iter().any(|w| outputs.contains(&w.value))
            || users.iter().any(needs)
            || node.reads.len() > READS
            || users.iter().filter(|u| nodes[**u].phase == node.phase).count() > 1
                && node.reads.len() > READS_SHARED;
        if forward && users.iter().any(|u| nodes[*u].phase == Phase::Backward) {
            let more = |a: &&Access| makers.contains_key(&a.value) && !saved.contains(&a.value);
            // PyTorch's partitioner computes again what only fused operators read, but no random numbers and no concatenation.
            let kept_anyway = users.iter().any(needs) || !node.anew;
            let cost: f64 = anew.reads.iter().filter(more).map(|a| a.bytes).sum();
            if kept_anyway || cost > node.writes.iter().map(|w| w.bytes).sum() {
                written = true;
                saved.extend(node.writes.iter().map(|w| w.value));
            } else {
                saved.extend(anew.reads.iter().map(|a| a.value));
                node.writes.iter().for_each(|w| _ = again.insert(w.value, anew.clone()));
            }
        }
        if written {
            nodes[i].pieces = pieces(&nodes[i], &users, nodes);
        } else {
            keep[i] = false;
            node.writes.iter().for_each(|w| _ = inlined.insert(w.value, own.clone()));
        }
    }
    let mut kept = keep.into_iter();
    nodes.retain(|_| kept.next() == Some(true));
}

/// What stands for a value that its readers compute: what it is computed from, in which order of places, and whether that is dear.
#[derive(Clone)]
struct Standing {
    reads: Vec<Access>,
    order: u32,
    function: bool,
}

impl Standing {
    fn of<'a>(node: &Node, known: impl Fn(u32) -> Option<&'a Self>) -> Self {
        let mut out = Self { reads: Vec::new(), order: node.order, function: node.dear.function };
        for read in &node.reads {
            let Some(from) = known(read.value) else {
                merge(&mut out.reads, *read);
                continue;
            };
            from.reads.iter().for_each(|a| merge(&mut out.reads, *a));
            out.order = if out.order == 0 { from.order } else { out.order };
            out.function |= from.function;
        }
        out
    }
}

/// Reads a value, or more of it.
pub(super) fn merge(reads: &mut Vec<Access>, more: Access) {
    match reads.iter_mut().find(|r| r.value == more.value) {
        Some(known) => known.bytes = known.bytes.max(more.bytes),
        None => reads.push(more),
    }
}

fn makers(nodes: &[Node]) -> HashMap<u32, usize> {
    nodes.iter().enumerate().flat_map(|(i, n)| n.writes.iter().map(move |w| (w.value, i))).collect()
}

/// Pieces of a result that library calls read apart from each other, such as queries, keys and values of one product.
fn pieces(node: &Node, users: &[usize], nodes: &[Node]) -> u32 {
    let [out] = node.writes[..] else { return 1 };
    let of = |u: &usize| {
        let library = nodes[*u].walk == Walk::Library;
        nodes[*u].reads.iter().filter(move |r| library && r.value == out.value).map(|r| r.bytes)
    };
    let parts: Vec<f64> = users.iter().flat_map(of).collect();
    let apart = parts.iter().all(|p| *p < PIECE * out.bytes) && parts.iter().sum::<f64>() < 1.2 * out.bytes;
    if parts.len() > 1 && apart { parts.len() as u32 } else { 1 }
}

fn drop_dead(nodes: &mut Vec<Node>, outputs: &HashSet<u32>) {
    let makers = makers(nodes);
    let mut live: Vec<bool> = nodes
        .iter()
        .map(|n| n.writes.is_empty() || n.writes.iter().any(|w| outputs.contains(&w.value)))
        .collect();
    for i in (0..nodes.len()).rev() {
        if live[i] {
            for r in &nodes[i].reads {
                if let Some(&m) = makers.get(&r.value).filter(|m| **m < i) {
                    live[m] = true;
                }
            }
        }
    }
    let mut live = live.into_iter();
    nodes.retain(|_| live.next() == Some(true));
}
