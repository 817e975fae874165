//! How sure an iteration is: errors of compute, links and host, and what no measurement checks.

use super::terms::{Breakdown, Uses};
use super::{Setting, ShardCosts};
use crate::interval::LogInterval;
use crate::model::Stack;
use crate::rank::Busy;
use crate::strategy::Strategy;
use preflop_core::Gpu;
use preflop_core::gpu::Architecture;
use preflop_core::units::math::Elementary as _;

/// GPUs beyond which runs are known to lose to stragglers, and how much per doubling at most.
const STRAGGLER_FROM: f64 = 2000.0;
const STRAGGLER_PER_DOUBLING: f64 = 0.03;
/// Sides of the interval of a whole iteration, in logs, by kind of evidence: nine tenths of the published runs of the kind lie so near their
/// prediction, each model on a machine counting once (`LogInterval::either_way_by`). `preflop validate --parallel` makes them again, and shows
/// what they hold where the model is left out.
///
/// The stack and generation whose runs the host's constants were fitted on (with the model left out): Megatron on Ampere, 467 runs of 11 models.
const FITTED_SIDE: f64 = 0.13;
/// Any other stack or generation, of which nothing was fitted: 101 runs of 12 models on A100 (2023's kernels), H100 and GB200.
const ELSEWHERE_SIDE: f64 = 0.30;

/// Errors of operators are part of those of whole runs: only where nothing was fitted may the time model doubt more (`own`, over the share of
/// compute), as of a GPU or format that nobody measured.
fn whole_run(s: &Strategy, gpu: &Gpu, own: LogInterval) -> LogInterval {
    if s.stack == Stack::Megatron && gpu.architecture == Architecture::Ampere {
        return LogInterval { low: -FITTED_SIDE, high: FITTED_SIDE };
    }
    LogInterval { low: own.low.min(-ELSEWHERE_SIDE), high: own.high.max(ELSEWHERE_SIDE) }
}

/// Log error, either way, that each part of a strategy without measurements adds: vendors' own runs of one mixture of experts on one machine
/// lie a factor of 1.7 apart from release to release.
const UNMEASURED: f64 = 0.3;

/// Log error, either way, of all parts of a strategy without measurements.
pub fn unmeasured(s: &Strategy) -> f64 {
    UNMEASURED * (s.unmeasured().len() as f64).sqrt()
}

impl Setting<'_> {
    /// The interval of the whole: that of its kind of evidence, and beside it what links add, which are of other fabrics than those of the runs.
    pub(super) fn interval(
        &self,
        s: &Strategy,
        costs: &ShardCosts,
        b: &Breakdown,
        uses: &Uses,
    ) -> LogInterval {
        let both = Busy {
            time: costs.forward.time + costs.backward.time,
            low: costs.forward.low + costs.backward.low,
            high: costs.forward.high + costs.backward.high,
            ..Busy::default()
        };
        let own = both.interval();
        let total = b.total().max(f64::MIN_POSITIVE);
        let compute = (b.compute + b.recompute + b.pp_bubble + b.optimizer) / total;
        let exposed = (b.tp_exposed + b.cp_exposed + b.ep_exposed + b.dp_exposed + b.pp_transfer) / total;
        let links = uses.interval();
        let own = LogInterval { low: own.low * compute, high: own.high * compute };
        let whole = whole_run(s, &self.cluster.node.gpu, own);
        let mut all = LogInterval {
            low: -whole.low.hypotenuse(exposed * links.low),
            high: whole.high.hypotenuse(exposed * links.high),
        };
        all = all.wider_by(unmeasured(s));
        let gpus = s.gpus() as f64;
        if gpus > STRAGGLER_FROM {
            all.high += STRAGGLER_PER_DOUBLING * (gpus / STRAGGLER_FROM).binary_log();
        }
        all
    }
}
