//! Predictions against measurements of several GPUs, with whole systems left out of whatever was fitted.
//!
//! The measurements are not part of the repository: a shell reads the rows and hands them in.

pub mod collectives;
pub mod ddp;
mod descent;
pub mod fsdp;
pub mod megatron;
pub mod memory;
pub mod vendor;

use crate::interval::LogInterval;
use crate::model::Host;
use serde::Serialize;

/// Host time of Megatron-DeepSpeed of 2022 on a DGX A100, fitted on 448 runs of 2 to 8 GPUs.
pub const MEGATRON_2022: Host =
    Host { layer: 0.9e-3, backward: 1.6e-3, microbatch: 2.6e-3, iteration: 0.1e-3 };

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
    /// Log error, either way, that parts without measurements add to whatever other systems say.
    pub unmeasured: f64,
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

/// Runs of one kind of evidence, each system's interval from the errors of the others: how the rule by which intervals of whole iterations
/// are made does where it has not seen the system, with what it adds for parts that nobody measured. Intervals of a kind with one system stay.
pub fn cross_intervals(pairs: &mut [Pair]) {
    let mut systems: Vec<String> = pairs.iter().map(|p| p.system.clone()).collect();
    systems.sort_unstable();
    systems.dedup();
    for system in systems {
        let others = pairs.iter().filter(|p| p.system != system).map(|p| (p.system.as_str(), p.log()));
        let Some(interval) = LogInterval::either_way_by(others) else { continue };
        for pair in pairs.iter_mut().filter(|p| p.system == system) {
            pair.interval = interval.wider_by(pair.unmeasured);
        }
    }
}

/// What a kind of evidence says about intervals.
#[derive(Debug, Clone, Copy)]
pub struct Evidence {
    /// Runs.
    pub rows: usize,
    /// Of those, inside the interval that the other systems give.
    pub covered: usize,
    /// The side that all of them give: what is shipped for the kind.
    pub side: f64,
}

/// [`cross_intervals`] over several sets that are one kind of evidence.
pub fn kind_of_evidence(sets: &mut [&mut Vec<Pair>]) -> Evidence {
    let mut all: Vec<Pair> = sets.iter().flat_map(|set| set.iter().cloned()).collect();
    cross_intervals(&mut all);
    let side = LogInterval::either_way_by(all.iter().map(|p| (p.system.as_str(), p.log())));
    let evidence = Evidence {
        rows: all.len(),
        covered: all.iter().filter(|p| p.covered()).count(),
        side: side.map_or(0.0, |i| i.high),
    };
    let mut rest = all.into_iter();
    for set in sets {
        for pair in set.iter_mut() {
            if let Some(crossed) = rest.next() {
                *pair = crossed;
            }
        }
    }
    evidence
}

/// Errors of one set.
#[derive(Debug, Clone, Serialize)]
pub struct Score {
    /// What was predicted.
    pub what: String,
    /// What was left out, or that nothing was.
    pub left_out: String,
    /// Rows.
    pub rows: usize,
    /// Mean error over rows, in per cent.
    pub mean_percent: f64,
    /// Median.
    pub median_percent: f64,
    /// Mean over systems of their mean errors.
    pub systems_percent: f64,
    /// Mean of predicted over measured, less one.
    pub bias_percent: f64,
    /// Share of rows that the 90 % interval holds; none where the set has no intervals.
    pub coverage_percent: Option<f64>,
    /// What is wanted at most, where a bar is set.
    pub bar_percent: Option<f64>,
    /// Is the mean at or below it?
    pub holds: Option<bool>,
}

impl Score {
    /// The score of these pairs.
    pub fn of(what: &str, left_out: &str, pairs: &[Pair], bar: Option<f64>) -> Self {
        let n = pairs.len().max(1) as f64;
        let mut errors: Vec<f64> = pairs.iter().map(Pair::error).collect();
        errors.sort_by(f64::total_cmp);
        let mut systems: Vec<&str> = pairs.iter().map(|p| p.system.as_str()).collect();
        systems.sort_unstable();
        systems.dedup();
        let of_system = |name: &str| {
            let own: Vec<f64> = pairs.iter().filter(|p| p.system == name).map(Pair::error).collect();
            own.iter().sum::<f64>() / own.len().max(1) as f64
        };
        let by_system = systems.iter().map(|s| of_system(s)).sum::<f64>() / systems.len().max(1) as f64;
        let mean = 100.0 * errors.iter().sum::<f64>() / n;
        let any = pairs.iter().any(|p| p.interval.high > p.interval.low);
        let covered = pairs.iter().filter(|p| p.covered()).count() as f64;
        Self {
            what: what.to_string(),
            left_out: left_out.to_string(),
            rows: pairs.len(),
            mean_percent: mean,
            median_percent: 100.0 * crate::interval::quantile(&errors, 0.5),
            systems_percent: 100.0 * by_system,
            bias_percent: 100.0 * pairs.iter().map(|p| p.predicted / p.measured - 1.0).sum::<f64>() / n,
            coverage_percent: any.then_some(100.0 * covered / n),
            bar_percent: bar,
            holds: bar.map(|b| mean <= b),
        }
    }
}
