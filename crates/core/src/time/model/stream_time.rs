//! Memory-bound operators: the form that the correction starts from, and what kernels without vector loads take at least.

use super::{Bound, Draft, TimeModel};
use crate::gpu::Gpu;
use crate::kernels::{linear, stream};
use crate::ops::{Op, OpCall, SpatialKind};

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
