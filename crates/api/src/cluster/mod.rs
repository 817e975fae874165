//! Several GPUs: nodes, one iteration cut over them, the best plan, scaling.

pub mod parallel;
pub mod plan;
pub mod scale;

use crate::engine::Engine;
use crate::error::ApiError;
use crate::question::{Algorithms, ClusterRun, Layout, Run};
use preflop_cluster::asked::formats;
use preflop_cluster::collective::Collectives;
use preflop_cluster::iteration::{Breakdown, Setting};
use preflop_cluster::model::{Host, Stack, Transformer};
use preflop_cluster::node::catalog;
use preflop_cluster::plan::Fixed;
use preflop_cluster::{Cluster, Node};
use preflop_core::Dtype;
use preflop_core::cost::Pricing;
use preflop_core::model::{Checkpoint, Mode, Precision, Run as Launching};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A node of the catalogue. Bandwidths are one way: of a GPU inside, of a node outside.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = NodeInfo)]
#[allow(missing_docs)]
pub struct Listed {
    name: String,
    title: String,
    gpu: String,
    gpus: u64,
    topology: &'static str,
    link_gbs: f64,
    network: &'static str,
    network_gbs: f64,
}

/// The nodes.
pub fn nodes() -> Result<Vec<Listed>, ApiError> {
    let listed = |n: &Node| Listed {
        name: n.name.clone(),
        title: n.title.clone(),
        gpu: n.gpu.name.clone(),
        gpus: n.gpus,
        topology: n.topology.name(),
        link_gbs: n.link.rate.gbs(),
        network: n.network_kind.name(),
        network_gbs: n.network.gbs(),
    };
    Ok(catalog::all()?.iter().map(listed).collect())
}

/// A model as a cluster sees it.
pub(super) struct Subject {
    model: Transformer,
    seq: u64,
    dtypes: [Dtype; 2],
}

/// Reads a model and recognises its roles, in the formats that this GPU has.
pub(super) fn subject(engine: &Engine, run: &ClusterRun, cluster: &Cluster) -> Result<Subject, ApiError> {
    let job = engine.jobs.job(&Run {
        model: run.model.clone(),
        batch: None,
        seq: run.seq,
        precision: run.precision.unwrap_or(Precision::Bf16),
        mode: Mode::Train,
        optimizer: None,
        run: Launching::default(),
        layout: Layout::default(),
        checkpoint: Checkpoint::default(),
        algorithms: Algorithms::default(),
    })?;
    let model = Transformer::recognise(&job.model, &job.iteration)?;
    let dtypes = formats(run.precision, &cluster.node.gpu);
    Ok(Subject { model, seq: job.seq.unwrap_or(0), dtypes })
}

impl Subject {
    /// What an iteration is predicted in.
    pub(super) fn setting<'a>(
        &'a self,
        cluster: &'a Cluster,
        collectives: &'a Collectives,
        host: Host,
    ) -> Setting<'a> {
        Setting {
            model: &self.model,
            seq: self.seq,
            dtype: self.dtypes[0],
            product: self.dtypes[1],
            cluster,
            collectives,
            contention: None,
            host,
        }
    }
}

/// The cluster of a question, with another GPU or fewer of them where it says so.
pub(super) fn cluster(
    engine: &Engine,
    name: &str,
    gpu: Option<&str>,
    gpus: Option<u64>,
) -> Result<Cluster, ApiError> {
    let mut cluster = Cluster::named(name)?;
    if let Some(gpu) = gpu {
        cluster.node = cluster.node.with_gpu(engine.gpu(gpu)?.clone());
    }
    if let Some(gpus) = gpus {
        cluster = cluster.with_gpus(gpus)?;
    }
    if cluster.count > 1 && cluster.node.network.0 <= 0.0 {
        return Err(ApiError::Invalid {
            message: format!("`{}` has {} nodes and no network between them", cluster.name, cluster.count),
            hint: Some("ask `nodes` for nodes with a network"),
        });
    }
    Ok(cluster)
}

/// Dollars of one GPU for one hour, where a price is known.
pub(super) fn usd_per_gpu_hour(engine: &Engine, cluster: &Cluster) -> Option<f64> {
    if let Some((node, _)) = &cluster.node_hour_usd {
        return Some(node * cluster.count as f64 / cluster.gpus() as f64);
    }
    Some(engine.prices.quote(&cluster.node.gpu.name, Pricing::OnDemand)?.usd_per_hour)
}

/// Sizes that are fixed, as `tp=8`.
pub(super) fn fixed(list: &[String]) -> Result<Fixed, ApiError> {
    let mut fixed = Fixed::default();
    for text in list.iter().take(16) {
        fixed.set(text)?;
    }
    Ok(fixed)
}

/// Milliseconds by cause.
pub(super) fn breakdown_ms(b: &Breakdown) -> BTreeMap<&'static str, f64> {
    b.parts().into_iter().map(|(name, t)| (name, t * 1e3)).collect()
}

/// Time of links that nothing hides.
pub fn exposed(b: &Breakdown) -> f64 {
    b.tp_exposed + b.cp_exposed + b.ep_exposed + b.dp_exposed + b.pp_transfer
}

/// The software of a question.
pub(super) fn stack(name: &str) -> Result<Stack, ApiError> {
    crate::choice::one_of("stack", name, &Stack::ALL.map(|s| (s.name(), s)))
}
