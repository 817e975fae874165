//! Writes batches. The same batches give the same bytes: no clock, no host, no thread has a say.

use super::Format;
use crate::TableError;
use arrow_array::RecordBatch;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_json::LineDelimitedWriter;
use arrow_schema::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use std::io::Write;
use std::sync::Arc;

/// Rows of a row group: a part of a sweep is one, unless it is made larger than usual.
const GROUP_ROWS: usize = 1 << 17;

/// Snappy: every reader has it, and figures hardly get smaller with more effort.
pub(super) fn properties() -> WriterProperties {
    WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(format!("preflop {}", env!("CARGO_PKG_VERSION")))
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .build()
}

/// A file of batches under way.
pub struct Writer<W: Write + Send> {
    how: How<W>,
}

enum How<W: Write + Send> {
    Parquet(Box<ArrowWriter<W>>),
    Arrow(Box<FileWriter<W>>),
    ArrowStream(Box<StreamWriter<W>>),
    Csv(Box<csv::Writer<W>>),
    JsonLines(Box<LineDelimitedWriter<W>>),
}

impl<W: Write + Send> std::fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

impl<W: Write + Send> Writer<W> {
    /// Starts a file of batches with this schema.
    pub fn new(out: W, format: Format, schema: &SchemaRef) -> Result<Self, TableError> {
        let how = match format {
            Format::Parquet => {
                How::Parquet(Box::new(ArrowWriter::try_new(out, Arc::clone(schema), Some(properties()))?))
            }
            Format::Arrow => How::Arrow(Box::new(FileWriter::try_new(out, schema)?)),
            Format::ArrowStream => How::ArrowStream(Box::new(StreamWriter::try_new(out, schema)?)),
            Format::Csv => {
                let mut writer = csv::Writer::from_writer(out);
                writer
                    .write_record(schema.fields().iter().map(|f| f.name()))
                    .map_err(std::io::Error::from)?;
                How::Csv(Box::new(writer))
            }
            Format::JsonLines => How::JsonLines(Box::new(LineDelimitedWriter::new(out))),
        };
        Ok(Self { how })
    }

    /// Adds rows.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), TableError> {
        match &mut self.how {
            How::Parquet(writer) => writer.write(batch)?,
            How::Arrow(writer) => writer.write(batch)?,
            How::ArrowStream(writer) => writer.write(batch)?,
            How::Csv(writer) => write_csv(writer, batch)?,
            How::JsonLines(writer) => writer.write(batch)?,
        }
        Ok(())
    }

    /// Writes what is left, and gives back where it went.
    pub fn finish(self) -> Result<W, TableError> {
        Ok(match self.how {
            How::Parquet(writer) => writer.into_inner()?,
            How::Arrow(mut writer) => {
                writer.finish()?;
                writer.into_inner()?
            }
            How::ArrowStream(mut writer) => {
                writer.finish()?;
                writer.into_inner()?
            }
            How::Csv(writer) => {
                writer.into_inner().map_err(|e| std::io::Error::other(e.error().to_string()))?
            }
            How::JsonLines(mut writer) => {
                writer.finish()?;
                writer.into_inner()
            }
        })
    }
}

/// Null is an empty field; numbers are written so that they read back as they were.
fn write_csv<W: Write>(writer: &mut csv::Writer<W>, batch: &RecordBatch) -> Result<(), TableError> {
    let options = FormatOptions::default();
    let columns: Result<Vec<ArrayFormatter>, _> =
        batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options)).collect();
    let columns = columns?;
    let mut text = String::new();
    for row in 0..batch.num_rows() {
        for column in &columns {
            text.clear();
            column.value(row).write(&mut text)?;
            writer.write_field(&text).map_err(std::io::Error::from)?;
        }
        writer.write_record(None::<&[u8]>).map_err(std::io::Error::from)?;
    }
    Ok(())
}

/// A batch as a Parquet file in memory: one row group.
pub fn parquet_bytes(batch: &RecordBatch) -> Result<Vec<u8>, TableError> {
    let mut writer = Writer::new(Vec::new(), Format::Parquet, &batch.schema())?;
    writer.write(batch)?;
    writer.finish()
}
