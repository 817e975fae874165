//! The search for the best strategy: every one that divides, each with its time, memory, cost and energy.
//!
//! Costs of a shard depend on tensor, context and expert parallel and on the microbatch; they are asked once for each. Pipeline,
//! data parallel, interleaving, ZeRO and recomputation are arithmetic after that, so the whole space is tried: the
//! result is exact within the model.

use crate::iteration::{Breakdown, Setting, ShardCosts, Uses};
use crate::model::{Attention, Stack, Transformer};
use crate::rank::OperatorTimes;
use crate::strategy::{Fsdp, Recompute, Schedule, Strategy};
use crate::{Cluster, ClusterError};
use preflop_core::cost::Power;
use std::collections::HashMap;

/// What the best plan is best in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Objective {
    /// Seconds of an iteration.
    Time,
    /// Dollars of an iteration.
    Cost,
    /// Joules of an iteration.
    Energy,
}

/// Sizes that a user fixed; everything else is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fixed {
    /// Tensor parallel.
    pub tp: Option<u64>,
    /// Context parallel.
    pub cp: Option<u64>,
    /// Pipeline parallel.
    pub pp: Option<u64>,
    /// Data parallel.
    pub dp: Option<u64>,
    /// Expert parallel.
    pub ep: Option<u64>,
    /// Chunks of a pipeline rank.
    pub interleave: Option<u64>,
    /// Microbatch.
    pub micro_batch: Option<u64>,
    /// ZeRO stage.
    pub zero: Option<u8>,
    /// Recomputation.
    pub recompute: Option<Recompute>,
}

impl Fixed {
    /// Reads `tp=8` and its like.
    pub fn set(&mut self, text: &str) -> Result<(), ClusterError> {
        let known = "tp, cp, pp, dp, ep, interleave, micro-batch, zero, recompute";
        let wrong = |why: String| {
            ClusterError::Plan(format!("`--fixed {text}`: {why}; write `tp=8`, known: {known}"))
        };
        let (key, value) = text.split_once('=').ok_or_else(|| wrong("no `=`".into()))?;
        if key.trim() == "recompute" {
            let found = Recompute::ALL.into_iter().find(|r| r.name() == value.trim());
            self.recompute = Some(found.ok_or_else(|| wrong("recompute is none, selective or full".into()))?);
            return Ok(());
        }
        let number: u64 = value
            .trim()
            .parse()
            .ok()
            .filter(|n| *n <= 1 << 24)
            .ok_or_else(|| wrong(format!("`{value}` is no size")))?;
        let place = match key.trim() {
            "tp" => &mut self.tp,
            "cp" => &mut self.cp,
            "pp" => &mut self.pp,
            "dp" => &mut self.dp,
            "ep" => &mut self.ep,
            "interleave" => &mut self.interleave,
            "micro-batch" => &mut self.micro_batch,
            "zero" if number <= 3 => {
                self.zero = Some(number as u8);
                return Ok(());
            }
            other => return Err(wrong(format!("`{other}` cannot be fixed so"))),
        };
        if number == 0 {
            return Err(wrong("sizes start at 1".into()));
        }
        *place = Some(number);
        Ok(())
    }
}

impl Fixed {
    /// Which of the fixed sizes cannot be, with the nearest that can: what to say where no plan divides.
    pub fn check(&self, model: &Transformer, seq: u64, cluster: &Cluster) -> Result<(), ClusterError> {
        let [tp, cp, pp] = [self.tp, self.cp, self.pp].map(|size| size.unwrap_or(1));
        let taken = tp.saturating_mul(cp).saturating_mul(pp).max(1);
        let dp = self.dp.unwrap_or((cluster.gpus() / taken).max(1));
        let micro_batch = self.micro_batch.unwrap_or(1);
        let strategy = Strategy {
            tp,
            cp,
            pp,
            dp,
            ep: self.ep.unwrap_or(1),
            interleave: self.interleave.filter(|_| pp > 1).unwrap_or(1),
            micro_batch,
            // Divides whatever else is fixed: the batch is not in question here.
            global_batch: dp.saturating_mul(micro_batch).saturating_mul(pp),
            zero: self.zero.unwrap_or(0),
            ..Strategy::default()
        };
        strategy.check(model, seq, cluster)
    }
}

/// A plan.
#[derive(Debug, Clone, Copy)]
pub struct Planned {
    /// How.
    pub strategy: Strategy,
    /// Seconds.
    pub time: f64,
    /// By cause.
    pub breakdown: Breakdown,
    /// Bytes of the fullest rank.
    pub memory: f64,
    /// Is there room?
    pub fits: bool,
    /// Joules of an iteration.
    pub joules: f64,
    /// GPUs.
    pub gpus: u64,
}

impl Planned {
    fn score(&self, objective: Objective) -> f64 {
        match objective {
            Objective::Time => self.time,
            Objective::Cost => self.time * self.gpus as f64,
            Objective::Energy => self.joules,
        }
    }
}

/// What a search found.
#[derive(Debug, Clone, Default)]
pub struct Plans {
    /// Those that fit, best first.
    pub plans: Vec<Planned>,
    /// How many were tried.
    pub considered: usize,
    /// How many of them did not fit.
    pub too_large: usize,
    /// The one that came nearest to fitting, where none does.
    pub nearest: Option<Planned>,
    /// Best plan for each other value of a size, whether it fits or not.
    alternatives: HashMap<(&'static str, u64), Planned>,
}

/// What is searched.
#[derive(Debug, Clone, Copy)]
pub struct Space {
    /// Sequences of an iteration.
    pub global_batch: u64,
    /// Fixed sizes.
    pub fixed: Fixed,
    /// Stack.
    pub stack: Stack,
    /// Attention.
    pub attention: Attention,
    /// Objective.
    pub objective: Objective,
}

/// Largest microbatch that is tried.
const MAX_MICRO_BATCH: u64 = 64;
/// Largest context-parallel size that is tried, and the tokens that each rank keeps at least.
const MAX_CP: u64 = 16;
const MIN_TOKENS: u64 = 1024;
/// Most chunks of a pipeline rank.
const MAX_INTERLEAVE: u64 = 8;

fn divisors(n: u64) -> Vec<u64> {
    let mut out: Vec<u64> = (1..=n.isqrt()).filter(|d| n.is_multiple_of(*d)).collect();
    let above: Vec<u64> = out.iter().rev().map(|d| n / d).filter(|d| d * d > n).collect();
    out.extend(above);
    out
}

fn choices(fixed: Option<u64>, all: impl Iterator<Item = u64>) -> Vec<u64> {
    fixed.map_or_else(|| all.collect(), |f| vec![f])
}

/// Seconds of an optimizer step as a line: start, and seconds for each parameter.
fn optimizer_line(costs: &ShardCosts, times: &impl OperatorTimes) -> (f64, f64) {
    let at = |n: u64| times.busy(&costs.shard.optimizer(n)).time;
    let (few, many) = (at(100_000_000), at(1_000_000_000));
    let slope = (many - few) / 9e8;
    ((few - slope * 1e8).max(0.0), slope)
}

/// Tries every plan on this cluster.
pub fn search(setting: &Setting<'_>, space: &Space, times: &impl OperatorTimes) -> Plans {
    let mut found = Plans::default();
    let model = setting.model;
    let gpus = setting.cluster.gpus();
    let fixed = &space.fixed;
    let cuts = divisors(gpus);
    let tps = choices(
        fixed.tp,
        cuts.iter().copied().filter(|t| model.heads.is_multiple_of(*t) && model.inner.is_multiple_of(*t)),
    );
    let experts = model.experts.map_or(1, |e| e.count);
    let micro_batches = |dp: u64| {
        let per_rank = space.global_batch / dp.max(1);
        let powers =
            (0..7).map(|p| 1 << p).filter(move |m| *m <= MAX_MICRO_BATCH && per_rank.is_multiple_of(*m));
        choices(fixed.micro_batch, powers)
    };
    let mut costs: HashMap<(u64, u64, u64, u64), ShardCosts> = HashMap::new();
    let mut optimizer = None;
    for &tp in &tps {
        let cps = choices(
            fixed.cp,
            (0..5).map(|p| 1 << p).filter(|c| {
                *c == 1 || (*c <= MAX_CP && setting.seq.is_multiple_of(*c) && setting.seq / c >= MIN_TOKENS)
            }),
        );
        for cp in cps {
            for pp in choices(fixed.pp, divisors(model.layers).into_iter()) {
                let ranks = tp.saturating_mul(cp).saturating_mul(pp);
                if ranks > gpus || !gpus.is_multiple_of(ranks) {
                    continue;
                }
                let dp = gpus / ranks;
                if fixed.dp.is_some_and(|d| d != dp) || !space.global_batch.is_multiple_of(dp) {
                    continue;
                }
                for ep in
                    choices(fixed.ep, divisors(experts).into_iter().filter(|e| (dp * cp).is_multiple_of(*e)))
                {
                    for micro_batch in micro_batches(dp) {
                        let base = Strategy {
                            tp,
                            cp,
                            pp,
                            dp,
                            ep,
                            micro_batch,
                            global_batch: space.global_batch,
                            sequence_parallel: tp > 1 && (setting.seq / cp).is_multiple_of(tp),
                            stack: space.stack,
                            attention: space.attention,
                            schedule: Schedule::OneFOneB,
                            ..Strategy::default()
                        };
                        if base.check(model, setting.seq, setting.cluster).is_err() {
                            continue;
                        }
                        let shard = costs.entry((tp, cp, ep, micro_batch)).or_insert_with(|| {
                            ShardCosts::new(
                                model,
                                base.shard(setting.seq, setting.dtype, setting.product),
                                times,
                            )
                        });
                        let line = *optimizer.get_or_insert_with(|| optimizer_line(shard, times));
                        let step = |n: u64| line.0 + line.1 * n as f64;
                        variants(setting, space, &base, shard, &step, &mut found);
                    }
                }
            }
        }
    }
    found.plans.sort_by(|a, b| a.score(space.objective).total_cmp(&b.score(space.objective)));
    found
}

/// Interleaving, ZeRO and recomputation of one cut.
fn variants(
    setting: &Setting<'_>,
    space: &Space,
    base: &Strategy,
    costs: &ShardCosts,
    optimizer: &dyn Fn(u64) -> f64,
    found: &mut Plans,
) {
    let fixed = &space.fixed;
    let chunks = setting.model.layers / base.pp;
    let interleaves = choices(
        fixed.interleave,
        (1..=MAX_INTERLEAVE).filter(|v| {
            *v == 1
                || (base.pp > 1 && chunks.is_multiple_of(*v) && base.microbatches().is_multiple_of(base.pp))
        }),
    );
    let stages: &[u8] = match (base.dp * base.cp, base.pp) {
        (1, _) => &[0],
        (_, 1) => &[0, 1, 2, 3],
        _ => &[0, 1],
    };
    for interleave in interleaves {
        for &zero in stages.iter().filter(|z| fixed.zero.is_none_or(|f| f == **z)) {
            for recompute in Recompute::ALL.into_iter().filter(|r| fixed.recompute.is_none_or(|f| f == *r)) {
                let fsdp = (zero == 3).then_some(Fsdp::Full);
                let strategy = Strategy { interleave, zero, fsdp, recompute, ..*base };
                if fixed.interleave.is_some()
                    && strategy.check(setting.model, setting.seq, setting.cluster).is_err()
                {
                    continue;
                }
                consider(setting, space, strategy, costs, optimizer, found);
            }
        }
    }
}

fn consider(
    setting: &Setting<'_>,
    space: &Space,
    strategy: Strategy,
    costs: &ShardCosts,
    optimizer: &dyn Fn(u64) -> f64,
    found: &mut Plans,
) {
    let outcome = setting.evaluate(&strategy, costs, optimizer, &mut Uses::counting());
    let memory = outcome.ranks.iter().map(crate::memory::RankMemory::total).fold(0.0, f64::max);
    let gpus = strategy.gpus();
    let plan = Planned {
        strategy,
        time: outcome.time,
        breakdown: outcome.breakdown,
        memory,
        fits: outcome.fits(),
        joules: power(&outcome.breakdown, setting) * outcome.time * gpus as f64,
        gpus,
    };
    found.considered += 1;
    let sizes = [
        ("tp", strategy.tp),
        ("cp", strategy.cp),
        ("pp", strategy.pp),
        ("micro batch", strategy.micro_batch),
        ("interleave", strategy.interleave),
        ("zero", u64::from(strategy.stage())),
        ("recompute", strategy.recompute as u64),
    ];
    for key in sizes {
        let entry = found.alternatives.entry(key).or_insert(plan);
        let better = (plan.fits && !entry.fits)
            || (plan.fits == entry.fits
                && if plan.fits {
                    plan.score(space.objective) < entry.score(space.objective)
                } else {
                    plan.memory < entry.memory
                });
        if better {
            *entry = plan;
        }
    }
    if plan.fits {
        found.plans.push(plan);
    } else {
        found.too_large += 1;
        if found.nearest.is_none_or(|n| plan.memory < n.memory) {
            found.nearest = Some(plan);
        }
    }
}

/// Mean power of a GPU, in watts: as the core estimates it, from how long it is busy and how near its peak.
pub fn power(b: &Breakdown, setting: &Setting<'_>) -> f64 {
    let total = b.total().max(1e-12);
    let busy = (b.compute + b.recompute + b.optimizer) / total;
    // Large products run at two thirds of the datasheet's peak; links and waiting draw what a resident kernel draws.
    let active = busy * 0.66;
    let links = (b.tp_exposed + b.cp_exposed + b.ep_exposed + b.dp_exposed) / total;
    Power::from_shares(active, (busy + links).min(1.0), &setting.cluster.node.gpu).watts
}

/// Why another value of one size is not better.
#[derive(Debug, Clone, PartialEq)]
pub struct WhyNot {
    /// Which size, and its other value.
    pub what: String,
    /// Time over the best plan's, where it fits.
    pub ratio: Option<f64>,
    /// In words.
    pub why: String,
}

impl Plans {
    /// Both together, best first: of clusters of several sizes.
    #[must_use]
    pub fn merged(mut self, other: Self, objective: Objective) -> Self {
        self.plans.extend(other.plans);
        self.plans.sort_by(|a, b| a.score(objective).total_cmp(&b.score(objective)));
        self.considered += other.considered;
        self.too_large += other.too_large;
        self.nearest = match (self.nearest, other.nearest) {
            (Some(a), Some(b)) => Some(if a.memory <= b.memory { a } else { b }),
            (a, b) => a.or(b),
        };
        self
    }

    /// Plans that no other beats in time, energy and memory at once, best time first.
    pub fn pareto(&self) -> Vec<Planned> {
        let mut front: Vec<Planned> = Vec::new();
        let mut sorted = self.plans.clone();
        sorted.sort_by(|a, b| a.time.total_cmp(&b.time));
        for plan in sorted {
            let beaten = front.iter().any(|f| {
                f.time * f.gpus as f64 <= plan.time * plan.gpus as f64
                    && f.joules <= plan.joules * 1.001
                    && f.memory <= plan.memory * 1.001
            });
            if !beaten {
                front.push(plan);
            }
        }
        front
    }

    /// For each size of the best plan its next larger and smaller value: what that would cost, and why.
    pub fn why_not(&self, cluster: &Cluster) -> Vec<WhyNot> {
        let Some(best) = self.plans.first() else { return Vec::new() };
        let s = best.strategy;
        let mut out = Vec::new();
        let sizes = [
            ("tp", s.tp),
            ("pp", s.pp),
            ("cp", s.cp),
            ("micro batch", s.micro_batch),
            ("interleave", s.interleave),
            ("zero", u64::from(s.stage())),
            ("recompute", s.recompute as u64),
        ];
        for (name, value) in sizes {
            let mut others: Vec<u64> = self
                .alternatives
                .keys()
                .filter(|(n, v)| *n == name && *v != value)
                .map(|(_, v)| *v)
                .collect();
            others.sort_unstable();
            let below = others.iter().rev().find(|v| **v < value).copied();
            let above = others.iter().find(|v| **v > value).copied();
            for other in [below, above].into_iter().flatten() {
                if let Some(plan) = self.alternatives.get(&(name, other)) {
                    out.push(explain(name, other, plan, best, cluster));
                }
            }
        }
        out
    }
}

fn explain(name: &str, value: u64, plan: &Planned, best: &Planned, cluster: &Cluster) -> WhyNot {
    let shown = match name {
        "recompute" => Recompute::ALL.get(value as usize).map_or("none", |r| r.name()).to_string(),
        _ => value.to_string(),
    };
    let what = format!("{name} {shown}");
    if !plan.fits {
        let gib = |b: f64| b / f64::from(1 << 30);
        let room = gib(cluster.node.gpu.memory.0);
        let why = format!("does not fit: the fullest rank needs {:.1} of {room:.1} GiB", gib(plan.memory));
        return WhyNot { what, ratio: None, why };
    }
    let ratio = plan.time / best.time;
    let worst = plan
        .breakdown
        .parts()
        .into_iter()
        .zip(best.breakdown.parts())
        .map(|((part, a), (_, b))| (part, a - b))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    let crosses = name == "tp" && value > cluster.node.gpus;
    let cause = match worst {
        _ if crosses => "crosses nodes for every layer".to_string(),
        Some(("compute", _)) => "smaller or less efficient operators".to_string(),
        Some(("recompute", _)) => "more is computed twice".to_string(),
        Some(("tp_exposed", _)) => "more tensor-parallel traffic".to_string(),
        Some(("dp_exposed", _)) => "more gradient or parameter traffic".to_string(),
        Some(("pp_bubble", _)) => "a larger pipeline bubble".to_string(),
        Some(("pp_transfer", _)) => "more hand-over between stages".to_string(),
        Some(("host_exposed", _)) => "the host cannot launch fast enough".to_string(),
        Some((part, _)) => format!("more {part}"),
        None => String::new(),
    };
    let such = crate::scale::short(&plan.strategy);
    let why = format!("{cause}: {:+.1} % (the best such plan: {such})", 100.0 * (ratio - 1.0));
    WhyNot { what, ratio: Some(ratio), why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Collectives;
    use crate::model::Transformer;
    use crate::rank::CoreTimes;
    use preflop_core::Dtype;
    use preflop_core::time::TimeModel;

    #[test]
    fn divisors_in_order() {
        assert_eq!(divisors(12), [1, 2, 3, 4, 6, 12]);
        assert_eq!(divisors(16), [1, 2, 4, 8, 16]);
    }

    #[test]
    fn fixed_sizes_are_read_and_misreadings_refused() {
        let mut fixed = Fixed::default();
        fixed.set("tp=8").unwrap();
        fixed.set("recompute=full").unwrap();
        assert_eq!((fixed.tp, fixed.recompute), (Some(8), Some(Recompute::Full)));
        for bad in ["tp", "tp=0", "tp=x", "foo=1", "zero=9", "recompute=some"] {
            assert!(fixed.set(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_best_plan_is_no_slower_than_any_other_and_keeps_what_is_fixed() {
        let model = Transformer::llama("llama-3-8b", [32, 4096, 32, 8, 128, 14_336], 128_256);
        let cluster = Cluster::named("dgx-h100x2").unwrap();
        let time_model = TimeModel::embedded();
        let times = CoreTimes { model: &time_model, gpu: &cluster.node.gpu };
        let collectives = Collectives::embedded();
        let setting = Setting {
            model: &model,
            seq: 8192,
            dtype: Dtype::Bf16,
            product: Dtype::Bf16,
            cluster: &cluster,
            collectives: &collectives,
            contention: None,
            host: Stack::Compiled.host(),
        };
        let mut space = Space {
            global_batch: 64,
            fixed: Fixed::default(),
            stack: Stack::Compiled,
            attention: Attention::Fused,
            objective: Objective::Time,
        };
        space.fixed.micro_batch = Some(1);
        let found = search(&setting, &space, &times);
        let best = found.plans[0];
        assert!(found.plans.iter().all(|p| p.time >= best.time && p.fits && p.gpus == 16));
        assert!(found.considered > 100 && found.considered == found.plans.len() + found.too_large);
        let front = found.pareto();
        assert!(!front.is_empty() && front.len() <= found.plans.len());
        assert!(!found.why_not(&cluster).is_empty());
        space.fixed.tp = Some(2);
        assert!(search(&setting, &space, &times).plans.iter().all(|p| p.strategy.tp == 2));
        // A size that cannot be is named with the nearest that can.
        let three = Fixed { tp: Some(3), ..Fixed::default() };
        space.fixed = three;
        assert!(search(&setting, &space, &times).nearest.is_none());
        let error = three.check(&model, 8192, &cluster).unwrap_err().to_string();
        assert!(error.contains("tp 3 does not divide 32 heads: take 2 or 4"), "{error}");
        assert!(Fixed { tp: Some(2), pp: Some(4), ..Fixed::default() }.check(&model, 8192, &cluster).is_ok());
        // What a search finds is what a prediction of the same strategy says.
        let costs = ShardCosts::new(&model, best.strategy.shard(8192, Dtype::Bf16, Dtype::Bf16), &times);
        let again = setting.predict(&best.strategy, &costs, &times).unwrap();
        assert!((again.time / best.time - 1.0).abs() < 0.01, "{} {}", again.time, best.time);
    }
}
