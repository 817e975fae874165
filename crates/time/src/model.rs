//! The time model: closed form by kernel class, times a learned and bounded correction, with its interval.

mod expert;
mod form;
mod fused;
mod growth;
mod plain;
mod stream_time;

pub use expert::{Library, plain_as_measured};
pub use form::KernelForm;

use super::conv_table::{ConvContext, ConvForms};
use super::correction::Correction;
use super::fitted::{Fitted, LogInterval, TileKey};
use super::operator::{Bound, OpPrediction};
use expert::Judged;
use preflop_gpu::{Architecture, Gpu, Vendor};
use preflop_kernels::conv::{ConvFamily, Task, dtype_group};
use preflop_kernels::conv_features::{Candidates, candidates_of, finish, shape_features};
use preflop_kernels::plain_conv::Figures;
use preflop_kernels::tile::{Constants, Tiling};
use preflop_kernels::traffic::{self, Levels};
use preflop_kernels::{Machine, attention, conv, gemm, kernels_of, linear, rnn, rows, stream};
use preflop_learned::choice::{Choosers, Guess};
use preflop_learned::trees::Features;
use preflop_ops::{Attention, Conv, Gemm, Op, OpCall, Pass, Rnn, SpatialKind};
use preflop_units::dtype::Dtype;
use preflop_units::{Bytes, Seconds};
use std::collections::HashMap;

/// The GPU whose operators were measured for this project.
const MEASURED: &str = "h200";
/// Its sustained DRAM bandwidth, and its SMs times clock: what its corrections were learned at.
const MEASURED_DRAM: f64 = 4.3e12;
const MEASURED_ISSUE: f64 = 132.0 * 1.98e9;
/// Everything that predicts times. Made once, used for any number of calls; it holds no state.
#[derive(Debug, Clone)]
pub struct TimeModel {
    fitted: Fitted,
    conv: ConvForms,
    choosers: Choosers,
    /// Intervals of memory-bound operators by name: forward, backward.
    streams: HashMap<String, [LogInterval; 2]>,
    /// Intervals of convolutions by family, grouped, sure.
    convolutions: Vec<LogInterval>,
    /// Constants of fp32 convolutions outside Hopper, by algorithm.
    plain: [Figures; 3],
    /// Constants of linear forms by class.
    linear: Vec<Option<[f64; linear::TERMS]>>,
    /// Constants of fp32 softmax and layer norm outside Hopper, by kernel.
    rows: [rows::Figures; 3],
    /// What one machine's measurements add, for its GPU.
    correction: Option<Box<Correction>>,
}

/// A prediction before physics has its say: reference, correction, what binds, traffic.
struct Draft {
    /// Closed-form seconds.
    reference: f64,
    /// Learned natural log of measured/closed form.
    correction: f64,
    interval: LogInterval,
    bound: Bound,
    levels: Levels,
    launches: f64,
}

impl Draft {
    fn seconds(&self) -> f64 {
        self.reference * self.correction.exp()
    }
}

impl Default for TimeModel {
    fn default() -> Self {
        Self::embedded()
    }
}

impl TimeModel {
    /// The model that ships with the tool.
    pub fn embedded() -> Self {
        Self::new(Fitted::embedded())
    }

    /// A model from fitted data.
    pub fn new(fitted: Fitted) -> Self {
        let conv = ConvForms::new(&fitted);
        let choosers = fitted.choosers().cloned().unwrap_or_default();
        let mut streams: HashMap<String, [LogInterval; 2]> = HashMap::new();
        for (class, interval) in fitted.intervals() {
            if let Some((name, pass)) = class.split_once('/').filter(|(_, p)| matches!(*p, "fwd" | "bwd")) {
                let both = streams.entry(name.to_string()).or_insert([interval; 2]);
                both[usize::from(pass == "bwd")] = interval;
            }
        }
        let convolutions = (0..ConvFamily::ALL.len() * 4)
            .map(|i| fitted.interval(&conv::interval_class(i / 4, i & 2 != 0, i & 1 != 0), "conv"))
            .collect();
        let plain = plain::figures(&fitted);
        let linear = (0..linear::CLASSES)
            .map(|class| fitted.form(&linear::key(class)).and_then(|c| c.try_into().ok()))
            .collect();
        let rows = stream_time::row_figures(&fitted);
        Self { fitted, conv, choosers, streams, convolutions, plain, linear, rows, correction: None }
    }

    /// The same model with a personal correction; it holds for the GPU that it names.
    #[must_use]
    pub fn with_correction(mut self, correction: Correction) -> Self {
        self.correction = Some(Box::new(correction));
        self
    }

    fn draft(&self, call: &OpCall, gpu: &Gpu) -> Draft {
        match &call.op {
            Op::Gemm(g) => self.gemm(g, call.dtype, gpu),
            Op::Conv(c) => self.conv(c, call, gpu),
            Op::Attention(a) => self.attention(a, call, gpu),
            Op::Rnn(r) => self.rnn(r, call, gpu),
            Op::Fused(f) => Self::fused(f, call, gpu),
            _ => self.stream(call, gpu),
        }
    }

    /// Everything that was fitted.
    pub fn fitted(&self) -> &Fitted {
        &self.fitted
    }

    /// No kernel beats the datasheet: seconds of arithmetic at peak (less where the algorithm needs less), and of the
    /// bytes that cannot stay in the L2 at DRAM bandwidth.
    fn physics(call: &OpCall, gpu: &Gpu) -> (f64, f64) {
        let compulsory = call.traffic();
        let compute = call.flops().0 / Self::shortcut(call) / gpu.peak(call.dtype).0;
        let one_way = compulsory.read.max(compulsory.written).0 - gpu.l2_size.0;
        let both_ways = compulsory.total().0 - 2.0 * gpu.l2_size.0;
        (compute, one_way.max(both_ways).max(0.0) / gpu.dram.0)
    }

    /// A time that no prediction of this call falls below: physics, and some time to start at all.
    pub fn least_time(call: &OpCall, gpu: &Gpu) -> Seconds {
        let (compute, memory) = Self::physics(call, gpu);
        Seconds(compute.max(memory).max(gpu.kernel_floor.0))
    }

    /// Predicts one call.
    pub fn predict(&self, call: &OpCall, gpu: &Gpu) -> OpPrediction {
        let flops = call.flops();
        let draft = self.draft(call, gpu);
        let raw = self.grown(call, draft.seconds() * self.generation_factor(call, gpu), gpu);
        let (compute, memory) = Self::physics(call, gpu);
        let least = compute.max(memory).max(gpu.kernel_floor.0);
        let mut time = raw.max(least);
        let mut interval = draft.interval;
        if let Some(own) = self.correction.as_ref().filter(|c| c.gpu == gpu.name)
            && let Some(c) = own.at(call, Seconds(time))
        {
            time = (time * c.factor).max(least);
            interval = c.interval.map_or(interval, |[low, high]| LogInterval { low, high });
        }
        let low = (time * interval.low.exp()).max(compute).max(memory).min(time);
        let high = (time * interval.high.exp()).max(time);
        OpPrediction {
            time: Seconds(time),
            low: Seconds(low),
            high: Seconds(high),
            bound: draft.bound,
            flops,
            dram: Bytes(draft.levels.dram),
            l2: Bytes(draft.levels.l2),
            l1: Bytes(draft.levels.l1),
            launches: draft.launches,
        }
    }

    /// Key of the factor between the form of recurrent layers, learned on Hopper, and published times of an older
    /// generation.
    pub fn factor_key(call: &OpCall, generation: Architecture) -> Option<String> {
        let Op::Rnn(_) = &call.op else { return None };
        // A100's fp32 pipes are laid out as Volta's.
        let generation = if generation == Architecture::Ampere { Architecture::Volta } else { generation };
        Some(format!("factor/rnn/{}", generation.name()))
    }

    fn generation_factor(&self, call: &OpCall, gpu: &Gpu) -> f64 {
        if gpu.architecture == Architecture::Hopper || gpu.architecture == Architecture::Blackwell {
            return 1.0;
        }
        let key = Self::factor_key(call, gpu.architecture);
        key.and_then(|k| self.fitted.form(&k)?.first().copied()).unwrap_or(1.0)
    }

    /// Most useful FLOPs per FLOP done: above 1 where an algorithm needs fewer multiplications.
    ///
    /// F(4x4, 3x3) Winograd multiplies 36 times for 16 results of 9 taps: 4. FFT tiles gain no more than that
    /// on the filters it is chosen for, and libraries use both only at stride 1 on the plain pipes.
    pub fn shortcut(call: &OpCall) -> f64 {
        match &call.op {
            Op::Conv(c) if !call.dtype.is_half() && c.r.max(c.s) > 1 && c.stride == [1, 1] => 4.0,
            _ => 1.0,
        }
    }

    /// How far a correction learned elsewhere is trusted on this GPU: fully where it or its generation was
    /// measured, half elsewhere, not at all across vendors.
    fn trust(gpu: &Gpu, generation_seen: bool) -> f64 {
        match (generation_seen, gpu.vendor) {
            (true, _) => 1.0,
            (false, Vendor::Amd) => 0.0,
            (false, _) => 0.5,
        }
    }

    fn interval(&self, class: &str, family: &str, gpu: &Gpu, generation_seen: bool) -> LogInterval {
        if gpu.name != MEASURED && !generation_seen {
            return self.fitted.unseen_interval(class, family);
        }
        let own = self.fitted.interval_on(class, family, kernels_of(gpu));
        self.on(own, family, gpu, generation_seen)
    }

    /// The interval of a class, as wide as this GPU is far from the measured one.
    fn on(&self, own: LogInterval, family: &str, gpu: &Gpu, generation_seen: bool) -> LogInterval {
        if gpu.name == MEASURED {
            own
        } else if generation_seen {
            own.sibling()
        } else {
            self.fitted.unseen_interval(family, family)
        }
    }

    fn gemm(&self, g: &Gemm, dtype: Dtype, gpu: &Gpu) -> Draft {
        let Judged { form: t, learned, seen, class } = self.judge(g, dtype, gpu);
        Draft {
            reference: t.time,
            correction: learned,
            interval: self.interval(class, "gemm", gpu, seen),
            bound: bound_of(&t),
            levels: {
                let once = g.traffic(dtype);
                let tiles = (t.tiles * (t.bm + t.bn) * t.part * dtype.size()).max(once.total().0);
                Levels { l1: tiles, l2: tiles, dram: traffic::dram(once.read.0, once.written.0, gpu) }
            },
            // A split sum adds its reduction; fp32 and tf32 kernels often clear a counter first.
            launches: if t.split > 1.0 { 2.0 } else { 1.0 } + if dtype.is_half() { 0.1 } else { 0.4 },
        }
    }

    /// Seconds of a plain product, corrected.
    pub fn product_time(&self, g: &Gemm, dtype: Dtype, gpu: &Gpu) -> f64 {
        self.gemm(g, dtype, gpu).seconds()
    }

    /// Constants of a product class in the project's own measurements.
    fn tile_constants(&self, dtype: Dtype, class: u8, gpu: &Gpu) -> Constants {
        let key = TileKey { dtype, class, generation: gpu.architecture };
        self.fitted.tile(key).copied().unwrap_or(Constants::START)
    }

    fn attention(&self, a: &Attention, call: &OpCall, gpu: &Gpu) -> Draft {
        let class = attention::class(a, call.pass, call.dtype);
        let own = attention::key(class, gpu.architecture);
        let seen = self.fitted.form(&own).is_some();
        let constants = self.fitted.form(&own).or_else(|| self.fitted.form(class)).unwrap_or_default();
        let t = attention::form(a, call.pass, call.dtype, constants, gpu);
        let x = attention::features(a, call.pass, call.dtype, &t, gpu);
        let forest = self.fitted.forest(attention::forest(class, gpu.architecture));
        let learned = forest.map_or(0.0, |f| f64::from(f.predict(&x)));
        let bound = if t.compute.max(t.memory) < 0.5 * t.time {
            Bound::Latency
        } else if t.compute >= t.memory {
            Bound::Compute
        } else {
            Bound::Dram
        };
        // PyTorch on Hopper: cuDNN launches three kernels forward and four backward in 16 bit; the fp32
        // kernels come alone.
        let launches = match (call.dtype.is_half(), call.pass) {
            (false, _) => 1.0,
            (true, Pass::Fwd) => 3.0,
            (true, _) => 4.0,
        };
        let correction = learned * Self::trust(gpu, seen);
        let dropping = attention::dropout_time(a, call.pass, call.dtype, gpu);
        Draft {
            reference: t.time + dropping * (-correction).exp(),
            correction,
            interval: self.interval(class, "attention", gpu, seen),
            bound,
            levels: traffic::streaming(call.traffic(), gpu),
            launches,
        }
    }

    fn rnn(&self, r: &Rnn, call: &OpCall, gpu: &Gpu) -> Draft {
        let class = rnn::class(r, call.pass, call.dtype, gpu);
        let machine = Machine::of(gpu, call.dtype);
        let product = |g: Gemm| {
            let constants = self.tile_constants(call.dtype, gemm::class(&g, call.dtype), gpu);
            gemm::form(&g, call.dtype, &constants, &machine).time
        };
        let constants = self.fitted.form(&class).unwrap_or_default();
        let t = rnn::form(r, call.pass, call.dtype, constants, &product, gpu);
        let x = rnn::features(r, call.pass, call.dtype, &t, gpu);
        let learned =
            self.fitted.forest(rnn::forest_name(call.pass)).map_or(0.0, |f| f64::from(f.predict(&x)));
        let seen = gpu.architecture == Architecture::Hopper;
        // Counted in 26 runs of nine layer-directions of 50 steps: 2.1 to 3.2 kernels a step forward, 3.4 backward.
        let steps = (r.seq * r.layers * r.directions()) as f64;
        Draft {
            reference: t.time,
            correction: learned * Self::trust(gpu, seen),
            interval: self.interval(&class, "rnn", gpu, seen),
            bound: if t.input > t.chain { Bound::Compute } else { Bound::Latency },
            levels: traffic::streaming(call.traffic(), gpu),
            launches: steps * if call.pass == Pass::Fwd { 2.2 } else { 3.4 },
        }
    }

    /// What a library would run for a convolution.
    fn guesses(&self, task: &Task, shape: &Features) -> Vec<Guess> {
        let pass = match task.pass {
            Pass::Dgrad => 1,
            Pass::Wgrad => 2,
            _ => 0,
        };
        let chooser = if task.depthwise() { &self.choosers.depthwise } else { &self.choosers.passes[pass] };
        chooser.guesses(shape)
    }

    /// The shape of a convolution and the kernels that a library would run for it, with their times.
    fn conv_candidates(&self, task: &Task, gpu: &Gpu) -> (Features, Candidates) {
        let machine = Machine::of(gpu, task.dtype);
        let product = |g: &Gemm, dtype: Dtype| self.product_time(g, dtype, gpu);
        let context = ConvContext { forms: &self.conv, product: &product };
        let shape = shape_features(task, &machine);
        let candidates = candidates_of(task, self.guesses(task, &shape), &context, &machine);
        (shape, candidates)
    }

    fn conv(&self, c: &Conv, call: &OpCall, gpu: &Gpu) -> Draft {
        let task = Task::new(c, call.pass, call.dtype);
        if plain::applies(&task, gpu) {
            return self.plain_conv(&task, gpu);
        }
        let (shape, candidates) = self.conv_candidates(&task, gpu);
        let x = finish(&shape, &candidates, &Machine::of(gpu, call.dtype));
        let forest = match dtype_group(call.dtype) {
            "fp32" => "conv/fp32",
            "tf32" => "conv/tf32",
            _ => "conv/half",
        };
        let learned = self.fitted.forest(forest).map_or(0.0, |f| f64::from(f.predict(&x)));
        let seen = gpu.architecture == Architecture::Hopper;
        let own = self.convolutions.get(interval_number(&task, &candidates)).copied();
        let own = own.unwrap_or(LogInterval::UNKNOWN);
        let (bound, launches) = match candidates.top() {
            Some((_, _, Some(f))) => {
                let kernels = if f.conversion > 0.0 { task.conversion().1 } else { 0.0 };
                let bound = if f.conversion > 0.5 * f.time { Bound::Dram } else { bound_of(&f.tiling) };
                // Weight gradients end in a reduction; fp32 kernels other than 1x1 often clear or prepare first.
                let helpers = if call.pass == Pass::Wgrad { 1.0 } else { 0.0 }
                    + if call.dtype == Dtype::Fp32 && c.r * c.s > 1 { 0.7 } else { 0.1 };
                // Gradients group by group clear their part first.
                let groups = c.groups as f64;
                let cleared =
                    if groups > 1.0 && f.launches >= groups && call.pass != Pass::Fwd { groups } else { 0.0 };
                (bound, f.launches + kernels + helpers + cleared)
            }
            _ => (Bound::Dram, 1.0),
        };
        Draft {
            reference: candidates.reference,
            correction: learned * Self::trust(gpu, seen),
            interval: self.on(own, "conv", gpu, seen),
            bound,
            levels: traffic::conv::levels(&task, gpu),
            launches,
        }
    }

    fn plain_stream(&self, call: &OpCall, gpu: &Gpu) -> Draft {
        let family = call.family();
        let reference = self.stream_form(call, gpu);
        let x = stream::features(call, gpu, reference);
        // Adaptive pooling was not among the operators that the forest learned from.
        let learned = match &call.op {
            Op::Spatial(o) if o.kind == SpatialKind::AdaptiveAvgPool => 0.0,
            _ => self.fitted.forest(stream::forest_name(call)).map_or(0.0, |f| f64::from(f.predict(&x))),
        };
        let own = match self.streams.get(call.name()) {
            Some(both) => both[usize::from(call.pass != Pass::Fwd)],
            None => self.fitted.interval("", family.name()),
        };
        let streaming = (call.traffic().total() / gpu.dram_sustained).0;
        let correction = self.row_correction(call, gpu, reference, carried(learned, streaming, gpu));
        let time = reference * correction.exp();
        Draft {
            reference,
            correction,
            interval: self.on(own, family.name(), gpu, gpu.architecture == Architecture::Hopper),
            bound: if streaming > 0.5 * time { Bound::Dram } else { Bound::Latency },
            levels: traffic::streaming(call.traffic(), gpu),
            launches: stream::launches(call),
        }
    }
}

/// A correction of a memory-bound operator, carried from the H200 to another GPU.
///
/// What an operator loses against DRAM on an H200 it mostly loses in the SMs: `t_sm = c bytes/DRAM` there. On
/// another GPU that part grows with DRAM over SMs x clock, and DRAM itself remains: c' = max(min(c, 1.08),
/// c (DRAM'/DRAM) / (issue'/issue)). Short calls keep c, since latency, not throughput, made it. Against published
/// layer norms and softmaxes on six GPUs the rule taken whole goes too far and left out not far enough; a third
/// of the way serves both.
fn carried(learned: f64, streaming: f64, gpu: &Gpu) -> f64 {
    const SHARE: f64 = 0.35;
    const SHORT: f64 = 5e-6;
    const LONG: f64 = 25e-6;
    if gpu.name == MEASURED || learned <= 0.0 {
        return learned;
    }
    let issue = f64::from(gpu.sm_count) * gpu.boost_clock.0;
    let scale = (gpu.dram_sustained.0 / MEASURED_DRAM) / (issue / MEASURED_ISSUE);
    let c = learned.exp();
    let throughput = (c * scale).max(c.min(1.08)).ln();
    let weight = ((streaming - SHORT) / (LONG - SHORT)).clamp(0.0, 1.0);
    learned + SHARE * weight * (throughput - learned)
}

/// Number of a convolution's interval: its likeliest family, grouped or not, sure or not.
fn interval_number(task: &Task, candidates: &Candidates) -> usize {
    let (family, sure) = match candidates.top() {
        Some((g, _, _)) => (g.variant.family as usize, g.probability > conv::SURE),
        None => (0, false),
    };
    4 * family + 2 * usize::from(task.grouped()) + usize::from(sure)
}

/// The largest part of a product's time. What every wave spends before and after its sums is a wait in the first wave;
/// in later ones it is the SMs' work, like the sums.
fn bound_of(t: &Tiling) -> Bound {
    let work = t.compute + t.latency * (1.0 - 1.0 / t.waves.max(1.0));
    let parts = [(work, Bound::Compute), (t.dram, Bound::Dram), (t.l2, Bound::L2)];
    let (largest, bound) =
        parts.into_iter().fold((0.0, Bound::Latency), |a, b| if b.0 > a.0 { b } else { a });
    if largest < 0.5 * t.time { Bound::Latency } else { bound }
}
