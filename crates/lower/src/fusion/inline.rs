//! Which values are written: those that a library reads or that outlive the iteration, and those that would cost more to compute again.

use super::{NONE, Node, Walk, makers};
use crate::eager::Access;
use preflop_graph::Phase;

/// Values that a walk may read and still be computed again in several readers, and in one (`realize_reads_threshold`, `realize_acc_reads_threshold`).
const READS_SHARED: usize = 4;
const READS: usize = 8;
/// A library that reads less of a value than this share reads a piece of it, which has a kernel of its own.
const PIECE: f64 = 0.6;

/// Drops nodes that nothing needs, and those whose results their readers compute themselves: readers then read what these read. `outputs`
/// marks the values that outlive the iteration.
pub(super) fn settle(nodes: &mut Vec<Node>, outputs: &[bool]) {
    drop_dead(nodes, outputs);
    let makers = makers(nodes, outputs.len());
    let readers = Readers::of(nodes, outputs.len());
    let mut known =
        Known { all: Vec::new(), inlined: vec![NONE; outputs.len()], again: vec![NONE; outputs.len()] };
    // Values of the forward that backward reads, those of libraries and reductions first.
    let mut saved = vec![false; outputs.len()];
    for w in nodes
        .iter()
        .filter(|n| n.phase == Phase::Forward && n.walk != Walk::Pointwise)
        .flat_map(|n| &n.writes)
    {
        saved[w.value as usize] |=
            readers.of_value(w.value).iter().any(|u| nodes[*u as usize].phase == Phase::Backward);
    }
    let mut keep = vec![true; nodes.len()];
    let mut users: Vec<u32> = Vec::new();
    for i in 0..nodes.len() {
        if nodes[i].walk == Walk::Library {
            continue;
        }
        let forward = nodes[i].phase == Phase::Forward;
        let plain = Standing::plain(&mut nodes[i]);
        let own = known.standing(&plain, !forward);
        let node = &mut nodes[i];
        (node.order, node.dear.function) = (own.order, own.function);
        node.reads.clone_from(&own.reads);
        if node.walk != Walk::Pointwise {
            continue;
        }
        let node = &nodes[i];
        users.clear();
        node.writes.iter().for_each(|w| users.extend(readers.of_value(w.value)));
        let of = |u: &u32| &nodes[*u as usize];
        let needs = |u: &u32| of(u).walk == Walk::Library || of(u).written;
        let mut written = node.written
            || node.writes.iter().any(|w| outputs[w.value as usize])
            || users.iter().any(needs)
            || node.reads.len() > READS
            || users.iter().filter(|u| of(u).phase == node.phase).count() > 1
                && node.reads.len() > READS_SHARED;
        if forward && users.iter().any(|u| of(u).phase == Phase::Backward) {
            let anew = known.standing(&plain, true);
            let more = |a: &&Access| makers[a.value as usize] != NONE && !saved[a.value as usize];
            // PyTorch's partitioner computes again what only fused operators read, but no random numbers and no concatenation.
            let kept_anyway = users.iter().any(needs) || !node.anew;
            let cost: f64 = anew.reads.iter().filter(more).map(|a| a.bytes).sum();
            if kept_anyway || cost > node.writes.iter().map(|w| w.bytes).sum() {
                written = true;
                node.writes.iter().for_each(|w| saved[w.value as usize] = true);
            } else {
                anew.reads.iter().for_each(|a| saved[a.value as usize] = true);
                known.keep(&node.writes, anew, true);
            }
        }
        if written {
            nodes[i].pieces = pieces(&nodes[i], &users, nodes);
        } else {
            keep[i] = false;
            known.keep(&node.writes, own, false);
        }
    }
    let mut kept = keep.into_iter();
    nodes.retain(|_| kept.next() == Some(true));
}

/// What stands for a value that its readers compute: what it is computed from, in which order of places, and whether that is dear.
struct Standing {
    reads: Vec<Access>,
    order: u32,
    function: bool,
}

impl Standing {
    /// A node as it stands by itself; its reads are taken from it.
    fn plain(node: &mut Node) -> Self {
        Self { reads: std::mem::take(&mut node.reads), order: node.order, function: node.dear.function }
    }
}

/// What stands for values that are not written: by value its place among all, here and in backward.
struct Known {
    all: Vec<Standing>,
    inlined: Vec<u32>,
    again: Vec<u32>,
}

impl Known {
    /// What a node is computed from where values that are not written are computed anew.
    fn standing(&self, plain: &Standing, backward: bool) -> Standing {
        let mut out =
            Standing { reads: Vec::with_capacity(READS), order: plain.order, function: plain.function };
        for read in &plain.reads {
            let at = read.value as usize;
            let place = Some(self.again[at]).filter(|p| backward && *p != NONE).unwrap_or(self.inlined[at]);
            let Some(from) = self.all.get(place as usize) else {
                merge(&mut out.reads, *read);
                continue;
            };
            from.reads.iter().for_each(|a| merge(&mut out.reads, *a));
            out.order = if out.order == 0 { from.order } else { out.order };
            out.function |= from.function;
        }
        out
    }

    /// Readers compute these values so, in backward alone or wherever they are.
    fn keep(&mut self, writes: &[Access], standing: Standing, in_backward: bool) {
        let places = if in_backward { &mut self.again } else { &mut self.inlined };
        for w in writes {
            places[w.value as usize] = self.all.len() as u32;
        }
        self.all.push(standing);
    }
}

/// The nodes that read each value, one after the other.
struct Readers {
    starts: Vec<u32>,
    nodes: Vec<u32>,
}

impl Readers {
    fn of(nodes: &[Node], values: usize) -> Self {
        // Each node once, however often it reads a value.
        let mut last = vec![NONE; values];
        let mut starts = vec![0_u32; values + 1];
        for (i, n) in (0..).zip(nodes) {
            for v in n.reads.iter().map(|r| r.value as usize) {
                starts[v + 1] += u32::from(last[v] != i);
                last[v] = i;
            }
        }
        for v in 0..values {
            starts[v + 1] += starts[v];
        }
        let mut next = starts.clone();
        let mut all = vec![NONE; starts[values] as usize];
        for (i, n) in (0..).zip(nodes) {
            for v in n.reads.iter().map(|r| r.value as usize) {
                let known = next[v] > starts[v] && all[next[v] as usize - 1] == i;
                if !known {
                    all[next[v] as usize] = i;
                    next[v] += 1;
                }
            }
        }
        Self { starts, nodes: all }
    }

    fn of_value(&self, value: u32) -> &[u32] {
        let at = value as usize;
        &self.nodes[self.starts[at] as usize..self.starts[at + 1] as usize]
    }
}

/// Reads a value, or more of it.
pub(super) fn merge(reads: &mut Vec<Access>, more: Access) {
    match reads.iter_mut().find(|r| r.value == more.value) {
        Some(known) => known.bytes = known.bytes.max(more.bytes),
        None => reads.push(more),
    }
}

/// Pieces of a result that library calls read apart from each other, such as queries, keys and values of one product.
fn pieces(node: &Node, users: &[u32], nodes: &[Node]) -> u32 {
    let [out] = node.writes[..] else { return 1 };
    let of = |u: &u32| {
        let user = &nodes[*u as usize];
        let library = user.walk == Walk::Library;
        user.reads.iter().filter(move |r| library && r.value == out.value).map(|r| r.bytes)
    };
    let parts: Vec<f64> = users.iter().flat_map(of).collect();
    let apart = parts.iter().all(|p| *p < PIECE * out.bytes) && parts.iter().sum::<f64>() < 1.2 * out.bytes;
    if parts.len() > 1 && apart { parts.len() as u32 } else { 1 }
}

fn drop_dead(nodes: &mut Vec<Node>, outputs: &[bool]) {
    let makers = makers(nodes, outputs.len());
    let mut live: Vec<bool> = nodes
        .iter()
        .map(|n| n.writes.is_empty() || n.writes.iter().any(|w| outputs[w.value as usize]))
        .collect();
    for i in (0..nodes.len()).rev() {
        if live[i] {
            for r in &nodes[i].reads {
                let maker = makers[r.value as usize] as usize;
                if maker < i {
                    live[maker] = true;
                }
            }
        }
    }
    let mut live = live.into_iter();
    nodes.retain(|_| live.next() == Some(true));
}
