use super::*;
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array as _, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;

fn batch(from: i64) -> RecordBatch {
    let schema = Schema::new(vec![
        Field::new("name", DataType::Utf8, true),
        Field::new("n", DataType::Int64, true),
        Field::new("x", DataType::Float64, true),
        Field::new("fits", DataType::Boolean, true),
        Field::new("error", DataType::Utf8, true),
    ]);
    RecordBatch::try_new(
        Arc::new(schema),
        vec![
            Arc::new(StringArray::from(vec![Some("a,\"b\""), None, Some("c")])),
            Arc::new(Int64Array::from(vec![from, from + 1, from + 2])),
            Arc::new(Float64Array::from(vec![Some(1.5), None, Some(0.1)])),
            Arc::new(BooleanArray::from(vec![Some(true), Some(false), None])),
            Arc::new(StringArray::from(vec![None, Some("no"), None])),
        ],
    )
    .unwrap()
}

fn written(format: Format, batches: &[RecordBatch]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), format, &batches[0].schema()).unwrap();
    for b in batches {
        writer.write(b).unwrap();
    }
    writer.finish().unwrap()
}

fn reopened(bytes: &[u8]) -> Result<Table, TableError> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    std::io::Seek::rewind(&mut file).unwrap();
    open(file, "x")
}

#[test]
fn formats_go_by_ending() {
    assert_eq!(Format::of_path("a.b/OUT.PARQUET").unwrap(), Format::Parquet);
    assert_eq!(Format::of_path("x.feather").unwrap(), Format::Arrow);
    assert_eq!(Format::of_path("x.jsonl").unwrap(), Format::JsonLines);
    for bad in ["x", "x.xlsx", ".parquet", ""] {
        assert!(Format::of_path(bad).is_err(), "{bad}");
    }
    assert_eq!(Format::from_name("csv"), Some(Format::Csv));
}

#[test]
fn columnar_files_read_back_as_they_were() {
    for format in [Format::Parquet, Format::Arrow, Format::ArrowStream] {
        let bytes = written(format, &[batch(0), batch(3)]);
        assert_eq!(bytes, written(format, &[batch(0), batch(3)]), "{format:?} is not the same twice");
        assert!(is_columnar(&bytes));
        let table = reopened(&bytes).unwrap();
        let schema = table.schema();
        let all: Vec<RecordBatch> = table.map(Result::unwrap).collect();
        let all = crate::joined(&schema, &all).unwrap();
        let n = all.column(1).as_primitive::<Int64Type>();
        assert_eq!(n.values(), &[0, 1, 2, 3, 4, 5], "{format:?}");
        assert!(all.column(0).is_null(1) && all.column(3).is_null(5), "{format:?}");
        assert_eq!(all.column(2).as_primitive::<Float64Type>().value(2), 0.1);
    }
}

#[test]
fn text_files_read_back_as_texts() {
    for format in [Format::Csv, Format::JsonLines] {
        let bytes = written(format, &[batch(0), batch(3)]);
        assert!(!is_columnar(&bytes));
        let table = reopened(&bytes).unwrap();
        let schema = table.schema();
        let all = crate::joined(&schema, &table.map(Result::unwrap).collect::<Vec<_>>()).unwrap();
        assert_eq!(all.num_rows(), 6, "{format:?}");
        let names = all.column_by_name("name").unwrap().as_string::<i32>();
        assert_eq!(names.value(3), "a,\"b\"");
        assert!(names.is_null(1), "{format:?}");
        assert_eq!(all.column_by_name("n").unwrap().as_string::<i32>().value(4), "4");
    }
}

#[test]
fn parts_are_put_together_in_any_format() {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..3).map(|i| folder.path().join(format!("part-{i}.parquet"))).collect();
    for (i, path) in paths.iter().enumerate() {
        std::fs::write(path, parquet_bytes(&batch(3 * i64::try_from(i).unwrap())).unwrap()).unwrap();
        assert_eq!(errors_of(path).unwrap(), (3, 1));
    }
    for format in Format::ALL.map(|(format, ..)| format) {
        let mut assembler = Assembler::new(Vec::new(), format);
        for path in &paths {
            assembler.add(path).unwrap();
        }
        let bytes = assembler.finish().unwrap().unwrap();
        let table = reopened(&bytes).unwrap();
        let schema = table.schema();
        let all = crate::joined(&schema, &table.map(Result::unwrap).collect::<Vec<_>>()).unwrap();
        assert_eq!(all.num_rows(), 9, "{format:?}");
        let n = all.column_by_name("n").unwrap();
        let last = n
            .as_primitive_opt::<Int64Type>()
            .map_or_else(|| n.as_string::<i32>().value(8).to_string(), |n| n.value(8).to_string());
        assert_eq!(last, "8", "{format:?}");
    }
}

#[test]
fn broken_files_say_so_on_one_line() {
    let parquet = written(Format::Parquet, &[batch(0)]);
    let arrow = written(Format::Arrow, &[batch(0)]);
    let mut odd: Vec<Vec<u8>> = vec![
        Vec::new(),
        b" \n".to_vec(),
        b"[{\"a\":1}]".to_vec(),
        b"{\"a\":1}\n{\"b\":".to_vec(),
        b"a,b\n1,2,3\n".to_vec(),
        b"PAR1".to_vec(),
        b"ARROW1".to_vec(),
        vec![0x1f, 0x8b, 8, 0],
    ];
    // Fewer bytes than eight do not say what they are.
    for cut in [8, 20, 100, parquet.len() / 2, parquet.len() - 1] {
        odd.push(parquet[..cut.min(parquet.len())].to_vec());
        odd.push(arrow[..cut.min(arrow.len() - 1)].to_vec());
    }
    for bytes in odd {
        let ended = reopened(&bytes).and_then(|t| Ok(t.collect::<Result<Vec<_>, _>>()?));
        let error = ended.expect_err("a broken file was read").to_string();
        assert!(!error.contains('\n') && !error.is_empty(), "{error}");
    }
}

#[test]
fn rows_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    for format in Format::ALL.map(|(format, ..)| format) {
        let path = folder.path().join(format.name());
        std::fs::write(&path, written(format, &[batch(0), batch(3)])).unwrap();
        assert_eq!(rows(File::open(&path).unwrap(), "x").unwrap(), 6, "{format:?}");
    }
}

/// Every byte of a columnar file changed in five ways, and the file cut at every byte: rows or an error of one line.
#[test]
fn damaged_columnar_files_are_errors() {
    let read = |bytes: &[u8]| -> Result<usize, String> {
        let table = reopened(bytes).map_err(|e| e.to_string())?;
        table.map(|batch| batch.map(|b| b.num_rows()).map_err(|e| e.to_string())).sum()
    };
    for format in [Format::Parquet, Format::Arrow, Format::ArrowStream] {
        let bytes = written(format, &[batch(0), batch(3)]);
        assert_eq!(read(&bytes), Ok(6));
        let mut refused = 0;
        for place in 0..bytes.len() {
            for change in [0x01, 0x10, 0x7f, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[place] ^= change;
                refused += usize::from(read(&damaged).is_err());
            }
            refused += usize::from(read(&bytes[..place]).is_err());
        }
        assert!(refused > bytes.len(), "{format:?}: {refused} of {} places", bytes.len());
    }
}
