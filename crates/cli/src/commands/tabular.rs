//! Results as a file: CSV, JSON, Parquet.

use crate::destination;
use crate::error::InputError;
use anyhow::Context as _;
use arrow_array::{Array as _, ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{Field, Schema};
use preflop_table::format::parquet_bytes;
use serde::Serialize;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

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
            Some("parquet") => Ok(Self::Parquet),
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
        Format::Parquet => write_parquet(out, columns).with_context(failed),
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

fn write_parquet(out: &mut dyn Write, columns: &Columns) -> anyhow::Result<()> {
    let (mut fields, mut arrays): (Vec<Field>, Vec<ArrayRef>) = (Vec::new(), Vec::new());
    for (name, column) in columns {
        let array: ArrayRef = match column {
            Column::Text(v) => Arc::new(StringArray::from_iter_values(v)),
            Column::Number(v) => Arc::new(Float64Array::from_iter_values(v.iter().copied())),
            Column::Count(v) => Arc::new(Int64Array::from_iter_values(v.iter().map(|n| n.cast_signed()))),
            Column::Flag(v) => Arc::new(BooleanArray::from(v.clone())),
        };
        fields.push(Field::new(name, array.data_type().clone(), false));
        arrays.push(array);
    }
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?;
    Ok(out.write_all(&parquet_bytes(&batch)?)?)
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
        assert_eq!(Format::of_path("a.parquet").unwrap(), Format::Parquet);
    }

    #[test]
    fn parquet_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        write_parquet(&mut std::fs::File::create(&path).unwrap(), &columns()).unwrap();
        let mut table =
            preflop_table::format::open(std::fs::File::open(&path).unwrap(), "t.parquet").unwrap();
        let batch = table.next().unwrap().unwrap();
        assert!(table.next().is_none());
        assert_eq!(batch.num_rows(), 2);
        let names = batch.column(0).as_any().downcast_ref::<StringArray>().unwrap();
        assert_eq!((names.value(0), names.value(1)), ("a,b", "c"));
        let x = batch.column(1).as_any().downcast_ref::<Float64Array>().unwrap();
        assert_eq!(x.values(), &[1.5, 2.0]);
    }
}
