//! FSDP runs of 2023: MPT models on A100, and Llama on H100 of a year later.

use super::{Pair, descent};
use crate::collective::Collectives;
use crate::iteration::{Setting, ShardCosts};
use crate::model::{Attention, Norm, Stack, Transformer};
use crate::rank::{Aged, CoreTimes};
use crate::strategy::{Fsdp, Recompute, Strategy};
use crate::{Cluster, ClusterError};
use preflop_core::Dtype;
use preflop_core::time::TimeModel;
use serde::Deserialize;

/// A row of `fsdp_mpt.csv`.
#[derive(Debug, Clone, Deserialize)]
#[allow(missing_docs)]
pub struct Row {
    pub model: String,
    pub sequence_tokens: u64,
    pub gpus: u64,
    pub gpu: String,
    pub microbatchsize: u64,
    pub gradaccum: u64,
    pub globalbatchsize: u64,
    pub tokens_per_s: f64,
    pub activation_checkpointing: String,
}

/// Layers, width and heads of the MPT family.
fn sizes(model: &str) -> Option<[u64; 3]> {
    Some(match model {
        "125m" => [12, 768, 12],
        "350m" => [24, 1024, 16],
        "760m" => [24, 1536, 12],
        "1b" => [24, 2048, 16],
        "3b" => [32, 2560, 20],
        "7b" => [32, 4096, 32],
        "13b" => [40, 5120, 40],
        "30b" => [48, 7168, 56],
        "70b" => [80, 8192, 64],
        _ => return None,
    })
}

impl Row {
    /// The model: GPT without biases and dropout.
    pub fn transformer(&self) -> Option<Transformer> {
        let [layers, width, heads] = sizes(&self.model)?;
        let gpt = Transformer::gpt(&self.model, layers, width, heads, 50_368, self.sequence_tokens);
        Some(Transformer { bias: false, dropout: false, norm: Norm::Layer, ..gpt })
    }

    /// How it was run.
    pub fn strategy(&self) -> Strategy {
        let full = self.activation_checkpointing.eq_ignore_ascii_case("true");
        Strategy {
            dp: self.gpus,
            micro_batch: self.microbatchsize,
            global_batch: self.microbatchsize * self.gpus * self.gradaccum.max(1),
            fsdp: Some(Fsdp::Full),
            recompute: if full { Recompute::Full } else { Recompute::None },
            stack: Stack::Eager,
            attention: Attention::Fused,
            ..Strategy::default()
        }
    }

    /// Measured seconds of an iteration.
    pub fn measured(&self) -> f64 {
        (self.globalbatchsize * self.sequence_tokens) as f64 / self.tokens_per_s
    }

    fn node(&self) -> Option<&'static str> {
        Some(match self.gpu.as_str() {
            "a100_40gb" => "azure-nd96-a100-v4",
            "a100_80gb" => "dgx-a100",
            "h100_80gb" => "dgx-h100",
            _ => return None,
        })
    }
}

/// What the kernels of that year add: factors of attention and of everything but products, and contention with links.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Era {
    /// Attention.
    pub attention: f64,
    /// Norms, activations, residuals, loss.
    pub pointwise: f64,
    /// Slow-down of compute beside collectives.
    pub contention: f64,
}

impl Era {
    /// Today's kernels, nothing added.
    pub const TODAY: Self = Self { attention: 1.0, pointwise: 1.0, contention: 0.0 };
}

/// Predicts a row.
pub fn predict(
    row: &Row,
    era: Era,
    time_model: &TimeModel,
    collectives: &Collectives,
) -> Option<Result<Pair, ClusterError>> {
    let model = row.transformer()?;
    let node = row.node()?;
    let run = || {
        let cluster =
            Cluster::of(crate::node::catalog::need(node)?, row.gpus.div_ceil(8)).with_gpus(row.gpus)?;
        let today = CoreTimes { model: time_model, gpu: &cluster.node.gpu };
        let times = Aged { inner: &today, attention: era.attention, pointwise: era.pointwise };
        let strategy = row.strategy();
        let seq = row.sequence_tokens;
        let setting = Setting {
            model: &model,
            seq,
            dtype: Dtype::Bf16,
            product: Dtype::Bf16,
            cluster: &cluster,
            collectives,
            contention: era.contention,
            host: strategy.stack.host(),
        };
        let costs = ShardCosts::new(&model, strategy.shard(seq, Dtype::Bf16, Dtype::Bf16), &times);
        let outcome = setting.predict(&strategy, &costs, &times)?;
        Ok(Pair {
            system: row.gpu.clone(),
            measured: row.measured(),
            predicted: outcome.time,
            interval: outcome.interval,
        })
    };
    Some(run())
}

/// Factors that fit these rows best.
pub fn fit(rows: &[Row], time_model: &TimeModel, collectives: &Collectives) -> Era {
    let era = |c: &[f64]| Era { attention: c[0], pointwise: c[1], contention: c[2] };
    let error = |c: &[f64]| {
        let logs: Vec<f64> = rows
            .iter()
            .filter_map(|r| predict(r, era(c), time_model, collectives))
            .filter_map(Result::ok)
            .map(|p| p.log().abs())
            .collect();
        logs.iter().sum::<f64>() / logs.len().max(1) as f64
    };
    let limits = [(0.5, 6.0), (0.3, 6.0), (0.001, 1.0)];
    era(&descent::minimise(&error, &[1.3, 1.0, 0.1], &limits, 12))
}

/// Each model left out of the factors by turns.
pub fn left_out_models(
    rows: &[Row],
    time_model: &TimeModel,
    collectives: &Collectives,
) -> Result<Vec<Pair>, ClusterError> {
    let mut names: Vec<&str> = rows.iter().map(|r| r.model.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let mut out = Vec::new();
    for name in names {
        let (own, rest): (Vec<Row>, Vec<Row>) = rows.iter().cloned().partition(|r| r.model == name);
        let era = fit(&rest, time_model, collectives);
        for row in &own {
            if let Some(pair) = predict(row, era, time_model, collectives) {
                let mut pair = pair?;
                pair.system = name.to_string();
                out.push(pair);
            }
        }
    }
    Ok(out)
}
