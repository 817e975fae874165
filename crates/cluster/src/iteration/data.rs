//! Data parallelism inside an iteration: gradients reduced at the end, in buckets during backward, or shards gathered
//! layer by layer.

use super::terms::Uses;
use super::{Setting, ShardCosts, gradient_size};
use crate::collective::{Group, Kind};
use crate::strategy::{Fsdp, Recompute, Strategy};

/// Bytes of a DDP bucket (PyTorch's default).
const BUCKET: f64 = 25.0 * 1024.0 * 1024.0;

/// What data parallelism adds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Data {
    /// Seconds that nothing hides.
    pub exposed: f64,
    /// Seconds by which compute slows down beside collectives.
    pub contention: f64,
}

impl Setting<'_> {
    /// `parts` are forward and backward of one microbatch; `parameters` those of the largest rank.
    pub(super) fn data_parallel(
        &self,
        s: &Strategy,
        costs: &ShardCosts,
        parts: &[f64; 2],
        parameters: f64,
        uses: &mut Uses,
    ) -> Data {
        let ranks = s.dp * s.cp;
        if ranks < 2 {
            return Data::default();
        }
        let group = self.group(ranks, s.tp);
        if s.stage() == 3 {
            return self.sharded(s, costs, parts, uses, group);
        }
        let bytes = parameters * gradient_size(s.stack, self.dtype);
        let m = s.microbatches() as f64;
        let mut data = if s.stage() >= 1 {
            // Gradients to their owner, parameters back from it.
            let scatter = self.collective(Kind::ReduceScatter, group, bytes);
            let gathered = parameters * self.dtype.size();
            let gather = self.collective(Kind::AllGather, group, gathered);
            // Stage 2 frees gradients as it goes, so it scatters those of every microbatch.
            let times = if s.stage() == 2 { m } else { 1.0 };
            let hidden = if s.stack.overlaps_gradients() { parts[1] * times } else { 0.0 };
            let exposed = (scatter.time * times - hidden).max(scatter.time * times * 0.05) + gather.time;
            uses.add(
                Kind::ReduceScatter,
                "dp",
                group,
                bytes,
                times,
                &scatter,
                (exposed - gather.time) / (scatter.time * times),
            );
            uses.add(Kind::AllGather, "dp", group, gathered, 1.0, &gather, 1.0);
            Data { exposed, contention: 0.0 }
        } else if s.stack.overlaps_gradients() {
            self.bucketed(parts[1], bytes, group, uses)
        } else {
            let reduce = self.collective(Kind::AllReduce, group, bytes);
            uses.add(Kind::AllReduce, "dp", group, bytes, 1.0, &reduce, 1.0);
            Data { exposed: reduce.time, contention: 0.0 }
        };
        if s.pp > 1 && self.model.tied {
            // First and last stage hold copies of the token table and sum its gradients.
            let table = (self.model.vocabulary * self.model.width) as f64 / s.tp as f64;
            let apart = Group { gpus: 2, per_node: if s.gpus() <= self.cluster.node.gpus { 2 } else { 1 } };
            let bytes = table * gradient_size(s.stack, self.dtype);
            let tie = self.collective(Kind::AllReduce, apart, bytes);
            uses.add(Kind::AllReduce, "tied", apart, bytes, 1.0, &tie, 1.0);
            data.exposed += tie.time;
        }
        data
    }

    /// Buckets start when their last gradient is there and the bucket before is through; the last one always shows.
    fn bucketed(&self, backward: f64, bytes: f64, group: Group, uses: &mut Uses) -> Data {
        let count = (bytes / BUCKET).ceil().max(1.0);
        let one = self.collective(Kind::AllReduce, group, bytes / count);
        let all = one.time * count;
        // Gradients come evenly; the first bucket is complete after its share of backward.
        let exposed = (all - backward * (1.0 - 1.0 / count)).max(one.time);
        uses.add(Kind::AllReduce, "dp", group, bytes / count, count, &one, exposed / all);
        Data { exposed, contention: 0.0 }
    }

    /// Shards: every layer is gathered for every forward and backward, its gradients scattered; the next layer's gather runs
    /// beside this layer's work.
    ///
    /// ```text
    /// forward   sum_i max(F, AG) + first gather;  backward  sum_i max(B, AG + RS) + last scatter
    /// ```
    fn sharded(
        &self,
        s: &Strategy,
        costs: &ShardCosts,
        parts: &[f64; 2],
        uses: &mut Uses,
        group: Group,
    ) -> Data {
        let layers = self.model.layers as f64 / s.pp as f64;
        let m = s.microbatches() as f64;
        let node = self.cluster.node.gpus;
        let inside = if s.fsdp == Some(Fsdp::Hybrid) && group.nodes() > 1 {
            Group { gpus: group.per_node, per_node: group.per_node }
        } else {
            group
        };
        let layer = self.model.layer_parameters() as f64 / s.tp as f64;
        let rest = (self.model.embedding_parameters() + self.model.head_parameters()) as f64 / s.tp as f64;
        let size = self.dtype.size();
        let gather = self.collective(Kind::AllGather, inside, layer * size);
        let scatter =
            self.collective(Kind::ReduceScatter, inside, layer * gradient_size(s.stack, self.dtype));
        let outer = self.collective(Kind::AllGather, inside, rest * size);
        let outer_back =
            self.collective(Kind::ReduceScatter, inside, rest * gradient_size(s.stack, self.dtype));
        let gathers_again = s.fsdp != Some(Fsdp::GradOp);
        let (forward, backward) = (parts[0] / layers, parts[1] / layers);
        let back = scatter.time + if gathers_again { gather.time } else { 0.0 };
        let beside = |work: f64, link: f64| (link - work).max(0.0);
        let exposed_forward =
            layers * beside(forward, gather.time) + gather.time.min(outer.time) + outer.time;
        let exposed_backward = layers * beside(backward, back) + scatter.time + outer_back.time;
        let total = layers * (gather.time + back) + outer.time + outer_back.time;
        let mut exposed = m * (exposed_forward + exposed_backward);
        let share = (exposed / (m * total)).min(1.0);
        let gathers = if gathers_again { 2.0 } else { 1.0 };
        uses.add(Kind::AllGather, "dp", inside, layer * size, gathers * layers * m, &gather, share);
        uses.add(Kind::ReduceScatter, "dp", inside, layer * size, layers * m, &scatter, share);
        uses.add(Kind::AllGather, "dp", inside, rest * size, m, &outer, 1.0);
        if inside != group {
            // The copies in other nodes: a part of the gradients each, once an iteration.
            let across = Group { gpus: group.nodes(), per_node: 1 };
            let whole = layers * layer + rest;
            let bytes = whole * gradient_size(s.stack, self.dtype) / inside.gpus as f64;
            let reduce = self.collective(Kind::AllReduce, across, bytes);
            let shown = (reduce.time - parts[1]).max(0.1 * reduce.time);
            uses.add(Kind::AllReduce, "dp", across, bytes, 1.0, &reduce, shown / reduce.time);
            exposed += shown;
        }
        debug_assert!(node > 0);
        let again = if s.recompute == Recompute::Full { costs.forward.time * layers } else { 0.0 };
        let hidden = (m * total - exposed).max(0.0).min(m * (parts[0] + parts[1] + again));
        let share = self.contention.unwrap_or_else(|| s.stack.contention(&self.cluster.node.gpu));
        Data { exposed, contention: share * hidden }
    }
}
