//! FSDP runs of 2023: MPT models on A100, and Llama on H100 of a year later.

use super::{Pair, descent};
use crate::collective::Collectives;
use crate::iteration::{Setting, ShardCosts, Uses};
use crate::model::{Attention, Norm, Stack, Transformer};
use crate::rank::{Aged, Busy, CoreTimes, OperatorTimes as _};
use crate::strategy::{Fsdp, Recompute, Strategy};
use crate::{Cluster, ClusterError};
use preflop_core::time::TimeModel;
use preflop_core::{Dtype, Gpu};
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
    /// Today's kernels, and the contention that these runs want.
    pub const TODAY: Self = Self { attention: 1.0, pointwise: 1.0, contention: 1.0 };
}

/// A row made ready: the times of its operators are asked once, factors are arithmetic after that.
#[derive(Debug)]
pub struct Ready {
    row: Row,
    model: Transformer,
    strategy: Strategy,
    cluster: Cluster,
    /// With factors 1 and 1, 2 and 1, 1 and 2.
    costs: [ShardCosts; 3],
    /// Seconds of an optimizer step for each parameter.
    step: f64,
}

/// Times are linear in the factors: today's, and what doubling each of them adds.
fn scaled(costs: &[ShardCosts; 3], era: Era) -> ShardCosts {
    let mix = |pick: &dyn Fn(&ShardCosts) -> Busy| {
        let [one, attention, pointwise] = [pick(&costs[0]), pick(&costs[1]), pick(&costs[2])];
        let of = |get: &dyn Fn(&Busy) -> f64| {
            let base = get(&one);
            base + (era.attention - 1.0) * (get(&attention) - base)
                + (era.pointwise - 1.0) * (get(&pointwise) - base)
        };
        Busy { time: of(&|b| b.time), low: of(&|b| b.low), high: of(&|b| b.high), ..one }
    };
    ShardCosts {
        forward: mix(&|c| c.forward),
        backward: mix(&|c| c.backward),
        core: mix(&|c| c.core),
        embedding: std::array::from_fn(|i| mix(&|c| c.embedding[i])),
        head: std::array::from_fn(|i| mix(&|c| c.head[i])),
        ..costs[0].clone()
    }
}

impl Ready {
    /// Predicts the row with the kernels of an era.
    pub fn pair(&self, era: Era, collectives: &Collectives) -> Pair {
        let setting = Setting {
            model: &self.model,
            seq: self.row.sequence_tokens,
            dtype: Dtype::Bf16,
            product: Dtype::Bf16,
            cluster: &self.cluster,
            collectives,
            contention: Some(era.contention),
            host: self.strategy.stack.host(),
        };
        let step = |n: u64| self.step * n as f64;
        let costs = scaled(&self.costs, era);
        let outcome = setting.evaluate(&self.strategy, &costs, &step, &mut Uses::listing());
        Pair {
            system: self.row.model.clone(),
            measured: self.row.measured(),
            predicted: outcome.time,
            interval: outcome.interval,
            unmeasured: 0.0,
        }
    }
}

/// All rows whose model and GPU are known.
pub fn ready(rows: &[Row], time_model: &TimeModel) -> Result<Vec<Ready>, ClusterError> {
    let mut out = Vec::new();
    for row in rows {
        let Some((model, node)) = row.transformer().zip(row.node()) else { continue };
        let cluster =
            Cluster::of(crate::node::catalog::need(node)?, row.gpus.div_ceil(8)).with_gpus(row.gpus)?;
        let strategy = row.strategy();
        strategy.check(&model, row.sequence_tokens, &cluster)?;
        let today = CoreTimes { model: time_model, gpu: &cluster.node.gpu };
        let shard = strategy.shard(row.sequence_tokens, Dtype::Bf16, Dtype::Bf16);
        let costs = [(1.0, 1.0), (2.0, 1.0), (1.0, 2.0)].map(|(attention, pointwise)| {
            ShardCosts::new(&model, shard, &Aged { inner: &today, attention, pointwise })
        });
        let step = today.busy(&shard.optimizer(1_000_000_000)).time / 1e9;
        out.push(Ready { row: row.clone(), model, strategy, cluster, costs, step });
    }
    Ok(out)
}

/// Factors that fit these rows best.
pub fn fit(rows: &[&Ready], collectives: &Collectives) -> Era {
    let era = |c: &[f64]| Era { attention: c[0], pointwise: c[1], contention: c[2] };
    let error = |c: &[f64]| {
        rows.iter().map(|r| r.pair(era(c), collectives).log().abs()).sum::<f64>() / rows.len().max(1) as f64
    };
    let limits = [(0.5, 6.0), (0.3, 6.0), (0.001, 1.0)];
    era(&descent::minimise(&error, &[1.3, 1.0, 0.1], &limits, 16))
}

/// Each GPU left out of the factors by turns, with whether the rest has one of its generation; nothing where all rows have one GPU.
///
/// An attention kernel written for an older generation runs at the rate of that generation's instructions: today's gain of a newer one is in its
/// factor, less what more SMs and a faster clock give to any kernel.
pub fn left_out_gpus(rows: &[Ready], collectives: &Collectives) -> Vec<(bool, Pair)> {
    let mut names: Vec<&str> = rows.iter().map(|r| r.row.gpu.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let mut out = Vec::new();
    for name in names {
        let (own, rest): (Vec<&Ready>, Vec<&Ready>) = rows.iter().partition(|r| r.row.gpu == name);
        let Some(gpu) = own.first().map(|r| &r.cluster.node.gpu) else { continue };
        let like = |r: &&Ready| r.cluster.node.gpu.architecture == gpu.architecture;
        // Rows of its own generation say more; newer ones than the GPU say nothing about its year.
        let mut train: Vec<&Ready> = rest.iter().copied().filter(like).collect();
        let same = !train.is_empty();
        if !same {
            train = rest
                .iter()
                .copied()
                .filter(|r| r.cluster.node.gpu.release_year <= gpu.release_year)
                .collect();
        }
        let Some(from) = train.first().map(|r| &r.cluster.node.gpu) else { continue };
        let era = fit(&train, collectives);
        let peaks = gpu.peak(Dtype::Bf16).0 / from.peak(Dtype::Bf16).0;
        let any = |g: &Gpu| f64::from(g.sm_count) * g.boost_clock.0;
        let newer = if same { 1.0 } else { (peaks / (any(gpu) / any(from))).max(1.0) };
        let era = Era { attention: era.attention * newer, ..era };
        out.extend(own.iter().map(|r| {
            let pair = r.pair(era, collectives);
            (same, Pair { system: format!("{} {}", r.row.gpu, r.row.model), ..pair })
        }));
    }
    out
}

/// Each model left out of the factors by turns.
pub fn left_out_models(rows: &[Ready], collectives: &Collectives) -> Vec<Pair> {
    let mut names: Vec<&str> = rows.iter().map(|r| r.row.model.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let mut out = Vec::new();
    for name in names {
        let (own, rest): (Vec<&Ready>, Vec<&Ready>) = rows.iter().partition(|r| r.row.model == name);
        let era = fit(&rest, collectives);
        out.extend(own.iter().map(|r| r.pair(era, collectives)));
    }
    // Kernels of that year are known from these runs alone, so their own left-out errors say how well.
    super::cross_intervals(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_left_out_takes_the_kernels_of_its_generation_or_of_the_one_before() {
        let time_model = TimeModel::embedded();
        let collectives = Collectives::embedded();
        let row = |gpu: &str, model: &str, gpus: u64| Row {
            model: model.to_string(),
            sequence_tokens: 2048,
            gpus,
            gpu: gpu.to_string(),
            microbatchsize: 2,
            gradaccum: 1,
            globalbatchsize: 2 * gpus,
            tokens_per_s: 1.0,
            activation_checkpointing: "True".to_string(),
        };
        let era = Era { attention: 1.8, pointwise: 1.2, contention: 0.5 };
        let mut rows = Vec::new();
        for gpu in ["a100_40gb", "a100_80gb", "h100_80gb"] {
            for (model, gpus) in [("1b", 8), ("3b", 8), ("7b", 64), ("13b", 64)] {
                rows.push(row(gpu, model, gpus));
            }
        }
        // Throughput as kernels of one year would give it on all three.
        let seconds: Vec<f64> =
            ready(&rows, &time_model).unwrap().iter().map(|r| r.pair(era, &collectives).predicted).collect();
        for (row, seconds) in rows.iter_mut().zip(seconds) {
            row.tokens_per_s = (row.globalbatchsize * row.sequence_tokens) as f64 / seconds;
        }
        let out = left_out_gpus(&ready(&rows, &time_model).unwrap(), &collectives);
        assert_eq!(out.len(), 12);
        for (same, pair) in &out {
            assert_eq!(*same, pair.system.starts_with("a100"), "{}", pair.system);
            // Its own generation is recovered; on the next one the old attention kernel is expected to be slower than this.
            let error = pair.predicted / pair.measured - 1.0;
            assert!(if *same { error.abs() < 0.02 } else { error > -0.02 }, "{} {error}", pair.system);
        }
        let one: Vec<Row> = rows.into_iter().filter(|r| r.gpu == "a100_40gb").collect();
        assert!(left_out_gpus(&ready(&one, &time_model).unwrap(), &collectives).is_empty());
    }
}
