//! Opens a file of a table. Its content says what it is, not its name.

use super::{guard, lengths, text};
use crate::TableError;
use arrow_array::RecordBatchReader;
use arrow_ipc::reader::{FileReader, StreamReader};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _};

/// The batches of a file.
pub type Table = Box<dyn RecordBatchReader + Send>;

/// Rows of a batch.
const ROWS: usize = 1 << 14;

/// The first bytes of a stream of Arrow messages.
const STREAM: [u8; 4] = [0xff; 4];

/// Does a file that begins so hold columns? The others are text.
pub fn is_columnar(start: &[u8]) -> bool {
    start.starts_with(b"PAR1") || start.starts_with(b"ARROW1") || start.starts_with(&STREAM)
}

/// The batches of a file that was opened.
pub fn open(mut file: File, name: &str) -> Result<Table, TableError> {
    let failed = |problem: String| TableError::File { file: name.to_string(), problem };
    let mut start = [0; 8];
    let mut read = 0;
    while read < start.len() {
        match file.read(&mut start[read..])? {
            0 => break,
            n => read += n,
        }
    }
    let start = &start[..read];
    if start.iter().all(u8::is_ascii_whitespace) && start.len() < 8 {
        return Err(failed("the file is empty".to_string()));
    }
    file.rewind().map_err(|_| failed("a table is read from a file, not from a pipe".to_string()))?;
    let plain =
        |e: &dyn std::fmt::Display| failed(e.to_string().split_whitespace().collect::<Vec<_>>().join(" "));
    if is_columnar(start) {
        let parquet = start.starts_with(b"PAR1");
        let whole = start.starts_with(b"ARROW1");
        return guard::open(name, || {
            if parquet {
                let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| plain(&e))?;
                return Ok(Box::new(builder.with_batch_size(ROWS).build().map_err(|e| plain(&e))?));
            }
            let fits = if whole { lengths::of_file(&mut file) } else { lengths::of_stream(&mut file) };
            fits.map_err(failed)?;
            file.rewind()?;
            let file = BufReader::new(file);
            if whole {
                return Ok(Box::new(FileReader::try_new(file, None).map_err(|e| plain(&e))?));
            }
            Ok(Box::new(StreamReader::try_new(file, None).map_err(|e| plain(&e))?))
        });
    }
    let mut reader = BufReader::with_capacity(1 << 16, file);
    if reader.fill_buf()?.starts_with(b"\xef\xbb\xbf") {
        reader.consume(3);
    }
    match reader.fill_buf()?.iter().find(|b| !b.is_ascii_whitespace()) {
        Some(b'{') => Ok(Box::new(text::JsonLines::new(Box::new(reader), name)?)),
        Some(b'[') => Err(failed("a JSON array; give one object per line (JSON Lines) instead".to_string())),
        Some(0x1f) => Err(failed("compressed; unpack it first".to_string())),
        _ => Ok(Box::new(text::Csv::new(Box::new(reader), name)?)),
    }
}

/// How many rows a file has: Parquet says so, other files are read for it.
pub fn rows(file: File, name: &str) -> Result<u64, TableError> {
    let mut start = [0; 4];
    let mut copy = file.try_clone()?;
    if copy.read(&mut start)? == 4 && start == *b"PAR1" {
        let rows = ParquetRecordBatchReaderBuilder::try_new(file)?.metadata().file_metadata().num_rows();
        return Ok(rows.cast_unsigned());
    }
    copy.rewind()?;
    open(file, name)?.try_fold(0, |sum, batch| Ok(sum + batch?.num_rows() as u64))
}
