//! A personal correction: what operators measured on one machine say about our predictions for its GPU.
//!
//! ```text
//! time = predicted * exp(offset + slope * x),  x = ln(predicted / center)
//! ```
//!
//! Where `offset` and `slope` are numbers without unit, one pair per family of operators and number format, and
//! `center` is the geometric mean of the predicted times that they were fitted on. `x` ends where the fitted rows end,
//! and the exponent at [`LARGEST`]. Physical bounds hold after the correction as before it.

mod fit;

pub use fit::{FitError, Measured, fit};

use preflop_ops::{Family, OpCall};
use preflop_units::Seconds;
use preflop_units::dtype::Dtype;
use preflop_units::math::Elementary as _;
use serde::{Deserialize, Serialize};

/// Largest exponent: a correction of more than a factor of 8 is no correction but another operator.
pub const LARGEST: f64 = 2.08;
/// Steepest slope: over a factor of 1000 in time it makes a factor of 8.
pub const STEEPEST: f64 = 0.3;
/// Version of the file format.
const VERSION: u32 = 1;

/// What is wrong with a correction file. One line: what, where, what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CorrectionError {
    /// Not JSON of this shape.
    #[error("{file}: not a correction file: {detail} (`preflop fit` writes one)")]
    Syntax {
        /// The file.
        file: String,
        /// What the parser said.
        detail: String,
    },
    /// Another version.
    #[error("{file}: version {found} of the correction format; this tool reads {VERSION} (fit again)")]
    Version {
        /// The file.
        file: String,
        /// Its version.
        found: u32,
    },
    /// A number out of range.
    #[error("{file}: group {group}: `{key}` is {value}; {range}")]
    Value {
        /// The file.
        file: String,
        /// Number of the group, from 1.
        group: usize,
        /// Key.
        key: &'static str,
        /// What it is.
        value: String,
        /// What it must be.
        range: &'static str,
    },
}

/// The correction of one family in one number format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Family of operators.
    pub family: Family,
    /// Number format; without one, for formats that were not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<Dtype>,
    /// Rows that it was fitted on.
    pub rows: u32,
    /// Natural log of measured/predicted at the centre.
    pub offset: f64,
    /// Change of that log with the log of the predicted time.
    pub slope: f64,
    /// Geometric mean of the predicted times.
    pub center_us: f64,
    /// Shortest predicted time among the rows.
    pub shortest_us: f64,
    /// Longest predicted time among the rows.
    pub longest_us: f64,
    /// 5 % and 95 % points of ln(measured/corrected) on rows that the fit did not see, if there were enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
}

impl Group {
    /// The exponent for a call of that predicted time.
    fn exponent(&self, predicted_us: f64) -> f64 {
        let x = (predicted_us.clamp(self.shortest_us, self.longest_us) / self.center_us).natural_log();
        (self.offset + self.slope * x).clamp(-LARGEST, LARGEST)
    }
}

/// Errors of predictions on rows that the fit did not see, before and after: |predicted/measured - 1| in per cent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeldOut {
    /// Family, or `all`.
    pub family: String,
    /// Rows.
    pub rows: u32,
    /// Mean before.
    pub before_mean_pct: f64,
    /// Median before.
    pub before_median_pct: f64,
    /// Mean after.
    pub after_mean_pct: f64,
    /// Median after.
    pub after_median_pct: f64,
}

/// A correction for one GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Correction {
    /// Version of the format.
    pub preflop_correction: u32,
    /// Name of the GPU.
    pub gpu: String,
    /// When and from what it was made, in words.
    pub provenance: String,
    /// How much better it is on rows that it did not see: all rows first, then by family.
    pub held_out: Vec<HeldOut>,
    /// The corrections.
    pub groups: Vec<Group>,
}

/// What a correction does to one call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Corrected {
    /// Factor on the time.
    pub factor: f64,
    /// Ends of the interval around the corrected time, as natural logs, where known.
    pub interval: Option<[f64; 2]>,
}

impl Correction {
    /// Reads a correction file. `file` names it in messages.
    pub fn parse(text: &str, file: &str) -> Result<Self, CorrectionError> {
        let read: Self = serde_json::from_str(text).map_err(|e| CorrectionError::Syntax {
            file: file.to_string(),
            detail: e.to_string().split_whitespace().collect::<Vec<_>>().join(" "),
        })?;
        if read.preflop_correction != VERSION {
            return Err(CorrectionError::Version { file: file.to_string(), found: read.preflop_correction });
        }
        for (i, g) in read.groups.iter().enumerate() {
            let time = |t: f64| t > 0.0 && t < 1e15;
            let checks = [
                ("offset", g.offset, g.offset.abs() <= LARGEST, "it must be from -2.08 to 2.08"),
                ("slope", g.slope, g.slope.abs() <= STEEPEST, "it must be from -0.3 to 0.3"),
                ("center_us", g.center_us, time(g.center_us), "it must be a time in microseconds"),
                ("shortest_us", g.shortest_us, time(g.shortest_us), "it must be a time in microseconds"),
                (
                    "longest_us",
                    g.longest_us,
                    time(g.longest_us) && g.longest_us >= g.shortest_us,
                    "it must be a time in microseconds, not below `shortest_us`",
                ),
                (
                    "interval",
                    g.interval.map_or(0.0, |[low, high]| high - low),
                    g.interval.is_none_or(|[low, high]| low <= high && low.abs() < 10.0 && high.abs() < 10.0),
                    "it must be two logs, the lower first",
                ),
            ];
            if let Some((key, value, _, range)) = checks.into_iter().find(|c| !c.2) {
                let (file, value) = (file.to_string(), value.to_string());
                return Err(CorrectionError::Value { file, group: i + 1, key, value, range });
            }
        }
        Ok(read)
    }

    /// What to do with a call that was predicted to take `time`. `None`: nothing was measured that is like it.
    pub fn at(&self, call: &OpCall, time: Seconds) -> Option<Corrected> {
        let (family, dtype) = (call.family(), call.dtype);
        let of = |dtype: Option<Dtype>| self.groups.iter().find(|g| g.family == family && g.dtype == dtype);
        let group = of(Some(dtype)).or_else(|| of(None))?;
        Some(Corrected { factor: group.exponent(time.us()).exponential(), interval: group.interval })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(offset: &str, slope: &str) -> String {
        format!(
            r#"{{"preflop_correction":1,"gpu":"x","provenance":"","held_out":[],"groups":[{{"family":"gemm","dtype":"bf16",
            "rows":30,"offset":{offset},"slope":{slope},"center_us":100,"shortest_us":10,"longest_us":1000}}]}}"#
        )
    }

    #[test]
    fn a_group_is_hand_computed() {
        let c = Correction::parse(&file("0.1", "0.2"), "x").unwrap();
        let call = preflop_ops::row::parse("mm", "fwd", "bf16", r#"{"m":64,"n":64,"k":64}"#).unwrap();
        let factor = |us: f64| c.at(&call, Seconds::from_us(us)).unwrap().factor;
        // at the centre e^0.1; ten times above e^(0.1 + 0.2 ln 10); beyond the rows no further
        assert!((factor(100.0) - 0.1f64.exponential()).abs() < 1e-12);
        assert!((factor(1000.0) - (0.1 + 0.2 * 10f64.natural_log()).exponential()).abs() < 1e-12);
        assert_eq!(factor(1e6), factor(1000.0));
        let other = preflop_ops::row::parse("softmax", "fwd", "bf16", r#"{"rows":64,"cols":64}"#).unwrap();
        assert_eq!(c.at(&other, Seconds::from_us(5.0)), None);
    }

    #[test]
    fn wrong_files_say_what_and_where() {
        let say = |text: &str| Correction::parse(text, "my.json").unwrap_err().to_string();
        assert!(say("op,phase").starts_with("my.json: not a correction file"));
        assert!(say("{}").contains("missing field"));
        assert!(say(&file("5", "0")).contains("group 1: `offset` is 5"));
        assert!(say(&file("0", "1e9")).contains("`slope`"));
        assert!(say(&file("0", "0").replace(":1,\"gpu", ":2,\"gpu")).contains("version 2"));
        assert!(
            say(&file("0", "0").replace("\"longest_us\":1000", "\"longest_us\":1"))
                .contains("`longest_us` is 1")
        );
    }

    proptest::proptest! {
        /// Whatever is accepted corrects any call by a finite factor within the limits.
        #[test]
        fn an_accepted_file_is_harmless(
            offset in -3.0f64..3.0, slope in -0.5f64..0.5, center in -1.0f64..1e6, us in 1e-3f64..1e12,
        ) {
            let text = file(&offset.to_string(), &slope.to_string())
                .replace("\"center_us\":100", &format!("\"center_us\":{center}"));
            if let Ok(c) = Correction::parse(&text, "x") {
                let call = preflop_ops::row::parse("mm", "fwd", "bf16", r#"{"m":64,"n":64,"k":64}"#).unwrap();
                let factor = c.at(&call, Seconds::from_us(us)).unwrap().factor;
                proptest::prop_assert!((0.12..=8.01).contains(&factor), "{factor}");
            }
        }
    }
}
