//! What would help: the ways to run that `advise` ranks, and what another machine would bring, each predicted, not guessed.

use crate::advise;
use preflop_gpu::{Gpu, Peaks};
use preflop_graph::{Graph, Iteration, LowerOptions};
use preflop_lower::Form;
use preflop_schedule::Schedule as _;
use preflop_time::TimeModel;
use preflop_units::dtype::Dtype;
use preflop_units::{FlopsPerSecond, Seconds};
use serde::Serialize;

/// A change and what it brings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// What is changed.
    pub change: String,
    /// Iteration time then.
    pub iteration_ms: f64,
    /// Samples per second then, over now.
    pub speedup: f64,
    /// Why, or at what price.
    pub note: String,
}

/// A change is worth a line from this speed-up.
const WORTH: f64 = 1.02;

/// Changes that help on this GPU, the best first: options of the run that fit (at most two together), bandwidth, arithmetic.
pub fn changes(
    model: &TimeModel,
    graph: &Graph,
    options: &LowerOptions,
    form: impl Into<Form>,
    iteration: &Iteration,
    gpu: &Gpu,
) -> Vec<Change> {
    let ranking = advise::rank_together(model, graph, *options, form, gpu, 2);
    let mut found: Vec<Change> = ranking.options.iter().filter(|o| o.fits).map(of_option).collect();
    // Of combinations, those that beat each of their parts are few: the best three say enough.
    let (mut alone, mut together): (Vec<Change>, Vec<Change>) =
        found.drain(..).partition(|c| c.change.matches("--").count() == 1);
    together.sort_by(|a, b| b.speedup.total_cmp(&a.speedup));
    together.truncate(3);
    alone.append(&mut together);
    let now = model.predict_iteration(iteration, gpu).time;
    for (machine, what, why) in [
        (wider(gpu), "DRAM bandwidth x2 (another GPU)", "memory-bound operators"),
        (faster(gpu), "arithmetic x2 (another GPU)", "compute-bound operators"),
    ] {
        let time = model.predict_iteration(iteration, &machine).time;
        if time > Seconds::ZERO {
            alone.push(Change {
                change: what.to_string(),
                iteration_ms: time.ms(),
                speedup: now / time,
                note: why.to_string(),
            });
        }
    }
    alone.retain(|c| c.speedup >= WORTH);
    alone.sort_by(|a, b| b.speedup.total_cmp(&a.speedup));
    alone
}

fn of_option(option: &advise::Advice) -> Change {
    let notes = option.how.iter().zip(&option.cost);
    let notes: Vec<String> = notes
        .map(|(how, cost)| if cost.is_empty() { (*how).to_string() } else { format!("{how} ({cost})") })
        .collect();
    Change {
        change: option.options.join(" "),
        iteration_ms: option.iteration_ms,
        speedup: 1.0 / (1.0 - option.gain).max(f64::MIN_POSITIVE),
        note: notes.join("; "),
    }
}

fn wider(gpu: &Gpu) -> Gpu {
    let mut wider = gpu.clone();
    wider.dram = gpu.dram * 2.0;
    wider.dram_sustained = gpu.dram_sustained * 2.0;
    wider
}

fn faster(gpu: &Gpu) -> Gpu {
    let mut faster = gpu.clone();
    for peaks in [&mut faster.plain, &mut faster.tensor, &mut faster.sustained] {
        doubled(peaks);
    }
    faster
}

fn doubled(peaks: &mut Peaks) {
    for dtype in Dtype::MATH {
        if let Some(rate) = peaks.get(dtype) {
            peaks.set(dtype, FlopsPerSecond(rate.0 * 2.0));
        }
    }
}
