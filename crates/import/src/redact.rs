//! Writes a copy of a recording that can be given away.

use crate::ImportError;
use crate::json_stream::{self, Handler};
use crate::mend::mend;
use crate::open::{self, Content};
use crate::scrub::{REDACTED, scrub_json};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

/// What was taken out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Redacted {
    /// Fields, tables or columns left out whole.
    pub dropped: Vec<String>,
    /// Values changed.
    pub changed: u64,
}

/// Top-level fields that are copied; all others are left out.
const KEPT: &[&str] = &[
    "schemaVersion",
    "schema",
    "deviceProperties",
    "distributedInfo",
    "displayTimeUnit",
    "baseTimeNanoseconds",
    "record_shapes",
    "profile_memory",
    "with_stack",
    "with_flops",
    "with_modules",
    "cuda_driver_version",
    "cuda_runtime_version",
    "cupti_version",
    "hip_driver_version",
    "hip_runtime_version",
    "roctracer_version",
];

/// Reads `from` and writes a clean copy to `to`, packed if its name ends in `.gz`.
pub fn redact(from: &Path, to: &Path) -> Result<Redacted, ImportError> {
    let source = open::open(from, u64::MAX)?;
    let shown = to.display().to_string();
    if to.extension().is_some_and(|e| e == "zst") {
        let what = "packing to .zst is not supported; name it .gz or leave it plain".to_string();
        return Err(ImportError::WriteAs { file: shown, what });
    }
    let same = from.canonicalize().ok().zip(to.canonicalize().ok()).is_some_and(|(a, b)| a == b);
    if same {
        let what = "it is the recording itself; choose another name".to_string();
        return Err(ImportError::WriteAs { file: shown, what });
    }
    match source.content {
        Content::Json(reader) => with_writer(to, |out| json(reader, &source.name, out, &shown)),
        Content::Csv(reader) => with_writer(to, |out| csv_copy(reader, &source.name, out, &shown)),
        #[cfg(feature = "nsys")]
        Content::Sqlite(database) => crate::redact::sqlite::copy(database, &source.name, to),
        #[cfg(not(feature = "nsys"))]
        Content::Sqlite(_) => Err(ImportError::NotAProfile {
            file: source.name,
            what: "an SQLite file, which this build cannot read".to_string(),
        }),
    }
}

/// Writes to a neighbour file first, so that a recording that turns out to be broken leaves no half copy.
fn with_writer(
    to: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<Redacted, ImportError>,
) -> Result<Redacted, ImportError> {
    let failed = |source| ImportError::Write { file: to.display().to_string(), source };
    let mut partial = to.as_os_str().to_owned();
    partial.push(".part");
    let partial = Path::new(&partial);
    let file = BufWriter::with_capacity(1 << 16, File::create(partial).map_err(failed)?);
    let result = if to.extension().is_some_and(|e| e == "gz") {
        let mut packed = GzEncoder::new(file, Compression::default());
        write(&mut packed)
            .and_then(|r| packed.finish().and_then(|mut f| f.flush()).map_err(failed).map(|()| r))
    } else {
        let mut plain = file;
        write(&mut plain).and_then(|r| plain.flush().map_err(failed).map(|()| r))
    };
    match result {
        Ok(redacted) => std::fs::rename(partial, to).map_err(failed).map(|()| redacted),
        Err(e) => {
            // The first error is the one to tell.
            let _ = std::fs::remove_file(partial);
            Err(e)
        }
    }
}

struct Copier<'a> {
    out: &'a mut dyn Write,
    redacted: Redacted,
    /// The event array being written.
    array: Option<String>,
    bare_array: bool,
    fields: u64,
    elements: u64,
    error: Option<io::Error>,
    text: String,
}

impl Copier<'_> {
    fn put(&mut self, text: &str) {
        if self.error.is_none() {
            self.error = self.out.write_all(text.as_bytes()).err();
        }
    }

    fn close_array(&mut self) {
        if self.array.take().is_some() {
            self.put("\n]");
        }
    }

    fn key(&mut self, key: &str) {
        let comma = if self.fields == 0 { "{\n" } else { ",\n" };
        let quoted = serde_json::Value::from(key).to_string();
        self.put(&format!("{comma}{quoted}: "));
        self.fields += 1;
    }

    /// A value without secrets; broken UTF-8 is mended on the way.
    fn value(&mut self, value: &[u8]) -> Result<(), String> {
        let checked =
            |text: &str| serde_json::from_str::<serde::de::IgnoredAny>(text).map_err(|e| e.to_string());
        let mended;
        let text = match std::str::from_utf8(value) {
            Ok(text) if checked(text).is_ok() => text,
            _ => {
                mended = mend(value).unwrap_or_else(|| String::from_utf8_lossy(value).into_owned());
                checked(&mended)?;
                &mended
            }
        };
        let mut clean = std::mem::take(&mut self.text);
        clean.clear();
        self.redacted.changed += scrub_json(text, &mut clean);
        self.put(&clean);
        self.text = clean;
        Ok(())
    }
}

impl Handler for Copier<'_> {
    fn is_events(&self, key: &str) -> bool {
        key == "traceEvents" || key == "nodes"
    }

    fn wants(&self, key: &str) -> bool {
        KEPT.contains(&key)
    }

    fn field(&mut self, key: &str, value: &[u8]) {
        self.close_array();
        self.key(key);
        if self.value(value).is_err() {
            self.put("null");
        }
    }

    fn skipped(&mut self, key: &str) {
        self.redacted.dropped.push(crate::error::short(key));
    }

    fn element(&mut self, key: &str, element: &[u8]) -> Result<(), String> {
        if self.array.as_deref() == Some(key) {
            self.put(",\n");
        } else {
            self.close_array();
            if key.is_empty() {
                self.bare_array = true;
            } else {
                self.key(key);
            }
            self.array = Some(key.to_string());
            self.put("[\n");
        }
        self.elements += 1;
        self.value(element)
    }

    fn finish(&mut self) -> Result<(), String> {
        if self.elements == 0 {
            return Err("it is JSON without events".to_string());
        }
        self.close_array();
        self.put(if self.bare_array { "\n" } else { "\n}\n" });
        Ok(())
    }
}

fn json(reader: impl Read, name: &str, out: &mut dyn Write, to: &str) -> Result<Redacted, ImportError> {
    let mut copier = Copier {
        out,
        redacted: Redacted::default(),
        array: None,
        bare_array: false,
        fields: 0,
        elements: 0,
        error: None,
        text: String::new(),
    };
    json_stream::read(reader, name, &mut copier)?;
    match copier.error {
        Some(source) => Err(ImportError::Write { file: to.to_string(), source }),
        None => Ok(copier.redacted),
    }
}

/// Columns of an Nsight Compute CSV that name a machine or a program.
const PERSONAL_COLUMNS: &[&str] = &["Process ID", "Process Name", "Host Name"];

fn csv_copy(
    mut reader: impl Read,
    name: &str,
    out: &mut dyn Write,
    to: &str,
) -> Result<Redacted, ImportError> {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).map_err(|e| open::read_error(e, name, 0))?;
    // Reading it as a profile finds what is wrong with it.
    crate::ncu::read(bytes.as_slice(), name)?;
    let text = String::from_utf8_lossy(&bytes);
    let body: String =
        text.split_inclusive('\n').skip_while(|l| l.starts_with("==") || l.trim().is_empty()).collect();
    let mut table = csv::ReaderBuilder::new().flexible(true).has_headers(false).from_reader(body.as_bytes());
    let mut copy =
        csv::WriterBuilder::new().flexible(true).quote_style(csv::QuoteStyle::Always).from_writer(out);
    let mut redacted = Redacted::default();
    let mut hidden: Vec<usize> = Vec::new();
    for (i, record) in table.records().enumerate() {
        let record = record.map_err(|e| ImportError::Malformed {
            file: name.to_string(),
            offset: e.position().map_or(0, csv::Position::byte),
            detail: e.to_string(),
        })?;
        if i == 0 {
            hidden = (0..record.len()).filter(|&c| PERSONAL_COLUMNS.contains(&&record[c])).collect();
            redacted.dropped = hidden.iter().map(|&c| record[c].to_string()).collect();
        }
        let fields = record.iter().enumerate().map(|(c, field)| {
            if i > 0 && hidden.contains(&c) && !field.is_empty() {
                redacted.changed += 1;
                REDACTED
            } else {
                field
            }
        });
        let fields: Vec<&str> = fields.collect();
        copy.write_record(fields)
            .map_err(|e| ImportError::Write { file: to.to_string(), source: io::Error::other(e) })?;
    }
    copy.flush().map_err(|source| ImportError::Write { file: to.to_string(), source })?;
    Ok(redacted)
}

#[cfg(feature = "nsys")]
mod sqlite {
    use super::{ImportError, Path, Redacted};
    use crate::nsys::connect;
    use crate::open::Database;
    use crate::scrub::scrub;
    use rusqlite::Connection;
    use std::collections::HashSet;

    /// Tables that hold GPU work and its names; everything about machine, user and processes is left out.
    fn is_kept(table: &str) -> bool {
        table.starts_with("CUPTI_ACTIVITY_KIND_")
            || table.starts_with("ENUM_")
            || matches!(
                table,
                "NVTX_EVENTS"
                    | "StringIds"
                    | "TARGET_INFO_GPU"
                    | "TARGET_INFO_CUDA_DEVICE"
                    | "CUDA_GRAPH_NODE_EVENTS"
            )
    }

    /// Columns that point into `StringIds`.
    const REFERENCES: &[&str] = &["demangledName", "shortName", "mangledName", "nameId", "textId"];

    /// Copies the tables that may go out.
    pub fn copy(database: Database, name: &str, to: &Path) -> Result<Redacted, ImportError> {
        let shown = to.display().to_string();
        let failed = |e: rusqlite::Error| ImportError::WriteAs { file: shown.clone(), what: e.to_string() };
        let bytes;
        let source = connect(
            match database {
                Database::Path(path) => {
                    bytes = std::fs::read(&path)
                        .map_err(|source| ImportError::Open { file: name.to_string(), source })?;
                    Database::Bytes(bytes)
                }
                memory @ Database::Bytes(_) => memory,
            },
            name,
        )?;
        if to.exists() {
            std::fs::remove_file(to).map_err(|source| ImportError::Write { file: shown.clone(), source })?;
        }
        let unreadable = |e: rusqlite::Error| ImportError::Table {
            file: name.to_string(),
            table: "sqlite_master".into(),
            detail: e.to_string(),
        };
        let tables: Vec<String> = {
            let mut query =
                source.prepare("SELECT name FROM sqlite_master WHERE type = 'table'").map_err(unreadable)?;
            let rows = query.query_map([], |r| r.get(0)).map_err(unreadable)?;
            rows.collect::<Result<_, _>>().map_err(unreadable)?
        };
        let mut redacted = Redacted::default();
        source.execute("ATTACH DATABASE ?1 AS clean", [to.to_string_lossy()]).map_err(failed)?;
        for table in &tables {
            if !is_kept(table) {
                redacted.dropped.push(table.clone());
                continue;
            }
            let filter = if table == "StringIds" {
                references(&source, &tables).map_err(failed)?
            } else {
                String::new()
            };
            source
                .execute(
                    &format!("CREATE TABLE clean.\"{table}\" AS SELECT * FROM main.\"{table}\"{filter}"),
                    [],
                )
                .map_err(failed)?;
        }
        if tables.iter().any(|t| t == "TARGET_INFO_GPU") {
            let sql = "UPDATE clean.TARGET_INFO_GPU SET uuid = '', busLocation = ''";
            // Older schemas lack the columns: then there is nothing to blank.
            redacted.changed += source.execute(sql, []).unwrap_or(0) as u64;
        }
        for (table, column) in [("NVTX_EVENTS", "text"), ("StringIds", "value")] {
            if tables.iter().any(|t| t == table) {
                redacted.changed += scrub_column(&source, table, column).map_err(failed)?;
            }
        }
        source.execute("DETACH DATABASE clean", []).map_err(failed)?;
        Ok(redacted)
    }

    /// Only strings that a kept table points at.
    fn references(db: &Connection, tables: &[String]) -> Result<String, rusqlite::Error> {
        let mut parts = Vec::new();
        for table in tables.iter().filter(|t| is_kept(t) && *t != "StringIds") {
            let mut query = db.prepare(&format!("PRAGMA main.table_info(\"{table}\")"))?;
            let columns: HashSet<String> =
                query.query_map([], |r| r.get::<_, String>(1))?.collect::<Result<_, _>>()?;
            for column in REFERENCES.iter().filter(|c| columns.contains(**c)) {
                parts.push(format!("SELECT \"{column}\" FROM main.\"{table}\""));
            }
        }
        Ok(if parts.is_empty() { String::new() } else { format!(" WHERE id IN ({})", parts.join(" UNION ")) })
    }

    fn scrub_column(db: &Connection, table: &str, column: &str) -> Result<u64, rusqlite::Error> {
        let texts: Vec<String> = db
            .prepare(&format!(
                "SELECT DISTINCT \"{column}\" FROM clean.\"{table}\" WHERE \"{column}\" IS NOT NULL"
            ))?
            .query_map([], |r| r.get(0))?
            .collect::<Result<_, _>>()?;
        let mut changed = 0;
        for text in texts {
            if let Some(clean) = scrub(&text) {
                let sql = format!("UPDATE clean.\"{table}\" SET \"{column}\" = ?1 WHERE \"{column}\" = ?2");
                changed += db.execute(&sql, [&clean, &text])? as u64;
            }
        }
        Ok(changed)
    }
}
