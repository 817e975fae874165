//! Nsight Compute CSV: the long form (one row per metric, `--csv`) and the wide form (one row per kernel,
//! `--csv --page raw`, with a row of units).

use crate::ImportError;
use crate::control::Meter;
use crate::error::short;
use crate::json_stream::PAUSE_EVERY;
use crate::ncu_number::{Decimals, Evidence, unit_factor};
use preflop_core::profile::{Counters, Device, Format, GpuEvent, GpuKind, NameId, Profile};
use std::collections::HashMap;
use std::io::Read;

/// A line of the tool's own talk, which stands before the header.
pub fn is_talk(line: &str) -> bool {
    line.starts_with("==") || line.trim().is_empty()
}

/// Reads either form.
pub fn read(mut reader: impl Read, name: &str, meter: &mut Meter) -> Result<Profile, ImportError> {
    let bytes = meter.read_all(&mut reader)?;
    let text = String::from_utf8_lossy(&bytes);
    let start = text.split_inclusive('\n').take_while(|l| is_talk(l)).map(str::len).sum::<usize>();
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
    let (metric, value) = (column("Metric Name"), column("Metric Value"));
    let is_number = |i: usize| Some(i) == value || (value.is_none() && header[i].contains("__"));
    let decimals = decimals(body, &header, &is_number).map_err(|what| ImportError::Malformed {
        file: name.to_string(),
        offset: start as u64,
        detail: what.to_string(),
    })?;
    let mut kernels = Kernels {
        header: &header,
        profile: &mut profile,
        order: Vec::new(),
        of_id: HashMap::new(),
        decimals,
        unknown_time: None,
    };
    let mut units: Option<csv::StringRecord> = None;
    for (row, record) in table.records().enumerate() {
        let record = record.map_err(malformed)?;
        kernels.profile.reading.events += 1;
        if (row as u64).is_multiple_of(PAUSE_EVERY) {
            meter.check(kernels.profile)?;
        }
        match (metric, value) {
            (Some(m), Some(v)) => kernels.long(&record, m, v),
            // The first row of the wide form holds units, and no number of a kernel.
            _ if row == 0 && record.get(0).is_none_or(|id| id.trim().is_empty()) => units = Some(record),
            _ => kernels.wide(&record, units.as_ref()),
        }
    }
    if let Some(unit) = kernels.unknown_time {
        let detail = format!("times are in `{}`, which is no unit we know", short(&unit));
        return Err(ImportError::Malformed { file: name.to_string(), offset: start as u64, detail });
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

/// The decimal sign of a file, by all of its numbers.
fn decimals(
    body: &str,
    header: &[String],
    is_number: &dyn Fn(usize) -> bool,
) -> Result<Decimals, &'static str> {
    let mut evidence = Evidence::default();
    let mut table = csv::ReaderBuilder::new().flexible(true).has_headers(true).from_reader(body.as_bytes());
    let columns: Vec<usize> = (0..header.len()).filter(|&i| is_number(i)).collect();
    let mut record = csv::StringRecord::new();
    // What cannot be read is told by whoever reads it for its contents.
    while table.read_record(&mut record).unwrap_or(false) {
        columns.iter().filter_map(|&i| record.get(i)).for_each(|text| evidence.look(text));
    }
    evidence.decimals()
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
    decimals: Decimals,
    /// A unit of time that is not known.
    unknown_time: Option<String>,
}

/// The plain unit, for metrics whose name is only a label.
fn plain_unit(unit: &str) -> &str {
    match unit.trim().trim_start_matches(['K', 'M', 'G', 'T']) {
        "byte/s" | "byte/second" => "byte/s",
        _ => unit.trim(),
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
        let Some(value) = self.decimals.number(text).filter(|_| !metric.is_empty()) else { return };
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
            if let Some(value) = record.get(i).and_then(|text| self.decimals.number(text)) {
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
        let is_time = matches!(metric, "Duration" | "gpu__time_duration.sum" | "gpu__time_duration.avg");
        // A value in a unit that we do not know is no value.
        let Some(factor) = unit_factor(unit) else {
            if is_time {
                self.unknown_time = Some(unit.to_owned());
            }
            self.profile.reading.unreadable += 1;
            let said = || format!("`{}`: the unit `{}` is not known", short(metric), short(unit));
            self.profile.reading.first_unreadable.get_or_insert_with(said);
            return;
        };
        let value = value * factor;
        let kernel = &mut self.order[at];
        match metric {
            _ if is_time => {
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
                now = now.saturating_add(kernel.dur_ns);
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
    use crate::control::Control;

    fn parsed(text: &str) -> Result<Profile, ImportError> {
        read(text.as_bytes(), "t", &mut Meter::new(&Control::default(), "t"))
    }

    #[test]
    fn long_form() {
        let text = "==PROF== Connected\n\"ID\",\"Kernel Name\",\"Block Size\",\"Grid Size\",\"Device\",\"CC\",\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n\
            \"0\",\"copy\",\"(256, 1, 1)\",\"(1024, 1, 1)\",\"0\",\"7.5\",\"SOL\",\"Duration\",\"ns\",\"21,058,944\"\n\
            \"0\",\"copy\",\"(256, 1, 1)\",\"(1024, 1, 1)\",\"0\",\"7.5\",\"Launch\",\"Registers Per Thread\",\"register/thread\",\"32\"\n";
        let p = parsed(text).unwrap();
        let e = p.gpu_events.at(0);
        assert_eq!((e.dur_ns, e.blocks, e.threads, e.registers), (21_058_944, 1024, 256, 32));
    }

    #[test]
    fn wide_form() {
        let text = "\"ID\",\"Kernel Name\",\"Block Size\",\"Grid Size\",\"Device\",\"CC\",\"gpu__time_duration.sum\",\"dram__bytes.sum\",\"launch__registers_per_thread\"\n\
            \"\",\"\",\"\",\"\",\"\",\"\",\"usecond\",\"Mbyte\",\"register/thread\"\n\
            \"0\",\"k1\",\"(128, 1, 1)\",\"(10, 1, 1)\",\"0\",\"9.0\",\"1.5\",\"2\",\"40\"\n\
            \"1\",\"k2\",\"(128, 1, 1)\",\"(10, 1, 1)\",\"0\",\"9.0\",\"2.5\",\"3\",\"40\"\n";
        let p = parsed(text).unwrap();
        assert_eq!(
            p.gpu_events.iter().map(|e| (e.start_ns, e.dur_ns)).collect::<Vec<_>>(),
            vec![(0, 1500), (1500, 2500)]
        );
        let counted = preflop_core::profile::stalls::read(&p.counters[1], &p.names);
        assert_eq!(counted.dram_bytes, Some(3e6));
    }

    #[test]
    fn a_time_in_an_unknown_unit_is_refused() {
        let text = |unit: &str, value: &str| {
            format!(
                "\"ID\",\"Kernel Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n\
                \"0\",\"copy\",\"Duration\",\"{unit}\",\"{value}\"\n\"0\",\"copy\",\"Mood\",\"furlong\",\"3\"\n"
            )
        };
        let said = parsed(&text("fortnight", "3")).unwrap_err().to_string();
        assert!(said.ends_with("times are in `fortnight`, which is no unit we know"), "{said}");
        let p = parsed(&text("usecond", "1,5")).unwrap();
        assert_eq!(p.gpu_events.at(0).dur_ns, 1500);
        assert_eq!(p.reading.first_unreadable.as_deref(), Some("`Mood`: the unit `furlong` is not known"));
    }
}
