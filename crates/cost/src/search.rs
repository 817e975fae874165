//! Finds the best of many ways to run a model on a GPU without predicting every operator of each of them.
//!
//! Runs of one batch share most of their calls (fp32 and tf32 all but the products, amp and bf16 those too), so
//! each distinct call is predicted once per GPU. And no prediction is shorter than the datasheet allows
//! ([`TimeModel::least_time`]), so that a run whose bound is worse than the best run found so far is given up: before
//! its first operator, or as soon as those predicted make it so. The answer is that of predicting everything.

use super::fit::{Setup, prudent_peak};
use super::{Power, RankBy, Reserve};
use preflop_gpu::Gpu;
use preflop_graph::{Iteration, Precision};
use preflop_ops::{Op, OpCall};
use preflop_schedule::{HostModel, Schedule as _};
use preflop_time::{OpPrediction, TimeModel};
use preflop_units::dtype::Dtype;
use preflop_units::{Bytes, Seconds};
use std::collections::HashMap;

/// Does the chip have pipes for these formats? Autocast takes the 16-bit format that it has ([`Gpu::autocast`]).
pub fn native(gpu: &Gpu, precision: Precision) -> bool {
    match precision {
        Precision::Pytorch | Precision::Fp32 => true,
        Precision::Tf32 => gpu.has(Dtype::Tf32),
        Precision::Amp => gpu.has(gpu.autocast()),
        Precision::Bf16 => gpu.has(Dtype::Bf16),
        Precision::Fp16 => gpu.has(Dtype::Fp16),
        Precision::Fp8 => gpu.has(Dtype::Fp8),
    }
}

/// Why a GPU cannot run in a format, and the nearest in which it can; nothing where it can.
pub fn lacks(gpu: &Gpu, precision: Precision) -> Option<String> {
    if native(gpu, precision) {
        return None;
    }
    let nearest: &[Precision] = match precision {
        Precision::Fp8 => &[Precision::Bf16, Precision::Fp16],
        Precision::Bf16 | Precision::Amp => &[Precision::Fp16],
        _ => &[],
    };
    let nearest = nearest.iter().copied().find(|p| native(gpu, *p)).unwrap_or(Precision::Fp32);
    Some(format!("`{}` has no {}; the nearest it has is {}", gpu.name, precision.name(), nearest.name()))
}

/// The batch sizes to try where none is asked for: 1 to 7, then four to each doubling up to 2048; forty in all.
pub fn usual_batches() -> Vec<u64> {
    let quarters = (3..11).flat_map(|e| [4_u64, 5, 6, 7].map(|q| q << (e - 2)));
    (1..8).chain(quarters).chain([2048]).collect()
}

/// One way to run: its distinct calls by place in the list of all, with their counts.
#[derive(Debug)]
struct Run<'a> {
    precision: Precision,
    iteration: &'a Iteration,
    peak: Bytes,
    calls: Vec<(usize, f64)>,
}

/// Many ways to run one model. Made once, asked for any number of GPUs.
#[derive(Debug)]
pub struct Search<'a> {
    calls: Vec<&'a OpCall>,
    runs: Vec<Run<'a>>,
}

/// The best way on one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Place of the setup in the list that was given.
    pub place: usize,
    /// Does it fit? If nothing does, `place` is what needs least memory.
    pub fits: bool,
    /// Operators that had to be predicted.
    pub predicted: usize,
    /// Distinct operators of all the runs that this GPU has room and pipes for.
    pub distinct: usize,
}

/// FLOPs that take about as long as one byte: puts the heavy calls of a run first. Only the order depends on it.
const FLOPS_PER_BYTE: f64 = 50.0;

/// Is the prediction a closed form and one forest? Those of products try tiles, families and smaller calls, and take
/// ten times as long.
fn is_cheap(call: &OpCall) -> bool {
    !matches!(call.op, Op::Gemm(_) | Op::Conv(_) | Op::Attention(_) | Op::Rnn(_))
}

/// What is known of a run's time on one GPU, or a lower bound of it.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    gpu_wall: f64,
    launches: f64,
    /// Seconds at the full rate of what binds: the energy formula's activity times the run's time.
    active: f64,
}

impl Sums {
    /// Replaces the bound of a call by its prediction.
    fn refine(&mut self, least: f64, p: &OpPrediction, used: Seconds, count: f64) {
        self.gpu_wall += (p.time.0 - least) * count;
        self.launches += p.launches * count;
        self.active += used.0 * count;
    }

    /// What is ordered by: seconds or joules of one sample. It grows with each of the sums.
    fn key(&self, run: &Run, host: &HostModel, by: RankBy, gpu: &Gpu) -> f64 {
        let iteration = run.iteration;
        let host_time =
            if iteration.replayed { host.replay() } else { host.time(&iteration.host, self.launches) };
        let time = host.join(Seconds(self.gpu_wall), host_time).0;
        let per_sample = time / run.iteration.samples.max(1) as f64;
        match by {
            // On one GPU the cost follows the time.
            RankBy::Time | RankBy::Cost => per_sample,
            RankBy::Energy => {
                per_sample * Power::from_shares(self.active / time, self.gpu_wall / time, gpu).watts
            }
        }
    }
}

impl<'a> Search<'a> {
    /// The runs to choose from.
    pub fn new(lowered: &'a [(Setup, Iteration)]) -> Self {
        let mut places: HashMap<&OpCall, usize> = HashMap::new();
        let mut calls: Vec<&OpCall> = Vec::new();
        let weight = |call: &OpCall| call.traffic().total().0 + call.flops().0 / FLOPS_PER_BYTE;
        let mut weights: Vec<f64> = Vec::new();
        let runs = lowered
            .iter()
            .map(|(setup, iteration)| {
                let mut counts: HashMap<usize, f64> = HashMap::new();
                for step in &iteration.steps {
                    let place = *places.entry(&step.call).or_insert_with(|| {
                        calls.push(&step.call);
                        weights.push(weight(&step.call));
                        calls.len() - 1
                    });
                    *counts.entry(place).or_insert(0.0) += f64::from(step.count);
                }
                let mut of_run: Vec<(usize, f64)> = counts.into_iter().collect();
                // What is predicted fast comes first: it may show soon that the run is beaten. Then what weighs most.
                let key = |(place, count): &(usize, f64)| (is_cheap(calls[*place]), weights[*place] * count);
                of_run.sort_by(|a, b| {
                    let ((cheap_a, heavy_a), (cheap_b, heavy_b)) = (key(a), key(b));
                    cheap_b.cmp(&cheap_a).then(heavy_b.total_cmp(&heavy_a)).then(a.0.cmp(&b.0))
                });
                Run { precision: setup.precision, iteration, peak: prudent_peak(iteration), calls: of_run }
            })
            .collect();
        Self { calls, runs }
    }

    /// The run that is best by the order asked for among those that fit and have their pipes; where none does,
    /// the one that needs least memory.
    pub fn best(&self, model: &TimeModel, gpu: &Gpu, reserve: &Reserve, by: RankBy) -> Found {
        let host = model.host_model(gpu);
        let ours: Vec<OpCall>;
        let calls: &[&OpCall] = if gpu.runs_all() {
            &self.calls
        } else {
            ours = self.calls.iter().map(|c| c.in_format(gpu.runs_in(c.dtype))).collect();
            &ours.iter().collect::<Vec<_>>()
        };
        let mut least: Vec<Option<f64>> = vec![None; self.calls.len()];
        let mut known: Vec<Option<(OpPrediction, Seconds)>> = vec![None; self.calls.len()];
        let mut bounds: Vec<(f64, usize, Sums)> = Vec::new();
        for (place, run) in self.runs.iter().enumerate() {
            if !native(gpu, run.precision) || !reserve.fits(run.peak, gpu) {
                continue;
            }
            let mut sums = Sums::default();
            for (call, count) in &run.calls {
                let t = least[*call].get_or_insert_with(|| TimeModel::least_time(calls[*call], gpu).0);
                sums.gpu_wall += *t * count;
            }
            bounds.push((sums.key(run, &host, by, gpu), place, sums));
        }
        bounds.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut best: Option<(f64, usize)> = None;
        for (bound, place, mut sums) in bounds {
            let run = &self.runs[place];
            let beaten = |key: f64| best.is_some_and(|(b, _)| key > b * (1.0 + ROUNDING));
            if beaten(bound) {
                break;
            }
            let mut given_up = false;
            for (call, count) in &run.calls {
                let (p, used) = known[*call].get_or_insert_with(|| {
                    let p = model.predict(calls[*call], gpu);
                    (p, Power::used(calls[*call], &p, gpu))
                });
                sums.refine(least[*call].unwrap_or(0.0), p, *used, *count);
                if beaten(sums.key(run, &host, by, gpu)) {
                    given_up = true;
                    break;
                }
            }
            if given_up {
                continue;
            }
            let key = sums.key(run, &host, by, gpu);
            if best.is_none_or(|(b, at)| key < b || (key == b && place < at)) {
                best = Some((key, place));
            }
        }
        Found {
            place: best.map_or_else(|| self.smallest(gpu), |(_, place)| place),
            fits: best.is_some(),
            predicted: known.iter().flatten().count(),
            distinct: least.iter().flatten().count(),
        }
    }

    /// The run that needs least memory; a GPU that has none of the formats takes any, as its wider stand-in.
    fn smallest(&self, gpu: &Gpu) -> usize {
        let key = |run: &Run| (!native(gpu, run.precision), run.iteration.memory.peak.0);
        self.runs
            .iter()
            .enumerate()
            .min_by(|(_, a), (_, b)| {
                let ((lacks_a, a), (lacks_b, b)) = (key(a), key(b));
                lacks_a.cmp(&lacks_b).then(a.total_cmp(&b))
            })
            .map_or(0, |(place, _)| place)
    }
}

/// Sums of the same numbers in another order differ by less than this; a bound must be worse by more.
const ROUNDING: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_gpu::catalog;
    use preflop_graph::{Checkpoint, LowerOptions, Mode, zoo};
    use preflop_lower::lower;

    fn lowered(model: &str, batches: &[u64]) -> Vec<(Setup, Iteration)> {
        let mut out = Vec::new();
        for precision in [Precision::Fp32, Precision::Tf32, Precision::Amp, Precision::Bf16] {
            for batch in batches {
                let graph = zoo::build(model, Some(*batch), None).unwrap();
                let options = LowerOptions { mode: Mode::Train, precision, optimizer: None };
                let setup = Setup { batch: *batch, precision, optimizer: None, checkpoint: Checkpoint::None };
                out.push((setup, lower(&graph, &options).unwrap()));
            }
        }
        out
    }

    /// Seconds or joules of one sample, from the whole prediction of an iteration.
    fn whole(model: &TimeModel, iteration: &Iteration, gpu: &Gpu, by: RankBy) -> f64 {
        let p = model.predict_iteration(iteration, gpu);
        let per_sample = p.time.0 / iteration.samples as f64;
        if by == RankBy::Energy { per_sample * Power::of(iteration, &p, gpu).watts } else { per_sample }
    }

    #[test]
    fn the_best_is_that_of_predicting_everything() {
        let model = TimeModel::embedded();
        let reserve = Reserve::default();
        for (name, batches) in [
            ("resnet18", [1, 3, 8, 30, 64, 512].as_slice()),
            ("gnmt", &[2, 16, 64]),
            ("bert-base", &[1, 8, 20]),
        ] {
            let all = lowered(name, batches);
            let search = Search::new(&all);
            let (mut predicted, mut distinct) = (0, 0);
            for gpu in ["p4", "titan-v", "t4", "a100", "rtx-4090", "h200", "mi300x"] {
                let gpu = catalog::find(gpu).unwrap();
                for by in [RankBy::Time, RankBy::Energy] {
                    let found = search.best(&model, &gpu, &reserve, by);
                    let key = |place: usize| whole(&model, &all[place].1, &gpu, by);
                    let possible = (0..all.len()).filter(|i| {
                        native(&gpu, all[*i].0.precision) && reserve.fits(prudent_peak(&all[*i].1), &gpu)
                    });
                    let best = possible.map(key).fold(f64::INFINITY, f64::min);
                    assert_eq!(found.fits, best.is_finite());
                    if found.fits {
                        let own = key(found.place);
                        assert!(own <= best * (1.0 + 1e-9), "{name} {} {by:?}: {own} {best}", gpu.name);
                    }
                    predicted += found.predicted;
                    distinct += found.distinct;
                }
            }
            assert!(predicted < distinct, "nothing was given up: {predicted} of {distinct}");
        }
    }

    #[test]
    fn forty_sizes_are_usual() {
        let sizes = usual_batches();
        assert_eq!(sizes.len(), 40);
        assert!(sizes.windows(2).all(|w| w[0] < w[1]), "{sizes:?}");
        assert_eq!((sizes[0], sizes[7], sizes[8], sizes[39]), (1, 8, 10, 2048));
    }

    #[test]
    fn where_nothing_fits_the_smallest_is_named() {
        let all = lowered("vgg16", &[512, 1024]);
        let gpu = catalog::find("p4").unwrap();
        let found = Search::new(&all).best(&TimeModel::embedded(), &gpu, &Reserve::default(), RankBy::Time);
        assert!(!found.fits);
        assert_eq!(
            all[found.place].0,
            Setup { batch: 512, precision: Precision::Amp, optimizer: None, checkpoint: Checkpoint::None }
        );
    }
}
