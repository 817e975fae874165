//! JSON of another tool as a tree in bounded memory: what no reader looks at is parsed and dropped, and what is kept is
//! counted.

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::cell::Cell;
use std::fmt;
use std::io::Read;

/// What a node of a map's tree takes: eleven keys and values, also where there is one.
const NODE_BYTES: usize = 11 * (size_of::<String>() + size_of::<Value>()) + 24;
/// Entries that come to a node when keys arrive in their order, the fewest there are.
const NODE_ENTRIES: usize = 6;
/// What an entry of a list takes at most: lists grow to twice what they had.
const ITEM_BYTES: usize = 2 * size_of::<Value>();
/// What an allocator adds to a text.
const TEXT_BYTES: usize = 16;

struct Kept<'a> {
    left: &'a Cell<usize>,
    most: usize,
    dropped: &'a [&'a str],
}

/// Reads a document whose tree may take `most` bytes, without the values of the keys in `dropped`.
pub fn read(reader: impl Read, most: usize, dropped: &[&str]) -> Result<Value, String> {
    let left = Cell::new(most);
    let mut document = serde_json::Deserializer::from_reader(reader);
    let value =
        (&Kept { left: &left, most, dropped }).deserialize(&mut document).map_err(|e| e.to_string())?;
    document.end().map_err(|e| e.to_string())?;
    Ok(value)
}

impl Kept<'_> {
    fn take<E: serde::de::Error>(&self, bytes: usize) -> Result<(), E> {
        let left = self.left.get().checked_sub(bytes).ok_or_else(|| {
            let most = self.most >> 20;
            E::custom(format_args!(
                "its description takes more than {most} MiB of memory; export a part of the model"
            ))
        })?;
        self.left.set(left);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for &Kept<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &Kept<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.take(value.len() + TEXT_BYTES)?;
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut out = Vec::new();
        while let Some(value) = list.next_element_seed(self)? {
            self.take(ITEM_BYTES)?;
            out.push(value);
        }
        Ok(Value::Array(out))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if self.dropped.contains(&key.as_str()) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let node = if out.len().is_multiple_of(NODE_ENTRIES) { NODE_BYTES } else { 0 };
            self.take(node + key.len() + TEXT_BYTES)?;
            let value = map.next_value_seed(self)?;
            out.insert(key, value);
        }
        Ok(Value::Object(out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_without_what_is_dropped() {
        let text =
            r#"{"a": [1, -2, 0.5, null, true, "x"], "stack": {"deep": [[]]}, "b": {"stack": 1, "c": 2}}"#;
        let value = read(text.as_bytes(), 10_000, &["stack"]).unwrap();
        assert_eq!(value, serde_json::json!({"a": [1, -2, 0.5, null, true, "x"], "b": {"c": 2}}));
    }

    #[test]
    fn small_text_with_a_large_tree_stops() {
        let text = format!("[{}1]", "1,".repeat(10_000));
        let said = read(text.as_bytes(), 100_000, &[]).unwrap_err();
        assert!(said.starts_with("its description takes more than 0 MiB of memory"), "{said}");
        // A map of one entry is a whole node.
        let text = format!("[{}1]", r#"{"a":1},"#.repeat(10_000));
        assert!(read(text.as_bytes(), 10_000 * 600, &[]).is_err());
        assert!(read("[".repeat(1000).as_bytes(), 100_000, &[]).is_err());
        assert!(read("{} {}".as_bytes(), 100_000, &[]).is_err());
    }
}
