//! How sure a transfer is: 90 % intervals, as half-widths in the logarithm of time.

use super::Way;
use crate::KernelFamily;
use preflop_time::OpPrediction;
use preflop_units::Seconds;
use preflop_units::math::Elementary as _;
use std::collections::BTreeMap;

/// Standard normal quantile of a two-sided 90 % interval.
const Z90: f64 = 1.645;

/// Mean absolute error of a normal error over its standard deviation, `sqrt(2/pi)`.
const MEAN_OVER_SIGMA: f64 = 0.798;

/// Mean absolute error of wave scaling per operator, weighted by time, over the one workload recorded on both an
/// H100 and an MI300X (docs/profiles.md): 25 % one way, 11 % the other. The worse one, as the matching normal error.
const WAVE_MEAN_ERROR: f64 = 0.25;

/// Wave scaling.
pub const WAVE_LOG_HALF_WIDTH: f64 = Z90 * WAVE_MEAN_ERROR / MEAN_OVER_SIGMA;

/// Products without shapes: the truth lies between the ratio of peaks and that of bandwidths, which differ
/// by up to four between GPUs of one maker; the middle is off by at most two.
pub const ROOF_LOG_HALF_WIDTH: f64 = std::f64::consts::LN_2;

/// Communication kept as it is: the link elsewhere may have half or twice the speed.
pub const KEPT_LOG_HALF_WIDTH: f64 = std::f64::consts::LN_2;

/// Repeated runs of one program on one GPU: a standard deviation of 1-2 % for GPU time.
const REPEAT_LOG_HALF_WIDTH: f64 = Z90 * 0.015;

/// Host-bound iterations of the same program differ by a standard deviation of 0.13 in the logarithm between
/// collections (docs/accuracy.md); another host adds to it.
const HOST_SIGMA: f64 = 0.13;

/// The same network on the same GPU in two generations of software differs by 5 to 21 % in published throughput (ResNet-50, BERT
/// and GNMT on V100 and A100): a standard deviation of 0.14 in the logarithm, of one of the two 0.10.
const STACK_SIGMA: f64 = 0.10;

/// Half-width of a ratio of two predictions. The larger of the two counts: what a model gets wrong on one GPU it mostly
/// gets wrong on the other, so the errors do not add.
pub fn ratio_log_half_width(here: &OpPrediction, there: &OpPrediction) -> f64 {
    let width = |p: &OpPrediction| {
        if p.low.0 > 0.0 && p.high.0 > p.low.0 { (p.high / p.low).natural_log() / 2.0 } else { 0.0 }
    };
    width(here).max(width(there))
}

/// Half-width of the host's time.
pub fn host_log_half_width(same_machine: bool) -> f64 {
    if same_machine { REPEAT_LOG_HALF_WIDTH } else { Z90 * HOST_SIGMA }
}

/// Gathers the groups: errors go together within a family carried over one way, and are independent between them.
#[derive(Debug, Default)]
pub struct Spread {
    parts: BTreeMap<(KernelFamily, Way), (f64, f64)>,
}

impl Spread {
    /// Adds a group's time on the destination with its half-width.
    pub fn add(&mut self, family: KernelFamily, way: Way, time: Seconds, width: f64) {
        let part = self.parts.entry((family, way)).or_default();
        part.0 += time.0;
        part.1 += time.0 * width;
    }

    /// Half-width of the sum.
    pub fn log_half_width(&self, same_gpu: bool) -> f64 {
        if same_gpu {
            return REPEAT_LOG_HALF_WIDTH;
        }
        let all: f64 = self.parts.values().map(|p| p.0).sum();
        if all <= 0.0 {
            return REPEAT_LOG_HALF_WIDTH;
        }
        let squares: f64 = self.parts.values().map(|p| (p.1 / all).powi(2)).sum();
        squares.sqrt().hypotenuse(Z90 * STACK_SIGMA)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn independent_families_add_in_squares() {
        let mut s = Spread::default();
        s.add(KernelFamily::Gemm, Way::Ratio, Seconds(1.0), 0.3);
        s.add(KernelFamily::Copy, Way::Wave, Seconds(1.0), 0.4);
        // sqrt(0.15^2 + 0.2^2) = 0.25, with the software's 0.1645: 0.2993
        assert!((s.log_half_width(false) - 0.299_27).abs() < 1e-4);
        assert_eq!(s.log_half_width(true), REPEAT_LOG_HALF_WIDTH);
    }
}
