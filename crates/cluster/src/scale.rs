//! Scaling curves: the best plan at every size from one GPU to a hundred thousand.

use crate::collective::Collectives;
use crate::iteration::{Breakdown, Setting};
use crate::model::Transformer;
use crate::plan::{Planned, Space, search};
use crate::rank::OperatorTimes;
use crate::strategy::Strategy;
use crate::{Cluster, Node};
use preflop_core::Dtype;
use preflop_core::units::math::Elementary as _;

/// What grows with the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// Nothing: the same batch on more GPUs.
    Strong,
    /// The batch.
    Weak,
}

/// One size of a curve.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// GPUs.
    pub gpus: u64,
    /// Sequences of an iteration.
    pub global_batch: u64,
    /// The best plan, where any fits.
    pub plan: Option<Planned>,
    /// Throughput of a GPU over that of the smallest size that fits.
    pub efficiency: f64,
    /// The same at the lower and upper end: links and stragglers.
    pub low: f64,
    /// As above.
    pub high: f64,
}

impl Point {
    /// Share of the iteration that a part takes.
    pub fn share(&self, of: impl Fn(&Breakdown) -> f64) -> f64 {
        self.plan.map_or(0.0, |p| of(&p.breakdown) / p.time)
    }
}

/// Sizes from `low` to `high` GPUs that fill nodes: powers of two of a node, and of a GPU below one; and the end itself where it fills nodes.
pub fn sizes(low: u64, high: u64, node: u64) -> Vec<u64> {
    let mut out: Vec<u64> = Vec::new();
    let mut inside = 1;
    while inside < node {
        out.push(inside);
        inside *= 2;
    }
    let mut across = node;
    while across <= high {
        out.push(across);
        match across.checked_mul(2) {
            Some(next) => across = next,
            None => break,
        }
    }
    if high.is_multiple_of(node.max(1)) && !out.contains(&high) {
        out.push(high);
    }
    out.retain(|n| *n >= low && *n <= high);
    out
}

/// What is asked of a curve.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The model.
    pub model: &'a Transformer,
    /// Tokens of a sequence.
    pub seq: u64,
    /// Formats of tensors and products.
    pub dtypes: [Dtype; 2],
    /// The node that is repeated.
    pub node: &'a Node,
    /// Constants of collectives.
    pub collectives: &'a Collectives,
    /// What is searched; its batch is the one of the largest size (strong) or of one GPU (weak).
    pub space: Space,
    /// What grows.
    pub growth: Growth,
    /// Host time.
    pub host: crate::model::Host,
}

/// The curve at these sizes.
pub fn curve(q: &Question<'_>, sizes: &[u64], times: &impl OperatorTimes) -> Vec<Point> {
    let mut first: Option<f64> = None;
    sizes
        .iter()
        .filter_map(|&gpus| {
            let cluster = Cluster::of(q.node.clone(), gpus.div_ceil(q.node.gpus)).with_gpus(gpus).ok()?;
            let setting = Setting {
                model: q.model,
                seq: q.seq,
                dtype: q.dtypes[0],
                product: q.dtypes[1],
                cluster: &cluster,
                collectives: q.collectives,
                contention: None,
                host: q.host,
            };
            let global_batch = match q.growth {
                Growth::Strong => q.space.global_batch,
                Growth::Weak => q.space.global_batch.saturating_mul(gpus),
            };
            let space = Space { global_batch, ..q.space };
            let plan = search(&setting, &space, times).plans.first().copied();
            let rate = plan.map(|p| global_batch as f64 / p.time / gpus as f64);
            if first.is_none() {
                first = rate;
            }
            let efficiency = rate.zip(first).map_or(0.0, |(r, f)| r / f);
            let (low, high) = plan.map_or((0.0, 0.0), |p| ends(&p, efficiency));
            Some(Point { gpus, global_batch, plan, efficiency, low, high })
        })
        .collect()
}

/// Efficiency if exposed links are a quarter better or worse and stragglers cost up to 3 % per doubling beyond 2,000 GPUs.
fn ends(plan: &Planned, efficiency: f64) -> (f64, f64) {
    let b = plan.breakdown;
    let links = (b.tp_exposed + b.cp_exposed + b.ep_exposed + b.dp_exposed + b.pp_transfer) / plan.time;
    let doublings = (plan.gpus as f64 / 2000.0).binary_log().max(0.0);
    let low = efficiency / (1.0 + 0.25 * links + 0.03 * doublings);
    (low, (efficiency / (1.0 - 0.2 * links)).max(efficiency))
}

/// The strategy of a point in short, such as `tp8 pp4 dp32`.
pub fn short(s: &Strategy) -> String {
    let sizes = [("tp", s.tp), ("cp", s.cp), ("pp", s.pp), ("dp", s.dp), ("ep", s.ep), ("v", s.interleave)];
    let mut parts: Vec<String> =
        sizes.iter().filter(|(_, n)| *n > 1).map(|(name, n)| format!("{name}{n}")).collect();
    if s.stage() > 0 {
        parts.push(format!("zero{}", s.stage()));
    }
    if parts.is_empty() {
        return "one GPU".to_string();
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_fill_nodes() {
        assert_eq!(sizes(1, 64, 8), [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(sizes(8, 100, 72), [8, 16, 32, 64, 72]);
        assert_eq!(sizes(16, 16, 8), [16]);
        assert_eq!(sizes(32_768, 100_000, 8), [32_768, 65_536, 100_000]);
        assert!(sizes(1, u64::MAX, 8).len() > 50);
    }
}
