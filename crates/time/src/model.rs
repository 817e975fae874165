//! The time model: closed form by kernel class, times a learned and bounded correction, with its interval.

mod asked;
mod autotuning;
mod convolution;
mod draft;
mod expert;
mod form;
mod fused;
mod listed;
mod plain;
mod plan;
mod recurrent;
mod stream_time;

pub use autotuning::Algorithm;
pub use expert::plain_as_measured;
pub use form::KernelForm;
pub use listed::{listed_class, listed_form};

use super::boards::Boards;
use super::conv_table::ConvForms;
use super::correction::Correction;
use super::evidence::{Evidence, Library, Nearness, References};
use super::fitted::{Fitted, LogInterval, TileKey};
use super::operator::{Bound, OpPrediction};
use super::stack::Stack;
use draft::{Draft, Row, Sketch, Then, Told};
use expert::Judged;
use foldhash::fast::FixedState;
use preflop_gpu::{Gpu, Vendor};
use preflop_kernels::conv::ConvFamily;
use preflop_kernels::plain_conv::Figures;
use preflop_kernels::tile::{Constants, Tiling};
use preflop_kernels::traffic::{self, Levels};
use preflop_kernels::{attention, conv, kernels_of, linear, plain_rivals, rows};
use preflop_learned::recall::Recall;
use preflop_learned::trees::Scratch;
use preflop_ops::{Attention, Family, Gemm, Op, OpCall, Pass};
use preflop_units::dtype::Dtype;
use preflop_units::math::Elementary as _;
use preflop_units::{Bytes, Seconds};
use std::collections::HashMap;

/// Calls that are predicted at a time.
const AT_A_TIME: usize = 128;

/// Answers of trees that are kept, 32 bytes each, and convolutions and products, 144 and 32 bytes: those to 500 batch sizes of a large network in three formats.
const KEPT_ANSWERS: usize = 1 << 19;
const KEPT_CHOICES: usize = 1 << 17;

/// What trees and choosers said before.
#[derive(Debug, Clone)]
struct Recalled {
    trees: Recall<f32>,
    /// What follows from convolutions on the GPU of the measurements.
    convolutions: Recall<Told>,
    /// Seconds of plain products among the kernels of convolutions, on GPUs of measurements.
    products: Recall<f64>,
}

impl Recalled {
    /// The same room, for a model that answers otherwise.
    fn forgotten(self) -> Self {
        // A copy knows nothing.
        self.clone()
    }
}

/// Everything that predicts times. Made once, used for any number of calls; nothing that it keeps
/// changes an answer.
#[derive(Debug, Clone)]
pub struct TimeModel {
    fitted: Fitted,
    conv: ConvForms,
    /// Intervals of memory-bound operators by name: forward, backward.
    streams: HashMap<String, [LogInterval; 2], FixedState>,
    /// Intervals of families where nobody measured.
    unseen: [LogInterval; Family::ALL.len()],
    /// Intervals of convolutions by family, grouped, sure.
    convolutions: Vec<LogInterval>,
    /// Constants of fp32 convolutions outside Hopper, by algorithm.
    plain: [Figures; 3],
    /// Constants of linear forms by class.
    linear: Vec<Option<[f64; linear::TERMS]>>,
    /// Constants of fp32 softmax and layer norm outside Hopper, by kernel.
    rows: [rows::Figures; 3],
    /// Constants of forms for boards before Hopper.
    boards: Boards,
    /// GPUs that measurements were made on.
    references: References,
    /// The software that predictions are for.
    stack: Stack,
    /// What one machine's measurements add, for its GPU.
    correction: Option<Box<Correction>>,
    /// How much longer the host of the job takes than that of the measurements, where that is said.
    host_factor: Option<f64>,
    /// What trees and choosers said before, where many questions come.
    recall: Option<Recalled>,
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
        let mut streams: HashMap<String, [LogInterval; 2], FixedState> = HashMap::default();
        for (class, interval) in fitted.intervals() {
            if let Some((name, pass)) = class.split_once('/').filter(|(_, p)| matches!(*p, "fwd" | "bwd")) {
                let both = streams.entry(name.to_string()).or_insert([interval; 2]);
                both[usize::from(pass == "bwd")] = interval;
            }
        }
        let convolutions = (0..ConvFamily::ALL.len() * 4)
            .map(|i| fitted.interval(&conv::interval_class(i / 4, i & 2 != 0, i & 1 != 0), "conv"))
            .collect();
        let unseen = Family::ALL.map(|family| fitted.unseen_interval(family.name(), family.name()));
        let plain = plain::figures(&fitted);
        let linear = (0..linear::CLASSES)
            .map(|class| fitted.form(&linear::key(class)).and_then(|c| c.try_into().ok()))
            .collect();
        let rows = stream_time::row_figures(&fitted);
        let boards = Boards::new(&fitted);
        let references = References::new(&fitted);
        Self {
            fitted,
            conv,
            streams,
            unseen,
            convolutions,
            plain,
            linear,
            rows,
            boards,
            references,
            stack: Stack::CURRENT,
            correction: None,
            host_factor: None,
            recall: None,
        }
    }

    /// The same model for many questions: it keeps what trees and choosers answered, for calls that come again on whatever GPU. It takes
    /// 40 MB and changes no answer.
    #[must_use]
    pub fn with_recall(mut self) -> Self {
        let (trees, convolutions) = (Recall::new(KEPT_ANSWERS), Recall::new(KEPT_CHOICES));
        self.recall = Some(Recalled { trees, convolutions, products: Recall::new(KEPT_CHOICES) });
        self
    }

    /// The same model with a personal correction; it holds for the GPU that it names.
    #[must_use]
    pub fn with_correction(mut self, correction: Correction) -> Self {
        self.correction = Some(Box::new(correction));
        self
    }

    /// The same model for jobs on a host that takes `factor` times as long as that of the measurements.
    #[must_use]
    pub fn with_host_factor(mut self, factor: f64) -> Self {
        self.host_factor = Some(factor);
        self
    }

    /// How much longer the job's host takes than that of the measurements, where that is said.
    pub fn host_factor(&self) -> Option<f64> {
        self.host_factor
    }

    /// Constants of the forms for boards before Hopper.
    pub fn boards(&self) -> &Boards {
        &self.boards
    }

    /// The same model with other constants of those forms.
    #[must_use]
    pub fn with_boards(mut self, boards: Boards) -> Self {
        self.boards = boards;
        self.recall = self.recall.map(Recalled::forgotten);
        self
    }

    /// The same model for other software.
    #[must_use]
    pub fn with_stack(mut self, stack: Stack) -> Self {
        self.stack = stack;
        self.recall = self.recall.map(Recalled::forgotten);
        self
    }

    /// How near any measurement is to a GPU.
    pub fn nearness(&self, gpu: &Gpu) -> Nearness {
        self.references.nearness(gpu)
    }

    /// The project's own measurements, as near as they are to a GPU.
    pub fn evidence<'a>(&'a self, gpu: &'a Gpu) -> Evidence<'a> {
        self.references.nearest(Library::Own, None, gpu)
    }

    /// The GPU of the project's own measurements.
    pub fn measured_gpu(&self) -> Option<&Gpu> {
        self.references.own()
    }

    /// Everything that was fitted.
    pub fn fitted(&self) -> &Fitted {
        &self.fitted
    }

    /// No kernel beats the chip: seconds of arithmetic at its roof (less where the algorithm needs less), and of the
    /// bytes that cannot stay in the L2 at DRAM bandwidth.
    fn physics(call: &OpCall, gpu: &Gpu) -> (f64, f64) {
        let compulsory = call.traffic();
        let compute = call.flops().0 / Self::shortcut(call) / gpu.roof(call.dtype).0;
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
        self.settled(call, &self.draft(call, gpu), gpu)
    }

    /// Predicts many calls on one GPU: each as [`TimeModel::predict`] does, to the last bit, and faster together.
    pub fn predict_many(&self, calls: &[&OpCall], gpu: &Gpu) -> Vec<OpPrediction> {
        let mut scratch = Scratch::default();
        // Like calls ask the same trees; and not more at a time than fit the processor's caches.
        let order = draft::by_kind(calls);
        let mut predicted = Vec::with_capacity(calls.len());
        for places in order.chunks(AT_A_TIME) {
            let calls: Vec<&OpCall> = places.iter().map(|i| calls[*i]).collect();
            self.predict_some(&calls, gpu, &mut scratch, &mut predicted);
        }
        let mut place = vec![0; calls.len()];
        for (at, i) in order.into_iter().enumerate() {
            place[i] = at;
        }
        place.into_iter().map(|at| predicted[at]).collect()
    }

    /// Adds the predictions of some calls to `out`.
    fn predict_some(&self, calls: &[&OpCall], gpu: &Gpu, scratch: &mut Scratch, out: &mut Vec<OpPrediction>) {
        let drafts = self.drafts(calls, gpu, scratch);
        out.extend(calls.iter().zip(&drafts).map(|(call, draft)| self.settled(call, draft, gpu)));
    }

    /// The prediction that a draft becomes when its seconds are held against the datasheet and what one machine measured.
    fn settled(&self, call: &OpCall, draft: &Draft, gpu: &Gpu) -> OpPrediction {
        let (compute, memory) = Self::physics(call, gpu);
        let least = compute.max(memory).max(gpu.kernel_floor.0);
        let mut time = draft.seconds().max(least);
        let mut interval = draft.interval;
        if let Some(own) = self.correction.as_ref().filter(|c| c.gpu == gpu.name)
            && let Some(c) = own.at(call, Seconds(time))
        {
            time = (time * c.factor).max(least);
            interval = c.interval.map_or(interval, |[low, high]| LogInterval { low, high });
        }
        let low = (time * interval.low.exponential()).max(compute).max(memory).min(time);
        let high = (time * interval.high.exponential()).max(time);
        OpPrediction {
            time: Seconds(time),
            low: Seconds(low),
            high: Seconds(high),
            bound: draft.bound,
            flops: call.flops(),
            dram: Bytes(draft.levels.dram),
            l2: Bytes(draft.levels.l2),
            l1: Bytes(draft.levels.l1),
            launches: draft.launches,
            abreast: draft.abreast,
        }
    }

    /// Most useful FLOPs per FLOP done: above 1 where an algorithm needs fewer multiplications.
    ///
    /// F(4x4, 3x3) Winograd multiplies 36 times for 16 results of 9 taps: 4. FFT tiles gain more on larger filters; libraries use both
    /// only at stride 1 on the plain pipes.
    pub fn shortcut(call: &OpCall) -> f64 {
        match &call.op {
            Op::Conv(c) if !call.dtype.is_half() && c.r.max(c.s) > 1 && c.stride == [1, 1] => {
                plain_rivals::fft_gain(c.r, c.s).max(4.0)
            }
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

    fn interval(&self, class: &str, family: Family, gpu: &Gpu, nearness: Nearness) -> LogInterval {
        if nearness == Nearness::Elsewhere {
            return self.fitted.unseen_interval(class, family.name());
        }
        self.on(self.fitted.interval_on(class, family.name(), kernels_of(gpu)), family, nearness)
    }

    /// The interval of a class, as wide as the measurements are far.
    fn on(&self, own: LogInterval, family: Family, nearness: Nearness) -> LogInterval {
        match nearness {
            Nearness::Here => own,
            Nearness::Generation => own.sibling(),
            Nearness::Elsewhere => self.unseen[family as usize],
        }
    }

    fn gemm<'a>(&'a self, g: &Gemm, dtype: Dtype, gpu: &'a Gpu) -> Sketch<'a> {
        let Judged { form: t, at, question, trust, known, nearness, class } = self.judge(g, dtype, gpu);
        let draft = Draft {
            reference: t.time,
            at: at.time,
            correction: 0.0,
            interval: self.interval(class, Family::Gemm, gpu, nearness),
            bound: bound_of(&t),
            levels: {
                let once = g.traffic(dtype);
                let tiles = (t.tiles * (t.bm + t.bn) * t.part * dtype.size()).max(once.total().0);
                Levels { l1: tiles, l2: tiles, dram: traffic::dram(once.read.0, once.written.0, gpu) }
            },
            // A split sum adds its reduction. Planned on the GPU of the measurements, so that a better one does not launch more.
            launches: if at.split > 1.0 { 2.0 } else { 1.0 },
            abreast: 1.0,
        };
        Sketch { draft, question, then: Then::trusted(trust, known) }
    }

    /// Constants of a product class in the project's own measurements.
    fn tile_constants(&self, dtype: Dtype, class: u8, gpu: &Gpu) -> Constants {
        let key = TileKey { dtype, class, generation: gpu.architecture };
        self.fitted.tile(key).copied().unwrap_or(Constants::START)
    }

    /// Constants of an attention class: of the generation if it was measured, else of all.
    fn attention_constants(&self, class: &str, gpu: &Gpu) -> (&[f64], bool) {
        let own = self.fitted.form_of(class, gpu.architecture);
        (own.or_else(|| self.fitted.form(class)).unwrap_or_default(), own.is_some())
    }

    fn attention<'a>(&'a self, a: &Attention, call: &OpCall, gpu: &'a Gpu) -> Sketch<'a> {
        let class = attention::class(a, call.pass, call.dtype);
        let (constants, seen) = self.attention_constants(class, gpu);
        let forest = attention::forest(class, gpu.architecture);
        let library = if forest == attention::OWN_FOREST { Library::Own } else { Library::Served };
        let Evidence { reference, nearness } = self.references.nearest(library, None, gpu);
        // A generation may have been measured in other classes alone.
        let nearness = if seen { nearness } else { Nearness::Elsewhere };
        let at = attention::form(a, call.pass, call.dtype, constants, reference, reference);
        let t = match nearness {
            Nearness::Here => at,
            _ => attention::form(a, call.pass, call.dtype, constants, gpu, reference),
        };
        let x = attention::features(a, call.pass, call.dtype, &at, reference);
        let question = self.question(self.fitted.forest(forest), &Row(&x), || x);
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
        let draft = Draft {
            reference: t.time,
            at: at.time,
            correction: 0.0,
            interval: self.interval(class, Family::Attention, gpu, nearness),
            bound,
            levels: traffic::streaming(call.traffic(), gpu),
            launches,
            abreast: 1.0,
        };
        let besides = [gpu, reference].map(|g| attention::dropout_time(a, call.pass, call.dtype, g));
        let then = Then::Trusted { trust: Self::trust(gpu, nearness), known: 1.0, besides };
        Sketch { draft, question, then }
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
