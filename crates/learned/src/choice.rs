//! Which kernels a library would run for a convolution: its heuristics, learned from its own answers.
//!
//! cuDNN was asked for its choice on 1.5 million shapes (`tools/measure/cudnn_choice.cpp`); random forests repeat it. A
//! choice is a [`Variant`]: the engine's number, the kernel family it launches, the tile and the clusters of its kernels.

use super::trees::Features;
use crate::family::ConvFamily;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::fmt;
use std::sync::OnceLock;

/// One thing a library may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Variant {
    /// What kind of kernels.
    pub family: ConvFamily,
    /// Number of the library's engine.
    pub engine: u8,
    /// Rows, columns and depth of a CTA's tile; zeros where it is not known.
    pub tile: [u16; 3],
    /// CTAs of a cluster along rows and columns; zeros for kernels without clusters.
    pub cluster: [u8; 2],
    /// May the kernel share out the sums of its last tiles among all SMs?
    pub segments: bool,
    /// Parts of the sum: 1 + log2 of their number; 0 where it is not known.
    pub split: u8,
}

impl Variant {
    /// Parts of the sum, if they are known.
    pub fn parts(&self) -> Option<f64> {
        (self.split > 0).then(|| f64::from(self.split - 1).exp2())
    }

    /// A variant of which only the family is known.
    pub fn of_family(family: ConvFamily) -> Self {
        Self { family, engine: u8::MAX, tile: [0; 3], cluster: [0; 2], segments: false, split: 0 }
    }

    /// The tile, if it is known.
    pub fn tile(&self) -> Option<[f64; 3]> {
        (self.tile[0] > 0).then(|| self.tile.map(f64::from))
    }
}

/// A variant and how likely it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guess {
    /// The variant.
    pub variant: Variant,
    /// Between 0 and 1.
    pub probability: f32,
}

/// Most guesses that are kept.
pub const KEPT: usize = 4;
/// Variants that a leaf remembers.
pub const PER_LEAF: usize = 3;
/// Most variants of one chooser.
const MOST: usize = 256;

/// Feature, threshold, left child, right child; a child with the top bit set is a leaf.
pub type Node = (u8, f32, u16, u16);
/// Variants with their share of the leaf in 1/255.
pub type Leaf = [(u8, u8); PER_LEAF];

/// Top bit of a child's number: it is a leaf.
pub const LEAF: u16 = 0x8000;
/// In place of a feature's number: a leaf. The lowest two bits are the number of its variants, the next five the share of
/// the second in units of [`SECOND_UNIT`].
const LEAVES: u8 = 128;
/// Shares of a leaf's second variant are multiples of this.
pub const SECOND_UNIT: u8 = 4;
/// What the shares of a leaf add up to.
pub const WHOLE: u32 = 255;

/// A forest of such trees and the variants they tell apart.
///
/// It keeps its file's bytes and an index into them: leaves are read where they stand.
#[derive(Clone)]
pub struct Chooser {
    bytes: Cow<'static, [u8]>,
    variants: Vec<Variant>,
    /// Thresholds of all features, and where those of each feature start.
    edges: Vec<f32>,
    starts: [u16; LEAVES as usize],
    /// Trees from the root down, left before right, so that a left child follows its node. A node has its feature in the
    /// highest byte, the number of its threshold in the next, the place of its right child in the rest; a leaf
    /// [`AT_LEAF`] and its place in the bytes.
    trees: Vec<Cow<'static, [Item]>>,
}

/// A node or leaf of the index: a little-endian u32, so that a build can make the index and a program use it where it stands.
type Item = [u8; 4];

/// Marks a leaf.
const AT_LEAF: u32 = 1 << 31;

impl PartialEq for Chooser {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl fmt::Debug for Chooser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chooser")
            .field("variants", &self.variants.len())
            .field("trees", &self.trees.len())
            .finish_non_exhaustive()
    }
}

impl Default for Chooser {
    fn default() -> Self {
        Self {
            bytes: Cow::Owned(encode(&[], &[])),
            variants: Vec::new(),
            edges: Vec::new(),
            starts: [0; LEAVES as usize],
            trees: Vec::new(),
        }
    }
}

impl Chooser {
    /// A chooser from its trees, each as nodes and leaves. Nothing if a feature has more thresholds than a byte
    /// numbers, or a tree more nodes and leaves than two.
    pub fn new(variants: &[Variant], trees: &[(Vec<Node>, Vec<Leaf>)]) -> Option<Self> {
        Self::read(&mut encode(variants, trees).as_slice(), |b| Cow::Owned(b.to_vec()))
    }

    /// All variants it knows.
    pub fn variants(&self) -> &[Variant] {
        &self.variants
    }

    /// The likeliest variants, most likely first; their probabilities add up to 1.
    pub fn guesses(&self, x: &Features) -> Vec<Guess> {
        let mut sum = [0u32; MOST];
        let mut told = Vec::with_capacity(PER_LEAF * self.trees.len());
        for trees in self.trees.chunks(SIDE_BY_SIDE) {
            for leaf in self.leaves(trees, x).into_iter().take(trees.len()) {
                for (variant, share) in leaf.into_iter().filter(|(_, share)| *share > 0) {
                    let sum = &mut sum[usize::from(variant)];
                    if *sum == 0 && usize::from(variant) < self.variants.len() {
                        told.push(variant);
                    }
                    *sum += u32::from(share);
                }
            }
        }
        told.sort_unstable_by_key(|v| (Reverse(sum[usize::from(*v)]), *v));
        told.truncate(KEPT);
        let total: u32 = told.iter().map(|v| sum[usize::from(*v)]).sum();
        let share = 1.0 / total.max(1) as f32;
        told.into_iter()
            .map(|v| Guess {
                variant: self.variants[usize::from(v)],
                probability: sum[usize::from(v)] as f32 * share,
            })
            .collect()
    }

    /// Does every node have a threshold of its feature?
    fn is_whole(&self) -> bool {
        let items = self.trees.iter().flat_map(|tree| tree.iter());
        let mut nodes = items.filter(|item| u32::from_le_bytes(**item) & AT_LEAF == 0);
        nodes.all(|[_, _, number, feature]| {
            let feature = usize::from(*feature);
            let end = self.starts.get(feature + 1).map_or(self.edges.len(), |end| usize::from(*end));
            usize::from(self.starts[feature]) + usize::from(*number) < end
        })
    }

    /// The leaves that `x` leads to. The trees take their steps in turn, so that they wait for memory together.
    fn leaves(&self, trees: &[Cow<'static, [Item]>], x: &Features) -> [Leaf; SIDE_BY_SIDE] {
        let mut at = [0usize; SIDE_BY_SIDE];
        let mut found = [None; SIDE_BY_SIDE];
        let mut open = true;
        while open {
            open = false;
            for ((at, found), tree) in at.iter_mut().zip(&mut found).zip(trees) {
                // Children come after their parent, so the walk ends.
                let Some(bytes) = tree.get(*at).filter(|_| found.is_none()) else { continue };
                let item = u32::from_le_bytes(*bytes);
                if item & AT_LEAF == 0 {
                    let [_, _, number, feature] = *bytes;
                    let edge = usize::from(self.starts[usize::from(feature % LEAVES)]) + usize::from(number);
                    let right = self.edges.get(edge).is_some_and(|t| x[usize::from(feature % LEAVES)] > *t);
                    *at = if right { (item & 0xffff) as usize } else { *at + 1 };
                    open = true;
                } else {
                    *found = Some(item & !AT_LEAF);
                }
            }
        }
        found.map(|at| at.and_then(|at| self.leaf(at as usize)).unwrap_or_default())
    }

    /// The leaf at a place of the bytes.
    fn leaf(&self, at: usize) -> Option<Leaf> {
        let bytes = self.bytes.get(at..)?;
        let kind = *bytes.first()?;
        let count = usize::from(kind % 4);
        let second = (kind - LEAVES) / 4 * SECOND_UNIT;
        let third = if count > 2 { *bytes.get(1 + count)? } else { 0 };
        let shares = [u8::MAX.saturating_sub(second).saturating_sub(third), second, third];
        let mut leaf = Leaf::default();
        for (slot, told) in leaf.iter_mut().zip(bytes.get(1..=count)?.iter().zip(shares)) {
            *slot = (*told.0, told.1);
        }
        Some(leaf)
    }

    /// Reads what [`encode`] wrote and moves on to what follows; `keep` is how to hold on to the bytes.
    fn read<'a>(rest: &mut &'a [u8], keep: impl Fn(&'a [u8]) -> Cow<'static, [u8]>) -> Option<Self> {
        let all = *rest;
        let mut out = Self::default();
        out.read_head(rest)?;
        for _ in 0..word(rest)? {
            let at = all.len() - rest.len();
            let (tree, end) = index(all, at)?;
            out.trees.push(Cow::Owned(tree));
            *rest = all.get(end..)?;
        }
        out.bytes = keep(&all[..all.len() - rest.len()]);
        Some(out)
    }

    /// Variants and thresholds.
    fn read_head(&mut self, rest: &mut &[u8]) -> Option<()> {
        for _ in 0..word(rest)? {
            let b = take(rest, 12)?;
            let pair = |i: usize| u16::from_le_bytes([b[i], b[i + 1]]);
            let family = ConvFamily::from_index(b[0])?;
            let tile = [pair(2), pair(4), pair(6)];
            let (cluster, segments, split) = ([b[8], b[9]], b[10] > 0, b[11]);
            self.variants.push(Variant { family, engine: b[1], tile, cluster, segments, split });
        }
        for start in &mut self.starts {
            let count = take(rest, 1)?[0];
            *start = self.edges.len() as u16;
            let edges = take(rest, 4 * usize::from(count))?.as_chunks::<4>().0;
            self.edges.extend(edges.iter().map(|b| f32::from_le_bytes(*b)));
        }
        Some(())
    }

    /// The chooser as it is used: its bytes in a file, then the index of each tree, each after its length.
    pub fn to_flat(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend((self.bytes.len() as u32).to_le_bytes());
        out.extend(self.bytes.iter());
        for tree in &self.trees {
            out.extend((tree.len() as u32).to_le_bytes());
            out.extend(tree.as_flattened());
        }
        out
    }

    /// A chooser in the bytes that [`Chooser::to_flat`] wrote, used where it stands; nothing if they are damaged.
    pub fn from_flat(bytes: &'static [u8]) -> Option<Self> {
        let mut rest = bytes;
        let length = word(&mut rest)?;
        let own = take(&mut rest, length)?;
        let mut out = Self { bytes: Cow::Borrowed(own), ..Self::default() };
        let mut head = own;
        out.read_head(&mut head)?;
        for _ in 0..word(&mut head)? {
            let items = word(&mut rest)?;
            out.trees.push(Cow::Borrowed(take(&mut rest, 4 * items)?.as_chunks().0));
        }
        rest.is_empty().then_some(out)
    }
}

/// Trees that are walked side by side.
const SIDE_BY_SIDE: usize = 8;

/// The index of the tree that starts at a place of the bytes, and where it ends. A node whose left child is a leaf, as every
/// other is, takes one step with it.
fn index(bytes: &[u8], start: usize) -> Option<(Vec<Item>, usize)> {
    let own = bytes.get(start..)?;
    // Two bytes hold the place of a right child.
    let mut items: Vec<u32> = vec![0; own.len().min(usize::from(u16::MAX))];
    // Nodes whose right child has not come yet: as many as the tree is deep.
    let mut open = [0u16; 1 << u8::BITS];
    let mut depth = 0u8;
    let (mut at, mut count) = (0, 0);
    loop {
        let kind = *own.get(at)?;
        if kind < LEAVES {
            let [number, next] = *own.get(at + 1..)?.first_chunk()?;
            let node = u32::from_le_bytes([0, 0, number, kind]);
            at += 2;
            if next < LEAVES {
                *items.get_mut(count)? = node;
                open[usize::from(depth)] = count as u16;
                depth = depth.checked_add(1)?;
                count += 1;
            } else {
                let [first, second] = items.get_mut(count..)?.first_chunk_mut()?;
                count += 2;
                *first = node | count as u32;
                *second = AT_LEAF | (start + at) as u32;
                at += leaf_size(next);
            }
        } else {
            *items.get_mut(count)? = AT_LEAF | (start + at) as u32;
            count += 1;
            at += leaf_size(kind);
            let Some(above) = depth.checked_sub(1) else { break };
            depth = above;
            items[usize::from(open[usize::from(depth)])] |= count as u32;
        }
    }
    items.truncate(count);
    let items = items.into_iter().map(u32::to_le_bytes).collect();
    (start + at <= bytes.len()).then_some((items, start + at))
}

/// Bytes of a leaf: its kind, its variants, and the share of the third.
fn leaf_size(kind: u8) -> usize {
    const SIZES: [u8; 4] = [1, 2, 3, 5];
    usize::from(SIZES[usize::from(kind % 4)])
}

/// Variants; the thresholds of each feature; then the trees from the root down, left before right: a node is its
/// feature and the number of its threshold, a leaf its variants and the share of the third.
fn encode(variants: &[Variant], trees: &[(Vec<Node>, Vec<Leaf>)]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend((variants.len() as u32).to_le_bytes());
    for v in variants {
        out.push(v.family as u8);
        out.push(v.engine);
        v.tile.iter().for_each(|t| out.extend(t.to_le_bytes()));
        out.extend([v.cluster[0], v.cluster[1], u8::from(v.segments), v.split]);
    }
    let mut edges: Vec<Vec<f32>> = vec![Vec::new(); usize::from(LEAVES)];
    for (feature, threshold, _, _) in trees.iter().flat_map(|(nodes, _)| nodes) {
        edges[usize::from(feature % LEAVES)].push(*threshold);
    }
    for e in &mut edges {
        e.sort_by(f32::total_cmp);
        e.dedup();
        // Features have at most 255 bins where trees are grown, so that a byte numbers their cuts.
        debug_assert!(e.len() < 256, "{} thresholds", e.len());
        out.push(e.len() as u8);
        out.extend(e.iter().flat_map(|v| v.to_le_bytes()));
    }
    out.extend((trees.len() as u32).to_le_bytes());
    for (nodes, leaves) in trees {
        let mut open = vec![if nodes.is_empty() { LEAF } else { 0 }];
        while let Some(at) = open.pop() {
            if at & LEAF == 0 {
                let (feature, threshold, left, right) = nodes[usize::from(at)];
                let number = edges[usize::from(feature % LEAVES)].partition_point(|e| *e < threshold);
                out.extend([feature % LEAVES, number as u8]);
                open.extend([right, left]);
            } else {
                let leaf = leaves.get(usize::from(at & !LEAF)).copied().unwrap_or_default();
                let kept = || leaf.iter().filter(|(_, share)| *share > 0);
                let second = kept().nth(1).map_or(0, |(_, share)| share / SECOND_UNIT).min(31);
                out.push(LEAVES + 4 * second + kept().count() as u8);
                out.extend(kept().map(|(variant, _)| *variant));
                // The shares add up to WHOLE, so that the first need not be told; the second is at most half.
                out.extend(kept().skip(2).map(|(_, share)| *share));
            }
        }
    }
    out
}

fn take<'a>(b: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (head, tail) = b.split_at_checked(n)?;
    *b = tail;
    Some(head)
}

fn word(b: &mut &[u8]) -> Option<usize> {
    Some(u32::from_le_bytes(take(b, 4)?.try_into().ok()?) as usize)
}

/// The choosers of ordinary convolutions by pass, and the one of depthwise convolutions, where PyTorch has its say
/// before the library.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Choosers {
    /// Forward, data gradient, weight gradient.
    pub passes: [Chooser; 3],
    /// Depthwise convolutions, all passes.
    pub depthwise: Chooser,
}

impl Choosers {
    /// Bytes for a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.passes.iter().chain([&self.depthwise]).flat_map(|c| c.bytes.iter().copied()).collect()
    }
}

/// Choosers in their bytes, each read when it is first asked for.
#[derive(Debug, Clone)]
pub struct ChooserBytes {
    bytes: Bytes,
    read: [OnceLock<Option<Chooser>>; 4],
}

#[derive(Debug, Clone)]
enum Bytes {
    /// As [`Choosers::to_bytes`] writes them.
    Packed(Vec<u8>),
    /// Each as [`Chooser::to_flat`] writes it.
    Flat([&'static [u8]; 4]),
}

/// Number of the chooser of depthwise convolutions; those of the passes come before it.
const OF_DEPTHWISE: usize = 3;

impl ChooserBytes {
    /// Choosers as [`Choosers::to_bytes`] writes them.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { bytes: Bytes::Packed(bytes), read: [const { OnceLock::new() }; 4] }
    }

    /// The same, each as [`Chooser::to_flat`] writes it.
    pub fn flat(bytes: [&'static [u8]; 4]) -> Self {
        Self { bytes: Bytes::Flat(bytes), read: [const { OnceLock::new() }; 4] }
    }

    fn at(&self, number: usize) -> Option<&Chooser> {
        let read = || match &self.bytes {
            Bytes::Packed(_) => Some(self.unpacked(number)?.0),
            Bytes::Flat(each) => Chooser::from_flat(each.get(number)?),
        };
        self.read.get(number)?.get_or_init(read).as_ref()
    }

    /// A chooser and the number of bytes after it.
    fn unpacked(&self, number: usize) -> Option<(Chooser, usize)> {
        let Bytes::Packed(bytes) = &self.bytes else { return None };
        let mut rest = bytes.as_slice();
        for _ in 0..number {
            Chooser::read(&mut rest, |b| Cow::Owned(b.to_vec()))?;
        }
        let chooser = Chooser::read(&mut rest, |b| Cow::Owned(b.to_vec()))?;
        Some((chooser, rest.len()))
    }

    /// The chooser of ordinary convolutions of a pass: forward 0, data gradient 1, weight gradient 2.
    pub fn pass(&self, pass: usize) -> Option<&Chooser> {
        self.at(pass.min(OF_DEPTHWISE - 1))
    }

    /// The chooser of depthwise convolutions.
    pub fn depthwise(&self) -> Option<&Chooser> {
        self.at(OF_DEPTHWISE)
    }

    /// All of them; nothing if the bytes are damaged or more.
    pub fn all(&self) -> Option<Choosers> {
        let end = match &self.bytes {
            Bytes::Packed(_) => self.unpacked(OF_DEPTHWISE)?.1,
            Bytes::Flat(_) => 0,
        };
        let [a, b, c] = [0, 1, 2].map(|i| self.pass(i).cloned());
        let all = Choosers { passes: [a?, b?, c?], depthwise: self.depthwise()?.clone() };
        let whole = all.passes.iter().chain([&all.depthwise]).all(Chooser::is_whole);
        (whole && end == 0).then_some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trees::MAX_FEATURES;

    fn example() -> (Chooser, impl Fn(u8) -> Variant) {
        let known = Variant::of_family(ConvFamily::Xmma90);
        let variant = move |engine| Variant { engine, tile: [128, 64, 32], cluster: [2, 1], ..known };
        let nodes = vec![(2, 1.0, LEAF, LEAF | 1)];
        let leaves = vec![[(2, 155), (0, 80), (1, 20)], [(1, 255), (0, 0), (0, 0)]];
        (Chooser::new(&[variant(1), variant(2), variant(3)], &[(nodes, leaves)]).unwrap(), variant)
    }

    #[test]
    fn chooses_and_round_trips() {
        let (c, variant) = example();
        let mut x = [0.0; MAX_FEATURES];
        let guesses = c.guesses(&x);
        assert_eq!(guesses.iter().map(|g| g.variant.engine).collect::<Vec<_>>(), [3, 1, 2]);
        assert!((guesses[0].probability - 155.0 / 255.0).abs() < 1e-6);
        x[2] = 2.0;
        assert_eq!(c.guesses(&x), [Guess { variant: variant(2), probability: 1.0 }]);
        let all = Choosers { passes: [c.clone(), Chooser::default(), c.clone()], depthwise: c };
        let bytes = all.to_bytes();
        assert_eq!(ChooserBytes::new(bytes.clone()).all().unwrap(), all);
        assert!(ChooserBytes::new(bytes[..bytes.len() - 1].to_vec()).all().is_none());
        // The first tree starts after three variants, the counts of 128 features, one threshold and the trees' number:
        // its root asks for the feature's second threshold, which there is not.
        let mut odd = bytes;
        let root = 4 + 3 * 12 + 128 + 4 + 4;
        assert_eq!(odd[root..root + 2], [2, 0]);
        odd[root + 1] = 1;
        assert!(ChooserBytes::new(odd).all().is_none());
    }

    #[test]
    fn many_trees_vote_as_one_after_the_other() {
        let (_, variant) = example();
        let variants: Vec<Variant> = (0..9).map(variant).collect();
        // Eleven chains: node i of tree t sends values above i + t/16 on to the next node.
        let trees: Vec<(Vec<Node>, Vec<Leaf>)> = (0..11u16)
            .map(|t| {
                let node = |i: u16| {
                    let edge = f32::from(i) + f32::from(t) / 16.0;
                    ((t % 3) as u8, edge, LEAF | i, if i == 5 { LEAF | 6 } else { i + 1 })
                };
                let leaf = |i: u16| [(((i + t) % 9) as u8, 215), ((i % 9) as u8, 40), (0, 0)];
                ((0..6).map(node).collect(), (0..7).map(leaf).collect())
            })
            .collect();
        let c = Chooser::new(&variants, &trees).unwrap();
        for v in [-1.0, 0.2, 1.5, 3.3, 4.0, 5.4, 9.0] {
            let mut x = [0.0; MAX_FEATURES];
            x[..3].copy_from_slice(&[v, 6.0 - v, v / 2.0]);
            let mut sums = [0u32; 9];
            for (nodes, leaves) in &trees {
                let mut at = 0;
                while at & LEAF == 0 {
                    let (f, t, left, right) = nodes[usize::from(at)];
                    at = if x[usize::from(f)] > t { right } else { left };
                }
                for (variant, share) in leaves[usize::from(at & !LEAF)] {
                    sums[usize::from(variant)] += u32::from(share);
                }
            }
            let guesses = c.guesses(&x);
            let told: u32 = {
                let mut s = sums;
                s.sort_unstable();
                s[9 - KEPT..].iter().sum()
            };
            for g in &guesses {
                let own = sums[usize::from(g.variant.engine)];
                assert!((g.probability - own as f32 / told as f32).abs() < 1e-6);
            }
            assert!(guesses.is_sorted_by(|a, b| a.probability >= b.probability));
        }
    }
}
