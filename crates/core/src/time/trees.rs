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

/// Trees that are walked side by side.
const LANES: usize = 4;

/// The child of node `i` that `x` goes to.
#[inline]
fn step((feature, threshold): (u16, f32), i: usize, x: &Features) -> usize {
    2 * i + 1 + usize::from(x[usize::from(feature) % MAX_FEATURES] > threshold)
}

/// The place that a walk through one tree ends at.
fn walk(nodes: &[(u16, f32)], depth: usize, x: &Features) -> usize {
    (0..depth).fold(0, |i, _| step(nodes[i], i, x))
}

/// A set of complete trees whose leaf values are added.
#[derive(Clone, PartialEq)]
pub struct Forest {
    depth: usize,
    /// Feature and threshold of each inner node, tree after tree, level order.
    nodes: Vec<(u16, f32)>,
    /// Leaf values in units of [`LEAF_UNIT`].
    leaves: Vec<i16>,
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
        Self { depth, nodes: Vec::new(), leaves: Vec::new(), base, low, high }
    }

    /// Adds a complete tree: `2^depth - 1` nodes in level order, `2^depth` leaves.
    pub fn push(&mut self, nodes: &[(u16, f32)], leaves: &[f32]) {
        debug_assert_eq!(nodes.len() + 1, 1 << self.depth);
        debug_assert_eq!(leaves.len(), 1 << self.depth);
        self.nodes.extend_from_slice(nodes);
        self.leaves.extend(leaves.iter().map(|v| (v / LEAF_UNIT).round().clamp(-32768.0, 32767.0) as i16));
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
        out
    }

    /// Number of trees.
    pub fn trees(&self) -> usize {
        self.leaves.len() >> self.depth
    }

    /// The sum over all trees, clipped to the range seen in training.
    pub fn predict(&self, x: &Features) -> f32 {
        let sum = match self.depth {
            0 => 0,
            4 => self.sum::<4, 15, 16>(x),
            5 => self.sum::<5, 31, 32>(x),
            6 => self.sum::<6, 63, 64>(x),
            7 => self.sum::<7, 127, 128>(x),
            depth => {
                let inner = (1usize << depth) - 1;
                let trees = self.nodes.chunks_exact(inner).zip(self.leaves.chunks_exact(inner + 1));
                trees.map(|(nodes, leaves)| i32::from(leaves[walk(nodes, depth, x) - inner])).sum()
            }
        };
        (self.base + sum as f32 * LEAF_UNIT).clamp(self.low, self.high)
    }

    /// The sum of the leaves that `x` reaches, for trees of a known depth.
    ///
    /// Each step of a walk waits for the one before; [`LANES`] trees are walked side by side to fill the wait.
    fn sum<const DEPTH: usize, const INNER: usize, const OUTER: usize>(&self, x: &Features) -> i32 {
        let (nodes, leaves) = (self.nodes.as_chunks::<INNER>().0, self.leaves.as_chunks::<OUTER>().0);
        let (nodes, last_nodes) = nodes.as_chunks::<LANES>();
        let (leaves, last_leaves) = leaves.as_chunks::<LANES>();
        let mut sum = 0i32;
        for (nodes, leaves) in nodes.iter().zip(leaves) {
            let mut at = [0usize; LANES];
            for _ in 0..DEPTH {
                for (i, nodes) in at.iter_mut().zip(nodes) {
                    *i = step(nodes[*i], *i, x);
                }
            }
            for (i, leaves) in at.iter().zip(leaves) {
                sum += i32::from(leaves[i - INNER]);
            }
        }
        for (nodes, leaves) in last_nodes.iter().zip(last_leaves) {
            sum += i32::from(leaves[walk(nodes, DEPTH, x) - INNER]);
        }
        sum
    }

    /// Bytes for a file: header, nodes, leaves, all little-endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(20 + self.nodes.len() * 6 + self.leaves.len() * 2);
        out.extend((self.depth as u32).to_le_bytes());
        out.extend((self.trees() as u32).to_le_bytes());
        for v in [self.base, self.low, self.high] {
            out.extend(v.to_le_bytes());
        }
        for (feature, threshold) in &self.nodes {
            out.extend(feature.to_le_bytes());
            out.extend(threshold.to_le_bytes());
        }
        for leaf in &self.leaves {
            out.extend(leaf.to_le_bytes());
        }
        out
    }

    /// Reads a forest back; returns it with the bytes that follow, or nothing if the bytes are damaged.
    pub fn from_bytes(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let word = |at: usize| -> Option<[u8; 4]> { bytes.get(at..at + 4)?.try_into().ok() };
        let depth = u32::from_le_bytes(word(0)?) as usize;
        let trees = u32::from_le_bytes(word(4)?) as usize;
        if depth > 12 || trees > 1 << 20 {
            return None;
        }
        let [base, low, high] = [8, 12, 16].map(|at| word(at).map(f32::from_le_bytes));
        let (inner, outer) = (trees * ((1 << depth) - 1), trees << depth);
        let node_bytes = bytes.get(20..20 + inner * 6)?;
        let leaf_bytes = bytes.get(20 + inner * 6..20 + inner * 6 + outer * 2)?;
        let nodes = node_bytes
            .chunks_exact(6)
            .map(|b| (u16::from_le_bytes([b[0], b[1]]), f32::from_le_bytes([b[2], b[3], b[4], b[5]])))
            .collect();
        let leaves = leaf_bytes.chunks_exact(2).map(|b| i16::from_le_bytes([b[0], b[1]])).collect();
        let forest = Self { depth, nodes, leaves, base: base?, low: low?, high: high? };
        Some((forest, &bytes[20 + inner * 6 + outer * 2..]))
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
        assert_eq!((back, rest.len()), (f, 0));
        assert!(Forest::from_bytes(&bytes[..bytes.len() - 1]).is_none());
    }

    #[test]
    fn trees_side_by_side_give_the_sum_of_trees_alone() {
        // Nine trees of depth 4: two groups of four lanes and one left over.
        let tree = |t: u16| -> (Vec<(u16, f32)>, Vec<f32>) {
            let nodes = (0..15).map(|i| ((t + i) % 5, f32::from((t * 7 + i * 3) % 11) - 5.0)).collect();
            let leaves = (0..16).map(|i| (f32::from((t * 5 + i * 13) % 31) - 15.0) / 1024.0).collect();
            (nodes, leaves)
        };
        let mut all = Forest::new(4, 0.0, -9.0, 9.0);
        let mut x = [0.0; MAX_FEATURES];
        for (i, v) in [2.0, -3.0, 0.5, 4.0, -1.0].into_iter().enumerate() {
            x[i] = v;
        }
        let mut sum = 0.0;
        for t in 0..9 {
            let (nodes, leaves) = tree(t);
            all.push(&nodes, &leaves);
            let mut one = Forest::new(4, 0.0, -9.0, 9.0);
            one.push(&nodes, &leaves);
            sum += one.predict(&x);
        }
        assert_eq!(all.predict(&x), sum);
    }
}
