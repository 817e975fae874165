//! Boosted regression trees, evaluated: the learned part of the time model.
//!
//! Every tree is complete (all leaves at one depth), so that a walk is a fixed number of steps without
//! branches: `i = 2 i + 1 + (x[feature] > threshold)`. The trees predict log(measured / closed form) and
//! are clipped to the range seen in training, so that they can bend the closed form but never replace it.

mod block;
mod leaves;

use block::Blocks;
pub use block::Scratch;
use std::borrow::Cow;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most features a forest may use; the feature vector has this fixed length.
pub const MAX_FEATURES: usize = 128;

/// A feature vector; unused places stay 0.
pub type Features = [f32; MAX_FEATURES];

/// Leaves are stored as i16 multiples of this.
const LEAF_UNIT: f32 = 1.0 / 16384.0;

/// Depth at which all trees are walked. Shallower ones are filled up with nodes that send everything to the left.
const DEPTH: usize = 6;
/// Leaves of a tree of that depth.
const LEAVES: usize = 1 << DEPTH;

/// Features of a tree's nodes, root at 1: `i = 2 i + (x > t)`.
type Nodes = [u8; LEAVES];
/// Their thresholds: little-endian [`limit`]s.
type Thresholds = [[u8; 4]; LEAVES];
/// What its leaves say: little-endian i16, multiples of [`LEAF_UNIT`].
type Values = [[u8; 2]; LEAVES];

/// A feature vector as whole numbers, for comparisons that take one step of the processor.
type Ordered = [u32; MAX_FEATURES];

/// A number that sorts as `x` does; what is no number comes first, so that it exceeds nothing.
fn in_order(x: f32) -> u32 {
    // Both zeros are one.
    let bits = (x + 0.0).to_bits();
    let order = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    if x.is_nan() { 0 } else { order }
}

/// A threshold in that order; nothing exceeds one that is no number.
fn limit(threshold: f32) -> u32 {
    if threshold.is_nan() { u32::MAX } else { in_order(threshold) }
}

/// The threshold again.
fn threshold_of(limit: u32) -> f32 {
    f32::from_bits(if limit >> 31 == 1 { limit & !(1 << 31) } else { !limit })
}

/// Trees as bytes, so that a build can lay them out and a program use them where they stand.
#[derive(Clone, PartialEq, Default)]
struct Trees {
    features: Cow<'static, [Nodes]>,
    thresholds: Cow<'static, [Thresholds]>,
    values: Cow<'static, [Values]>,
}

/// A tree on its own.
struct Tree {
    features: Nodes,
    thresholds: [f32; LEAVES],
    values: [i16; LEAVES],
}

impl Tree {
    /// A tree that leads everything to its first leaf.
    const EMPTY: Self =
        Self { features: [0; LEAVES], thresholds: [f32::INFINITY; LEAVES], values: [0; LEAVES] };

    /// Features and thresholds of a tree of this depth in level order.
    fn nodes(&self, depth: usize) -> impl Iterator<Item = (u8, f32)> {
        self.features.into_iter().zip(self.thresholds).take(1 << depth).skip(1)
    }

    /// Leaves of a tree of this depth.
    fn leaves(&self, depth: usize) -> impl Iterator<Item = i16> {
        self.values.into_iter().step_by(1 << (DEPTH - depth))
    }

    /// The places of those leaves.
    fn leaves_mut(&mut self, depth: usize) -> impl Iterator<Item = &mut i16> {
        self.values.iter_mut().step_by(1 << (DEPTH - depth))
    }
}

impl Trees {
    fn push(&mut self, tree: &Tree) {
        self.features.to_mut().push(tree.features);
        self.thresholds.to_mut().push(tree.thresholds.map(|t| limit(t).to_le_bytes()));
        self.values.to_mut().push(tree.values.map(i16::to_le_bytes));
    }

    fn len(&self) -> usize {
        self.features.len()
    }

    /// Each on its own.
    fn each(&self) -> impl Iterator<Item = Tree> {
        let parts = self.features.iter().zip(self.thresholds.iter()).zip(self.values.iter());
        parts.map(|((features, thresholds), values)| Tree {
            features: *features,
            thresholds: thresholds.map(|t| threshold_of(u32::from_le_bytes(t))),
            values: values.map(i16::from_le_bytes),
        })
    }
}

/// The leaf of a tree that `x` leads to.
fn walk(features: &Nodes, thresholds: &Thresholds, values: &Values, x: &Ordered) -> i32 {
    let mut at = 1;
    // A loop to the leaves, not of six steps: unrolled, those keep every turn apart and take half as many instructions again.
    while at < LEAVES {
        let value = x[usize::from(features[at]) % MAX_FEATURES];
        at = 2 * at + usize::from(u32::from_le_bytes(thresholds[at]) < value);
    }
    i32::from(i16::from_le_bytes(values[at % LEAVES]))
}

/// A set of complete trees whose leaf values are added.
#[derive(Clone)]
pub struct Forest {
    depth: usize,
    trees: Trees,
    base: f32,
    low: f32,
    high: f32,
    many: Many,
}

/// The same trees for many rows at once, made when enough rows have come.
#[derive(Default)]
struct Many {
    blocks: OnceLock<Option<Box<Blocks>>>,
    rows: AtomicUsize,
}

impl Clone for Many {
    /// A copy makes its own when it needs them.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Forest {
    fn eq(&self, other: &Self) -> bool {
        let head = |f: &Self| (f.depth, f.base, f.low, f.high);
        head(self) == head(other) && self.trees == other.trees
    }
}

impl fmt::Debug for Forest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forest")
            .field("depth", &self.depth)
            .field("trees", &self.trees())
            .finish_non_exhaustive()
    }
}

/// Rows from which on it pays to make [`Blocks`]: they take as long as a hundred walks. And rows from which on it pays to
/// use them once they are made.
const WORTH_MAKING: usize = 128;
const WORTH_USING: usize = 8;

impl Forest {
    /// A forest without trees: predicts `base`, clipped. Its trees are at most six levels deep.
    pub fn new(depth: usize, base: f32, low: f32, high: f32) -> Self {
        Self { depth: depth.min(DEPTH), trees: Trees::default(), base, low, high, many: Many::default() }
    }

    /// Adds a complete tree: `2^depth - 1` nodes in level order, `2^depth` leaves.
    pub fn push(&mut self, nodes: &[(u16, f32)], leaves: &[f32]) {
        debug_assert_eq!(nodes.len() + 1, 1 << self.depth);
        debug_assert_eq!(leaves.len(), 1 << self.depth);
        let mut tree = Tree::EMPTY;
        for (i, (feature, threshold)) in nodes.iter().enumerate().take(LEAVES - 1) {
            tree.features[i + 1] = *feature as u8;
            tree.thresholds[i + 1] = *threshold;
        }
        for (to, from) in tree.leaves_mut(self.depth).zip(leaves) {
            *to = (from / LEAF_UNIT).round().clamp(-32768.0, 32767.0) as i16;
        }
        self.add(&tree);
    }

    fn add(&mut self, tree: &Tree) {
        self.trees.push(tree);
        self.many = Many::default();
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
            for mut tree in f.trees.each() {
                tree.values = tree.values.map(|v| (f32::from(v) * share).round() as i16);
                out.add(&tree);
            }
        }
        out
    }

    /// Number of trees.
    pub fn trees(&self) -> usize {
        self.trees.len()
    }

    /// The sum over all trees, clipped to the range seen in training.
    pub fn predict(&self, x: &Features) -> f32 {
        self.clipped(self.walked(x))
    }

    /// [`Forest::predict`] of many rows, the same to the last bit.
    pub fn predict_many(&self, rows: &[&Features], scratch: &mut Scratch) -> Vec<f32> {
        let asked = self.many.rows.load(Ordering::Relaxed);
        if asked < WORTH_MAKING {
            self.many.rows.store(asked + rows.len(), Ordering::Relaxed);
        }
        let mut sums = vec![0; rows.len()];
        let mut done = 0;
        if rows.len() >= WORTH_USING
            && (asked + rows.len() >= WORTH_MAKING || self.many.blocks.get().is_some())
            && let Some(blocks) = self.many.blocks.get_or_init(|| Blocks::new(&self.trees).map(Box::new))
        {
            done = blocks.sums(&self.trees, rows, &mut sums, scratch);
        }
        for (sum, x) in sums.iter_mut().zip(rows).skip(done) {
            *sum = self.walked(x);
        }
        sums.into_iter().map(|sum| self.clipped(sum)).collect()
    }

    fn clipped(&self, sum: i32) -> f32 {
        (self.base + sum as f32 * LEAF_UNIT).clamp(self.low, self.high)
    }

    /// The sum of the leaves that `x` leads to. Trees wait for none of those before, so that their waits for memory overlap.
    fn walked(&self, x: &Features) -> i32 {
        let x = &x.map(in_order);
        let trees =
            self.trees.features.iter().zip(self.trees.thresholds.iter()).zip(self.trees.values.iter());
        trees.map(|((features, thresholds), values)| walk(features, thresholds, values, x)).sum()
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
        for tree in self.trees.each() {
            for (feature, threshold) in tree.nodes(self.depth) {
                out.push(feature);
                out.extend(ranges[usize::from(feature)].place(threshold).to_le_bytes());
            }
            let largest = tree.leaves(self.depth).map(i16::unsigned_abs).max().unwrap_or(0);
            let unit = f32::from(largest).max(1.0) / 127.0;
            out.extend(unit.to_le_bytes());
            let steps = tree.leaves(self.depth).map(|v| (f32::from(v) / unit).round() as i8);
            out.extend(steps.flat_map(i8::to_le_bytes));
        }
        out
    }

    /// Features and thresholds of all trees.
    fn nodes(&self) -> Vec<(u8, f32)> {
        self.trees.each().flat_map(|t| t.nodes(self.depth).collect::<Vec<_>>()).collect()
    }

    /// Least and largest threshold of every feature up to the last one used.
    fn ranges(&self) -> Vec<Range> {
        let mut out: Vec<Range> = Vec::new();
        for (feature, threshold) in self.nodes() {
            let at = usize::from(feature);
            if at >= out.len() {
                out.resize(at + 1, Range { low: f32::INFINITY, high: f32::NEG_INFINITY });
            }
            // A threshold without end marks a node that sends all rows to one side.
            if threshold.is_finite() {
                out[at].low = out[at].low.min(threshold);
                out[at].high = out[at].high.max(threshold);
            }
        }
        out
    }

    /// The forest as a file keeps it.
    #[must_use]
    pub fn rounded(&self) -> Self {
        Self::from_bytes(&self.to_bytes()).map_or_else(|| self.clone(), |(f, _)| f)
    }

    /// Splits off the bytes of one forest, without reading its trees; nothing if they are damaged.
    pub fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize);
        let (depth, trees, features) = (word(0)?, word(4)?, word(20)?);
        if depth > DEPTH || trees > 1 << 20 || features > MAX_FEATURES {
            return None;
        }
        bytes.split_at_checked(HEAD + 8 * features + trees * tree_size(depth))
    }

    /// Reads a forest back; returns it with the bytes that follow, or nothing if the bytes are damaged.
    pub fn from_bytes(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (own, rest) = Self::split(bytes)?;
        let number = |b: &[u8], at: usize| Some(f32::from_le_bytes(b.get(at..at + 4)?.try_into().ok()?));
        let depth = usize::from(*own.first()?);
        let features = usize::from(*own.get(20)?);
        let (ranges, body) = own.get(HEAD..)?.split_at_checked(8 * features)?;
        let ranges: Vec<Range> = ranges
            .chunks_exact(8)
            .map(|b| Some(Range { low: number(b, 0)?, high: number(b, 4)? }))
            .collect::<Option<_>>()?;
        let scales: Vec<(f32, f32)> = ranges.iter().map(|r| (r.low, r.step())).collect();
        let mut forest = Self::new(depth, number(own, 8)?, number(own, 12)?, number(own, 16)?);
        for body in body.chunks_exact(tree_size(depth)) {
            let (nodes, body) = body.split_at_checked(3 * ((1 << depth) - 1))?;
            let mut tree = Tree::EMPTY;
            let places = tree.features.iter_mut().zip(&mut tree.thresholds).skip(1);
            for (n, (feature, threshold)) in nodes.as_chunks::<3>().0.iter().zip(places) {
                let (low, step) = *scales.get(usize::from(n[0]))?;
                let place = u16::from_le_bytes([n[1], n[2]]);
                *feature = n[0];
                *threshold = if place == ENDLESS { f32::INFINITY } else { low + f32::from(place) * step };
            }
            let unit = number(body, 0)?;
            for (leaf, steps) in tree.leaves_mut(depth).zip(&body[4..]) {
                *leaf = rounded(f32::from(i8::from_le_bytes([*steps])) * unit);
            }
            forest.trees.push(&tree);
        }
        Some((forest, rest))
    }

    /// The forest as it is used: depth, trees, base, low and high, then the features, the thresholds and the leaves of all trees, then
    /// what many rows at once need.
    pub fn to_flat(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend((self.depth as u32).to_le_bytes());
        out.extend((self.trees() as u32).to_le_bytes());
        for v in [self.base, self.low, self.high] {
            out.extend(v.to_le_bytes());
        }
        out.extend(self.trees.features.as_flattened());
        out.extend(self.trees.thresholds.as_flattened().as_flattened());
        out.extend(self.trees.values.as_flattened().as_flattened());
        if let Some(blocks) = Blocks::new(&self.trees) {
            blocks.to_bytes(&mut out);
        }
        out
    }

    /// A forest in the bytes that [`Forest::to_flat`] wrote, used where it stands; nothing if they are damaged.
    pub fn from_flat(bytes: &'static [u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<FLAT_HEAD>()?;
        let [depth, trees, base, low, high] = *head.as_chunks::<4>().0.first_chunk()?;
        let trees = u32::from_le_bytes(trees) as usize;
        let (features, rest) = rest.split_at_checked(trees * LEAVES)?;
        let (thresholds, rest) = rest.split_at_checked(4 * trees * LEAVES)?;
        let (values, rest) = rest.split_at_checked(2 * trees * LEAVES)?;
        let [base, low, high] = [base, low, high].map(f32::from_le_bytes);
        let mut forest = Self::new(u32::from_le_bytes(depth) as usize, base, low, high);
        forest.trees = Trees {
            features: Cow::Borrowed(features.as_chunks().0),
            thresholds: Cow::Borrowed(thresholds.as_chunks().0.as_chunks().0),
            values: Cow::Borrowed(values.as_chunks().0.as_chunks().0),
        };
        if !rest.is_empty() {
            let blocks = Blocks::from_bytes(rest, trees)?;
            forest.many.blocks = OnceLock::from(Some(Box::new(blocks)));
        }
        Some(forest)
    }
}

/// Bytes before the ranges: depth, trees, base, low, high, features.
const HEAD: usize = 24;

/// Bytes before the trees of a flat forest.
const FLAT_HEAD: usize = 20;

/// Bytes of a tree of this depth: nodes, unit, leaves.
fn tree_size(depth: usize) -> usize {
    let leaves = 1usize << depth;
    3 * (leaves - 1) + 4 + leaves
}

/// [`f32::round`] of a number that fits: half away from zero. Exact, as twice the digits hold the half that is added;
/// a third of the instructions where the processor has no such step.
fn rounded(x: f32) -> i16 {
    (f64::from(x) + 0.5f64.copysign(f64::from(x))) as i16
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
        let [a, b] = [&back, &f].map(|f| f.trees.each().next().unwrap());
        assert_eq!(a.thresholds, b.thresholds); // at most two thresholds a feature: the ends of its range
        for (a, b) in a.values.iter().zip(&b.values) {
            assert!((i32::from(*a) - i32::from(*b)).abs() <= 130, "{a} {b}"); // 2.0 in 127 steps
        }
        assert_eq!(back.rounded(), back);
        let flat: &'static [u8] = back.to_flat().leak();
        assert_eq!(Forest::from_flat(flat), Some(back));
        assert_eq!(Forest::from_flat(&flat[..flat.len() - 1]), None);
        for cut in [1, 5, 30, bytes.len() - 3] {
            assert!(Forest::from_bytes(&bytes[..bytes.len() - cut]).is_none());
        }
    }

    /// A forest and rows that make use of all of it; some rows have no number in a place.
    fn example(depth: usize, trees: u16, rows: u16) -> (Forest, Vec<Features>) {
        let mut f = Forest::new(depth, 0.0, -9.0, 9.0);
        for tree in 0..trees {
            let nodes: Vec<(u16, f32)> = (0..(1 << depth) - 1)
                .map(|i| {
                    let threshold = f32::from(i % 9) - 4.0;
                    ((i * 7 + tree) % 5, if i % 11 == 10 { f32::INFINITY } else { threshold })
                })
                .collect();
            let leaves: Vec<f32> =
                (0..1u16 << depth).map(|i| f32::from(i) / 128.0 - 0.2 * f32::from(tree % 2)).collect();
            f.push(&nodes, &leaves);
        }
        let rows = (0..rows).map(|seed| {
            let mut x = [0.0; MAX_FEATURES];
            for (i, v) in x.iter_mut().enumerate().take(5) {
                *v = f32::from((seed * 31 + i as u16 * 17) % 11) - 5.0;
            }
            if seed % 13 == 12 {
                x[3] = f32::NAN;
            }
            x
        });
        (f, rows.collect())
    }

    /// One tree, node by node as its bytes have them.
    fn plain(tree: &Tree, x: &Features) -> i32 {
        let mut i = 1;
        while i < LEAVES {
            i = 2 * i + usize::from(x[usize::from(tree.features[i])] > tree.thresholds[i]);
        }
        i32::from(tree.values[i - LEAVES])
    }

    #[test]
    fn all_walks_agree() {
        for depth in [1, 4, 6] {
            let (f, rows) = example(depth, 23, 200);
            let rows: Vec<&Features> = rows.iter().collect();
            let one_by_one: Vec<f32> = rows.iter().map(|x| f.predict(x)).collect();
            for (x, y) in rows.iter().zip(&one_by_one) {
                let sum: i32 = f.trees.each().map(|t| plain(&t, x)).sum();
                assert_eq!(f.clipped(sum), *y);
            }
            // Few rows before the blocks are made and after, whole blocks, and blocks with a rest.
            let mut scratch = Scratch::default();
            for count in [1, 20, 64, 200, 131, 20, 1] {
                let together = f.predict_many(&rows[..count], &mut scratch);
                assert_eq!(together, one_by_one[..count], "{depth} deep, {count} rows");
            }
        }
    }

    #[test]
    fn halves_are_rounded_away_from_zero() {
        for x in [0.0f32, 0.499_999_97, 0.5, -0.5, 1.5, -2.5, 2.499_999_8, 32766.5, -32767.5] {
            assert_eq!(rounded(x), x.round() as i16, "{x}");
        }
    }
}
