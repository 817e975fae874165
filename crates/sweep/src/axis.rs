//! One column of a study and the values it takes.

use arrow_array::builder::{BooleanBuilder, Float64Builder, Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, BooleanArray};
use arrow_schema::{DataType, Field};
use std::sync::Arc;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Whole(i64),
    Real(f64),
    Flag(bool),
}

impl Value {
    pub fn kind(&self) -> DataType {
        match self {
            Self::Text(_) => DataType::Utf8,
            Self::Whole(_) => DataType::Int64,
            Self::Real(_) => DataType::Float64,
            Self::Flag(_) => DataType::Boolean,
        }
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Whole(n) => write!(f, "{n}"),
            Self::Real(x) => write!(f, "{x}"),
            Self::Flag(flag) => write!(f, "{flag}"),
        }
    }
}

/// The values of a column.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Values {
    /// These, in this order.
    List(Vec<Value>),
    /// Any number between two, for random designs.
    Range { from: f64, to: f64, log: bool, whole: bool },
}

impl Values {
    /// How many there are; nothing where they are not counted.
    pub fn count(&self) -> Option<u64> {
        match self {
            Self::List(values) => Some(values.len() as u64),
            Self::Range { .. } => None,
        }
    }

    /// The value at a place from 0 to below 1.
    pub fn at(&self, place: f64) -> Value {
        match self {
            Self::List(values) => {
                let i = ((place * values.len() as f64) as usize).min(values.len().saturating_sub(1));
                values[i].clone()
            }
            Self::Range { from, to, log, whole } => {
                // Whole numbers have bins of equal width around them, the ends too.
                let (low, high) = if *whole { (from - 0.5, to + 0.5) } else { (*from, *to) };
                let x = if *log {
                    let (low, high) = (low.max(0.5 * from).ln(), high.ln());
                    (low + place * (high - low)).exp()
                } else {
                    low + place * (high - low)
                };
                if *whole {
                    Value::Whole(x.round().clamp(*from, *to) as i64)
                } else {
                    Value::Real(x.clamp(*from, *to))
                }
            }
        }
    }
}

/// A column of a study.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Axis {
    /// Name of the column.
    pub name: String,
    /// Line of the study file.
    pub line: usize,
    pub values: Values,
}

impl Axis {
    /// The type of the column: a text, a whole number, a number, a flag. Figures of GPUs are numbers.
    pub fn kind(&self) -> DataType {
        if self.name.starts_with("gpu.") || self.name == "usd_per_hour" {
            return DataType::Float64;
        }
        match &self.values {
            Values::Range { whole: true, .. } => DataType::Int64,
            Values::Range { .. } => DataType::Float64,
            Values::List(values) => {
                let mut kinds = values.iter().map(Value::kind);
                let first = kinds.next().unwrap_or(DataType::Utf8);
                kinds.fold(first, |kind, other| if kind == other { kind } else { wider(&kind, &other) })
            }
        }
    }

    pub fn field(&self) -> Field {
        Field::new(&self.name, self.kind(), true)
    }
}

/// Whole numbers and numbers are numbers; anything else together is text, which the reader has refused.
fn wider(a: &DataType, b: &DataType) -> DataType {
    match (a, b) {
        (DataType::Int64, DataType::Float64) | (DataType::Float64, DataType::Int64) => DataType::Float64,
        _ => DataType::Utf8,
    }
}

/// An array of values of one type; `None` is null.
pub(crate) fn array(kind: &DataType, values: impl Iterator<Item = Option<Value>>) -> ArrayRef {
    match kind {
        DataType::Int64 => {
            let mut out = Int64Builder::new();
            values.for_each(|v| {
                out.append_option(match v {
                    Some(Value::Whole(n)) => Some(n),
                    _ => None,
                });
            });
            Arc::new(out.finish())
        }
        DataType::Float64 => {
            let mut out = Float64Builder::new();
            values.for_each(|v| {
                out.append_option(match v {
                    Some(Value::Whole(n)) => Some(n as f64),
                    Some(Value::Real(x)) => Some(x),
                    _ => None,
                });
            });
            Arc::new(out.finish())
        }
        DataType::Boolean => {
            let mut out = BooleanBuilder::new();
            values.for_each(|v| {
                out.append_option(match v {
                    Some(Value::Flag(flag)) => Some(flag),
                    _ => None,
                });
            });
            let flags: BooleanArray = out.finish();
            Arc::new(flags)
        }
        _ => {
            let mut out = StringBuilder::new();
            values.for_each(|v| match v {
                Some(Value::Text(text)) => out.append_value(text),
                Some(other) => out.append_value(other.to_string()),
                None => out.append_null(),
            });
            Arc::new(out.finish())
        }
    }
}
