//! The time model: closed form by kernel class, times a learned and bounded correction, with its interval.

mod convolution;
mod expert;
mod form;
mod growth;
mod plain;
mod stream_time;

pub use expert::plain_as_measured;
pub use form::KernelForm;

use super::conv_table::ConvForms;
use super::correction::Correction;
use super::evidence::{Evidence, Library, Nearness, References};
use super::fitted::{Fitted, LogInterval, TileKey};
use super::operator::{Bound, OpPrediction};
use expert::Judged;
use preflop_gpu::{Architecture, Gpu, Vendor};
use preflop_kernels::conv::ConvFamily;
use preflop_kernels::plain_conv::Figures;
use preflop_kernels::tile::{Constants, Tiling};
use preflop_kernels::traffic::{self, Levels};
use preflop_kernels::{Machine, attention, conv, gemm, kernels_of, linear, rnn, rows};
use preflop_learned::choice::Choosers;
use preflop_ops::{Attention, Gemm, Op, OpCall, Pass, Rnn};
use preflop_units::dtype::Dtype;
use preflop_units::{Bytes, Seconds};
use std::collections::HashMap;

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
    /// GPUs that measurements were made on.
    references: References,
    /// What one machine's measurements add, for its GPU.
    correction: Option<Box<Correction>>,
}

/// A prediction before physics has its say: reference, correction, what binds, traffic.
struct Draft {
    /// Closed-form seconds.
    reference: f64,
    /// The same on the GPU that measurements were made on.
    at: f64,
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

    /// Seconds on the GPU that measurements were made on.
    fn there(&self) -> f64 {
        self.at * self.correction.exp()
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
        let references = References::new(&fitted);
        Self {
            fitted,
            conv,
            choosers,
            streams,
            convolutions,
            plain,
            linear,
            rows,
            references,
            correction: None,
        }
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
        let raw = self.grown(call, &draft, gpu);
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
    fn trust(gpu: &Gpu, nearness: Nearness) -> f64 {
        match (nearness, gpu.vendor) {
            (Nearness::Here | Nearness::Generation, _) => 1.0,
            (Nearness::Elsewhere, Vendor::Amd) => 0.0,
            (Nearness::Elsewhere, _) => 0.5,
        }
    }

    fn interval(&self, class: &str, family: &str, gpu: &Gpu, nearness: Nearness) -> LogInterval {
        if nearness == Nearness::Elsewhere {
            return self.fitted.unseen_interval(class, family);
        }
        self.on(self.fitted.interval_on(class, family, kernels_of(gpu)), family, nearness)
    }

    /// The interval of a class, as wide as the measurements are far.
    fn on(&self, own: LogInterval, family: &str, nearness: Nearness) -> LogInterval {
        match nearness {
            Nearness::Here => own,
            Nearness::Generation => own.sibling(),
            Nearness::Elsewhere => self.fitted.unseen_interval(family, family),
        }
    }

    fn gemm(&self, g: &Gemm, dtype: Dtype, gpu: &Gpu) -> Draft {
        let Judged { form: t, at, learned, nearness, class } = self.judge(g, dtype, gpu);
        Draft {
            reference: t.time,
            at,
            correction: learned,
            interval: self.interval(class, "gemm", gpu, nearness),
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
        let constants = self.fitted.form(&own).or_else(|| self.fitted.form(class)).unwrap_or_default();
        let forest = attention::forest(class, gpu.architecture);
        let library = if forest == attention::OWN_FOREST { Library::Own } else { Library::Served };
        let Evidence { reference, nearness } = self.references.nearest(library, None, gpu);
        // A generation may have been measured in other classes alone.
        let nearness = if self.fitted.form(&own).is_some() { nearness } else { Nearness::Elsewhere };
        let at = attention::form(a, call.pass, call.dtype, constants, reference, reference);
        let t = match nearness {
            Nearness::Here => at,
            _ => attention::form(a, call.pass, call.dtype, constants, gpu, reference),
        };
        let x = attention::features(a, call.pass, call.dtype, &at, reference);
        let forest = self.fitted.forest(forest);
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
        let correction = learned * Self::trust(gpu, nearness);
        let dropping = |g| attention::dropout_time(a, call.pass, call.dtype, g) * (-correction).exp();
        Draft {
            reference: t.time + dropping(gpu),
            at: at.time + dropping(reference),
            correction,
            interval: self.interval(class, "attention", gpu, nearness),
            bound,
            levels: traffic::streaming(call.traffic(), gpu),
            launches,
        }
    }

    fn rnn(&self, r: &Rnn, call: &OpCall, gpu: &Gpu) -> Draft {
        let Evidence { reference, nearness } = self.references.nearest(Library::Own, None, gpu);
        let class = rnn::class(r, call.pass, call.dtype, gpu);
        let there = Machine::of(reference, call.dtype);
        let form = |g: &Gpu| {
            let machine = Machine::of(g, call.dtype).fitted_on(&there);
            let product = |p: Gemm| {
                let constants = self.tile_constants(call.dtype, gemm::class(&p, call.dtype), gpu);
                gemm::form(&p, call.dtype, &constants, &machine).time
            };
            rnn::form(r, call.pass, call.dtype, self.fitted.form(&class).unwrap_or_default(), &product, g)
        };
        let at = form(reference);
        let t = if nearness == Nearness::Here { at } else { form(gpu) };
        let x = rnn::features(r, call.pass, call.dtype, &at, reference);
        let learned =
            self.fitted.forest(rnn::forest_name(call.pass)).map_or(0.0, |f| f64::from(f.predict(&x)));
        // Counted in 26 runs of nine layer-directions of 50 steps: 2.1 to 3.2 kernels a step forward, 3.4 backward.
        let steps = (r.seq * r.layers * r.directions()) as f64;
        Draft {
            reference: t.time,
            at: at.time,
            correction: learned * Self::trust(gpu, nearness),
            interval: self.interval(&class, "rnn", gpu, nearness),
            bound: if t.input > t.chain { Bound::Compute } else { Bound::Latency },
            levels: traffic::streaming(call.traffic(), gpu),
            launches: steps * if call.pass == Pass::Fwd { 2.2 } else { 3.4 },
        }
    }
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
