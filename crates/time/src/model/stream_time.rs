//! Memory-bound operators: the form that the correction starts from, and what kernels without vector loads take at least.

use super::draft::Sketch;
use super::{TimeModel, plain_as_measured};
use crate::fitted::Fitted;
use preflop_gpu::Gpu;
use preflop_kernels::rows::{Figures, Kernel};
use preflop_kernels::{linear, stream};
use preflop_ops::{Op, OpCall, SpatialKind};

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

    /// Seconds of a call whose kernel published rows know.
    pub(super) fn row_time(&self, call: &OpCall, gpu: &Gpu) -> Option<f64> {
        let (kernel, op) = Kernel::of(call).filter(|_| !plain_as_measured(gpu))?;
        Some(kernel.time(&op, &self.rows[kernel as usize], gpu))
    }

    pub(super) fn stream(&self, call: &OpCall, gpu: &Gpu) -> Sketch<'_> {
        let plain = stream::plain(call);
        self.plain_stream(plain.as_ref().unwrap_or(call), stream::least(call, gpu), gpu)
    }
}
