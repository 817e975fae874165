//! `scale`: the best plan at every size, from one GPU to a hundred thousand.

use super::parallel::MAX_SIZE;
use super::{exposed, fixed, stack, subject};
use crate::choice::{one_of, within};
use crate::engine::Engine;
use crate::error::ApiError;
use crate::question::Scale;
use preflop_cluster::Cluster;
use preflop_cluster::collective::Collectives;
use preflop_cluster::model::Attention;
use preflop_cluster::plan::{Objective, Space};
use preflop_cluster::rank::CoreTimes;
use preflop_cluster::scale::{Growth, Point, Question, curve, short, sizes};
use serde::Serialize;
use utoipa::ToSchema;

/// Most GPUs that a curve reaches.
const MAX_GPUS: u64 = 131_072;

/// The curve.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ScaleAnswer)]
#[allow(missing_docs)]
pub struct Answer {
    model: String,
    node: String,
    gpu: String,
    seq: u64,
    growth: &'static str,
    points: Vec<Row>,
}

/// One size.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ScalePoint)]
#[allow(missing_docs)]
pub struct Row {
    gpus: u64,
    global_batch: u64,
    fits: bool,
    iteration_ms: Option<f64>,
    tokens_per_s: Option<f64>,
    /// Throughput of a GPU over that of the smallest size that fits.
    efficiency: f64,
    efficiency_low: f64,
    efficiency_high: f64,
    pp_bubble_share: f64,
    exposed_share: f64,
    plan: Option<String>,
    memory_mib: Option<f64>,
}

/// Draws it.
pub fn answer(engine: &Engine, asked: &Scale) -> Result<Answer, ApiError> {
    let mut cluster = Cluster::named(&asked.node)?;
    if let Some(gpu) = &asked.gpu {
        cluster.node = cluster.node.with_gpu(engine.gpu(gpu)?.clone());
    }
    let high = within("most_gpus", asked.most_gpus, 1, MAX_GPUS)?;
    let low = within("least_gpus", asked.least_gpus, 1, high)?;
    let node = &cluster.node;
    if high > node.gpus && node.network.0 <= 0.0 {
        return Err(ApiError::Invalid {
            message: format!("`{}` has no network, so it stops at {} GPUs", node.name, node.gpus),
            hint: Some("ask `nodes` for nodes with a network"),
        });
    }
    let subject = subject(engine, &asked.run, &cluster)?;
    let growth = one_of("growth", &asked.growth, &[("weak", Growth::Weak), ("strong", Growth::Strong)])?;
    let stack = stack(&asked.stack)?;
    let default = if growth == Growth::Strong { 4096 } else { 8 };
    let question = Question {
        model: &subject.model,
        seq: subject.seq,
        dtypes: subject.dtypes,
        node,
        collectives: &Collectives::embedded(),
        space: Space {
            global_batch: within("global_batch", asked.global_batch.unwrap_or(default), 1, MAX_SIZE)?,
            fixed: fixed(&asked.fixed)?,
            stack,
            attention: Attention::Fused,
            objective: Objective::Time,
        },
        growth,
        host: stack.host(),
    };
    let wanted = sizes(low, high, node.gpus);
    if wanted.is_empty() {
        let message = format!("no size from {low} to {high} fills nodes of {}", node.gpus);
        return Err(ApiError::invalid(message));
    }
    let times = CoreTimes { model: &engine.model, gpu: &node.gpu };
    Ok(Answer::of(&question, &curve(&question, &wanted, &times)))
}

impl Answer {
    /// The curve of a question in the words of the answer.
    pub fn of(question: &Question<'_>, points: &[Point]) -> Self {
        Self {
            model: question.model.name.clone(),
            node: question.node.name.clone(),
            gpu: question.node.gpu.name.clone(),
            seq: question.seq,
            growth: if question.growth == Growth::Strong { "strong" } else { "weak" },
            points: points.iter().map(|p| row(p, question.seq)).collect(),
        }
    }
}

fn row(p: &Point, seq: u64) -> Row {
    let tokens = (p.global_batch * seq) as f64;
    Row {
        gpus: p.gpus,
        global_batch: p.global_batch,
        fits: p.plan.is_some(),
        iteration_ms: p.plan.map(|x| x.time * 1e3),
        tokens_per_s: p.plan.map(|x| tokens / x.time),
        efficiency: p.efficiency,
        efficiency_low: p.low,
        efficiency_high: p.high,
        pp_bubble_share: p.share(|b| b.pp_bubble),
        exposed_share: p.share(exposed),
        plan: p.plan.map(|x| short(&x.strategy)),
        memory_mib: p.plan.map(|x| x.memory / 1_048_576.0),
    }
}
