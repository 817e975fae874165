//! From closed form to draft: what waits for the trees, for one call or for many at once.

use super::convolution::Groups;
use super::stream_time::Stream;
use super::{Bound, TimeModel};
use crate::evidence::Nearness;
use crate::fitted::LogInterval;
use preflop_gpu::Gpu;
use preflop_kernels::Machine;
use preflop_kernels::conv::{ConvFamily, Task};
use preflop_kernels::traffic::Levels;
use preflop_learned::choice::{Guess, KEPT};
use preflop_learned::recall::Asked;
use preflop_learned::trees::{Features, Forest, Scratch};
use preflop_ops::{Gemm, Op, OpCall};
use preflop_units::dtype::Dtype;
use preflop_units::math::Elementary as _;
use std::cell::OnceCell;
use std::hash::{Hash, Hasher};

/// A prediction before physics has its say: reference, correction, what binds, traffic.
pub(super) struct Draft {
    /// Closed-form seconds.
    pub reference: f64,
    /// The same on the GPU that measurements were made on.
    pub at: f64,
    /// Learned natural log of measured/closed form.
    pub correction: f64,
    pub interval: LogInterval,
    pub bound: Bound,
    pub levels: Levels,
    pub launches: f64,
    /// Seconds of all kernels, each alone, over those of the call.
    pub abreast: f64,
}

impl Draft {
    pub fn seconds(&self) -> f64 {
        self.reference * self.correction.exponential()
    }

    /// Seconds on the GPU that measurements were made on.
    pub fn there(&self) -> f64 {
        self.at * self.correction.exponential()
    }
}

/// A draft that waits for what the trees say.
pub(super) struct Sketch<'a> {
    /// The draft without correction.
    pub draft: Draft,
    pub question: Question<'a>,
    pub then: Then<'a>,
}

/// What is asked of the trees.
pub(super) struct Question<'a> {
    /// Whom to ask; nobody where nothing was learned.
    pub forest: Option<&'a Forest>,
    /// What to ask, where somebody is to be asked. Apart, since questions are moved about and most are answered.
    pub x: Option<Box<Features>>,
    /// What was answered before.
    known: Option<f32>,
    /// What the answer is to be kept under.
    asked: Option<Asked>,
}

impl<'a> Question<'a> {
    /// To be asked now; nothing is kept.
    pub fn new(forest: Option<&'a Forest>, x: &Features) -> Self {
        Self { forest, x: forest.map(|_| Box::new(*x)), known: None, asked: None }
    }

    /// Nothing was learned.
    pub fn nobody() -> Self {
        Self { forest: None, x: None, known: None, asked: None }
    }

    /// Answered before.
    pub fn answered(answer: f32) -> Self {
        Self { known: Some(answer), ..Self::nobody() }
    }

    /// The answer, from this one question alone.
    fn answer(&self) -> f64 {
        let asked = || Some(self.forest?.predict(self.x.as_ref()?));
        self.known.or_else(asked).map_or(0.0, f64::from)
    }

    /// Whom it has still to be asked of.
    fn open(&self) -> Option<&'a Forest> {
        self.forest.filter(|_| self.known.is_none() && self.x.is_some())
    }
}

/// What becomes of the answer.
pub(super) enum Then<'a> {
    /// It counts as far as its source is trusted here and knows such calls; `besides` are seconds that it does not change, here and on
    /// the GPU of the measurements.
    Trusted { trust: f64, known: f64, besides: [f64; 2] },
    /// It is that of a memory-bound operator, bound here by DRAM or by the SMs.
    Streamed(Stream<'a>),
    /// It is that of a grouped convolution, carried to a GPU before Hopper.
    Grouped(Groups<'a>),
}

impl Then<'_> {
    /// Trusted, with nothing besides.
    pub fn trusted(trust: f64, known: f64) -> Self {
        Self::Trusted { trust, known, besides: [0.0; 2] }
    }
}

impl Sketch<'_> {
    pub fn answered(self, gpu: &Gpu) -> Draft {
        let learned = self.question.answer();
        self.finished(learned, gpu)
    }

    /// The draft with what was learned.
    pub fn finished(self, learned: f64, gpu: &Gpu) -> Draft {
        let mut draft = self.draft;
        match self.then {
            Then::Trusted { trust, known, besides: [here, there] } => {
                draft.correction = learned * trust * known;
                if here > 0.0 {
                    draft.reference += here * (-draft.correction).exponential();
                    draft.at += there * (-draft.correction).exponential();
                }
                draft
            }
            Then::Streamed(stream) => stream.finished(draft, learned, gpu),
            Then::Grouped(groups) => groups.finished(draft, learned, gpu),
        }
    }
}

/// A row of features as what a question is about, where it follows from more than can be named.
pub(super) struct Row<'a>(pub &'a Features);

impl Hash for Row<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for [a, b] in self.0.as_chunks::<2>().0 {
            state.write_u64(u64::from(a.to_bits()) << 32 | u64::from(b.to_bits()));
        }
    }
}

/// A convolution with the kernels that a library would run for it on the GPU of the measurements.
pub(super) struct Choice<'a> {
    pub task: Task,
    pub reference: &'a Gpu,
    pub nearness: Nearness,
    /// The GPU of the measurements.
    pub there: Machine,
    /// Nothing where all is known.
    pub shape: Option<Box<Features>>,
    pub guesses: Vec<Guess>,
    /// What is known of it, and what that is kept under.
    pub told: Option<Told>,
    pub asked: Option<Asked>,
    /// How it runs on the GPU of the measurements, once that was found out.
    pub found: OnceCell<There>,
}

/// A convolution on the GPU of the measurements.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct There {
    /// Closed-form seconds.
    pub reference: f64,
    pub launches: f64,
    pub abreast: f64,
    /// Number of its interval.
    pub interval: usize,
}

/// All that follows from a convolution and the GPU of the measurements, whatever GPU is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Told {
    pub guesses: [Option<Guess>; KEPT],
    pub there: There,
    /// What the trees say.
    pub learned: f32,
}

impl Choice<'_> {
    /// The GPU that is asked for, with constants of that of the measurements.
    pub fn here(&self, gpu: &Gpu) -> Machine {
        Machine::of(gpu, self.task.dtype).fitted_on(&self.there)
    }

    /// Is its time on the GPU of the measurements still to be found, or that of this one?
    fn there_matters(&self) -> bool {
        self.told.is_none() || self.nearness == Nearness::Here
    }

    /// The plain product that one of the kernels is, whose time must be known first.
    pub fn product(&self) -> Option<Gemm> {
        let plain = self.task.pointwise() && self.task.conv.groups == 1;
        let gemm = |g: &Guess| g.variant.family == ConvFamily::Gemm;
        (plain && self.guesses.iter().any(gemm)).then(|| self.task.as_gemm())
    }
}

/// The places of a list's calls, those of one kind together.
pub(super) fn by_kind(calls: &[&OpCall]) -> Vec<usize> {
    let kind = |call: &OpCall| {
        let mut name = call.name().bytes();
        let name = [(); 5].map(|()| name.next().unwrap_or(0));
        let [a, b, c, d, e] = name;
        u64::from_be_bytes([call.family() as u8, call.pass as u8, call.dtype as u8, a, b, c, d, e])
    };
    let mut order: Vec<(u64, usize)> = calls.iter().enumerate().map(|(i, call)| (kind(call), i)).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, i)| i).collect()
}

impl TimeModel {
    /// What is asked of a forest about something whose features `x` are: where that was asked before, they are not even made.
    pub(super) fn question<'a>(
        &self,
        forest: Option<&'a Forest>,
        about: &impl Hash,
        x: impl FnOnce() -> Features,
    ) -> Question<'a> {
        let (Some(recall), Some(whom)) = (&self.recall, forest) else { return Question::new(forest, &x()) };
        // A forest stays where it is as long as the model lives.
        let asked = Asked::of(&(std::ptr::from_ref(whom).addr(), about));
        let known = recall.trees.get(asked);
        let x = known.is_none().then(|| Box::new(x()));
        Question { forest, x, known, asked: Some(asked) }
    }

    /// What the trees say to each question: those who ask the same forest ask it together.
    fn learned(&self, questions: &[&Question], scratch: &mut Scratch) -> Vec<f64> {
        let place = |i: &usize| questions[*i].open().map_or(0, |f| std::ptr::from_ref(f).addr());
        let mut out: Vec<f64> = questions.iter().map(|q| q.known.map_or(0.0, f64::from)).collect();
        let mut order: Vec<usize> = (0..questions.len()).filter(|i| place(i) != 0).collect();
        order.sort_by_key(place);
        for group in order.chunk_by(|a, b| place(a) == place(b)) {
            let Some(forest) = group.first().and_then(|i| questions[*i].open()) else { continue };
            let rows: Vec<&Features> = group.iter().filter_map(|i| questions[*i].x.as_deref()).collect();
            for (i, answer) in group.iter().zip(forest.predict_many(&rows, scratch)) {
                out[*i] = f64::from(answer);
                if let (Some(recall), Some(asked)) = (&self.recall, questions[*i].asked) {
                    recall.trees.keep(asked, answer);
                }
            }
        }
        out
    }

    /// Keeps what was found out about a convolution.
    fn keep(&self, choice: &Choice, learned: f64) {
        let Some(recall) = &self.recall else { return };
        if let (None, Some(asked), Some(there)) = (&choice.told, choice.asked, choice.found.get()) {
            let guesses = std::array::from_fn(|i| choice.guesses.get(i).copied());
            recall.convolutions.keep(asked, Told { guesses, there: *there, learned: learned as f32 });
        }
    }

    /// The draft of one call.
    pub(super) fn draft(&self, call: &OpCall, gpu: &Gpu) -> Draft {
        let choice = self.choice(call, gpu);
        let products = self.products_of(call, choice.as_ref(), gpu);
        let sketch = self.sketch(call, choice.as_ref(), products, gpu);
        let learned = sketch.question.answer();
        if let Some(choice) = &choice {
            self.keep(choice, learned);
        }
        sketch.finished(learned, gpu)
    }

    /// Seconds of the plain product that one of a convolution's kernels is, here and on the GPU of the measurements.
    pub(super) fn products_of(&self, call: &OpCall, choice: Option<&Choice>, gpu: &Gpu) -> [Option<f64>; 2] {
        choice.map_or([None; 2], |c| {
            let on = |g: &Gpu| Some(self.product_time(&c.product()?, call.dtype, g));
            let there = c.there_matters().then(|| on(c.reference)).flatten();
            [if c.nearness == Nearness::Here { there } else { on(gpu) }, there]
        })
    }

    /// The drafts of many calls.
    pub(super) fn drafts(&self, calls: &[&OpCall], gpu: &Gpu, scratch: &mut Scratch) -> Vec<Draft> {
        let choices: Vec<Option<Choice>> = calls.iter().map(|call| self.choice(call, gpu)).collect();
        let there = self.products(&choices, |c| c.there_matters().then_some(c.reference), scratch);
        let here = self.products(&choices, |c| (c.nearness != Nearness::Here).then_some(gpu), scratch);
        let sketches: Vec<Sketch> = calls
            .iter()
            .zip(&choices)
            .zip(here.into_iter().zip(there))
            .map(|((call, choice), (here, there))| {
                self.sketch(call, choice.as_ref(), [here.or(there), there], gpu)
            })
            .collect();
        let answers = self.learned(&sketches.iter().map(|s| &s.question).collect::<Vec<_>>(), scratch);
        for (choice, answer) in choices.iter().zip(&answers) {
            if let Some(choice) = choice {
                self.keep(choice, *answer);
            }
        }
        sketches.into_iter().zip(answers).map(|(s, a)| s.finished(a, gpu)).collect()
    }

    /// Seconds of the plain products among the kernels of convolutions, on the GPU that `on` names for each.
    fn products<'a>(
        &'a self,
        choices: &'a [Option<Choice<'a>>],
        on: impl Fn(&Choice<'a>) -> Option<&'a Gpu>,
        scratch: &mut Scratch,
    ) -> Vec<Option<f64>> {
        let recall = self.recall.as_ref().map(|r| &r.products);
        let mut seconds = vec![None; choices.len()];
        let mut wanted: Vec<(usize, &Gpu, Option<Asked>)> = Vec::new();
        let mut sketches: Vec<Sketch> = Vec::new();
        for (i, choice) in choices.iter().enumerate() {
            let Some(choice) = choice else { continue };
            let (Some(gpu), Some(product)) = (on(choice), choice.product()) else { continue };
            let kept = recall.is_some() && self.references.hold(gpu);
            let asked =
                kept.then(|| Asked::of(&(std::ptr::from_ref(gpu).addr(), &product, choice.task.dtype)));
            seconds[i] = recall.zip(asked).and_then(|(recall, asked)| recall.get(asked));
            if seconds[i].is_none() {
                wanted.push((i, gpu, asked));
                sketches.push(self.gemm(&product, choice.task.dtype, gpu));
            }
        }
        let answers = self.learned(&sketches.iter().map(|s| &s.question).collect::<Vec<_>>(), scratch);
        for (((i, gpu, asked), sketch), answer) in wanted.into_iter().zip(sketches).zip(answers) {
            let time = sketch.finished(answer, gpu).seconds();
            seconds[i] = Some(time);
            if let Some((recall, asked)) = recall.zip(asked) {
                recall.keep(asked, time);
            }
        }
        seconds
    }

    /// Seconds of a plain product, corrected.
    pub fn product_time(&self, g: &Gemm, dtype: Dtype, gpu: &Gpu) -> f64 {
        self.gemm(g, dtype, gpu).answered(gpu).seconds()
    }

    pub(super) fn sketch<'a>(
        &'a self,
        call: &OpCall,
        choice: Option<&Choice<'a>>,
        products: [Option<f64>; 2],
        gpu: &'a Gpu,
    ) -> Sketch<'a> {
        match &call.op {
            Op::Gemm(g) => self.gemm(g, call.dtype, gpu),
            Op::Conv(c) => match choice {
                Some(choice) => self.conv(call, choice, products, gpu),
                None => self.best_conv(&Task::new(c, call.pass, call.dtype), gpu),
            },
            Op::Attention(a) => self.attention(a, call, gpu),
            Op::Rnn(r) => self.rnn(r, call, gpu),
            Op::Fused(f) => self.fused(f, call, gpu),
            Op::Listed(o) => self.listed(o, call, gpu),
            _ => self.stream(call, gpu),
        }
    }
}
