//! Convolutions: what the library would choose on the measured GPU, timed where the job runs; before Hopper, the best of closed forms.

use super::draft::{Choice, Draft, Question, Sketch, Then, There};
use super::stream_time::bytes_or_sms;
use super::{TimeModel, bound_of, plain};
use crate::conv_table::ConvContext;
use crate::evidence::{Evidence, Library, Nearness};
use crate::fitted::LogInterval;
use crate::operator::Bound;
use preflop_gpu::Gpu;
use preflop_kernels::conv::{self, Task, dtype_group};
use preflop_kernels::conv_features::{Candidates, candidates_of, finish, shape_features};
use preflop_kernels::{Machine, kernels_of, tensor_conv, traffic};
use preflop_learned::choice::Guess;
use preflop_learned::recall::Asked;
use preflop_learned::trees::Features;
use preflop_ops::{Conv, Family, Gemm, Op, OpCall, Pass};
use preflop_units::Dtype;
use std::cell::OnceCell;

/// Grouped tensor-core kernels before Hopper over what the ratio of datasheet rates says, and depthwise ones over what bytes and SMs
/// say: set by hand in the study of published networks that `kernels/tensor_conv.rs` names, not fitted.
const GROUPED: f64 = 0.7;
const DEPTHWISE: f64 = 0.6;

/// A grouped convolution on tensor cores before Hopper.
pub(super) struct Groups<'a> {
    task: Task,
    reference: &'a Gpu,
}

impl Groups<'_> {
    /// As long as on the measured GPU by the ratio of rates, and no shorter than its bytes.
    pub fn finished(self, mut draft: Draft, learned: f64, gpu: &Gpu) -> Draft {
        draft.correction = learned;
        let there = draft.there();
        let bytes: f64 = self.task.bytes().iter().sum();
        let seconds = if self.task.depthwise() {
            DEPTHWISE * bytes_or_sms(there, bytes, 1.0, gpu, self.reference)
        } else {
            let dtype = self.task.dtype;
            GROUPED * there * self.reference.peak(dtype).0 / gpu.peak(dtype).0
        };
        let seconds = seconds.max(bytes / gpu.dram_sustained.0);
        Draft { reference: seconds, at: there, correction: 0.0, ..draft }
    }
}

impl TimeModel {
    /// What a library would run for a convolution.
    fn guesses(&self, task: &Task, shape: &Features) -> Vec<Guess> {
        let pass = match task.pass {
            Pass::Dgrad => 1,
            Pass::Wgrad => 2,
            _ => 0,
        };
        self.fitted.chooser(pass, task.depthwise()).map_or_else(Vec::new, |chooser| chooser.guesses(shape))
    }

    /// The kernels that a library may run for a convolution; nothing for other calls, and where closed forms alone speak.
    pub(super) fn choice<'a>(&'a self, call: &OpCall, gpu: &'a Gpu) -> Option<Choice<'a>> {
        let Op::Conv(c) = &call.op else { return None };
        let task = Task::new(c, call.pass, call.dtype);
        if plain::applies(&task, gpu) || tensor_conv::applies(&task, kernels_of(gpu), gpu) {
            return None;
        }
        let Evidence { reference, nearness } = self.references.nearest(Library::Own, None, gpu);
        let there = Machine::of(reference, task.dtype);
        // References are never dropped while the model lives.
        let asked = self.recall.as_ref().map(|_| Asked::of(&(std::ptr::from_ref(reference).addr(), call)));
        let told = self.recall.as_ref().zip(asked).and_then(|(r, asked)| r.convolutions.get(asked));
        let (shape, guesses) = if let Some(told) = &told {
            (None, told.guesses.into_iter().flatten().collect())
        } else {
            let shape = Box::new(shape_features(&task, &there));
            let guesses = self.guesses(&task, &shape);
            (Some(shape), guesses)
        };
        let found = OnceCell::new();
        Some(Choice { task, reference, nearness, there, shape, guesses, told, asked, found })
    }

    /// Those kernels with their times; `product` is that of a plain product, if one of them is one.
    pub(super) fn candidates(&self, choice: &Choice, product: Option<f64>, machine: &Machine) -> Candidates {
        let product = |_: &Gemm, _: Dtype| product.unwrap_or(f64::INFINITY);
        let context = ConvContext { forms: &self.conv, product: &product };
        candidates_of(&choice.task, choice.guesses.clone(), &context, machine)
    }

    /// By the library's own choice, as it was learned; `products` are the seconds of a plain product here and on the GPU of the
    /// measurements.
    pub(super) fn conv<'a>(
        &'a self,
        call: &OpCall,
        choice: &Choice<'a>,
        [product, product_there]: [Option<f64>; 2],
        gpu: &'a Gpu,
    ) -> Sketch<'a> {
        let Choice { task, reference, nearness, there, shape, .. } = choice;
        let forest = match dtype_group(call.dtype) {
            "fp32" => "conv/fp32",
            "tf32" => "conv/tf32",
            _ => "conv/half",
        };
        let here = *nearness == Nearness::Here;
        let at = (here || choice.told.is_none()).then(|| self.candidates(choice, product_there, there));
        let (known, question) = match (&choice.told, &at, shape) {
            (Some(told), ..) => (told.there, Question::answered(told.learned)),
            (None, Some(at), Some(shape)) => {
                let (reference, launches) = (at.reference, launches(task, call, at));
                let abreast = at.top().and_then(|(_, _, form)| *form).map_or(1.0, |form| form.abreast);
                let found = There { reference, launches, abreast, interval: interval_number(task, at) };
                let question = Question::new(self.fitted.forest(forest), &finish(shape, at, there));
                (*choice.found.get_or_init(|| found), question)
            }
            _ => (There::default(), Question::nobody()),
        };
        let own = self.convolutions.get(known.interval).copied();
        let own = own.unwrap_or(LogInterval::UNKNOWN);
        let candidates =
            at.filter(|_| here).unwrap_or_else(|| self.candidates(choice, product, &choice.here(gpu)));
        let draft = Draft {
            reference: candidates.reference,
            at: known.reference,
            correction: 0.0,
            interval: self.on(own, Family::Conv, *nearness),
            bound: bound(&candidates),
            levels: traffic::conv::by_tile(task, gpu, candidates.implicit_tile()),
            launches: known.launches,
            abreast: known.abreast,
        };
        let one_group = Task { conv: Conv { groups: 1, ..task.conv }, ..*task };
        let then = if tensor_conv::applies(&one_group, kernels_of(gpu), gpu) {
            Then::Grouped(Groups { task: *task, reference })
        } else {
            Then::trusted(Self::trust(gpu, *nearness), 1.0)
        };
        Sketch { draft, question, then }
    }

    /// Where no choice was learned: the best of closed forms.
    pub(super) fn best_conv<'a>(&'a self, task: &Task, gpu: &'a Gpu) -> Sketch<'a> {
        if plain::applies(task, gpu) { self.plain_conv(task, gpu) } else { self.tensor_conv(task, gpu) }
    }

    /// On tensor cores before Hopper; tf32 gives way to fp32 where that is faster, as an autotuner finds out.
    fn tensor_conv<'a>(&'a self, task: &Task, gpu: &'a Gpu) -> Sketch<'a> {
        let t = tensor_conv::form(task, &self.boards.tensor, gpu);
        let bound = if t.conversion.max(t.memory) > t.compute { Bound::Dram } else { Bound::Compute };
        // What is launched is planned on the GPU of the measurements, so that a better one does not launch more.
        let Evidence { reference, .. } = self.references.nearest(Library::Plain, None, gpu);
        let at = tensor_conv::form(task, &self.boards.tensor, reference);
        let mut draft = Draft {
            reference: t.time,
            at: at.time,
            correction: 0.0,
            interval: self.unseen[Family::Conv as usize],
            bound,
            levels: traffic::conv::levels(task, gpu),
            launches: 1.0
                + if at.conversion > 0.0 { 3.0 } else { 0.0 }
                + if at.split > 1.0 { 1.0 } else { 0.0 },
            abreast: 1.0,
        };
        if task.dtype == Dtype::Tf32 {
            let rival = self.plain_conv(&Task { dtype: Dtype::Fp32, ..*task }, gpu).answered(gpu);
            let launches = if rival.there() < at.time { rival.launches } else { draft.launches };
            draft = Draft { launches, ..if rival.seconds() < t.time { rival } else { draft } };
        }
        let (reference, at) = (draft.seconds(), draft.there());
        draft = Draft { reference, at, correction: 0.0, ..draft };
        Sketch { draft, question: Question::nobody(), then: Then::trusted(0.0, 1.0) }
    }
}

/// What binds the likeliest kernel.
fn bound(candidates: &Candidates) -> Bound {
    match candidates.top() {
        Some((_, _, Some(f))) if f.conversion <= 0.5 * f.time => bound_of(&f.tiling),
        _ => Bound::Dram,
    }
}

/// How many launches a call takes by its likeliest kernel.
fn launches(task: &Task, call: &OpCall, candidates: &Candidates) -> f64 {
    let Some((_, _, Some(f))) = candidates.top() else { return 1.0 };
    let c = &task.conv;
    let kernels = if f.conversion > 0.0 { task.conversion().1 } else { 0.0 };
    // Weight gradients end in a reduction; fp32 kernels other than 1x1 often clear or prepare first.
    let helpers = if call.pass == Pass::Wgrad { 1.0 } else { 0.0 }
        + if call.dtype == Dtype::Fp32 && c.r * c.s > 1 { 1.0 } else { 0.0 };
    // Gradients group by group clear their part first.
    let groups = c.groups as f64;
    let cleared = if groups > 1.0 && f.launches >= groups && call.pass != Pass::Fwd { groups } else { 0.0 };
    f.launches + kernels + helpers + cleared
}

/// Number of a convolution's interval: its likeliest family, grouped or not, sure or not.
fn interval_number(task: &Task, candidates: &Candidates) -> usize {
    let (family, sure) = match candidates.top() {
        Some((g, _, _)) => (g.variant.family as usize, g.probability > conv::SURE),
        None => (0, false),
    };
    4 * family + 2 * usize::from(task.grouped()) + usize::from(sure)
}
