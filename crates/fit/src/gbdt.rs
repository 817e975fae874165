//! Gradient-boosted trees, trained: histogram splits, complete trees of fixed depth, quantile or squared loss.
//!
//! Deterministic: one seed, no threads inside. Leaf values under the quantile loss are the quantile of the
//! residuals in the leaf, as the absolute loss wants them, not a gradient step.

use preflop_core::time::trees::{Features, Forest, MAX_FEATURES};

/// What a forest aims at, with r = target - prediction in natural log.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loss {
    /// Mean of r squared.
    Squared,
    /// A quantile of r (0.5 = median).
    Quantile(f32),
    /// Mean of |exp(-r) - 1|, the relative error that users read: too long costs more than too short.
    Relative,
}

impl Loss {
    fn gradient(self, r: f32) -> f32 {
        match self {
            Self::Squared => r,
            Self::Quantile(q) => {
                if r > 0.0 {
                    q
                } else {
                    q - 1.0
                }
            }
            Self::Relative => 0.5 * if r > 0.0 { weight_of(r) } else { -weight_of(r) },
        }
    }

    /// The value that minimises the loss over a leaf's residuals.
    fn centre(self, r: &mut [f32], weight: impl Fn(usize) -> f32) -> f32 {
        match self {
            Self::Squared => {
                let w: f32 = (0..r.len()).map(&weight).sum();
                r.iter().enumerate().map(|(i, r)| r * weight(i)).sum::<f32>() / (w + 1.0)
            }
            Self::Quantile(q) => quantile(r, q),
            Self::Relative => {
                // |exp(v - r) - 1| = exp(-r) |exp(v) - exp(r)|: a median with weights exp(-r).
                let mut rows: Vec<(f32, f32)> =
                    r.iter().enumerate().map(|(i, r)| (*r, weight_of(*r) * weight(i))).collect();
                rows.sort_by(|a, b| a.0.total_cmp(&b.0));
                let total: f32 = rows.iter().map(|(_, w)| w).sum();
                let mut seen = 0.0;
                for (v, w) in rows {
                    seen += w;
                    if seen >= 0.5 * total {
                        return v;
                    }
                }
                0.0
            }
        }
    }
}

/// `exp(-r)`, bounded so that no single row leads a leaf.
fn weight_of(r: f32) -> f32 {
    (-r).clamp(-2.0, 2.0).exp()
}

/// How to train.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub trees: usize,
    pub depth: usize,
    pub rate: f32,
    pub loss: Loss,
    /// Loss of every second bag.
    pub second: Loss,
    pub min_leaf: usize,
    pub row_fraction: f32,
    pub feature_fraction: f32,
    pub seed: u64,
    /// Forests to average.
    pub bags: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            trees: 300,
            depth: 5,
            rate: 0.08,
            loss: Loss::Quantile(0.5),
            second: Loss::Squared,
            min_leaf: 8,
            row_fraction: 0.8,
            feature_fraction: 0.5,
            seed: 1,
            bags: 2,
        }
    }
}

/// A small deterministic generator (splitmix64).
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }
}

const BINS: usize = 255;

pub struct Binned {
    /// Bin of each row, feature after feature.
    pub bins: Vec<Vec<u8>>,
    /// Upper edge of each bin.
    pub edges: Vec<Vec<f32>>,
}

/// Sorts every feature into at most 255 bins.
pub fn bin(rows: &[Features], features: usize) -> Binned {
    let mut bins = Vec::with_capacity(features);
    let mut edges = Vec::with_capacity(features);
    for f in 0..features {
        let mut values: Vec<f32> = rows.iter().map(|r| r[f]).collect();
        values.sort_by(f32::total_cmp);
        values.dedup();
        let cuts: Vec<f32> = if values.len() <= BINS {
            values.windows(2).map(|w| 0.5 * (w[0] + w[1])).collect()
        } else {
            // Quantiles of the rows, so that dense regions get more cuts.
            let mut all: Vec<f32> = rows.iter().map(|r| r[f]).collect();
            all.sort_by(f32::total_cmp);
            let mut c: Vec<f32> = (1..BINS)
                .map(|i| {
                    // Midway to the next value, so that rounding the cut moves no row across it.
                    let at = all[i * all.len() / BINS];
                    let next = values.partition_point(|v| *v <= at);
                    values.get(next).map_or(at, |v| 0.5 * (at + v))
                })
                .collect();
            c.dedup();
            c
        };
        bins.push(rows.iter().map(|r| cuts.partition_point(|c| r[f] > *c) as u8).collect());
        edges.push(cuts);
    }
    Binned { bins, edges }
}

fn quantile(values: &mut [f32], q: f32) -> f32 {
    if values.is_empty() {
        return 0.0;
    }
    let at = ((values.len() - 1) as f32 * q) as usize;
    let (_, v, _) = values.select_nth_unstable_by(at, f32::total_cmp);
    *v
}

/// Trains a forest for `target` on the first `features` places of each row.
pub fn train(
    rows: &[Features],
    target: &[f32],
    weight: Option<&[f32]>,
    features: usize,
    s: &Settings,
) -> Forest {
    assert!(features <= MAX_FEATURES);
    let n = rows.len();
    let data = bin(rows, features);
    let mut sorted = target.to_vec();
    let base = s.loss.centre(&mut sorted, |_| 1.0);
    sorted.sort_by(f32::total_cmp);
    let (low, high) = if n == 0 { (0.0, 0.0) } else { (sorted[n / 200], sorted[n - 1 - n / 200]) };
    let mut forest = Forest::new(s.depth, base, low, high);
    let mut random = Random(s.seed);
    let mut prediction = vec![base; n];
    let inner = (1usize << s.depth) - 1;
    for _ in 0..s.trees {
        let picked: Vec<u32> = (0..n as u32).filter(|_| random.unit() < s.row_fraction).collect();
        // The first feature names the operator and is always offered.
        let columns: Vec<usize> =
            (0..features).filter(|f| random.unit() < s.feature_fraction || *f == 0).collect();
        let gradient: Vec<f32> = (0..n)
            .map(|i| {
                let g = s.loss.gradient(target[i] - prediction[i]);
                g * weight.map_or(1.0, |w| w[i])
            })
            .collect();
        let mut nodes = vec![(0u16, f32::INFINITY); inner];
        let mut node_bins = vec![255u8; inner];
        // Rows of each node of the level.
        let mut level: Vec<Vec<u32>> = vec![picked];
        for depth in 0..s.depth {
            let mut next = Vec::with_capacity(level.len() * 2);
            for (j, members) in level.iter().enumerate() {
                let at = (1 << depth) - 1 + j;
                if let Some((f, b)) = best_split(&data, &gradient, weight, members, &columns, s.min_leaf) {
                    nodes[at] = (f as u16, data.edges[f][b as usize]);
                    node_bins[at] = b;
                    let (left, right): (Vec<u32>, Vec<u32>) =
                        members.iter().partition(|&&i| data.bins[f][i as usize] <= b);
                    next.push(left);
                    next.push(right);
                } else {
                    next.push(members.clone());
                    next.push(Vec::new());
                }
            }
            level = next;
        }
        // Leaf values from the picked rows.
        let leaves: Vec<f32> = level
            .iter()
            .map(|members| {
                let mut r: Vec<f32> =
                    members.iter().map(|&i| target[i as usize] - prediction[i as usize]).collect();
                let value = s.loss.centre(&mut r, |j| weight.map_or(1.0, |w| w[members[j] as usize]));
                value * s.rate
            })
            .collect();
        for (i, p) in prediction.iter_mut().enumerate() {
            let mut k = 0;
            while k < inner {
                let f = nodes[k].0 as usize;
                k = 2 * k + 1 + usize::from(node_bins[k] != 255 && data.bins[f][i] > node_bins[k]);
            }
            *p += leaves[k - inner];
        }
        forest.push(&nodes, &leaves);
    }
    forest
}

fn best_split(
    data: &Binned,
    gradient: &[f32],
    weight: Option<&[f32]>,
    members: &[u32],
    columns: &[usize],
    min_leaf: usize,
) -> Option<(usize, u8)> {
    if members.len() < 2 * min_leaf {
        return None;
    }
    let total: f64 = members.iter().map(|&i| f64::from(gradient[i as usize])).sum();
    let mass = |i: usize| weight.map_or(1.0, |w| w[i]);
    let total_w: f64 = members.iter().map(|&i| f64::from(mass(i as usize))).sum();
    let mut best = (1e-9, None);
    let mut sum = [0f32; BINS + 1];
    let mut count = [0u32; BINS + 1];
    let mut wsum = [0f32; BINS + 1];
    for &f in columns {
        let cuts = data.edges[f].len();
        if cuts == 0 {
            continue;
        }
        sum[..=cuts].fill(0.0);
        count[..=cuts].fill(0);
        wsum[..=cuts].fill(0.0);
        let column = &data.bins[f];
        for &i in members {
            let b = column[i as usize] as usize;
            sum[b] += gradient[i as usize];
            count[b] += 1;
            wsum[b] += mass(i as usize);
        }
        let (mut g, mut c, mut w) = (0f64, 0usize, 0f64);
        for b in 0..cuts {
            g += f64::from(sum[b]);
            c += count[b] as usize;
            w += f64::from(wsum[b]);
            if c < min_leaf {
                continue;
            }
            if members.len() - c < min_leaf {
                break;
            }
            let gain = g * g / (w + 1.0) + (total - g) * (total - g) / (total_w - w + 1.0)
                - total * total / (total_w + 1.0);
            if gain > best.0 {
                best = (gain, Some((f, b as u8)));
            }
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learns_a_step_and_a_slope() {
        let mut random = Random(7);
        let rows: Vec<Features> = (0..2000)
            .map(|_| {
                let mut x = [0.0; MAX_FEATURES];
                x[0] = random.unit();
                x[1] = random.unit();
                x
            })
            .collect();
        let truth = |x: &Features| if x[0] > 0.5 { 0.4 } else { -0.2 } + 0.5 * x[1];
        let y: Vec<f32> = rows.iter().map(truth).collect();
        let forest =
            train(&rows, &y, None, 2, &Settings { trees: 200, feature_fraction: 1.0, ..Settings::default() });
        let error: f32 = rows.iter().map(|x| (forest.predict(x) - truth(x)).abs()).sum::<f32>() / 2000.0;
        assert!(error < 0.02, "mean error {error}");
        let again =
            train(&rows, &y, None, 2, &Settings { trees: 200, feature_fraction: 1.0, ..Settings::default() });
        assert_eq!(forest.to_bytes(), again.to_bytes());
    }
}
