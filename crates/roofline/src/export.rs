//! Rows and machines with plain numbers and units in the names, for JSON, CSV and pages.

use super::machine::{Level, Machine};
use super::rows::Row;
use preflop_units::math::Elementary as _;
use serde::Serialize;
use std::collections::BTreeMap;

/// A row as scripts read it.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
#[allow(missing_docs)]
pub struct RowData {
    pub name: String,
    pub op: String,
    pub family: String,
    pub phase: String,
    pub dtype: String,
    pub count: f64,
    pub launches: f64,
    pub flops: f64,
    /// FLOPs by pipe, such as `bf16 tensor`.
    pub flops_by_pipe: BTreeMap<String, f64>,
    pub dram_bytes: Option<f64>,
    pub l2_bytes: Option<f64>,
    pub l1_bytes: Option<f64>,
    pub time_us: f64,
    /// Share of the time of all rows, from 0 to 1.
    pub share: f64,
    /// `t_F`.
    pub compute_bound_us: f64,
    /// `t_B` at each level.
    pub dram_bound_us: Option<f64>,
    pub l2_bound_us: Option<f64>,
    pub l1_bound_us: Option<f64>,
    /// `t_0` on the device and on the host.
    pub launch_bound_us: f64,
    pub host_launch_bound_us: f64,
    /// `AI` at DRAM in FLOP per byte.
    pub intensity: Option<f64>,
    /// `t / max(t_F, t_B)`.
    pub slowdown: Option<f64>,
    /// compute, memory, overhead, or unknown where the work is.
    pub class: &'static str,
    /// The slowest resource, inner levels included.
    pub binding: &'static str,
    /// Time over the largest of all terms, where it is far above it.
    pub inefficient: Option<f64>,
    /// Roofs that the row lies above.
    pub above_roof: Vec<&'static str>,
}

/// The header of the CSV form.
pub const COLUMNS: [&str; 26] = [
    "name",
    "op",
    "family",
    "phase",
    "dtype",
    "count",
    "launches",
    "flops",
    "flops_by_pipe",
    "dram_bytes",
    "l2_bytes",
    "l1_bytes",
    "time_us",
    "share",
    "compute_bound_us",
    "dram_bound_us",
    "l2_bound_us",
    "l1_bound_us",
    "launch_bound_us",
    "host_launch_bound_us",
    "intensity",
    "slowdown",
    "class",
    "binding",
    "inefficient",
    "above_roof",
];

impl From<&Row> for RowData {
    fn from(row: &Row) -> Self {
        let (work, bounds) = (&row.work, &row.bounds);
        let bytes = |level| work.bytes(level).map(|b| b.0);
        let bound = |level| bounds.level(level).map(preflop_units::Seconds::us);
        Self {
            name: row.name.clone(),
            op: row.op.clone(),
            family: row.family.clone(),
            phase: row.phase.clone(),
            dtype: row.dtype.clone(),
            count: row.count,
            launches: work.launches,
            flops: work.total_flops().0,
            flops_by_pipe: work.flops.iter().map(|(pipe, f)| (pipe.name(), f.0)).collect(),
            dram_bytes: bytes(Level::Dram),
            l2_bytes: bytes(Level::L2),
            l1_bytes: bytes(Level::L1),
            time_us: work.time.us(),
            share: row.share,
            compute_bound_us: bounds.compute.us(),
            dram_bound_us: bound(Level::Dram),
            l2_bound_us: bound(Level::L2),
            l1_bound_us: bound(Level::L1),
            launch_bound_us: bounds.launch.us(),
            host_launch_bound_us: bounds.host_launch.us(),
            intensity: work.intensity(Level::Dram),
            slowdown: bounds.slowdown(work.time),
            class: row.class_name(),
            binding: if work.is_unknown() { "unknown" } else { bounds.binding().name() },
            inefficient: bounds.inefficient(work.time).filter(|_| !work.is_unknown()),
            above_roof: bounds.passed(work.time).into_iter().map(super::Resource::name).collect(),
        }
    }
}

/// Six significant digits.
fn six(x: f64) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    let scale = 10f64.power(5.0 - x.abs().decimal_log().floor());
    if scale.is_finite() && scale > 0.0 { (x * scale).round() / scale } else { x }
}

impl RowData {
    /// With six significant digits, for pages, where size matters more than the seventh.
    #[must_use]
    pub fn rounded(mut self) -> Self {
        let numbers = [
            &mut self.count,
            &mut self.launches,
            &mut self.flops,
            &mut self.time_us,
            &mut self.share,
            &mut self.compute_bound_us,
            &mut self.launch_bound_us,
            &mut self.host_launch_bound_us,
        ];
        for x in numbers {
            *x = six(*x);
        }
        let maybes = [
            &mut self.dram_bytes,
            &mut self.l2_bytes,
            &mut self.l1_bytes,
            &mut self.dram_bound_us,
            &mut self.l2_bound_us,
            &mut self.l1_bound_us,
            &mut self.intensity,
            &mut self.slowdown,
            &mut self.inefficient,
        ];
        for x in maybes {
            *x = x.map(six);
        }
        self.flops_by_pipe.values_mut().for_each(|x| *x = six(*x));
        self
    }

    /// The cells of the CSV form, in the order of [`COLUMNS`].
    pub fn cells(&self) -> [String; 26] {
        let number = |x: f64| format!("{x}");
        let maybe = |x: Option<f64>| x.map_or(String::new(), number);
        let pipes: Vec<String> = self.flops_by_pipe.iter().map(|(pipe, f)| format!("{pipe}={f}")).collect();
        [
            self.name.clone(),
            self.op.clone(),
            self.family.clone(),
            self.phase.clone(),
            self.dtype.clone(),
            number(self.count),
            number(self.launches),
            number(self.flops),
            pipes.join(" "),
            maybe(self.dram_bytes),
            maybe(self.l2_bytes),
            maybe(self.l1_bytes),
            number(self.time_us),
            number(self.share),
            number(self.compute_bound_us),
            maybe(self.dram_bound_us),
            maybe(self.l2_bound_us),
            maybe(self.l1_bound_us),
            number(self.launch_bound_us),
            number(self.host_launch_bound_us),
            maybe(self.intensity),
            maybe(self.slowdown),
            self.class.to_string(),
            self.binding.to_string(),
            maybe(self.inefficient),
            self.above_roof.join(" "),
        ]
    }
}

/// A machine as scripts and pages read it.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
#[allow(missing_docs)]
pub struct MachineData {
    pub gpu: String,
    pub title: String,
    pub roofs: Vec<RoofData>,
    pub dram_bytes_per_s: Option<f64>,
    pub l2_bytes_per_s: Option<f64>,
    pub l1_bytes_per_s: Option<f64>,
    pub device_overhead_us: f64,
    pub host_overhead_us: f64,
}

/// A roof as scripts and pages read it.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
#[allow(missing_docs)]
pub struct RoofData {
    pub pipe: String,
    pub flops_per_s: f64,
}

impl From<&Machine> for MachineData {
    fn from(m: &Machine) -> Self {
        let rate = |level| m.bandwidth(level).map(|b| b.0);
        Self {
            gpu: m.name.clone(),
            title: m.title.clone(),
            roofs: m.roofs.iter().map(|r| RoofData { pipe: r.pipe.name(), flops_per_s: r.rate.0 }).collect(),
            dram_bytes_per_s: rate(Level::Dram),
            l2_bytes_per_s: rate(Level::L2),
            l1_bytes_per_s: rate(Level::L1),
            device_overhead_us: m.device_overhead.us(),
            host_overhead_us: m.host_overhead.us(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_digits_stay() {
        assert_eq!(six(123_456_789.0), 123_457_000.0);
        assert_eq!(six(0.0), 0.0);
        assert!((six(1.234_567_8e-7) - 1.234_57e-7).abs() < 1e-18);
    }
}
