//! Nsight Systems: a new database with the tables and columns that are known, integers where integers stand.

use super::Dropped;
use super::words::Namer;
use crate::ImportError;
use crate::control::Meter;
use crate::error::short;
use crate::nsys::connect;
use crate::open::Database;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Row, params_from_iter};
use std::collections::HashSet;
use std::io::{self, Seek as _, Write};

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Integer,
    /// A name made of known words.
    Name,
    /// The name of a GPU.
    Gpu,
}

type Table = (&'static str, &'static [(&'static str, Kind)]);

use Kind::{Gpu, Integer, Name};

/// The tables that a clean copy has. Everything about machine, user and processes is in others.
const TABLES: &[Table] = &[
    (
        "CUPTI_ACTIVITY_KIND_KERNEL",
        &[
            ("start", Integer),
            ("end", Integer),
            ("deviceId", Integer),
            ("contextId", Integer),
            ("streamId", Integer),
            ("correlationId", Integer),
            ("globalPid", Integer),
            ("demangledName", Integer),
            ("shortName", Integer),
            ("registersPerThread", Integer),
            ("gridX", Integer),
            ("gridY", Integer),
            ("gridZ", Integer),
            ("blockX", Integer),
            ("blockY", Integer),
            ("blockZ", Integer),
            ("staticSharedMemory", Integer),
            ("dynamicSharedMemory", Integer),
            ("graphNodeId", Integer),
        ],
    ),
    ("CUPTI_ACTIVITY_KIND_MEMCPY", COPIES),
    ("CUPTI_ACTIVITY_KIND_MEMSET", COPIES),
    (
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        &[
            ("start", Integer),
            ("end", Integer),
            ("globalTid", Integer),
            ("correlationId", Integer),
            ("nameId", Integer),
        ],
    ),
    (
        "NVTX_EVENTS",
        &[
            ("start", Integer),
            ("end", Integer),
            ("eventType", Integer),
            ("globalTid", Integer),
            ("text", Name),
            ("textId", Integer),
        ],
    ),
    ("StringIds", &[("id", Integer), ("value", Name)]),
    (
        "TARGET_INFO_GPU",
        &[
            ("id", Integer),
            ("name", Gpu),
            ("smCount", Integer),
            ("totalMemory", Integer),
            ("computeMajor", Integer),
            ("computeMinor", Integer),
            ("threadsPerWarp", Integer),
        ],
    ),
];

const COPIES: &[(&str, Kind)] = &[
    ("start", Integer),
    ("end", Integer),
    ("deviceId", Integer),
    ("streamId", Integer),
    ("correlationId", Integer),
    ("globalPid", Integer),
    ("bytes", Integer),
    ("graphNodeId", Integer),
    ("copyKind", Integer),
];

/// Columns that point into `StringIds`.
const REFERENCES: [&str; 4] = ["demangledName", "shortName", "nameId", "textId"];

struct Copier<'a> {
    source: &'a Connection,
    clean: &'a Connection,
    name: &'a str,
    tables: HashSet<String>,
    namer: Namer,
    dropped: Dropped,
}

/// Copies what may leave.
pub fn copy(
    database: Database,
    name: &str,
    out: &mut dyn Write,
    meter: &mut Meter,
) -> Result<Dropped, ImportError> {
    let source = connect(database, name, meter)?;
    let failed = |e: rusqlite::Error| ImportError::WriteAs { file: "the copy".into(), what: e.to_string() };
    let write = |source: io::Error| ImportError::Write { file: "the copy".into(), source };
    // The database is made in a file whose name goes as soon as it is open, so that no copy is ever left behind.
    let place = tempfile::NamedTempFile::new().map_err(write)?;
    let clean = Connection::open(place.path()).map_err(failed)?;
    clean.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN").map_err(failed)?;
    clean.execute_batch("CREATE TABLE preflop (redacted INTEGER)").map_err(failed)?;
    let mut file = place.reopen().map_err(write)?;
    place.close().map_err(write)?;
    let mut copier = Copier {
        source: &source,
        clean: &clean,
        name,
        tables: HashSet::new(),
        namer: Namer::new(),
        dropped: Dropped::default(),
    };
    copier.list()?;
    for table in TABLES {
        copier.table(table)?;
    }
    copier.dropped.changed += copier.namer.changed;
    let dropped = copier.dropped;
    clean.execute_batch("COMMIT").map_err(failed)?;
    drop(clean);
    file.rewind().map_err(write)?;
    io::copy(&mut file, out).map_err(write)?;
    Ok(dropped)
}

impl Copier<'_> {
    fn failed(&self, table: &str) -> impl Fn(rusqlite::Error) -> ImportError + use<> {
        let (file, table) = (self.name.to_string(), table.to_string());
        move |e| ImportError::Table {
            file: file.clone(),
            table: table.clone(),
            detail: short(&e.to_string()),
        }
    }

    /// Notes which tables there are, and which of them go.
    fn list(&mut self) -> Result<(), ImportError> {
        let failed = self.failed("sqlite_master");
        let mut query =
            self.source.prepare("SELECT name FROM sqlite_master WHERE type = 'table'").map_err(&failed)?;
        let names = query.query_map([], |r| r.get::<_, String>(0)).map_err(&failed)?;
        self.tables = names.collect::<Result<_, _>>().map_err(&failed)?;
        let unknown = self.tables.iter().filter(|t| !TABLES.iter().any(|(known, _)| known == t)).count();
        if unknown > 0 {
            self.dropped.add("tables that are not known", unknown as u64);
        }
        Ok(())
    }

    fn columns(&self, table: &str) -> Result<HashSet<String>, ImportError> {
        let failed = self.failed(table);
        let mut query = self.source.prepare(&format!("PRAGMA table_info({table})")).map_err(&failed)?;
        let names = query.query_map([], |r| r.get::<_, String>(1)).map_err(&failed)?;
        names.collect::<Result<_, _>>().map_err(&failed)
    }

    /// Only strings that a kept table points at.
    fn filter(&self, table: &str) -> Result<String, ImportError> {
        if table != "StringIds" {
            return Ok(String::new());
        }
        let mut parts = Vec::new();
        for (other, known) in TABLES.iter().filter(|(t, _)| *t != table && self.tables.contains(*t)) {
            let there = self.columns(other)?;
            let points = known.iter().filter(|(c, _)| REFERENCES.contains(c) && there.contains(*c));
            parts.extend(points.map(|(column, _)| format!("SELECT \"{column}\" FROM \"{other}\"")));
        }
        Ok(if parts.is_empty() {
            " WHERE 0".into()
        } else {
            format!(" WHERE id IN ({})", parts.join(" UNION "))
        })
    }

    fn table(&mut self, (table, known): &Table) -> Result<(), ImportError> {
        if !self.tables.contains(*table) {
            return Ok(());
        }
        let there = self.columns(table)?;
        let kept: Vec<(&str, Kind)> = known.iter().filter(|(c, _)| there.contains(*c)).copied().collect();
        if there.len() > kept.len() {
            self.dropped
                .add(&format!("{table}: columns that are not known"), (there.len() - kept.len()) as u64);
        }
        if kept.is_empty() {
            return Ok(());
        }
        let typed = |(column, kind): &(&str, Kind)| {
            format!("\"{column}\" {}", if *kind == Integer { "INTEGER" } else { "TEXT" })
        };
        let definition: Vec<String> = kept.iter().map(typed).collect();
        let names: Vec<String> = kept.iter().map(|(c, _)| format!("\"{c}\"")).collect();
        let written =
            |e: rusqlite::Error| ImportError::WriteAs { file: "the copy".into(), what: e.to_string() };
        self.clean
            .execute(&format!("CREATE TABLE {table} ({})", definition.join(", ")), [])
            .map_err(written)?;
        let marks = vec!["?"; kept.len()].join(", ");
        let mut insert =
            self.clean.prepare(&format!("INSERT INTO {table} VALUES ({marks})")).map_err(written)?;
        let failed = self.failed(table);
        let filter = self.filter(table)?;
        let mut query = self
            .source
            .prepare(&format!("SELECT {} FROM {table}{filter}", names.join(", ")))
            .map_err(&failed)?;
        let mut rows = query.query([]).map_err(&failed)?;
        while let Some(row) = rows.next().map_err(&failed)? {
            let mut values = Vec::with_capacity(kept.len());
            for (i, (_, kind)) in kept.iter().enumerate() {
                values.push(value(&mut self.namer, &mut self.dropped, row, i, *kind).map_err(&failed)?);
            }
            insert.execute(params_from_iter(values)).map_err(written)?;
        }
        Ok(())
    }
}

/// The value, if it has the shape of its column; NULL otherwise.
fn value(
    namer: &mut Namer,
    dropped: &mut Dropped,
    row: &Row,
    at: usize,
    kind: Kind,
) -> Result<Value, rusqlite::Error> {
    Ok(match (row.get_ref(at)?, kind) {
        (ValueRef::Null, _) => Value::Null,
        (ValueRef::Integer(n), Integer) => Value::Integer(n),
        // Kernels and marks share the table of strings.
        (ValueRef::Text(bytes), Name) => {
            Value::Text(namer.kernel(&String::from_utf8_lossy(bytes)).into_owned())
        }
        (ValueRef::Text(bytes), Gpu) => {
            let text = String::from_utf8_lossy(bytes);
            Namer::gpu(&text).map_or(Value::Null, |name| Value::Text(name.to_owned()))
        }
        _ => {
            dropped.changed += 1;
            Value::Null
        }
    })
}
