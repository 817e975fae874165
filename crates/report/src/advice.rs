//! What would help: changes of the run and of the machine, each predicted, not guessed.

use preflop_cost::Reserve;
use preflop_cost::fit::prudent_peak;
use preflop_gpu::{Gpu, Peaks};
use preflop_graph::{Graph, Iteration, LowerOptions, Mode, Precision, zoo};
use preflop_lower::lower;
use preflop_schedule::{IterationPrediction, Schedule as _};
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

struct Trial<'a> {
    now: IterationPrediction,
    samples: u64,
    found: Vec<Change>,
    model: &'a TimeModel,
}

impl Trial<'_> {
    fn note(&mut self, change: &str, time: Seconds, samples: u64, note: &str) {
        if time.0 <= 0.0 || self.samples == 0 {
            return;
        }
        let speedup = (self.now.time / time) * (samples as f64 / self.samples as f64);
        if speedup >= WORTH {
            self.found.push(Change {
                change: change.to_string(),
                iteration_ms: time.ms(),
                speedup,
                note: note.to_string(),
            });
        }
    }
}

/// Changes that help on this GPU, the best first: number format, batch, host, bandwidth, arithmetic.
pub fn changes(
    model: &TimeModel,
    graph: &Graph,
    options: &LowerOptions,
    iteration: &Iteration,
    gpu: &Gpu,
) -> Vec<Change> {
    let now = model.predict_iteration(iteration, gpu);
    let mut trial = Trial { now, samples: iteration.samples, found: Vec::new(), model };
    precisions(&mut trial, graph, *options, gpu);
    larger_batch(&mut trial, graph, *options, gpu);
    let no_host = model.host_model().join(trial.now.gpu_wall, Seconds::ZERO);
    trial.note(
        "no host time (CUDA graphs)",
        no_host,
        iteration.samples,
        "kernels follow each other without waiting for launches",
    );
    let mut wider = gpu.clone();
    wider.dram = gpu.dram * 2.0;
    wider.dram_sustained = gpu.dram_sustained * 2.0;
    let time = trial.model.predict_iteration(iteration, &wider).time;
    trial.note("DRAM bandwidth x2 (another GPU)", time, iteration.samples, "memory-bound operators");
    let mut faster = gpu.clone();
    for peaks in [&mut faster.plain, &mut faster.tensor, &mut faster.sustained] {
        doubled(peaks);
    }
    let time = trial.model.predict_iteration(iteration, &faster).time;
    trial.note("arithmetic x2 (another GPU)", time, iteration.samples, "compute-bound operators");
    trial.found.sort_by(|a, b| b.speedup.total_cmp(&a.speedup));
    trial.found
}

fn doubled(peaks: &mut Peaks) {
    for dtype in Dtype::MATH {
        if let Some(rate) = peaks.get(dtype) {
            peaks.set(dtype, FlopsPerSecond(rate.0 * 2.0));
        }
    }
}

fn precisions(trial: &mut Trial, graph: &Graph, options: LowerOptions, gpu: &Gpu) {
    let half = if gpu.has_tensor(Dtype::Bf16) { Precision::Bf16 } else { Precision::Fp16 };
    let candidates: &[(Precision, &str)] = match options.precision {
        Precision::Fp32 => &[
            (Precision::Tf32, "products on tensor cores, tensors stay fp32"),
            (Precision::Amp, "bf16 products and activations, fp32 weights"),
            (half, "16-bit weights and activations: check convergence"),
        ],
        Precision::Tf32 => &[
            (Precision::Amp, "bf16 products and activations, fp32 weights"),
            (half, "16-bit weights and activations: check convergence"),
        ],
        Precision::Amp => &[(half, "no casts, half the bytes of weights: check convergence")],
        Precision::Bf16 | Precision::Fp16 => {
            &[(Precision::Fp8, "fp8 products in linear layers: check convergence")]
        }
        Precision::Fp8 => &[],
    };
    for &(precision, note) in candidates {
        let missing = match precision {
            Precision::Tf32 => !gpu.has_tensor(Dtype::Tf32),
            Precision::Amp | Precision::Bf16 => !gpu.has_tensor(Dtype::Bf16),
            Precision::Fp8 => !gpu.has_tensor(Dtype::Fp8),
            _ => false,
        };
        if missing {
            continue;
        }
        if let Ok(iteration) = lower(graph, &LowerOptions { precision, ..options }) {
            let time = trial.model.predict_iteration(&iteration, gpu).time;
            trial.note(&format!("--precision {}", precision.name()), time, iteration.samples, note);
        }
    }
}

/// Twice the batch, where the model is one of the zoo and it still fits.
fn larger_batch(trial: &mut Trial, graph: &Graph, options: LowerOptions, gpu: &Gpu) {
    let Ok(twice) = zoo::build(&graph.name, Some(graph.samples.saturating_mul(2)), graph.seq) else { return };
    let Ok(iteration) = lower(&twice, &options) else { return };
    if !Reserve::default().fits(prudent_peak(&iteration), gpu) {
        return;
    }
    let time = trial.model.predict_iteration(&iteration, gpu).time;
    let note = match options.mode {
        Mode::Train => "more work per launch; may need another learning rate",
        Mode::Infer => "more work per launch; each request waits longer",
    };
    trial.note(&format!("--batch {}", iteration.samples), time, iteration.samples, note);
}
