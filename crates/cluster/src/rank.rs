//! The one thing that is asked of the time model: how long a list of operators keeps a GPU busy, and how sure that is.

use crate::interval::LogInterval;
use preflop_core::Gpu;
use preflop_core::model::{HostWork, Iteration, Step};
use preflop_core::time::TimeModel;

/// Time of a list of operators on one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Busy {
    /// Seconds, pauses between kernels included.
    pub time: f64,
    /// Seconds at the lower end of the 90 % interval.
    pub low: f64,
    /// Seconds at the upper end.
    pub high: f64,
    /// Kernels.
    pub launches: f64,
    /// Useful FLOPs.
    pub flops: f64,
}

impl Busy {
    /// The interval as logs.
    pub fn interval(&self) -> LogInterval {
        if self.time <= 0.0 {
            return LogInterval { low: 0.0, high: 0.0 };
        }
        LogInterval { low: (self.low / self.time).ln(), high: (self.high / self.time).ln() }
    }
}

/// Whoever knows how long operators take.
pub trait OperatorTimes {
    /// Time of these operators, run one after the other.
    fn busy(&self, steps: &[Step]) -> Busy;
}

/// The core's time model on one GPU.
#[derive(Debug)]
pub struct CoreTimes<'a> {
    /// The model.
    pub model: &'a TimeModel,
    /// The GPU.
    pub gpu: &'a Gpu,
}

impl OperatorTimes for CoreTimes<'_> {
    fn busy(&self, steps: &[Step]) -> Busy {
        if steps.is_empty() {
            return Busy::default();
        }
        let iteration =
            Iteration { steps: steps.to_vec(), host: HostWork::default(), ..Iteration::default() };
        let p = self.model.predict_iteration(&iteration, self.gpu);
        let pauses = self.model.host_model().pauses(p.launches).0;
        Busy {
            time: p.gpu_wall.0 + pauses,
            low: p.gpu_busy_low.0 + pauses,
            high: p.gpu_busy_high.0 + pauses,
            launches: p.launches,
            flops: p.flops.0,
        }
    }
}
