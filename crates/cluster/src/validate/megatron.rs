//! GPT iterations under tensor, data and pipeline parallelism: vTrain's runs and the published ones on Selene.

use super::{Pair, descent};
use crate::collective::Collectives;
use crate::iteration::{Outcome, Setting, ShardCosts, Uses};
use crate::model::{Attention, Host, Shard, Stack, Transformer};
use crate::rank::{CoreTimes, OperatorTimes};
use crate::strategy::{Recompute, Strategy};
use crate::{Cluster, ClusterError};
use preflop_core::Dtype;
use preflop_core::time::TimeModel;
use preflop_core::units::BytesPerSecond;
use serde::Deserialize;
use std::collections::HashMap;

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

/// A row of `megatron_selene.csv`.
#[derive(Debug, Clone, Deserialize)]
#[allow(missing_docs)]
pub struct Selene {
    pub model: String,
    pub hidden: u64,
    pub heads: u64,
    pub layers: u64,
    pub sequence_tokens: u64,
    pub gpus: u64,
    pub tp: u64,
    pub pp: u64,
    pub interleave: u64,
    pub dp: u64,
    pub global_batch: u64,
    pub micro_batch: u64,
    pub recompute: String,
    pub iteration_s: f64,
}

/// Megatron pads the vocabulary of GPT-2 to a multiple of 128 for each tensor-parallel rank.
pub fn padded_vocabulary(tp: u64) -> u64 {
    50_257_u64.next_multiple_of(128 * tp.max(1))
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

/// The machine of the runs: DGX A100 with 800 Gb/s between nodes, as the authors configure it.
pub fn cluster(gpus: u64) -> Result<Cluster, ClusterError> {
    let mut node = crate::node::catalog::need("dgx-a100")?;
    node.network = BytesPerSecond::from_gbs(100.0);
    node.nics = 4;
    Cluster::of(node, gpus.div_ceil(8)).with_gpus(gpus)
}

/// A row made ready: everything but the host's constants.
struct Ready {
    row: Row,
    model: Transformer,
    strategy: Strategy,
    cluster: Cluster,
    costs: ShardCosts,
}

impl Ready {
    fn outcome(&self, host: Host, collectives: &Collectives, step: &dyn Fn(u64) -> f64) -> Outcome {
        let setting = Setting {
            model: &self.model,
            seq: self.row.seq,
            dtype: Dtype::Fp16,
            product: Dtype::Fp16,
            cluster: &self.cluster,
            collectives,
            contention: None,
            host,
        };
        setting.evaluate(&self.strategy, &self.costs, step, &mut Uses::listing())
    }

    fn pair(&self, host: Host, collectives: &Collectives, step: &dyn Fn(u64) -> f64) -> Pair {
        let outcome = self.outcome(host, collectives, step);
        Pair {
            system: format!("{} x {}", self.row.hidden, self.row.layers),
            measured: self.row.iteration_ms,
            predicted: outcome.time * 1e3,
            interval: outcome.interval,
            unmeasured: 0.0,
        }
    }
}

fn ready(rows: &[Row], times: &impl OperatorTimes) -> Result<Vec<Ready>, ClusterError> {
    let mut known: HashMap<(u64, u64, u64, u64, Shard), ShardCosts> = HashMap::new();
    rows.iter()
        .map(|row| {
            let (model, strategy, cluster) = (row.model(), row.strategy(), cluster(row.gpus)?);
            strategy.check(&model, row.seq, &cluster)?;
            let shard = strategy.shard(row.seq, Dtype::Fp16, Dtype::Fp16);
            let key = (row.hidden, row.heads, row.layers, row.seq, shard);
            let costs = known.entry(key).or_insert_with(|| ShardCosts::new(&model, shard, times)).clone();
            Ok(Ready { row: row.clone(), model, strategy, cluster, costs })
        })
        .collect()
}

/// Host constants that fit these rows best: mean absolute log error.
fn fit(rows: &[&Ready], collectives: &Collectives, step: &dyn Fn(u64) -> f64) -> Host {
    let host = |c: &[f64]| Host { layer: c[0], backward: c[1], microbatch: c[2], iteration: c[3] };
    let error = |c: &[f64]| {
        rows.iter().map(|r| r.pair(host(c), collectives, step).log().abs()).sum::<f64>()
            / rows.len().max(1) as f64
    };
    let start = super::MEGATRON_2022;
    // Forward and backward of a layer cannot be told apart where all is recomputed: their ratio stays.
    let ratio = start.backward / start.layer;
    let reduced = |c: &[f64]| [c[0], c[0] * ratio, c[1], c[2]];
    let limits = [(1e-4, 1e-2), (1e-4, 2e-2), (1e-4, 5e-2)];
    let found = descent::minimise(
        &|c| error(&reduced(c)),
        &[start.layer, start.microbatch, start.iteration],
        &limits,
        24,
    );
    host(&reduced(&found))
}

/// Errors of runs, parted by what one stage does for one microbatch (width of the model, tensor parallel, micro batch): what all runs of such a kind share is the
/// time of a layer and of the head, and what is left is what depth, batch, pipeline and data parallelism add.
#[derive(Debug, Clone, Copy)]
pub struct StageErrors {
    /// Kinds.
    pub kinds: usize,
    /// Mean error of a kind, either way, in logs, by runs.
    pub shared: f64,
    /// Mean distance of a run from its kind.
    pub within: f64,
}

impl StageErrors {
    /// Of the logs of runs by kind.
    fn of(logs: impl IntoIterator<Item = ([u64; 3], f64)>) -> Self {
        let mut kinds: HashMap<[u64; 3], Vec<f64>> = HashMap::new();
        for (kind, log) in logs {
            kinds.entry(kind).or_default().push(log);
        }
        let runs = kinds.values().map(Vec::len).sum::<usize>().max(1) as f64;
        let (mut shared, mut within) = (0.0, 0.0);
        // In one order, so that sums are the same each time.
        let mut sorted: Vec<_> = kinds.into_iter().collect();
        sorted.sort_unstable_by_key(|(kind, _)| *kind);
        for (_, logs) in &sorted {
            let mean = logs.iter().sum::<f64>() / logs.len() as f64;
            shared += mean.abs() * logs.len() as f64;
            within += logs.iter().map(|l| (l - mean).abs()).sum::<f64>();
        }
        Self { kinds: sorted.len(), shared: shared / runs, within: within / runs }
    }
}

/// What the runs of one machine say.
#[derive(Debug)]
pub struct Runs {
    /// One node, each model left out of the host's constants by turns.
    pub one_node: Vec<Pair>,
    /// Many nodes: nothing fitted on them.
    pub many_nodes: Vec<Pair>,
    /// Constants fitted on all rows of one node.
    pub host: Host,
    /// How the errors on one node part.
    pub stages: StageErrors,
    /// Time lost by taking the plan that looks best among the measured ones: case, loss as a ratio.
    pub picks: Vec<(String, f64, usize)>,
}

/// Scores all rows.
pub fn runs(rows: &[Row], time_model: &TimeModel, collectives: &Collectives) -> Result<Runs, ClusterError> {
    let machine = cluster(8)?;
    let times = CoreTimes { model: time_model, gpu: &machine.node.gpu };
    let all = ready(rows, &times)?;
    let Some(first) = all.first() else { return Err(ClusterError::Log("no rows of megatron_3d.csv".into())) };
    let at = |n: u64| times.busy(&first.costs.shard.optimizer(n)).time;
    let slope = (at(1_000_000_000) - at(100_000_000)) / 9e8;
    let start = (at(100_000_000) - slope * 1e8).max(0.0);
    let step = move |n: u64| start + slope * n as f64;
    let single: Vec<&Ready> = all.iter().filter(|r| r.row.part == "single").collect();
    let host = fit(&single, collectives, &step);
    let mut one_node = Vec::new();
    let mut logs = Vec::new();
    let mut models: Vec<(u64, u64)> = single.iter().map(|r| (r.row.hidden, r.row.layers)).collect();
    models.sort_unstable();
    models.dedup();
    for model in models {
        let (out, kept): (Vec<&Ready>, Vec<&Ready>) =
            single.iter().partition(|r| (r.row.hidden, r.row.layers) == model);
        let host = fit(&kept, collectives, &step);
        for r in out {
            let pair = r.pair(host, collectives, &step);
            logs.push(([r.row.hidden, r.row.tp, r.row.micro_batch], pair.log()));
            one_node.push(pair);
        }
    }
    let shipped = Stack::Megatron.host();
    let many_nodes =
        all.iter().filter(|r| r.row.part != "single").map(|r| r.pair(shipped, collectives, &step)).collect();
    let picks = picks(&all, shipped, collectives, &step);
    Ok(Runs { one_node, many_nodes, host, stages: StageErrors::of(logs), picks })
}

/// For each model, batch and number of GPUs with several measured plans: the loss of taking ours.
fn picks(
    all: &[Ready],
    host: Host,
    collectives: &Collectives,
    step: &dyn Fn(u64) -> f64,
) -> Vec<(String, f64, usize)> {
    let mut cases: HashMap<(u64, u64, u64, u64), Vec<Pair>> = HashMap::new();
    for r in all {
        let key = (r.row.gpus, r.row.global_batch, r.row.hidden, r.row.layers);
        cases.entry(key).or_default().push(r.pair(host, collectives, step));
    }
    let mut out: Vec<(String, f64, usize)> = cases
        .into_iter()
        .filter(|(_, pairs)| pairs.len() >= 3)
        .filter_map(|((gpus, batch, hidden, layers), pairs)| {
            let best = pairs.iter().map(|p| p.measured).fold(f64::INFINITY, f64::min);
            let ours = pairs.iter().min_by(|a, b| a.predicted.total_cmp(&b.predicted))?;
            let name = format!("{gpus} GPUs, batch {batch}, {hidden} x {layers}");
            Some((name, ours.measured / best - 1.0, pairs.len()))
        })
        .collect();
    out.sort_by(|a, b| a.0.cmp(&b.0));
    out
}

/// The four published runs of GPT 22B and 175B.
pub fn selene(
    rows: &[Selene],
    time_model: &TimeModel,
    collectives: &Collectives,
) -> Result<Vec<Pair>, ClusterError> {
    rows.iter()
        .map(|row| {
            let cluster = Cluster::named("dgx-a100x8")?.with_gpus(row.gpus)?;
            let model =
                Transformer::gpt(&row.model, row.layers, row.hidden, row.heads, 51_200, row.sequence_tokens);
            let selective = row.recompute.contains("selective");
            let strategy = Strategy {
                tp: row.tp,
                pp: row.pp,
                dp: row.dp,
                interleave: row.interleave,
                micro_batch: row.micro_batch,
                global_batch: row.global_batch,
                sequence_parallel: row.recompute.contains("sequence"),
                recompute: if selective { Recompute::Selective } else { Recompute::Full },
                stack: Stack::Megatron,
                attention: Attention::Eager,
                ..Strategy::default()
            };
            let times = CoreTimes { model: time_model, gpu: &cluster.node.gpu };
            let seq = row.sequence_tokens;
            let setting = Setting {
                model: &model,
                seq,
                dtype: Dtype::Fp16,
                product: Dtype::Fp16,
                cluster: &cluster,
                collectives,
                contention: None,
                host: strategy.stack.host(),
            };
            let costs = ShardCosts::new(&model, strategy.shard(seq, Dtype::Fp16, Dtype::Fp16), &times);
            let outcome = setting.predict(&strategy, &costs, &times)?;
            Ok(Pair {
                system: row.model.clone(),
                measured: row.iteration_s,
                predicted: outcome.time,
                interval: outcome.interval,
                unmeasured: 0.0,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_part_into_what_a_kind_of_stage_shares_and_the_rest() {
        let kind = |tp| [1024, tp, 1];
        let of = |logs: &[(u64, f64)]| StageErrors::of(logs.iter().map(|(tp, log)| (kind(*tp), *log)));
        // Kind 1: mean 0.1, distances 0.02; kind 2: mean -0.3, a single run. By runs (2 * 0.1 + 0.3) / 3 and (2 * 0.02 + 0) / 3.
        let errors = of(&[(1, 0.12), (1, 0.08), (2, -0.3)]);
        assert_eq!(errors.kinds, 2);
        assert!((errors.shared - 0.5 / 3.0).abs() < 1e-12 && (errors.within - 0.04 / 3.0).abs() < 1e-12);
        assert_eq!(of(&[]).kinds, 0);
    }
}
