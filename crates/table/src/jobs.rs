//! Rows that are jobs: one iteration of a model on a GPU, or on a cluster by a plan.

use crate::answer::JobAnswer;
use crate::columns::Columns;
use crate::engine::{Engine, changes};
use crate::plan;
use preflop_cluster::asked::AskedStrategy;
use preflop_cluster::model::Stack;
use preflop_cluster::strategy::{Fsdp, Offload, Recompute, Schedule};
use preflop_core::Gpu;
use preflop_core::cost::rank::usd_per_million_samples;
use preflop_core::cost::{Power, Reserve, fit, search};
use preflop_core::model::{
    Graph, Iteration, LowerOptions, Mode, OptimizerChoice, Precision, Run, launched, lower, zoo,
};
use preflop_core::names::did_you_mean;
use preflop_core::schedule::Schedule as _;
use rayon::prelude::*;
use std::sync::Arc;

/// The columns that mean something, beside `gpu.KEY`, which changes a figure of the GPU.
pub const COLUMNS: [&str; 28] = [
    "model",
    "gpu",
    "batch",
    "seq",
    "precision",
    "mode",
    "optimizer",
    "run",
    "layout",
    "attention",
    "usd_per_hour",
    "cluster",
    "gpus",
    "tp",
    "dp",
    "pp",
    "cp",
    "ep",
    "interleave",
    "micro_batch",
    "global_batch",
    "recompute",
    "sequence_parallel",
    "zero",
    "fsdp",
    "schedule",
    "offload",
    "stack",
];

/// Largest size of a plan that is read.
const MAX_SIZE: u64 = 1 << 24;

pub(crate) fn is_column(name: &str) -> bool {
    COLUMNS.contains(&name) || name.starts_with("gpu.")
}

/// How feature maps lie and attention is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Form {
    pub channels_last: bool,
    pub eager_attention: bool,
}

/// A job as its row says it.
#[derive(Debug, Clone)]
pub(crate) struct Job<'a> {
    pub model: &'a str,
    pub gpu: Option<&'a str>,
    pub batch: Option<u64>,
    pub seq: Option<u64>,
    pub precision: Option<Precision>,
    pub mode: Mode,
    pub optimizer: Option<OptimizerChoice>,
    pub run: Option<Run>,
    pub form: Form,
    pub usd_per_hour: Option<f64>,
    pub cluster: Option<&'a str>,
    pub gpus: Option<u64>,
    pub asked: AskedStrategy,
}

/// What the operators of a job depend on.
pub(crate) type Key =
    (String, Option<u64>, Option<u64>, Precision, Mode, Option<OptimizerChoice>, Option<Run>, Form);

/// A model made ready.
#[derive(Debug)]
pub(crate) struct Lowered {
    pub graph: Graph,
    pub iteration: Iteration,
    pub options: LowerOptions,
}

const MODES: [(&str, Mode); 2] = [("train", Mode::Train), ("infer", Mode::Infer)];
const RUNS: [(&str, Run); 4] = [
    ("eager", Run::Eager),
    ("graph", Run::Graph),
    ("compile", Run::Compile),
    ("compile-graph", Run::CompileGraph),
];
const LAYOUTS: [(&str, bool); 2] = [("nchw", false), ("channels-last", true)];
const ATTENTIONS: [(&str, bool); 2] = [("fused", false), ("eager", true)];
const RECOMPUTES: [(&str, Recompute); 3] =
    [("none", Recompute::None), ("selective", Recompute::Selective), ("full", Recompute::Full)];
const FSDPS: [(&str, Fsdp); 3] = [("full", Fsdp::Full), ("grad-op", Fsdp::GradOp), ("hybrid", Fsdp::Hybrid)];
const SCHEDULES: [(&str, Schedule); 3] =
    [("1f1b", Schedule::OneFOneB), ("gpipe", Schedule::Gpipe), ("zero-bubble", Schedule::ZeroBubble)];
const OFFLOADS: [(&str, Offload); 3] =
    [("none", Offload::None), ("optimizer", Offload::Optimizer), ("activations", Offload::Activations)];
const STACKS: [(&str, Stack); 4] = [
    ("eager", Stack::Eager),
    ("compiled", Stack::Compiled),
    ("megatron", Stack::Megatron),
    ("te", Stack::Te),
];

/// The values that a column may have, where it has only some.
pub fn choices(column: &str) -> Option<Vec<&'static str>> {
    fn names<T>(known: &[(&'static str, T)]) -> Vec<&'static str> {
        known.iter().map(|(name, _)| *name).collect()
    }
    Some(match column {
        "precision" => Precision::ALL.map(Precision::name).to_vec(),
        "mode" => names(&MODES),
        "optimizer" => names(&OptimizerChoice::SPELLINGS),
        "run" => names(&RUNS),
        "layout" => names(&LAYOUTS),
        "attention" => names(&ATTENTIONS),
        "recompute" => names(&RECOMPUTES),
        "fsdp" => names(&FSDPS),
        "schedule" => names(&SCHEDULES),
        "offload" => names(&OFFLOADS),
        "stack" => names(&STACKS),
        _ => return None,
    })
}

/// Is this one of the values that the column may have?
pub(crate) fn check_choice(column: &str, value: &str) -> Result<(), String> {
    let Some(known) = choices(column) else { return Ok(()) };
    if known.contains(&value) {
        return Ok(());
    }
    let hint = did_you_mean(value, known.iter().copied());
    Err(format!("`{column}` is `{value}`{hint} (it may be {})", known.join(", ")))
}

impl<'a> Job<'a> {
    fn read(columns: &'a Columns, row: usize) -> Result<Self, String> {
        let text = |name: &str| columns.get(name).map_or(Ok(None), |c| c.text(row));
        let count = |name: &str, most: u64| columns.get(name).map_or(Ok(None), |c| c.count(row, most));
        let size = |name: &str| count(name, MAX_SIZE);
        let (layout, attention) =
            (pick(columns, "layout", row, &LAYOUTS)?, pick(columns, "attention", row, &ATTENTIONS)?);
        let zero = columns.get("zero").map_or(Ok(None), |c| c.number(row))?;
        if let Some(stage) = zero.filter(|z| ![0.0, 1.0, 2.0, 3.0].contains(z)) {
            return Err(format!("`zero` is {stage}; a ZeRO stage is 0, 1, 2 or 3"));
        }
        let flag = columns.get("sequence_parallel").map_or(Ok(None), |c| c.flag(row))?;
        let job = Self {
            model: text("model")?.ok_or("`model` is empty")?,
            gpu: text("gpu")?,
            batch: count("batch", zoo::MAX_BATCH)?,
            seq: count("seq", zoo::MAX_SEQ)?,
            precision: pick(columns, "precision", row, &Precision::ALL.map(|p| (p.name(), p)))?,
            mode: pick(columns, "mode", row, &MODES)?.unwrap_or(Mode::Train),
            optimizer: pick(columns, "optimizer", row, &OptimizerChoice::SPELLINGS)?,
            run: pick(columns, "run", row, &RUNS)?,
            form: Form {
                channels_last: layout.unwrap_or(false),
                eager_attention: attention.unwrap_or(false),
            },
            usd_per_hour: columns.get("usd_per_hour").map_or(Ok(None), |c| c.number(row))?,
            cluster: text("cluster")?,
            gpus: size("gpus")?,
            asked: AskedStrategy {
                tp: size("tp")?,
                dp: size("dp")?,
                pp: size("pp")?,
                cp: size("cp")?,
                ep: size("ep")?,
                interleave: size("interleave")?,
                micro_batch: size("micro_batch")?,
                global_batch: size("global_batch")?,
                recompute: pick(columns, "recompute", row, &RECOMPUTES)?,
                sequence_parallel: flag.unwrap_or(false),
                zero: zero.map(|z| z as u8),
                fsdp: pick(columns, "fsdp", row, &FSDPS)?,
                schedule: pick(columns, "schedule", row, &SCHEDULES)?,
                offload: pick(columns, "offload", row, &OFFLOADS)?,
                stack: pick(columns, "stack", row, &STACKS)?,
            },
        };
        if let Some(usd) = job.usd_per_hour.filter(|usd| !(0.0..=1e9).contains(usd)) {
            return Err(format!("`usd_per_hour` is {usd}; it must be 0 or more"));
        }
        if job.cluster.is_none() && (job.asked != AskedStrategy::default() || job.gpus.is_some()) {
            return Err(
                "a plan (`tp`, `dp`, ..) needs several GPUs: name them in `cluster`, as `8xh100`".into()
            );
        }
        Ok(job)
    }

    /// The model in a format, made ready.
    pub(crate) fn lowered(
        &self,
        engine: &Engine,
        precision: Precision,
        form: Form,
    ) -> Result<Arc<Lowered>, String> {
        let key = (
            self.model.to_string(),
            self.batch,
            self.seq,
            precision,
            self.mode,
            self.optimizer,
            self.run,
            form,
        );
        engine.lowered.get(key, || {
            let mut graph = engine.source.model(self.model, self.batch, self.seq)?;
            if form.eager_attention {
                graph = graph.with_eager_attention();
            }
            if form.channels_last {
                if graph.fixed.is_some() {
                    return Err(format!("`{}` is a recorded iteration, which has its layout", self.model));
                }
                graph.channels_last = true;
            }
            let options =
                graph.settled(LowerOptions { mode: self.mode, precision, optimizer: self.optimizer });
            let recorded = graph.fixed.as_ref().map_or(Run::Eager, |f| f.run);
            let run = self.run.unwrap_or(recorded);
            if recorded.compiles() && !run.compiles() {
                return Err(format!("`{}` was recorded compiled and has no eager form", self.model));
            }
            let iteration = launched(lower(&graph, &options).map_err(|e| e.to_string())?, run);
            Ok(Lowered { graph, iteration, options })
        })
    }

    fn on_one(&self, engine: &Engine, gpu: &Gpu, is_changed: bool) -> Result<JobAnswer, String> {
        let job = self.lowered(engine, self.precision.unwrap_or_default(), self.form)?;
        let (iteration, recorded) = (&job.iteration, job.graph.fixed.is_some());
        if let Some(lacks) = search::lacks(gpu, job.options.precision).filter(|_| !recorded) {
            return Err(lacks);
        }
        let p = engine.model.predict_iteration(iteration, gpu);
        let (reserve, prudent) = (Reserve::default(), fit::prudent_peak(iteration));
        let samples_per_s = iteration.samples as f64 / p.time.0;
        let power = Power::of(iteration, &p, gpu);
        // A GPU that is not the catalogue's has no price but the row's own.
        let listed = || engine.prices.quote(&gpu.name, engine.pricing).filter(|_| !is_changed);
        let usd = self.usd_per_hour.or_else(|| listed().map(|quote| quote.usd_per_hour));
        Ok(JobAnswer {
            iteration_ms: p.time.ms(),
            low_ms: p.low.ms(),
            high_ms: p.high.ms(),
            gpu_busy_ms: Some(p.gpu_busy.ms()),
            host_ms: Some(p.host.ms()),
            bound: Some(p.bound),
            kernels: Some(p.launches),
            memory_mib: iteration.memory.peak.mib(),
            needed_mib: reserve.needed(prudent).mib(),
            fits: reserve.fits(prudent, gpu),
            samples_per_s,
            flops: Some(p.flops.0),
            dram_bytes: Some(p.dram.0),
            watts: Some(power.watts),
            joules_per_sample: Some(power.per_sample(samples_per_s).joules),
            usd_per_hour: usd,
            usd_per_million_samples: usd.map(|usd| usd_per_million_samples(usd, samples_per_s)),
        })
    }
}

fn pick<T: Copy>(
    columns: &Columns,
    name: &str,
    row: usize,
    known: &[(&str, T)],
) -> Result<Option<T>, String> {
    let Some(text) = columns.get(name).map_or(Ok(None), |c| c.text(row))? else { return Ok(None) };
    if let Some((_, value)) = known.iter().find(|(n, _)| *n == text) {
        return Ok(Some(*value));
    }
    check_choice(name, text).map(|()| None)
}

/// Predicts rows on all cores.
pub(crate) fn predict(engine: &Engine, columns: &Columns, count: usize) -> Vec<Result<JobAnswer, String>> {
    let changes = changes(columns);
    (0..count)
        .into_par_iter()
        .map(|row| {
            let job = Job::read(columns, row)?;
            let gpu = job.gpu.map(|name| engine.gpu(name, &changes, row)).transpose()?;
            let mut is_changed = false;
            for (_, column) in &changes {
                is_changed |= column.number(row)?.is_some();
            }
            if job.cluster.is_some() {
                return plan::predict(engine, &job, gpu.as_deref());
            }
            let gpu = gpu.ok_or("`gpu` is empty, and there is no `cluster`")?;
            job.on_one(engine, &gpu, is_changed).and_then(finite)
        })
        .collect()
}

fn finite(answer: JobAnswer) -> Result<JobAnswer, String> {
    let all = [answer.iteration_ms, answer.low_ms, answer.high_ms, answer.memory_mib, answer.samples_per_s];
    if all.iter().any(|x| !x.is_finite()) {
        return Err("its sizes are too large to predict".to_string());
    }
    Ok(answer)
}
