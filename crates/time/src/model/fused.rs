//! Times of fused kernels: their form with its spread, wider where nothing was measured.

use super::{Draft, LogInterval, TimeModel};
use crate::operator::Bound;
use preflop_gpu::Gpu;
use preflop_kernels::{fused, traffic};
use preflop_ops::{Fused, OpCall};

impl TimeModel {
    pub(super) fn fused(f: &Fused, call: &OpCall, gpu: &Gpu) -> Draft {
        let terms = fused::terms(f, gpu);
        let [low, high] = fused::spread(f.form);
        let own = LogInterval { low: low.ln(), high: high.ln() };
        let largest = terms.stream.max(terms.issue);
        Draft {
            reference: terms.time(),
            correction: 0.0,
            interval: if gpu.name == super::MEASURED { own } else { own.sibling() },
            bound: if largest < terms.start {
                Bound::Latency
            } else if terms.stream >= terms.issue {
                Bound::Dram
            } else {
                Bound::Compute
            },
            levels: traffic::streaming(call.traffic(), gpu),
            launches: 1.0,
        }
    }
}
