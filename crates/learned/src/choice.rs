//! Which kernels a library would run for a convolution: its heuristics, learned from its own answers.
//!
//! cuDNN was asked for its choice on 1.5 million shapes (`tools/measure/cudnn_choice.cpp`); random forests repeat it. A
//! choice is a [`Variant`]: the engine's number, the kernel family it launches, the tile and the clusters of its kernels.

use super::trees::Features;
use crate::family::ConvFamily;

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

/// One tree: nodes with feature, threshold and children; leaves with their likeliest variants in 1/255.
#[derive(Debug, Clone, PartialEq, Default)]
struct Tree {
    /// Feature, threshold, left, right; a child with the top bit set is a leaf.
    nodes: Vec<Node>,
    leaves: Vec<Leaf>,
}

/// Feature, threshold, left child, right child.
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
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Chooser {
    variants: Vec<Variant>,
    trees: Vec<Tree>,
}

impl Chooser {
    /// A chooser without trees.
    pub fn new(variants: Vec<Variant>) -> Self {
        Self { variants, trees: Vec::new() }
    }

    /// Adds a tree as its nodes and leaves.
    pub fn push(&mut self, nodes: Vec<Node>, leaves: Vec<Leaf>) {
        self.trees.push(Tree { nodes, leaves });
    }

    /// All variants it knows.
    pub fn variants(&self) -> &[Variant] {
        &self.variants
    }

    /// The likeliest variants, most likely first; their probabilities add up to 1.
    pub fn guesses(&self, x: &Features) -> Vec<Guess> {
        let mut sum = [0u32; MOST];
        for tree in &self.trees {
            let mut at = if tree.nodes.is_empty() { LEAF } else { 0 };
            // Children always come after their parent, so the walk ends.
            while at & LEAF == 0 {
                let Some((feature, threshold, left, right)) = tree.nodes.get(usize::from(at)) else { break };
                let value = x[usize::from(*feature) % x.len()];
                let next = if value > *threshold { *right } else { *left };
                if next & LEAF == 0 && next <= at {
                    break;
                }
                at = next;
            }
            if let Some(leaf) = tree.leaves.get(usize::from(at & !LEAF)) {
                for (variant, share) in leaf {
                    sum[usize::from(*variant)] += u32::from(*share);
                }
            }
        }
        let mut best: Vec<(u32, usize)> = Vec::with_capacity(KEPT + 1);
        for (variant, &share) in sum.iter().enumerate().take(self.variants.len()) {
            if share > best.last().map_or(0, |b| if best.len() < KEPT { 0 } else { b.0 }) {
                let at = best.partition_point(|b| b.0 >= share);
                best.insert(at, (share, variant));
                best.truncate(KEPT);
            }
        }
        let total: u32 = best.iter().map(|b| b.0).sum();
        let share = 1.0 / total.max(1) as f32;
        best.into_iter()
            .map(|(s, v)| Guess { variant: self.variants[v], probability: s as f32 * share })
            .collect()
    }

    /// Variants; the thresholds of each feature; then the trees from the root down, left before right: a node is its
    /// feature and the number of its threshold, a leaf its variants and the share of the third.
    fn write(&self, out: &mut Vec<u8>) {
        out.extend((self.variants.len() as u32).to_le_bytes());
        for v in &self.variants {
            out.push(v.family as u8);
            out.push(v.engine);
            v.tile.iter().for_each(|t| out.extend(t.to_le_bytes()));
            out.extend([v.cluster[0], v.cluster[1], u8::from(v.segments), v.split]);
        }
        let mut edges: Vec<Vec<f32>> = vec![Vec::new(); usize::from(LEAVES)];
        for (feature, threshold, _, _) in self.trees.iter().flat_map(|t| &t.nodes) {
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
        out.extend((self.trees.len() as u32).to_le_bytes());
        for t in &self.trees {
            let mut open = vec![if t.nodes.is_empty() { LEAF } else { 0 }];
            while let Some(at) = open.pop() {
                if at & LEAF == 0 {
                    let (feature, threshold, left, right) = t.nodes[usize::from(at)];
                    let number = edges[usize::from(feature % LEAVES)].partition_point(|e| *e < threshold);
                    out.extend([feature % LEAVES, number as u8]);
                    open.extend([right, left]);
                } else {
                    let leaf = t.leaves.get(usize::from(at & !LEAF)).copied().unwrap_or_default();
                    let kept = || leaf.iter().filter(|(_, share)| *share > 0);
                    let second = kept().nth(1).map_or(0, |(_, share)| share / SECOND_UNIT).min(31);
                    out.push(LEAVES + 4 * second + kept().count() as u8);
                    out.extend(kept().map(|(variant, _)| *variant));
                    // The shares add up to WHOLE, so that the first need not be told; the second is at most half.
                    out.extend(kept().skip(2).map(|(_, share)| *share));
                }
            }
        }
    }

    fn read(rest: &mut &[u8]) -> Option<Self> {
        let count = word(rest)?;
        let mut out = Self::default();
        for _ in 0..count {
            let b = take(rest, 12)?;
            let pair = |i: usize| u16::from_le_bytes([b[i], b[i + 1]]);
            let family = ConvFamily::from_index(b[0])?;
            let tile = [pair(2), pair(4), pair(6)];
            let (cluster, segments, split) = ([b[8], b[9]], b[10] > 0, b[11]);
            out.variants.push(Variant { family, engine: b[1], tile, cluster, segments, split });
        }
        let mut edges: Vec<Vec<f32>> = Vec::new();
        for _ in 0..LEAVES {
            let n = usize::from(take(rest, 1)?[0]);
            let number = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            edges.push(take(rest, 4 * n)?.chunks_exact(4).map(number).collect());
        }
        for _ in 0..word(rest)? {
            out.trees.push(Tree::read(rest, &edges)?);
        }
        Some(out)
    }
}

impl Tree {
    /// Reads what [`Chooser::write`] wrote of one tree.
    fn read(rest: &mut &[u8], edges: &[Vec<f32>]) -> Option<Self> {
        let mut out = Self::default();
        // Child slots that are still open: the node and whether it is its right one; none for the root.
        let mut open: Vec<Option<(usize, bool)>> = vec![None];
        while let Some(slot) = open.pop() {
            let kind = take(rest, 1)?[0];
            let number = if kind < LEAVES {
                let threshold = *edges.get(usize::from(kind))?.get(usize::from(take(rest, 1)?[0]))?;
                let at = out.nodes.len();
                out.nodes.push((kind, threshold, 0, 0));
                open.extend([Some((at, true)), Some((at, false))]);
                u16::try_from(at).ok().filter(|n| n & LEAF == 0)?
            } else {
                let mut leaf = Leaf::default();
                let count = usize::from(kind % 4);
                let variants = take(rest, count)?;
                let second = (kind - LEAVES) / 4 * SECOND_UNIT;
                let third = take(rest, count.saturating_sub(2))?.first().copied().unwrap_or_default();
                let shares = [u8::MAX.saturating_sub(second).saturating_sub(third), second, third];
                for (slot, told) in leaf.iter_mut().zip(variants.iter().zip(shares)) {
                    *slot = (*told.0, told.1);
                }
                out.leaves.push(leaf);
                let at = u16::try_from(out.leaves.len() - 1).ok().filter(|n| n & LEAF == 0)?;
                LEAF | at
            };
            match slot {
                Some((parent, false)) => out.nodes[parent].2 = number,
                Some((parent, true)) => out.nodes[parent].3 = number,
                None => {}
            }
        }
        Some(out)
    }
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
        let mut out = Vec::new();
        self.passes.iter().chain([&self.depthwise]).for_each(|c| c.write(&mut out));
        out
    }

    /// Reads it back; nothing if the bytes are damaged.
    pub fn from_bytes(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let mut rest = bytes;
        let mut next = || Chooser::read(&mut rest);
        let passes = [next()?, next()?, next()?];
        let depthwise = next()?;
        Some((Self { passes, depthwise }, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trees::MAX_FEATURES;

    #[test]
    fn chooses_and_round_trips() {
        let known = Variant::of_family(ConvFamily::Xmma90);
        let variant = |engine| Variant { engine, tile: [128, 64, 32], cluster: [2, 1], ..known };
        let mut c = Chooser::new(vec![variant(1), variant(2), variant(3)]);
        c.push(
            vec![(2, 1.0, LEAF, LEAF | 1)],
            vec![[(2, 155), (0, 80), (1, 20)], [(1, 255), (0, 0), (0, 0)]],
        );
        let mut x = [0.0; MAX_FEATURES];
        let guesses = c.guesses(&x);
        assert_eq!(guesses.iter().map(|g| g.variant.engine).collect::<Vec<_>>(), [3, 1, 2]);
        assert!((guesses[0].probability - 155.0 / 255.0).abs() < 1e-6);
        x[2] = 2.0;
        assert_eq!(c.guesses(&x), [Guess { variant: variant(2), probability: 1.0 }]);
        let all = Choosers { passes: [c.clone(), Chooser::default(), c.clone()], depthwise: c };
        let bytes = all.to_bytes();
        assert_eq!(Choosers::from_bytes(&bytes).unwrap().0, all);
        assert!(Choosers::from_bytes(&bytes[..bytes.len() - 1]).is_none());
    }
}
