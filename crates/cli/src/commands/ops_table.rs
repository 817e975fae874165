//! `preflop ops` with tables: Parquet or Arrow in, and any table out. Text in and JSON Lines out are `ops`' own.

use super::ops::{OpsArgs, Tally, write_prediction};
use crate::destination;
use crate::input;
use crate::output;
use crate::rows::{RawRow, Rows};
use crate::tables;
use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, ArrayRef, RecordBatch, RecordBatchReader, StringArray};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use preflop_table::format::{self, Format, Table, Writer, is_columnar};
use preflop_table::{Keep, Predicted, Question, TableError};
use std::cell::RefCell;
use std::io::{Read as _, Write as _};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

/// Rows of a batch that is made of text: less than a block, so that answers come batch by batch.
const ROWS: usize = 1 << 14;

/// Predicts, if a table is read or written; nothing where both ends are text.
pub fn run(args: &OpsArgs) -> Option<anyhow::Result<()>> {
    let is_table = args.file != "-" && columnar(&args.file);
    if !is_table && args.output.is_none() && args.format.is_none() {
        return None;
    }
    Some(predict(args, is_table))
}

/// Does the file begin as Parquet or Arrow do? What cannot be opened is complained about later. Of a pipe nothing is read here: it would be
/// missing later, and tables cannot be read from one.
fn columnar(path: &str) -> bool {
    if !std::fs::metadata(path).is_ok_and(|m| m.is_file()) {
        return false;
    }
    let mut start = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(8).read_to_end(&mut start));
    read.is_ok() && is_columnar(&start)
}

fn predict(args: &OpsArgs, is_table: bool) -> anyhow::Result<()> {
    let gpu = input::gpu(&args.gpu)?;
    let model = input::time_model(args.correction.as_deref(), [&gpu])?;
    let engine = Arc::new(tables::engine_of(model)?);
    let problems = Problems::default();
    let table: Box<dyn RecordBatchReader> = if is_table {
        Box::new(Chosen::new(format::open(input::open(&args.file)?, &args.file)?)?)
    } else {
        Box::new(Texts::new(Rows::open(&args.file)?.0, Rc::clone(&problems)))
    };
    let question = Question { fixed: vec![("gpu".to_string(), args.gpu.clone())], keep: Keep::All };
    let mut tally = Tally::default();
    if args.output.is_none() && args.format.is_none() {
        let mut out = output::stdout();
        for batch in table {
            for answer in engine.operators(&batch?, &question)? {
                tally.total += 1;
                match answer {
                    Ok(p) => write_prediction(&mut out, &p)?,
                    Err(problem) => {
                        let message = format!("row {}: {problem}", tally.total);
                        writeln!(out, "{}", serde_json::json!({ "error": message }))?;
                        tally.fail(&message);
                    }
                }
            }
        }
        out.flush()?;
        return tally.finish();
    }
    let path = args.output.as_deref().unwrap_or("-");
    let format = match (args.format, destination::is_stdout(path)) {
        (None, true) => Format::JsonLines,
        (given, _) => tables::format_of(path, given)?,
    };
    let answers = Predicted::new(table, engine, question)?;
    destination::write(path, |out| {
        let buffer = Buffer::default();
        let mut writer = Writer::new(buffer.clone(), format, &answers.schema())?;
        for batch in answers {
            let batch = with_problems(batch?, &problems.take())?;
            count(&batch, &mut tally);
            writer.write(&batch)?;
            out.write_all(&buffer.take())?;
        }
        out.write_all(&writer.finish()?.take())?;
        Ok(())
    })?;
    tally.finish()
}

/// Rows of the current batch that could not be read, and why.
type Problems = Rc<RefCell<Vec<(usize, String)>>>;

/// What was wrong with the text of a row says more than that it has no operator.
fn with_problems(batch: RecordBatch, problems: &[(usize, String)]) -> anyhow::Result<RecordBatch> {
    if problems.is_empty() {
        return Ok(batch);
    }
    let schema = batch.schema();
    let mut columns = batch.columns().to_vec();
    let place = schema.index_of("error")?;
    let mut errors: Vec<Option<&str>> = columns[place].as_string::<i32>().iter().collect();
    for (row, problem) in problems {
        errors[*row] = Some(problem);
    }
    let errors: ArrayRef = Arc::new(StringArray::from(errors));
    columns[place] = errors;
    Ok(RecordBatch::try_new(schema, columns)?)
}

fn count(batch: &RecordBatch, tally: &mut Tally) {
    let before = tally.total;
    tally.total += batch.num_rows() as u64;
    let Some(errors) = batch.column_by_name("error").and_then(|c| c.as_string_opt::<i32>()) else { return };
    for row in (0..errors.len()).filter(|row| errors.is_valid(*row)) {
        tally.fail(&format!("row {}: {}", before + row as u64 + 1, errors.value(row)));
    }
}

/// Bytes on their way to a place that the writers of tables cannot own.
#[derive(Debug, Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Buffer {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl std::io::Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A file of text, as batches of texts.
struct Texts {
    rows: Rows,
    schema: SchemaRef,
    problems: Problems,
}

impl Texts {
    fn new(rows: Rows, problems: Problems) -> Self {
        let text = |name: &str| Field::new(name, DataType::Utf8, true);
        let schema = Schema::new(["op", "phase", "dtype", "shape"].map(text).to_vec());
        Self { rows, schema: Arc::new(schema), problems }
    }

    fn batch(&mut self) -> anyhow::Result<Option<RecordBatch>> {
        let mut columns: [StringBuilder; 4] = Default::default();
        let (mut row, mut count) = (RawRow::default(), 0);
        while count < ROWS && self.rows.read(&mut row)? {
            match row.fields(self.rows.dialect()) {
                Ok(fields) => columns.iter_mut().zip(fields).for_each(|(c, text)| c.append_value(text)),
                Err(problem) => {
                    self.problems.borrow_mut().push((count, format!("line {}: {problem}", row.line())));
                    columns.iter_mut().for_each(StringBuilder::append_null);
                }
            }
            count += 1;
        }
        if count == 0 {
            return Ok(None);
        }
        let arrays = columns.map(|mut c| Arc::new(c.finish()) as ArrayRef).to_vec();
        Ok(Some(RecordBatch::try_new(Arc::clone(&self.schema), arrays)?))
    }
}

impl Iterator for Texts {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let failed = |e: anyhow::Error| ArrowError::ExternalError(format!("{e:#}").into());
        self.batch().map_err(failed).transpose()
    }
}

impl RecordBatchReader for Texts {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// The columns of a table that say what the operators are; others are ignored, as in a file of text.
struct Chosen {
    table: Table,
    places: Vec<usize>,
    schema: SchemaRef,
}

impl Chosen {
    fn new(table: Table) -> Result<Self, TableError> {
        let all = table.schema();
        let wanted =
            |name: &str| matches!(name, "op" | "phase" | "dtype" | "shape") || name.starts_with("shape.");
        let places: Vec<usize> = (0..all.fields().len()).filter(|i| wanted(all.field(*i).name())).collect();
        let schema = Arc::new(all.project(&places)?);
        Ok(Self { table, places, schema })
    }
}

impl Iterator for Chosen {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.table.next()?.and_then(|batch| batch.project(&self.places)))
    }
}

impl RecordBatchReader for Chosen {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
