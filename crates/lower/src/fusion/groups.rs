//! Which nodes share a kernel.

use super::{Node, Walk};
use preflop_graph::Phase;
use std::collections::{HashMap, HashSet};

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
    nodes: Vec<usize>,
    /// Groups whose results it reads, and those that read its.
    needs: HashSet<usize>,
    feeds: HashSet<usize>,
    /// The last node of it and of all that it needs, directly or not.
    latest: usize,
    places: u64,
    reduction: Option<(u64, u64, bool)>,
    order: u32,
    phase: Phase,
    library: bool,
}

/// The nodes of each kernel, in an order in which they can run.
pub(super) fn fuse(nodes: &[Node]) -> Vec<Vec<usize>> {
    let mut fusion = Fusion::of(nodes);
    for _ in 0..ROUNDS {
        if fusion.round(nodes) == 0 {
            break;
        }
    }
    fusion.in_order()
}

struct Fusion {
    groups: Vec<Option<Group>>,
    /// Where the group of a node went.
    now: Vec<usize>,
}

impl Fusion {
    fn of(nodes: &[Node]) -> Self {
        let mut makers: HashMap<u32, usize> = HashMap::new();
        let mut groups: Vec<Option<Group>> = Vec::with_capacity(nodes.len());
        for (i, n) in nodes.iter().enumerate() {
            let needs: HashSet<usize> =
                n.reads.iter().filter_map(|r| makers.get(&r.value).copied()).filter(|m| *m != i).collect();
            let before = needs.iter().filter_map(|m| groups[*m].as_ref().map(|g| g.latest)).max();
            for &m in &needs {
                if let Some(g) = &mut groups[m] {
                    g.feeds.insert(i);
                }
            }
            for w in &n.writes {
                makers.insert(w.value, i);
            }
            let reduction = match n.walk {
                Walk::Reduction { reduced, outer } => Some((n.places, reduced, outer)),
                _ => None,
            };
            groups.push(Some(Group {
                nodes: vec![i],
                needs,
                feeds: HashSet::new(),
                latest: before.unwrap_or(0).max(i),
                places: n.places,
                reduction,
                order: n.order,
                phase: n.phase,
                library: n.walk == Walk::Library,
            }));
        }
        Self { now: (0..nodes.len()).collect(), groups }
    }

    fn find(&self, mut at: usize) -> usize {
        while self.now[at] != at {
            at = self.now[at];
        }
        at
    }

    /// Fuses pairs, those that share most first; how many.
    fn round(&mut self, nodes: &[Node]) -> usize {
        let mut touching: HashMap<u32, (f64, Vec<usize>)> = HashMap::new();
        for (at, group) in self.groups.iter().enumerate() {
            let Some(group) = group.as_ref().filter(|g| !g.library) else { continue };
            for node in group.nodes.iter().map(|i| &nodes[*i]) {
                for a in node.reads.iter().chain(&node.writes) {
                    let (bytes, groups) = touching.entry(a.value).or_default();
                    *bytes = bytes.max(a.bytes);
                    if groups.last() != Some(&at) {
                        groups.push(at);
                    }
                }
            }
        }
        let mut shared: HashMap<(usize, usize), f64> = HashMap::new();
        for (bytes, groups) in touching.values().filter(|t| t.1.len() <= MOST_SHARING) {
            for (k, &a) in groups.iter().enumerate() {
                for &b in &groups[k + 1..] {
                    *shared.entry((a.min(b), a.max(b))).or_default() += bytes;
                }
            }
        }
        let mut pairs: Vec<((usize, usize), f64)> =
            shared.into_iter().filter(|p| p.1 >= LEAST_SHARED).collect();
        pairs.sort_by(|x, y| {
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
    fn alike(&self, a: usize, b: usize) -> bool {
        let (Some(a), Some(b)) = (&self.groups[a], &self.groups[b]) else { return false };
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
    fn between(&self, a: usize, b: usize) -> bool {
        let (Some(first), Some(last)) = (&self.groups[a], &self.groups[b]) else { return true };
        let newest = first.nodes.iter().copied().max().unwrap_or(0);
        let mut stack: Vec<usize> = last.needs.iter().copied().filter(|g| *g != a).collect();
        let mut seen: HashSet<usize> = stack.iter().copied().collect();
        while let Some(at) = stack.pop() {
            let Some(group) = &self.groups[at] else { continue };
            if group.needs.contains(&a) {
                return true;
            }
            // All that it needs is older than `a`.
            if group.latest < newest {
                continue;
            }
            stack.extend(group.needs.iter().copied().filter(|g| *g != b && seen.insert(*g)));
        }
        false
    }

    fn merge(&mut self, a: usize, b: usize) {
        let Some(other) = self.groups[b].take() else { return };
        self.now[b] = a;
        for &g in other.needs.iter().chain(&other.feeds).filter(|g| **g != a) {
            if let Some(group) = &mut self.groups[g] {
                if group.needs.remove(&b) {
                    group.needs.insert(a);
                }
                if group.feeds.remove(&b) {
                    group.feeds.insert(a);
                }
            }
        }
        let Some(group) = &mut self.groups[a] else { return };
        group.nodes.extend(other.nodes);
        group.needs.extend(other.needs);
        group.feeds.extend(other.feeds);
        for g in [a, b] {
            group.needs.remove(&g);
            group.feeds.remove(&g);
        }
        group.reduction = group.reduction.or(other.reduction);
        group.latest = group.latest.max(other.latest);
        let mut stack = vec![a];
        while let Some(at) = stack.pop() {
            let Some((latest, feeds)) = self.groups[at].as_ref().map(|g| (g.latest, g.feeds.clone())) else {
                continue;
            };
            for f in feeds {
                if let Some(group) = self.groups[f].as_mut().filter(|g| g.latest < latest) {
                    group.latest = latest;
                    stack.push(f);
                }
            }
        }
    }

    /// The groups so that each comes after what it needs, else as early as its first node.
    fn in_order(self) -> Vec<Vec<usize>> {
        let mut waits: Vec<usize> =
            self.groups.iter().map(|g| g.as_ref().map_or(0, |g| g.needs.len())).collect();
        let first = |g: &Group| g.nodes.iter().copied().min().unwrap_or(0);
        let mut ready: std::collections::BinaryHeap<std::cmp::Reverse<(usize, usize)>> = self
            .groups
            .iter()
            .enumerate()
            .filter_map(|(i, g)| {
                g.as_ref().filter(|g| g.needs.is_empty()).map(|g| std::cmp::Reverse((first(g), i)))
            })
            .collect();
        let mut out = Vec::with_capacity(self.groups.len());
        while let Some(std::cmp::Reverse((_, at))) = ready.pop() {
            let Some(group) = &self.groups[at] else { continue };
            for &f in &group.feeds {
                waits[f] = waits[f].saturating_sub(1);
                if let Some(next) = self.groups[f].as_ref().filter(|_| waits[f] == 0) {
                    ready.push(std::cmp::Reverse((first(next), f)));
                }
            }
            let mut nodes = group.nodes.clone();
            nodes.sort_unstable();
            out.push(nodes);
        }
        out
    }
}
