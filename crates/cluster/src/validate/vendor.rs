//! A vendor's published throughput: Llama 3 70B and a mixture of experts on GB200, 8-bit products.
//!
//! Releases of the software differ by up to 1.7 times on the same machine, so this says how far off one may be and holds no bar.

use super::Pair;
use crate::collective::Collectives;
use crate::iteration::{Setting, ShardCosts};
use crate::model::{Attention, Experts, Stack, Transformer};
use crate::rank::CoreTimes;
use crate::strategy::{Fsdp, Strategy};
use crate::{Cluster, ClusterError};
use preflop_core::Dtype;
use preflop_core::time::TimeModel;
use serde::Deserialize;

/// A row of `megatron_bridge.csv`; some cells hold two figures and are skipped.
#[derive(Debug, Clone, Deserialize)]
#[allow(missing_docs)]
pub struct Row {
    pub gpus: u64,
    pub precision: String,
    pub global_batch: u64,
    pub micro_batch: u64,
    pub sequence_tokens: u64,
    pub tp: String,
    pub pp: String,
    pub vp: String,
    pub ep: String,
    pub tokens_per_s_per_gpu: String,
    pub model: String,
    pub fsdp: String,
}

/// Which runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Dense, 70 billion parameters, cut by tensors and layers.
    Llama,
    /// The same with shards of all states.
    LlamaFsdp,
    /// 128 experts of which a token takes 8.
    Qwen,
}

impl Row {
    fn which(&self) -> Option<Which> {
        match self.model.as_str() {
            // Runs on fewer GPUs are fine-tuning with frozen weights.
            "LLAMA3_70B" if self.gpus >= 64 => {
                Some(if self.sharded() { Which::LlamaFsdp } else { Which::Llama })
            }
            "Qwen3_30B_a3B" => Some(Which::Qwen),
            _ => None,
        }
    }

    fn sharded(&self) -> bool {
        self.fsdp.parse::<u64>().is_ok_and(|n| n > 1)
    }

    fn strategy(&self) -> Option<Strategy> {
        let size = |text: &str| if text.is_empty() { Some(1) } else { text.parse::<u64>().ok() };
        let (tp, pp) = (size(&self.tp)?, size(&self.pp)?);
        let sharded = self.sharded();
        Some(Strategy {
            tp,
            pp,
            dp: self.gpus / (tp * pp).max(1),
            ep: size(&self.ep)?,
            interleave: if pp > 1 { size(&self.vp)? } else { 1 },
            micro_batch: self.micro_batch,
            global_batch: self.global_batch,
            sequence_parallel: tp > 1,
            zero: u8::from(!sharded),
            fsdp: sharded.then_some(Fsdp::Full),
            stack: Stack::Te,
            attention: Attention::Fused,
            ..Strategy::default()
        })
    }
}

fn model(which: Which) -> Transformer {
    match which {
        Which::Llama | Which::LlamaFsdp => {
            Transformer::llama("llama-3-70b", [80, 8192, 64, 8, 128, 28_672], 128_256)
        }
        Which::Qwen => Transformer {
            experts: Some(Experts { count: 128, taken: 8 }),
            ..Transformer::llama("qwen3-30b-a3b", [48, 2048, 32, 4, 128, 768], 151_936)
        },
    }
}

/// Tokens per second of a GPU for the rows of one model with 8-bit products.
pub fn pairs(
    rows: &[Row],
    which: Which,
    time_model: &TimeModel,
    collectives: &Collectives,
) -> Result<Vec<Pair>, ClusterError> {
    let model = model(which);
    let mut out = Vec::new();
    for row in rows.iter().filter(|r| r.which() == Some(which) && r.precision.contains("FP8")) {
        let Some((s, measured)) = row.strategy().zip(row.tokens_per_s_per_gpu.parse::<f64>().ok()) else {
            continue;
        };
        let cluster = Cluster::named("gb200-nvl72")?.with_gpus(row.gpus)?;
        let times = CoreTimes { model: time_model, gpu: &cluster.node.gpu };
        let seq = row.sequence_tokens;
        let setting = Setting {
            model: &model,
            seq,
            dtype: Dtype::Bf16,
            product: Dtype::Fp8,
            cluster: &cluster,
            collectives,
            contention: None,
            host: s.stack.host(),
        };
        let costs = ShardCosts::new(&model, s.shard(seq, Dtype::Bf16, Dtype::Fp8), &times);
        let outcome = setting.predict(&s, &costs, &times)?;
        let tokens = (s.global_batch * seq) as f64 / row.gpus as f64;
        // In seconds, as the interval is.
        out.push(Pair {
            system: row.model.clone(),
            measured: tokens / measured,
            predicted: outcome.time,
            interval: outcome.interval,
            unmeasured: crate::iteration::unmeasured(&s),
        });
    }
    Ok(out)
}
