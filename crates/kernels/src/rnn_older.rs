//! Recurrent layers before Hopper: cuDNN's standard algorithm, step after step.
//!
//! ```text
//! W    = gates*hidden*hidden*e                                weights of the state
//! mem  = W/DRAM, or W/L2 where W fits 0.8 of the L2
//! sums = 2*gates*hidden*hidden*ceil32(batch)/(eff*peak)
//! one  = step + (mem^2 + sums^2)^(1/2) + 4*gates*batch*hidden*e/DRAM
//! time = t0 + products of inputs and gradients of weights + layers * directions * (seq * one + min(seq, 100) * first)
//! ```
//!
//! `step` is what launching a step's kernels takes: a figure of the software, not of the GPU. Libraries of today string steps together as on the
//! measured GPU (`rnn.rs`); this form is for the software that the rows were measured with, and for Pascal, which has no other.
//!
//! `first` is what each of the first hundred or so steps of a call takes longer: layers that were timed at 187, 375, 750 and 1500 steps hold 2.5 to 4 ms that do not grow with their
//! length, whatever their size and number format; layers of fewer steps are taken to hold as much less.
//!
//! The term of the cells is the pointwise kernel's: it reads both products and keeps what the gates and the cell become. Columns of a product come by 32.
//!
//! Constants: DeepBench on TITAN Xp and V100, read without input products (`CUDNN_SKIP_INPUT`), a study with cells left out; Pascal's
//! rows at batch 32 are slower by a poor kernel of that library, which is not modelled.

use preflop_gpu::{Architecture, Gpu};
use preflop_ops::{Pass, Rnn};
use preflop_units::Dtype;

/// Constants: `step_s`, eff, eff of 16 bit, `t0_s`, `first_s`. Weights are read once a step, as fast as the memory gives them: shares of its rates fitted on one GPU
/// (0.46 to 1.04) made the other no better.
pub type Figures = [f64; 5];

/// Values that the pointwise kernel moves for each value of a gate.
const CELL: f64 = 4.0;

/// Steps that take longer at the beginning of a call.
const FIRST_STEPS: f64 = 100.0;

/// Key of the constants of a generation and pass.
pub fn key(generation: Architecture, pass: Pass) -> &'static str {
    match (generation, pass) {
        (Architecture::Pascal, Pass::Fwd) => "rnn/older/pascal/fwd",
        (Architecture::Pascal, _) => "rnn/older/pascal/bwd",
        (_, Pass::Fwd) => "rnn/older/volta/fwd",
        (_, _) => "rnn/older/volta/bwd",
    }
}

/// Where fits start: figures of the study.
pub fn start(generation: Architecture, pass: Pass) -> Figures {
    match (generation, pass) {
        (Architecture::Pascal, Pass::Fwd) => [26e-6, 0.73, 0.47, 27e-6, 25e-6],
        (Architecture::Pascal, _) => [32e-6, 0.74, 0.64, 122e-6, 25e-6],
        (_, Pass::Fwd) => [39e-6, 0.91, 0.47, 50e-6, 25e-6],
        (_, _) => [36e-6, 1.03, 0.64, 64e-6, 25e-6],
    }
}

/// The constants that layers in these number formats speak of.
pub fn spoken(formats: impl Iterator<Item = Dtype>) -> [bool; 5] {
    let (mut half, mut plain) = (false, false);
    formats.for_each(|d| if d.is_half() { half = true } else { plain = true });
    [true, plain, half, true, true]
}

/// Seconds of the steps of one layer in one direction.
pub fn chain(op: &Rnn, dtype: Dtype, f: &Figures, gpu: &Gpu) -> f64 {
    let [step, eff, eff_half, _, first] = *f;
    let (b, h, gates) = (op.batch as f64, op.hidden as f64, op.kind.gates() as f64);
    let weights = gates * h * h * dtype.size();
    let far = weights / gpu.dram_sustained.0;
    let near = weights / gpu.l2.0;
    let memory = if weights <= 0.8 * gpu.l2_size.0 { near.min(far) } else { far };
    let eff = if dtype.is_half() { eff_half } else { eff };
    let columns = (b / 32.0).ceil() * 32.0;
    let sums = 2.0 * gates * h * h * columns / (eff * gpu.sustained_peak(dtype).0);
    let work = (memory * memory + sums * sums).sqrt();
    let cells = CELL * gates * b * h * dtype.size() / gpu.dram_sustained.0;
    let steps = op.seq as f64;
    steps * (step + work + cells) + steps.min(FIRST_STEPS) * first
}
