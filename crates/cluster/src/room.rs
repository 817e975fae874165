//! What would make a run fit that does not, several GPUs included: the one list of `predict`, `report`, `compare`, the API and the page.

use crate::collective::Collectives;
use crate::data_parallel::{self, Sharding};
use crate::strategy::Fsdp;
use crate::{Cluster, Node, cluster};
use preflop_core::Gpu;
use preflop_core::cost::fit::prudent_peak;
use preflop_core::cost::room::{Change, Misfit, Room};
use preflop_core::model::{Graph, Iteration, Mode};
use preflop_core::schedule::Schedule as _;
use preflop_core::units::Bytes;

/// Most GPUs that are tried.
const MOST: u64 = 1024;

/// On its GPU, on another where those are asked for, and sharded over several.
pub fn changes<Network: FnMut(u64) -> Option<Graph>>(
    run: &mut Room<'_, Network>,
    at: &Misfit<'_>,
) -> Vec<Change> {
    let mut out = run.changes(at);
    if let Some(sharded) = sharded(run, at) {
        out.retain(|c| c.fits);
        out.push(sharded);
    }
    out
}

/// FSDP over the fewest GPUs that have room, each with its own batch; with checkpoints where that alone is not enough.
fn sharded<Network: FnMut(u64) -> Option<Graph>>(
    run: &mut Room<'_, Network>,
    at: &Misfit<'_>,
) -> Option<Change> {
    let (asked, options) = run.asked();
    if options.mode != Mode::Train {
        return None;
    }
    let clusters = clusters(at.gpu);
    let before = at.model.predict_iteration(asked, at.gpu).time.0;
    let over = |iteration: &Iteration, again: bool| {
        over(at, &clusters, iteration, options.precision.weight_bytes(), again, before)
    };
    over(asked, false).or_else(|| over(&*run.checkpointed()?, true))
}

/// Groups of this GPU as they are sold: parts of a box, then boxes, each twice the one before.
fn clusters(gpu: &Gpu) -> Vec<Cluster> {
    let nodes = crate::node::catalog::all().unwrap_or_default();
    let most = cluster::most_in_a_box(gpu, &nodes);
    let boxed = nodes.iter().filter(|n| cluster::is_alike(n, gpu)).max_by_key(|n| n.gpus);
    let several = std::iter::successors(Some(2_u64), |n| Some(n * 2)).take_while(|n| *n <= MOST);
    several
        .filter_map(|n| {
            if n <= most.min(8) {
                return Some(Cluster::of(Node::usual(gpu.clone(), n), 1));
            }
            let node = boxed?.clone().with_gpu(gpu.clone());
            n.is_multiple_of(node.gpus).then(|| Cluster::of(node.clone(), n / node.gpus))
        })
        .collect()
}

/// The smallest of these groups over which the run fits once it is sharded.
fn over(
    at: &Misfit<'_>,
    clusters: &[Cluster],
    iteration: &Iteration,
    gradient_size: f64,
    again: bool,
    before: f64,
) -> Option<Change> {
    let one = at.model.predict_iteration(iteration, at.gpu);
    clusters.iter().find_map(|cluster| {
        let p = data_parallel::predict(
            iteration,
            &one,
            cluster,
            &Collectives::embedded(),
            Sharding::Shards(Fsdp::Full),
            gradient_size,
            data_parallel::EVEN_IMBALANCE,
        );
        let peak = Bytes(data_parallel::peak(iteration, prudent_peak(iteration), cluster, 3, p.bytes));
        if !at.reserve.fits(peak, at.gpu) {
            return None;
        }
        let gpus = cluster.gpus();
        let mut options = vec![format!("--cluster {}", cluster.name), "--fsdp full".to_owned()];
        let mut change = format!("FSDP over {gpus} GPUs");
        if again {
            change.push_str(", checkpointing");
            options.push("--checkpoint full".to_owned());
        }
        Some(Change {
            change,
            options,
            memory_mib: peak.mib(),
            fits: true,
            iteration_ms: p.time * 1e3,
            samples_per_s: (iteration.samples * gpus) as f64 / p.time,
            time_ratio: p.time / gpus as f64 / before,
            gpu: None,
            gpus,
        })
    })
}
