//! A job on several GPUs, by the plan that its row asks for; as `preflop predict --cluster` does it.

use crate::answer::JobAnswer;
use crate::choices::Step;
use crate::engine::Engine;
use crate::jobs::{Form, Job};
use preflop_cluster::Cluster;
use preflop_cluster::asked::formats;
use preflop_cluster::memory::RankMemory;
use preflop_cluster::model::{Attention, Transformer};
use preflop_cluster::plan::power;
use preflop_cluster::rank::CoreTimes;
use preflop_cluster::run::{Copies, Part, Roles, Way};
use preflop_cluster::strategy::Strategy;
use preflop_core::Gpu;
use preflop_core::cost::rank::usd_per_million_samples;
use preflop_core::cost::{Reserve, search};
use preflop_core::model::{Checkpoint, LowerOptions, Mode, Precision};

const MIB: f64 = 1_048_576.0;

/// Predicts the plan of a row.
pub(crate) fn predict(engine: &Engine, job: &Job<'_>, gpu: Option<&Gpu>) -> Result<JobAnswer, String> {
    if job.mode != Step::Train {
        return Err("a `cluster` is for training; other modes are for one GPU".to_string());
    }
    let text = |e: preflop_cluster::ClusterError| e.to_string();
    let mut cluster = engine.source.cluster(job.cluster.unwrap_or_default())?;
    if let Some(gpu) = gpu {
        cluster.node = cluster.node.with_gpu(gpu.clone());
    }
    if let Some(gpus) = job.gpus {
        cluster = cluster.with_gpus(gpus).map_err(text)?;
    }
    if cluster.count > 1 && cluster.node.network.0 <= 0.0 {
        return Err(format!("`{}` has {} nodes and no network between them", cluster.name, cluster.count));
    }
    if let Some(lacks) = job.precision.and_then(|precision| search::lacks(&cluster.node.gpu, precision)) {
        return Err(lacks);
    }
    let precision = job.precision.unwrap_or(Precision::Bf16);
    // Roles are those of the model as it is: how it is run is the plan's.
    let plain = Job { run: None, optimizer: None, ..job.clone() };
    let form = Form { eager_attention: false, lora: None, checkpoint: Checkpoint::None, ..job.form };
    let lowered = plain.lowered(engine, precision, form)?;
    let attention = if job.form.eager_attention { Attention::Eager } else { Attention::Fused };
    let part = Part {
        batch: job.batch,
        options: LowerOptions { mode: Mode::Train, precision, optimizer: job.optimizer },
        form: job.launched(job.form),
        adapters: job.form.lora.is_some(),
        recorded: lowered.graph.fixed.is_some(),
    };
    let transformer = Transformer::recognise(&lowered.graph.name, &lowered.iteration);
    match (job.asked.way(&part, &transformer, &cluster, attention).map_err(text)?, &transformer) {
        (Way::Cut(strategy), Ok(model)) => {
            sharded(engine, job, &cluster, model, lowered.graph.seq.unwrap_or(0), &strategy)
        }
        (Way::Cut(strategy) | Way::Copied(strategy), of) => {
            let usual = if of.is_ok() { Precision::Bf16 } else { Precision::default() };
            replicated(engine, job, &cluster, &strategy, job.precision.unwrap_or(usual))
        }
    }
}

fn dollars(engine: &Engine, job: &Job<'_>, cluster: &Cluster) -> Option<f64> {
    let node = cluster.node_hour_usd.as_ref().map(|(usd, _)| usd * cluster.count as f64);
    let listed = || engine.prices.quote(&cluster.node.gpu.name, engine.pricing).map(|q| q.usd_per_hour);
    node.or_else(|| Some(job.usd_per_hour.or_else(listed)? * cluster.gpus() as f64))
}

fn sharded(
    engine: &Engine,
    job: &Job<'_>,
    cluster: &Cluster,
    model: &Transformer,
    seq: u64,
    strategy: &Strategy,
) -> Result<JobAnswer, String> {
    let text = |e: preflop_cluster::ClusterError| e.to_string();
    let times = CoreTimes { model: &engine.model, gpu: &cluster.node.gpu };
    let (dtypes, collectives) = (formats(job.precision, &cluster.node.gpu), &engine.collectives);
    let roles = Roles { model, seq, dtypes, cluster, times: &times, collectives };
    let (outcome, _) = roles.predict(strategy).map_err(text)?;
    let (low, high) = outcome.ends();
    let fullest = outcome.fullest();
    let watts = power(&outcome.breakdown, &roles.setting(strategy.stack)) * strategy.gpus() as f64;
    Ok(answer(
        [outcome.time, low, high],
        fullest.map_or(0.0, RankMemory::reserved) / MIB,
        fullest.map_or(0.0, RankMemory::total) / MIB,
        outcome.fits(),
        strategy.global_batch as f64 / outcome.time,
        Some(watts),
        dollars(engine, job, cluster),
    ))
}

/// Every GPU runs the whole model on samples of its own.
fn replicated(
    engine: &Engine,
    job: &Job<'_>,
    cluster: &Cluster,
    strategy: &Strategy,
    precision: Precision,
) -> Result<JobAnswer, String> {
    let lowered = job.lowered(engine, precision, job.form)?;
    let times = CoreTimes { model: &engine.model, gpu: &cluster.node.gpu };
    let size = lowered.options.precision.weight_bytes();
    let copies = Copies::predict(&lowered.iteration, &times, cluster, &engine.collectives, strategy, size);
    let time = copies.data.time;
    let (low, high) = copies.data.interval.around(time);
    Ok(answer(
        [time, low, high],
        copies.peak.mib(),
        Reserve::default().needed(copies.peak).mib(),
        copies.fits,
        (lowered.graph.samples * cluster.gpus()) as f64 / time,
        None,
        dollars(engine, job, cluster),
    ))
}

/// Puts it together; `times` are the prediction and both ends of its interval, in seconds.
fn answer(
    times: [f64; 3],
    memory_mib: f64,
    needed_mib: f64,
    fits: bool,
    samples_per_s: f64,
    watts: Option<f64>,
    usd_per_hour: Option<f64>,
) -> JobAnswer {
    let [iteration_ms, low_ms, high_ms] = times.map(|t| t * 1e3);
    JobAnswer {
        iteration_ms,
        low_ms,
        high_ms,
        memory_mib,
        needed_mib,
        fits,
        samples_per_s,
        watts,
        joules_per_sample: watts.map(|w| w / samples_per_s),
        usd_per_hour,
        usd_per_million_samples: usd_per_hour.map(|usd| usd_per_million_samples(usd, samples_per_s)),
        ..JobAnswer::default()
    }
}
