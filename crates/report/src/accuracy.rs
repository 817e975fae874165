//! How far off the method was for the families that matter here: what cross-validation said when it was fitted.

use preflop_gpu::{Architecture, Gpu};
use preflop_roofline::Entry;
use preflop_time::model::plain_as_measured;
use preflop_units::dtype::Dtype;
use serde::{Deserialize, Serialize};

/// Errors by family, written by `preflop-fit` next to the constants.
const SCORES: &str = include_str!("../data/fitted/report.json");

/// One row of that file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Score {
    family: String,
    class: String,
    gpu: String,
    how: String,
    n: u64,
    mean_percent: f64,
    median_percent: f64,
}

/// Errors of one family of operators, with its share of the time at hand.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct FamilyError {
    /// As the fit names it: `conv/fp32`, `gemm/h200`, `rowwise`.
    pub family: &'static str,
    /// Share of the time, from 0 to 1.
    pub share: f64,
    /// Measurements that were held out in turn.
    pub rows: u64,
    pub mean_percent: f64,
    pub median_percent: f64,
    /// Mean error on this GPU's measurements when all of them were held out, where that was tried.
    pub unseen_mean_percent: Option<f64>,
}

/// Families with less of the time than this are not listed.
const LEAST_SHARE: f64 = 0.01;

/// The part of the fit that speaks for a family.
fn fit_of(family: &str, dtype: &str, gpu: &Gpu) -> Option<&'static str> {
    let wide = dtype == Dtype::Fp32.name() || dtype == Dtype::Fp64.name();
    Some(match family {
        "conv" if wide && !plain_as_measured(gpu) => "plain/conv",
        "conv" if wide => "conv/fp32",
        "conv" if dtype == Dtype::Tf32.name() => "conv/tf32",
        "conv" => "conv/half",
        "gemm" if gpu.architecture == Architecture::Hopper => "gemm/h200",
        "gemm" if wide && plain_as_measured(gpu) => "gemm/h200",
        "gemm" if wide => "gemm/fp32",
        "gemm" if dtype == Dtype::Fp8.name() => "gemm/fp8",
        "gemm" => "gemm/bf16",
        "attention" => "attention",
        "rnn" => "rnn",
        "rowwise" => "rowwise",
        "spatial" => "spatial",
        "elementwise" => "elementwise",
        "movement" => "movement",
        _ => return None,
    })
}

/// Errors of the families that these entries belong to, the largest share first.
pub fn family_errors(entries: &[Entry], gpu: &Gpu) -> Vec<FamilyError> {
    let scores: Vec<Score> = serde_json::from_str(SCORES).unwrap_or_default();
    let total: f64 = entries.iter().map(|e| e.work.time.0).sum();
    let mut found: Vec<FamilyError> = Vec::new();
    for entry in entries {
        let Some(name) = fit_of(&entry.family, &entry.dtype, gpu) else { continue };
        let share = if total > 0.0 { entry.work.time.0 / total } else { 0.0 };
        if let Some(known) = found.iter_mut().find(|f| f.family == name) {
            known.share += share;
            continue;
        }
        let of_fit = || scores.iter().filter(|s| s.family == name && s.class == "all");
        let Some(score) = of_fit().find(|s| s.gpu == "all" && s.how == "cross-validated") else { continue };
        let unseen = of_fit().filter(|s| s.gpu == gpu.name && s.how.contains("left out"));
        found.push(FamilyError {
            family: name,
            share,
            rows: score.n,
            mean_percent: score.mean_percent,
            median_percent: score.median_percent,
            unseen_mean_percent: unseen.map(|s| s.mean_percent).reduce(f64::min),
        });
    }
    found.retain(|f| f.share >= LEAST_SHARE);
    found.sort_by(|a, b| b.share.total_cmp(&a.share));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_gpu::catalog;

    #[test]
    fn every_family_has_a_score() {
        let scores: Vec<Score> = serde_json::from_str(SCORES).unwrap();
        for gpu in ["h200", "a100", "t4"].map(|n| catalog::find(n).unwrap()) {
            for family in
                ["conv", "gemm", "attention", "rnn", "rowwise", "spatial", "elementwise", "movement"]
            {
                for dtype in ["fp32", "tf32", "bf16", "fp8"] {
                    let name = fit_of(family, dtype, &gpu).unwrap();
                    let found = scores.iter().any(|s| {
                        s.family == name && s.class == "all" && s.gpu == "all" && s.how == "cross-validated"
                    });
                    assert!(found, "{name}");
                }
            }
        }
        assert_eq!(fit_of("unmodelled", "fp32", &catalog::find("h200").unwrap()), None);
    }
}
