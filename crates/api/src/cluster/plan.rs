//! `plan`: the best way to cut a model over a cluster, and why not another.

use super::parallel::{MAX_SIZE, Sizes};
use super::{breakdown_ms, cluster, fixed, stack, subject, usd_per_gpu_hour};
use crate::choice::within;
use crate::engine::Engine;
use crate::error::ApiError;
use crate::question::{Plan, Rank};
use preflop_cluster::Cluster;
use preflop_cluster::collective::Collectives;
use preflop_cluster::model::Attention;
use preflop_cluster::plan::{Objective, Planned, Plans, Space, search};
use preflop_cluster::rank::CoreTimes;
use preflop_cluster::scale::short;
use preflop_core::units::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Plans of one answer.
const MOST_PLANS: usize = 100;

/// The plans, the best first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PlanAnswer)]
#[allow(missing_docs)]
pub struct Answer {
    model: String,
    cluster: String,
    gpu: String,
    gpus: u64,
    global_batch: u64,
    seq: u64,
    /// Plans that were tried, and how many of them do not fit.
    considered: usize,
    too_large: usize,
    gpu_memory_mib: f64,
    plans: Vec<Row>,
    why_not: Vec<WhyNot>,
}

/// One plan.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PlanRow)]
#[allow(missing_docs)]
pub struct Row {
    #[serde(flatten)]
    sizes: Sizes,
    iteration_ms: f64,
    memory_mib: f64,
    tokens_per_s: f64,
    tokens_per_s_per_gpu: f64,
    usd_per_hour: Option<f64>,
    usd_per_million_tokens: Option<f64>,
    joules_per_iteration: f64,
    breakdown_ms: BTreeMap<&'static str, f64>,
}

/// Another value of a size, and what it would do.
#[derive(Debug, Serialize, ToSchema)]
#[allow(missing_docs)]
pub struct WhyNot {
    change: String,
    /// Time over the best plan's, where it fits.
    ratio: Option<f64>,
    why: String,
}

/// Tries every plan.
pub fn answer(engine: &Engine, asked: &Plan) -> Result<Answer, ApiError> {
    let cluster = cluster(engine, &asked.cluster, asked.gpu.as_deref(), None)?;
    let subject = subject(engine, &asked.run, &cluster)?;
    let global_batch = within("global_batch", asked.global_batch, 1, MAX_SIZE)?;
    let stack = stack(&asked.stack)?;
    let objective = match asked.objective {
        Rank::Time => Objective::Time,
        Rank::Cost => Objective::Cost,
        Rank::Energy => Objective::Energy,
    };
    let space =
        Space { global_batch, fixed: fixed(&asked.fixed)?, stack, attention: Attention::Fused, objective };
    let times = CoreTimes { model: &engine.model, gpu: &cluster.node.gpu };
    let collectives = Collectives::embedded();
    let found = search(&subject.setting(&cluster, &collectives, stack.host()), &space, &times);
    if found.plans.is_empty() {
        if found.nearest.is_none() {
            space.fixed.check(&subject.model, subject.seq, &cluster)?;
        }
        return Err(none_fits(&found, asked, &subject.model, &cluster));
    }
    let usd_per_gpu_hour = usd_per_gpu_hour(engine, &cluster);
    Ok(Answer::of(&Search {
        model: &subject.model.name,
        seq: subject.seq,
        cluster: &cluster,
        global_batch,
        usd_per_gpu_hour,
        found: &found,
        shown: &found.plans,
        top: (asked.top as usize).clamp(1, MOST_PLANS),
    }))
}

/// A search that was made.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Search<'a> {
    pub model: &'a str,
    pub seq: u64,
    pub cluster: &'a Cluster,
    pub global_batch: u64,
    pub usd_per_gpu_hour: Option<f64>,
    pub found: &'a Plans,
    /// Of these plans the first are shown.
    pub shown: &'a [Planned],
    pub top: usize,
}

impl Answer {
    /// What a search found, in the words of the answer.
    pub fn of(search: &Search<'_>) -> Self {
        let Search { cluster, global_batch, usd_per_gpu_hour: usd, found, .. } = *search;
        let tokens = (global_batch * search.seq) as f64;
        let row = |p: &Planned| Row {
            sizes: Sizes::of(&p.strategy, p.gpus.div_ceil(cluster.node.gpus.max(1))),
            iteration_ms: p.time * 1e3,
            memory_mib: p.memory / 1_048_576.0,
            tokens_per_s: tokens / p.time,
            tokens_per_s_per_gpu: tokens / p.time / p.gpus as f64,
            usd_per_hour: usd.map(|u| u * p.gpus as f64),
            usd_per_million_tokens: usd.map(|u| u * p.gpus as f64 * p.time / 3600.0 / tokens * 1e6),
            joules_per_iteration: p.joules,
            breakdown_ms: breakdown_ms(&p.breakdown),
        };
        let reason = |w: preflop_cluster::plan::WhyNot| WhyNot { change: w.what, ratio: w.ratio, why: w.why };
        Self {
            model: search.model.to_string(),
            cluster: cluster.name.clone(),
            gpu: cluster.node.gpu.name.clone(),
            gpus: cluster.gpus(),
            global_batch,
            seq: search.seq,
            considered: found.considered,
            too_large: found.too_large,
            gpu_memory_mib: cluster.node.gpu.memory.mib(),
            plans: search.shown.iter().take(search.top).map(row).collect(),
            why_not: found.why_not(cluster).into_iter().map(reason).collect(),
        }
    }
}

fn none_fits(
    found: &preflop_cluster::plan::Plans,
    asked: &Plan,
    model: &preflop_cluster::model::Transformer,
    cluster: &preflop_cluster::Cluster,
) -> ApiError {
    let gib = |bytes: f64| format!("{:.1} GiB", Bytes(bytes).mib() / 1024.0);
    match found.nearest {
        None => ApiError::Invalid {
            message: format!(
                "no plan divides `{}` ({} heads, {} layers) and a global batch of {} over {} GPUs",
                model.name,
                model.heads,
                model.layers,
                asked.global_batch,
                cluster.gpus()
            ),
            hint: Some("take a global batch that the number of GPUs divides, or fix fewer sizes"),
        },
        Some(p) => ApiError::Invalid {
            message: format!(
                "no plan of `{}` fits on {}: the smallest of {} needs {} of {} ({})",
                model.name,
                cluster.name,
                found.considered,
                gib(p.memory),
                gib(cluster.node.gpu.memory.0),
                short(&p.strategy)
            ),
            hint: Some("take more nodes or a GPU with more memory"),
        },
    }
}
