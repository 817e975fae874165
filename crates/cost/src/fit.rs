//! Does a run fit, and how large may its batch be.
//!
//! ```text
//! needed = (peak + unseen) * (1 + share) + context
//! ```
//!
//! Where `peak` is the predicted `max_memory_allocated`, `unseen` the workspace that fp32 convolutions may take, `context` what the driver and the libraries take before the
//! first tensor, and `share` what the allocator loses to fragmentation plus what the prediction may be short of.

use preflop_gpu::Gpu;
use preflop_graph::{Checkpoint, Iteration, ModelError, OptimizerChoice, Precision};
use preflop_ops::Op;
use preflop_units::Bytes;
use preflop_units::dtype::Dtype;
use serde::Serialize;

/// What must stay free.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reserve {
    /// Context of driver and libraries.
    pub context: Bytes,
    /// Part of the peak.
    pub share: f64,
}

impl Default for Reserve {
    /// 640 MiB of context (PyTorch with CUDA 12 and 13 shows 450 to 600 MiB in `nvidia-smi` before the first
    /// tensor), and 12 % of the peak: with [`prudent_peak`] that covers every iteration measured on an H200
    /// (`tests/fit_measured.rs`), and cached blocks that no request fits cost a few per cent.
    fn default() -> Self {
        Self { context: Bytes::from_mib(640.0), share: 0.12 }
    }
}

impl Reserve {
    /// Memory a card should have for a run of this (prudent) peak.
    pub fn needed(&self, peak: Bytes) -> Bytes {
        peak * (1.0 + self.share) + self.context
    }

    /// Does a run of this peak fit?
    pub fn fits(&self, peak: Bytes, gpu: &Gpu) -> bool {
        self.needed(peak) <= gpu.memory
    }
}

/// Bytes of a filter in the frequency domain of 32 x 32 tiles: 32 x 17 complex values.
const FFT_FILTER_BYTES: f64 = 32.0 * 17.0 * 8.0;
/// cuDNN takes tiles of that size from about this image size on: 13 (AlexNet) shows them, 7 (ResNet) does not.
const FFT_MIN_SIZE: u64 = 13;

/// The predicted peak and the workspace that the libraries may take for the largest fp32 convolution.
///
/// In fp32, cuDNN may run a filter larger than 1 x 1 at stride 1 by FFT and keeps all filters transformed, for the
/// input and the output side: `2 * ci * co * 32 * 17 * 8 B`. Measured peaks above the sum of tensors stay below that
/// (VGG: up to 1.9 GiB measured, 2.1 GiB by the formula).
pub fn prudent_peak(iteration: &Iteration) -> Bytes {
    let unseen = iteration
        .steps
        .iter()
        .filter_map(|s| match &s.call.op {
            Op::Conv(c)
                if s.call.dtype == Dtype::Fp32
                    && c.groups == 1
                    && c.r.max(c.s) > 1
                    && c.stride == [1, 1]
                    && c.h.min(c.w) >= FFT_MIN_SIZE =>
            {
                Some(2.0 * (c.ci * c.co) as f64 * FFT_FILTER_BYTES)
            }
            _ => None,
        })
        .fold(0.0, f64::max);
    iteration.memory.peak + Bytes(unseen)
}

/// The largest batch from 1 to `limit` whose peak fits, or 0; `peak` is called a handful of times.
///
/// Peaks grow with the batch, nearly on a line, so the next guess lies on the line through the ends of the
/// bracket; a guess that halves nothing is followed by the middle.
pub fn largest_batch<E>(
    gpu: &Gpu,
    reserve: &Reserve,
    limit: u64,
    mut peak: impl FnMut(u64) -> Result<Bytes, E>,
) -> Result<u64, E> {
    let room = gpu.memory.0;
    let mut needed = |batch: u64| peak(batch).map(|p| reserve.needed(p).0);
    let mut low = (1_u64, needed(1)?);
    if low.1 > room {
        return Ok(0);
    }
    // Doubling finds a batch that does not fit.
    let mut high = loop {
        if low.0 >= limit {
            return Ok(limit);
        }
        let batch = (low.0 * 8).min(limit);
        let n = needed(batch)?;
        if n > room {
            break (batch, n);
        }
        low = (batch, n);
    };
    let mut by_line = true;
    while high.0 - low.0 > 1 {
        let width = high.0 - low.0;
        let guess = if by_line && high.1.is_finite() {
            let share = (room - low.1) / (high.1 - low.1);
            low.0 + ((width as f64 * share) as u64).clamp(1, width - 1)
        } else {
            low.0 + width / 2
        };
        let n = needed(guess)?;
        if n <= room {
            low = (guess, n);
        } else {
            high = (guess, n);
        }
        // On a line the guess is the answer: look at its neighbour before anything else.
        if by_line && high.0 - low.0 > 1 && n <= room {
            let n = needed(low.0 + 1)?;
            if n > room {
                return Ok(low.0);
            }
            low = (low.0 + 1, n);
        }
        by_line = !by_line || high.0 - low.0 < width / 2;
    }
    Ok(low.0)
}

/// The prudent peak of what is lowered with some batch; beyond the model's own limit nothing fits.
pub fn peak(
    batch: u64,
    lowered: impl FnOnce() -> Result<Iteration, ModelError>,
) -> Result<Bytes, ModelError> {
    match lowered() {
        Err(ModelError::Size { .. }) if batch > 1 => Ok(Bytes(f64::INFINITY)),
        other => other.map(|iteration| prudent_peak(&iteration)),
    }
}

/// A way to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Setup {
    /// Samples of one iteration.
    pub batch: u64,
    /// Number formats.
    pub precision: Precision,
    /// Optimizer; `None` takes the model's own.
    pub optimizer: Option<OptimizerChoice>,
    /// Which activations are computed again.
    pub checkpoint: Checkpoint,
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_gpu::catalog;
    use proptest::prelude::*;
    use std::convert::Infallible;

    #[test]
    fn the_reserve_is_hand_computed() {
        let r = Reserve { context: Bytes(10.0), share: 0.1 };
        assert!((r.needed(Bytes(100.0)).0 - 120.0).abs() < 1e-9);
        // A peak that equals the card's memory never fits.
        let gpu = catalog::find("t4").unwrap();
        assert!(!Reserve::default().fits(gpu.memory, &gpu));
    }

    proptest! {
        #[test]
        fn the_largest_batch_fits_and_the_next_does_not(
            fixed in 0.0_f64..2e10, slope in 1e5_f64..1e9, bend in 0.0_f64..1e5, limit in 1_u64..2000
        ) {
            let gpu = catalog::find("t4").unwrap();
            let reserve = Reserve::default();
            let peak = |b: u64| Bytes(fixed + slope * b as f64 + bend * (b * b) as f64);
            let mut calls = 0;
            let best = largest_batch(&gpu, &reserve, limit, |b| {
                calls += 1;
                Ok::<_, Infallible>(peak(b))
            }).unwrap();
            prop_assert!(best == 0 || reserve.fits(peak(best), &gpu));
            prop_assert!(best == limit || !reserve.fits(peak(best + 1), &gpu));
            prop_assert!(calls <= 30, "{} calls", calls);
        }
    }
}
