//! Nsight Compute CSV: the long form (one row per metric, `--csv`) and the wide form (one row per kernel,
//! `--csv --page raw`, with a row of units).

use crate::ImportError;
use crate::open::read_error;
use preflop_core::profile::{Counters, Device, Format, GpuEvent, GpuKind, NameId, Profile};
use std::collections::HashMap;
use std::io::Read;

/// Reads either form.
pub fn read(mut reader: impl Read, name: &str) -> Result<Profile, ImportError> {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).map_err(|e| read_error(e, name, 0))?;
    let text = String::from_utf8_lossy(&bytes);
    // The tool's own talk stands before the header.
    let start = text
        .split_inclusive('\n')
        .take_while(|l| l.starts_with("==") || l.trim().is_empty())
        .map(str::len)
        .sum::<usize>();
    let body = text[start..].trim_start_matches('\u{feff}');
    let mut table = csv::ReaderBuilder::new().flexible(true).has_headers(true).from_reader(body.as_bytes());
    let malformed = |e: csv::Error| ImportError::Malformed {
        file: name.to_string(),
        offset: start as u64 + e.position().map_or(0, csv::Position::byte),
        detail: e.to_string(),
    };
    if body.bytes().filter(|b| *b == b'"').count() % 2 == 1 {
        let what = "it ends inside a quoted field".to_string();
        return Err(ImportError::Truncated { file: name.to_string(), what });
    }
    let header: Vec<String> = table.headers().map_err(malformed)?.iter().map(str::to_string).collect();
    let mut profile = Profile::new(name, Format::NsightCompute);
    if matches!(text, std::borrow::Cow::Owned(_)) {
        profile.reading.mended += 1;
    }
    let column = |wanted: &str| header.iter().position(|h| h == wanted);
    let mut kernels =
        Kernels { header: &header, profile: &mut profile, order: Vec::new(), of_id: HashMap::new() };
    let (metric, value) = (column("Metric Name"), column("Metric Value"));
    let mut units: Option<csv::StringRecord> = None;
    for (row, record) in table.records().enumerate() {
        let record = record.map_err(malformed)?;
        kernels.profile.reading.events += 1;
        match (metric, value) {
            (Some(m), Some(v)) => kernels.long(&record, m, v),
            // The first row of the wide form holds units, and no number of a kernel.
            _ if row == 0 && record.get(0).is_none_or(|id| id.trim().is_empty()) => units = Some(record),
            _ => kernels.wide(&record, units.as_ref()),
        }
    }
    kernels.finish();
    if profile.gpu_events.is_empty() && profile.counters.is_empty() {
        return Err(ImportError::Truncated {
            file: name.to_string(),
            what: "no kernel has a complete row".to_string(),
        });
    }
    Ok(profile)
}

struct Kernel {
    name: NameId,
    dur_ns: i64,
    blocks: u64,
    threads: u32,
    device: i32,
    registers: Option<u32>,
    shared: u32,
    sm_count: Option<u32>,
    capability: Option<(u32, u32)>,
    metrics: Vec<(NameId, f64)>,
}

struct Kernels<'a> {
    header: &'a [String],
    profile: &'a mut Profile,
    order: Vec<Kernel>,
    of_id: HashMap<String, usize>,
}

/// A number with thousands separators.
fn number(text: &str) -> Option<f64> {
    let clean: String = text.chars().filter(|c| *c != ',' && !c.is_whitespace()).collect();
    clean.parse::<f64>().ok().filter(|x| x.is_finite())
}

/// The factor from a unit with an SI prefix to the plain one: `usecond` -> 1e-6 second, `Gbyte` -> 1e9 byte.
fn unit_factor(unit: &str) -> f64 {
    match unit.trim() {
        "ns" | "nsecond" | "nanosecond" => 1e-9,
        "us" | "usecond" | "microsecond" => 1e-6,
        "ms" | "msecond" | "millisecond" => 1e-3,
        "Kbyte" | "KB" | "Kbyte/s" | "Kbyte/block" | "Khz" | "KHz" => 1e3,
        "Mbyte" | "MB" | "Mbyte/s" | "Mhz" | "MHz" => 1e6,
        "Gbyte" | "GB" | "Gbyte/s" | "Ghz" | "GHz" => 1e9,
        "Tbyte" | "TB" | "Tbyte/s" => 1e12,
        _ => 1.0,
    }
}

/// The plain unit, for metrics whose name is only a label.
fn plain_unit(unit: &str) -> &str {
    match unit.trim() {
        "Kbyte/s" | "Mbyte/s" | "Gbyte/s" | "Tbyte/s" => "byte/s",
        other => other,
    }
}

fn product(text: &str) -> u64 {
    text.trim_matches(['(', ')', ' '])
        .split(',')
        .map(|p| p.trim().parse::<u64>().unwrap_or(0))
        .fold(1, u64::saturating_mul)
}

impl Kernels<'_> {
    /// The kernel of a row, by its number; `None` where the row is cut short.
    fn kernel(&mut self, record: &csv::StringRecord) -> Option<usize> {
        let get = |wanted: &str| {
            self.header.iter().position(|h| h == wanted).and_then(|i| record.get(i)).filter(|v| !v.is_empty())
        };
        let (id, name) = (get("ID")?, get("Kernel Name")?);
        if id.parse::<u64>().is_err() {
            return None;
        }
        if let Some(&at) = self.of_id.get(id) {
            return Some(at);
        }
        let capability = get("CC").and_then(|cc| {
            let (major, minor) = cc.split_once('.')?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        });
        self.order.push(Kernel {
            name: self.profile.names.add(name),
            dur_ns: 0,
            blocks: get("Grid Size").map_or(0, product),
            threads: get("Block Size").map_or(0, product).min(1 << 20) as u32,
            device: get("Device").and_then(|d| d.parse().ok()).unwrap_or(0),
            registers: None,
            shared: 0,
            sm_count: None,
            capability,
            metrics: Vec::new(),
        });
        self.of_id.insert(id.to_string(), self.order.len() - 1);
        Some(self.order.len() - 1)
    }

    fn long(&mut self, record: &csv::StringRecord, metric: usize, value: usize) {
        let Some(at) = self.kernel(record) else {
            self.unreadable(record);
            return;
        };
        self.profile.reading.kept += 1;
        let (Some(metric), Some(text)) = (record.get(metric), record.get(value)) else { return };
        // Rows of rules have no metric; some metrics are words.
        let Some(value) = number(text).filter(|_| !metric.is_empty()) else { return };
        let unit =
            self.header.iter().position(|h| h == "Metric Unit").and_then(|i| record.get(i)).unwrap_or("");
        self.metric(at, metric, unit, value);
    }

    fn wide(&mut self, record: &csv::StringRecord, units: Option<&csv::StringRecord>) {
        let Some(at) = self.kernel(record) else {
            self.unreadable(record);
            return;
        };
        self.profile.reading.kept += 1;
        for (i, metric) in self.header.to_vec().iter().enumerate() {
            // Metric names have the unit's place marked by underscores; the others describe the kernel.
            if !metric.contains("__") {
                continue;
            }
            if let Some(value) = record.get(i).and_then(number) {
                let unit = units.and_then(|u| u.get(i)).unwrap_or("");
                self.metric(at, metric, unit, value);
            }
        }
    }

    fn unreadable(&mut self, record: &csv::StringRecord) {
        self.profile.reading.unreadable += 1;
        if self.profile.reading.first_unreadable.is_none() {
            let line = record.position().map_or(0, csv::Position::line);
            self.profile.reading.first_unreadable = Some(format!("line {line}: no kernel number or name"));
        }
    }

    fn metric(&mut self, at: usize, metric: &str, unit: &str, value: f64) {
        let value = value * unit_factor(unit);
        let kernel = &mut self.order[at];
        match metric {
            "Duration" | "gpu__time_duration.sum" | "gpu__time_duration.avg" => {
                // Without a unit row the raw page is in nanoseconds.
                let seconds = if unit.is_empty() { value * 1e-9 } else { value };
                kernel.dur_ns = (seconds * 1e9).clamp(0.0, 9e15).round() as i64;
            }
            "Registers Per Thread" | "launch__registers_per_thread" => kernel.registers = Some(value as u32),
            "Static Shared Memory Per Block"
            | "Dynamic Shared Memory Per Block"
            | "launch__shared_mem_per_block_static"
            | "launch__shared_mem_per_block_dynamic" => {
                kernel.shared = kernel.shared.saturating_add(value.max(0.0) as u32);
            }
            "# SMs" | "device__attribute_multiprocessor_count" => kernel.sm_count = Some(value as u32),
            _ => {}
        }
        let label = if metric.contains("__") {
            metric.to_string()
        } else {
            format!("{metric} [{}]", plain_unit(unit))
        };
        let name = self.profile.names.add(&label);
        if !kernel.metrics.iter().any(|(n, _)| *n == name) {
            kernel.metrics.push((name, value));
        }
    }

    /// Kernels were run one by one: they are laid end to end.
    fn finish(self) {
        let mut now = 0_i64;
        for kernel in self.order {
            if kernel.dur_ns > 0 {
                self.profile.gpu_events.push(GpuEvent {
                    start_ns: now,
                    dur_ns: kernel.dur_ns,
                    name: kernel.name,
                    kind: GpuKind::Kernel,
                    graph: false,
                    device: kernel.device,
                    stream: 0,
                    correlation: 0,
                    external: 0,
                    blocks: kernel.blocks,
                    threads: kernel.threads,
                    registers: kernel.registers.unwrap_or(0),
                    shared_bytes: kernel.shared,
                    has_resources: kernel.registers.is_some(),
                    bytes: 0,
                });
                now += kernel.dur_ns;
            }
            if self.profile.devices.is_empty() && kernel.sm_count.is_some() {
                self.profile.devices.push(Device {
                    sm_count: kernel.sm_count,
                    capability: kernel.capability,
                    ..Device::default()
                });
            }
            self.profile.counters.push(Counters {
                kernel: kernel.name,
                dur_ns: kernel.dur_ns,
                metrics: kernel.metrics,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_form() {
        let text = "==PROF== Connected\n\"ID\",\"Kernel Name\",\"Block Size\",\"Grid Size\",\"Device\",\"CC\",\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n\
            \"0\",\"copy\",\"(256, 1, 1)\",\"(1024, 1, 1)\",\"0\",\"7.5\",\"SOL\",\"Duration\",\"ns\",\"21,058,944\"\n\
            \"0\",\"copy\",\"(256, 1, 1)\",\"(1024, 1, 1)\",\"0\",\"7.5\",\"Launch\",\"Registers Per Thread\",\"register/thread\",\"32\"\n";
        let p = read(text.as_bytes(), "t").unwrap();
        let e = p.gpu_events[0];
        assert_eq!((e.dur_ns, e.blocks, e.threads, e.registers), (21_058_944, 1024, 256, 32));
    }

    #[test]
    fn wide_form() {
        let text = "\"ID\",\"Kernel Name\",\"Block Size\",\"Grid Size\",\"Device\",\"CC\",\"gpu__time_duration.sum\",\"dram__bytes.sum\",\"launch__registers_per_thread\"\n\
            \"\",\"\",\"\",\"\",\"\",\"\",\"usecond\",\"Mbyte\",\"register/thread\"\n\
            \"0\",\"k1\",\"(128, 1, 1)\",\"(10, 1, 1)\",\"0\",\"9.0\",\"1.5\",\"2\",\"40\"\n\
            \"1\",\"k2\",\"(128, 1, 1)\",\"(10, 1, 1)\",\"0\",\"9.0\",\"2.5\",\"3\",\"40\"\n";
        let p = read(text.as_bytes(), "t").unwrap();
        assert_eq!(
            p.gpu_events.iter().map(|e| (e.start_ns, e.dur_ns)).collect::<Vec<_>>(),
            vec![(0, 1500), (1500, 2500)]
        );
        let counted = preflop_core::profile::stalls::read(&p.counters[1], &p.names);
        assert_eq!(counted.dram_bytes, Some(3e6));
    }
}
