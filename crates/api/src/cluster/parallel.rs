//! `parallel`: one iteration of training on several GPUs, with its timeline.

use super::{breakdown_ms, cluster, stack, subject, usd_per_gpu_hour};
use crate::choice::{maybe_one_of, one_of, within};
use crate::engine::Engine;
use crate::error::ApiError;
use crate::question::Parallel;
use preflop_cluster::asked::AskedStrategy;
use preflop_cluster::collective::{Collectives, Kind};
use preflop_cluster::iteration::{Outcome, ShardCosts};
use preflop_cluster::model::{Attention, Transformer};
use preflop_cluster::rank::CoreTimes;
use preflop_cluster::run::Roles;
use preflop_cluster::scale::short;
use preflop_cluster::strategy::{Fsdp, Offload, Recompute, Schedule, Strategy};
use preflop_cluster::timeline::{self, What};
use preflop_cluster::{Cluster, ClusterError};
use preflop_core::Dtype;
use preflop_core::model::Mode;
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
    mode: &'static str,
    pub iteration_ms: f64,
    pub low_ms: f64,
    pub high_ms: f64,
    /// Time of the GPUs' own work, and that of the host which nothing hides.
    gpu_busy_ms: f64,
    host_ms: f64,
    /// The fullest rank: what PyTorch reserves, and that with what driver and libraries hold.
    memory_mib: f64,
    needed_mib: f64,
    gpu_memory_mib: f64,
    fits: bool,
    samples_per_s: f64,
    /// What limits it: compute, bubble, host, link, network.
    bound: &'static str,
    /// The model's own FLOPs of an iteration.
    flops: f64,
    parameters: u64,
    pub tokens_per_s: f64,
    tokens_per_s_per_gpu: f64,
    /// Share of the products' peak that the model's own FLOPs are.
    pub mfu: f64,
    usd_per_hour: Option<f64>,
    pub usd_per_million_tokens: Option<f64>,
    /// Hours for the tokens that were asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub tokens_hours: Option<f64>,
    /// Time of one GPU alone with its part of the samples, over this time.
    pub scaling_efficiency: Option<f64>,
    parallel: Sizes,
    breakdown_ms: BTreeMap<&'static str, f64>,
    collectives: Vec<Use>,
    ranks: Vec<Rank>,
    /// Parts of the plan that were checked against no measurements.
    unmeasured: Vec<&'static str>,
    /// Changes that are faster, or that fit where this does not, the best first.
    pub advice: Vec<Advice>,
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
    fsdp: Option<&'static str>,
    offload: &'static str,
    attention: &'static str,
    stack: &'static str,
    /// The stack by its older name.
    profile: &'static str,
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
            fsdp: s.fsdp.map(Fsdp::name),
            offload: s.offload.name(),
            attention: if s.attention == Attention::Eager { "eager" } else { "fused" },
            stack: s.stack.name(),
            profile: s.stack.name(),
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
    memory_mib: f64,
    needed_mib: f64,
    states_mib: f64,
    weights_mib: f64,
    gradients_mib: f64,
    optimizer_mib: f64,
    activations_mib: f64,
    gathered_mib: f64,
    reserve_mib: f64,
    allocated_mib: f64,
    fits: bool,
}

/// A change of the plan.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = ParallelAdvice)]
#[allow(missing_docs)]
pub struct Advice {
    pub change: String,
    /// Share of the time that it saves; below 0 where it is slower and fits.
    pub gain: f64,
    pub fits: bool,
    pub needed_mib: f64,
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
        batch: None,
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
    let case = Case {
        model: &subject.model,
        seq: subject.seq,
        dtypes: subject.dtypes,
        cluster: &cluster,
        times: &CoreTimes { model: &engine.model, gpu: &cluster.node.gpu },
    };
    let (outcome, costs) = case.predict(&s)?;
    let usd = usd_per_gpu_hour(engine, &cluster).map(|usd| usd * cluster.gpus() as f64);
    Ok(case.answer(&s, &outcome, &costs, usd))
}

/// A model on a cluster, for any strategy.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Case<'a> {
    pub model: &'a Transformer,
    pub seq: u64,
    /// Of activations and of products.
    pub dtypes: [Dtype; 2],
    pub cluster: &'a Cluster,
    pub times: &'a CoreTimes<'a>,
}

impl Case<'_> {
    fn over(&self, cluster: &Cluster, s: &Strategy) -> Result<(Outcome, ShardCosts), ClusterError> {
        let (model, seq, dtypes, times) = (self.model, self.seq, self.dtypes, self.times);
        Roles { model, seq, dtypes, cluster, times, collectives: &Collectives::embedded() }.predict(s)
    }

    /// One iteration.
    pub fn predict(&self, s: &Strategy) -> Result<(Outcome, ShardCosts), ClusterError> {
        self.over(self.cluster, s)
    }

    /// All that is said about it; `usd_per_hour` is the price of the cluster.
    pub fn answer(&self, s: &Strategy, o: &Outcome, costs: &ShardCosts, usd_per_hour: Option<f64>) -> Answer {
        let cluster = self.cluster;
        let (low, high) = o.ends();
        let tokens = (s.global_batch * self.seq) as f64;
        let peak = cluster.node.gpu.peak(self.dtypes[1]).0 * s.gpus() as f64;
        let flops = self.model.flops_per_token(self.seq) * tokens;
        let b = &o.breakdown;
        Answer {
            model: self.model.name.clone(),
            gpu: cluster.node.gpu.name.clone(),
            cluster: cluster.name.clone(),
            batch: s.global_batch,
            seq: self.seq,
            precision: self.dtypes[1].name(),
            mode: Mode::Train.name(),
            iteration_ms: o.time * 1e3,
            low_ms: low * 1e3,
            high_ms: high * 1e3,
            gpu_busy_ms: (b.compute + b.recompute + b.optimizer) * 1e3,
            host_ms: b.host_exposed * 1e3,
            memory_mib: o.fullest().map_or(0.0, |r| r.reserved() / MIB),
            needed_mib: o.fullest().map_or(0.0, |r| r.total() / MIB),
            gpu_memory_mib: cluster.node.gpu.memory.mib(),
            fits: o.fits(),
            samples_per_s: s.global_batch as f64 / o.time,
            bound: limit(s, o, cluster).map_or("compute", |(bound, _, _)| bound),
            flops,
            parameters: self.model.parameters(),
            tokens_per_s: tokens / o.time,
            tokens_per_s_per_gpu: tokens / o.time / s.gpus() as f64,
            mfu: flops / o.time / peak,
            usd_per_hour,
            usd_per_million_tokens: usd_per_hour.map(|usd| usd / 3600.0 / (tokens / o.time) * 1e6),
            tokens_hours: None,
            scaling_efficiency: self.alone(s).ok().map(|one| one / o.time),
            parallel: Sizes::of(s, cluster.count),
            breakdown_ms: breakdown_ms(&o.breakdown),
            collectives: o.uses.iter().map(collective).collect(),
            ranks: o.ranks.iter().map(rank).collect(),
            unmeasured: s.unmeasured(),
            advice: self.advice(s, o),
            timeline: timeline::of_outcome(s, o, costs, self.model).iter().map(bar).collect(),
        }
    }

    /// Seconds that one GPU alone would need for its part of the samples, whether it would fit or not.
    fn alone(&self, s: &Strategy) -> Result<f64, ClusterError> {
        let cluster = Cluster::of(self.cluster.node.clone(), 1).with_gpus(1)?;
        let one = Strategy {
            stack: s.stack,
            attention: s.attention,
            micro_batch: s.micro_batch,
            global_batch: s.micro_batch * (s.global_batch / (s.micro_batch * s.gpus())).max(1),
            recompute: s.recompute,
            ..Strategy::default()
        };
        let samples = s.global_batch as f64 / s.gpus() as f64;
        Ok(self.over(&cluster, &one)?.0.time * samples / one.global_batch as f64)
    }

    /// Neighbours of a strategy that are faster, or fit where it does not, best first.
    fn advice(&self, s: &Strategy, outcome: &Outcome) -> Vec<Advice> {
        let needs_room = !outcome.fits();
        let tried = |(change, to): (String, Strategy)| {
            let other = self.predict(&to).ok()?.0;
            let gain = 1.0 - other.time / outcome.time;
            let needed_mib = other.fullest().map_or(0.0, |r| r.total() / MIB);
            let useful = other.fits() && (needs_room || gain > 0.005);
            useful.then_some(Advice { change, gain, fits: other.fits(), needed_mib })
        };
        let mut found: Vec<Advice> = neighbours(s).into_iter().filter_map(tried).collect();
        found.sort_by(|a, b| b.gain.total_cmp(&a.gain));
        found.truncate(3);
        found
    }
}

/// Strategies that differ in one thing, each with its words.
fn neighbours(s: &Strategy) -> Vec<(String, Strategy)> {
    let mut tries: Vec<(String, Strategy)> = Vec::new();
    let mut add = |what: String, to: Strategy| tries.push((what, to));
    add(format!("micro batch {}", s.micro_batch * 2), Strategy { micro_batch: s.micro_batch * 2, ..*s });
    if s.micro_batch > 1 {
        add(format!("micro batch {}", s.micro_batch / 2), Strategy { micro_batch: s.micro_batch / 2, ..*s });
    }
    for recompute in Recompute::ALL.into_iter().filter(|r| *r != s.recompute) {
        add(format!("--recompute {}", recompute.name()), Strategy { recompute, ..*s });
    }
    if s.tp > 1 && !s.sequence_parallel {
        add("--sequence-parallel".into(), Strategy { sequence_parallel: true, ..*s });
    }
    if s.tp > 1 {
        add(format!("tp {} and dp {}", s.tp / 2, s.dp * 2), Strategy { tp: s.tp / 2, dp: s.dp * 2, ..*s });
    }
    if s.dp > 1 {
        add(format!("tp {} and dp {}", s.tp * 2, s.dp / 2), Strategy { tp: s.tp * 2, dp: s.dp / 2, ..*s });
        add(format!("pp {} and dp {}", s.pp * 2, s.dp / 2), Strategy { pp: s.pp * 2, dp: s.dp / 2, ..*s });
        if s.stage() == 0 {
            add("--zero 1".into(), Strategy { zero: 1, ..*s });
        }
        if s.stage() < 3 && s.pp == 1 {
            add("--fsdp full".into(), Strategy { fsdp: Some(Fsdp::Full), ..*s });
        }
    }
    if s.pp > 1 {
        add(format!("pp {} and dp {}", s.pp / 2, s.dp * 2), Strategy { pp: s.pp / 2, dp: s.dp * 2, ..*s });
        add(format!("--interleave {}", s.interleave * 2), Strategy { interleave: s.interleave * 2, ..*s });
    }
    tries
}

/// Share of the time from which something other than computing is called the limit.
const LIMIT: f64 = 0.1;

/// What limits an iteration that computing does not: its name, the part of the breakdown, and the seconds of it.
pub fn limit(s: &Strategy, o: &Outcome, cluster: &Cluster) -> Option<(&'static str, &'static str, f64)> {
    let mut parts = o.breakdown.parts().to_vec();
    // A step on the host's cores is not the GPUs' work.
    let offloaded = s.offload == Offload::Optimizer;
    parts
        .retain(|(name, _)| !matches!(*name, "compute" | "recompute") && (*name != "optimizer" || offloaded));
    let (part, time) = parts.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    if time / o.time < LIMIT {
        return None;
    }
    let bound = match part {
        "pp_bubble" => "bubble",
        "host_exposed" | "optimizer" => "host",
        "tp_exposed" | "cp_exposed" if s.tp <= cluster.node.gpus => "link",
        _ if cluster.count == 1 => "link",
        _ => "network",
    };
    Some((bound, part, time))
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
        memory_mib: r.reserved() / MIB,
        needed_mib: r.total() / MIB,
        states_mib: r.states() / MIB,
        weights_mib: r.weights / MIB,
        gradients_mib: r.gradients / MIB,
        optimizer_mib: r.optimizer / MIB,
        activations_mib: r.activations / MIB,
        gathered_mib: r.gathered / MIB,
        reserve_mib: r.reserve / MIB,
        allocated_mib: r.allocated() / MIB,
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
