//! Memory-bound operators: the form that the correction starts from, and what kernels without vector loads take at least.

use super::{Bound, Draft, TimeModel, plain_as_measured};
use crate::fitted::Fitted;
use preflop_gpu::Gpu;
use preflop_kernels::rows::{Figures, Kernel};
use preflop_kernels::{linear, stream};
use preflop_ops::{Op, OpCall, SpatialKind};

/// Published softmaxes and layer norms end here: below, their times are the host's.
const SHORTEST_ROWS: f64 = 200e-6;

/// The constants of kernels that work on rows.
pub(super) fn row_figures(fitted: &Fitted) -> [Figures; 3] {
    Kernel::ALL.map(|k| fitted.form(k.key()).and_then(|f| f.try_into().ok()).unwrap_or(k.start()))
}

impl TimeModel {
    /// Seconds that the correction of a memory-bound operator starts from.
    pub(super) fn stream_form(&self, call: &OpCall, gpu: &Gpu) -> f64 {
        let constants = match &call.op {
            Op::Spatial(o) if o.kind == SpatialKind::AdaptiveAvgPool => Some(linear::ADAPTIVE),
            _ => linear::class(call).and_then(|c| self.linear[c]),
        };
        let own = constants.map(|c| linear::form(&c, &linear::terms(call, gpu))).filter(|t| *t > 0.0);
        own.unwrap_or_else(|| stream::reference(call, gpu))
    }

    /// The correction of a memory-bound operator: where published rows know its kernel, their form takes over from what
    /// was learned on the H200 as far as the call is as long as they are.
    pub(super) fn row_correction(&self, call: &OpCall, gpu: &Gpu, reference: f64, learned: f64) -> f64 {
        let Some((kernel, op)) = Kernel::of(call).filter(|_| !plain_as_measured(gpu)) else { return learned };
        let time = kernel.time(&op, &self.rows[kernel as usize], gpu);
        let known = (time / SHORTEST_ROWS).min(1.0);
        learned + known * ((time / reference).ln() - learned)
    }

    pub(super) fn stream(&self, call: &OpCall, gpu: &Gpu) -> Draft {
        let plain = stream::plain(call);
        let draft = self.plain_stream(plain.as_ref().unwrap_or(call), gpu);
        let least = stream::least(call, gpu);
        if least > draft.seconds() {
            Draft { reference: least, correction: 0.0, bound: Bound::Latency, ..draft }
        } else {
            draft
        }
    }
}
