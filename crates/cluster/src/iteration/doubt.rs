//! How sure an iteration is: errors of compute, links and host, and what no measurement checks.

use super::terms::{Breakdown, Uses};
use super::{Setting, ShardCosts};
use crate::interval::LogInterval;
use crate::rank::Busy;
use crate::strategy::Strategy;
use preflop_core::Gpu;
use preflop_core::gpu::Architecture;
use preflop_core::units::math::Elementary as _;

/// GPUs beyond which runs are known to lose to stragglers, and how much per doubling at most.
const STRAGGLER_FROM: f64 = 2000.0;
const STRAGGLER_PER_DOUBLING: f64 = 0.03;
/// 90 % of whole iterations of models that were left out of the host's constants lie so far, in logs, from the prediction
/// (448 runs on one node, `preflop validate --parallel`). Errors of operators are systematic by shape and do not cancel.
const COMPUTE_INTERVAL: f64 = 0.155;
/// The same on generations of which few whole runs are published: 6 on an H100, 17 on GB200, whose widths these are.
const COMPUTE_INTERVAL_HOPPER: f64 = 0.34;
const COMPUTE_INTERVAL_OTHER: f64 = 0.45;

fn compute_interval(gpu: &Gpu) -> LogInterval {
    let side = match gpu.architecture {
        Architecture::Ampere => COMPUTE_INTERVAL,
        Architecture::Hopper => COMPUTE_INTERVAL_HOPPER,
        _ => COMPUTE_INTERVAL_OTHER,
    };
    LogInterval { low: -side, high: side }
}

/// Log error, either way, that each part of a strategy without measurements adds: vendors' own runs of one mixture of experts on one machine
/// lie a factor of 1.7 apart from release to release.
const UNMEASURED: f64 = 0.3;

impl Setting<'_> {
    /// The interval of the whole: errors of compute, links and host are independent of each other.
    pub(super) fn interval(
        &self,
        s: &Strategy,
        costs: &ShardCosts,
        b: &Breakdown,
        uses: &Uses,
    ) -> LogInterval {
        // What the time model itself doubts more than that (a GPU or format nobody measured) stays doubted.
        let both = Busy {
            time: costs.forward.time + costs.backward.time,
            low: costs.forward.low + costs.backward.low,
            high: costs.forward.high + costs.backward.high,
            ..Busy::default()
        };
        let own = both.interval();
        let known = compute_interval(&self.cluster.node.gpu);
        let compute = LogInterval { low: own.low.min(known.low), high: own.high.max(known.high) };
        let links = uses.interval();
        let host = LogInterval { low: -0.2, high: 0.2 };
        let exposed = b.tp_exposed + b.cp_exposed + b.ep_exposed + b.dp_exposed + b.pp_transfer;
        let mut all = LogInterval::joined(&[
            (b.compute + b.recompute + b.pp_bubble + b.optimizer, compute),
            (exposed, links),
            (b.host_exposed, host),
        ]);
        let doubt = s.unmeasured().len() as f64 * UNMEASURED * UNMEASURED;
        if doubt > 0.0 {
            let wider = |side: f64| (side * side + doubt).sqrt();
            all = LogInterval { low: -wider(all.low), high: wider(all.high) };
        }
        let gpus = s.gpus() as f64;
        if gpus > STRAGGLER_FROM {
            all.high += STRAGGLER_PER_DOUBLING * (gpus / STRAGGLER_FROM).binary_log();
        }
        all
    }
}
