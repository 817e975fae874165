//! What would make a run fit that does not, several GPUs included: the one list of `predict`, `report`, `compare`, the API and the page.

use crate::asked::{AskedStrategy, formats};
use crate::collective::Collectives;
use crate::model::{Attention, Transformer};
use crate::rank::CoreTimes;
use crate::run::{Copies, Part, Roles, Way};
use crate::strategy::Fsdp;
use crate::{Cluster, ClusterError, Node, cluster};
use preflop_core::Gpu;
use preflop_core::cost::room::{Change, Misfit, Room};
use preflop_core::model::{Checkpoint, Form, Graph, Iteration, LowerOptions, Mode, Run, lower};
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

/// A run as each GPU of a group would have its part of it, with the options that say so.
struct Sharded<'a> {
    part: Part,
    /// One GPU's part, lowered.
    iteration: &'a Iteration,
    transformer: &'a Result<Transformer, ClusterError>,
    attention: Attention,
    seq: u64,
    words: Vec<String>,
}

/// FSDP over the fewest GPUs that have room, each with its own batch; with checkpoints where that alone is not enough.
fn sharded<Network: FnMut(u64) -> Option<Graph>>(
    run: &mut Room<'_, Network>,
    at: &Misfit<'_>,
) -> Option<Change> {
    let (asked, options, form) = run.asked();
    if options.mode != Mode::Train {
        return None;
    }
    let graph = run.network()?;
    let recorded = graph.fixed.is_some();
    // A cluster takes other defaults than one GPU: what that one runs is said.
    let form = Form { run: if recorded { None } else { form.run.or(Some(Run::default())) }, ..form };
    let mut words = Vec::new();
    if !recorded {
        words.push(format!("--batch {}", asked.samples));
        words.push(format!("--precision {}", options.precision.name()));
        words.extend(form.run.map(|how| format!("--run {}", how.name())));
    }
    let adapters = graph.parameters.iter().any(|p| p.frozen);
    let batch = (!recorded).then_some(asked.samples);
    // Roles are those of the model as it is: how it is run is the plan's.
    let attention = if graph.has_eager_attention() { Attention::Eager } else { Attention::Fused };
    let graph = graph.with_fused_attention();
    let plain =
        if recorded { None } else { lower(&graph, &LowerOptions { optimizer: None, ..options }).ok() };
    let transformer = &Transformer::recognise(&graph.name, plain.as_ref().unwrap_or(asked));
    let seq = graph.seq.unwrap_or(0);
    let part = Part { batch, options, form, adapters, recorded };
    let before = at.model.predict_iteration(asked, at.gpu).time.0;
    let clusters = clusters(at.gpu);
    let fits = |run: &Sharded<'_>| clusters.iter().find_map(|cluster| run.over(at, cluster, before));
    if let Some(change) =
        fits(&Sharded { part, iteration: asked, transformer, attention, seq, words: words.clone() })
    {
        return Some(change);
    }
    let iteration = &*run.checkpointed()?;
    let part = Part { form: Form { checkpoint: Checkpoint::Full, ..form }, ..part };
    words.push(format!("--checkpoint {}", Checkpoint::Full));
    let mut change = fits(&Sharded { part, iteration, transformer, attention, seq, words })?;
    change.change.push_str(", checkpointing");
    Some(change)
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

impl Sharded<'_> {
    /// What it takes over this group, as `predict --cluster` says it; nothing where there is no room.
    fn over(&self, at: &Misfit<'_>, cluster: &Cluster, before: f64) -> Option<Change> {
        let collectives = Collectives::embedded();
        let times = CoreTimes { model: at.model, gpu: &cluster.node.gpu };
        let fsdp = AskedStrategy { fsdp: Some(Fsdp::Full), ..AskedStrategy::default() };
        let precision = self.part.options.precision;
        let (time, memory, fits) =
            match fsdp.way(&self.part, self.transformer, cluster, self.attention).ok()? {
                Way::Cut(strategy) => {
                    let roles = Roles {
                        model: self.transformer.as_ref().ok()?,
                        seq: self.seq,
                        dtypes: formats(Some(precision), &cluster.node.gpu),
                        cluster,
                        times: &times,
                        collectives: &collectives,
                    };
                    let (outcome, _) = roles.predict(&strategy).ok()?;
                    (outcome.time, Bytes(outcome.fullest()?.reserved()), outcome.fits())
                }
                Way::Copied(strategy) => {
                    let size = precision.weight_bytes();
                    let copies =
                        Copies::predict(self.iteration, &times, cluster, &collectives, &strategy, size);
                    (copies.data.time, copies.peak, copies.fits)
                }
            };
        if !fits {
            return None;
        }
        let gpus = cluster.gpus();
        let mut options =
            vec![format!("--cluster {}", cluster.name), format!("--fsdp {}", Fsdp::Full.name())];
        options.extend(self.words.iter().cloned());
        Some(Change {
            change: format!("FSDP over {gpus} GPUs"),
            options,
            memory_mib: memory.mib(),
            fits: true,
            iteration_ms: time * 1e3,
            samples_per_s: (self.iteration.samples * gpus) as f64 / time,
            time_ratio: time / gpus as f64 / before,
            gpu: None,
            gpus,
        })
    }
}
