//! Trains the random forest that guesses the kernel family.

use crate::gbdt::{Binned, Random, bin};
use preflop_core::time::choice::{CLASSES, Chooser};
use preflop_core::time::trees::Features;

const LEAF: u16 = 0x8000;

struct Open {
    members: Vec<u32>,
    /// Which child slot of which node points here; none for the root.
    parent: Option<(usize, bool)>,
    split: Option<(f64, usize, u8)>,
}

/// Trains `trees` trees of at most `leaves` leaves.
pub fn train(
    rows: &[Features],
    labels: &[u8],
    features: usize,
    trees: usize,
    leaves: usize,
    seed: u64,
) -> Chooser {
    let data = bin(rows, features);
    let mut random = Random(seed);
    let mut out = Chooser::default();
    for _ in 0..trees {
        // A bootstrap sample.
        let sample: Vec<u32> = (0..rows.len()).map(|_| (random.next() % rows.len() as u64) as u32).collect();
        let mut nodes: Vec<(u16, f32, u16, u16)> = Vec::new();
        let mut ends: Vec<[u8; CLASSES]> = Vec::new();
        let mut open = vec![grow(&data, labels, sample, None, features, &mut random)];
        loop {
            let best = open
                .iter()
                .enumerate()
                .filter_map(|(i, o)| o.split.map(|s| (s.0, i)))
                .max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
            let Some((_, i)) = best.filter(|_| open.len() < leaves) else { break };
            let node = open.remove(i);
            let Some((_, f, b)) = node.split else { break };
            let at = nodes.len();
            nodes.push((f as u16, data.edges[f][b as usize], 0, 0));
            link(&mut nodes, node.parent, at as u16);
            let (left, right) = node.members.iter().partition(|&&i| data.bins[f][i as usize] <= b);
            open.push(grow(&data, labels, left, Some((at, false)), features, &mut random));
            open.push(grow(&data, labels, right, Some((at, true)), features, &mut random));
        }
        for leaf in open {
            let at = LEAF | ends.len() as u16;
            let mut count = [0.5 / CLASSES as f32; CLASSES];
            for &i in &leaf.members {
                count[labels[i as usize] as usize] += 1.0;
            }
            let total: f32 = count.iter().sum();
            ends.push(count.map(|c| (255.0 * c / total).round() as u8));
            link(&mut nodes, leaf.parent, at);
        }
        out.push(nodes, ends);
    }
    out
}

fn link(nodes: &mut [(u16, f32, u16, u16)], parent: Option<(usize, bool)>, child: u16) {
    match parent {
        Some((p, false)) => nodes[p].2 = child,
        Some((p, true)) => nodes[p].3 = child,
        None => {}
    }
}

fn grow(
    data: &Binned,
    labels: &[u8],
    members: Vec<u32>,
    parent: Option<(usize, bool)>,
    features: usize,
    random: &mut Random,
) -> Open {
    let mut total = [0f64; CLASSES];
    for &i in &members {
        total[labels[i as usize] as usize] += 1.0;
    }
    let n = members.len() as f64;
    let purity = |c: &[f64; CLASSES], n: f64| c.iter().map(|v| v * v).sum::<f64>() / n.max(1e-9);
    let whole = purity(&total, n);
    let mut split: Option<(f64, usize, u8)> = None;
    if members.len() >= 6 && whole < n - 1e-9 {
        for f in 0..features {
            let cuts = data.edges[f].len();
            if random.unit() > 0.4 || cuts == 0 {
                continue;
            }
            let mut hist = vec![[0f64; CLASSES]; cuts + 1];
            for &i in &members {
                hist[data.bins[f][i as usize] as usize][labels[i as usize] as usize] += 1.0;
            }
            let mut left = [0f64; CLASSES];
            let mut count = 0.0;
            for (b, h) in hist[..cuts].iter().enumerate() {
                for (l, v) in left.iter_mut().zip(h) {
                    *l += v;
                    count += v;
                }
                if count < 3.0 || n - count < 3.0 {
                    continue;
                }
                let mut right = total;
                for (r, l) in right.iter_mut().zip(&left) {
                    *r -= l;
                }
                let gain = purity(&left, count) + purity(&right, n - count) - whole;
                if gain > split.map_or(1e-6, |s| s.0) {
                    split = Some((gain, f, b as u8));
                }
            }
        }
    }
    Open { members, parent, split }
}
