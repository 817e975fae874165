//! One file of many parts. The column chunks of Parquet parts are copied as they are, so that putting a billion rows together costs no
//! more than copying them.

use super::write::properties;
use super::{Format, Writer};
use crate::TableError;
use arrow_schema::SchemaRef;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::column::writer::ColumnCloseResult;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// Rows read at once from a part that is written in another format.
const ROWS: usize = 1 << 14;

/// Puts Parquet parts together, in the order in which they come.
pub struct Assembler<W: Write + Send> {
    how: How<W>,
}

enum How<W: Write + Send> {
    /// Not started: the first part says the schema.
    Parquet {
        out: Option<W>,
        file: Option<Box<SerializedFileWriter<W>>>,
    },
    Other {
        out: Option<W>,
        format: Format,
        writer: Option<Box<Writer<W>>>,
    },
}

impl<W: Write + Send> std::fmt::Debug for Assembler<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Assembler").finish_non_exhaustive()
    }
}

impl<W: Write + Send> Assembler<W> {
    /// Starts a file.
    pub fn new(out: W, format: Format) -> Self {
        let out = Some(out);
        let how = match format {
            Format::Parquet => How::Parquet { out, file: None },
            format => How::Other { out, format, writer: None },
        };
        Self { how }
    }

    /// Adds a part.
    pub fn add(&mut self, part: &Path) -> Result<(), TableError> {
        let input = File::open(part)?;
        match &mut self.how {
            How::Parquet { out, file } => {
                let reader = SerializedFileReader::new(input.try_clone()?)?;
                let metadata = reader.metadata();
                if let Some(out) = out.take() {
                    let schema = metadata.file_metadata().schema_descr().root_schema_ptr();
                    let arrow = metadata.file_metadata().key_value_metadata().cloned();
                    let properties = properties().into_builder().set_key_value_metadata(arrow).build();
                    *file = Some(Box::new(SerializedFileWriter::new(out, schema, Arc::new(properties))?));
                }
                let Some(file) = file else { return Ok(()) };
                for group in metadata.row_groups() {
                    let mut to = file.next_row_group()?;
                    for column in group.columns() {
                        let close = ColumnCloseResult {
                            bytes_written: column.compressed_size().cast_unsigned(),
                            rows_written: group.num_rows().cast_unsigned(),
                            metadata: column.clone(),
                            bloom_filter: None,
                            column_index: None,
                            offset_index: None,
                        };
                        to.append_column(&input, close)?;
                    }
                    to.close()?;
                }
            }
            How::Other { out, format, writer } => {
                let reader = ParquetRecordBatchReaderBuilder::try_new(input)?.with_batch_size(ROWS);
                let schema: SchemaRef = Arc::clone(reader.schema());
                if let Some(out) = out.take() {
                    *writer = Some(Box::new(Writer::new(out, *format, &schema)?));
                }
                let Some(writer) = writer else { return Ok(()) };
                for batch in reader.build()? {
                    writer.write(&batch?)?;
                }
            }
        }
        Ok(())
    }

    /// Writes what is left, and gives back where it went; nothing where no part was added.
    pub fn finish(self) -> Result<Option<W>, TableError> {
        match self.how {
            How::Parquet { file, .. } => Ok(file.map(|f| f.into_inner()).transpose()?),
            How::Other { writer, .. } => writer.map(|w| w.finish()).transpose(),
        }
    }
}

/// Rows of a part, and how many of them have an error, from its statistics.
pub fn errors_of(part: &Path) -> Result<(u64, u64), TableError> {
    let reader = SerializedFileReader::new(File::open(part)?)?;
    let (mut rows, mut failed) = (0, 0);
    for group in reader.metadata().row_groups() {
        let count = group.num_rows().cast_unsigned();
        let error = group.columns().iter().find(|c| c.column_path().string() == "error");
        let nulls = error.and_then(|c| c.statistics()?.null_count_opt());
        rows += count;
        failed += nulls.map_or(0, |nulls| count.saturating_sub(nulls));
    }
    Ok((rows, failed))
}
