//! What comes out: one column per figure, with its unit in its name, and `error` where there is none.

use arrow_array::{ArrayRef, BooleanArray, Float64Array, StringArray};
use arrow_schema::{DataType, Field};
use preflop_core::time::{Bound, OpPrediction};
use std::sync::Arc;

/// Columns of predicted operators, as in the lines of `preflop ops`.
pub const OPERATOR_ANSWERS: [&str; 9] =
    ["time_us", "low_us", "high_us", "bound", "flops", "dram_bytes", "l2_bytes", "l1_bytes", "error"];

/// Columns of predicted jobs, as in `preflop predict --json`.
pub const JOB_ANSWERS: [&str; 18] = [
    "iteration_ms",
    "low_ms",
    "high_ms",
    "gpu_busy_ms",
    "host_ms",
    "bound",
    "kernels",
    "memory_mib",
    "needed_mib",
    "fits",
    "samples_per_s",
    "flops",
    "dram_bytes",
    "watts",
    "joules_per_sample",
    "usd_per_hour",
    "usd_per_million_samples",
    "error",
];

/// What is said about a job. Figures that a prediction over several GPUs does not have are left out.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct JobAnswer {
    pub iteration_ms: f64,
    pub low_ms: f64,
    pub high_ms: f64,
    pub gpu_busy_ms: Option<f64>,
    pub host_ms: Option<f64>,
    pub bound: Option<Bound>,
    pub kernels: Option<f64>,
    pub memory_mib: f64,
    pub needed_mib: f64,
    pub fits: bool,
    pub samples_per_s: f64,
    pub flops: Option<f64>,
    pub dram_bytes: Option<f64>,
    pub watts: Option<f64>,
    pub joules_per_sample: Option<f64>,
    pub usd_per_hour: Option<f64>,
    pub usd_per_million_samples: Option<f64>,
}

/// The fields of these answers.
pub(crate) fn fields(names: &[&str]) -> Vec<Field> {
    let of = |name: &&str| {
        let kind = match *name {
            "bound" | "error" => DataType::Utf8,
            "fits" => DataType::Boolean,
            _ => DataType::Float64,
        };
        Field::new(*name, kind, true)
    };
    names.iter().map(of).collect()
}

fn numbers<T>(rows: &[Result<T, String>], get: impl Fn(&T) -> Option<f64>) -> ArrayRef {
    Arc::new(rows.iter().map(|r| r.as_ref().ok().and_then(&get)).collect::<Float64Array>())
}

fn texts<'a, T>(
    rows: &'a [Result<T, String>],
    get: impl Fn(&'a Result<T, String>) -> Option<&'a str>,
) -> ArrayRef {
    Arc::new(rows.iter().map(get).collect::<StringArray>())
}

fn errors<T>(rows: &[Result<T, String>]) -> ArrayRef {
    texts(rows, |r| r.as_ref().err().map(String::as_str))
}

/// The columns of [`OPERATOR_ANSWERS`].
pub(crate) fn operators(rows: &[Result<OpPrediction, String>]) -> Vec<ArrayRef> {
    let number = |get: fn(&OpPrediction) -> f64| numbers(rows, |p| Some(get(p)));
    vec![
        number(|p| p.time.us()),
        number(|p| p.low.us()),
        number(|p| p.high.us()),
        texts(rows, |r| r.as_ref().ok().map(|p| p.bound.name())),
        number(|p| p.flops.0),
        number(|p| p.dram.0),
        number(|p| p.l2.0),
        number(|p| p.l1.0),
        errors(rows),
    ]
}

/// The columns of [`JOB_ANSWERS`].
pub(crate) fn jobs(rows: &[Result<JobAnswer, String>]) -> Vec<ArrayRef> {
    let number = |get: fn(&JobAnswer) -> Option<f64>| numbers(rows, get);
    vec![
        number(|a| Some(a.iteration_ms)),
        number(|a| Some(a.low_ms)),
        number(|a| Some(a.high_ms)),
        number(|a| a.gpu_busy_ms),
        number(|a| a.host_ms),
        texts(rows, |r| r.as_ref().ok().and_then(|a| a.bound).map(Bound::name)),
        number(|a| a.kernels),
        number(|a| Some(a.memory_mib)),
        number(|a| Some(a.needed_mib)),
        Arc::new(rows.iter().map(|r| r.as_ref().ok().map(|a| a.fits)).collect::<BooleanArray>()),
        number(|a| Some(a.samples_per_s)),
        number(|a| a.flops),
        number(|a| a.dram_bytes),
        number(|a| a.watts),
        number(|a| a.joules_per_sample),
        number(|a| a.usd_per_hour),
        number(|a| a.usd_per_million_samples),
        errors(rows),
    ]
}
