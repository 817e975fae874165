//! From closed form to draft: what waits for the trees, for one call or for many at once.

use super::{Bound, TimeModel, carried};
use crate::fitted::LogInterval;
use preflop_gpu::Gpu;
use preflop_kernels::Machine;
use preflop_kernels::conv::{ConvFamily, Task};
use preflop_kernels::traffic::Levels;
use preflop_learned::choice::Guess;
use preflop_learned::trees::{Features, Forest, Scratch};
use preflop_ops::{Gemm, Op, OpCall};
use preflop_units::dtype::Dtype;

/// A prediction before physics has its say: reference, correction, what binds, traffic.
pub(super) struct Draft {
    /// Closed-form seconds.
    pub reference: f64,
    /// Learned natural log of measured/closed form.
    pub correction: f64,
    pub interval: LogInterval,
    pub bound: Bound,
    pub levels: Levels,
    pub launches: f64,
}

impl Draft {
    pub fn seconds(&self) -> f64 {
        self.reference * self.correction.exp()
    }
}

/// A draft that waits for what the trees say.
pub(super) struct Sketch<'a> {
    /// The draft without correction.
    pub draft: Draft,
    /// Whom to ask; nobody where nothing was learned.
    pub forest: Option<&'a Forest>,
    /// What to ask.
    pub x: Features,
    pub then: Then,
}

/// What becomes of the answer.
pub(super) enum Then {
    /// It counts as far as its source is trusted here and knows such calls; `besides` are seconds that it does not change.
    Trusted { trust: f64, known: f64, besides: f64 },
    /// It is carried to another GPU by the seconds of streaming; rows whose kernel is known take `rows` seconds, and no
    /// call less than `least`.
    Streamed { streaming: f64, rows: Option<f64>, least: f64 },
}

/// Published softmaxes and layer norms end here: below, their times are the host's.
const SHORTEST_ROWS: f64 = 200e-6;

impl Sketch<'_> {
    fn answered(self, gpu: &Gpu) -> Draft {
        let learned = self.forest.map_or(0.0, |f| f64::from(f.predict(&self.x)));
        self.finished(learned, gpu)
    }

    /// The draft with what was learned.
    fn finished(self, learned: f64, gpu: &Gpu) -> Draft {
        let mut draft = self.draft;
        match self.then {
            Then::Trusted { trust, known, besides } => {
                draft.correction = learned * trust * known;
                if besides > 0.0 {
                    draft.reference += besides * (-draft.correction).exp();
                }
            }
            Then::Streamed { streaming, rows, least } => {
                draft.correction = carried(learned, streaming, gpu);
                // Where published rows know the kernel, their form takes over from what was learned on the H200 as far as
                // the call is as long as they are.
                if let Some(time) = rows {
                    let known = (time / SHORTEST_ROWS).min(1.0);
                    draft.correction += known * ((time / draft.reference).ln() - draft.correction);
                }
                let time = draft.seconds();
                draft.bound = if streaming > 0.5 * time { Bound::Dram } else { Bound::Latency };
                if least > time {
                    return Draft { reference: least, correction: 0.0, bound: Bound::Latency, ..draft };
                }
            }
        }
        draft
    }
}

/// A convolution with the kernels that a library may run for it.
pub(super) struct Choice {
    pub task: Task,
    pub machine: Machine,
    pub shape: Features,
    pub guesses: Vec<Guess>,
}

impl Choice {
    /// The plain product that one of the kernels is, whose time must be known first.
    pub fn product(&self) -> Option<Gemm> {
        let plain = self.task.pointwise() && self.task.conv.groups == 1;
        let gemm = |g: &Guess| g.variant.family == ConvFamily::Gemm;
        (plain && self.guesses.iter().any(gemm)).then(|| self.task.as_gemm())
    }
}

/// What the trees say to each sketch: those who ask the same forest ask it together.
fn learned(sketches: &[Option<&Sketch>], scratch: &mut Scratch) -> Vec<f64> {
    let asked = |i: &usize| sketches[*i].and_then(|s| s.forest);
    let place = |i: &usize| asked(i).map_or(0, |f| std::ptr::from_ref(f).addr());
    let mut order: Vec<usize> = (0..sketches.len()).collect();
    order.sort_by_key(place);
    let mut out = vec![0.0; sketches.len()];
    for group in order.chunk_by(|a, b| place(a) == place(b)) {
        let Some(forest) = group.first().and_then(asked) else { continue };
        let rows: Vec<&Features> = group.iter().filter_map(|i| Some(&sketches[*i]?.x)).collect();
        for (i, answer) in group.iter().zip(forest.predict_many(&rows, scratch)) {
            out[*i] = f64::from(answer);
        }
    }
    out
}

impl TimeModel {
    /// The draft of one call.
    pub(super) fn draft(&self, call: &OpCall, gpu: &Gpu) -> Draft {
        let choice = self.choice(call, gpu);
        let product = choice.as_ref().and_then(Choice::product);
        let product = product.map(|g| self.product_time(&g, call.dtype, gpu));
        self.sketch(call, choice.as_ref(), product, gpu).answered(gpu)
    }

    /// The drafts of many calls.
    pub(super) fn drafts(&self, calls: &[&OpCall], gpu: &Gpu) -> Vec<Draft> {
        let choices: Vec<Option<Choice>> = calls.iter().map(|call| self.choice(call, gpu)).collect();
        let products: Vec<Option<Sketch>> = choices
            .iter()
            .map(|c| Some(self.gemm(&c.as_ref()?.product()?, c.as_ref()?.task.dtype, gpu)))
            .collect();
        let mut scratch = Scratch::default();
        let answers = learned(&products.iter().map(Option::as_ref).collect::<Vec<_>>(), &mut scratch);
        let products = products.into_iter().zip(answers).map(|(s, a)| Some(s?.finished(a, gpu).seconds()));
        let sketches: Vec<Sketch> = calls
            .iter()
            .zip(&choices)
            .zip(products)
            .map(|((call, choice), product)| self.sketch(call, choice.as_ref(), product, gpu))
            .collect();
        let answers = learned(&sketches.iter().map(Some).collect::<Vec<_>>(), &mut scratch);
        sketches.into_iter().zip(answers).map(|(s, a)| s.finished(a, gpu)).collect()
    }

    /// Seconds of a plain product, corrected.
    pub fn product_time(&self, g: &Gemm, dtype: Dtype, gpu: &Gpu) -> f64 {
        self.gemm(g, dtype, gpu).answered(gpu).seconds()
    }

    fn sketch(&self, call: &OpCall, choice: Option<&Choice>, product: Option<f64>, gpu: &Gpu) -> Sketch<'_> {
        match &call.op {
            Op::Gemm(g) => self.gemm(g, call.dtype, gpu),
            Op::Conv(c) => match choice {
                Some(choice) => self.conv(c, call, choice, product, gpu),
                None => self.plain_conv(&Task::new(c, call.pass, call.dtype), gpu),
            },
            Op::Attention(a) => self.attention(a, call, gpu),
            Op::Rnn(r) => self.rnn(r, call, gpu),
            _ => self.stream(call, gpu),
        }
    }
}
