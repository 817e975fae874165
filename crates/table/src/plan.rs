//! A job on several GPUs, by the plan that its row asks for; as `preflop predict --cluster` does it.

use crate::answer::JobAnswer;
use crate::choices::Step;
use crate::engine::Engine;
use crate::jobs::{Form, Job};
use preflop_cluster::Cluster;
use preflop_cluster::asked::{AskedStrategy, formats};
use preflop_cluster::data_parallel::{self, Sharding};
use preflop_cluster::iteration::{Setting, ShardCosts};
use preflop_cluster::memory::RankMemory;
use preflop_cluster::model::{Attention, Transformer};
use preflop_cluster::plan::power;
use preflop_cluster::rank::CoreTimes;
use preflop_cluster::strategy::Strategy;
use preflop_core::Gpu;
use preflop_core::cost::rank::usd_per_million_samples;
use preflop_core::cost::{Reserve, fit};
use preflop_core::model::Precision;
use preflop_core::schedule::Schedule as _;
use preflop_core::units::Bytes;

const MIB: f64 = 1_048_576.0;

/// Predicts the plan of a row.
pub(crate) fn predict(engine: &Engine, job: &Job<'_>, gpu: Option<&Gpu>) -> Result<JobAnswer, String> {
    if job.mode != Step::Train {
        return Err("a `cluster` is for training; other modes are for one GPU".to_string());
    }
    if job.form.lora.is_some() {
        return Err("`lora` is for one GPU; its adapters are not cut yet".to_string());
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
    let precision = job.precision.unwrap_or(Precision::Bf16);
    let lowered = job.lowered(engine, precision, Form { eager_attention: false, ..job.form })?;
    let attention = if job.form.eager_attention { Attention::Eager } else { Attention::Fused };
    let strategy = job.asked.strategy(&cluster, attention);
    let cuts =
        [strategy.tp, strategy.cp, strategy.pp, strategy.ep, strategy.interleave].iter().any(|n| *n > 1);
    let transformer = Transformer::recognise(&lowered.graph.name, &lowered.iteration);
    match &transformer {
        Ok(model) if lowered.graph.fixed.is_none() || cuts => {
            sharded(engine, job, &cluster, model, lowered.graph.seq.unwrap_or(0), &strategy)
        }
        Err(error) if cuts => Err(error.to_string()),
        _ => replicated(engine, job, &cluster, &strategy),
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
    let [dtype, product] = formats(job.precision, &cluster.node.gpu);
    let setting = Setting {
        model,
        seq,
        dtype,
        product,
        cluster,
        collectives: &engine.collectives,
        contention: None,
        host: strategy.stack.host(),
    };
    strategy.check(model, seq, cluster).map_err(text)?;
    let costs = ShardCosts::new(model, strategy.shard(seq, dtype, product), &times);
    let outcome = setting.predict(strategy, &costs, &times).map_err(text)?;
    let (low, high) = outcome.ends();
    let fullest = outcome.fullest();
    let watts = power(&outcome.breakdown, &setting) * strategy.gpus() as f64;
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
) -> Result<JobAnswer, String> {
    strategy.check_count(cluster).map_err(|e| e.to_string())?;
    let known = AskedStrategy {
        dp: job.asked.dp,
        zero: job.asked.zero,
        fsdp: job.asked.fsdp,
        ..AskedStrategy::default()
    };
    if job.asked != known {
        return Err(format!(
            "`{}` is no transformer whose layers can be cut: only `dp`, `zero` and `fsdp` are known for it",
            job.model
        ));
    }
    let lowered = job.lowered(engine, job.precision.unwrap_or_default(), job.form)?;
    let iteration = &lowered.iteration;
    let one = engine.model.predict_iteration(iteration, &cluster.node.gpu);
    let sharding = match (strategy.fsdp, strategy.stage()) {
        (Some(how), _) => Sharding::Shards(how),
        (None, 1 | 2) => Sharding::States,
        _ => Sharding::Copies,
    };
    let size = lowered.options.precision.weight_bytes();
    let p = data_parallel::predict(
        iteration,
        &one,
        cluster,
        &engine.collectives,
        sharding,
        size,
        data_parallel::EVEN_IMBALANCE,
    );
    let peak =
        data_parallel::peak(iteration, fit::prudent_peak(iteration), cluster, strategy.stage(), p.bytes);
    let (low, high) = p.interval.around(p.time);
    let reserve = Reserve::default();
    Ok(answer(
        [p.time, low, high],
        Bytes(peak).mib(),
        reserve.needed(Bytes(peak)).mib(),
        reserve.fits(Bytes(peak), &cluster.node.gpu),
        (lowered.graph.samples * cluster.gpus()) as f64 / p.time,
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
