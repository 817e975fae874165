//! Which nodes share a kernel.

use super::{NONE, Node, Walk};
use preflop_graph::Phase;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Nodes of one kernel at most (`max_fusion_size`).
const MOST_NODES: usize = 64;
/// Bytes that must be shared (`score_fusion_memory_threshold`).
const LEAST_SHARED: f64 = 10.0;
/// Rounds of fusion at most.
const ROUNDS: usize = 6;
/// A value that more kernels touch is no reason to fuse.
const MOST_SHARING: usize = 40;

/// Nodes that run as one kernel.
struct Group {
    nodes: Vec<u32>,
    /// Groups whose results it reads, and those that read its: by the numbers they had, which [`Fusion::find`] turns into those they have. Some come
    /// twice, and a group that took others in may be among its own.
    needs: Vec<u32>,
    feeds: Vec<u32>,
    /// The last node of it and of all that it needs, directly or not.
    latest: u32,
    places: u64,
    reduction: Option<(u64, u64, bool)>,
    order: u32,
    phase: Phase,
    library: bool,
}

/// The nodes of each kernel, in an order in which they can run.
pub(super) fn fuse(nodes: &[Node], values: usize) -> Vec<Vec<usize>> {
    let mut fusion = Fusion::of(nodes, values);
    let mut touching = vec![(0.0, Vec::new()); values];
    for _ in 0..ROUNDS {
        if fusion.round(nodes, &mut touching) == 0 {
            break;
        }
    }
    fusion.in_order()
}

struct Fusion {
    groups: Vec<Option<Group>>,
    /// Where the group of a node went.
    now: Vec<u32>,
    /// The search that came by a group last, and how many there were.
    seen: Vec<u32>,
    searches: u32,
}

/// Bytes of a value and the groups that read or write it.
type Touching = (f64, Vec<u32>);

impl Fusion {
    fn of(nodes: &[Node], values: usize) -> Self {
        let mut makers = vec![NONE; values];
        let mut groups: Vec<Option<Group>> = Vec::with_capacity(nodes.len());
        let mut reader = vec![NONE; nodes.len()];
        for (i, n) in (0..).zip(nodes) {
            let mut needs: Vec<u32> = Vec::with_capacity(n.reads.len());
            let mut latest = i;
            for r in &n.reads {
                let maker = makers[r.value as usize];
                let known = |last: &mut u32| std::mem::replace(last, i) == i;
                if reader.get_mut(maker as usize).is_none_or(known) {
                    continue;
                }
                needs.push(maker);
                if let Some(g) = &mut groups[maker as usize] {
                    latest = latest.max(g.latest);
                    g.feeds.push(i);
                }
            }
            n.writes.iter().for_each(|w| makers[w.value as usize] = i);
            let reduction = match n.walk {
                Walk::Reduction { reduced, outer } => Some((n.places, reduced, outer)),
                _ => None,
            };
            groups.push(Some(Group {
                nodes: vec![i],
                needs,
                feeds: Vec::new(),
                latest,
                places: n.places,
                reduction,
                order: n.order,
                phase: n.phase,
                library: n.walk == Walk::Library,
            }));
        }
        let now = (0..nodes.len() as u32).collect();
        Self { now, seen: vec![0; nodes.len()], searches: 0, groups }
    }

    fn find(&self, mut at: u32) -> u32 {
        while self.now[at as usize] != at {
            at = self.now[at as usize];
        }
        at
    }

    fn group(&self, at: u32) -> Option<&Group> {
        self.groups[at as usize].as_ref()
    }

    /// Fuses pairs, those that share most first; how many. `touching` is room for each value.
    fn round(&mut self, nodes: &[Node], touching: &mut [Touching]) -> usize {
        for (bytes, groups) in &mut *touching {
            *bytes = 0.0;
            groups.clear();
        }
        for (at, group) in (0..).zip(&self.groups) {
            let Some(group) = group.as_ref().filter(|g| !g.library) else { continue };
            for node in group.nodes.iter().map(|i| &nodes[*i as usize]) {
                for a in node.reads.iter().chain(&node.writes) {
                    let (bytes, groups) = &mut touching[a.value as usize];
                    *bytes = bytes.max(a.bytes);
                    if groups.last() != Some(&at) {
                        groups.push(at);
                    }
                }
            }
        }
        let mut shared: Vec<((u32, u32), f64)> = Vec::new();
        for (bytes, groups) in touching.iter().filter(|t| t.1.len() <= MOST_SHARING) {
            for (k, &a) in groups.iter().enumerate() {
                shared.extend(groups[k + 1..].iter().map(|&b| ((a, b), *bytes)));
            }
        }
        shared.sort_by_key(|(pair, _)| *pair);
        let together = |same: &[((u32, u32), f64)]| (same[0].0, same.iter().map(|(_, bytes)| bytes).sum());
        let mut pairs: Vec<((u32, u32), f64)> = shared.chunk_by(|x, y| x.0 == y.0).map(together).collect();
        pairs.retain(|p| p.1 >= LEAST_SHARED);
        pairs.sort_unstable_by(|x, y| {
            y.1.total_cmp(&x.1).then((x.0.1 - x.0.0).cmp(&(y.0.1 - y.0.0))).then(x.0.cmp(&y.0))
        });
        let mut fused = 0;
        for ((a, b), _) in pairs {
            let (a, b) = (self.find(a), self.find(b));
            if a != b && self.alike(a, b) && !self.between(a, b) && !self.between(b, a) {
                self.merge(a, b);
                fused += 1;
            }
        }
        fused
    }

    /// Do both walk over the same places in the same order?
    fn alike(&self, a: u32, b: u32) -> bool {
        let (Some(a), Some(b)) = (self.group(a), self.group(b)) else { return false };
        if a.phase != b.phase || a.order != b.order || a.nodes.len() + b.nodes.len() > MOST_NODES {
            return false;
        }
        match (a.reduction, b.reduction) {
            (Some(x), Some(y)) => x == y,
            (None, None) => a.places == b.places,
            (Some((results, reduced, outer)), None) | (None, Some((results, reduced, outer))) => {
                let places = if a.reduction.is_none() { a.places } else { b.places };
                places == results || !outer && places == results.saturating_mul(reduced)
            }
        }
    }

    /// Does `b` need `a` through a third group?
    fn between(&mut self, a: u32, b: u32) -> bool {
        self.searches += 1;
        let search = self.searches;
        let mut seen = std::mem::take(&mut self.seen);
        let found = self.comes_between(a, b, |g| std::mem::replace(&mut seen[g as usize], search) != search);
        self.seen = seen;
        found
    }

    /// As [`Self::between`]; `new` says of each group once that it was not seen before.
    fn comes_between(&self, a: u32, b: u32, mut new: impl FnMut(u32) -> bool) -> bool {
        let (Some(first), Some(last)) = (self.group(a), self.group(b)) else { return true };
        let newest = first.nodes.iter().copied().max().unwrap_or(0);
        let needs = |group: &Group, stack: &mut Vec<u32>, new: &mut dyn FnMut(u32) -> bool| {
            let mut direct = false;
            for g in group.needs.iter().map(|g| self.find(*g)) {
                direct |= g == a;
                if g != a && g != b && new(g) {
                    stack.push(g);
                }
            }
            direct
        };
        let mut stack = Vec::new();
        needs(last, &mut stack, &mut new);
        while let Some(at) = stack.pop() {
            let Some(group) = self.group(at) else { continue };
            // All that an older one needs is older than `a`.
            if group.latest < newest {
                continue;
            }
            if needs(group, &mut stack, &mut new) {
                return true;
            }
        }
        false
    }

    fn merge(&mut self, a: u32, b: u32) {
        let Some(other) = self.groups[b as usize].take() else { return };
        self.now[b as usize] = a;
        let Some(group) = &mut self.groups[a as usize] else { return };
        group.nodes.extend(other.nodes);
        group.needs.extend(other.needs);
        group.feeds.extend(other.feeds);
        group.reduction = group.reduction.or(other.reduction);
        group.latest = group.latest.max(other.latest);
        let mut stack = vec![a];
        while let Some(at) = stack.pop() {
            let Some((latest, feeds)) = self.group(at).map(|g| (g.latest, &g.feeds)) else { continue };
            let later: Vec<u32> = feeds
                .iter()
                .map(|f| self.find(*f))
                .filter(|f| self.group(*f).is_some_and(|g| g.latest < latest))
                .collect();
            for f in later {
                if let Some(group) = self.groups[f as usize].as_mut().filter(|g| g.latest < latest) {
                    group.latest = latest;
                    stack.push(f);
                }
            }
        }
    }

    /// The groups so that each comes after what it needs, else as early as its first node.
    fn in_order(&self) -> Vec<Vec<usize>> {
        let others = |at: u32, all: &[u32]| {
            let mut all: Vec<u32> = all.iter().map(|g| self.find(*g)).filter(|g| *g != at).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        let first = |g: &Group| g.nodes.iter().copied().min().unwrap_or(0);
        let mut waits = vec![0; self.groups.len()];
        let mut ready = BinaryHeap::new();
        for (at, group) in (0..).zip(&self.groups) {
            let Some(group) = group else { continue };
            waits[at as usize] = others(at, &group.needs).len();
            if waits[at as usize] == 0 {
                ready.push(Reverse((first(group), at)));
            }
        }
        let mut out = Vec::with_capacity(self.groups.len());
        while let Some(Reverse((_, at))) = ready.pop() {
            let Some(group) = self.group(at) else { continue };
            for f in others(at, &group.feeds) {
                let wait = &mut waits[f as usize];
                *wait = wait.saturating_sub(1);
                if let Some(next) = self.group(f).filter(|_| *wait == 0) {
                    ready.push(Reverse((first(next), f)));
                }
            }
            let mut nodes: Vec<usize> = group.nodes.iter().map(|n| *n as usize).collect();
            nodes.sort_unstable();
            out.push(nodes);
        }
        out
    }
}
