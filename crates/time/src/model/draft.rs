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
use preflop_learned::choice::Guess;
use preflop_learned::recall::Asked;
use preflop_learned::trees::{Features, Forest, Scratch};
use preflop_ops::{Gemm, Op, OpCall};
use preflop_units::dtype::Dtype;
use preflop_units::math::Elementary as _;

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
    /// Whom to ask; nobody where nothing was learned.
    pub forest: Option<&'a Forest>,
    /// What to ask.
    pub x: Features,
    pub then: Then<'a>,
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
        let learned = self.forest.map_or(0.0, |f| f64::from(f.predict(&self.x)));
        self.finished(learned, gpu)
    }

    /// The draft with what was learned.
    fn finished(self, learned: f64, gpu: &Gpu) -> Draft {
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

/// A convolution with the kernels that a library would run for it on the GPU of the measurements.
pub(super) struct Choice<'a> {
    pub task: Task,
    pub reference: &'a Gpu,
    pub nearness: Nearness,
    /// The GPU of the measurements.
    pub there: Machine,
    pub shape: Features,
    pub guesses: Vec<Guess>,
}

impl Choice<'_> {
    /// The GPU that is asked for, with constants of that of the measurements.
    pub fn here(&self, gpu: &Gpu) -> Machine {
        Machine::of(gpu, self.task.dtype).fitted_on(&self.there)
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
    /// What the trees say to each sketch: those who ask the same forest ask it together.
    fn learned(&self, sketches: &[Option<&Sketch>], scratch: &mut Scratch) -> Vec<f64> {
        let asked = |i: &usize| sketches[*i].and_then(|s| s.forest);
        let place = |i: &usize| asked(i).map_or(0, |f| std::ptr::from_ref(f).addr());
        let mut order: Vec<usize> = (0..sketches.len()).collect();
        order.sort_by_key(place);
        let mut out = vec![0.0; sketches.len()];
        for group in order.chunk_by(|a, b| place(a) == place(b)) {
            let Some(forest) = group.first().and_then(asked) else { continue };
            let rows: Vec<&Features> = group.iter().filter_map(|i| Some(&sketches[*i]?.x)).collect();
            for (i, answer) in group.iter().zip(self.answers(forest, &rows, scratch)) {
                out[*i] = f64::from(answer);
            }
        }
        out
    }

    /// What a forest says to rows: what it said before, where that is known.
    fn answers(&self, forest: &Forest, rows: &[&Features], scratch: &mut Scratch) -> Vec<f32> {
        let Some(recall) = self.recall.as_ref().map(|r| &r.trees) else {
            return forest.predict_many(rows, scratch);
        };
        // A forest stays where it is as long as the model lives.
        let whom = std::ptr::from_ref(forest).addr();
        let asked: Vec<Asked> = rows.iter().map(|x| Asked::new(whom, x)).collect();
        let mut answers: Vec<Option<f32>> = asked.iter().map(|a| recall.get(*a)).collect();
        let new = rows.iter().zip(&answers).filter(|(_, known)| known.is_none());
        let new: Vec<&Features> = new.map(|(x, _)| *x).collect();
        let mut said = forest.predict_many(&new, scratch).into_iter();
        for (asked, answer) in asked.iter().zip(&mut answers).filter(|(_, known)| known.is_none()) {
            *answer = said.next();
            if let Some(answer) = answer {
                recall.keep(*asked, *answer);
            }
        }
        answers.into_iter().map(Option::unwrap_or_default).collect()
    }

    /// The draft of one call.
    pub(super) fn draft(&self, call: &OpCall, gpu: &Gpu) -> Draft {
        let choice = self.choice(call, gpu);
        let products = choice.as_ref().map_or([None; 2], |c| {
            let on = |g: &Gpu| Some(self.product_time(&c.product()?, call.dtype, g));
            let there = on(c.reference);
            [if c.nearness == Nearness::Here { there } else { on(gpu) }, there]
        });
        self.sketch(call, choice.as_ref(), products, gpu).answered(gpu)
    }

    /// The drafts of many calls.
    pub(super) fn drafts(&self, calls: &[&OpCall], gpu: &Gpu, scratch: &mut Scratch) -> Vec<Draft> {
        let choices: Vec<Option<Choice>> = calls.iter().map(|call| self.choice(call, gpu)).collect();
        let there = self.products(&choices, |c| Some(c.reference), scratch);
        let here = self.products(&choices, |c| (c.nearness != Nearness::Here).then_some(gpu), scratch);
        let sketches: Vec<Sketch> = calls
            .iter()
            .zip(&choices)
            .zip(here.into_iter().zip(there))
            .map(|((call, choice), (here, there))| {
                self.sketch(call, choice.as_ref(), [here.or(there), there], gpu)
            })
            .collect();
        let answers = self.learned(&sketches.iter().map(Some).collect::<Vec<_>>(), scratch);
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
        let answers = self.learned(&sketches.iter().map(Some).collect::<Vec<_>>(), scratch);
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

    fn sketch<'a>(
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
