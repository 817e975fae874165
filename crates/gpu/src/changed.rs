//! A GPU with some of its figures changed, for studies of designs: `dram_gbs = 4000` on an H200.
//!
//! A changed figure takes along what follows from it. Bandwidth that kernels hold keeps its share of the datasheet's, rates of arithmetic
//! follow SMs and clock: what a chip of the same making would have. Everything else stays.

use super::{Gpu, GpuError, Resource};
use preflop_units::dtype::Dtype;
use preflop_units::names::did_you_mean;
use preflop_units::{Bytes, FlopsPerSecond, Seconds};

/// The figures that can be changed, by the names that GPU files have for them (without the section, but for rates of arithmetic).
pub const CHANGEABLE: [&str; 22] = [
    "sm_count",
    "boost_mhz",
    "dram_gbs",
    "l2_gbs",
    "l2_mib",
    "capacity_gib",
    "tdp_w",
    "idle_w",
    "kernel_us",
    "host_us",
    "plain.fp64_tflops",
    "plain.fp32_tflops",
    "plain.fp16_tflops",
    "plain.bf16_tflops",
    "tensor.fp64_tflops",
    "tensor.fp32_tflops",
    "tensor.tf32_tflops",
    "tensor.fp16_tflops",
    "tensor.bf16_tflops",
    "tensor.fp8_tflops",
    "tensor.fp4_tflops",
    "tensor.int8_tops",
];

/// The name in [`CHANGEABLE`] of a key as users write it: with or without its section.
pub fn changeable(key: &str) -> Result<&'static str, String> {
    let short = ["chip_limits.", "memory.", "power.", "launch.", "peak."]
        .iter()
        .find_map(|section| key.strip_prefix(section))
        .unwrap_or(key);
    CHANGEABLE.iter().copied().find(|k| *k == short).ok_or_else(|| {
        let hint = did_you_mean(short, CHANGEABLE);
        format!(
            "`{key}` is no figure of a GPU that can be changed{hint} (these can: {})",
            CHANGEABLE.join(", ")
        )
    })
}

/// The range that the schema of GPU files has for it.
fn range(key: &str) -> (f64, f64) {
    let field = key.split_once('.').map_or(("", key), |(pipe, key)| (pipe, key));
    let found = super::FIELDS.iter().find(|f| {
        f.key == field.1
            && if field.0.is_empty() {
                matches!(f.section, "chip_limits" | "memory" | "power" | "launch")
            } else {
                f.section.strip_prefix("peak.") == Some(field.0)
            }
    });
    found.map_or((f64::MIN_POSITIVE, f64::MAX), |f| (f.min, f.max))
}

impl Gpu {
    /// The same GPU with one figure of [`CHANGEABLE`] changed to `value`, in the unit that its key names.
    pub fn with_figure(&self, key: &str, value: f64) -> Result<Self, GpuError> {
        let wrong =
            |problem: String| GpuError::Value { file: self.name.clone(), key: key.to_string(), problem };
        let key = changeable(key).map_err(|problem| wrong(format!("cannot be changed: {problem}")))?;
        let (min, max) = range(key);
        if !(value >= min && value <= max) {
            return Err(wrong(format!("is {value}; it must be from {min} to {max}")));
        }
        let times = |resource: Resource, old: f64| self.with_more(resource, value / old);
        let mut out = match key {
            "boost_mhz" => times(Resource::Clock, self.boost_clock.0 / 1e6),
            "dram_gbs" => times(Resource::Dram, self.dram.0 / 1e9),
            "l2_gbs" => times(Resource::L2, self.l2.0 / 1e9),
            "l2_mib" => times(Resource::L2Size, self.l2_size.mib()),
            _ => self.clone(),
        };
        match key {
            "sm_count" => {
                if value.fract() != 0.0 {
                    return Err(wrong(format!("is {value}; SMs come whole")));
                }
                // A factor that rounds up to just that number.
                out = self.with_more(Resource::Sms, (value - 0.5) / f64::from(self.sm_count.max(1)));
            }
            "capacity_gib" => out.memory = Bytes::from_mib(value * 1024.0),
            "tdp_w" => out.tdp_w = value,
            "idle_w" => out.idle_w = value,
            "kernel_us" => out.kernel_floor = Seconds(value * 1e-6),
            "host_us" => out.host_launch = Seconds(value * 1e-6),
            _ => {
                if let Some((pipe, rate)) = key.split_once('.') {
                    out.set_rate(pipe == "tensor", rate, FlopsPerSecond(value * 1e12));
                }
            }
        }
        Ok(out)
    }

    /// A rate of one pipe; what large products hold keeps its share of it.
    fn set_rate(&mut self, tensor: bool, key: &str, rate: FlopsPerSecond) {
        let Some(dtype) = key.split_once('_').and_then(|(name, _)| Dtype::from_name(name)) else { return };
        let before = self.peak(dtype);
        let pipe = if tensor { &mut self.tensor } else { &mut self.plain };
        let own = pipe.get(dtype).map(|old| rate.0 / old.0);
        pipe.set(dtype, rate);
        let share = self.peak(dtype).0 / before.0;
        if let Some(held) = self.sustained.get(dtype) {
            self.sustained.set(dtype, FlopsPerSecond(held.0 * share));
        }
        if let (false, Dtype::Fp32, Some(factor)) = (tensor, dtype, own) {
            self.plain_limit = FlopsPerSecond(self.plain_limit.0 * factor);
            self.plain_burst = FlopsPerSecond(self.plain_burst.0 * factor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;

    #[test]
    fn a_changed_bandwidth_keeps_the_share_that_kernels_hold() {
        let gpu = catalog::find("h200").unwrap();
        let more = gpu.with_figure("memory.dram_gbs", 2.0 * gpu.dram.0 / 1e9).unwrap();
        assert!((more.dram_sustained.0 / gpu.dram_sustained.0 - 2.0).abs() < 1e-12);
        assert_eq!(more.sustained, gpu.sustained);
    }

    #[test]
    fn every_changeable_figure_can_be_set_and_is_then_what_was_asked_for() {
        let gpu = catalog::find("h200").unwrap();
        for key in CHANGEABLE {
            let (min, max) = range(key);
            assert!(max < 1e12 && min > -1.0, "{key} has no range in the schema");
            gpu.with_figure(key, 100.0).unwrap();
        }
        assert_eq!(gpu.with_figure("sm_count", 77.0).unwrap().sm_count, 77);
        assert_eq!(gpu.with_figure("sm_count", 132.0).unwrap().sm_count, 132);
        let half = gpu.peak(Dtype::Bf16).0 / 2e12;
        let slow = gpu.with_figure("tensor.bf16_tflops", half).unwrap();
        let held = slow.sustained_peak(Dtype::Bf16).0 / gpu.sustained_peak(Dtype::Bf16).0;
        assert!((held - 0.5).abs() < 1e-12);
    }

    #[test]
    fn wrong_names_and_values_say_so() {
        let gpu = catalog::find("h200").unwrap();
        let say = |key: &str, value: f64| gpu.with_figure(key, value).unwrap_err().to_string();
        assert!(say("dram_gb", 1.0).contains("did you mean `dram_gbs`"));
        assert!(say("dram_gbs", -1.0).contains("must be from"));
        assert!(say("dram_gbs", f64::NAN).contains("must be from"));
        assert!(say("sm_count", 1.5).contains("whole"));
    }
}
