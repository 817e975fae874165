//! Nsight Systems exports (`nsys export --type sqlite`, schemas 3.20 to 3.25).
//!
//! Operators come from NVTX ranges as `torch.autograd.profiler.emit_nvtx` writes them: `aten::mm, op_id = 3` or
//! `aten::mm, seq = 3, sizes = [[4, 5], [5, 6]]`.

use crate::ImportError;
use crate::control::Meter;
use crate::error::short;
use crate::json_stream::PAUSE_EVERY;
use crate::kineto::{call_kind, copy_kind};
use crate::open::{Database, whole_database};
use preflop_core::profile::{
    Device, Format, GpuEvent, GpuKind, HostCall, HostOp, Mark, NameId, Profile, Table,
};
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags, Row};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

/// Bytes of the longest value: names of kernels are some kilobytes.
const MAX_VALUE: i32 = 64 << 20;
/// Instructions of SQLite between two looks at the flag that ends reading.
const STEPS: i32 = 10_000;

/// Memory of one record, the largest kind.
const RECORD_BYTES: u64 = size_of::<GpuEvent>() as u64 + size_of::<&str>() as u64;

type Strings = HashMap<i64, NameId>;

/// An open export.
struct Export<'a> {
    db: Connection,
    name: &'a str,
    meter: RefCell<&'a mut Meter>,
}

/// Opens a database read-only.
///
/// It may come from anywhere: nothing in it is run, no value may be larger than a name can be, and reading ends when it is
/// told to.
pub fn connect(database: Database, name: &str, meter: &mut Meter) -> Result<Connection, ImportError> {
    let mut db = opened(database, name, meter)?;
    let failed = |e: rusqlite::Error| ImportError::NotAProfile {
        file: name.to_string(),
        what: format!("it looks like SQLite but {}", short(&e.to_string())),
    };
    db.set_limit(Limit::SQLITE_LIMIT_LENGTH, MAX_VALUE).map_err(failed)?;
    db.pragma_update(None, "trusted_schema", false).map_err(failed)?;
    db.pragma_update(None, "cell_size_check", true).map_err(failed)?;
    let stop = meter.stop();
    db.progress_handler(STEPS, Some(move || stop.load(Ordering::Relaxed))).map_err(failed)?;
    Ok(db)
}

fn opened(database: Database, name: &str, meter: &mut Meter) -> Result<Connection, ImportError> {
    let failed = |e: rusqlite::Error| ImportError::NotAProfile {
        file: name.to_string(),
        what: format!("it looks like SQLite but {}", short(&e.to_string())),
    };
    match database {
        Database::Path(path) => {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            Connection::open_with_flags(path, flags).map_err(failed)
        }
        Database::Stream(mut reader) => {
            let bytes = meter.read_all(&mut reader)?;
            whole_database(&bytes, bytes.len() as u64, name)?;
            let mut db = Connection::open_in_memory().map_err(failed)?;
            let length = bytes.len();
            db.deserialize_read_exact("main", bytes.as_slice(), length, true).map_err(failed)?;
            Ok(db)
        }
    }
}

/// Reads an export.
pub fn read(database: Database, name: &str, meter: &mut Meter) -> Result<Profile, ImportError> {
    let db = connect(database, name, meter)?;
    let export = Export { db, name, meter: RefCell::new(meter) };
    let tables = export.tables()?;
    if !tables.iter().any(|t| t.starts_with("CUPTI_ACTIVITY_KIND_") || t == "NVTX_EVENTS") {
        return Err(ImportError::NotAProfile {
            file: name.to_string(),
            what: "an SQLite file without Nsight Systems tables".to_string(),
        });
    }
    let mut profile = Profile::new(name, Format::NsightSystems);
    let strings = export.strings(&tables, &mut profile)?;
    export.kernels(&tables, &strings, &mut profile)?;
    export.copies(&tables, &mut profile)?;
    export.calls(&tables, &strings, &mut profile)?;
    export.ranges(&tables, &strings, &mut profile)?;
    export.devices(&tables, &mut profile)?;
    if profile.reading.kept == 0 {
        return Err(ImportError::NotAProfile {
            file: name.to_string(),
            what: "an Nsight Systems export without GPU work or NVTX ranges".to_string(),
        });
    }
    Ok(profile)
}

/// A process and a number of it, as one number: correlation numbers are unique only within a process.
fn key(global: i64, correlation: i64) -> i64 {
    if correlation == 0 { 0 } else { ((global >> 24) << 32) ^ correlation }
}

impl Export<'_> {
    fn failed(&self, table: &str) -> impl Fn(rusqlite::Error) -> ImportError + '_ {
        let (file, table) = (self.name.to_string(), table.to_string());
        move |e| ImportError::Table {
            file: file.clone(),
            table: table.clone(),
            detail: short(&e.to_string()),
        }
    }

    fn tables(&self) -> Result<HashSet<String>, ImportError> {
        let failed = self.failed("sqlite_master");
        let mut query =
            self.db.prepare("SELECT name FROM sqlite_master WHERE type = 'table'").map_err(&failed)?;
        let names = query.query_map([], |r| r.get::<_, String>(0)).map_err(&failed)?;
        names.collect::<Result<_, _>>().map_err(&failed)
    }

    fn columns(&self, table: &str) -> Result<HashSet<String>, ImportError> {
        let failed = self.failed(table);
        let mut query = self.db.prepare(&format!("PRAGMA table_info({table})")).map_err(&failed)?;
        let names = query.query_map([], |r| r.get::<_, String>(1)).map_err(&failed)?;
        names.collect::<Result<_, _>>().map_err(&failed)
    }

    /// Every row of a table, with the columns asked for; those that this schema lacks come as NULL.
    fn rows(
        &self,
        tables: &HashSet<String>,
        table: &str,
        columns: &[&str],
        mut take: impl FnMut(&Row) -> Result<bool, rusqlite::Error>,
        profile: &mut Profile,
    ) -> Result<(), ImportError> {
        if !tables.contains(table) {
            return Ok(());
        }
        let known = self.columns(table)?;
        let list: Vec<String> = columns
            .iter()
            .map(|c| if known.contains(*c) { format!("\"{c}\"") } else { "NULL".to_string() })
            .collect();
        let failed = self.failed(table);
        let mut query =
            self.db.prepare(&format!("SELECT {} FROM {table}", list.join(", "))).map_err(&failed)?;
        let mut rows = query.query([]).map_err(&failed)?;
        let mut number = 0_u64;
        while let Some(row) = rows.next().map_err(&failed)? {
            profile.reading.events += 1;
            number += 1;
            if number.is_multiple_of(PAUSE_EVERY) {
                // The records of a table join the profile when all of them are there.
                self.meter.borrow_mut().check_with(profile, number * RECORD_BYTES)?;
            }
            match take(row) {
                Ok(true) => profile.reading.kept += 1,
                Ok(false) => {}
                Err(e) => {
                    profile.reading.unreadable += 1;
                    let number = profile.reading.events;
                    profile
                        .reading
                        .first_unreadable
                        .get_or_insert_with(|| format!("row {number} ({table}): {}", short(&e.to_string())));
                }
            }
        }
        Ok(())
    }

    fn strings(&self, tables: &HashSet<String>, profile: &mut Profile) -> Result<Strings, ImportError> {
        let mut strings = Strings::new();
        let mut texts: Vec<(i64, String)> = Vec::new();
        self.rows(
            tables,
            "StringIds",
            &["id", "value"],
            |r| {
                texts.push((r.get(0)?, r.get::<_, Option<String>>(1)?.unwrap_or_default()));
                Ok(false)
            },
            profile,
        )?;
        for (id, text) in texts {
            strings.insert(id, profile.names.add(&text));
        }
        Ok(strings)
    }

    fn kernels(
        &self,
        tables: &HashSet<String>,
        strings: &Strings,
        profile: &mut Profile,
    ) -> Result<(), ImportError> {
        let columns = [
            "start",
            "end",
            "deviceId",
            "streamId",
            "correlationId",
            "globalPid",
            "demangledName",
            "shortName",
            "registersPerThread",
            "gridX",
            "gridY",
            "gridZ",
            "blockX",
            "blockY",
            "blockZ",
            "staticSharedMemory",
            "dynamicSharedMemory",
            "graphNodeId",
        ];
        let mut events = Table::new();
        self.rows(
            tables,
            "CUPTI_ACTIVITY_KIND_KERNEL",
            &columns,
            |r| {
                let n = |i: usize| r.get::<_, Option<i64>>(i).map(Option::unwrap_or_default);
                let (start_ns, end) = (n(0)?, n(1)?);
                let name = strings
                    .get(&n(6)?)
                    .or_else(|| strings.get(&n(7).unwrap_or(0)))
                    .copied()
                    .unwrap_or_default();
                let size = |i: usize| n(i).map(|v| v.max(0) as u64);
                events.push(GpuEvent {
                    start_ns,
                    dur_ns: end.saturating_sub(start_ns).max(0),
                    name,
                    kind: GpuKind::Kernel,
                    graph: n(17)? != 0,
                    device: n(2)? as i32,
                    stream: n(3)? as i32,
                    correlation: key(n(5)?, n(4)?),
                    external: 0,
                    blocks: size(9)?.saturating_mul(size(10)?).saturating_mul(size(11)?),
                    threads: size(12)?.saturating_mul(size(13)?).saturating_mul(size(14)?).min(1 << 20)
                        as u32,
                    registers: size(8)?.min(1 << 16) as u32,
                    shared_bytes: (size(15)?.saturating_add(size(16)?)).min(1 << 30) as u32,
                    has_resources: true,
                    bytes: 0,
                });
                Ok(true)
            },
            profile,
        )?;
        profile.gpu_events.extend(&events);
        Ok(())
    }

    fn copies(&self, tables: &HashSet<String>, profile: &mut Profile) -> Result<(), ImportError> {
        let columns = [
            "start",
            "end",
            "deviceId",
            "streamId",
            "correlationId",
            "globalPid",
            "bytes",
            "graphNodeId",
            "copyKind",
        ];
        for table in ["CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"] {
            let mut events = Vec::new();
            let memset = table.ends_with("MEMSET");
            self.rows(
                tables,
                table,
                &columns,
                |r| {
                    let n = |i: usize| r.get::<_, Option<i64>>(i).map(Option::unwrap_or_default);
                    let (start_ns, end) = (n(0)?, n(1)?);
                    // ENUM_CUDA_MEMCPY_OPER: 1 HtoD, 2 DtoH, 8 DtoD, 10 PtoP.
                    let label = match n(8)? {
                        _ if memset => "Memset",
                        1 => "Memcpy HtoD",
                        2 => "Memcpy DtoH",
                        10 => "Memcpy PtoP",
                        _ => "Memcpy DtoD",
                    };
                    events.push((
                        label,
                        GpuEvent {
                            start_ns,
                            dur_ns: end.saturating_sub(start_ns).max(0),
                            name: NameId::EMPTY,
                            kind: if memset { GpuKind::Memset } else { copy_kind(label) },
                            graph: n(7)? != 0,
                            device: n(2)? as i32,
                            stream: n(3)? as i32,
                            correlation: key(n(5)?, n(4)?),
                            external: 0,
                            blocks: 0,
                            threads: 0,
                            registers: 0,
                            shared_bytes: 0,
                            has_resources: false,
                            bytes: n(6)?.max(0) as u64,
                        },
                    ));
                    Ok(true)
                },
                profile,
            )?;
            for (label, event) in events {
                let name = profile.names.add(label);
                profile.gpu_events.push(GpuEvent { name, ..event });
            }
        }
        Ok(())
    }

    fn calls(
        &self,
        tables: &HashSet<String>,
        strings: &Strings,
        profile: &mut Profile,
    ) -> Result<(), ImportError> {
        let mut calls = Vec::new();
        let columns = ["start", "end", "globalTid", "correlationId", "nameId"];
        self.rows(
            tables,
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            &columns,
            |r| {
                let n = |i: usize| r.get::<_, Option<i64>>(i).map(Option::unwrap_or_default);
                calls.push((n(0)?, n(1)?, n(2)?, n(3)?, n(4)?));
                Ok(false)
            },
            profile,
        )?;
        for (start_ns, end, global, correlation, name) in calls {
            let name = strings.get(&name).copied().unwrap_or_default();
            let Some(kind) = call_kind(profile.names.text(name)) else { continue };
            let thread = profile.names.add(&global.to_string());
            let dur_ns = end.saturating_sub(start_ns).max(0);
            profile.reading.kept += 1;
            profile.calls.push(HostCall {
                start_ns,
                dur_ns,
                name,
                thread,
                correlation: key(global, correlation),
                kind,
            });
        }
        Ok(())
    }

    fn ranges(
        &self,
        tables: &HashSet<String>,
        strings: &Strings,
        profile: &mut Profile,
    ) -> Result<(), ImportError> {
        let mut ranges = Vec::new();
        let columns = ["start", "end", "globalTid", "text", "textId"];
        self.rows(
            tables,
            "NVTX_EVENTS",
            &columns,
            |r| {
                let n = |i: usize| r.get::<_, Option<i64>>(i);
                // Marks without an end, domains and the like.
                let (Some(start), Some(end)) = (n(0)?, n(1)?) else { return Ok(false) };
                ranges.push((
                    start,
                    end,
                    n(2)?.unwrap_or(0),
                    r.get::<_, Option<String>>(3)?,
                    n(4)?.unwrap_or(0),
                ));
                Ok(true)
            },
            profile,
        )?;
        for (start_ns, end, global, text, id) in ranges {
            let text = text
                .or_else(|| strings.get(&id).map(|s| profile.names.text(*s).to_string()))
                .unwrap_or_default();
            let thread = profile.names.add(&global.to_string());
            let dur_ns = end.saturating_sub(start_ns).max(0);
            let Some(op) = operator(&text) else {
                let name = profile.names.add(&text);
                profile.marks.push(Mark { start_ns, dur_ns, name, thread });
                continue;
            };
            let (name, dims) = (profile.names.add(op.name), profile.names.add(op.sizes));
            profile.ops.push(HostOp {
                start_ns,
                dur_ns,
                name,
                thread,
                external: 0,
                sequence: op.sequence,
                backward: op.name.contains("Backward") || op.name.starts_with("autograd::engine"),
                dims,
                types: NameId::EMPTY,
                strides: NameId::EMPTY,
                concrete: NameId::EMPTY,
            });
        }
        Ok(())
    }

    fn devices(&self, tables: &HashSet<String>, profile: &mut Profile) -> Result<(), ImportError> {
        let mut devices = Vec::new();
        let columns =
            ["id", "name", "smCount", "totalMemory", "computeMajor", "computeMinor", "threadsPerWarp"];
        self.rows(
            tables,
            "TARGET_INFO_GPU",
            &columns,
            |r| {
                let n = |i: usize| r.get::<_, Option<i64>>(i).map(|v| v.map(|v| v.max(0)));
                devices.push(Device {
                    id: n(0)?.unwrap_or(0),
                    name: r.get::<_, Option<String>>(1)?.unwrap_or_default(),
                    sm_count: n(2)?.map(|v| v as u32),
                    memory_bytes: n(3)?.map(|v| v as u64),
                    capability: n(4)?.zip(n(5)?).map(|(a, b)| (a as u32, b as u32)),
                    warp_size: n(6)?.map(|v| v as u32),
                });
                Ok(false)
            },
            profile,
        )?;
        profile.devices = devices;
        Ok(())
    }
}

struct Operator<'a> {
    name: &'a str,
    sequence: i64,
    sizes: &'a str,
}

/// Reads the text of an operator's range; `None` for other ranges.
fn operator(text: &str) -> Option<Operator<'_>> {
    let (name, rest) = text.split_once(", ").unwrap_or((text, ""));
    if !(rest.contains("seq = ")
        || rest.contains("op_id = ")
        || rest.contains("sizes = ")
        || name.starts_with("aten::"))
    {
        return None;
    }
    let sequence = rest
        .split_once("seq = ")
        .and_then(|(_, s)| s.split([',', ' ']).next())
        .and_then(|s| s.parse().ok())
        .unwrap_or(-1);
    let sizes = rest.split_once("sizes = ").map_or("", |(_, s)| {
        let mut depth = 0_i32;
        for (i, c) in s.char_indices() {
            match c {
                '[' => depth += 1,
                ']' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return &s[..=i];
            }
        }
        ""
    });
    Some(Operator { name, sequence, sizes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operator_ranges() {
        let op =
            operator("aten::mm, seq = 31, sizes = [[64, 128], [128, 256]], input_op_ids = [(1,0)]").unwrap();
        assert_eq!((op.name, op.sequence, op.sizes), ("aten::mm", 31, "[[64, 128], [128, 256]]"));
        assert_eq!(operator("aten::view, op_id = 314290").unwrap().name, "aten::view");
        assert!(operator("power iteration").is_none());
    }
}
