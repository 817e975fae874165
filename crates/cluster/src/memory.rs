//! Memory of every rank: states by who owns them, activations by replaying what each layer keeps.
//!
//! ```text
//! states      = parameters * (weights + gradients + optimizer), each over dp where its ZeRO stage shards it
//! activations = what the layers of a stage keep * microbatches in flight, and the largest temporary of backward
//! in flight   = min(m, p - i) for stage i of 1F1B, m for GPipe, with v chunks p (1 + (p - 1) / (p v)) / p of a stage
//! ```
//!
//! What a layer keeps is counted tensor by tensor where its operators are listed (`model::layer`).

use crate::iteration::ShardCosts;
use crate::model::{Stack, Transformer};
use crate::strategy::{Fsdp, Offload, Recompute, Schedule, Strategy};
use preflop_core::Dtype;
use serde::Serialize;

/// What CUDA, its libraries and NCCL's buffers hold beside tensors. Context and libraries 0.6 GiB; NCCL 0.3 GiB for
/// each group a rank is in, up to 1.5 GiB.
const CONTEXT: f64 = 0.6 * GIB;
const PER_GROUP: f64 = 0.3 * GIB;
const GIB: f64 = 1_073_741_824.0;
/// Reserved over allocated memory. Six published peaks of torchtitan (Llama 3.1 8B, 8 and 128 GPUs, three stacks), which are
/// reserved memory, lie 7 to 10 % above the tensors counted here.
const FRAGMENTATION: f64 = 1.08;

/// Memory of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RankMemory {
    /// Pipeline stage.
    pub stage: u64,
    /// Weights, in bytes.
    pub weights: f64,
    /// Gradients.
    pub gradients: f64,
    /// Optimizer states and fp32 masters.
    pub optimizer: f64,
    /// Gathered layers of shards.
    pub gathered: f64,
    /// Activations and temporaries at the peak.
    pub activations: f64,
    /// Context, libraries, communication buffers.
    pub reserve: f64,
    /// Is there room?
    pub fits: bool,
}

impl RankMemory {
    /// Tensors at the peak.
    pub fn allocated(&self) -> f64 {
        self.weights + self.gradients + self.optimizer + self.gathered + self.activations
    }

    /// What its allocator reserves: blocks that do not fit together leave holes.
    pub fn reserved(&self) -> f64 {
        self.allocated() * FRAGMENTATION
    }

    /// With what the driver and libraries hold.
    pub fn total(&self) -> f64 {
        self.reserved() + self.reserve
    }

    /// Weights, gradients, optimizer.
    pub fn states(&self) -> f64 {
        self.weights + self.gradients + self.optimizer
    }
}

/// Parameters of the first, an inner and the last stage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters {
    /// With the embedding.
    pub first: f64,
    /// Layers only.
    pub inner: f64,
    /// With the head.
    pub last: f64,
}

impl Parameters {
    /// Of the largest stage.
    pub fn largest(&self) -> f64 {
        self.first.max(self.last).max(self.inner)
    }

    /// Those that the optimizer of the largest rank steps.
    pub fn stepped(&self, s: &Strategy) -> f64 {
        if s.stage() >= 1 { self.largest() / shards(s) } else { self.largest() }
    }
}

/// Ranks over which states are sharded.
fn shards(s: &Strategy) -> f64 {
    (s.dp * s.cp) as f64
}

/// Parameters of a rank by stage.
pub fn parameters(model: &Transformer, s: &Strategy) -> Parameters {
    let per_layer = match model.experts {
        None => model.layer_parameters() as f64,
        Some(e) => {
            let all = e.count * model.inner_parameters();
            (model.layer_parameters() - all) as f64 + all as f64 / s.ep as f64
        }
    };
    let tp = s.tp as f64;
    let layers = model.layers as f64 / s.pp as f64 * per_layer / tp;
    let embedding = model.embedding_parameters() as f64 / tp;
    let table = (model.vocabulary * model.width) as f64 / tp;
    let head = model.head_parameters() as f64 / tp;
    if s.pp == 1 {
        let all = layers + embedding + head;
        return Parameters { first: all, inner: all, last: all };
    }
    let copy = if model.tied { table } else { 0.0 };
    Parameters { first: layers + embedding, inner: layers, last: layers + head + copy }
}

/// Bytes of weights, gradients and optimizer states of one parameter.
fn state_bytes(stack: Stack, dtype: Dtype, sharded: bool) -> [f64; 3] {
    if sharded {
        // FSDP keeps fp32 masters as its weights: 4 + 4 + 8.
        return [4.0, 4.0, 8.0];
    }
    let size = dtype.size().max(2.0);
    if size >= 4.0 {
        return [4.0, 4.0, 8.0];
    }
    // 16-bit weights and gradients, fp32 master and two moments; Megatron adds fp32 gradients for bf16.
    let gradients = if stack.fp32_gradients() && dtype == Dtype::Bf16 { 4.0 } else { 2.0 };
    [2.0, gradients, 12.0]
}

/// Microbatches whose activations stage `i` keeps, in units of a whole stage.
fn in_flight(s: &Strategy, stage: u64) -> f64 {
    let (m, p, v) = (s.microbatches() as f64, s.pp as f64, s.interleave as f64);
    match s.schedule {
        Schedule::Gpipe => m,
        _ if s.interleave > 1 => (p * (1.0 + (p - 1.0) / (p * v)) - stage as f64).max(1.0).min(m.max(1.0)),
        _ => (p - stage as f64).min(m).max(1.0),
    }
}

/// Bytes that a layer keeps for one microbatch.
fn layer_bytes(s: &Strategy, costs: &ShardCosts) -> f64 {
    let work = &costs.layer_work;
    match s.recompute {
        Recompute::None => work.saved,
        Recompute::Selective => work.saved - work.saved_core,
        Recompute::Full => work.input,
    }
}

/// Memory of the distinct ranks: one for each stage.
pub fn ranks(model: &Transformer, s: &Strategy, costs: &ShardCosts, dtype: Dtype) -> Vec<RankMemory> {
    let owned = parameters(model, s);
    let sharded = s.stage() == 3;
    let [weights, gradients, optimizer] = state_bytes(s.stack, dtype, sharded);
    let over = match s.fsdp {
        Some(Fsdp::Hybrid) => shards(s).min(8.0),
        _ => shards(s),
    };
    let share = |from: u8| if s.stage() >= from { over } else { 1.0 };
    let layers = model.layers as f64 / s.pp as f64;
    let per_layer = layer_bytes(s, costs);
    let groups = [s.tp, s.cp, s.pp, s.dp, s.ep].iter().filter(|x| **x > 1).count() as f64;
    let width = model.layer_parameters() as f64 / s.tp as f64;
    // The layer at work, the one being prefetched, their gradients; and the largest of embedding and head.
    let outer = (model.vocabulary * model.width) as f64 / s.tp as f64;
    let (stages, last) = (s.pp, s.pp - 1);
    let distinct: Vec<u64> = if stages > 3 { vec![0, 1, last - 1, last] } else { (0..stages).collect() };
    distinct
        .into_iter()
        .map(|stage| {
            let n = if stage == 0 {
                owned.first
            } else if stage == last {
                owned.last
            } else {
                owned.inner
            };
            let mut activations = layers * per_layer * in_flight(s, stage);
            if s.recompute == Recompute::Full {
                // One layer at a time is whole again.
                activations += costs.layer_work.saved;
            }
            if stage == 0 {
                activations += costs.embedding_work.saved * in_flight(s, stage);
            }
            let mut peak = activations + costs.layer_work.temporary;
            if stage == last {
                // The loss is where forward turns: all layers are kept, and logits with their gradient stand beside them.
                peak = peak.max(activations + costs.head_work.saved + costs.head_work.temporary);
            }
            let gathered = if sharded {
                let unsharded =
                    if s.fsdp == Some(Fsdp::GradOp) { layers * width + outer } else { 2.0 * width };
                dtype.size() * (unsharded + if stage == last || stage == 0 { outer } else { 0.0 })
                    + dtype.size() * width
            } else {
                0.0
            };
            let kept = if s.offload == Offload::Optimizer { 0.0 } else { optimizer };
            RankMemory {
                stage,
                weights: n * weights / share(3),
                gradients: n * gradients / share(2),
                optimizer: n * kept / share(1),
                gathered,
                activations: peak,
                reserve: CONTEXT + (PER_GROUP * groups).min(1.5 * GIB),
                fits: true,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixed_precision_takes_sixteen_bytes_and_shards_over_zero() {
        let model = Transformer::gpt("22b", 48, 6144, 64, 51_200, 2048);
        let s = Strategy { tp: 8, dp: 4, zero: 1, stack: Stack::Compiled, ..Strategy::default() };
        let n = parameters(&model, &s).largest();
        assert!((n * 8.0 / model.parameters() as f64 - 1.0).abs() < 1e-9);
        let [w, g, o] = state_bytes(Stack::Compiled, Dtype::Bf16, false);
        assert_eq!(w + g + o, 16.0);
        assert_eq!(state_bytes(Stack::Megatron, Dtype::Bf16, false).iter().sum::<f64>(), 18.0);
    }

    #[test]
    fn early_stages_keep_more_microbatches() {
        let s = Strategy { pp: 4, global_batch: 16, ..Strategy::default() };
        assert_eq!((in_flight(&s, 0), in_flight(&s, 3)), (4.0, 1.0));
        let gpipe = Strategy { schedule: Schedule::Gpipe, ..s };
        assert_eq!(in_flight(&gpipe, 3), 16.0);
        // p (1 + (p-1)/(p v)) = 4 * (1 + 3/8) = 5.5
        let interleaved = Strategy { interleave: 2, ..s };
        assert_eq!(in_flight(&interleaved, 0), 5.5);
    }
}
