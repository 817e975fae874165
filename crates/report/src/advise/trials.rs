//! Ways to run, each lowered and predicted: what two of them have in common is done once.

use super::{Advice, Trial, autotuned, groups};
use preflop_cost::{Reserve, fit};
use preflop_gpu::Gpu;
use preflop_graph::graph::GraphOp;
use preflop_graph::{Graph, HostWork, Iteration, LowerOptions, OptimizerChoice, Phase, Precision, Step, zoo};
use preflop_lower::Form;
use preflop_ops::{Elementwise, ElementwiseKind, Op, OpCall};
use preflop_schedule::{Known, Schedule as _};
use preflop_time::TimeModel;
use preflop_units::Seconds;
use preflop_units::dtype::Dtype;
use std::borrow::Cow;
use std::collections::VecDeque;

/// What a lowering depends on.
type Shared = (Form, Precision, Option<OptimizerChoice>, Option<u64>, bool);

/// Lowerings kept: as many as single options have.
const KEPT: usize = 8;

/// Trials of one run on one GPU.
pub(super) struct Trials<'a> {
    model: &'a TimeModel,
    graph: &'a Graph,
    options: LowerOptions,
    gpu: &'a Gpu,
    known: Known,
    /// Before they are captured and autotuned, the latest first.
    lowered: VecDeque<(Shared, Iteration)>,
}

/// What came out of one.
pub(super) struct Tried {
    pub time: Seconds,
    low: Seconds,
    high: Seconds,
    samples: u64,
    memory_mib: f64,
    fits: bool,
    /// Has it convolutions?
    pub convolves: bool,
}

impl Tried {
    /// What it brings over the run as it is now.
    pub fn advice(&self, trial: &Trial, now: &Self) -> Advice {
        let before = now.samples as f64 / now.time.0.max(f64::MIN_POSITIVE);
        let gain = |time: Seconds| 1.0 - before * time.0 / self.samples as f64;
        Advice {
            options: trial.said.clone(),
            iteration_ms: self.time.ms(),
            low_ms: self.low.ms(),
            high_ms: self.high.ms(),
            gain: gain(self.time),
            gain_low: gain(self.high),
            gain_high: gain(self.low),
            memory_mib: self.memory_mib,
            fits: self.fits,
            how: trial.how.clone(),
            cost: trial.cost.clone(),
        }
    }
}

impl<'a> Trials<'a> {
    pub fn new(model: &'a TimeModel, graph: &'a Graph, options: LowerOptions, gpu: &'a Gpu) -> Self {
        Self { model, graph, options, gpu, known: Known::default(), lowered: VecDeque::new() }
    }

    fn shared(&self, trial: &Trial) -> Shared {
        let form = trial.form.lowers_like(self.graph);
        (form, trial.precision, trial.optimizer, trial.batch, trial.fused_attention)
    }

    /// The iteration of a trial, before it is captured and autotuned.
    fn lowering(&mut self, of: &Shared, trial: &Trial) -> Option<Iteration> {
        match self.lowered.iter().position(|(shared, _)| shared == of) {
            Some(at) => Some(self.lowered.remove(at)?.1),
            None => lowered(self.graph, self.options, trial),
        }
    }

    /// Lowers and predicts one; nothing where it cannot be run so.
    pub fn predict(&mut self, trial: &Trial) -> Option<Tried> {
        let shared = self.shared(trial);
        let once = self.lowering(&shared, trial)?;
        let (memory, replayed) = (once.memory, once.replayed);
        let iteration = trial.form.replayed(self.graph, once);
        let tried = if trial.accumulates {
            self.predicted(&accumulated(&iteration))
        } else {
            self.predicted(&iteration)
        };
        self.lowered.push_front((shared, Iteration { memory, replayed, autotuned: false, ..iteration }));
        self.lowered.truncate(KEPT);
        Some(tried)
    }

    fn predicted(&mut self, iteration: &Iteration) -> Tried {
        let p = self.model.predict_iteration_with(iteration, self.gpu, &mut self.known);
        Tried {
            time: p.time,
            low: p.low,
            high: p.high,
            samples: iteration.samples,
            memory_mib: iteration.memory.peak.mib(),
            fits: Reserve::default().fits(fit::prudent_peak(iteration), self.gpu),
            convolves: iteration.steps.iter().any(|s| matches!(s.call.op, Op::Conv(_))),
        }
    }

    /// The gain of the run that was lowered last without some of its steps: what changes these alone brings no more.
    fn gain_without(
        &mut self,
        iteration: &mut Iteration,
        now: &Tried,
        dropped: impl Fn(&Step) -> bool,
    ) -> f64 {
        let host = iteration.host;
        let mut counts = Vec::new();
        for (i, step) in iteration.steps.iter_mut().enumerate().filter(|(_, s)| dropped(s)) {
            counts.push((i, std::mem::take(&mut step.count)));
        }
        let optimizes = iteration.steps.iter().any(|s| s.phase == Phase::Optimizer && s.count > 0);
        if !optimizes {
            iteration.host.parameter_tensors = 0;
        }
        let time = self.predicted(iteration).time;
        for (i, count) in counts {
            iteration.steps[i].count = count;
        }
        iteration.host = host;
        1.0 - time.0 / now.time.0.max(f64::MIN_POSITIVE)
    }
}

/// A run that was lowered and predicted already.
#[derive(Debug)]
pub struct Asked<'a> {
    /// The network.
    pub graph: &'a Graph,
    /// How it was lowered.
    pub options: LowerOptions,
    /// In which form.
    pub form: Form,
    /// What it became.
    pub iteration: &'a Iteration,
    /// What was predicted of its calls.
    pub known: Known,
}

/// Single options that save at least the share `worth` of the time, the best that fit first: as [`super::rank_together`] finds them. Those that
/// cannot save so much are not tried: checkpoints compute more, and what changes a few steps saves no more than these take.
///
/// `both` does two things, at the same time where the caller has threads.
pub fn helps<B>(model: &TimeModel, asked: Asked<'_>, gpu: &Gpu, worth: f64, both: B) -> Vec<Advice>
where
    B: FnOnce(&mut (dyn FnMut() + Send), &mut (dyn FnMut() + Send)),
{
    let Asked { graph, options, form, iteration, known } = asked;
    let base = Trial::base(graph, options, form);
    let mut trials = Trials { known, ..Trials::new(model, graph, options, gpu) };
    let now = trials.predicted(iteration);
    let mut own = iteration.clone();
    let optimized = trials.gain_without(&mut own, &now, |s| s.phase == Phase::Optimizer) >= worth;
    // Products in fp32 are what TF32 changes.
    let plain = |s: &Step| {
        let products = matches!(s.call.op, Op::Gemm(_) | Op::Conv(_) | Op::Attention(_) | Op::Rnn(_));
        products && s.call.dtype == Dtype::Fp32
    };
    let multiplied = trials.gain_without(&mut own, &now, plain) >= worth;
    // In 16-bit formats a trial of algorithms changes no prediction.
    let tuned = |s: &Step| matches!(s.call.op, Op::Conv(_)) && !s.call.dtype.is_half();
    let tunes = !form.autotuned && own.steps.iter().any(tuned);
    let mut others = Trials { known: trials.known.clone(), ..Trials::new(model, graph, options, gpu) };
    if !own.replayed && !own.autotuned {
        let shared = trials.shared(&base);
        trials.lowered.push_front((shared, own));
    }
    let steps = groups(graph, options, &base, gpu).into_iter().flatten();
    let all = steps.map(|(said, how, cost, change)| base.with(said, how, cost, change));
    let all = all.chain(tunes.then(|| autotuned(&base))).filter(|trial| {
        let optimizes = trial.accumulates || trial.optimizer != base.optimizer;
        let computes_more = trial.form.checkpoint != base.form.checkpoint;
        let multiplies = trial.precision == Precision::Tf32 && base.precision != Precision::Tf32;
        !computes_more && (optimized || !optimizes) && (multiplied || !multiplies)
    });
    // Those that have a lowering in common stay together.
    let (like, unlike): (Vec<Trial>, Vec<Trial>) = all.partition(|trial| {
        let laid_out = trial.form.channels_last == base.form.channels_last;
        laid_out && trial.precision == base.precision && !trial.fused_attention && trial.batch.is_none()
    });
    let (mut found, mut more) = (Vec::new(), Vec::new());
    let mut first = || found.extend(like.iter().filter_map(|t| Some(trials.predict(t)?.advice(t, &now))));
    let mut second = || more.extend(unlike.iter().filter_map(|t| Some(others.predict(t)?.advice(t, &now))));
    both(&mut first, &mut second);
    found.append(&mut more);
    found.retain(|advice| advice.gain >= worth);
    found.sort_by(|a, b| b.fits.cmp(&a.fits).then(b.gain.total_cmp(&a.gain)));
    found
}

/// Two batches for one step of the optimizer: the second one's gradients are added to the first one's.
fn accumulated(iteration: &Iteration) -> Iteration {
    let (last, both): (Vec<_>, Vec<_>) =
        iteration.steps.iter().cloned().partition(|s| s.phase == Phase::Optimizer);
    let tensors = iteration.host.parameter_tensors.max(1);
    let add = Step {
        name: "gradients".to_owned(),
        phase: Phase::Backward,
        call: OpCall::fwd(
            Op::Elementwise(Elementwise {
                kind: ElementwiseKind::Add,
                n: (iteration.parameters / tensors).max(1),
            }),
            Dtype::Fp32,
        ),
        count: u32::try_from(tensors).unwrap_or(u32::MAX),
    };
    let mut steps = both.clone();
    steps.extend(both);
    steps.push(add);
    steps.extend(last);
    let host = HostWork {
        forward_ops: 2 * iteration.host.forward_ops,
        module_calls: 2 * iteration.host.module_calls,
        backward_ops: 2 * iteration.host.backward_ops,
        ..iteration.host
    };
    Iteration { steps, host, samples: 2 * iteration.samples, ..iteration.clone() }
}

/// The iteration of a trial, before it is captured, autotuned and accumulated.
fn lowered(graph: &Graph, options: LowerOptions, trial: &Trial) -> Option<Iteration> {
    let settled = LowerOptions { precision: trial.precision, optimizer: trial.optimizer, ..options };
    // A graph is copied only where the trial changes it.
    let mut graph = match trial.batch {
        Some(batch) => Cow::Owned(zoo::build(&graph.name, Some(batch), graph.seq).ok()?),
        None => Cow::Borrowed(graph),
    };
    if graph.fixed.is_none() && trial.form.shapes() {
        trial.form.shape(graph.to_mut(), options.mode).ok()?;
    }
    if trial.fused_attention {
        for node in &mut graph.to_mut().nodes {
            if let GraphOp::Attention { eager, .. } = &mut node.op {
                *eager = false;
            }
        }
    }
    trial.form.lower_once(&graph, &settled).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::rank_together;
    use preflop_gpu::catalog;
    use preflop_graph::{Mode, Run};

    #[test]
    fn what_helps_is_what_the_ranking_of_all_finds() {
        let model = TimeModel::embedded();
        let worth = 0.05;
        for (name, batch, mode, precision, run, gpu) in [
            ("resnet18", 64, Mode::Train, Precision::Pytorch, Run::Eager, "h200"),
            ("resnet18", 8, Mode::Infer, Precision::Fp32, Run::Graph, "l4"),
            ("gpt2", 4, Mode::Train, Precision::Pytorch, Run::Eager, "a100-sxm-80gb"),
            ("gpt2", 64, Mode::Train, Precision::Bf16, Run::Compile, "h200"),
            ("bert-base", 2, Mode::Infer, Precision::Amp, Run::Eager, "v100-sxm2-16gb"),
            ("mobilenet_v2", 1, Mode::Train, Precision::Fp32, Run::Eager, "t4"),
        ] {
            let gpu = catalog::find(gpu).unwrap();
            let graph = zoo::build(name, Some(batch), None).unwrap();
            let (options, form) = (LowerOptions { mode, precision, optimizer: None }, Form::from(run));
            let mut expected = rank_together(&model, &graph, options, form, &gpu, 1).options;
            expected.retain(|advice| advice.gain >= worth);
            let (iteration, mut known) = (form.lower(&graph, &options).unwrap(), Known::default());
            model.predict_iteration_with(&iteration, &gpu, &mut known);
            let asked = Asked { graph: &graph, options, form, iteration: &iteration, known };
            let in_turn = |a: &mut (dyn FnMut() + Send), b: &mut (dyn FnMut() + Send)| {
                a();
                b();
            };
            assert_eq!(helps(&model, asked, &gpu, worth, in_turn), expected, "{name} on {}", gpu.name);
        }
    }
}
