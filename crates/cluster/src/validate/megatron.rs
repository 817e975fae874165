//! GPT iterations under tensor, data and pipeline parallelism: vTrain's runs and the published ones on Selene.

use super::Pair;
use crate::collective::Collectives;
use crate::iteration::{Outcome, Setting, ShardCosts};
use crate::model::{Attention, Stack, Transformer};
use crate::rank::CoreTimes;
use crate::strategy::{Recompute, Strategy};
use crate::{Cluster, ClusterError};
use preflop_core::Dtype;
use preflop_core::time::TimeModel;
use serde::Deserialize;

/// A row of `megatron_3d.csv`.
#[derive(Debug, Clone, Deserialize)]
#[allow(missing_docs)]
pub struct Row {
    pub gpus: u64,
    pub global_batch: u64,
    pub micro_batch: u64,
    pub hidden: u64,
    pub heads: u64,
    pub layers: u64,
    pub seq: u64,
    pub tp: u64,
    pub dp: u64,
    pub pp: u64,
    pub iteration_ms: f64,
    pub part: String,
}

/// Megatron pads the vocabulary of GPT-2 to a multiple of 128 for each tensor-parallel rank.
pub fn padded_vocabulary(tp: u64) -> u64 {
    50_257_u64.next_multiple_of(128 * tp)
}

impl Row {
    /// The model.
    pub fn model(&self) -> Transformer {
        Transformer::gpt("gpt", self.layers, self.hidden, self.heads, padded_vocabulary(self.tp), self.seq)
    }

    /// How it was run: 1F1B, full recomputation, plain attention, fp16.
    pub fn strategy(&self) -> Strategy {
        Strategy {
            tp: self.tp,
            dp: self.dp,
            pp: self.pp,
            micro_batch: self.micro_batch,
            global_batch: self.global_batch,
            recompute: Recompute::Full,
            stack: Stack::Megatron,
            attention: Attention::Eager,
            ..Strategy::default()
        }
    }
}

/// Predicts a row on this cluster.
pub fn predict(
    model: &Transformer,
    strategy: &Strategy,
    seq: u64,
    cluster: &Cluster,
    time_model: &TimeModel,
    collectives: &Collectives,
) -> Result<Outcome, ClusterError> {
    let times = CoreTimes { model: time_model, gpu: &cluster.node.gpu };
    let setting = Setting {
        model,
        seq,
        dtype: Dtype::Fp16,
        product: Dtype::Fp16,
        cluster,
        collectives,
        contention: 0.0,
        host: strategy.stack.host(),
    };
    let costs = ShardCosts::new(model, strategy.shard(seq, Dtype::Fp16, Dtype::Fp16), &times);
    setting.predict(strategy, &costs, &times)
}

/// The machine of the runs: DGX A100 with 800 Gb/s between nodes, as the authors configure it.
pub fn cluster(gpus: u64) -> Result<Cluster, ClusterError> {
    let mut node = crate::node::catalog::need("dgx-a100")?;
    node.network = preflop_core::units::BytesPerSecond::from_gbs(100.0);
    node.nics = 4;
    Cluster::of(node, gpus.div_ceil(8)).with_gpus(gpus)
}

/// All rows that can be predicted.
pub fn pairs(
    rows: &[Row],
    time_model: &TimeModel,
    collectives: &Collectives,
) -> Result<Vec<(Row, Pair, Outcome)>, ClusterError> {
    rows.iter()
        .map(|row| {
            let cluster = cluster(row.gpus)?;
            let outcome = predict(&row.model(), &row.strategy(), row.seq, &cluster, time_model, collectives)?;
            let pair = Pair {
                system: format!("{}x{}", row.hidden, row.layers),
                measured: row.iteration_ms,
                predicted: outcome.time * 1e3,
                interval: outcome.interval,
            };
            Ok((row.clone(), pair, outcome))
        })
        .collect()
}
