//! nvprof CSV: the trace (`nvprof --csv --print-gpu-trace`, one row per kernel or copy) and the summary (`nvprof --csv`, one row
//! per name). A header, a row of units, then the rows; lines of the tool's own talk start with `==`.

use crate::ImportError;
use crate::control::Meter;
use crate::error::short;
use crate::json_stream::PAUSE_EVERY;
use crate::ncu::is_talk;
use preflop_core::profile::{Device, Format, GpuEvent, GpuKind, NameId, Profile};
use std::io::Read;

/// Calls of one row of a summary that become events; more say nothing new.
const MOST_CALLS: u64 = 100_000;

/// Is this the header of either form?
pub fn is_header(line: &str) -> bool {
    let line = line.trim_start_matches('\u{feff}').replace('"', "");
    line.starts_with("Start,Duration,")
        || line.starts_with("Type,Time(%),")
        || line.starts_with("Time(%),Time,")
}

/// Reads either form.
pub fn read(mut reader: impl Read, name: &str, meter: &mut Meter) -> Result<Profile, ImportError> {
    let bytes = meter.read_all(&mut reader)?;
    let text = String::from_utf8_lossy(&bytes);
    let start = text.split_inclusive('\n').take_while(|l| is_talk(l)).map(str::len).sum::<usize>();
    let mut table = csv::ReaderBuilder::new().flexible(true).from_reader(&text.as_bytes()[start..]);
    let malformed = |detail: String, at: u64| ImportError::Malformed {
        file: name.to_string(),
        offset: start as u64 + at,
        detail,
    };
    let of_csv = |e: csv::Error| malformed(e.to_string(), e.position().map_or(0, csv::Position::byte));
    let header: Vec<String> = table.headers().map_err(of_csv)?.iter().map(str::to_string).collect();
    let mut records = table.records();
    let units = match records.next() {
        Some(units) => units.map_err(of_csv)?,
        None => {
            return Err(ImportError::Truncated {
                file: name.to_string(),
                what: "it ends after its header".into(),
            });
        }
    };
    let columns = Columns { header: &header, units };
    let mut profile = Profile::new(name, Format::Nvprof);
    let mut clock = 0;
    for (row, record) in records.enumerate() {
        let record = record.map_err(of_csv)?;
        profile.reading.events += 1;
        if (row as u64).is_multiple_of(PAUSE_EVERY) {
            meter.check(&profile)?;
        }
        let at = record.position().map_or(0, csv::Position::byte);
        let read = if columns.at("Start").is_some() {
            columns.trace(&record, &mut profile)
        } else {
            columns.summary(&record, &mut profile, &mut clock)
        };
        match read {
            Ok(kept) => profile.reading.kept += u64::from(kept),
            Err(Problem::Unit(unit)) => {
                return Err(malformed(format!("`{}` is no unit we know", short(&unit)), at));
            }
            Err(Problem::Row(what)) => {
                profile.reading.unreadable += 1;
                profile.reading.first_unreadable.get_or_insert(what);
            }
        }
    }
    if profile.gpu_events.is_empty() {
        let what = "it holds no kernel".to_string();
        return Err(ImportError::Truncated { file: name.to_string(), what });
    }
    Ok(profile)
}

/// What can be wrong with a row.
enum Problem {
    /// Its unit: then all rows are wrong.
    Unit(String),
    /// This row alone.
    Row(String),
}

/// The header with the units under it.
struct Columns<'a> {
    header: &'a [String],
    units: csv::StringRecord,
}

/// Nanoseconds of a unit.
fn nanoseconds(unit: &str) -> Option<f64> {
    Some(match unit {
        "s" => 1e9,
        "ms" => 1e6,
        "us" => 1e3,
        "ns" => 1.0,
        _ => return None,
    })
}

/// Bytes of a unit; nvprof counts in powers of two.
fn bytes(unit: &str) -> Option<f64> {
    Some(match unit {
        "B" => 1.0,
        "KB" => 1024.0,
        "MB" => 1_048_576.0,
        "GB" => 1_073_741_824.0,
        _ => return None,
    })
}

impl Columns<'_> {
    fn at(&self, name: &str) -> Option<usize> {
        self.header.iter().position(|h| h == name)
    }

    fn text<'r>(&self, record: &'r csv::StringRecord, name: &str) -> Option<&'r str> {
        record.get(self.at(name)?).map(str::trim).filter(|t| !t.is_empty() && *t != "-")
    }

    fn number(&self, record: &csv::StringRecord, name: &str) -> Option<f64> {
        self.text(record, name)?.parse().ok().filter(|x: &f64| x.is_finite() && *x >= 0.0)
    }

    /// A figure in the base unit of its kind.
    fn measured(
        &self,
        record: &csv::StringRecord,
        name: &str,
        factor: fn(&str) -> Option<f64>,
    ) -> Result<Option<f64>, Problem> {
        let Some(number) = self.number(record, name) else { return Ok(None) };
        let unit = self.at(name).and_then(|i| self.units.get(i)).unwrap_or_default();
        factor(unit).map(|f| Some(number * f)).ok_or_else(|| Problem::Unit(unit.to_string()))
    }

    fn trace(&self, record: &csv::StringRecord, profile: &mut Profile) -> Result<bool, Problem> {
        let row = |what: &str| Problem::Row(format!("a row without {what}"));
        let name = self.text(record, "Name").ok_or_else(|| row("a name"))?;
        let start = self.measured(record, "Start", nanoseconds)?.ok_or_else(|| row("a start"))?;
        let dur = self.measured(record, "Duration", nanoseconds)?.ok_or_else(|| row("a duration"))?;
        let side = |name: &str| self.number(record, name).map_or(1, |x| x.max(1.0) as u64);
        let size = |what: &str| {
            let [x, y, z] = ["X", "Y", "Z"].map(|axis| side(&format!("{what} {axis}")));
            x.saturating_mul(y).saturating_mul(z)
        };
        let blocks = self.number(record, "Grid X").map_or(0, |_| size("Grid"));
        let threads = self.number(record, "Block X").map_or(0, |_| size("Block"));
        let shared = self.measured(record, "Static SMem", bytes)?.unwrap_or(0.0)
            + self.measured(record, "Dynamic SMem", bytes)?.unwrap_or(0.0);
        let moved = self.measured(record, "Size", bytes)?.unwrap_or(0.0);
        let registers = self.number(record, "Registers Per Thread");
        let device = self.device(record, profile);
        let stream = self.number(record, "Stream").unwrap_or(0.0) as i32;
        let (kind, name) = kind_of(name);
        let name = profile.names.add(name);
        profile.gpu_events.push(GpuEvent {
            start_ns: start as i64,
            dur_ns: dur as i64,
            kind,
            device,
            stream,
            blocks,
            threads: u32::try_from(threads).unwrap_or(0),
            registers: registers.unwrap_or(0.0) as u32,
            shared_bytes: shared as u32,
            has_resources: registers.is_some(),
            bytes: moved as u64,
            ..event(name)
        });
        Ok(true)
    }

    /// A row of the summary: as many events of the mean time, one after the other.
    fn summary(
        &self,
        record: &csv::StringRecord,
        profile: &mut Profile,
        clock: &mut i64,
    ) -> Result<bool, Problem> {
        // Newer summaries list calls of the host too.
        if self.text(record, "Type").is_some_and(|t| t != "GPU activities") {
            return Ok(false);
        }
        let row = |what: &str| Problem::Row(format!("a row without {what}"));
        let name = self.text(record, "Name").ok_or_else(|| row("a name"))?;
        let mean = self.measured(record, "Avg", nanoseconds)?.ok_or_else(|| row("a mean time"))?;
        let calls = self.number(record, "Calls").ok_or_else(|| row("calls"))? as u64;
        let (kind, name) = kind_of(name);
        let name = profile.names.add(name);
        for _ in 0..calls.min(MOST_CALLS) {
            profile.gpu_events.push(GpuEvent { start_ns: *clock, dur_ns: mean as i64, kind, ..event(name) });
            *clock = clock.saturating_add(mean as i64);
        }
        Ok(true)
    }

    /// `Tesla V100-SXM2-16GB (0)`.
    fn device(&self, record: &csv::StringRecord, profile: &mut Profile) -> i32 {
        let Some(text) = self.text(record, "Device") else { return 0 };
        let (name, number) = text.rsplit_once('(').unwrap_or((text, "0)"));
        let id: i32 = number.trim_end_matches(')').trim().parse().unwrap_or(0);
        if profile.devices.iter().all(|d| d.id != i64::from(id)) {
            let name = name.trim().to_string();
            profile.devices.push(Device { id: i64::from(id), name, ..Device::default() });
        }
        id
    }
}

fn event(name: NameId) -> GpuEvent {
    GpuEvent {
        start_ns: 0,
        dur_ns: 0,
        name,
        kind: GpuKind::Kernel,
        graph: false,
        device: 0,
        stream: 0,
        correlation: 0,
        external: 0,
        blocks: 0,
        threads: 0,
        registers: 0,
        shared_bytes: 0,
        has_resources: false,
        bytes: 0,
    }
}

/// What a row's name says it is; kernels carry their launch number in brackets.
fn kind_of(name: &str) -> (GpuKind, &str) {
    match name {
        "[CUDA memcpy HtoD]" | "[CUDA memcpy DtoH]" => (GpuKind::CopyHost, name),
        "[CUDA memcpy DtoD]" => (GpuKind::CopyDevice, name),
        "[CUDA memcpy PtoP]" => (GpuKind::CopyPeer, name),
        "[CUDA memset]" => (GpuKind::Memset, name),
        _ => {
            let number =
                |n: &str| n.ends_with(']') && n.trim_end_matches(']').bytes().all(|b| b.is_ascii_digit());
            let kernel = name.rsplit_once(" [").filter(|(_, n)| number(n)).map_or(name, |(kernel, _)| kernel);
            (GpuKind::Kernel, kernel)
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::import_bytes;
    use preflop_core::profile::{Format, GpuKind};

    const TRACE: &str = r#"==4711== NVPROF is profiling process 4711, command: python train.py
==4711== Profiling application: python train.py
==4711== Profiling result:
"Start","Duration","Grid X","Grid Y","Grid Z","Block X","Block Y","Block Z","Registers Per Thread","Static SMem","Dynamic SMem","Size","Throughput","SrcMemType","DstMemType","Device","Context","Stream","Name"
s,us,,,,,,,,KB,B,MB,GB/s,,,,,,
0.250000,12.500000,,,,,,,,,,9.187500,11.500000,"Pageable","Device","Tesla V100-SXM2-16GB (0)","1","7","[CUDA memcpy HtoD]"
0.250100,101.250000,8,49,1,256,1,1,122,16.000000,0,,,,,"Tesla V100-SXM2-16GB (0)","1","7","volta_scudnn_128x64_relu_interior_nn_v1 [421]"
"#;

    #[test]
    fn a_trace_gives_kernels_and_copies() {
        let p = import_bytes(TRACE.as_bytes(), "trace.csv").unwrap();
        assert_eq!((p.format, p.gpu_events.len()), (Format::Nvprof, 2));
        let (copy, kernel) = (&p.gpu_events.at(0), &p.gpu_events.at(1));
        assert_eq!((copy.kind, copy.bytes), (GpuKind::CopyHost, 9_633_792));
        assert_eq!(p.names.text(kernel.name), "volta_scudnn_128x64_relu_interior_nn_v1");
        assert_eq!((kernel.start_ns, kernel.dur_ns), (250_100_000, 101_250));
        assert_eq!(
            (kernel.blocks, kernel.threads, kernel.registers, kernel.shared_bytes),
            (392, 256, 122, 16_384)
        );
        assert_eq!(p.devices[0].name, "Tesla V100-SXM2-16GB");
    }

    #[test]
    fn a_summary_gives_calls_of_the_mean_time() {
        let text = "\"Type\",\"Time(%)\",\"Time\",\"Calls\",\"Avg\",\"Min\",\"Max\",\"Name\"\n,%,ms,,us,us,us,\n\
             \"GPU activities\",60.0,0.3,3,100.0,90.0,110.0,\"volta_sgemm_128x64_nn\"\n\
             \"API calls\",40.0,0.2,3,66.0,60.0,70.0,\"cudaLaunchKernel\"\n";
        let p = import_bytes(text.as_bytes(), "summary.csv").unwrap();
        assert_eq!(p.gpu_events.len(), 3, "the host's calls are no kernels");
        assert_eq!(p.gpu_events.iter().map(|e| e.dur_ns).sum::<i64>(), 300_000);
        assert_eq!(p.gpu_events.at(2).start_ns, 200_000);
    }

    #[test]
    fn odd_files_get_one_line() {
        let odd = TRACE.replace("s,us,,", "s,fortnights,,");
        let error = import_bytes(odd.as_bytes(), "odd.csv").unwrap_err().to_string();
        assert!(error.contains("`fortnights`"), "{error}");
        let header = TRACE.lines().take(4).collect::<Vec<_>>().join("\n");
        assert!(import_bytes(header.as_bytes(), "cut.csv").is_err());
    }
}
