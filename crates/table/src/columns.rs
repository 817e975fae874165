//! Cells of a batch, whatever type the tool that made the table gave them.

use crate::TableError;
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, RecordBatch, StringArray};
use arrow_schema::DataType;
use std::sync::Arc;

/// A value that holds for every row: a column that the table does not have.
pub type Fixed = (String, String);

/// The columns of one batch, with the values that hold for all rows.
#[derive(Debug, Clone, Default)]
pub struct Columns {
    named: Vec<(String, ArrayRef, bool)>,
}

/// One cell.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell<'a> {
    Text(&'a str),
    Whole(i64),
    Real(f64),
    Flag(bool),
    List(Vec<Cell<'a>>),
}

/// Brings an array to one of the few types that cells are read from; most are as they are, without a copy.
fn plain(column: &str, array: &ArrayRef) -> Result<ArrayRef, TableError> {
    use DataType as T;
    let to = match array.data_type() {
        T::Utf8
        | T::LargeUtf8
        | T::Utf8View
        | T::Int64
        | T::Float64
        | T::Boolean
        | T::Null
        | T::Struct(_) => {
            return Ok(Arc::clone(array));
        }
        T::List(_) | T::LargeList(_) | T::FixedSizeList(..) => T::new_list(T::Int64, true),
        T::Int8 | T::Int16 | T::Int32 | T::UInt8 | T::UInt16 | T::UInt32 | T::UInt64 => T::Int64,
        T::Float16 | T::Float32 | T::Decimal32(..) | T::Decimal64(..) | T::Decimal128(..) => T::Float64,
        T::Dictionary(_, values) if matches!(**values, T::Utf8 | T::LargeUtf8 | T::Utf8View) => T::Utf8,
        other => {
            let problem = format!("values of type {other} mean nothing here");
            return Err(TableError::Column { column: column.to_string(), problem });
        }
    };
    Ok(arrow_cast::cast(array, &to)?)
}

impl Columns {
    /// The columns of a batch. What is fixed holds where the table has no such column, or no value there.
    pub fn of(
        batch: &RecordBatch,
        wanted: impl Fn(&str) -> bool,
        fixed: &[Fixed],
    ) -> Result<Self, TableError> {
        let mut named = Vec::new();
        for (field, array) in batch.schema_ref().fields().iter().zip(batch.columns()) {
            if wanted(field.name()) {
                named.push((field.name().clone(), plain(field.name(), array)?, false));
            }
        }
        for (name, value) in fixed {
            if named.iter().any(|(n, ..)| n == name) {
                let problem = format!("the table has it; leave out `{name}` in the call, or drop the column");
                return Err(TableError::Column { column: name.clone(), problem });
            }
            named.push((name.clone(), Arc::new(StringArray::from(vec![value.as_str()])), true));
        }
        Ok(Self { named })
    }

    /// The column of that name.
    pub(crate) fn get(&self, name: &str) -> Option<Column<'_>> {
        let (name, array, constant) = self.named.iter().find(|(n, ..)| n == name)?;
        Some(Column { name, array, constant: *constant })
    }

    /// The columns whose names begin so, with the rest of their names.
    pub(crate) fn below(&self, prefix: &str) -> Vec<(&str, Column<'_>)> {
        self.named
            .iter()
            .filter_map(|(name, array, constant)| {
                Some((name.strip_prefix(prefix)?, Column { name, array, constant: *constant }))
            })
            .collect()
    }
}

/// One column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column<'a> {
    pub name: &'a str,
    array: &'a ArrayRef,
    constant: bool,
}

impl<'a> Column<'a> {
    /// A column of a struct.
    pub fn new(name: &'a str, array: &'a ArrayRef) -> Self {
        Self { name, array, constant: false }
    }

    pub fn data_type(&self) -> &'a DataType {
        self.array.data_type()
    }

    /// The fields of a column of structs.
    pub fn fields(&self) -> Result<Vec<(String, ArrayRef)>, TableError> {
        let DataType::Struct(fields) = self.array.data_type() else { return Ok(Vec::new()) };
        let columns = self.array.as_struct().columns();
        fields
            .iter()
            .zip(columns)
            .map(|(field, array)| Ok((field.name().clone(), plain(field.name(), array)?)))
            .collect()
    }

    /// The cell of a row; nothing where it is null, or NaN, which is how pandas writes that.
    pub fn cell(&self, row: usize) -> Option<Cell<'a>> {
        let row = if self.constant { 0 } else { row };
        if self.array.is_null(row) {
            return None;
        }
        Some(match self.array.data_type() {
            DataType::Utf8 => Cell::Text(self.array.as_string::<i32>().value(row)),
            DataType::LargeUtf8 => Cell::Text(self.array.as_string::<i64>().value(row)),
            DataType::Utf8View => Cell::Text(self.array.as_string_view().value(row)),
            DataType::Int64 => Cell::Whole(self.array.as_primitive::<Int64Type>().value(row)),
            DataType::Boolean => Cell::Flag(self.array.as_boolean().value(row)),
            DataType::Float64 => {
                let x = self.array.as_primitive::<Float64Type>().value(row);
                // Whole numbers with gaps become floats in data frames.
                return if x.is_nan() {
                    None
                } else if x.fract() == 0.0 && x.abs() < 9e15 {
                    Some(Cell::Whole(x as i64))
                } else {
                    Some(Cell::Real(x))
                };
            }
            DataType::List(_) => {
                let list = self.array.as_list::<i32>();
                let (from, to) = (list.value_offsets()[row] as usize, list.value_offsets()[row + 1] as usize);
                let values = list.values().as_primitive_opt::<Int64Type>()?;
                Cell::List(values.values()[from..to].iter().map(|v| Cell::Whole(*v)).collect())
            }
            _ => return None,
        })
    }

    /// The text of a row.
    pub fn text(&self, row: usize) -> Result<Option<&'a str>, String> {
        match self.cell(row) {
            None => Ok(None),
            Some(Cell::Text(text)) => Ok(Some(text.trim()).filter(|t| !t.is_empty())),
            Some(other) => Err(format!("`{}` is {other}; it must be a text", self.name)),
        }
    }

    /// The number of a row; a text that holds one will do, since files of text have nothing else.
    pub fn number(&self, row: usize) -> Result<Option<f64>, String> {
        let wrong =
            |shown: &dyn std::fmt::Display| format!("`{}` is {shown}; it must be a number", self.name);
        match self.cell(row) {
            None => Ok(None),
            Some(Cell::Whole(n)) => Ok(Some(n as f64)),
            Some(Cell::Real(x)) => Ok(Some(x)),
            Some(Cell::Text(text)) if text.trim().is_empty() => Ok(None),
            Some(Cell::Text(text)) => match text.trim().parse::<f64>() {
                Ok(x) if x.is_finite() => Ok(Some(x)),
                _ => Err(wrong(&format!("`{text}`"))),
            },
            Some(other) => Err(wrong(&other)),
        }
    }

    /// The count of a row, from 1 to `most`.
    pub fn count(&self, row: usize, most: u64) -> Result<Option<u64>, String> {
        let Some(x) = self.number(row)? else { return Ok(None) };
        if x < 1.0 || x.fract() != 0.0 || x > most as f64 {
            return Err(format!("`{}` is {x}; it must be a whole number from 1 to {most}", self.name));
        }
        Ok(Some(x as u64))
    }

    /// Yes or no.
    pub fn flag(&self, row: usize) -> Result<Option<bool>, String> {
        match self.cell(row) {
            None => Ok(None),
            Some(Cell::Flag(flag)) => Ok(Some(flag)),
            Some(Cell::Whole(n @ (0 | 1))) => Ok(Some(n == 1)),
            Some(Cell::Text(text)) => match text.trim().to_ascii_lowercase().as_str() {
                "" => Ok(None),
                "true" | "yes" | "1" => Ok(Some(true)),
                "false" | "no" | "0" => Ok(Some(false)),
                _ => Err(format!("`{}` is `{text}`; it must be true or false", self.name)),
            },
            Some(other) => Err(format!("`{}` is {other}; it must be true or false", self.name)),
        }
    }
}

impl std::fmt::Display for Cell<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => write!(f, "`{text}`"),
            Self::Whole(n) => write!(f, "{n}"),
            Self::Real(x) => write!(f, "{x}"),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::List(_) => f.write_str("a list"),
        }
    }
}
