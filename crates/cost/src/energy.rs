//! Power and energy, estimated from how busy the GPU is and what binds it.
//!
//! ```text
//! P = idle + (tdp - idle) * (F * busy + (1 - F) * activity)
//! activity = sum over operators of t_i * max(flops_i / (t_i * peak), bytes_i / (t_i * bandwidth)) / t
//! busy     = gpu_wall / t
//! ```
//!
//! Where t is the iteration's time, t_i the time of operator i, peak and bandwidth the datasheet's rates. A chip
//! that works at its binding resource's full rate draws its limit; one that waits draws idle power. `F` is
//! what a resident kernel costs whatever it does (clocks up, schedulers and caches awake).
//! This is an estimate: no power was measured for this project. The interval spans both extremes, F = 0 and F = 1.

use preflop_gpu::Gpu;
use preflop_graph::Iteration;
use preflop_ops::OpCall;
use preflop_schedule::IterationPrediction;
use preflop_time::OpPrediction;
use preflop_units::Seconds;
use serde::Serialize;

/// Share of the range from idle to the limit that a resident kernel draws without using any resource fully.
///
/// Between the extremes 0 and 1 that the interval spans; a third, since idle-waiting kernels on data-centre
/// cards are seen at a third to a half of the board's limit. Not measured here.
const ACTIVE_SHARE: f64 = 0.35;

/// Mean power of an iteration, in watts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Power {
    /// Estimate.
    pub watts: f64,
    /// If only used resources drew power.
    pub low_watts: f64,
    /// If every busy moment drew the board's limit.
    pub high_watts: f64,
}

/// Energy of one sample, in joules.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Energy {
    /// Estimate.
    pub joules: f64,
    /// Lower end.
    pub low_joules: f64,
    /// Upper end.
    pub high_joules: f64,
}

impl Power {
    /// Power while this iteration runs again and again.
    pub fn of(iteration: &Iteration, p: &IterationPrediction, gpu: &Gpu) -> Self {
        let mut active = 0.0;
        for s in &p.steps {
            active += Self::used(&iteration.steps[s.step].call, &s.one, gpu).0 * s.count;
        }
        Self::from_shares(active / p.time.0, p.gpu_wall / p.time, gpu)
    }

    /// Time that one call would take at the full rate of the resource it uses most; at most its own time.
    pub fn used(call: &OpCall, p: &OpPrediction, gpu: &Gpu) -> Seconds {
        (p.flops / gpu.peak(call.dtype)).max(p.dram / gpu.dram).min(p.time)
    }

    /// The formula, from `activity` and `busy`.
    pub fn from_shares(activity: f64, busy: f64, gpu: &Gpu) -> Self {
        let busy = busy.clamp(0.0, 1.0);
        let activity = activity.clamp(0.0, busy);
        let watts =
            |f: f64| gpu.idle_w + (gpu.tdp_w - gpu.idle_w).max(0.0) * (f * busy + (1.0 - f) * activity);
        Self { watts: watts(ACTIVE_SHARE), low_watts: watts(0.0), high_watts: watts(1.0) }
    }

    /// Energy of one of so many samples per second.
    pub fn per_sample(&self, samples_per_s: f64) -> Energy {
        Energy {
            joules: self.watts / samples_per_s,
            low_joules: self.low_watts / samples_per_s,
            high_joules: self.high_watts / samples_per_s,
        }
    }
}

/// Joules of one kilowatt-hour.
pub const JOULES_PER_KWH: f64 = 3.6e6;

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_gpu::catalog;

    #[test]
    fn power_is_hand_computed() {
        let mut gpu = catalog::find("h200").unwrap();
        (gpu.idle_w, gpu.tdp_w) = (100.0, 700.0);
        // 100 + 600 * (0.35 * 0.8 + 0.65 * 0.5) = 100 + 600 * 0.605 = 463 W
        let p = Power::from_shares(0.5, 0.8, &gpu);
        assert!((p.watts - 463.0).abs() < 1e-9);
        assert!((p.low_watts - 400.0).abs() < 1e-9 && (p.high_watts - 580.0).abs() < 1e-9);
        // 463 W at 1000 samples/s = 0.463 J
        assert!((p.per_sample(1000.0).joules - 0.463).abs() < 1e-12);
    }

    #[test]
    fn power_stays_between_idle_and_limit() {
        let gpu = catalog::find("t4").unwrap();
        for (activity, busy) in [(0.0, 0.0), (1.0, 1.0), (7.0, 3.0), (0.2, 0.1), (-1.0, 0.5)] {
            let p = Power::from_shares(activity, busy, &gpu);
            assert!(gpu.idle_w <= p.low_watts && p.low_watts <= p.watts);
            assert!(p.watts <= p.high_watts && p.high_watts <= gpu.tdp_w);
        }
    }
}
