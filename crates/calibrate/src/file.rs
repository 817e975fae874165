//! Writes a GPU file: measured figures beside those of the catalogue, or of the driver where the catalogue lacks the GPU.

use crate::report::Report;
use crate::stats::significant;
use preflop_core::Gpu;
use preflop_core::gpu::{FIELDS, GpuError, catalog, parse};
use std::fmt::Write as _;
use toml::{Table, Value};

/// When and with what the figures were measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Day, such as 2026-11-15.
    pub date: String,
    /// Version of this tool.
    pub version: String,
}

/// Key of our own source.
const MEASURED: &str = "calibrate";
/// Key of what the driver says.
const DRIVER: &str = "driver";
/// Key of what follows from both.
const DERIVED: &str = "derived";
/// Digits of a measured figure.
const DIGITS: i32 = 4;

/// A GPU file and what it builds on.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// The text.
    pub text: String,
    /// The same, read back.
    pub gpu: Gpu,
    /// The catalogue GPU whose datasheet figures stand in it.
    pub catalogue: Option<String>,
}

/// The catalogue's GPU of the name that the driver gives, if it has as many multiprocessors.
pub fn catalogue_gpu(report: &Report) -> Option<Gpu> {
    let short = report.facts.name.trim_start_matches("NVIDIA ").trim_start_matches("GeForce ");
    [report.facts.name.as_str(), short]
        .iter()
        .find_map(|name| catalog::find(name).ok())
        .filter(|gpu| gpu.sm_count == report.facts.sm_count)
}

/// Makes the file.
pub fn write(report: &Report, origin: &Origin) -> Result<Written, GpuError> {
    let known = catalogue_gpu(report);
    let base = known.as_ref().and_then(|gpu| {
        let (_, text) = catalog::FILES.iter().find(|(name, _)| *name == gpu.name)?;
        text.parse::<Table>().ok()
    });
    let catalogue = base.is_some().then(|| known.map(|g| g.name)).flatten();
    let mut table = base.unwrap_or_else(|| from_driver(report));
    // Names belong to the catalogue, and what was measured there was another board.
    table.remove("aliases");
    table.remove("measured");
    let facts = &report.facts;
    let driver = report.board.driver.clone().unwrap_or_else(|| "of unknown version".to_string());
    let cuda = format!("{}.{}", facts.cuda_version / 1000, facts.cuda_version % 1000 / 10);
    let source = format!(
        "measured by `preflop calibrate` {} on {}: {}, driver {driver}, CUDA {cuda}",
        origin.version, origin.date, facts.name
    );
    put(&mut table, "sources", MEASURED, Value::String(source));
    for figure in report.figures.iter().filter(|f| f.refused.is_none()) {
        let (q, s) = (figure.quantity, figure.summary);
        let value = significant(s.median, DIGITS);
        let note = format!("{}; {} samples within {:.1} %", q.what, s.count, 100.0 * s.spread);
        put(&mut table, "measured", q.key, entry(value, MEASURED, Some(&note)));
        if let Some((section, key)) = q.model.and_then(|m| m.rsplit_once('.')) {
            let has = section_of(&table, section).is_some_and(|t| t.contains_key(key));
            if !(q.fallback && has) {
                put(&mut table, section, key, entry(value, MEASURED, Some(q.what)));
            }
        }
    }
    let text = render(&table);
    let gpu = parse(&text, "the new GPU file")?;
    Ok(Written { text, gpu, catalogue })
}

fn entry(value: f64, source: &str, note: Option<&str>) -> Value {
    let number = if value.fract() == 0.0 && value.abs() < 1e15 {
        Value::Integer(value as i64)
    } else {
        Value::Float(value)
    };
    let mut table = Table::new();
    table.insert("value".into(), number);
    table.insert("source".into(), Value::String(source.into()));
    if let Some(note) = note {
        table.insert("note".into(), Value::String(note.into()));
    }
    Value::Table(table)
}

fn put(table: &mut Table, section: &str, key: &str, value: Value) {
    let mut at = table;
    for part in section.split('.').filter(|p| !p.is_empty()) {
        let inner = at.entry(part.to_string()).or_insert_with(|| Value::Table(Table::new()));
        match inner {
            Value::Table(next) => at = next,
            // A file whose section is no table was not read as a GPU file in the first place.
            _ => return,
        }
    }
    at.insert(key.to_string(), value);
}

fn section_of<'a>(table: &'a Table, section: &str) -> Option<&'a Table> {
    section.split('.').try_fold(table, |at, part| at.get(part)?.as_table())
}

/// What the driver and the measurements say about a GPU that the catalogue lacks.
fn from_driver(report: &Report) -> Table {
    let f = &report.facts;
    let mut t = Table::new();
    let name: String = f.name.to_lowercase().split_whitespace().collect::<Vec<_>>().join("-");
    put(&mut t, "", "name", Value::String(name));
    put(&mut t, "", "title", Value::String(f.name.clone()));
    put(&mut t, "", "vendor", Value::String("nvidia".into()));
    put(&mut t, "", "architecture", Value::String(architecture(f.capability).into()));
    put(&mut t, "", "compute_capability", Value::String(format!("{}.{}", f.capability.0, f.capability.1)));
    put(&mut t, "sources", DRIVER, Value::String("what the NVIDIA driver says about the GPU".into()));
    let derived = "worked out from what the driver says and what was measured";
    put(&mut t, "sources", DERIVED, Value::String(derived.into()));
    let mut said = |section: &str, key: &str, value: f64| {
        if value > 0.0 {
            put(&mut t, section, key, entry(value, DRIVER, None));
        }
    };
    let boost_mhz = f64::from(f.boost_khz) / 1e3;
    said("chip_limits", "sm_count", f64::from(f.sm_count));
    said("chip_limits", "boost_mhz", boost_mhz);
    said("chip_limits", "registers_per_sm", f64::from(f.registers_per_sm));
    said("chip_limits", "shared_memory_per_sm_kib", f64::from(f.shared_per_sm_bytes) / 1024.0);
    said("chip_limits", "shared_memory_per_block_kib", f64::from(f.shared_per_block_bytes) / 1024.0);
    said("chip_limits", "threads_per_sm", f64::from(f.threads_per_sm));
    said("chip_limits", "blocks_per_sm", f64::from(f.blocks_per_sm));
    said("chip_limits", "warp_size", f64::from(f.warp_size));
    said("memory", "capacity_gib", significant(f.memory_bytes as f64 / f64::from(1 << 30), 5));
    said("memory", "bus_bits", f64::from(f.bus_bits));
    said("memory", "l2_mib", f.l2_bytes as f64 / f64::from(1 << 20));
    said("power", "tdp_w", report.board.power_limit_w.unwrap_or(0.0));

    // Two transfers per clock of a double data rate bus. Drivers that no longer tell the clock leave the measured
    // copy, which holds about 0.9 of the datasheet on the GPUs of the catalogue.
    let bus = 2.0 * f64::from(f.memory_khz) * 1e3 * f64::from(f.bus_bits) / 8.0 / 1e9;
    let copy = report.value("dram_copy_gbs").unwrap_or(0.0);
    let (dram, why) = if bus > copy && bus < 2.0 * copy {
        (bus, "2 x memory clock x bus width")
    } else {
        (copy / 0.9, "measured copy / 0.9")
    };
    if dram > 0.0 {
        put(&mut t, "memory", "dram_gbs", entry(significant(dram, DIGITS), DERIVED, Some(why)));
    }
    let clock = report.value("fma_clock_mhz").unwrap_or(boost_mhz).max(1.0);
    let per_clock = |tflops: f64| tflops * 1e6 / (2.0 * f64::from(f.sm_count).max(1.0) * clock);
    let peak = |lanes: f64| significant(2.0 * f64::from(f.sm_count) * lanes * boost_mhz / 1e6, DIGITS);
    for (format, key) in
        [("fp32", "fp32_fma_tflops"), ("fp64", "fp64_fma_tflops"), ("fp16", "fp16_fma_tflops")]
    {
        if let Some(rate) = report.value(key) {
            let note =
                "measured multiply-adds per clock and SM, rounded up to a power of two, at the highest clock";
            let value = peak(power_of_two(per_clock(rate)));
            put(&mut t, "peak.plain", &format!("{format}_tflops"), entry(value, DERIVED, Some(note)));
        }
    }
    for format in ["tf32", "fp16", "bf16", "fp8"] {
        let mma = report.value(&format!("{format}_mma_tflops"));
        let product = report.value(&format!("{format}_matmul_tflops"));
        let tensor = mma.is_some() || (f.capability >= (8, 9) && format == "fp8");
        let Some(rate) = mma.into_iter().chain(product).reduce(f64::max).filter(|_| tensor) else { continue };
        let note =
            "faster of `mma` and cuBLAS per clock and SM, rounded up to a power of two, at the highest clock";
        let value = peak(power_of_two(per_clock(rate)));
        put(&mut t, "peak.tensor", &format!("{format}_tflops"), entry(value, DERIVED, Some(note)));
    }
    t
}

/// The next power of two, with 3 % leave for the clock: units come in powers of two.
fn power_of_two(lanes: f64) -> f64 {
    (lanes / 1.03).max(1e-3).log2().ceil().exp2()
}

/// The generation of a compute capability.
fn architecture(capability: (u32, u32)) -> &'static str {
    match capability {
        (3, _) => "kepler",
        (5, _) => "maxwell",
        (6, _) => "pascal",
        (7, 0 | 2) => "volta",
        (7, _) => "turing",
        (8, 9) => "ada",
        (8, _) => "ampere",
        (9, _) => "hopper",
        (10.., _) => "blackwell",
        _ => "other",
    }
}

const HEAD: [&str; 9] = [
    "name",
    "title",
    "vendor",
    "architecture",
    "chip",
    "compute_capability",
    "form",
    "release_year",
    "aliases",
];

/// The text of a GPU file, in the order in which people write them.
fn render(table: &Table) -> String {
    let mut out = String::new();
    for key in HEAD {
        if let Some(value) = table.get(key) {
            let _ = writeln!(out, "{key} = {}", inline(value));
        }
    }
    let mut sections = vec!["sources"];
    for field in FIELDS {
        if !field.section.is_empty() && sections.last() != Some(&field.section) {
            sections.push(field.section);
        }
    }
    for section in sections {
        let Some(inner) = section_of(table, section) else { continue };
        let rank = |key: &str| FIELDS.iter().position(|f| f.section == section && f.key == key);
        let mut keys: Vec<&String> = inner.iter().filter(|(_, v)| is_entry(v)).map(|(k, _)| k).collect();
        keys.sort_by_key(|k| rank(k));
        if keys.is_empty() {
            continue;
        }
        let _ = write!(out, "\n[{section}]\n");
        for key in keys {
            let _ = writeln!(out, "{key} = {}", inline(&inner[key]));
        }
    }
    out
}

/// Is this a figure or text, not a section?
fn is_entry(value: &Value) -> bool {
    value.as_table().is_none_or(|t| t.contains_key("value"))
}

/// A value on one line: figures as `{ value, source, note }` in this order.
fn inline(value: &Value) -> String {
    match value {
        Value::Table(t) => {
            let parts = ["value", "source", "note"].into_iter();
            let parts: Vec<String> = parts.filter_map(|k| Some(format!("{k} = {}", t.get(k)?))).collect();
            format!("{{ {} }}", parts.join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{h200_facts, lines};

    fn origin() -> Origin {
        Origin { date: "2026-11-15".into(), version: "0.1.0".into() }
    }

    #[test]
    fn a_known_gpu_keeps_its_datasheet_beside_what_was_measured() {
        let report = lines(&[
            ("dram_copy_gbs", &[4251.04, 4252.0, 4250.0]),
            ("bf16_matmul_tflops", &[771.0; 5]),
            ("l2_read_gbs", &[7000.0; 5]),
            ("l2_cycles", &[262.5; 5]),
        ])
        .finish(None)
        .unwrap();
        let written = write(&report, &origin()).unwrap();
        assert_eq!(written.catalogue.as_deref(), Some("h200"));
        let gpu = &written.gpu;
        let fact = |key: &str| gpu.facts.iter().find(|f| f.key == key).unwrap();
        assert_eq!(fact("memory.dram_gbs").value, 4800.0);
        assert_eq!(fact("sustained.dram_gbs").value, 4251.0);
        assert_eq!(fact("measured.dram_copy_gbs").value, 4251.0);
        assert_eq!(fact("latency.l2_cycles").value, 262.5);
        // The catalogue knows the L2 rate the way the model was fitted; ours stands beside it.
        assert_eq!(fact("memory.l2_gbs").value, 9770.0);
        assert_eq!(fact("measured.l2_read_gbs").value, 7000.0);
        let source = &fact("measured.dram_copy_gbs").source;
        for part in ["2026-11-15", "0.1.0", "580.1", "NVIDIA H200", "13.0"] {
            assert!(source.contains(part), "{source}");
        }
        // What was not measured stays as the catalogue has it.
        let own = catalog::find("h200").unwrap();
        assert_eq!(
            gpu.sustained.get(preflop_core::Dtype::Fp16),
            own.sustained.get(preflop_core::Dtype::Fp16)
        );
        assert_eq!(gpu.name, "h200");
        // And what another board measured is not passed off as this one's.
        assert_eq!(gpu.facts.iter().filter(|f| f.key.starts_with("measured.")).count(), 4);
    }

    #[test]
    fn every_catalogue_file_survives_rendering() {
        for (name, text) in catalog::FILES {
            let mut table: Table = text.parse().unwrap();
            let (a, b) = (parse(text, name).unwrap(), parse(&render(&table), name).unwrap());
            assert_eq!(a, b, "{name}");
            table.remove("memory");
            assert_ne!(render(&table), *text);
        }
    }

    #[test]
    fn an_unknown_gpu_is_described_from_the_driver() {
        let mut report = lines(&[
            ("fp32_fma_tflops", &[64.0; 5]),
            ("fp64_fma_tflops", &[32.5; 5]),
            ("bf16_mma_tflops", &[620.0; 5]),
            ("dram_copy_gbs", &[4250.0; 5]),
            ("fma_clock_mhz", &[1980.0; 5]),
        ])
        .finish(None)
        .unwrap();
        report.facts = crate::driver::DeviceFacts { name: "NVIDIA X900 \"new\"".into(), ..h200_facts() };
        let written = write(&report, &origin()).unwrap();
        assert_eq!(written.catalogue, None);
        let gpu = &written.gpu;
        assert_eq!(gpu.name, "nvidia-x900-\"new\"");
        // 64e12 / (2 x 132 x 1.98e9) = 122.4 -> 128 lanes: 2 x 132 x 128 x 1.98e9 = 66.9e12
        assert_eq!(gpu.plain.get(preflop_core::Dtype::Fp32).unwrap().tflops(), 66.91);
        // 620e12 / (2 x 132 x 1.98e9) = 1186 -> 2048: 1071e12
        assert_eq!(gpu.tensor.get(preflop_core::Dtype::Bf16).unwrap().tflops(), 1071.0);
        // 2 x 3201 MHz x 768 bytes = 4917 GB/s
        assert_eq!(gpu.dram.gbs(), 4917.0);
        assert_eq!(gpu.dram_sustained.gbs(), 4250.0);
        assert_eq!(gpu.tdp_w, 700.0);
        assert_eq!(gpu.architecture.name(), "hopper");
    }

    #[test]
    fn another_number_of_multiprocessors_is_another_gpu() {
        let mut report =
            lines(&[("dram_copy_gbs", &[4250.0; 5]), ("fp32_fma_tflops", &[64.0; 5])]).finish(None).unwrap();
        assert!(catalogue_gpu(&report).is_some());
        report.facts.sm_count = 16;
        assert!(catalogue_gpu(&report).is_none());
    }
}
