//! From operators to the time of one iteration: kernels, streams that overlap, and the host.
//!
//! ```text
//! gpu       = gpu_wall + g launches
//! iteration = (gpu^p + host^p)^(1/p) + t0
//! ```
//!
//! Where `gpu_wall` is the time during which the GPU works: the sum of the kernel times, less what runs side by
//! side on several streams, and `g` the pause between two kernels of one stream. The GPU and the host work at the same
//! time; the p-norm rounds the corner between the two bounds, as their fluctuations do. The host is in [`crate::host`]. Constants: `data/fitted`, from
//! whole iterations on an H200's host.
//!
//! Finer host models (own costs of convolutions, products, norms, attention, casts, optimizer) do not predict models that
//! were left out any better: equal host-bound iterations differ by 15 % from run to run.

use super::power;
use super::spread::Parts;
use crate::host::HostModel;
use foldhash::fast::FixedState;
use preflop_gpu::Gpu;
use preflop_graph::{Iteration, Phase};
use preflop_ops::{ElementwiseKind, Op, OpCall};
use preflop_time::{Bound, Nearness, OpPrediction, TimeModel};
use preflop_units::{Bytes, Flops, Seconds};
use std::collections::HashMap;

/// Seconds between two kernels of a replayed CUDA graph: iteration less busy time of 12 replayed networks on an H200 is -0.3 to
/// 0.46 us a kernel.
const GRAPH_GAP: f64 = 0.25e-6;
/// As [`GRAPH_GAP`] after a kernel that ends before the next one is ready: 18 replayed decode steps, nine tenths of whose kernels are so
/// short, pause for 0.62 us a kernel in the mean (0.33 to 0.83); 52 steps of 13 models on another day for 0.56 in the median.
const SHORT_GRAPH_GAP: f64 = 0.62e-6;
/// Part of these pauses by which they may be shorter or longer.
const GRAPH_GAP_UNSURE: f64 = 0.5;
/// Seconds up to which a kernel is short in that sense.
const SHORT_KERNEL: f64 = 4e-6;

/// One operator of an iteration with its prediction (for a single call).
#[derive(Debug, Clone, PartialEq)]
pub struct StepPrediction {
    /// Index into the iteration's steps.
    pub step: usize,
    /// Number of its call: equal calls have one.
    pub call: usize,
    /// Calls.
    pub count: f64,
    /// One call.
    pub one: OpPrediction,
    /// Sum of kernel times over time on the GPU: above 1 where a call uses several streams.
    pub streams: f64,
}

/// What we say about an iteration.
#[derive(Debug, Clone, PartialEq)]
pub struct IterationPrediction {
    /// What a user's clock shows.
    pub time: Seconds,
    /// Lower end of the 90 % interval.
    pub low: Seconds,
    /// Upper end of the 90 % interval.
    pub high: Seconds,
    /// What the interval rests on: how near measurements are to the GPU.
    pub evidence: Nearness,
    /// Sum of kernel times.
    pub gpu_busy: Seconds,
    /// 90 % of measurements of it should lie between this
    pub gpu_busy_low: Seconds,
    /// and this.
    pub gpu_busy_high: Seconds,
    /// Time during which the GPU works.
    pub gpu_wall: Seconds,
    /// Host time.
    pub host: Seconds,
    /// What binds the iteration.
    pub bound: Bound,
    /// Useful FLOPs.
    pub flops: Flops,
    /// Bytes to and from DRAM.
    pub dram: Bytes,
    /// Kernels launched.
    pub launches: f64,
    /// Every step.
    pub steps: Vec<StepPrediction>,
}

/// Time of a call within an iteration over its time with inputs from DRAM.
///
/// An elementwise kernel finds in the L2 what the kernel before it has written, as far as that is not too large. Ratios of
/// profiled kernels (rectifiers, sums, GELU, dropout, 800 groups on an H200) to the times of single calls, by traffic over L2: 0.8 to
/// 0.4, 0.83 at 0.6, 0.88 at 1.2, 0.93 at 1.6, 0.97 at 3. Casts read parameters, 16-bit functions with much arithmetic
/// gain nothing, and neither do kernels that compute offsets.
fn warmth(call: &OpCall, phase: Phase, gpu: &Gpu) -> f64 {
    const GAIN: f64 = 0.2;
    const HALF_AT: f64 = 1.33;
    const MUCH_ARITHMETIC: f64 = 5.0;
    match &call.op {
        Op::Elementwise(e) if phase != Phase::Optimizer => {
            let offsets = matches!(e.kind, ElementwiseKind::AddBias | ElementwiseKind::MulVector)
                || e.kind.plain().is_some();
            let cold = offsets || matches!(e.kind, ElementwiseKind::Cast | ElementwiseKind::Fill);
            if cold || call.dtype.is_half() && e.kind.arity().2 >= MUCH_ARITHMETIC {
                return 1.0;
            }
            let share = call.traffic().total() / gpu.l2_size / HALF_AT;
            1.0 - GAIN / (1.0 + share * share)
        }
        _ => 1.0,
    }
}

/// Launches of a call as the host's constants count them.
///
/// A convolution that runs group by group repeats a launch with nothing in between: 3,000 launches of ResNeXt in fp32 take
/// no more than 35 ms, of which 700 ordinary ones and the operators take 25 ms; so 0.4 of an ordinary launch.
fn host_launches(call: &OpCall, launches: f64) -> f64 {
    match &call.op {
        Op::Conv(c) if c.groups > 1 && launches >= c.groups as f64 => 1.0 + 0.4 * (launches - 1.0),
        _ => launches,
    }
}

/// An operator that stands in for an unmeasured kernel may take so many times as long, or as much less: what is said of operators without measurements.
const STAND_IN: f64 = 2.0;

/// Predictions of single calls by one model on one GPU, kept for further iterations there: ways to run a network have most calls in common.
#[derive(Debug, Clone, Default)]
pub struct Known {
    calls: HashMap<OpCall, OpPrediction, FixedState>,
}

impl Known {
    /// The predictions of these calls; those that are not known are predicted together.
    fn of(&mut self, model: &TimeModel, calls: &[&OpCall], gpu: &Gpu) -> Vec<OpPrediction> {
        let mut found: Vec<Option<OpPrediction>> =
            calls.iter().map(|call| self.calls.get(*call).copied()).collect();
        let missing = calls.iter().zip(&found).filter(|(_, one)| one.is_none());
        let new: Vec<&OpCall> = missing.map(|(call, _)| *call).collect();
        let mut predicted = model.predict_many(&new, gpu).into_iter();
        for (one, call) in found.iter_mut().zip(calls).filter(|(one, _)| one.is_none()) {
            *one = predicted.next();
            self.calls.extend(one.map(|one| ((*call).clone(), one)));
        }
        found.into_iter().flatten().collect()
    }
}

/// Iterations from a model of operators.
pub trait Schedule {
    /// The host whose constants ship with the tool, as machines with such a GPU have it.
    fn host_model(&self, gpu: &Gpu) -> HostModel;

    /// Predicts an iteration with a given host.
    fn predict_iteration_on(&self, iteration: &Iteration, gpu: &Gpu, host: &HostModel)
    -> IterationPrediction;

    /// Predicts one of several iterations on one GPU, to the same bits.
    fn predict_iteration_with(
        &self,
        iteration: &Iteration,
        gpu: &Gpu,
        known: &mut Known,
    ) -> IterationPrediction;

    /// Predicts an iteration.
    fn predict_iteration(&self, iteration: &Iteration, gpu: &Gpu) -> IterationPrediction {
        self.predict_iteration_on(iteration, gpu, &self.host_model(gpu))
    }
}

impl Schedule for TimeModel {
    fn host_model(&self, gpu: &Gpu) -> HostModel {
        let constants = self.fitted().form("host").and_then(HostModel::from_slice);
        constants.unwrap_or(HostModel::START).in_real_jobs(self.host_factor(), gpu)
    }

    fn predict_iteration_on(
        &self,
        iteration: &Iteration,
        gpu: &Gpu,
        host: &HostModel,
    ) -> IterationPrediction {
        scheduled(self, iteration, gpu, host, None)
    }

    fn predict_iteration_with(
        &self,
        iteration: &Iteration,
        gpu: &Gpu,
        known: &mut Known,
    ) -> IterationPrediction {
        scheduled(self, iteration, gpu, &self.host_model(gpu), Some(known))
    }
}

fn scheduled(
    model: &TimeModel,
    iteration: &Iteration,
    gpu: &Gpu,
    host: &HostModel,
    known: Option<&mut Known>,
) -> IterationPrediction {
    // Equal calls are predicted once, and all together.
    let mut places: HashMap<&OpCall, usize, FixedState> = HashMap::default();
    let mut calls: Vec<&OpCall> = Vec::new();
    let place_of: Vec<usize> = iteration
        .steps
        .iter()
        .map(|s| {
            *places.entry(&s.call).or_insert_with(|| {
                calls.push(&s.call);
                calls.len() - 1
            })
        })
        .collect();
    let ours: Vec<OpCall>;
    if !gpu.runs_all() {
        ours = calls.iter().map(|c| c.in_format(gpu.runs_in(c.dtype))).collect();
        calls = ours.iter().collect();
    }
    let mut known = match known {
        Some(known) => known.of(model, &calls, gpu),
        None => model.predict_many(&calls, gpu),
    };
    if iteration.autotuned {
        for (call, one) in calls.iter().zip(&mut known) {
            *one = model.autotuned(call, gpu, *one);
        }
    }
    let mut out = IterationPrediction {
        time: Seconds::ZERO,
        low: Seconds::ZERO,
        high: Seconds::ZERO,
        evidence: model.nearness(gpu),
        gpu_busy: Seconds::ZERO,
        gpu_busy_low: Seconds::ZERO,
        gpu_busy_high: Seconds::ZERO,
        gpu_wall: Seconds::ZERO,
        host: Seconds::ZERO,
        bound: Bound::Latency,
        flops: Flops::ZERO,
        dram: Bytes::ZERO,
        launches: 0.0,
        steps: Vec::with_capacity(iteration.steps.len()),
    };
    let mut replay_pauses = 0.0;
    let mut by_bound = [0.0f64; 5];
    let mut in_line = 0.0;
    let mut launched = 0.0;
    for (step, (s, place)) in iteration.steps.iter().zip(place_of).enumerate() {
        let (call, mut one) = (calls[place], known[place]);
        let warmth = warmth(call, s.phase, gpu);
        one.time = one.time * warmth;
        one.low = one.low * warmth;
        one.high = one.high * warmth;
        // What stands in for another kernel is no better known than what nobody measured.
        let unmeasured = iteration.stand_ins.has(s);
        if unmeasured {
            one.low = one.low.min(one.time * (1.0 / STAND_IN));
            one.high = one.high.max(one.time * STAND_IN);
        }
        let count = f64::from(s.count);
        let streams = one.abreast;
        out.gpu_wall += one.time * count;
        out.gpu_busy += one.time * (count * streams);
        out.flops += one.flops * count;
        out.dram += one.dram * count;
        out.launches += one.launches * count;
        if streams <= 1.0 {
            in_line += one.launches * count;
            let short = one.time.0 < SHORT_KERNEL * one.launches;
            let gap = if short { SHORT_GRAPH_GAP } else { GRAPH_GAP };
            replay_pauses += gap * one.launches * count;
        }
        launched += host_launches(call, one.launches) * count;
        by_bound[one.bound as usize] += one.time.0 * count;
        out.steps.push(StepPrediction { step, call: place, count, one, streams });
    }
    // A replayed graph is one launch of the host, and its kernels follow each other without it.
    let replayed = iteration.replayed;
    out.host = if replayed { host.replay() } else { host.time(&iteration.host, launched) };
    let pauses = if replayed { Seconds(replay_pauses) } else { host.pauses(in_line) };
    // The laws of the operators hold for calls as short as they were measured; a long run also has to keep within the board's power.
    if out.evidence != Nearness::Elsewhere {
        power::keep_within(iteration, &mut out, gpu);
    }
    let lead = if replayed { Seconds::ZERO } else { Seconds(iteration.host.lead_s) };
    out.time = host.join(out.gpu_wall + pauses, out.host) + lead;
    let gpu_bound =
        by_bound.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(Bound::Latency, |(i, _)| {
            [Bound::Compute, Bound::Dram, Bound::L2, Bound::Latency, Bound::Host][i]
        });
    out.bound = if out.host > out.gpu_wall { Bound::Host } else { gpu_bound };
    let [least, most] = Parts::of(iteration, &out.steps).factors(out.evidence, gpu.vendor);
    let [host_least, host_most] = host.spread(iteration).map(|factor| out.host * factor);
    out.gpu_busy_low = out.gpu_busy * least;
    out.gpu_busy_high = out.gpu_busy * most;
    // Where nothing but pauses stands between the kernels, what is not known of them counts.
    let unsure = if replayed { pauses * GRAPH_GAP_UNSURE } else { Seconds::ZERO };
    let [gpu_least, gpu_most] =
        [out.gpu_wall * least + pauses - unsure, out.gpu_wall * most + pauses + unsure];
    out.low = (host.join(gpu_least, host_least) + lead).min(out.time);
    out.high = (host.join(gpu_most, host_most) + lead).max(out.time);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_just_written_is_in_the_l2() {
        use preflop_ops::Elementwise;
        use preflop_units::dtype::Dtype;
        let gpu = preflop_gpu::catalog::find("h200").unwrap();
        let call = |kind, n| OpCall::fwd(Op::Elementwise(Elementwise { kind, n }), Dtype::Fp32);
        assert!(warmth(&call(ElementwiseKind::Relu, 1 << 16), Phase::Forward, &gpu) < 0.801);
        assert!(warmth(&call(ElementwiseKind::Relu, 1 << 28), Phase::Forward, &gpu) > 0.99);
        for (kind, phase) in [
            (ElementwiseKind::Cast, Phase::Forward),
            (ElementwiseKind::AddStrided, Phase::Backward),
            (ElementwiseKind::Add, Phase::Optimizer),
        ] {
            assert!((warmth(&call(kind, 1 << 16), phase, &gpu) - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn what_stands_in_for_an_unmeasured_kernel_widens_the_interval() {
        use preflop_graph::{StandIns, Step};
        use preflop_ops::Elementwise;
        use preflop_units::dtype::Dtype;
        let (model, gpu) = (TimeModel::embedded(), preflop_gpu::catalog::find("h200").unwrap());
        let step = |kind, phase| Step {
            name: String::new(),
            phase,
            call: OpCall::fwd(Op::Elementwise(Elementwise { kind, n: 1 << 28 }), Dtype::Bf16),
            count: 1,
        };
        let steps = vec![
            step(ElementwiseKind::Copy, Phase::Forward),
            step(ElementwiseKind::Add, Phase::Forward),
            step(ElementwiseKind::Add, Phase::Optimizer),
        ];
        let asked = |stand_ins| {
            let iteration = Iteration { steps: steps.clone(), stand_ins, ..Iteration::default() };
            model.predict_iteration(&iteration, &gpu)
        };
        let known = asked(StandIns::default());
        for stand_ins in
            [StandIns { optimizer: true, copies: false }, StandIns { optimizer: false, copies: true }]
        {
            let wider = asked(stand_ins);
            assert_eq!((wider.time, wider.gpu_busy), (known.time, known.gpu_busy));
            assert!(wider.low < known.low * 0.95 && wider.high > known.high * 1.05, "{wider:?}");
            let doubled = wider.steps.iter().filter(|s| s.one.high >= s.one.time * STAND_IN).count();
            assert_eq!(doubled, 1);
        }
    }

    #[test]
    fn what_is_known_of_another_iteration_changes_nothing() {
        use preflop_graph::Step;
        use preflop_ops::{Conv, Elementwise};
        use preflop_units::dtype::Dtype;
        let (model, gpu) = (TimeModel::embedded(), preflop_gpu::catalog::find("h200").unwrap());
        let step = |batch, op: fn(u64) -> Op| Step {
            name: String::new(),
            phase: Phase::Forward,
            call: OpCall::fwd(op(batch), Dtype::Tf32),
            count: 2,
        };
        let conv = |batch| Op::Conv(Conv::square(batch, 64, 56, 64, 3, 1, 1));
        let relu = |n| Op::Elementwise(Elementwise { kind: ElementwiseKind::Relu, n: n << 16 });
        let mut known = Known::default();
        for autotuned in [false, true] {
            for batches in [[1, 2], [2, 3], [1, 2]] {
                let steps = batches.into_iter().flat_map(|b| [step(b, conv), step(b, relu)]).collect();
                let iteration = Iteration { steps, autotuned, samples: 1, ..Iteration::default() };
                let alone = model.predict_iteration(&iteration, &gpu);
                assert_eq!(model.predict_iteration_with(&iteration, &gpu, &mut known), alone);
            }
        }
        assert_eq!(known.calls.len(), 6, "every call is predicted once");
    }
}
