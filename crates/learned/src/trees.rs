//! Boosted regression trees, evaluated: the learned part of the time model.
//!
//! Every tree is complete (all leaves at one depth), so that a walk is a fixed number of steps without
//! branches: `i = 2 i + 1 + (x[feature] > threshold)`. The trees predict log(measured / closed form) and
//! are clipped to the range seen in training, so that they can bend the closed form but never replace it.

use std::fmt;

/// Most features a forest may use; the feature vector has this fixed length.
pub const MAX_FEATURES: usize = 128;

/// A feature vector; unused places stay 0.
pub type Features = [f32; MAX_FEATURES];

/// Leaves are stored as i16 multiples of this.
const LEAF_UNIT: f32 = 1.0 / 16384.0;

/// Depth of the shipped forests, which get a faster walk.
const USUAL_DEPTH: usize = 6;
/// Leaves of a tree of that depth.
const USUAL: usize = 1 << USUAL_DEPTH;

/// A tree of the usual depth with its root at 1: `i = 2 i + (x > t)`, and every index is masked, so that a step
/// needs no bounds check.
#[derive(Clone, PartialEq)]
struct Packed {
    features: [u16; USUAL],
    thresholds: [f32; USUAL],
    leaves: [i16; USUAL],
}

impl Packed {
    fn new(nodes: &[(u16, f32)], leaves: &[i16]) -> Self {
        let mut out = Self { features: [0; USUAL], thresholds: [0.0; USUAL], leaves: [0; USUAL] };
        for (i, (feature, threshold)) in nodes.iter().enumerate().take(USUAL - 1) {
            out.features[i + 1] = *feature;
            out.thresholds[i + 1] = *threshold;
        }
        for (to, from) in out.leaves.iter_mut().zip(leaves) {
            *to = *from;
        }
        out
    }

    fn step(&self, i: usize, x: &Features) -> usize {
        let at = i % USUAL;
        2 * i + usize::from(x[usize::from(self.features[at]) % MAX_FEATURES] > self.thresholds[at])
    }
}

/// The sum of the leaves that `x` leads to, over trees walked side by side.
fn walk<const N: usize>(trees: &[Packed; N], x: &Features) -> i32 {
    let mut at = [1usize; N];
    for _ in 0..USUAL_DEPTH {
        for (i, tree) in at.iter_mut().zip(trees) {
            *i = tree.step(*i, x);
        }
    }
    at.iter().zip(trees).map(|(i, tree)| i32::from(tree.leaves[i % USUAL])).sum()
}

/// A set of complete trees whose leaf values are added.
#[derive(Clone, PartialEq)]
pub struct Forest {
    depth: usize,
    /// Feature and threshold of each inner node, tree after tree, level order.
    nodes: Vec<(u16, f32)>,
    /// Leaf values in units of [`LEAF_UNIT`].
    leaves: Vec<i16>,
    /// The same, for the fast walk of forests of the usual depth.
    packed: Vec<Packed>,
    base: f32,
    low: f32,
    high: f32,
}

impl fmt::Debug for Forest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forest")
            .field("depth", &self.depth)
            .field("trees", &self.trees())
            .finish_non_exhaustive()
    }
}

impl Forest {
    /// A forest without trees: predicts `base`, clipped.
    pub fn new(depth: usize, base: f32, low: f32, high: f32) -> Self {
        Self { depth, nodes: Vec::new(), leaves: Vec::new(), packed: Vec::new(), base, low, high }
    }

    /// Adds a complete tree: `2^depth - 1` nodes in level order, `2^depth` leaves.
    pub fn push(&mut self, nodes: &[(u16, f32)], leaves: &[f32]) {
        debug_assert_eq!(nodes.len() + 1, 1 << self.depth);
        debug_assert_eq!(leaves.len(), 1 << self.depth);
        self.nodes.extend_from_slice(nodes);
        self.leaves.extend(leaves.iter().map(|v| (v / LEAF_UNIT).round().clamp(-32768.0, 32767.0) as i16));
        self.pack();
    }

    /// Packs the trees that are not yet packed.
    fn pack(&mut self) {
        if self.depth == USUAL_DEPTH {
            let done = self.packed.len();
            let trees = self.nodes[done * (USUAL - 1)..].chunks_exact(USUAL - 1);
            let new: Vec<Packed> = trees
                .zip(self.leaves[done * USUAL..].chunks_exact(USUAL))
                .map(|(nodes, leaves)| Packed::new(nodes, leaves))
                .collect();
            self.packed.extend(new);
        }
    }

    /// The mean of several forests of one depth, as one forest.
    #[must_use]
    pub fn mean(forests: &[Self]) -> Self {
        let Some(first) = forests.first() else { return Self::new(1, 0.0, 0.0, 0.0) };
        let share = 1.0 / forests.len() as f32;
        let mut out = Self::new(first.depth, 0.0, 0.0, 0.0);
        for f in forests {
            out.base += f.base * share;
            out.low += f.low * share;
            out.high += f.high * share;
            out.nodes.extend_from_slice(&f.nodes);
            out.leaves.extend(f.leaves.iter().map(|v| (f32::from(*v) * share).round() as i16));
        }
        out.pack();
        out
    }

    /// Number of trees.
    pub fn trees(&self) -> usize {
        self.leaves.len() >> self.depth
    }

    /// The sum over all trees, clipped to the range seen in training.
    pub fn predict(&self, x: &Features) -> f32 {
        let sum = if self.depth == USUAL_DEPTH { self.sum_packed(x) } else { self.sum_plain(x) };
        (self.base + sum as f32 * LEAF_UNIT).clamp(self.low, self.high)
    }

    /// Sixteen trees are walked side by side: each step waits for its own loads, and sixteen waits overlap.
    fn sum_packed(&self, x: &Features) -> i32 {
        let (groups, rest) = self.packed.as_chunks::<16>();
        let (fours, rest) = rest.as_chunks::<4>();
        groups.iter().map(|trees| walk(trees, x)).sum::<i32>()
            + fours.iter().map(|trees| walk(trees, x)).sum::<i32>()
            + rest.iter().map(|tree| walk(std::array::from_ref(tree), x)).sum::<i32>()
    }

    fn sum_plain(&self, x: &Features) -> i32 {
        let inner = (1usize << self.depth) - 1;
        let trees = self.nodes.chunks_exact(inner.max(1)).zip(self.leaves.chunks_exact(inner + 1));
        trees
            .map(|(nodes, leaves)| {
                let mut i = 0usize;
                for _ in 0..self.depth {
                    let (feature, threshold) = nodes[i];
                    i = 2 * i + 1 + usize::from(x[usize::from(feature) % MAX_FEATURES] > threshold);
                }
                i32::from(leaves[i - inner])
            })
            .sum()
    }

    /// Bytes for a file, little-endian: header, range of every feature's thresholds, then tree by tree its nodes (feature
    /// and threshold as a 65534th of the range), the unit of its leaves and the leaves as multiples of it. So the file
    /// takes half of what the trees do, and [`Forest::rounded`] is what comes back.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend((self.depth as u32).to_le_bytes());
        out.extend((self.trees() as u32).to_le_bytes());
        for v in [self.base, self.low, self.high] {
            out.extend(v.to_le_bytes());
        }
        let ranges = self.ranges();
        out.extend((ranges.len() as u32).to_le_bytes());
        for r in &ranges {
            out.extend(r.low.to_le_bytes());
            out.extend(r.high.to_le_bytes());
        }
        let leaves = 1usize << self.depth;
        for (nodes, leaves) in self.nodes.chunks_exact(leaves - 1).zip(self.leaves.chunks_exact(leaves)) {
            for (feature, threshold) in nodes {
                let range = ranges[usize::from(*feature)];
                out.push(*feature as u8);
                out.extend(range.place(*threshold).to_le_bytes());
            }
            let largest = leaves.iter().map(|v| v.unsigned_abs()).max().unwrap_or(0);
            let unit = f32::from(largest).max(1.0) / 127.0;
            out.extend(unit.to_le_bytes());
            out.extend(leaves.iter().flat_map(|v| ((f32::from(*v) / unit).round() as i8).to_le_bytes()));
        }
        out
    }

    /// Least and largest threshold of every feature up to the last one used.
    fn ranges(&self) -> Vec<Range> {
        let mut out: Vec<Range> = Vec::new();
        for (feature, threshold) in &self.nodes {
            let at = usize::from(*feature);
            if at >= out.len() {
                out.resize(at + 1, Range { low: f32::INFINITY, high: f32::NEG_INFINITY });
            }
            // A threshold without end marks a node that sends all rows to one side.
            if threshold.is_finite() {
                out[at].low = out[at].low.min(*threshold);
                out[at].high = out[at].high.max(*threshold);
            }
        }
        out
    }

    /// The forest as a file keeps it.
    #[must_use]
    pub fn rounded(&self) -> Self {
        Self::from_bytes(&self.to_bytes()).map_or_else(|| self.clone(), |(f, _)| f)
    }

    /// Reads a forest back; returns it with the bytes that follow, or nothing if the bytes are damaged.
    pub fn from_bytes(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let word = |at: usize| -> Option<[u8; 4]> { bytes.get(at..at + 4)?.try_into().ok() };
        let depth = u32::from_le_bytes(word(0)?) as usize;
        let trees = u32::from_le_bytes(word(4)?) as usize;
        let features = u32::from_le_bytes(word(20)?) as usize;
        if depth > 12 || trees > 1 << 20 || features > MAX_FEATURES {
            return None;
        }
        let [base, low, high] = [8, 12, 16].map(|at| word(at).map(f32::from_le_bytes));
        let number = |b: &[u8]| Some(f32::from_le_bytes(b.get(..4)?.try_into().ok()?));
        let (ranges, rest) = bytes.get(24..)?.split_at_checked(8 * features)?;
        let ranges: Vec<Range> = ranges
            .chunks_exact(8)
            .map(|b| Some(Range { low: number(b)?, high: number(&b[4..])? }))
            .collect::<Option<_>>()?;
        let leaves = 1usize << depth;
        let size = 3 * (leaves - 1) + 4 + leaves;
        let (body, rest) = rest.split_at_checked(trees * size)?;
        let mut forest = Self::new(depth, base?, low?, high?);
        for tree in body.chunks_exact(size) {
            let (nodes, tree) = tree.split_at_checked(3 * (leaves - 1))?;
            for n in nodes.chunks_exact(3) {
                let range = ranges.get(usize::from(n[0]))?;
                forest.nodes.push((u16::from(n[0]), range.value(u16::from_le_bytes([n[1], n[2]]))));
            }
            let unit = number(tree)?;
            forest
                .leaves
                .extend(tree[4..].iter().map(|v| (f32::from(i8::from_le_bytes([*v])) * unit).round() as i16));
        }
        forest.pack();
        Some((forest, rest))
    }
}

/// Where the thresholds of a feature lie.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Range {
    low: f32,
    high: f32,
}

/// The place of a threshold that no value exceeds.
const ENDLESS: u16 = u16::MAX;

impl Range {
    fn step(self) -> f32 {
        (self.high - self.low).max(0.0) / f32::from(ENDLESS - 1)
    }

    fn place(self, threshold: f32) -> u16 {
        if !threshold.is_finite() {
            return ENDLESS;
        }
        if self.step() > 0.0 { ((threshold - self.low) / self.step()).round() as u16 } else { 0 }
    }

    fn value(self, place: u16) -> f32 {
        if place == ENDLESS { f32::INFINITY } else { self.low + f32::from(place) * self.step() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_and_round_trips() {
        let mut f = Forest::new(2, 0.25, -1.0, 1.0);
        // x0 <= 1: (x1 <= 0: -0.5, else 0.5), else (x1 <= 5: 0.125, else 2.0)
        f.push(&[(0, 1.0), (1, 0.0), (1, 5.0)], &[-0.5, 0.5, 0.125, 2.0]);
        let at = |a: f32, b: f32| {
            let mut x = [0.0; MAX_FEATURES];
            (x[0], x[1]) = (a, b);
            f.predict(&x)
        };
        assert_eq!(at(0.0, -1.0), -0.25);
        assert_eq!(at(0.0, 1.0), 0.75);
        assert_eq!(at(2.0, 3.0), 0.375);
        assert_eq!(at(2.0, 6.0), 1.0); // 0.25 + 2 clipped to 1
        let bytes = f.to_bytes();
        let (back, rest) = Forest::from_bytes(&bytes).unwrap();
        assert_eq!(rest.len(), 0);
        assert_eq!(back.nodes, f.nodes); // at most two thresholds a feature: the ends of its range
        for (a, b) in back.leaves.iter().zip(&f.leaves) {
            assert!((i32::from(*a) - i32::from(*b)).abs() <= 130, "{a} {b}"); // 2.0 in 127 steps
        }
        assert_eq!(back.rounded(), back);
        for cut in [1, 5, 30, bytes.len() - 3] {
            assert!(Forest::from_bytes(&bytes[..bytes.len() - cut]).is_none());
        }
    }

    #[test]
    fn the_fast_walk_agrees_with_the_plain_one() {
        let mut f = Forest::new(USUAL_DEPTH, 0.0, -9.0, 9.0);
        for tree in 0..23u16 {
            let nodes: Vec<(u16, f32)> =
                (0..63).map(|i| ((i * 7 + tree) % 5, f32::from(i % 9) - 4.0)).collect();
            let leaves: Vec<f32> =
                (0..64u16).map(|i| f32::from(i) / 128.0 - 0.2 * f32::from(tree % 2)).collect();
            f.push(&nodes, &leaves);
        }
        for seed in 0..50u16 {
            let mut x = [0.0; MAX_FEATURES];
            for (i, v) in x.iter_mut().enumerate().take(5) {
                *v = f32::from((seed * 31 + i as u16 * 17) % 11) - 5.0;
            }
            assert_eq!(f.sum_packed(&x), f.sum_plain(&x));
        }
    }
}
