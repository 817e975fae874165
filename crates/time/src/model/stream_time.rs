//! Memory-bound operators: bound by DRAM or by the SMs, and which of the two on a GPU that was not measured.
//!
//! On one GPU the two cannot be told apart, so its fit has the SMs' work in shares of its bandwidth. But other GPUs have a third to
//! a half of an H200's bytes per SM and clock: what the SMs limit there, DRAM limits here. With `t` the time on the measured GPU,
//!
//! ```text
//! sm   = (t - 2 us) * issue/issue'        where t - 2 us > 1.12 * bytes/DRAM, else half of it;  issue = SMs * usual clock
//! dram = bytes/DRAM'
//! A    = floor' * kernels + (sm^4 + dram^4)^(1/4)
//! time = t * (A'/A)^s * (form'/form)^(1 - s)
//! ```
//!
//! Where primes are of the GPU that is asked for. `s` is 1 for operators over feature maps and changes of layout; for those over rows and
//! single elements, whose kernels were seen on six GPUs, it is [`SHARE`].

use super::draft::{Draft, Sketch, Then};
use super::{Bound, TimeModel, plain_as_measured};
use crate::evidence::{Evidence, Library, Nearness};
use crate::fitted::{Fitted, LogInterval};
use preflop_gpu::Gpu;
use preflop_kernels::rows::{Figures, Kernel};
use preflop_kernels::{linear, stream, traffic};
use preflop_ops::{ElementwiseKind, MovementKind, Op, OpCall, Pass, SpatialKind};
use preflop_units::math::Elementary as _;

/// Published softmaxes and layer norms end here: below, their times are the host's.
const SHORTEST_ROWS: f64 = 200e-6;
/// How far rows and single elements follow the rule: against published layer norms and softmaxes on six GPUs, taken whole
/// it goes too far and left out not far enough.
const SHARE: f64 = 0.35;
/// Seconds of a call that are neither DRAM's nor the SMs'.
const START: f64 = 2e-6;
/// Time over that of the bytes above which the SMs must be what binds.
const BEYOND_DRAM: f64 = 1.12;

/// The constants of kernels that work on rows.
pub(super) fn row_figures(fitted: &Fitted) -> [Figures; 3] {
    Kernel::ALL.map(|k| fitted.form(k.key()).and_then(|f| f.try_into().ok()).unwrap_or(k.start()))
}

/// Seconds on a GPU of a call that took `there` seconds on another, by its bytes or by the SMs: A of the module's head.
pub(super) fn bytes_or_sms(there: f64, bytes: f64, kernels: f64, gpu: &Gpu, reference: &Gpu) -> f64 {
    let issue = |g: &Gpu| f64::from(g.sm_count) * g.usual_clock.0;
    let busy = (there - START).max(0.0);
    let bound = busy > BEYOND_DRAM * bytes / reference.dram_sustained.0;
    let sm = busy * if bound { 1.0 } else { 0.5 } * issue(reference) / issue(gpu);
    let dram = bytes / gpu.dram_sustained.0;
    gpu.kernel_floor.0 * kernels + (sm.powi(4) + dram.powi(4)).sqrt().sqrt()
}

/// A memory-bound operator that waits for what was learned.
pub(super) struct Stream<'a> {
    /// The GPU of the measurements, if it is another.
    reference: Option<&'a Gpu>,
    /// Compulsory bytes.
    bytes: f64,
    /// How far the rule is followed.
    share: f64,
    /// Seconds by the form of published rows, and how far they know such calls.
    rows: Option<(f64, f64)>,
    /// No call takes less.
    least: f64,
}

impl Stream<'_> {
    /// The draft with what was learned on the measured GPU.
    pub fn finished(self, mut draft: Draft, learned: f64, gpu: &Gpu) -> Draft {
        draft.correction = learned;
        if let Some(reference) = self.reference {
            let there = draft.there();
            let by_rule = |g: &Gpu| bytes_or_sms(there, self.bytes, draft.launches, g, reference);
            let rule = (by_rule(gpu) / by_rule(reference)).power(self.share);
            let mut seconds = there * rule * (draft.reference / draft.at).power(1.0 - self.share);
            // Where published rows know the kernel, their form takes over as far as the call is as long as they are.
            if let Some((time, known)) = self.rows {
                seconds = seconds.power(1.0 - known) * time.power(known);
            }
            draft.reference = seconds / learned.exponential();
        }
        let time = draft.seconds();
        let streaming = self.bytes / gpu.dram_sustained.0;
        draft.bound = if streaming > 0.5 * time { Bound::Dram } else { Bound::Latency };
        if self.least > time {
            return Draft { reference: self.least, correction: 0.0, bound: Bound::Latency, ..draft };
        }
        draft
    }
}

/// How far a call follows the rule.
fn share(call: &OpCall) -> f64 {
    match &call.op {
        Op::Spatial(_) | Op::Interpolate(_) => 1.0,
        Op::Elementwise(o) if o.kind == ElementwiseKind::AddChannel => 1.0,
        Op::Movement(o) if matches!(o.kind, MovementKind::Cat | MovementKind::CatStrided) => 1.0,
        Op::Movement(o) if matches!(o.kind, MovementKind::Permute | MovementKind::Transpose) => 1.0,
        _ => SHARE,
    }
}

impl TimeModel {
    /// Seconds that the correction of a memory-bound operator starts from.
    fn stream_form(&self, call: &OpCall, gpu: &Gpu) -> f64 {
        let constants = match &call.op {
            Op::Spatial(o) if o.kind == SpatialKind::AdaptiveAvgPool => Some(linear::ADAPTIVE),
            _ => linear::class(call).and_then(|c| self.linear[c]),
        };
        let own = constants.map(|c| linear::form(&c, &linear::terms(call, gpu))).filter(|t| *t > 0.0);
        own.unwrap_or_else(|| stream::form(call, gpu))
    }

    /// Seconds of a call whose kernel published rows know, and how far they know calls of its length.
    fn row_time(&self, call: &OpCall, gpu: &Gpu) -> Option<(f64, f64)> {
        let (kernel, op) = Kernel::of(call).filter(|_| !plain_as_measured(gpu))?;
        let figures = &self.rows[kernel as usize];
        let Evidence { reference, .. } = self.references.nearest(Library::Plain, None, gpu);
        let known = (kernel.time(&op, figures, reference) / SHORTEST_ROWS).min(1.0);
        Some((kernel.time(&op, figures, gpu), known))
    }

    /// A memory-bound operator; kernels without vector loads take their clocks at least.
    pub(super) fn stream<'a>(&'a self, call: &OpCall, gpu: &'a Gpu) -> Sketch<'a> {
        let least = stream::least(call, gpu);
        let whole = stream::plain(call);
        let call = whole.as_ref().unwrap_or(call);
        let family = call.family();
        let Evidence { reference, nearness } = self.references.nearest(Library::Own, None, gpu);
        let at = self.stream_form(call, reference);
        // Adaptive pooling was not among the operators that the forest learned from.
        let forest = match &call.op {
            Op::Spatial(o) if o.kind == SpatialKind::AdaptiveAvgPool => None,
            _ => self.fitted.forest(stream::forest_name(call)),
        };
        let own = match self.streams.get(call.name()) {
            // Nothing is known of its kernels: one pass over its bytes is the least of it.
            None if matches!(call.op, Op::Unmodelled { .. }) => LogInterval { low: -0.7, high: 2.3 },
            Some(both) => both[usize::from(call.pass != Pass::Fwd)],
            None => self.fitted.interval("", family.name()),
        };
        let here = nearness == Nearness::Here;
        let draft = Draft {
            reference: if here { at } else { self.stream_form(call, gpu) },
            at,
            correction: 0.0,
            interval: self.on(own, family, nearness),
            bound: Bound::Latency,
            levels: traffic::streaming(call.traffic(), gpu),
            launches: stream::launches(call),
            abreast: 1.0,
        };
        let then = Then::Streamed(Stream {
            reference: (!here).then_some(reference),
            bytes: call.traffic().total().0,
            share: share(call),
            rows: if here { None } else { self.row_time(call, gpu) },
            least,
        });
        let about = (std::ptr::from_ref(reference).addr(), call);
        let question = self.question(forest, &about, || stream::features(call, reference, at));
        Sketch { draft, question, then }
    }
}
