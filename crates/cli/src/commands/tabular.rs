//! Results as a file: CSV, JSON, and Parquet where it is built in.

use crate::destination;
use crate::error::InputError;
use anyhow::Context as _;
use serde::Serialize;
use std::io::Write;
use std::path::Path;

/// A column of a table.
#[derive(Debug, Clone)]
pub enum Column {
    /// Words.
    Text(Vec<String>),
    /// Numbers.
    Number(Vec<f64>),
    /// Counts.
    Count(Vec<u64>),
    /// Yes or no.
    Flag(Vec<bool>),
}

/// A table with named columns of equal length.
pub type Columns = Vec<(String, Column)>;

/// File formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One line per row.
    Csv,
    /// What `--json` prints.
    Json,
    /// Columns, for data frames.
    Parquet,
}

impl Format {
    /// By the ending of a file name.
    pub fn of_path(path: &str) -> anyhow::Result<Self> {
        let ending = Path::new(path).extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
        match ending.as_deref() {
            _ if destination::is_stdout(path) => Ok(Self::Csv),
            Some("csv") => Ok(Self::Csv),
            Some("json") => Ok(Self::Json),
            Some("parquet") if cfg!(feature = "parquet") => Ok(Self::Parquet),
            Some("parquet") => Err(InputError::new(format!("`{path}`: this build cannot write Parquet"))
                .hint("build with `--features parquet`, or write .csv or .json")
                .into()),
            _ => Err(InputError::new(format!("cannot tell the format of `{path}`"))
                .hint("name it .csv, .json or .parquet; --plot draws .svg and .png")
                .into()),
        }
    }
}

/// Writes the table, or as JSON the value that `--json` prints.
pub fn write(path: &str, format: Format, columns: &Columns, json: &impl Serialize) -> anyhow::Result<()> {
    let failed = || format!("cannot write `{path}`");
    destination::write(path, |mut out| match format {
        Format::Csv => write_csv(out, columns).with_context(failed),
        Format::Json => {
            serde_json::to_writer(&mut out, json).with_context(failed)?;
            writeln!(out).with_context(failed)
        }
        #[cfg(feature = "parquet")]
        Format::Parquet => write_parquet(out, columns).with_context(failed),
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => Format::of_path(path).map(|_| ()),
    })
}

fn rows(columns: &Columns) -> usize {
    columns.first().map_or(0, |(_, column)| match column {
        Column::Text(v) => v.len(),
        Column::Number(v) => v.len(),
        Column::Count(v) => v.len(),
        Column::Flag(v) => v.len(),
    })
}

fn write_csv(out: impl Write, columns: &Columns) -> anyhow::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(columns.iter().map(|(name, _)| name.as_str()))?;
    for i in 0..rows(columns) {
        writer.write_record(columns.iter().map(|(_, column)| match column {
            Column::Text(v) => v[i].clone(),
            Column::Number(v) => v[i].to_string(),
            Column::Count(v) => v[i].to_string(),
            Column::Flag(v) => v[i].to_string(),
        }))?;
    }
    Ok(writer.flush()?)
}

#[cfg(feature = "parquet")]
fn write_parquet(out: &mut dyn Write, columns: &Columns) -> anyhow::Result<()> {
    use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    use std::fmt::Write as _;
    use std::sync::Arc;

    let mut schema = String::from("message rows {");
    for (name, column) in columns {
        let kind = match column {
            Column::Text(_) => format!("binary {name} (UTF8)"),
            Column::Number(_) => format!("double {name}"),
            Column::Count(_) => format!("int64 {name}"),
            Column::Flag(_) => format!("boolean {name}"),
        };
        write!(schema, " required {kind};")?;
    }
    schema.push('}');
    let schema = Arc::new(parse_message_type(&schema)?);
    let mut file = SerializedFileWriter::new(out, schema, Arc::new(WriterProperties::default()))?;
    let mut group = file.next_row_group()?;
    for (name, column) in columns {
        let mut writer = group.next_column()?.with_context(|| format!("no Parquet column for `{name}`"))?;
        match column {
            Column::Text(v) => {
                let bytes: Vec<ByteArray> = v.iter().map(|t| ByteArray::from(t.as_str())).collect();
                writer.typed::<ByteArrayType>().write_batch(&bytes, None, None)?;
            }
            Column::Number(v) => {
                writer.typed::<DoubleType>().write_batch(v, None, None)?;
            }
            Column::Count(v) => {
                let signed: Vec<i64> = v.iter().map(|n| n.cast_signed()).collect();
                writer.typed::<Int64Type>().write_batch(&signed, None, None)?;
            }
            Column::Flag(v) => {
                writer.typed::<BoolType>().write_batch(v, None, None)?;
            }
        }
        writer.close()?;
    }
    group.close()?;
    file.close()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> Columns {
        vec![
            ("name".into(), Column::Text(vec!["a,b".into(), "c".into()])),
            ("x".into(), Column::Number(vec![1.5, 2.0])),
            ("n".into(), Column::Count(vec![1, 2])),
            ("front".into(), Column::Flag(vec![true, false])),
        ]
    }

    #[test]
    fn csv_quotes_what_needs_it() {
        let mut out = Vec::new();
        write_csv(&mut out, &columns()).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "name,x,n,front\n\"a,b\",1.5,1,true\nc,2,2,false\n");
    }

    #[test]
    fn formats_by_ending() {
        assert_eq!(Format::of_path("a.CSV").unwrap(), Format::Csv);
        assert_eq!(Format::of_path("a.json").unwrap(), Format::Json);
        assert!(Format::of_path("a.xlsx").is_err());
        assert_eq!(Format::of_path("a.parquet").is_ok(), cfg!(feature = "parquet"));
    }

    #[cfg(feature = "parquet")]
    #[test]
    fn parquet_reads_back() {
        use parquet::file::reader::{FileReader as _, SerializedFileReader};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        write_parquet(&mut std::fs::File::create(&path).unwrap(), &columns()).unwrap();
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let rows: Vec<String> = reader.get_row_iter(None).unwrap().map(|r| r.unwrap().to_string()).collect();
        assert_eq!(rows.len(), 2);
        assert!(rows[0].contains("a,b") && rows[0].contains("1.5") && rows[0].contains("true"), "{rows:?}");
    }
}
