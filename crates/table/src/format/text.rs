//! CSV and JSON Lines as batches of texts: what a text means is for the column to say.

use crate::TableError;
use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use serde_json::{Map, Value};
use std::io::{BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Rows of a batch.
const ROWS: usize = 1 << 14;
/// A row is a line of text; one that goes on for this long is not a table.
const MAX_ROW_BYTES: usize = 1 << 20;
const TOO_LONG: &str = "a row of more than 1 MiB, so not a table";

fn wrong(file: &str, line: u64, problem: impl std::fmt::Display) -> TableError {
    TableError::File { file: file.to_string(), problem: format!("line {line}: {problem}") }
}

fn texts(names: impl IntoIterator<Item = String>) -> SchemaRef {
    let fields: Vec<Field> = names.into_iter().map(|name| Field::new(name, DataType::Utf8, true)).collect();
    Arc::new(Schema::new(fields))
}

/// A CSV file; its first line names the columns.
pub(super) struct Csv {
    file: String,
    reader: csv::Reader<Limited>,
    schema: SchemaRef,
    since_row: Arc<AtomicUsize>,
}

/// Stops a quoted field that never ends from filling the memory.
struct Limited {
    inner: Box<dyn Read + Send>,
    since_row: Arc<AtomicUsize>,
}

/// What the reader takes ahead of a row.
const BUFFER_BYTES: usize = 1 << 16;

impl Read for Limited {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        if self.since_row.fetch_add(read, Ordering::Relaxed) > MAX_ROW_BYTES + BUFFER_BYTES {
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, TOO_LONG));
        }
        Ok(read)
    }
}

impl Csv {
    pub fn new(input: Box<dyn Read + Send>, file: &str) -> Result<Self, TableError> {
        let since_row = Arc::new(AtomicUsize::new(0));
        let limited = Limited { inner: input, since_row: Arc::clone(&since_row) };
        let mut reader =
            csv::ReaderBuilder::new().trim(csv::Trim::All).buffer_capacity(BUFFER_BYTES).from_reader(limited);
        let header = reader.headers().map_err(|e| wrong(file, 1, e))?;
        let schema = texts(header.iter().map(str::to_string));
        Ok(Self { file: file.to_string(), reader, schema, since_row })
    }

    fn batch(&mut self) -> Result<Option<RecordBatch>, TableError> {
        let mut columns: Vec<StringBuilder> =
            self.schema.fields().iter().map(|_| StringBuilder::new()).collect();
        let mut record = csv::StringRecord::new();
        let mut rows = 0;
        while rows < ROWS {
            let line = self.reader.position().line();
            self.since_row.store(0, Ordering::Relaxed);
            let more = self.reader.read_record(&mut record).map_err(|e| match e.kind() {
                csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
                    wrong(&self.file, line, format!("{len} fields where the first line names {expected_len}"))
                }
                _ => wrong(&self.file, line, &e),
            })?;
            if !more {
                break;
            }
            for (column, field) in columns.iter_mut().zip(&record) {
                column.append_option(Some(field).filter(|f| !f.is_empty()));
            }
            rows += 1;
        }
        finished(&self.schema, columns, rows)
    }
}

/// A JSON Lines file; the keys of its first rows are the columns.
pub(super) struct JsonLines {
    file: String,
    reader: Box<dyn BufRead + Send>,
    line: u64,
    schema: SchemaRef,
    /// Rows that were read to learn the columns.
    first: Vec<Map<String, Value>>,
}

impl JsonLines {
    pub fn new(reader: Box<dyn BufRead + Send>, file: &str) -> Result<Self, TableError> {
        let mut out = Self {
            file: file.to_string(),
            reader,
            line: 0,
            schema: Arc::new(Schema::empty()),
            first: Vec::new(),
        };
        let mut names: Vec<String> = Vec::new();
        while out.first.len() < ROWS {
            let Some(row) = out.row()? else { break };
            for key in row.keys() {
                if !names.contains(key) {
                    names.push(key.clone());
                }
            }
            out.first.push(row);
        }
        out.schema = texts(names);
        Ok(out)
    }

    fn row(&mut self) -> Result<Option<Map<String, Value>>, TableError> {
        let mut text = Vec::new();
        loop {
            self.line += 1;
            text.clear();
            let read = (&mut self.reader).take(MAX_ROW_BYTES as u64 + 1).read_until(b'\n', &mut text)?;
            if read == 0 {
                return Ok(None);
            }
            if read > MAX_ROW_BYTES {
                return Err(wrong(&self.file, self.line, TOO_LONG));
            }
            if !text.iter().all(u8::is_ascii_whitespace) {
                break;
            }
        }
        let row = serde_json::from_slice(&text);
        row.map(Some).map_err(|e| {
            wrong(&self.file, self.line, e.to_string().replace(" at line 1 column", " at column"))
        })
    }

    fn batch(&mut self) -> Result<Option<RecordBatch>, TableError> {
        let mut rows = std::mem::take(&mut self.first);
        if rows.is_empty() {
            while rows.len() < ROWS {
                let Some(row) = self.row()? else { break };
                if let Some(key) = row.keys().find(|key| self.schema.column_with_name(key).is_none()) {
                    let problem = format!(
                        "`{key}` is in none of the first {ROWS} rows; give it there too (null will do)"
                    );
                    return Err(wrong(&self.file, self.line, problem));
                }
                rows.push(row);
            }
        }
        let mut columns: Vec<StringBuilder> =
            self.schema.fields().iter().map(|_| StringBuilder::new()).collect();
        for row in &rows {
            for (column, field) in columns.iter_mut().zip(self.schema.fields()) {
                match row.get(field.name()) {
                    None | Some(Value::Null) => column.append_null(),
                    Some(Value::String(text)) => column.append_value(text),
                    Some(other) => column.append_value(other.to_string()),
                }
            }
        }
        finished(&self.schema, columns, rows.len())
    }
}

fn finished(
    schema: &SchemaRef,
    columns: Vec<StringBuilder>,
    rows: usize,
) -> Result<Option<RecordBatch>, TableError> {
    if rows == 0 {
        return Ok(None);
    }
    let arrays: Vec<ArrayRef> = columns.into_iter().map(|mut c| Arc::new(c.finish()) as ArrayRef).collect();
    Ok(Some(RecordBatch::try_new(Arc::clone(schema), arrays)?))
}

impl Iterator for Csv {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.batch().map_err(ArrowError::from).transpose()
    }
}

impl RecordBatchReader for Csv {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

impl Iterator for JsonLines {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.batch().map_err(ArrowError::from).transpose()
    }
}

impl RecordBatchReader for JsonLines {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
