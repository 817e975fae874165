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
        let mut order: Vec<(u8, f32, u32)> = trees
            .iter()
            .enumerate()
            .flat_map(|(t, tree)| {
                (1..LEAVES).map(move |i| (tree.features[i], tree.thresholds[i], (t * LEAVES + i) as u32))
            })
            .collect();
        order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let mut nodes = vec![[0; LEAVES]; trees.len()];
        let (mut ends, mut thresholds): (Vec<(u8, usize)>, Vec<f32>) = (Vec::new(), Vec::new());
        for (feature, threshold, node) in order {
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
            let node = node as usize;
            nodes[node / LEAVES][node % LEAVES] = (thresholds.len() - 1) as u16;
        }
        (thresholds.len() <= MOST).then_some(Self { ends, thresholds, nodes })
    }

    /// Adds up the leaves of whole blocks of rows and of a rest worth a block; the number of rows done.
    pub fn sums(&self, trees: &[Tree], rows: &[&Features], sums: &mut [i32]) -> usize {
        let mut above = vec![0u64; MOST];
        let Some(above) = above.first_chunk_mut::<MOST>() else { return 0 };
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
            for (row, x) in rows.iter().enumerate() {
                let x = x[usize::from(*feature) % MAX_FEATURES];
                let passed = thresholds.partition_point(|t| x > *t);
                if let Some(last) = passed.checked_sub(1).and_then(|i| above.get_mut(i)) {
                    *last |= 1 << row;
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
#[inline(always)]
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
#[inline(always)]
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
