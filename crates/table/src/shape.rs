//! A shape that is not JSON: one column for each key, or a column of structs. Cells become what serde reads.

use crate::columns::{Cell, Column};
use preflop_core::ops::{OpCall, row};
use serde::de::value::{Error, MapDeserializer, SeqDeserializer};
use serde::de::{Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

impl<'de> IntoDeserializer<'de, Error> for Cell<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Cell<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Text(text) => visitor.visit_borrowed_str(text),
            Self::Whole(n) => match u64::try_from(n) {
                Ok(n) => visitor.visit_u64(n),
                Err(_) => visitor.visit_i64(n),
            },
            Self::Real(x) => visitor.visit_f64(x),
            Self::Flag(flag) => visitor.visit_bool(flag),
            Self::List(cells) => visitor.visit_seq(SeqDeserializer::new(cells.into_iter())),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self {
            Self::Text(text) => {
                let text: serde::de::value::BorrowedStrDeserializer<'de, Error> =
                    serde::de::value::BorrowedStrDeserializer::new(text);
                text.deserialize_enum(name, variants, visitor)
            }
            other => other.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// The call whose shape these columns hold; cells without a value are keys that the shape does not have.
pub(crate) fn call(
    op: &str,
    phase: &str,
    dtype: &str,
    keys: &[(&str, Column<'_>)],
    row: usize,
) -> Result<OpCall, String> {
    let cells = keys.iter().filter_map(|(key, column)| Some((*key, column.cell(row)?)));
    let shape: MapDeserializer<'_, _, Error> = MapDeserializer::new(cells);
    row::parse_fields(op, phase, dtype, shape).map_err(|e| e.to_string())
}
