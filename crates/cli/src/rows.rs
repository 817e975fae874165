//! Reads operator files row by row: CSV or JSON Lines, plain or gzip. Holds no more than the rows it is asked for.
//!
//! Reading is apart from understanding, so that one thread can read while all understand and predict.

use crate::error::InputError;
use crate::input;
use anyhow::Context as _;
use flate2::bufread::MultiGzDecoder;
use preflop_core::names::did_you_mean;
use preflop_core::ops::{OpCall, row};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

/// A row is a line of text; one that goes on for this long is not an operator file.
const MAX_ROW_BYTES: usize = 1 << 20;
/// Buffer of the readers: large enough that system calls do not show.
const BUFFER_BYTES: usize = 1 << 16;
/// The columns we need.
const COLUMNS: [&str; 4] = ["op", "phase", "dtype", "shape"];

/// The rows of a file.
pub struct Rows {
    name: String,
    format: Format,
    consumed: Rc<Cell<u64>>,
}

enum Format {
    Csv { reader: csv::Reader<RowLimit>, columns: [usize; 4], since_row: Rc<Cell<usize>> },
    JsonLines { reader: Box<dyn BufRead>, line: u64 },
}

/// A row as it stands in the file. Kept and filled again, so that reading allocates nothing.
#[derive(Debug, Default)]
pub struct RawRow {
    line: u64,
    record: csv::ByteRecord,
    text: Vec<u8>,
}

/// How the rows of a file are to be understood.
#[derive(Debug, Clone, Copy)]
pub enum Dialect {
    /// CSV with op, phase, dtype and shape in these columns.
    Csv([usize; 4]),
    /// One JSON object per line.
    JsonLines,
}

impl RawRow {
    /// Line of the file, from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// The call, or what is wrong with the row.
    pub fn call(&self, dialect: Dialect) -> Result<OpCall, String> {
        let [op, phase, dtype, shape] = self.fields(dialect)?;
        row::parse(&op, &phase, &dtype, &shape).map_err(|e| e.to_string())
    }

    /// Operator, phase, number format and shape as texts.
    pub fn fields(&self, dialect: Dialect) -> Result<[Cow<'_, str>; 4], String> {
        match dialect {
            Dialect::Csv(columns) => csv_fields(&self.record, &columns).map(|f| f.map(Cow::Borrowed)),
            Dialect::JsonLines => json_fields(&self.text),
        }
    }
}

impl Rows {
    /// The rows of a text in memory.
    pub fn of(text: &'static [u8], name: &str) -> anyhow::Result<Self> {
        Self::new(Box::new(text), name.to_string())
    }

    /// Opens a file, or standard input for `-`. The content decides how it is read, not the name.
    pub fn open(path: &str) -> anyhow::Result<(Self, Option<u64>)> {
        let (source, size): (Box<dyn Read>, _) = if path == "-" {
            (Box::new(io::stdin().lock()), None)
        } else {
            let file = input::open(path)?;
            let size = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|m| m.len());
            (Box::new(file), size)
        };
        let name = if path == "-" { "standard input".to_string() } else { path.to_string() };
        Ok((Self::new(source, name)?, size))
    }

    fn new(source: Box<dyn Read>, name: String) -> anyhow::Result<Self> {
        let consumed = Rc::new(Cell::new(0));
        let counted = Counted { inner: source, consumed: Rc::clone(&consumed) };
        let mut raw = BufReader::with_capacity(BUFFER_BYTES, counted);
        let start = raw.fill_buf().with_context(|| format!("cannot read {name}"))?;
        let mut text: Box<dyn BufRead> = if start.starts_with(&[0x1f, 0x8b]) {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(raw)))
        } else {
            Box::new(raw)
        };
        let start = text.fill_buf().with_context(|| format!("cannot read {name}"))?;
        if start.starts_with(b"\xef\xbb\xbf") {
            text.consume(3);
        }
        let start = text.fill_buf().with_context(|| format!("cannot read {name}"))?;
        let format = match start.iter().find(|b| !b.is_ascii_whitespace()) {
            None => return Err(InputError::new(format!("{name} is empty")).hint(EXPECTED).into()),
            Some(b'{') => Format::JsonLines { reader: text, line: 0 },
            Some(b'[') => {
                let message = format!("{name}: a JSON array; give one object per line (JSON Lines) instead");
                return Err(InputError::new(message).into());
            }
            Some(_) => csv_format(text, &name)?,
        };
        Ok(Self { name, format, consumed })
    }

    /// Bytes taken from the file so far (before decompression).
    pub fn consumed(&self) -> u64 {
        self.consumed.get()
    }

    /// How to understand the rows.
    pub fn dialect(&self) -> Dialect {
        match &self.format {
            Format::Csv { columns, .. } => Dialect::Csv(*columns),
            Format::JsonLines { .. } => Dialect::JsonLines,
        }
    }

    /// Reads the next row into `row`; false at the end. An error means that nothing more can be read.
    pub fn read(&mut self, row: &mut RawRow) -> anyhow::Result<bool> {
        match &mut self.format {
            Format::Csv { reader, since_row, .. } => {
                since_row.set(0);
                let more = reader.read_byte_record(&mut row.record).map_err(|e| {
                    let line = reader.position().line();
                    InputError::new(format!("{}: line {line}: {}", self.name, csv_message(e)))
                })?;
                row.line = row.record.position().map_or(0, csv::Position::line);
                Ok(more)
            }
            Format::JsonLines { reader, line } => loop {
                *line += 1;
                row.text.clear();
                let mut limited = reader.take(MAX_ROW_BYTES as u64 + 1);
                let n = limited
                    .read_until(b'\n', &mut row.text)
                    .map_err(|e| InputError::new(format!("{}: line {line}: {e}", self.name)))?;
                if n == 0 {
                    return Ok(false);
                }
                if n > MAX_ROW_BYTES {
                    return Err(InputError::new(format!("{}: line {line}: {TOO_LONG}", self.name)).into());
                }
                if !row.text.iter().all(u8::is_ascii_whitespace) {
                    row.line = *line;
                    return Ok(true);
                }
            },
        }
    }
}

const TOO_LONG: &str = "a row of more than 1 MiB, so not an operator file";
const EXPECTED: &str = "an operator file is CSV or JSON Lines with op, phase, dtype, shape";

fn csv_message(error: csv::Error) -> String {
    match error.into_kind() {
        csv::ErrorKind::Io(e) => e.to_string(),
        kind => format!("{kind:?}"),
    }
}

fn csv_format(text: Box<dyn BufRead>, name: &str) -> anyhow::Result<Format> {
    let since_row = Rc::new(Cell::new(0));
    let limited = RowLimit { inner: text, since_row: Rc::clone(&since_row) };
    let mut reader =
        csv::ReaderBuilder::new().flexible(true).buffer_capacity(BUFFER_BYTES).from_reader(limited);
    let header = reader
        .byte_headers()
        .map_err(|e| InputError::new(format!("{name}: line 1: {}", csv_message(e))).hint(EXPECTED))?;
    let titles: Vec<String> =
        header.iter().map(|t| String::from_utf8_lossy(t).trim().chars().take(40).collect()).collect();
    let mut columns = [0; 4];
    for (place, wanted) in columns.iter_mut().zip(COLUMNS) {
        *place = titles.iter().position(|t| t == wanted).ok_or_else(|| {
            let close = did_you_mean(wanted, titles.iter().map(String::as_str));
            let message = format!("{name}: line 1: no column `{wanted}`{close}");
            InputError::new(message).hint(format!("{EXPECTED}; the first line names the columns"))
        })?;
    }
    Ok(Format::Csv { reader, columns, since_row })
}

fn csv_fields<'a>(record: &'a csv::ByteRecord, columns: &[usize; 4]) -> Result<[&'a str; 4], String> {
    let mut fields = [""; 4];
    for ((field, column), name) in fields.iter_mut().zip(columns).zip(COLUMNS) {
        let bytes = record.get(*column).ok_or_else(|| format!("the row has no column `{name}`"))?;
        *field = std::str::from_utf8(bytes).map_err(|_| format!("`{name}` is not UTF-8 text"))?.trim();
    }
    Ok(fields)
}

#[derive(Deserialize)]
struct JsonRow<'a> {
    #[serde(borrow)]
    op: Cow<'a, str>,
    #[serde(borrow)]
    phase: Cow<'a, str>,
    #[serde(borrow)]
    dtype: Cow<'a, str>,
    #[serde(borrow)]
    shape: &'a RawValue,
}

fn json_fields(line: &[u8]) -> Result<[Cow<'_, str>; 4], String> {
    let row: JsonRow = serde_json::from_slice(line).map_err(|e| without_line(&e))?;
    let shape = row.shape.get();
    // Tables converted from CSV keep the shape as a text that holds JSON.
    let shape: Cow<str> = if shape.starts_with('"') {
        serde_json::from_str(shape).map_err(|e| without_line(&e))?
    } else {
        Cow::Borrowed(shape)
    };
    Ok([row.op, row.phase, row.dtype, shape])
}

/// The parser counts lines within the row, which is always line 1; ours is the one that helps.
fn without_line(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", " at column ")
}

/// Counts what was read from the file, for the progress bar.
struct Counted {
    inner: Box<dyn Read>,
    consumed: Rc<Cell<u64>>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.consumed.set(self.consumed.get() + n as u64);
        Ok(n)
    }
}

/// Stops a quoted field that never ends from filling the memory.
struct RowLimit {
    inner: Box<dyn BufRead>,
    since_row: Rc<Cell<usize>>,
}

impl Read for RowLimit {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.since_row.set(self.since_row.get() + n);
        if self.since_row.get() > MAX_ROW_BYTES + BUFFER_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, TOO_LONG));
        }
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Line and call of every row.
    fn read(bytes: &[u8]) -> anyhow::Result<Vec<(u64, Result<OpCall, String>)>> {
        let mut rows = Rows::new(Box::new(io::Cursor::new(bytes.to_vec())), "x".to_string())?;
        let (mut out, mut row) = (Vec::new(), RawRow::default());
        while rows.read(&mut row)? {
            out.push((row.line(), row.call(rows.dialect())));
        }
        Ok(out)
    }

    #[test]
    fn csv_and_json_lines_give_the_same_calls() {
        let csv = "extra,shape,op,dtype,phase\n1,\"{\"\"m\"\":2,\"\"n\"\":3,\"\"k\"\":4}\",mm,fp32,fwd\n";
        let json = "\n{\"op\":\"mm\",\"phase\":\"fwd\",\"dtype\":\"fp32\",\"shape\":{\"m\":2,\"n\":3,\"k\":4},\"x\":1}\n";
        let text = json.replace(r#"{"m":2,"n":3,"k":4}"#, r#""{\"m\":2,\"n\":3,\"k\":4}""#);
        let a = read(csv.as_bytes()).unwrap();
        let b = read(json.as_bytes()).unwrap();
        let c = read(text.as_bytes()).unwrap();
        assert_eq!(a.len(), 1);
        assert!(a[0].1.is_ok());
        assert_eq!(a[0].1, b[0].1);
        assert_eq!(a[0].1, c[0].1);
        assert_eq!((a[0].0, b[0].0), (2, 2));
    }

    #[test]
    fn gzip_is_seen_by_content() {
        use std::io::Write as _;
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(b"op,phase,dtype,shape\nsum,fwd,fp32,\"{\"\"rows\"\":1,\"\"cols\"\":9}\"\n").unwrap();
        let gz = gz.finish().unwrap();
        assert!(read(&gz).unwrap()[0].1.is_ok());
        assert!(read(&gz[..gz.len() - 12]).is_err());
    }

    #[test]
    fn a_row_without_end_is_refused() {
        let endless = format!("op,phase,dtype,shape\n\"{}", "x".repeat(3 << 20));
        assert!(
            read(endless.as_bytes()).err().unwrap().to_string().contains("line 2: a row of more than 1 MiB")
        );
        let endless = format!("{{\"op\":\"{}", "x".repeat(3 << 20));
        assert!(
            read(endless.as_bytes()).err().unwrap().to_string().contains("line 1: a row of more than 1 MiB")
        );
    }

    #[test]
    fn wrong_files_say_so_at_once() {
        assert!(read(b"").err().unwrap().to_string().contains("empty"));
        assert!(read(b"[{}]").err().unwrap().to_string().contains("one object per line"));
        assert!(
            read(b"op,phase,dtype,shapes\n").err().unwrap().to_string().contains("did you mean `shapes`")
        );
        let bad = read(b"op,phase,dtype,shape\nmm,fwd\nmm,fwd,fp32,\xff\n").unwrap();
        assert_eq!(bad[0].1, Err("the row has no column `dtype`".to_string()));
        assert_eq!(bad[1].1, Err("`shape` is not UTF-8 text".to_string()));
    }
}
