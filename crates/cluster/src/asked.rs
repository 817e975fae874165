//! What somebody asks of a cluster, and the strategy that follows: what is not said follows from what is.

use crate::Cluster;
use crate::model::{Attention, Stack};
use crate::strategy::{Fsdp, Offload, Recompute, Schedule, Strategy};
use preflop_core::model::Precision;
use preflop_core::{Dtype, Gpu};

/// Sizes and choices of a strategy, as far as they are given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct AskedStrategy {
    /// Tensor parallel.
    pub tp: Option<u64>,
    /// Data parallel; what is left where it is not given.
    pub dp: Option<u64>,
    /// Pipeline parallel.
    pub pp: Option<u64>,
    /// Context parallel.
    pub cp: Option<u64>,
    /// Expert parallel.
    pub ep: Option<u64>,
    /// Model chunks of a pipeline rank.
    pub interleave: Option<u64>,
    /// Sequences of an iteration on each copy of the model: without a pipeline one microbatch.
    pub batch: Option<u64>,
    /// Sequences of a microbatch.
    pub micro_batch: Option<u64>,
    /// Sequences of an iteration over all; with a pipeline four microbatches for each stage and copy where neither is given.
    pub global_batch: Option<u64>,
    /// What is computed again in backward.
    pub recompute: Option<Recompute>,
    /// Sequence parallel beside tensor parallel?
    pub sequence_parallel: bool,
    /// ZeRO stage.
    pub zero: Option<u8>,
    /// Fully sharded data parallel.
    pub fsdp: Option<Fsdp>,
    /// Order of a pipeline.
    pub schedule: Option<Schedule>,
    /// What the host's memory holds.
    pub offload: Option<Offload>,
    /// Software.
    pub stack: Option<Stack>,
}

impl AskedStrategy {
    /// The strategy on this cluster.
    pub fn strategy(&self, cluster: &Cluster, attention: Attention) -> Strategy {
        let (tp, cp, pp) = (self.tp.unwrap_or(1), self.cp.unwrap_or(1), self.pp.unwrap_or(1));
        let cut = tp.saturating_mul(cp).saturating_mul(pp);
        let dp = self.dp.unwrap_or_else(|| (cluster.gpus() / cut.max(1)).max(1));
        let whole = self.batch.filter(|_| pp == 1);
        let micro_batch = self.micro_batch.or(whole).unwrap_or(1);
        let microbatches = if pp > 1 { 4 * pp } else { 1 };
        let of_a_copy = self.batch.unwrap_or_else(|| micro_batch.saturating_mul(microbatches));
        Strategy {
            tp,
            cp,
            pp,
            dp,
            ep: self.ep.unwrap_or(1),
            interleave: self.interleave.unwrap_or(1),
            micro_batch,
            global_batch: self.global_batch.unwrap_or_else(|| dp.saturating_mul(of_a_copy)),
            sequence_parallel: self.sequence_parallel,
            zero: self.zero.unwrap_or(0),
            fsdp: self.fsdp.or((self.zero == Some(3)).then_some(Fsdp::Full)),
            recompute: self.recompute.unwrap_or(Recompute::None),
            schedule: self.schedule.unwrap_or(Schedule::OneFOneB),
            offload: self.offload.unwrap_or(Offload::None),
            stack: self.stack.unwrap_or(Stack::Compiled),
            attention,
        }
    }
}

/// Formats of tensors and of products.
pub fn formats(precision: Option<Precision>, gpu: &Gpu) -> [Dtype; 2] {
    let half =
        if gpu.has_tensor(Dtype::Bf16) || !gpu.has_tensor(Dtype::Fp16) { Dtype::Bf16 } else { Dtype::Fp16 };
    match precision {
        None | Some(Precision::Amp | Precision::Bf16) => [half, half],
        Some(Precision::Fp16) => [Dtype::Fp16; 2],
        Some(Precision::Fp8) => [half, Dtype::Fp8],
        Some(Precision::Pytorch | Precision::Fp32) => [Dtype::Fp32; 2],
        Some(Precision::Tf32) => [Dtype::Fp32, Dtype::Tf32],
    }
}
