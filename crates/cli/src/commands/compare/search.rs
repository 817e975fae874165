//! Finds each GPU's best batch and formats among many.
//!
//! Runs of one batch share most of their calls (fp32 and tf32 all but the products, amp and bf16 those too), so
//! each distinct call is predicted once per GPU and the runs are summed up from that.

use super::args::Question;
use preflop_core::cost::fit::{Setup, prudent_peak};
use preflop_core::cost::{Power, RankBy};
use preflop_core::dtype::Dtype;
use preflop_core::model::{Iteration, Precision};
use preflop_core::time::TimeModel;
use preflop_core::units::{Bytes, Seconds};
use preflop_core::{Gpu, OpCall};
use rayon::prelude::*;
use std::collections::HashMap;

/// One way to run on one GPU, and how good it is: lower is better.
struct Trial {
    gpu: usize,
    place: usize,
    key: f64,
}

/// Does the chip have pipes for these formats?
pub fn native(gpu: &Gpu, precision: Precision) -> bool {
    let has = |d: Dtype| gpu.tensor.get(d).is_some() || gpu.plain.get(d).is_some();
    match precision {
        Precision::Fp32 => true,
        Precision::Tf32 => has(Dtype::Tf32),
        Precision::Amp | Precision::Bf16 => has(Dtype::Bf16),
        Precision::Fp16 => has(Dtype::Fp16),
        Precision::Fp8 => has(Dtype::Fp8),
    }
}

/// For each GPU, the place of the setup that is best by the order asked for among those that fit; where none
/// does, the one that needs least memory.
pub fn best_setups(question: &Question, model: &TimeModel, lowered: &[(Setup, Iteration)]) -> Vec<usize> {
    let mut by_batch: HashMap<u64, Vec<usize>> = HashMap::new();
    for (place, (setup, _)) in lowered.iter().enumerate() {
        by_batch.entry(setup.batch).or_default().push(place);
    }
    let groups: Vec<Vec<usize>> = by_batch.into_values().collect();
    let trials: Vec<Trial> =
        groups.par_iter().flat_map_iter(|places| trials(question, model, lowered, places)).collect();
    (0..question.gpus.len())
        .map(|gpu| {
            let of_gpu = trials.iter().filter(|t| t.gpu == gpu);
            let best = of_gpu.min_by(|a, b| a.key.total_cmp(&b.key).then(a.place.cmp(&b.place)));
            best.map_or_else(|| smallest(&question.gpus[gpu], lowered), |t| t.place)
        })
        .collect()
}

/// Sums over the operators of a run.
#[derive(Clone, Copy, Default)]
struct Sums {
    gpu_wall: f64,
    launches: f64,
    /// Seconds at the full rate of what binds: the energy formula's activity times the run's time.
    active: f64,
}

/// A distinct call with its count in each run of the group.
struct Shared<'a> {
    call: &'a OpCall,
    counts: Vec<f64>,
}

fn shared_calls<'a>(runs: &[&'a Iteration]) -> Vec<Shared<'a>> {
    let mut places: HashMap<&OpCall, usize> = HashMap::new();
    let mut calls: Vec<Shared> = Vec::new();
    for (run, iteration) in runs.iter().enumerate() {
        for step in &iteration.steps {
            let place = *places.entry(&step.call).or_insert_with(|| {
                calls.push(Shared { call: &step.call, counts: vec![0.0; runs.len()] });
                calls.len() - 1
            });
            calls[place].counts[run] += f64::from(step.count);
        }
    }
    // Calls of one family need the same constants and trees.
    calls.sort_by_key(|c| (c.call.family() as usize, c.call.dtype as usize));
    calls
}

/// The runs of one batch on every GPU that has room and pipes for them.
fn trials(
    question: &Question,
    model: &TimeModel,
    lowered: &[(Setup, Iteration)],
    places: &[usize],
) -> Vec<Trial> {
    let runs: Vec<&Iteration> = places.iter().map(|p| &lowered[*p].1).collect();
    let peaks: Vec<Bytes> = runs.iter().map(|i| prudent_peak(i)).collect();
    let possible: Vec<Vec<bool>> = question
        .gpus
        .iter()
        .map(|gpu| {
            let fits = |(place, peak): (&usize, &Bytes)| {
                native(gpu, lowered[*place].0.precision) && question.reserve.fits(*peak, gpu)
            };
            places.iter().zip(&peaks).map(fits).collect()
        })
        .collect();
    let mut sums = vec![vec![Sums::default(); runs.len()]; question.gpus.len()];
    for shared in shared_calls(&runs) {
        for ((gpu, possible), sums) in question.gpus.iter().zip(&possible).zip(&mut sums) {
            if !possible.iter().zip(&shared.counts).any(|(possible, n)| *possible && *n > 0.0) {
                continue;
            }
            let p = model.predict(shared.call, gpu);
            let used = Power::used(shared.call, &p, gpu).0;
            for (sum, n) in sums.iter_mut().zip(&shared.counts) {
                sum.gpu_wall += p.time.0 * n;
                sum.launches += p.launches * n;
                sum.active += used * n;
            }
        }
    }
    let host_model = model.host_model();
    let mut out = Vec::new();
    for (gpu, (possible, sums)) in possible.iter().zip(&sums).enumerate() {
        for (run, sum) in sums.iter().enumerate().filter(|(run, _)| possible[*run]) {
            let host = host_model.time(&runs[run].host, sum.launches);
            let time = host_model.join(Seconds(sum.gpu_wall), host).0;
            let per_sample = time / runs[run].samples as f64;
            // On one GPU the cost follows the time.
            let key = match question.rank {
                RankBy::Time | RankBy::Cost => per_sample,
                RankBy::Energy => {
                    let power =
                        Power::from_shares(sum.active / time, sum.gpu_wall / time, &question.gpus[gpu]);
                    per_sample * power.watts
                }
            };
            out.push(Trial { gpu, place: places[run], key });
        }
    }
    out
}

/// The setup that needs least memory; a GPU that has none of the formats takes any, as its wider stand-in.
fn smallest(gpu: &Gpu, lowered: &[(Setup, Iteration)]) -> usize {
    lowered
        .iter()
        .enumerate()
        .min_by(|(_, a), (_, b)| {
            let key = |(s, i): &(Setup, Iteration)| (!native(gpu, s.precision), i.memory.peak.0);
            let ((lacks_a, a), (lacks_b, b)) = (key(a), key(b));
            lacks_a.cmp(&lacks_b).then(a.total_cmp(&b))
        })
        .map_or(0, |(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_core::gpu::catalog;
    use preflop_core::model::{LowerOptions, Mode, lower, zoo};

    #[test]
    fn sums_over_shared_calls_are_the_iterations_own() {
        let graph = zoo::build("alexnet", Some(8), None).unwrap();
        let run = |precision| {
            lower(&graph, &LowerOptions { mode: Mode::Train, precision, optimizer: None }).unwrap()
        };
        let runs = [run(Precision::Fp32), run(Precision::Tf32)];
        let calls = shared_calls(&runs.iter().collect::<Vec<_>>());
        let (model, gpu) = (TimeModel::embedded(), catalog::find("a100").unwrap());
        for (i, iteration) in runs.iter().enumerate() {
            let wall: f64 = calls.iter().map(|c| model.predict(c.call, &gpu).time.0 * c.counts[i]).sum();
            let whole = model.predict_iteration(iteration, &gpu).gpu_wall.0;
            assert!((wall / whole - 1.0).abs() < 1e-9, "{wall} {whole}");
        }
        let separate: usize = runs.iter().map(|r| shared_calls(&[r]).len()).sum();
        assert!(calls.len() < separate);
    }
}
