//! `parallel`: one iteration of training on several GPUs, with its timeline.

use super::{breakdown_ms, cluster, stack, subject, usd_per_gpu_hour};
use crate::choice::{maybe_one_of, one_of, within};
use crate::engine::Engine;
use crate::error::ApiError;
use crate::question::Parallel;
use preflop_cluster::asked::AskedStrategy;
use preflop_cluster::collective::{Collectives, Kind};
use preflop_cluster::iteration::ShardCosts;
use preflop_cluster::model::Attention;
use preflop_cluster::rank::CoreTimes;
use preflop_cluster::scale::short;
use preflop_cluster::strategy::{Fsdp, Offload, Recompute, Schedule, Strategy};
use preflop_cluster::timeline::{self, What};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Largest size of a strategy.
pub(super) const MAX_SIZE: u64 = 1 << 24;
const MIB: f64 = 1_048_576.0;

/// The answer.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ParallelAnswer)]
#[allow(missing_docs)]
pub struct Answer {
    model: String,
    gpu: String,
    cluster: String,
    /// Sequences of an iteration over all GPUs.
    batch: u64,
    seq: u64,
    precision: &'static str,
    iteration_ms: f64,
    low_ms: f64,
    high_ms: f64,
    /// The fullest rank, with what driver and libraries hold.
    needed_mib: f64,
    gpu_memory_mib: f64,
    fits: bool,
    samples_per_s: f64,
    tokens_per_s: f64,
    tokens_per_s_per_gpu: f64,
    /// Share of the products' peak that the model's own FLOPs are.
    mfu: f64,
    usd_per_hour: Option<f64>,
    usd_per_million_tokens: Option<f64>,
    parallel: Sizes,
    breakdown_ms: BTreeMap<&'static str, f64>,
    collectives: Vec<Use>,
    ranks: Vec<Rank>,
    /// One iteration: a row for each pipeline stage.
    timeline: Vec<TimelineBar>,
}

/// How the model is cut.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ParallelSizes)]
#[allow(missing_docs)]
pub struct Sizes {
    plan: String,
    gpus: u64,
    nodes: u64,
    dp: u64,
    tp: u64,
    pp: u64,
    cp: u64,
    ep: u64,
    zero: u8,
    interleave: u64,
    micro_batch: u64,
    microbatches: u64,
    global_batch: u64,
    schedule: &'static str,
    recompute: &'static str,
    sequence_parallel: bool,
    stack: &'static str,
}

impl Sizes {
    /// In words of the field.
    pub fn of(s: &Strategy, nodes: u64) -> Self {
        Self {
            plan: short(s),
            gpus: s.gpus(),
            nodes,
            dp: s.dp,
            tp: s.tp,
            pp: s.pp,
            cp: s.cp,
            ep: s.ep,
            zero: s.stage(),
            interleave: s.interleave,
            micro_batch: s.micro_batch,
            microbatches: s.microbatches(),
            global_batch: s.global_batch,
            schedule: s.schedule.name(),
            recompute: s.recompute.name(),
            sequence_parallel: s.sequence_parallel,
            stack: s.stack.name(),
        }
    }
}

/// A collective of an iteration.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CollectiveUse)]
#[allow(missing_docs)]
pub struct Use {
    #[schema(value_type = String)]
    what: Kind,
    group: &'static str,
    #[serde(rename = "where")]
    place: &'static str,
    gpus: u64,
    bytes: f64,
    count: f64,
    time_us: f64,
    exposed_us: f64,
    bus_gbs: f64,
}

/// Memory of the GPUs of one pipeline stage.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RankMemory)]
#[allow(missing_docs)]
pub struct Rank {
    stage: u64,
    needed_mib: f64,
    weights_mib: f64,
    gradients_mib: f64,
    optimizer_mib: f64,
    activations_mib: f64,
    gathered_mib: f64,
    reserve_mib: f64,
    fits: bool,
}

/// Something that a pipeline stage does.
#[derive(Debug, Serialize, ToSchema)]
#[allow(missing_docs)]
pub struct TimelineBar {
    stage: u64,
    what: &'static str,
    microbatch: u64,
    start_ms: f64,
    end_ms: f64,
}

fn strategy(asked: &Parallel) -> Result<AskedStrategy, ApiError> {
    let size = |field: &str, n: Option<u64>| n.map(|n| within(field, n, 1, MAX_SIZE)).transpose();
    Ok(AskedStrategy {
        tp: size("tp", asked.tp)?,
        dp: size("dp", asked.dp)?,
        pp: size("pp", asked.pp)?,
        cp: size("cp", asked.cp)?,
        ep: size("ep", asked.ep)?,
        interleave: size("interleave", asked.interleave)?,
        micro_batch: size("micro_batch", asked.micro_batch)?,
        global_batch: size("global_batch", asked.global_batch)?,
        recompute: maybe_one_of(
            "recompute",
            asked.recompute.as_ref(),
            &Recompute::ALL.map(|r| (r.name(), r)),
        )?,
        sequence_parallel: asked.sequence_parallel,
        zero: match asked.zero {
            Some(stage @ 0..=3) => Some(stage),
            Some(other) => {
                return Err(ApiError::invalid(format!("`zero` is {other}; it must be from 0 to 3")));
            }
            None => None,
        },
        fsdp: maybe_one_of(
            "fsdp",
            asked.fsdp.as_ref(),
            &[Fsdp::Full, Fsdp::GradOp, Fsdp::Hybrid].map(|f| (f.name(), f)),
        )?,
        schedule: maybe_one_of(
            "schedule",
            asked.schedule.as_ref(),
            &[Schedule::Gpipe, Schedule::OneFOneB, Schedule::ZeroBubble].map(|s| (s.name(), s)),
        )?,
        offload: maybe_one_of(
            "offload",
            asked.offload.as_ref(),
            &[Offload::None, Offload::Optimizer, Offload::Activations].map(|o| (o.name(), o)),
        )?,
        stack: asked.stack.as_deref().map(stack).transpose()?,
    })
}

/// Predicts it.
pub fn answer(engine: &Engine, asked: &Parallel) -> Result<Answer, ApiError> {
    let cluster = cluster(engine, &asked.cluster, asked.gpu.as_deref(), asked.gpus)?;
    let subject = subject(engine, &asked.run, &cluster)?;
    let attention = one_of(
        "attention",
        asked.attention.as_deref().unwrap_or("fused"),
        &[("fused", Attention::Fused), ("eager", Attention::Eager)],
    )?;
    let s = strategy(asked)?.strategy(&cluster, attention);
    s.check(&subject.model, subject.seq, &cluster)?;
    let times = CoreTimes { model: &engine.model, gpu: &cluster.node.gpu };
    let collectives = Collectives::embedded();
    let setting = subject.setting(&cluster, &collectives, s.stack.host());
    let shard = s.shard(subject.seq, subject.dtypes[0], subject.dtypes[1]);
    let costs = ShardCosts::new(&subject.model, shard, &times);
    let o = setting.predict(&s, &costs, &times)?;
    let (low, high) = o.ends();
    let tokens = (s.global_batch * subject.seq) as f64;
    let peak = cluster.node.gpu.peak(subject.dtypes[1]).0 * s.gpus() as f64;
    let usd = usd_per_gpu_hour(engine, &cluster).map(|usd| usd * cluster.gpus() as f64);
    Ok(Answer {
        model: subject.model.name.clone(),
        gpu: cluster.node.gpu.name.clone(),
        cluster: cluster.name.clone(),
        batch: s.global_batch,
        seq: subject.seq,
        precision: subject.dtypes[1].name(),
        iteration_ms: o.time * 1e3,
        low_ms: low * 1e3,
        high_ms: high * 1e3,
        needed_mib: o.fullest().map_or(0.0, |r| r.total() / MIB),
        gpu_memory_mib: cluster.node.gpu.memory.mib(),
        fits: o.fits(),
        samples_per_s: s.global_batch as f64 / o.time,
        tokens_per_s: tokens / o.time,
        tokens_per_s_per_gpu: tokens / o.time / s.gpus() as f64,
        mfu: subject.model.flops_per_token(subject.seq) * tokens / o.time / peak,
        usd_per_hour: usd,
        usd_per_million_tokens: usd.map(|usd| usd / 3600.0 / (tokens / o.time) * 1e6),
        parallel: Sizes::of(&s, cluster.count),
        breakdown_ms: breakdown_ms(&o.breakdown),
        collectives: o.uses.iter().map(collective).collect(),
        ranks: o.ranks.iter().map(rank).collect(),
        timeline: timeline::of_outcome(&s, &o, &costs, &subject.model).iter().map(bar).collect(),
    })
}

fn collective(u: &preflop_cluster::iteration::CollectiveUse) -> Use {
    Use {
        what: u.kind,
        group: u.dimension,
        place: if u.group.nodes() > 1 { "outside" } else { "inside" },
        gpus: u.group.gpus,
        bytes: u.bytes,
        count: u.count,
        time_us: u.time * 1e6,
        exposed_us: u.exposed * 1e6,
        bus_gbs: u.bus / 1e9,
    }
}

fn rank(r: &preflop_cluster::memory::RankMemory) -> Rank {
    Rank {
        stage: r.stage,
        needed_mib: r.total() / MIB,
        weights_mib: r.weights / MIB,
        gradients_mib: r.gradients / MIB,
        optimizer_mib: r.optimizer / MIB,
        activations_mib: r.activations / MIB,
        gathered_mib: r.gathered / MIB,
        reserve_mib: r.reserve / MIB,
        fits: r.fits,
    }
}

fn bar(b: &timeline::Bar) -> TimelineBar {
    TimelineBar {
        stage: b.stage,
        what: match b.what {
            What::Forward => "forward",
            What::Backward => "backward",
            What::Links => "links",
            What::Optimizer => "optimizer",
        },
        microbatch: b.microbatch,
        start_ms: b.start * 1e3,
        end_ms: b.end * 1e3,
    }
}
