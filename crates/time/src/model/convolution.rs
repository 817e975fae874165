//! Convolutions: what the library would choose on the measured GPU, timed where the job runs; before Hopper, the best of closed forms.

use super::{Draft, TimeModel, bound_of, plain};
use crate::conv_table::ConvContext;
use crate::evidence::{Evidence, Library, Nearness};
use crate::fitted::LogInterval;
use crate::operator::Bound;
use preflop_gpu::Gpu;
use preflop_kernels::conv::{self, Task, dtype_group};
use preflop_kernels::conv_features::{Candidates, candidates_of, finish, shape_features};
use preflop_kernels::{Machine, kernels_of, tensor_conv, traffic};
use preflop_learned::choice::Guess;
use preflop_learned::trees::Features;
use preflop_ops::{Conv, Gemm, OpCall, Pass};
use preflop_units::Dtype;

/// Grouped tensor-core kernels before Hopper over what the ratio of datasheet rates says, and depthwise ones over what bytes and SMs
/// say: both from published networks (ResNeXt, MobileNet, EfficientNet) on four boards.
const GROUPED: f64 = 0.7;
const DEPTHWISE: f64 = 0.6;

impl TimeModel {
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

    /// The kernels of a task by their guesses, timed on a GPU with constants of another.
    fn candidates(&self, task: &Task, guesses: Vec<Guess>, gpu: &Gpu, machine: &Machine) -> Candidates {
        let product = |g: &Gemm, dtype: Dtype| self.product_time(g, dtype, gpu);
        let context = ConvContext { forms: &self.conv, product: &product };
        candidates_of(task, guesses, &context, machine)
    }

    /// The kernels that a library would run on the measured GPU, timed on this one.
    pub(super) fn conv_candidates(&self, task: &Task, gpu: &Gpu) -> Candidates {
        let Evidence { reference, .. } = self.references.nearest(Library::Own, None, gpu);
        let there = Machine::of(reference, task.dtype);
        let guesses = self.guesses(task, &shape_features(task, &there));
        self.candidates(task, guesses, gpu, &Machine::of(gpu, task.dtype).fitted_on(&there))
    }

    pub(super) fn conv(&self, c: &Conv, call: &OpCall, gpu: &Gpu) -> Draft {
        let task = Task::new(c, call.pass, call.dtype);
        if plain::applies(&task, gpu) {
            return self.plain_conv(&task, gpu);
        }
        let generation = kernels_of(gpu);
        if tensor_conv::applies(&task, generation, gpu) {
            return self.tensor_conv(&task, gpu);
        }
        let draft = self.chosen_conv(&task, call, gpu);
        let before =
            tensor_conv::applies(&Task { conv: Conv { groups: 1, ..task.conv }, ..task }, generation, gpu);
        if before { self.carried_groups(&task, draft, gpu) } else { draft }
    }

    /// By the library's own choice, as it was learned.
    fn chosen_conv(&self, task: &Task, call: &OpCall, gpu: &Gpu) -> Draft {
        let Evidence { reference, nearness } = self.references.nearest(Library::Own, None, gpu);
        let there = Machine::of(reference, task.dtype);
        let shape = shape_features(task, &there);
        let guesses = self.guesses(task, &shape);
        let at = self.candidates(task, guesses.clone(), reference, &there);
        let x = finish(&shape, &at, &there);
        let forest = match dtype_group(call.dtype) {
            "fp32" => "conv/fp32",
            "tf32" => "conv/tf32",
            _ => "conv/half",
        };
        let learned = self.fitted.forest(forest).map_or(0.0, |f| f64::from(f.predict(&x)));
        let own = self.convolutions.get(interval_number(task, &at)).copied();
        let own = own.unwrap_or(LogInterval::UNKNOWN);
        let there_time = at.reference;
        let candidates = if nearness == Nearness::Here {
            at
        } else {
            let here = Machine::of(gpu, task.dtype).fitted_on(&there);
            self.candidates(task, guesses, gpu, &here)
        };
        let (bound, launches) = main_kernel(task, call, &candidates);
        Draft {
            reference: candidates.reference,
            at: there_time,
            correction: learned * Self::trust(gpu, nearness),
            interval: self.on(own, "conv", nearness),
            bound,
            levels: traffic::conv::levels(task, gpu),
            launches,
        }
    }

    /// On tensor cores before Hopper; tf32 gives way to fp32 where that is faster, as an autotuner finds out.
    fn tensor_conv(&self, task: &Task, gpu: &Gpu) -> Draft {
        let t = tensor_conv::form(task, gpu);
        if task.dtype == Dtype::Tf32 {
            let plain = Task { dtype: Dtype::Fp32, ..*task };
            let draft = self.plain_conv(&plain, gpu);
            if draft.seconds() < t.time {
                return draft;
            }
        }
        let bound = if t.conversion.max(t.memory) > t.compute { Bound::Dram } else { Bound::Compute };
        Draft {
            reference: t.time,
            at: t.time,
            correction: 0.0,
            interval: self.fitted.unseen_interval("conv", "conv"),
            bound,
            levels: traffic::conv::levels(task, gpu),
            launches: 1.0
                + if t.conversion > 0.0 { 3.0 } else { 0.0 }
                + if t.split > 1.0 { 1.0 } else { 0.0 },
        }
    }

    /// Groups before Hopper: as long as on the measured GPU by the ratio of rates, and no shorter than their bytes.
    fn carried_groups(&self, task: &Task, draft: Draft, gpu: &Gpu) -> Draft {
        let Evidence { reference, .. } = self.references.nearest(Library::Own, None, gpu);
        let there = draft.there();
        let bytes: f64 = task.bytes().iter().sum();
        let memory = bytes / gpu.dram_sustained.0;
        let seconds = if task.depthwise() {
            DEPTHWISE * super::stream_time::bytes_or_sms(there, bytes, 1.0, gpu, reference)
        } else {
            GROUPED * there * reference.peak(task.dtype).0 / gpu.peak(task.dtype).0
        };
        let seconds = seconds.max(memory);
        Draft { reference: seconds, at: seconds, correction: 0.0, ..draft }
    }
}

/// What binds the likeliest kernel, and how many launches the call takes.
fn main_kernel(task: &Task, call: &OpCall, candidates: &Candidates) -> (Bound, f64) {
    let c = &task.conv;
    match candidates.top() {
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
    }
}

/// Number of a convolution's interval: its likeliest family, grouped or not, sure or not.
fn interval_number(task: &Task, candidates: &Candidates) -> usize {
    let (family, sure) = match candidates.top() {
        Some((g, _, _)) => (g.variant.family as usize, g.probability > conv::SURE),
        None => (0, false),
    };
    4 * family + 2 * usize::from(task.grouped()) + usize::from(sure)
}
