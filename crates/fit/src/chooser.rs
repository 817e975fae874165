//! Trains the random forests that guess what a library runs for a convolution.

use crate::gbdt::{Binned, Random, bin};
use preflop_core::time::choice::{Chooser, LEAF, Leaf, Node, PER_LEAF, SECOND_UNIT, Variant, WHOLE};
use preflop_core::time::trees::Features;
use rayon::prelude::*;

/// Size of a forest.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub trees: usize,
    pub leaves: usize,
}

/// Share of the features that a split looks at.
const FEATURE_SHARE: f32 = 0.5;
/// One over the least share of a leaf that it remembers.
const LEAST_SHARE: u32 = 16;

struct Open {
    members: Vec<u32>,
    /// Which child slot of which node points here; none for the root.
    parent: Option<(usize, bool)>,
    split: Option<(f64, usize, u8)>,
}

/// Trains a chooser on rows and the number of each row's variant.
pub fn train(
    rows: &[Features],
    labels: &[u8],
    variants: Vec<Variant>,
    features: usize,
    size: Size,
    seed: u64,
) -> Chooser {
    let data = bin(rows, features);
    let trees: Vec<(Vec<Node>, Vec<Leaf>)> = (0..size.trees as u64)
        .into_par_iter()
        .map(|t| tree(&data, labels, variants.len(), features, size.leaves, seed.wrapping_add(t << 32)))
        .collect();
    Chooser::new(&variants, &trees)
        .expect("a byte numbers a feature's bins, and trees have fewer leaves than LEAF")
}

fn tree(
    data: &Binned,
    labels: &[u8],
    classes: usize,
    features: usize,
    leaves: usize,
    seed: u64,
) -> (Vec<Node>, Vec<Leaf>) {
    let mut random = Random(seed);
    // All rows: the library's own rules are cuts of these features, and each answer tells where one lies. Trees differ
    // by the features that their splits look at.
    let sample: Vec<u32> = (0..labels.len() as u32).collect();
    let mut nodes: Vec<Node> = Vec::new();
    let mut open = vec![grow(data, labels, classes, sample, None, features, &mut random)];
    loop {
        let best = open
            .iter()
            .enumerate()
            .filter_map(|(i, o)| o.split.map(|s| (s.0, i)))
            .max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
        let Some((_, i)) = best.filter(|_| open.len() < leaves) else { break };
        let node = open.swap_remove(i);
        let Some((_, f, b)) = node.split else { break };
        let at = nodes.len();
        nodes.push((f as u8, data.edges[f][b as usize], 0, 0));
        link(&mut nodes, node.parent, at as u16);
        let (left, right) = node.members.iter().partition(|&&i| data.bins[f][i as usize] <= b);
        open.push(grow(data, labels, classes, left, Some((at, false)), features, &mut random));
        open.push(grow(data, labels, classes, right, Some((at, true)), features, &mut random));
    }
    let mut ends: Vec<Leaf> = Vec::new();
    for leaf in open {
        let mut count = vec![0u32; classes];
        for &i in &leaf.members {
            count[labels[i as usize] as usize] += 1;
        }
        let mut order: Vec<(u32, usize)> = count.into_iter().zip(0..).filter(|c| c.0 > 0).collect();
        order.sort_by(|a, b| b.cmp(a));
        order.truncate(PER_LEAF);
        let whole: u32 = order.iter().map(|o| o.0).sum();
        order.retain(|o| LEAST_SHARE * o.0 > whole);
        let total: u32 = order.iter().map(|o| o.0).sum();
        let mut end: Leaf = [(0, 0); PER_LEAF];
        for (slot, (n, v)) in end.iter_mut().zip(order) {
            *slot = (v as u8, (WHOLE * n / total) as u8);
        }
        // What rounding leaves over is the first one's.
        end[1].1 -= end[1].1 % SECOND_UNIT;
        let told: u32 = end.iter().map(|(_, share)| u32::from(*share)).sum();
        end[0].1 += (WHOLE - told) as u8;
        link(&mut nodes, leaf.parent, LEAF | ends.len() as u16);
        ends.push(end);
    }
    (nodes, ends)
}

fn link(nodes: &mut [Node], parent: Option<(usize, bool)>, child: u16) {
    match parent {
        Some((p, false)) => nodes[p].2 = child,
        Some((p, true)) => nodes[p].3 = child,
        None => {}
    }
}

/// Finds the split of a node that lowers the Gini impurity most.
fn grow(
    data: &Binned,
    labels: &[u8],
    classes: usize,
    members: Vec<u32>,
    parent: Option<(usize, bool)>,
    features: usize,
    random: &mut Random,
) -> Open {
    let mut total = vec![0i64; classes];
    for &i in &members {
        total[labels[i as usize] as usize] += 1;
    }
    let n: i64 = total.iter().sum();
    let square: i64 = total.iter().map(|c| c * c).sum();
    let whole = square as f64 / n.max(1) as f64;
    let mut split: Option<(f64, usize, u8)> = None;
    if n >= 4 && square < n * n {
        let mut sorted = vec![0u8; members.len()];
        for f in 0..features {
            let cuts = data.edges[f].len();
            if random.unit() > FEATURE_SHARE || cuts == 0 {
                continue;
            }
            let column = &data.bins[f];
            // Labels sorted by bin; then members go from right to left one by one, and the sums of squares follow.
            let mut start = [0u32; 257];
            for &i in &members {
                start[column[i as usize] as usize + 1] += 1;
            }
            for b in 0..256 {
                start[b + 1] += start[b];
            }
            let mut at = start;
            for &i in &members {
                let slot = &mut at[column[i as usize] as usize];
                sorted[*slot as usize] = labels[i as usize];
                *slot += 1;
            }
            let mut left = vec![0i64; classes];
            let (mut left_square, mut right_square) = (0i64, square);
            for b in 0..cuts {
                for &label in &sorted[start[b] as usize..start[b + 1] as usize] {
                    let c = usize::from(label);
                    left_square += 2 * left[c] + 1;
                    right_square -= 2 * (total[c] - left[c]) - 1;
                    left[c] += 1;
                }
                let count = i64::from(start[b + 1]);
                if start[b] == start[b + 1] || count < 2 || n - count < 2 {
                    continue;
                }
                let gain =
                    left_square as f64 / count as f64 + right_square as f64 / (n - count) as f64 - whole;
                if gain > split.map_or(1e-6, |s| s.0) {
                    split = Some((gain, f, b as u8));
                }
            }
        }
    }
    Open { members, parent, split }
}
