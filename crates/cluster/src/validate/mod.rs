//! Predictions against measurements of several GPUs, with whole systems left out of whatever was fitted.

pub mod megatron;

use crate::interval::LogInterval;
use crate::model::Host;

/// Host time of Megatron-DeepSpeed of 2022 on a DGX A100, fitted on 448 runs of 2 to 8 GPUs.
pub const MEGATRON_2022: Host =
    Host { layer: 0.9e-3, backward: 1.6e-3, microbatch: 2.9e-3, iteration: 4.6e-3 };

/// One measured row with its prediction, both in one unit.
#[derive(Debug, Clone)]
pub struct Pair {
    /// The system, or whatever was left out together.
    pub system: String,
    /// Measured.
    pub measured: f64,
    /// Predicted.
    pub predicted: f64,
    /// The 90 % interval as logs.
    pub interval: LogInterval,
}

impl Pair {
    /// |predicted / measured - 1|.
    pub fn error(&self) -> f64 {
        (self.predicted / self.measured - 1.0).abs()
    }

    /// Log of measured over predicted.
    pub fn log(&self) -> f64 {
        (self.measured / self.predicted).ln()
    }

    /// Does the interval hold it?
    pub fn covered(&self) -> bool {
        let log = self.log();
        log >= self.interval.low - 1e-12 && log <= self.interval.high + 1e-12
    }
}
