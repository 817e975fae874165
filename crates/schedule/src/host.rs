//! The host: what it does for one iteration, how long that takes, and how the two sides join.
//!
//! ```text
//! host      = machine * level * (a ops_fwd + b modules + c ops_bwd + d launches + e parameter tensors) + start
//! iteration = (gpu^p + host^p)^(1/p) + t0
//! ```
//!
//! Where `level` and `start` say how far real jobs are from the constants (`data/fitted/host.toml`), and `machine` is 1 on the machine of the
//! measurements and what a [`Probe`] or a word ([`said`]) says on another. How an optimizer walks its tensors shows in its launches (seven a tensor in a
//! loop, a few for all in lists); beyond those, lists and fused steps cost the host the same: of six pairs of iterations that
//! differ in this alone, the fused ones took 1.03 times as long in the median.

use preflop_gpu::Gpu;
use preflop_graph::{HostWork, Iteration};
use preflop_units::Seconds;
use preflop_units::math::Elementary as _;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use std::sync::OnceLock;

const FITTED: &str = include_str!("../data/fitted/host.toml");

/// Sharpness of the corner between GPU and host time.
const NORM: f64 = 10.0;

/// How the host's work becomes time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HostModel {
    /// Seconds per operator dispatched in forward.
    pub forward_op: f64,
    /// Seconds per module call.
    pub module_call: f64,
    /// Seconds per operator dispatched in backward.
    pub backward_op: f64,
    /// Seconds per kernel launch.
    pub launch: f64,
    /// Seconds per parameter tensor that an optimizer walks.
    pub parameter_tensor: f64,
    /// Seconds of one iteration in any case.
    pub fixed: f64,
    /// Seconds between the end of a kernel and the start of the next in its stream.
    pub gap: f64,
    /// What the whole of the host's work is multiplied by.
    pub level: f64,
    /// Seconds of the host in every iteration that it launches.
    pub start: f64,
    /// Is it said how fast it is? Then its time is surer.
    pub said: bool,
}

impl HostModel {
    /// Starting point: the values published with the design of this formula for one server CPU, and a usual gap.
    pub const START: Self = Self {
        forward_op: 7.8e-6,
        module_call: 5.8e-6,
        backward_op: 6.6e-6,
        launch: 12.1e-6,
        parameter_tensor: 54e-6,
        fixed: 0.095e-3,
        gap: 1.5e-6,
        level: 1.0,
        start: 0.0,
        said: false,
    };

    /// From a fitted list.
    pub fn from_slice(c: &[f64]) -> Option<Self> {
        let [forward_op, module_call, backward_op, launch, parameter_tensor, fixed, gap] = *c else {
            return None;
        };
        let constants =
            Self { forward_op, module_call, backward_op, launch, parameter_tensor, ..Self::START };
        Some(Self { fixed, gap, ..constants })
    }

    /// As a list, for files.
    pub fn to_array(&self) -> [f64; 7] {
        [
            self.forward_op,
            self.module_call,
            self.backward_op,
            self.launch,
            self.parameter_tensor,
            self.fixed,
            self.gap,
        ]
    }

    /// The same host as real jobs find it, on a machine with this GPU that takes `said` times as long as that of the measurements, where that is said.
    #[must_use]
    pub fn in_real_jobs(self, said: Option<f64>, gpu: &Gpu) -> Self {
        let fitted = RealJobs::fitted();
        // Boards that run above their datasheet's clock are GeForce boards.
        let desktop = gpu.usual_clock.0 > gpu.boost_clock.0;
        let jobs = if desktop { &fitted.desktop } else { &fitted.server };
        let factor = said.unwrap_or(1.0);
        let (level, start) = (factor * jobs.level, factor * jobs.start_ms * 1e-3);
        Self { level, start, said: said.is_some(), ..self }
    }

    /// Factors of the host's time between which 90 % of measurements lie.
    pub fn spread(&self, iteration: &Iteration) -> [f64; 2] {
        let fitted = RealJobs::fitted();
        let spread = if self.said { &fitted.spread_said } else { &fitted.spread };
        if iteration.host.backward_ops > 0 { spread.train } else { spread.infer }
    }

    /// Host time of one iteration.
    pub fn time(&self, work: &HostWork, launches: f64) -> Seconds {
        let counted = self.forward_op * work.forward_ops as f64
            + self.module_call * work.module_calls as f64
            + self.backward_op * work.backward_ops as f64
            + self.launch * launches
            + self.parameter_tensor * work.parameter_tensors as f64;
        Seconds(self.level * counted + self.start)
    }

    /// Host time of an iteration that replays a graph: one launch.
    pub fn replay(&self) -> Seconds {
        Seconds(self.level * self.launch)
    }

    /// Pauses of the GPU between kernels that follow each other.
    pub fn pauses(&self, launches: f64) -> Seconds {
        Seconds(self.gap * launches)
    }

    /// Iteration time from GPU and host time.
    pub fn join(&self, gpu_wall: Seconds, host: Seconds) -> Seconds {
        let (g, h) = (gpu_wall.0, host.0);
        let larger = g.max(h);
        if larger <= 0.0 {
            return Seconds(self.fixed);
        }
        let smaller = g.min(h) / larger;
        Seconds(larger * (1.0 + smaller.power(NORM)).power(1.0 / NORM) + self.fixed)
    }
}

/// Least and most times as long as the usual host that one may be said to take.
const FACTORS: RangeInclusive<f64> = 0.1..=10.0;

/// How many times as long as the usual host one takes that is said to be `fast`, `usual`, `slow`, or a factor such as `1.5x`.
pub fn said(text: &str) -> Result<f64, HostError> {
    let levels = &RealJobs::fitted().levels;
    let factor = match text {
        "fast" => Some(levels.fast),
        "usual" => Some(levels.usual),
        "slow" => Some(levels.slow),
        other => other.strip_suffix('x').and_then(|number| number.parse().ok()),
    };
    factor
        .filter(|factor| FACTORS.contains(factor))
        .ok_or_else(|| HostError::Word { said: text.chars().take(64).collect() })
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct RealJobs {
    server: Jobs,
    desktop: Jobs,
    spread: Spread,
    spread_said: Spread,
    levels: Levels,
    reference: Reference,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Jobs {
    level: f64,
    start_ms: f64,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Spread {
    train: [f64; 2],
    infer: [f64; 2],
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Levels {
    fast: f64,
    usual: f64,
    slow: f64,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Reference {
    operator_us: f64,
    module_call_us: f64,
}

impl RealJobs {
    fn fitted() -> &'static Self {
        static READ: OnceLock<RealJobs> = OnceLock::new();
        READ.get_or_init(|| {
            // A test reads the file, so what ships can be read.
            toml::from_str(FITTED).unwrap_or(Self {
                server: Jobs { level: 1.0, start_ms: 0.0 },
                desktop: Jobs { level: 1.0, start_ms: 0.0 },
                spread: Spread { train: [0.75, 1.4], infer: [0.73, 1.75] },
                spread_said: Spread { train: [0.75, 1.4], infer: [0.73, 1.75] },
                levels: Levels { fast: 1.0, usual: 1.0, slow: 1.0 },
                reference: Reference { operator_us: 1.0, module_call_us: 1.0 },
            })
        })
    }
}

/// What is wrong with a host file. One line: what, where, what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// Not JSON of this shape.
    #[error("{file}: not a host file: {detail} (`preflop host` writes one)")]
    Syntax {
        /// The file.
        file: String,
        /// What the parser said.
        detail: String,
    },
    /// A word that is no host.
    #[error("`{said}` is no host; it must be fast, usual, slow, or a factor from 0.1x to 10x such as 1.5x")]
    Word {
        /// What was said.
        said: String,
    },
    /// A time out of range.
    #[error("{file}: `{key}` is {value}; a host takes 0.01 to 10,000 us for it (measure again)")]
    Value {
        /// The file.
        file: String,
        /// Key.
        key: &'static str,
        /// What it is.
        value: String,
    },
}

/// What a host takes for the parts of its work, measured in a second: `preflop host`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// Version of the file format.
    pub version: u32,
    /// Microseconds of one operator on a tensor of eight elements.
    pub operator_us: f64,
    /// Of one call of a module that does nothing.
    pub module_call_us: f64,
    /// Of one pass of a loop in Python.
    pub python_us: f64,
    /// Median round over the best one: 1 on a host that does nothing else.
    pub unrest: f64,
    /// PyTorch that was used.
    pub torch: String,
    /// Python that was used.
    pub python: String,
}

impl Probe {
    /// Reads and checks a file.
    pub fn parse(text: &str, file: &str) -> Result<Self, HostError> {
        let detail = |e: serde_json::Error| HostError::Syntax {
            file: file.to_owned(),
            detail: e.to_string().replace('\n', " "),
        };
        let probe: Self = serde_json::from_str(text).map_err(detail)?;
        for (key, value) in [("operator_us", probe.operator_us), ("module_call_us", probe.module_call_us)] {
            if !(0.01..=1e4).contains(&value) {
                return Err(HostError::Value { file: file.to_owned(), key, value: value.to_string() });
            }
        }
        Ok(probe)
    }

    /// How much longer this host takes than that of the measurements.
    pub fn factor(&self) -> f64 {
        let r = &RealJobs::fitted().reference;
        (self.operator_us + self.module_call_us) / (r.operator_us + r.module_call_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_side_rules() {
        let h = HostModel { fixed: 0.0, ..HostModel::START };
        assert!((h.join(Seconds(10.0), Seconds(1.0)).0 - 10.0).abs() < 1e-5);
        assert!((h.join(Seconds(1.0), Seconds(10.0)).0 - 10.0).abs() < 1e-5);
        // equal: 2^(1/10) = 1.0718
        assert!((h.join(Seconds(1.0), Seconds(1.0)).0 - 1.071_773).abs() < 1e-6);
    }

    #[test]
    fn host_time_is_hand_computed() {
        let work = HostWork {
            forward_ops: 100,
            module_calls: 10,
            backward_ops: 200,
            parameter_tensors: 5,
            lead_s: 0.0,
        };
        // 780 + 58 + 1320 + 3630 + 270 us = 6058 us
        assert!((HostModel::START.time(&work, 300.0).us() - 6058.0).abs() < 1e-6);
        // 1.15 x 6058 us and 400 us
        let real = HostModel::START.in_real_jobs(None, &preflop_gpu::catalog::find("h200").unwrap());
        assert!((real.time(&work, 300.0).us() - 7366.7).abs() < 1e-6);
        let desktop = HostModel::START.in_real_jobs(None, &preflop_gpu::catalog::find("rtx-3090").unwrap());
        assert!((desktop.time(&work, 300.0).us() - 6058.0).abs() < 1e-6);
    }

    #[test]
    fn a_host_twice_as_slow_takes_twice_as_long() {
        let r = &toml::from_str::<RealJobs>(FITTED).unwrap().reference;
        let text = format!(
            r#"{{"version":1,"operator_us":{},"module_call_us":{},"python_us":0.1,"unrest":1.0,"torch":"2.9","python":"3.12"}}"#,
            2.0 * r.operator_us,
            2.0 * r.module_call_us
        );
        let probe = Probe::parse(&text, "a").unwrap();
        assert!((probe.factor() - 2.0).abs() < 1e-12);
        let work = HostWork { forward_ops: 100, ..HostWork::default() };
        let gpu = preflop_gpu::catalog::find("h200").unwrap();
        let [one, two] = [1.0, 2.0].map(|f| HostModel::START.in_real_jobs(Some(f), &gpu).time(&work, 10.0).0);
        assert!((two / one - 2.0).abs() < 1e-12);
    }

    #[test]
    fn hosts_are_said_in_words_and_factors() {
        let [fast, usual, slow] = ["fast", "usual", "slow"].map(|word| said(word).unwrap());
        assert!(fast < usual && usual < slow && (usual - 1.0).abs() < 1e-12);
        assert_eq!((said("1.5x"), said("0.1x"), said("10x")), (Ok(1.5), Ok(0.1), Ok(10.0)));
        for junk in ["", "x", "1.5", "0x", "-1x", "0.09x", "11x", "NaNx", "infx", "Fast", "fast ", "1,5x"] {
            let why = said(junk).unwrap_err().to_string();
            assert!(why.starts_with(&format!("`{junk}` is no host; it must be fast")), "{why}");
        }
    }

    #[test]
    fn a_host_that_is_said_is_surer() {
        let gpu = preflop_gpu::catalog::find("h200").unwrap();
        for backward_ops in [0, 1] {
            let work = HostWork { backward_ops, ..HostWork::default() };
            let iteration = Iteration { host: work, ..Iteration::default() };
            let [unsaid, said] =
                [None, Some(1.0)].map(|said| HostModel::START.in_real_jobs(said, &gpu).spread(&iteration));
            assert!(unsaid[0] < said[0] && said[1] < unsaid[1], "{unsaid:?} {said:?}");
        }
    }

    #[test]
    fn wrong_files_say_why() {
        let say = |text: &str| Probe::parse(text, "my.json").unwrap_err().to_string();
        assert!(say("{}").starts_with("my.json: not a host file"));
        let zero = r#"{"version":1,"operator_us":0,"module_call_us":1,"python_us":0.1,"unrest":1.0,"torch":"","python":""}"#;
        assert!(say(zero).contains("`operator_us` is 0"));
    }
}
