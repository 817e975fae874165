//! One iteration of a sharded model on a cluster: compute of the slowest stage, what the links add to it, and the bubble.
//!
//! ```text
//! stage      t_i = layers * (F + B + recomputed + exposed collectives) + embedding or head;  never below the host's time
//! pipeline   (m - 1) * t_max + t_max + (sum_i t_i - t_max) * gap / v
//! iteration  pipeline + transfers + exposed data parallel + optimizer + host's own
//! ```
//!
//! Where m is microbatches, v chunks of a rank, `gap` 1 for GPipe and 1F1B and a third for a zero-bubble schedule (weight
//! gradients fill the rest). The costs of a shard ([`ShardCosts`]) depend on tensor and context parallel and the
//! microbatch alone, so that a search asks for them once and does arithmetic after that.

mod data;
mod doubt;
mod terms;

pub use doubt::unmeasured;
pub use terms::{Breakdown, CollectiveUse, Outcome, Uses};

use crate::collective::{Collectives, Group, Kind, Prediction};
use crate::memory::{self, RankMemory};
use crate::model::{Host, Shard, Stack, Transformer, Work};
use crate::rank::{Busy, OperatorTimes};
use crate::strategy::{Recompute, Schedule, Strategy};
use crate::{Cluster, ClusterError};
use preflop_core::Dtype;
use preflop_core::units::math::Elementary as _;

/// The question: a model on a cluster.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    /// The model.
    pub model: &'a Transformer,
    /// Tokens of a sequence.
    pub seq: u64,
    /// Number format of tensors.
    pub dtype: Dtype,
    /// Number format of products.
    pub product: Dtype,
    /// Where.
    pub cluster: &'a Cluster,
    /// Constants of collectives.
    pub collectives: &'a Collectives,
    /// Share by which compute slows down while gathers and scatters of shards run beside it; unless given, as the stack has it.
    pub contention: Option<f64>,
    /// Host time of the stack.
    pub host: Host,
}

/// Times and memory of one rank's shard, for one microbatch.
#[derive(Debug, Clone)]
pub struct ShardCosts {
    /// How it is cut.
    pub shard: Shard,
    /// Forward of a layer.
    pub forward: Busy,
    /// Backward of a layer.
    pub backward: Busy,
    /// What selective recomputation repeats.
    pub core: Busy,
    /// Embedding, forward and backward.
    pub embedding: [Busy; 2],
    /// Head, forward and backward.
    pub head: [Busy; 2],
    /// Layer, embedding and head without their operators: bytes only.
    pub layer_work: Work,
    /// As above.
    pub embedding_work: Work,
    /// As above.
    pub head_work: Work,
}

impl ShardCosts {
    /// Asks for the times of every operator of a shard.
    pub fn new(model: &Transformer, shard: Shard, times: &impl OperatorTimes) -> Self {
        let strip = |w: Work| Work { forward: Vec::new(), backward: Vec::new(), core: Vec::new(), ..w };
        let (layer, embedding, head) = (shard.layer(model), shard.embedding(model), shard.head(model));
        Self {
            shard,
            forward: times.busy(&layer.forward),
            backward: times.busy(&layer.backward),
            core: times.busy(&layer.core),
            embedding: [times.busy(&embedding.forward), times.busy(&embedding.backward)],
            head: [times.busy(&head.forward), times.busy(&head.backward)],
            layer_work: strip(layer),
            embedding_work: strip(embedding),
            head_work: strip(head),
        }
    }
}

/// Sharpness of the corner between the GPU's and the host's time.
const NORM: f64 = 8.0;
/// Share of the bubble that a zero-bubble schedule leaves (ZB-H1 of arXiv 2401.10241: a third).
const ZERO_BUBBLE: f64 = 1.0 / 3.0;
/// Waiting for the slowest rank, as a share of the iteration without its bubble for each doubling of the number of nodes. Chosen on 15 runs of
/// one model on 256 GPUs, which want 0.0055, and on three pairs of runs on 8 and 128 GPUs, which want 0.0015; they are no test for it.
/// Inside a node nothing of the kind was seen.
const STRAGGLER_PER_NODES: f64 = 0.005;
/// Time of two things that run side by side, the corner rounded.
fn beside(a: f64, b: f64) -> f64 {
    let larger = a.max(b);
    if larger <= 0.0 {
        return 0.0;
    }
    larger * (1.0 + (a.min(b) / larger).power(NORM)).power(1.0 / NORM)
}

/// Seconds that one microbatch keeps one stage, by cause.
#[derive(Debug, Clone, Copy, Default)]
struct Stage {
    compute: f64,
    recompute: f64,
    tp: f64,
    cp: f64,
    ep: f64,
    host: f64,
    forward: f64,
}

impl Stage {
    fn gpu(&self) -> f64 {
        self.compute + self.recompute + self.tp + self.cp + self.ep
    }

    fn time(&self) -> f64 {
        beside(self.gpu(), self.host)
    }
}

impl Setting<'_> {
    /// The group of a dimension whose members stand `stride` ranks apart.
    fn group(&self, gpus: u64, stride: u64) -> Group {
        Group::strided(gpus, stride, self.cluster.node.gpus)
    }

    fn collective(&self, kind: Kind, group: Group, bytes: f64) -> Prediction {
        self.collectives.predict(kind, group, bytes, self.cluster)
    }

    /// Bytes of the activations between two layers, for one microbatch of a rank.
    fn activations(&self, shard: &Shard) -> f64 {
        shard.tokens() as f64 * self.model.width as f64 * self.dtype.size()
    }

    /// Seconds that a layer's collectives add in forward and in backward: tensor, context, expert parallel.
    fn layer_links(&self, s: &Strategy, costs: &ShardCosts, uses: &mut Uses, count: f64) -> [[f64; 2]; 3] {
        let bytes = self.activations(&costs.shard);
        let mut tp = [0.0; 2];
        if s.tp > 1 {
            let group = self.group(s.tp, 1);
            if costs.shard.sequence_parallel {
                let gather = self.collective(Kind::AllGather, group, bytes);
                let scatter = self.collective(Kind::ReduceScatter, group, bytes);
                tp = [2.0 * (gather.time + scatter.time); 2];
                uses.add(Kind::AllGather, "tp", group, bytes, 4.0 * count, &gather, 1.0);
                uses.add(Kind::ReduceScatter, "tp", group, bytes, 4.0 * count, &scatter, 1.0);
            } else {
                let reduce = self.collective(Kind::AllReduce, group, bytes);
                tp = [2.0 * reduce.time; 2];
                let passes = if s.recompute == Recompute::Full { 6.0 } else { 4.0 };
                uses.add(Kind::AllReduce, "tp", group, bytes, passes * count, &reduce, 1.0);
            }
        }
        let mut cp = [0.0; 2];
        if s.cp > 1 {
            // Keys and values travel to the next rank while attention works on those at hand; gradients travel too.
            let group = Group { gpus: 2, ..self.group(s.cp, s.tp) };
            let group = Group { per_node: group.per_node.min(2), ..group };
            let kv = costs.shard.tokens() as f64
                * (2 * (self.model.kv_heads / s.tp).max(1) * self.model.head_dim) as f64
                * self.dtype.size();
            let step = self.collective(Kind::SendRecv, group, kv);
            let hops = s.cp as f64 - 1.0;
            let attention = costs.core.time * hops / s.cp as f64;
            cp = [
                (hops * step.time - attention).max(0.0),
                (2.0 * hops * step.time - 2.5 * attention).max(0.0),
            ];
            let exposed = (cp[0] + cp[1]) / (3.0 * hops * step.time);
            uses.add(Kind::SendRecv, "cp", group, kv, 3.0 * hops * count, &step, exposed);
        }
        let mut ep = [0.0; 2];
        if let Some(experts) = self.model.experts.filter(|_| s.ep > 1) {
            let group = self.group(s.ep, s.tp);
            let sent = bytes * experts.taken as f64 / s.tp as f64;
            let exchange = self.collective(Kind::AllToAll, group, sent);
            ep = [2.0 * exchange.time; 2];
            uses.add(Kind::AllToAll, "ep", group, sent, 4.0 * count, &exchange, 1.0);
        }
        [tp, cp, ep]
    }

    /// One stage's time for one microbatch.
    fn stage(
        &self,
        s: &Strategy,
        costs: &ShardCosts,
        links: [[f64; 2]; 3],
        first: bool,
        last: bool,
    ) -> Stage {
        let layers = self.model.layers as f64 / s.pp as f64;
        let [tp, cp, ep] = links;
        let both = |x: [f64; 2]| x[0] + x[1];
        let mut stage = Stage {
            compute: layers * (costs.forward.time + costs.backward.time),
            tp: layers * both(tp),
            cp: layers * both(cp),
            ep: layers * both(ep),
            forward: layers * (costs.forward.time + tp[0] + cp[0] + ep[0]),
            ..Stage::default()
        };
        match s.recompute {
            Recompute::None => {}
            Recompute::Selective => stage.recompute = layers * costs.core.time,
            Recompute::Full => {
                stage.recompute = layers * costs.forward.time;
                stage.tp += layers * tp[0];
                stage.cp += layers * cp[0];
                stage.ep += layers * ep[0];
            }
        }
        for (there, part) in [(first, &costs.embedding), (last, &costs.head)] {
            if there {
                stage.compute += part[0].time + part[1].time;
                stage.forward += part[0].time;
            }
        }
        if s.tp > 1 && (first || last) {
            // A cut table sums its rows in forward; a cut head sums the gradient of its input in backward.
            let one =
                self.collective(Kind::AllReduce, self.group(s.tp, 1), self.activations(&costs.shard)).time;
            stage.tp += one * (f64::from(u8::from(first)) + f64::from(u8::from(last)));
        }
        let host = self.host;
        let forwards = if s.recompute == Recompute::Full { 2.0 } else { 1.0 };
        stage.host = layers * (forwards * host.layer + host.backward) + host.microbatch;
        stage
    }

    /// Predicts an iteration, or says why it cannot be run so.
    pub fn predict(
        &self,
        s: &Strategy,
        costs: &ShardCosts,
        times: &impl OperatorTimes,
    ) -> Result<Outcome, ClusterError> {
        s.check(self.model, self.seq, self.cluster)?;
        let mut uses = Uses::listing();
        let optimizer = |parameters: u64| times.busy(&costs.shard.optimizer(parameters)).time;
        Ok(self.evaluate(s, costs, &optimizer, &mut uses))
    }

    /// The same without checks: for searches, which try only what divides.
    pub fn evaluate(
        &self,
        s: &Strategy,
        costs: &ShardCosts,
        optimizer: &dyn Fn(u64) -> f64,
        uses: &mut Uses,
    ) -> Outcome {
        let m = s.microbatches() as f64;
        let stages = s.pp as f64;
        let layers = self.model.layers as f64 / stages;
        let links = self.layer_links(s, costs, uses, layers * m);
        let first = self.stage(s, costs, links, true, s.pp == 1);
        let last = if s.pp == 1 { first } else { self.stage(s, costs, links, false, true) };
        let inner = if s.pp > 2 { self.stage(s, costs, links, false, false) } else { last };
        let slowest =
            [first, last, inner].into_iter().max_by(|a, b| a.time().total_cmp(&b.time())).unwrap_or(first);
        let t_max = slowest.time();
        let sum =
            first.time() + if s.pp > 1 { last.time() } else { 0.0 } + (stages - 2.0).max(0.0) * inner.time();
        let gap = if s.schedule == Schedule::ZeroBubble { ZERO_BUBBLE } else { 1.0 };
        let bubble = (sum - t_max).max(0.0) * gap / s.interleave as f64;
        let transfer = self.transfers(s, costs, uses);

        let mut b = Breakdown {
            compute: m * slowest.compute,
            recompute: m * slowest.recompute,
            tp_exposed: m * slowest.tp,
            cp_exposed: m * slowest.cp,
            ep_exposed: m * slowest.ep,
            pp_bubble: bubble,
            pp_transfer: transfer,
            host_exposed: m * (t_max - slowest.gpu()) + self.host.iteration,
            ..Breakdown::default()
        };
        let owned = memory::parameters(self.model, s);
        let data = self.data_parallel(s, costs, &slowest.parts(), owned.largest(), uses);
        b.dp_exposed = data.exposed;
        b.compute += data.contention;
        let step = owned.stepped(s);
        b.optimizer = match s.offload {
            crate::strategy::Offload::Optimizer => self.offloaded_step(step),
            _ => optimizer(step as u64),
        };
        let ranks = memory::ranks(self.model, s, costs, self.dtype);
        if s.offload == crate::strategy::Offload::Activations {
            let bytes = ranks.iter().map(|r| r.activations).fold(0.0, f64::max);
            let moved = 2.0 * bytes * m / self.cluster.node.gpu.host.0;
            b.host_exposed += (moved - m * t_max).max(0.0);
        }
        // A stage that idles in the bubble has slack: whoever is late there delays nobody.
        let tight = b.total() - b.pp_bubble;
        b.straggler = STRAGGLER_PER_NODES * (self.cluster.count as f64).binary_log() * tight;
        let interval = self.interval(s, costs, &b, uses);
        Outcome {
            time: b.total(),
            interval,
            breakdown: b,
            ranks: self.with_room(ranks, s),
            uses: uses.take(),
        }
    }

    fn with_room(&self, mut ranks: Vec<RankMemory>, s: &Strategy) -> Vec<RankMemory> {
        let room = self.cluster.node.gpu.memory.0;
        for rank in &mut ranks {
            if s.offload == crate::strategy::Offload::Activations {
                // Two layers' worth stays: the one at work and the one on its way.
                let kept = 2.0 / (self.model.layers as f64 / s.pp as f64).max(2.0);
                rank.activations *= kept;
            }
            rank.fits = rank.total() <= room;
        }
        ranks
    }

    /// Adam on the host's cores: its memory bandwidth, and the way there and back over the host interface.
    fn offloaded_step(&self, parameters: f64) -> f64 {
        let node = &self.cluster.node;
        let adam = parameters * node.gpus as f64 * 28.0 / node.host_dram.0;
        adam + parameters * 4.0 / node.gpu.host.0
    }

    /// Activations handed from stage to stage: forward and backward of every microbatch wait for them.
    fn transfers(&self, s: &Strategy, costs: &ShardCosts, uses: &mut Uses) -> f64 {
        if s.pp < 2 {
            return 0.0;
        }
        let bytes = self.activations(&costs.shard) / s.tp as f64;
        // The next stage stands as many ranks away as a stage has.
        let stride = s.tp * s.cp * s.dp;
        let node = self.cluster.node.gpus;
        let group =
            if stride < node { Group { gpus: 2, per_node: 2 } } else { Group { gpus: 2, per_node: 1 } };
        let one = self.collective(Kind::SendRecv, group, bytes);
        let times = 2.0 * (s.microbatches() as f64 + s.pp as f64 - 1.0) * s.interleave as f64;
        uses.add(Kind::SendRecv, "pp", group, bytes, times, &one, 1.0);
        times * one.time
    }
}

impl Stage {
    /// Forward and backward of one microbatch, on the GPU.
    fn parts(&self) -> [f64; 2] {
        [self.forward, self.gpu() - self.forward]
    }
}

/// Bytes of one gradient element when it is reduced.
pub(crate) fn gradient_size(stack: Stack, dtype: Dtype) -> f64 {
    // Megatron sums bf16 gradients in fp32; fp16 ones travel as they are.
    if stack.fp32_gradients() && dtype == Dtype::Bf16 { 4.0 } else { dtype.size().max(2.0) }
}
