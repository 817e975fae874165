//! Times of fused kernels: their form with its spread, wider where nothing was measured.

use super::draft::{Draft, Question, Sketch, Then};
use super::{LogInterval, TimeModel};
use crate::evidence::{Evidence, Library};
use crate::operator::Bound;
use preflop_gpu::Gpu;
use preflop_kernels::{fused, traffic};
use preflop_ops::{Fused, OpCall};
use preflop_units::math::Elementary as _;

impl TimeModel {
    pub(super) fn fused<'a>(&'a self, f: &Fused, call: &OpCall, gpu: &'a Gpu) -> Sketch<'a> {
        let terms = fused::terms(f, gpu);
        let [low, high] = fused::spread(f.form);
        let own = LogInterval { low: low.natural_log(), high: high.natural_log() };
        let largest = terms.stream.max(terms.issue);
        let Evidence { reference, nearness } = self.references.nearest(Library::Own, None, gpu);
        let draft = Draft {
            reference: terms.time(),
            at: fused::terms(f, reference).time(),
            correction: 0.0,
            interval: self.on(own, call.family(), nearness),
            bound: if largest < terms.start {
                Bound::Latency
            } else if terms.stream >= terms.issue {
                Bound::Dram
            } else {
                Bound::Compute
            },
            levels: traffic::streaming(call.traffic(), gpu),
            launches: 1.0,
            abreast: 1.0,
        };
        Sketch { draft, question: Question::nobody(), then: Then::trusted(0.0, 1.0) }
    }
}
