//! One GPU's answer in a report.

use preflop_cost::fit::prudent_peak;
use preflop_cost::{Date, Quote, Reserve};
use preflop_gpu::Gpu;
use preflop_graph::Iteration;
use preflop_schedule::IterationPrediction;
use serde::Serialize;

/// The answer of one GPU.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[allow(missing_docs)]
pub struct GpuSummary {
    pub gpu: String,
    pub title: String,
    pub iteration_ms: f64,
    /// 90 % interval.
    pub low_ms: f64,
    pub high_ms: f64,
    /// Not known of a recording, unless the user says how many samples an iteration has.
    pub samples_per_s: Option<f64>,
    /// Not known of a recording.
    pub memory_mib: Option<f64>,
    /// The peak with context and reserve: what the card must have.
    pub needed_mib: Option<f64>,
    pub gpu_memory_mib: f64,
    pub fits: Option<bool>,
    pub bound: &'static str,
    /// Time of all kernels.
    pub gpu_busy_ms: f64,
    /// Time in which the GPU works: less than that of all kernels where several run at once.
    pub gpu_wall_ms: f64,
    pub host_ms: f64,
    pub usd_per_hour: Option<f64>,
    pub price_date: Option<Date>,
    pub price_source: Option<String>,
    pub usd_per_million_samples: Option<f64>,
}

impl GpuSummary {
    /// A summary with the price alone.
    pub(super) fn priced(quote: Option<&Quote>, samples_per_s: Option<f64>) -> Self {
        let per_million = |q: &Quote| samples_per_s.map(|rate| q.usd_per_hour / 3600.0 / rate * 1e6);
        Self {
            usd_per_hour: quote.map(|q| q.usd_per_hour),
            price_date: quote.map(|q| q.date),
            price_source: quote.map(|q| q.source.clone()),
            usd_per_million_samples: quote.and_then(per_million),
            ..Self::default()
        }
    }

    /// The answer for a predicted iteration.
    pub(super) fn new(
        iteration: &Iteration,
        prediction: &IterationPrediction,
        gpu: &Gpu,
        quote: Option<&Quote>,
    ) -> Self {
        let samples_per_s = iteration.samples as f64 / prediction.time.0;
        let (reserve, prudent) = (Reserve::default(), prudent_peak(iteration));
        Self {
            gpu: gpu.name.clone(),
            title: gpu.title.clone(),
            iteration_ms: prediction.time.ms(),
            low_ms: prediction.low.ms(),
            high_ms: prediction.high.ms(),
            samples_per_s: Some(samples_per_s),
            memory_mib: Some(iteration.memory.peak.mib()),
            needed_mib: Some(reserve.needed(prudent).mib()),
            gpu_memory_mib: gpu.memory.mib(),
            fits: Some(reserve.fits(prudent, gpu)),
            bound: prediction.bound.name(),
            gpu_busy_ms: prediction.gpu_busy.ms(),
            gpu_wall_ms: prediction.gpu_wall.ms(),
            host_ms: prediction.host.ms(),
            ..Self::priced(quote, Some(samples_per_s))
        }
    }
}
