//! Peak memory of the fullest rank, and throughput, against torchtitan's published runs of Llama 3.1 8B.

use super::Pair;
use crate::collective::Collectives;
use crate::interval::LogInterval;
use crate::iteration::{Outcome, Setting, ShardCosts};
use crate::model::{Attention, Stack, Transformer};
use crate::rank::CoreTimes;
use crate::strategy::{Fsdp, Recompute, Strategy};
use crate::{Cluster, ClusterError};
use preflop_core::Dtype;
use preflop_core::time::TimeModel;
use preflop_core::units::{Bytes, BytesPerSecond};
use serde::Deserialize;

/// A row of `torchtitan.csv`.
#[derive(Debug, Clone, Deserialize)]
#[allow(missing_docs)]
pub struct Row {
    pub config: String,
    pub row: String,
    pub tokens_per_sec_per_gpu: f64,
    #[serde(rename = "peak_memory_GiB_per_gpu")]
    pub peak_memory_gib: f64,
}

/// The machine of these runs. Its H100 has 96 GB of slower memory (2.4 TB/s, recalled from the page of the results) and a limit of 500 W; all
/// else is the catalogue's, and nothing of it was fitted on these rows.
fn machine(gpus: u64) -> Result<Cluster, ClusterError> {
    let mut node = crate::node::catalog::need("dgx-h100")?;
    let gpu = &mut node.gpu;
    let dram = BytesPerSecond::from_gbs(2400.0);
    gpu.dram_sustained = gpu.dram_sustained * (dram.0 / gpu.dram.0);
    gpu.dram = dram;
    gpu.tdp_w = 500.0;
    gpu.memory = Bytes(96e9);
    Cluster::of(node, gpus.div_ceil(8)).with_gpus(gpus)
}

const SEQ: u64 = 8192;
const LOCAL_BATCH: u64 = 2;

impl Row {
    fn gpus(&self) -> u64 {
        if self.config.contains("128 GPUs") { 128 } else { 8 }
    }

    fn strategy(&self) -> Strategy {
        let compiled = self.row.contains("compile");
        Strategy {
            dp: self.gpus(),
            micro_batch: LOCAL_BATCH,
            global_batch: LOCAL_BATCH * self.gpus(),
            fsdp: Some(Fsdp::Full),
            recompute: Recompute::Selective,
            stack: if compiled { Stack::Compiled } else { Stack::Eager },
            attention: Attention::Fused,
            ..Strategy::default()
        }
    }
}

/// Memory in GiB and seconds of an iteration.
pub fn predict(
    row: &Row,
    time_model: &TimeModel,
    collectives: &Collectives,
) -> Result<[Pair; 2], ClusterError> {
    let cluster = machine(row.gpus())?;
    let model = Transformer::llama("llama-3.1-8b", [32, 4096, 32, 8, 128, 14_336], 128_256);
    let strategy = row.strategy();
    let product = if row.row.contains("Float8") { Dtype::Fp8 } else { Dtype::Bf16 };
    let times = CoreTimes { model: time_model, gpu: &cluster.node.gpu };
    let setting = Setting {
        model: &model,
        seq: SEQ,
        dtype: Dtype::Bf16,
        product,
        cluster: &cluster,
        collectives,
        contention: None,
        host: strategy.stack.host(),
    };
    let costs = ShardCosts::new(&model, strategy.shard(SEQ, Dtype::Bf16, product), &times);
    let outcome: Outcome = setting.predict(&strategy, &costs, &times)?;
    let gib = f64::from(1 << 30);
    let peak = outcome.fullest().map_or(0.0, crate::memory::RankMemory::reserved) / gib;
    let system = format!("{} GPUs, {}", row.gpus(), row.row);
    let none = LogInterval { low: 0.0, high: 0.0 };
    let measured = (LOCAL_BATCH * SEQ) as f64 / row.tokens_per_sec_per_gpu;
    Ok([
        Pair { system, measured: row.peak_memory_gib, predicted: peak, interval: none, unmeasured: 0.0 },
        Pair {
            system: "llama-3.1-8b on H100".to_string(),
            measured,
            predicted: outcome.time,
            interval: outcome.interval,
            unmeasured: 0.0,
        },
    ])
}
