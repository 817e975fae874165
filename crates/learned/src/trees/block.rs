//! Trees walked by 64 rows at once, one bit of a word for each row.
//!
//! A node asks whether a feature exceeds a threshold, and trees share thresholds. So the rows that exceed each threshold
//! are found first, as words of 64 bits; then every level of a tree selects among the words of its nodes, bit by bit, by
//! the answers of the levels above. No step depends on a row's data, so none waits for a guess of the processor.

use super::{DEPTH, Features, LEAVES, MAX_FEATURES, Tree};

/// Rows of a block.
const ROWS: usize = u64::BITS as usize;
/// Most different thresholds of a forest.
const MOST: usize = 1 << 14;

/// Trees with their thresholds numbered.
#[derive(Debug, Clone)]
pub(super) struct Blocks {
    /// Features with their thresholds in order: where they end in the list.
    ends: Vec<(u8, usize)>,
    thresholds: Vec<f32>,
    /// Number of each node's threshold, root at 1.
    nodes: Vec<[u16; LEAVES]>,
}

/// Room for the rows above each threshold, to be used again for the next forest.
#[derive(Debug, Default)]
pub struct Scratch {
    above: Vec<u64>,
}

/// A number that sorts as [`f32::total_cmp`] does.
fn in_order(x: f32) -> u32 {
    let bits = x.to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

/// The bits of a byte as bytes.
const SPREAD: [u64; 256] = {
    let mut out = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut bit = 0;
        while bit < 8 {
            out[byte] |= ((byte as u64 >> bit) & 1) << (8 * bit);
            bit += 1;
        }
        byte += 1;
    }
    out
};

impl Blocks {
    /// Numbers the thresholds; nothing if there are too many.
    pub fn new(trees: &[Tree]) -> Option<Self> {
        // One number each, which sorts by feature, then threshold: 8, 32 and 24 bits.
        if trees.len() * LEAVES > 1 << 24 {
            return None;
        }
        let mut order: Vec<u64> = Vec::with_capacity(trees.len() * LEAVES);
        for (t, tree) in trees.iter().enumerate() {
            for i in 1..LEAVES {
                let place = u64::from(in_order(tree.thresholds[i])) << 24 | (t * LEAVES + i) as u64;
                order.push(u64::from(tree.features[i]) << 56 | place);
            }
        }
        order.sort_unstable();
        let mut nodes = vec![[0; LEAVES]; trees.len()];
        let (mut ends, mut thresholds): (Vec<(u8, usize)>, Vec<f32>) = (Vec::new(), Vec::new());
        for number in order {
            let (feature, node) = ((number >> 56) as u8, (number & 0x00ff_ffff) as usize);
            let threshold = trees[node / LEAVES].thresholds[node % LEAVES];
            let known = ends.last().is_some_and(|(f, _)| *f == feature);
            if !known {
                ends.push((feature, thresholds.len()));
            }
            if !known || thresholds.last() != Some(&threshold) {
                thresholds.push(threshold);
            }
            if let Some((_, end)) = ends.last_mut() {
                *end = thresholds.len();
            }
            nodes[node / LEAVES][node % LEAVES] = (thresholds.len() - 1) as u16;
        }
        (thresholds.len() <= MOST).then_some(Self { ends, thresholds, nodes })
    }

    /// Adds up the leaves of whole blocks of rows and of a rest worth a block; the number of rows done.
    pub fn sums(&self, trees: &[Tree], rows: &[&Features], sums: &mut [i32], scratch: &mut Scratch) -> usize {
        scratch.above.resize(MOST, 0);
        let Some(above) = scratch.above.first_chunk_mut::<MOST>() else { return 0 };
        let mut done = 0;
        for (rows, sums) in rows.chunks(ROWS).zip(sums.chunks_mut(ROWS)) {
            if rows.len() < super::WORTH_USING {
                break;
            }
            self.compare(rows, above);
            let mut block = [0; ROWS];
            for (nodes, tree) in self.nodes.iter().zip(trees) {
                add_leaves(&reached(nodes, above), &tree.leaves, rows.len(), &mut block);
            }
            sums.copy_from_slice(&block[..rows.len()]);
            done += rows.len();
        }
        done
    }

    /// For each threshold the rows that are above it.
    fn compare(&self, rows: &[&Features], above: &mut [u64; MOST]) {
        let mut start = 0;
        for (feature, end) in &self.ends {
            let thresholds = &self.thresholds[start..*end];
            let above = &mut above[start..*end];
            above.fill(0);
            // Calls of a list differ in few features from the one before: then the place is known.
            let (mut last, mut place) = (f32::NAN, 0);
            for (row, x) in rows.iter().enumerate() {
                let x = x[usize::from(*feature) % MAX_FEATURES];
                if x.to_bits() != last.to_bits() {
                    (last, place) = (x, thresholds.partition_point(|t| x > *t));
                }
                if let Some(highest) = place.checked_sub(1).and_then(|i| above.get_mut(i)) {
                    *highest |= 1 << row;
                }
            }
            // A row above a threshold is above all smaller ones.
            let mut rows = 0;
            for word in above.iter_mut().rev() {
                rows |= *word;
                *word = rows;
            }
            start = *end;
        }
    }
}

/// The answers of all rows on their way down a tree, level by level.
fn reached(nodes: &[u16; LEAVES], above: &[u64; MOST]) -> [u64; DEPTH] {
    let mut way = [0; DEPTH];
    way[0] = level::<1>(nodes, above, &way);
    way[1] = level::<2>(nodes, above, &way);
    way[2] = level::<4>(nodes, above, &way);
    way[3] = level::<8>(nodes, above, &way);
    way[4] = level::<16>(nodes, above, &way);
    way[5] = level::<32>(nodes, above, &way);
    way
}

/// The answers of a level of `WIDTH` nodes: of each row that of the node which the levels above lead to.
#[inline]
fn level<const WIDTH: usize>(nodes: &[u16; LEAVES], above: &[u64; MOST], way: &[u64; DEPTH]) -> u64 {
    let mut words: [u64; WIDTH] =
        std::array::from_fn(|i| above[usize::from(nodes[(WIDTH + i) % LEAVES]) % MOST]);
    let mut width = WIDTH;
    for right in way {
        width /= 2;
        if width == 0 {
            break;
        }
        for i in 0..width {
            words[i] ^= (words[i] ^ words[i + width]) & right;
        }
    }
    words[0]
}

/// Adds the leaf that each row has reached.
#[inline]
fn add_leaves(way: &[u64; DEPTH], leaves: &[i16; LEAVES], rows: usize, sums: &mut [i32; ROWS]) {
    let bytes = way.map(u64::to_le_bytes);
    for (eight, sums) in sums.as_chunks_mut::<8>().0.iter_mut().enumerate().take(rows.div_ceil(8)) {
        // Eight numbers of leaves, a byte each; the first answer is the highest bit.
        let at = bytes.iter().fold(0, |at, b| 2 * at + SPREAD[usize::from(b[eight % 8])]);
        for (sum, at) in sums.iter_mut().zip(at.to_le_bytes()) {
            *sum += i32::from(leaves[usize::from(at) % LEAVES]);
        }
    }
}
