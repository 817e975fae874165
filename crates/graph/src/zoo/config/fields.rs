//! Numbers of a configuration by name; a wrong one is refused by that name.

use super::super::super::error::ModelError;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Layers beyond which a file is damaged rather than deep.
const MAX_LAYERS: u64 = 4096;
/// Sizes beyond which a file is damaged.
const MAX_SIZE: u64 = 1 << 24;

/// The fields of a file, or of a part of it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(transparent)]
pub(super) struct Fields(Map<String, Value>);

pub(super) fn wrong(field: &str, problem: impl Into<String>) -> ModelError {
    ModelError::Config { field: field.to_owned(), problem: problem.into() }
}

impl Fields {
    /// The first of these names that the file has, null apart.
    fn find<'n>(&self, names: &[&'n str]) -> Option<(&'n str, &Value)> {
        names.iter().find_map(|name| self.0.get(*name).filter(|v| !v.is_null()).map(|v| (*name, v)))
    }

    /// A part of the file with fields of its own, empty where it is missing.
    pub fn below(&self, name: &str) -> Self {
        match self.0.get(name) {
            Some(Value::Object(map)) => Self(map.clone()),
            _ => Self::default(),
        }
    }

    /// Is the field there, and not null?
    pub fn has(&self, name: &str) -> bool {
        self.find(&[name]).is_some()
    }

    /// The fields' names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// A whole number, zero allowed.
    pub fn number(&self, names: &[&str]) -> Result<Option<u64>, ModelError> {
        let Some((name, value)) = self.find(names) else { return Ok(None) };
        match value.as_u64() {
            Some(n) if n <= MAX_SIZE => Ok(Some(n)),
            _ => Err(wrong(name, format!("must be a whole number up to {MAX_SIZE}, not `{}`", short(value)))),
        }
    }

    /// A whole number above zero.
    pub fn size_of(&self, names: &[&str]) -> Result<Option<u64>, ModelError> {
        match self.number(names)? {
            Some(0) => {
                let name = self.find(names).map_or("", |f| f.0);
                Err(wrong(name, format!("must be a whole number from 1 to {MAX_SIZE}, not zero")))
            }
            other => Ok(other),
        }
    }

    /// A whole number above zero, or the family's default.
    pub fn size(&self, names: &[&str], default: u64) -> Result<u64, ModelError> {
        Ok(self.size_of(names)?.unwrap_or(default))
    }

    /// Layers.
    pub fn layers(&self, names: &[&str], default: u64) -> Result<usize, ModelError> {
        let layers = self.size(names, default)?;
        if layers > MAX_LAYERS {
            let name = self.find(names).map_or("", |f| f.0);
            return Err(wrong(name, format!("must be at most {MAX_LAYERS}, not {layers}")));
        }
        Ok(layers as usize)
    }

    /// Yes or no.
    pub fn flag(&self, names: &[&str], default: bool) -> Result<bool, ModelError> {
        let Some((name, value)) = self.find(names) else { return Ok(default) };
        value.as_bool().ok_or_else(|| wrong(name, format!("must be true or false, not `{}`", short(value))))
    }

    /// A word.
    pub fn word(&self, names: &[&str]) -> Option<&str> {
        self.find(names).and_then(|(_, v)| v.as_str())
    }

    /// Whole numbers of a list.
    pub fn list(&self, name: &str) -> Option<Vec<u64>> {
        self.0.get(name)?.as_array().map(|a| a.iter().filter_map(Value::as_u64).collect())
    }

    /// Is the field there, and null?
    pub fn is_null(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(Value::is_null)
    }

    /// Labels of a classifier: their number, or their names.
    pub fn labels(&self, default: u64) -> Result<u64, ModelError> {
        let named = self.0.get("id2label").and_then(Value::as_object).map(|l| l.len() as u64);
        Ok(self.size_of(&["num_labels"])?.or(named).unwrap_or(default).max(1))
    }

    /// The class that the file was saved from, such as `BertForQuestionAnswering`; empty where the file does not say.
    pub fn class(&self) -> &str {
        self.0.get("architectures").and_then(|a| a.get(0)).and_then(Value::as_str).unwrap_or_default()
    }

    /// Query heads and the size of one; heads must divide the width unless the size is given.
    pub fn heads(&self, width: u64, names: &[&str], default: u64) -> Result<(u64, u64), ModelError> {
        let heads = self.size(names, default)?;
        match self.size_of(&["head_dim"])? {
            Some(size) => Ok((heads, size)),
            None if width.is_multiple_of(heads) => Ok((heads, (width / heads).max(1))),
            None => {
                let name = self.find(names).map_or("num_attention_heads", |f| f.0);
                Err(wrong(name, format!("{heads} heads do not divide a width of {width}")))
            }
        }
    }

    /// Key and value heads that query heads can share.
    pub fn kv_heads(&self, heads: u64, default: u64) -> Result<u64, ModelError> {
        let kv = self.size(&["num_key_value_heads"], default)?;
        if heads.is_multiple_of(kv) {
            return Ok(kv);
        }
        Err(wrong("num_key_value_heads", format!("{heads} heads cannot share {kv} key and value heads")))
    }
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(40).collect()
}
