//! Trees walked by 64 rows at once, one bit of a word for each row.
//!
//! A node asks whether a feature exceeds a threshold, and trees share thresholds. So the rows that exceed each threshold
//! are found first, as words of 64 bits; then all rows go down a tree together and part only at nodes that tell them apart. Calls of a
//! list are often alike but for one size: they reach a few leaves, in runs.

use super::{Features, LEAVES, MAX_FEATURES, Trees, Values, in_order};
use std::borrow::Cow;

/// Rows of a block.
const ROWS: usize = u64::BITS as usize;
/// Most different thresholds of a forest.
const MOST: usize = 1 << 14;

/// Trees with their thresholds numbered.
#[derive(Debug, Clone)]
pub(super) struct Blocks {
    /// Features with their thresholds in order: where they end in the list.
    ends: Vec<(u8, usize)>,
    /// Little-endian [`super::limit`]s.
    thresholds: Cow<'static, [[u8; 4]]>,
    /// Number of each node's threshold, root at 1.
    nodes: Cow<'static, [Numbers]>,
}

/// Little-endian numbers of a tree's thresholds.
type Numbers = [[u8; 2]; LEAVES];

/// Room for the rows above each threshold, to be used again for the next forest.
#[derive(Debug, Default)]
pub struct Scratch {
    above: Vec<u64>,
}

impl Blocks {
    /// Numbers the thresholds; nothing if there are too many.
    pub fn new(trees: &Trees) -> Option<Self> {
        // One number each, which sorts by feature, then threshold: 8, 32 and 24 bits.
        if trees.len() * LEAVES > 1 << 24 {
            return None;
        }
        let mut order: Vec<u64> = Vec::with_capacity(trees.len() * LEAVES);
        let parts = trees.features.iter().zip(trees.thresholds.iter());
        for (t, (features, thresholds)) in parts.enumerate() {
            for (i, (feature, threshold)) in features.iter().zip(thresholds).enumerate().skip(1) {
                let place = u64::from(u32::from_le_bytes(*threshold)) << 24 | (t * LEAVES + i) as u64;
                order.push(u64::from(*feature) << 56 | place);
            }
        }
        order.sort_unstable();
        let mut nodes = vec![[[0; 2]; LEAVES]; trees.len()];
        let (mut ends, mut thresholds): (Vec<(u8, usize)>, Vec<[u8; 4]>) = (Vec::new(), Vec::new());
        for number in order {
            let (feature, node) = ((number >> 56) as u8, (number & 0x00ff_ffff) as usize);
            let threshold = trees.thresholds[node / LEAVES][node % LEAVES];
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
            nodes[node / LEAVES][node % LEAVES] = ((thresholds.len() - 1) as u16).to_le_bytes();
        }
        let few = thresholds.len() <= MOST;
        few.then_some(Self { ends, thresholds: Cow::Owned(thresholds), nodes: Cow::Owned(nodes) })
    }

    /// Adds the bytes in which they are used: how many features and thresholds, each feature with its end, thresholds, nodes.
    pub fn to_bytes(&self, out: &mut Vec<u8>) {
        for count in [self.ends.len(), self.thresholds.len()] {
            out.extend((count as u32).to_le_bytes());
        }
        for (feature, end) in &self.ends {
            out.extend(u16::from(*feature).to_le_bytes());
            out.extend((*end as u16).to_le_bytes());
        }
        out.extend(self.thresholds.as_flattened());
        out.extend(self.nodes.as_flattened().as_flattened());
    }

    /// Those of so many trees, used where they stand; nothing if the bytes are damaged.
    pub fn from_bytes(bytes: &'static [u8], trees: usize) -> Option<Self> {
        let (features, rest) = bytes.split_first_chunk::<4>()?;
        let (thresholds, rest) = rest.split_first_chunk::<4>()?;
        let [features, thresholds] = [features, thresholds].map(|n| u32::from_le_bytes(*n) as usize);
        let (ends, rest) = rest.split_at_checked(4 * features)?;
        let (thresholds, nodes) = rest.split_at_checked(4 * thresholds)?;
        let ends: Vec<(u8, usize)> = ends
            .as_chunks::<4>()
            .0
            .iter()
            .map(|[feature, _, low, high]| (*feature, usize::from(u16::from_le_bytes([*low, *high]))))
            .collect();
        let thresholds = thresholds.as_chunks().0;
        let whole = nodes.len() == 2 * LEAVES * trees
            && thresholds.len() <= MOST
            && ends.is_sorted_by_key(|(_, end)| *end)
            && ends.last().map_or(0, |(_, end)| *end) == thresholds.len();
        let nodes = Cow::Borrowed(nodes.as_chunks().0.as_chunks().0);
        whole.then_some(Self { ends, thresholds: Cow::Borrowed(thresholds), nodes })
    }

    /// Adds up the leaves of whole blocks of rows and of a rest worth a block; the number of rows done.
    pub fn sums(&self, trees: &Trees, rows: &[&Features], sums: &mut [i32], scratch: &mut Scratch) -> usize {
        scratch.above.resize(MOST, 0);
        let Some(above) = scratch.above.first_chunk_mut::<MOST>() else { return 0 };
        let mut done = 0;
        for (rows, sums) in rows.chunks(ROWS).zip(sums.chunks_mut(ROWS)) {
            if rows.len() < super::WORTH_USING {
                break;
            }
            self.compare(rows, above);
            let mut steps = [0; ROWS];
            for (nodes, values) in self.nodes.iter().zip(trees.values.iter()) {
                add_leaves(nodes, values, above, u64::MAX >> (ROWS - rows.len()), &mut steps);
            }
            let mut sum = 0;
            for (out, step) in sums.iter_mut().zip(steps) {
                sum += step;
                *out = sum;
            }
            done += rows.len();
        }
        done
    }

    /// For each threshold the rows that are above it.
    fn compare(&self, rows: &[&Features], above: &mut [u64; MOST]) {
        let all = u64::MAX >> (ROWS - rows.len().clamp(1, ROWS));
        let mut start = 0;
        for (feature, end) in &self.ends {
            let thresholds = &self.thresholds[start..*end];
            let above = &mut above[start..*end];
            start = *end;
            let value = |x: &Features| x[usize::from(*feature) % MAX_FEATURES].to_bits();
            // Calls of a list differ in few features from the one before, or go to and fro: then the place is known.
            let (mut last, mut place) = (f32::NAN.to_bits(), 0);
            let mut before = (last, place);
            // Rows from the last that was marked on, all above as many thresholds.
            let (mut run, mut marked) = (all, false);
            for (row, x) in rows.iter().enumerate() {
                let x = value(x);
                if x == last {
                    continue;
                }
                let known = before;
                before = (last, place);
                last = x;
                let now = if x == known.0 { known.1 } else { exceeded(thresholds, f32::from_bits(x)) };
                if now == place {
                    continue;
                }
                let rest = (u64::MAX << row) & all;
                if row > 0 {
                    if !marked {
                        above.fill(0);
                        marked = true;
                    }
                    mark(above, place, run & !rest);
                }
                (run, place) = (rest, now);
            }
            if !marked {
                let (below, beyond) = above.split_at_mut(place.min(thresholds.len()));
                below.fill(all);
                beyond.fill(0);
                continue;
            }
            mark(above, place, run);
            // A row above a threshold is above all smaller ones.
            let mut rows = 0;
            for word in above.iter_mut().rev() {
                rows |= *word;
                *word = rows;
            }
        }
    }
}

/// Marks rows at the highest of so many thresholds.
fn mark(above: &mut [u64], place: usize, rows: u64) {
    if let Some(highest) = place.checked_sub(1).and_then(|i| above.get_mut(i)) {
        *highest |= rows;
    }
}

/// How many thresholds `x` exceeds.
fn exceeded(thresholds: &[[u8; 4]], x: f32) -> usize {
    let x = in_order(x);
    thresholds.partition_point(|t| u32::from_le_bytes(*t) < x)
}

/// Sends rows down a tree and adds the leaf that each reaches, as the difference to that of the row before it.
#[inline]
fn add_leaves(nodes: &Numbers, leaves: &Values, above: &[u64; MOST], rows: u64, steps: &mut [i32; ROWS]) {
    // Right children whose rows wait; at most one of each level.
    let mut waiting = [(0u8, 0u64); 8];
    let (mut at, mut rows, mut count) = (1usize, rows, 0usize);
    loop {
        while at < LEAVES {
            let right = rows & above[usize::from(u16::from_le_bytes(nodes[at % LEAVES])) % MOST];
            let left = rows ^ right;
            at *= 2;
            waiting[count % 8] = (at as u8 + 1, right);
            count += usize::from(left != 0) & usize::from(right != 0);
            at += usize::from(left == 0);
            rows = if left == 0 { right } else { left };
        }
        let mut leaf = i32::from(i16::from_le_bytes(leaves[at % LEAVES]));
        // Where runs of rows start and end.
        let mut ends = rows ^ (rows << 1);
        while ends != 0 {
            steps[ends.trailing_zeros() as usize % ROWS] += leaf;
            leaf = -leaf;
            ends &= ends - 1;
        }
        let Some(last) = count.checked_sub(1) else { break };
        count = last;
        (at, rows) = (usize::from(waiting[count % 8].0), waiting[count % 8].1);
    }
}
