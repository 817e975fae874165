//! `predict`: time, memory and operators of one iteration, with the names that scripts rely on.

use crate::engine::{Engine, text};
use crate::error::ApiError;
use crate::lines::{lines, with_lines};
use crate::model_file::PREFIX;
use crate::question::Predict;
use preflop_cluster::room;
use preflop_core::Gpu;
use preflop_core::cost::room::{Change, Misfit};
use preflop_core::cost::{Reserve, fit, search};
use preflop_core::gpu::Assumption;
use preflop_core::model::{Iteration, OptimizerChoice, Phase, Precision, Step};
use preflop_core::ops::Op;
use preflop_core::schedule::Schedule as _;
use preflop_core::time::{Bound, IterationPrediction, OpPrediction};
use preflop_language::Words;
use serde::Serialize;
use std::collections::HashMap;
use utoipa::ToSchema;

/// What was asked for.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = PredictQuestion)]
pub struct Question {
    /// Model name.
    pub model: String,
    /// GPU name.
    pub gpu: String,
    /// Samples of one iteration.
    pub batch: u64,
    /// Tokens of one sample, for models that have them.
    pub seq: Option<u64>,
    /// Number formats.
    pub precision: &'static str,
    /// Training or inference, or a step of generation.
    pub mode: &'static str,
    /// Tokens before the new one, in decode.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub context: Option<u64>,
    /// How it is launched: eager, graph, compile, compile-graph.
    pub run: &'static str,
    /// Optimizer of a training step, where it was not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub optimizer: Option<&'static str>,
    /// Which of PyTorch's implementations runs it: single, foreach, fused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub optimizer_implementation: Option<&'static str>,
    /// How feature maps lie: nchw, channels-last. A recorded iteration has its own layout.
    pub layout: &'static str,
    /// Which activations are computed again in backward: none, full, every=K.
    pub checkpoint: String,
    /// How algorithms of convolutions are chosen: heuristic, autotuned.
    pub algorithms: &'static str,
    /// How many times as long as the usual host the job's takes, where that was said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub host_factor: Option<f64>,
    /// What a reader of the result should know.
    pub notes: Vec<String>,
}

/// The name of a layout.
pub fn layout_name(channels_last: bool) -> &'static str {
    if channels_last { "channels-last" } else { "nchw" }
}

/// The name of who chooses algorithms.
pub fn algorithms_name(autotuned: bool) -> &'static str {
    if autotuned { "autotuned" } else { "heuristic" }
}

/// The answer, with the names and units that scripts rely on.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Prediction)]
#[allow(missing_docs)]
pub struct Answer<'a> {
    #[serde(flatten)]
    pub question: &'a Question,
    pub iteration_ms: f64,
    pub low_ms: f64,
    pub high_ms: f64,
    /// What the interval rests on.
    pub evidence: &'static str,
    /// Time of all kernels.
    pub gpu_busy_ms: f64,
    /// Time in which the GPU works: less than that of all kernels where several run at once.
    pub gpu_wall_ms: f64,
    pub host_ms: f64,
    /// Kernels that a profiler would count.
    pub kernels: f64,
    pub memory_mib: f64,
    /// The peak with context and reserve: what the card must have.
    pub needed_mib: f64,
    pub fits: bool,
    /// Where it does not fit, the largest batch that does; 0 if none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub largest_batch: Option<u64>,
    pub samples_per_s: f64,
    /// Tokens a second and model FLOPs utilisation, of models that read tokens.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub words: Option<Words>,
    pub flops: f64,
    pub dram_bytes: f64,
    #[schema(value_type = String)]
    pub bound: Bound,
    /// The 16-bit format that autocast takes on this GPU, where the run has autocast.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub autocast: Option<&'static str>,
    pub unmodelled: Vec<Unmodelled<'a>>,
    pub ops: Vec<OpLine<'a>>,
    pub parameters: u64,
    /// Where it does not fit and that was asked for, what would make it: on this GPU, the least costly first, on another, on several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// Hours that the tokens asked for take.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub tokens_hours: Option<f64>,
    pub memory: MemoryParts,
    pub gpu_memory_mib: f64,
    pub assumptions: &'a [Assumption],
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub layers: Option<Vec<LayerLine<'a>>>,
}

/// An operator we know by name only, and how much of the GPU's time that concerns.
#[derive(Debug, Serialize, ToSchema)]
#[allow(missing_docs)]
pub struct Unmodelled<'a> {
    pub op: &'a str,
    pub count: u64,
    pub share: f64,
}

/// One operator in one place.
#[derive(Debug, Serialize, ToSchema)]
#[allow(missing_docs)]
pub struct OpLine<'a> {
    pub name: &'a str,
    pub op: &'a str,
    #[schema(value_type = String)]
    pub phase: Phase,
    pub count: u64,
    /// All `count` runs together.
    pub time_us: f64,
    pub share: f64,
    #[schema(value_type = String)]
    pub bound: Bound,
    pub pass: &'static str,
    pub dtype: &'static str,
    pub shape: String,
}

/// One layer: all its operators, forward, backward and optimizer together.
#[derive(Debug, Serialize, ToSchema)]
#[allow(missing_docs)]
pub struct LayerLine<'a> {
    pub name: &'a str,
    pub time_us: f64,
    pub share: f64,
    /// What binds most of its time.
    #[schema(value_type = String)]
    pub bound: Bound,
    pub forward_us: f64,
    pub backward_us: f64,
    pub optimizer_us: f64,
    #[serde(skip)]
    by_bound: [f64; 5],
}

/// Peak memory by part. The unit stands in every name, as in all JSON.
#[derive(Debug, Serialize, ToSchema)]
#[allow(clippy::struct_field_names, missing_docs)]
pub struct MemoryParts {
    pub weights_mib: f64,
    pub gradients_mib: f64,
    pub optimizer_mib: f64,
    pub activations_mib: f64,
    pub workspace_mib: f64,
    /// Keys and values of a language model.
    pub kv_cache_mib: f64,
}

type Steps<'a> = [(&'a Step, &'a OpPrediction)];

/// Steps with their predictions, and the GPU's time in microseconds (1 where there is none, so that shares stay
/// numbers).
pub fn steps<'a>(
    iteration: &'a Iteration,
    p: &'a IterationPrediction,
) -> (Vec<(&'a Step, &'a OpPrediction)>, f64) {
    let steps: Vec<(&Step, &OpPrediction)> =
        p.steps.iter().filter_map(|s| Some((iteration.steps.get(s.step)?, &s.one))).collect();
    let busy: f64 = steps.iter().map(|(s, p)| p.time.us() * f64::from(s.count)).sum();
    (steps, if busy > 0.0 { busy } else { 1.0 })
}

impl<'a> Answer<'a> {
    /// Puts the question, the operators and the prediction together.
    pub fn new(
        question: &'a Question,
        gpu: &'a Gpu,
        iteration: &'a Iteration,
        p: &'a IterationPrediction,
        largest_batch: Option<u64>,
    ) -> Self {
        let (steps, busy) = steps(iteration, p);
        let ops = lines(iteration, p, busy, gpu).iter().map(OpLine::from).collect();
        Self { ops, ..Self::without_lines(question, gpu, (iteration, p), (&steps, busy), largest_batch) }
    }

    /// As [`Answer::new`] for who prints no operators: they take longer than all else.
    pub fn without_operators(
        question: &'a Question,
        gpu: &'a Gpu,
        iteration: &'a Iteration,
        p: &'a IterationPrediction,
        largest_batch: Option<u64>,
    ) -> Self {
        let (steps, busy) = steps(iteration, p);
        Self::without_lines(question, gpu, (iteration, p), (&steps, busy), largest_batch)
    }

    /// All but the lines of the operators.
    fn without_lines(
        question: &'a Question,
        gpu: &'a Gpu,
        (iteration, p): (&'a Iteration, &'a IterationPrediction),
        (steps, busy): (&Steps<'a>, f64),
        largest_batch: Option<u64>,
    ) -> Self {
        let m = iteration.memory;
        let (reserve, prudent) = (Reserve::default(), fit::prudent_peak(iteration));
        Self {
            question,
            iteration_ms: p.time.ms(),
            low_ms: p.low.ms(),
            high_ms: p.high.ms(),
            evidence: p.evidence.name(),
            gpu_busy_ms: p.gpu_busy.ms(),
            gpu_wall_ms: p.gpu_wall.ms(),
            host_ms: p.host.ms(),
            kernels: p.launches,
            memory_mib: m.peak.mib(),
            needed_mib: reserve.needed(prudent).mib(),
            fits: reserve.fits(prudent, gpu),
            largest_batch,
            samples_per_s: iteration.samples as f64 / p.time.0,
            words: None,
            flops: p.flops.0,
            dram_bytes: p.dram.0,
            bound: p.bound,
            autocast: (question.precision == Precision::Amp.name()).then(|| gpu.autocast().name()),
            unmodelled: unmodelled(steps, busy),
            ops: Vec::new(),
            parameters: iteration.parameters,
            changes: Vec::new(),
            tokens_hours: None,
            memory: MemoryParts {
                weights_mib: m.weights.mib(),
                gradients_mib: m.gradients.mib(),
                optimizer_mib: m.optimizer.mib(),
                activations_mib: m.activations.mib(),
                workspace_mib: m.workspace.mib(),
                kv_cache_mib: m.cache.mib(),
            },
            gpu_memory_mib: gpu.memory.mib(),
            assumptions: &gpu.assumptions,
            layers: None,
        }
    }
}

/// Predicts.
pub(crate) fn answer(engine: &Engine, asked: &Predict) -> Result<String, ApiError> {
    let gpu = engine.gpu(&asked.gpu)?;
    let job = engine.jobs.job(&asked.run)?;
    if let Some(lacks) = search::lacks(gpu, job.options.precision).filter(|_| job.fixed.is_none()) {
        return Err(ApiError::invalid(lacks));
    }
    let model = engine.on_host(asked.host.as_deref())?;
    let prediction = model.predict_iteration(&job.iteration, gpu);
    let question = Question {
        model: job.model.clone(),
        gpu: gpu.name.clone(),
        batch: job.batch,
        seq: job.seq,
        precision: job.options.precision.name(),
        mode: job.options.mode.name(),
        context: None,
        run: job.form.run.or(job.fixed).unwrap_or_default().name(),
        optimizer: job.optimizer.map(|o| o.rule.name()),
        optimizer_implementation: job.optimizer.and_then(OptimizerChoice::implementation_name),
        layout: layout_name(job.form.channels_last),
        checkpoint: job.form.checkpoint.to_string(),
        algorithms: algorithms_name(job.form.autotuned),
        host_factor: model.host_factor(),
        notes: job.notes.clone(),
    };
    let reserve = Reserve::default();
    let largest = if reserve.fits(fit::prudent_peak(&job.iteration), gpu) {
        None
    } else {
        // A file may allow no other batch.
        match engine.jobs.largest_batch(&job, gpu, &reserve) {
            Err(_) if job.asked.starts_with(PREFIX) => None,
            found => Some(found?),
        }
    };
    let (steps, busy) = steps(&job.iteration, &prediction);
    let run = (&job.iteration, &prediction);
    let mut answer = Answer::without_lines(&question, gpu, run, (&steps, busy), largest);
    if job.seq.is_some() {
        let graph = engine.jobs.graph(&asked.run)?;
        answer.words = Words::of(&graph, &job.iteration, &prediction, gpu);
    }
    if asked.changes && !answer.fits {
        let at = Misfit { model: &model, gpu, reserve: &reserve, largest_batch: largest, elsewhere: true };
        answer.changes = room::changes(&mut engine.jobs.room(&asked.run, &job), &at);
    }
    if asked.layers {
        answer.layers = Some(layers(&steps, busy));
    }
    with_lines(&text(&answer)?, &lines(&job.iteration, &prediction, busy, gpu))
}

/// Layers in the order in which they first run.
fn layers<'a>(steps: &Steps<'a>, busy: f64) -> Vec<LayerLine<'a>> {
    const BOUNDS: [Bound; 5] = [Bound::Compute, Bound::Dram, Bound::L2, Bound::Latency, Bound::Host];
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut lines: Vec<LayerLine> = Vec::new();
    for (step, p) in steps {
        let time = p.time.us() * f64::from(step.count);
        let place = *places.entry(step.name.as_str()).or_insert_with(|| {
            lines.push(LayerLine {
                name: &step.name,
                time_us: 0.0,
                share: 0.0,
                bound: p.bound,
                forward_us: 0.0,
                backward_us: 0.0,
                optimizer_us: 0.0,
                by_bound: [0.0; 5],
            });
            lines.len() - 1
        });
        let line = &mut lines[place];
        line.time_us += time;
        line.share += time / busy;
        line.by_bound[p.bound as usize] += time;
        match step.phase {
            Phase::Forward => line.forward_us += time,
            Phase::Backward => line.backward_us += time,
            Phase::Optimizer => line.optimizer_us += time,
        }
    }
    for line in &mut lines {
        let most = line.by_bound.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        line.bound = most.map_or(line.bound, |(i, _)| BOUNDS[i]);
    }
    lines
}

fn unmodelled<'a>(steps: &Steps<'a>, busy: f64) -> Vec<Unmodelled<'a>> {
    let mut out: Vec<Unmodelled> = Vec::new();
    for (step, p) in steps {
        let Op::Unmodelled { name, .. } = &step.call.op else { continue };
        let (count, share) = (u64::from(step.count), p.time.us() * f64::from(step.count) / busy);
        match out.iter_mut().find(|u| u.op == name) {
            Some(known) => {
                known.count += count;
                known.share += share;
            }
            None => out.push(Unmodelled { op: name, count, share }),
        }
    }
    out.sort_by(|a, b| b.share.total_cmp(&a.share));
    out
}
