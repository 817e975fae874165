//! Rows that are jobs: one iteration of a model on a GPU, or on a cluster by a plan.

use crate::answer::JobAnswer;
use crate::choices::{
    ALGORITHMS, ATTENTIONS, CACHES, FSDPS, LAYOUTS, OFFLOADS, RECOMPUTES, RUNS, SCHEDULES, STACKS, STEPS,
    Step, pick,
};
use crate::columns::Columns;
use crate::engine::{Engine, changes};
use crate::plan;
use preflop_cluster::asked::AskedStrategy;
use preflop_core::Gpu;
use preflop_core::cost::rank::usd_per_million_samples;
use preflop_core::cost::{Power, Reserve, fit, search};
use preflop_core::model::{
    Checkpoint, Form as RunForm, Graph, Iteration, LowerOptions, OptimizerChoice, Precision, Run, Stage, zoo,
};
use preflop_core::schedule::Schedule as _;
use rayon::prelude::*;
use std::sync::Arc;

/// The columns that mean something, beside `gpu.KEY`, which changes a figure of the GPU.
pub const COLUMNS: [&str; 33] = [
    "model",
    "gpu",
    "batch",
    "seq",
    "precision",
    "mode",
    "context",
    "cache",
    "optimizer",
    "lora",
    "run",
    "layout",
    "checkpoint",
    "algorithms",
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

/// How the model is built: what is computed of it, its adapters, how feature maps lie, how attention is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Form {
    pub stage: Stage,
    pub lora: Option<u64>,
    pub channels_last: bool,
    pub eager_attention: bool,
    pub checkpoint: Checkpoint,
    pub autotuned: bool,
}

/// A job as its row says it.
#[derive(Debug, Clone)]
pub(crate) struct Job<'a> {
    pub model: &'a str,
    pub gpu: Option<&'a str>,
    pub batch: Option<u64>,
    pub seq: Option<u64>,
    pub precision: Option<Precision>,
    pub mode: Step,
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
    (String, Option<u64>, Option<u64>, Precision, Step, Option<OptimizerChoice>, Option<Run>, Form);

/// A model made ready.
#[derive(Debug)]
pub(crate) struct Lowered {
    pub graph: Graph,
    pub iteration: Iteration,
    pub options: LowerOptions,
}

impl<'a> Job<'a> {
    fn read(columns: &'a Columns, row: usize) -> Result<Self, String> {
        let text = |name: &str| columns.get(name).map_or(Ok(None), |c| c.text(row));
        let count = |name: &str, most: u64| columns.get(name).map_or(Ok(None), |c| c.count(row, most));
        let size = |name: &str| count(name, MAX_SIZE);
        let (layout, attention) =
            (pick(columns, "layout", row, &LAYOUTS)?, pick(columns, "attention", row, &ATTENTIONS)?);
        let checkpoint = text("checkpoint")?.map_or(Ok(Checkpoint::None), str::parse)?;
        let zero = columns.get("zero").map_or(Ok(None), |c| c.number(row))?;
        if let Some(stage) = zero.filter(|z| ![0.0, 1.0, 2.0, 3.0].contains(z)) {
            return Err(format!("`zero` is {stage}; a ZeRO stage is 0, 1, 2 or 3"));
        }
        let mode = pick(columns, "mode", row, &STEPS)?.unwrap_or(Step::Train);
        let (seq, context) = (count("seq", zoo::MAX_SEQ)?, count("context", zoo::MAX_SEQ)?);
        let stage = mode.stage(seq, context, pick(columns, "cache", row, &CACHES)?)?;
        let lora = size("lora")?;
        if lora.is_some() && mode != Step::Train {
            return Err("`lora` trains adapters, so it is for `mode` train; merged ones cost nothing".into());
        }
        let flag = columns.get("sequence_parallel").map_or(Ok(None), |c| c.flag(row))?;
        let job = Self {
            model: text("model")?.ok_or("`model` is empty")?,
            gpu: text("gpu")?,
            batch: count("batch", zoo::MAX_BATCH)?,
            seq,
            precision: pick(columns, "precision", row, &Precision::ALL.map(|p| (p.name(), p)))?,
            mode,
            optimizer: pick(columns, "optimizer", row, &OptimizerChoice::SPELLINGS)?,
            run: pick(columns, "run", row, &RUNS)?,
            form: Form {
                stage,
                lora,
                channels_last: layout.unwrap_or(false),
                eager_attention: attention.unwrap_or(false),
                checkpoint,
                autotuned: pick(columns, "algorithms", row, &ALGORITHMS)?.unwrap_or(false),
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
                batch: None,
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
            let mut graph = engine.source.model(self.model, self.batch, self.seq, form.stage)?;
            if let Some(rank) = form.lora {
                graph = graph.with_adapters(rank).map_err(|e| e.to_string())?;
            }
            if form.eager_attention {
                graph = graph.with_eager_attention();
            }
            let mode = self.mode.mode();
            let options = graph.settled(LowerOptions { mode, precision, optimizer: self.optimizer });
            let run = self.launched(form);
            run.shape(&mut graph, options.mode).map_err(|e| e.to_string())?;
            let iteration = run.lower(&graph, &options).map_err(|e| e.to_string())?;
            Ok(Lowered { graph, iteration, options })
        })
    }

    /// The form as the core takes it.
    pub(crate) fn launched(&self, form: Form) -> RunForm {
        RunForm {
            run: self.run,
            channels_last: form.channels_last,
            checkpoint: form.checkpoint,
            autotuned: form.autotuned,
        }
    }

    fn on_one(&self, engine: &Engine, gpu: &Gpu, is_changed: bool) -> Result<JobAnswer, String> {
        let job = self.lowered(engine, self.precision.unwrap_or(self.mode.precision()), self.form)?;
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
