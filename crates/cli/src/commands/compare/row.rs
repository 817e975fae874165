//! One GPU's answer, with the names that scripts rely on.

use preflop_core::cost::Date;
use preflop_core::cost::room::Change;
use preflop_core::time::Bound;
use serde::Serialize;

/// One line of the comparison. What has no price has no dollars; what was not asked is not there.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub gpu: String,
    pub batch: u64,
    pub precision: &'static str,
    pub iteration_ms: f64,
    pub low_ms: f64,
    pub high_ms: f64,
    /// What the interval rests on.
    pub evidence: &'static str,
    pub samples_per_s: f64,
    /// Peak, as `max_memory_allocated` would show it.
    pub memory_mib: f64,
    /// The peak with context and reserve.
    pub needed_mib: f64,
    pub gpu_memory_mib: f64,
    pub fits: bool,
    /// Largest batch that fits with this precision and optimizer; 0 if none does.
    pub largest_batch: Option<u64>,
    pub usd_per_hour: Option<f64>,
    pub price_date: Option<Date>,
    pub price_source: Option<String>,
    pub price_includes_host: Option<bool>,
    pub usd_per_million_samples: Option<f64>,
    /// Mean board power, an estimate.
    pub watts: f64,
    pub joules_per_sample: f64,
    pub joules_low: f64,
    pub joules_high: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grams_co2_per_million_samples: Option<f64>,
    pub gpu_busy_ms: f64,
    pub host_ms: f64,
    pub bound: Bound,
    /// On the Pareto front of time and money.
    pub pareto: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed_over_baseline: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_hours: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_usd: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd_per_epoch: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keeps_limits: Option<bool>,
    /// The answer to a question with a deadline or a budget.
    pub chosen: bool,
    /// What would make it fit, and what that does to the time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
}
