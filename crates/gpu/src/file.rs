//! Reads a GPU file: TOML text to checked facts. Knows the schema, not the physics.

use super::fields::{FIELDS, Field, TEXTS};
use super::{Gpu, GpuError, resolve};
use preflop_units::names::did_you_mean;
use serde::Serialize;
use toml::{Table, Value};

/// One figure of a GPU file with where it comes from.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct Fact {
    /// Section and key, such as `memory.dram_gbs`.
    pub key: String,
    /// The figure, in the unit that the key names.
    pub value: f64,
    /// Where it comes from, spelled out.
    pub source: String,
    /// Anything a reader should know about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub note: Option<String>,
}

/// A GPU file after checking: texts and facts, no defaults yet.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GpuFile {
    /// What to call the file in messages.
    pub file: String,
    /// Texts by section and key.
    pub texts: Vec<(String, String)>,
    /// Other names of this GPU.
    pub aliases: Vec<String>,
    /// Figures in the order of the schema.
    pub facts: Vec<Fact>,
}

impl GpuFile {
    /// The figure of that key, if the file has it.
    pub fn fact(&self, key: &str) -> Option<f64> {
        self.facts.iter().find(|f| f.key == key).map(|f| f.value)
    }

    /// The text of that key, if the file has it.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.texts.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }
}

/// Is this the section and key of a field?
fn is_of(field: &Field, path: &str) -> bool {
    let key = if field.section.is_empty() { Some(path) } else { below(field.section, path) };
    key == Some(field.key)
}

/// What follows a section in a path.
fn below<'a>(section: &str, path: &'a str) -> Option<&'a str> {
    path.strip_prefix(section)?.strip_prefix('.')
}

fn joined(section: &str, key: &str) -> String {
    if section.is_empty() { key.to_string() } else { format!("{section}.{key}") }
}

/// Parses and completes a GPU file. `file` names it in messages.
pub fn parse(text: &str, file: &str) -> Result<Gpu, GpuError> {
    resolve::complete(read(text, file)?)
}

/// Parses a GPU file without filling gaps.
pub fn read(text: &str, file: &str) -> Result<GpuFile, GpuError> {
    let table: Table = text.parse().map_err(|e: toml::de::Error| GpuError::Syntax {
        file: file.to_string(),
        detail: one_line(e.message(), text, e.span().map(|s| s.start)),
    })?;
    let mut out = GpuFile { file: file.to_string(), ..GpuFile::default() };
    let sources = match table.get("sources") {
        None => Table::new(),
        Some(Value::Table(t)) => t.clone(),
        Some(_) => return Err(value_error(file, "sources", "must be a table of texts")),
    };
    walk(&table, "", &sources, &mut out)?;
    out.facts.sort_by_cached_key(|fact| FIELDS.iter().position(|f| is_of(f, &fact.key)));
    Ok(out)
}

fn one_line(message: &str, text: &str, at: Option<usize>) -> String {
    let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
    match at.and_then(|at| text.get(..at)) {
        Some(before) => format!("line {}: {message}", before.matches('\n').count() + 1),
        None => message,
    }
}

fn value_error(file: &str, key: &str, problem: &str) -> GpuError {
    GpuError::Value { file: file.to_string(), key: key.to_string(), problem: problem.to_string() }
}

fn walk(table: &Table, section: &str, sources: &Table, out: &mut GpuFile) -> Result<(), GpuError> {
    for (key, value) in table {
        let path = joined(section, key);
        if path == "sources" {
            continue;
        }
        if path == "aliases" {
            let names =
                value.as_array().and_then(|a| a.iter().map(|v| v.as_str().map(str::to_string)).collect());
            let names: Option<Vec<String>> = names;
            out.aliases = names.ok_or_else(|| value_error(&out.file, &path, "must be a list of texts"))?;
            continue;
        }
        if TEXTS.contains(&(section, key)) {
            let text = value.as_str().ok_or_else(|| value_error(&out.file, &path, "must be a text"))?;
            if text.chars().any(char::is_control) {
                return Err(value_error(&out.file, &path, "must be one line without control characters"));
            }
            out.texts.push((path, text.to_string()));
            continue;
        }
        if let Some(field) = FIELDS.iter().find(|f| f.section == section && f.key == key) {
            out.facts.push(figure(field, path, value, sources, &out.file)?);
            continue;
        }
        match value {
            Value::Table(inner) if is_section(&path) => walk(inner, &path, sources, out)?,
            _ => return Err(unknown(&out.file, section, &path)),
        }
    }
    Ok(())
}

fn is_section(path: &str) -> bool {
    FIELDS.iter().any(|f| f.section == path || below(path, f.section).is_some())
}

fn unknown(file: &str, section: &str, path: &str) -> GpuError {
    let known: Vec<String> = FIELDS
        .iter()
        .filter(|f| f.section == section || section.is_empty())
        .map(|f| joined(f.section, f.key))
        .chain(FIELDS.iter().map(|f| f.section.to_string()))
        .collect();
    let hint = did_you_mean(path, known.iter().map(String::as_str));
    GpuError::Key { file: file.to_string(), key: path.to_string(), hint }
}

fn figure(field: &Field, path: String, value: &Value, sources: &Table, file: &str) -> Result<Fact, GpuError> {
    let number = |v: &Value| match v {
        Value::Integer(i) => Some(*i as f64),
        Value::Float(x) => Some(*x),
        _ => None,
    };
    let (value, source, note) = match value {
        Value::Table(t) => {
            if let Some(odd) = t.keys().find(|k| !matches!(k.as_str(), "value" | "source" | "note")) {
                return Err(value_error(
                    file,
                    &path,
                    &format!("has an unknown part `{odd}` (value, source, note)"),
                ));
            }
            let v = t
                .get("value")
                .and_then(number)
                .ok_or_else(|| value_error(file, &path, "needs a number in `value`"))?;
            let key = t.get("source").and_then(Value::as_str);
            let source = match key {
                None => "no source given".to_string(),
                Some(key) => match sources.get(key).and_then(Value::as_str) {
                    Some(text) => text.to_string(),
                    None => {
                        return Err(value_error(
                            file,
                            &path,
                            &format!("names a source `{key}` that [sources] lacks"),
                        ));
                    }
                },
            };
            (v, source, t.get("note").and_then(Value::as_str).map(str::to_string))
        }
        other => match number(other) {
            Some(v) => (v, "this file".to_string(), None),
            None => return Err(value_error(file, &path, "must be a number or { value, source }")),
        },
    };
    if !value.is_finite() || value < field.min || value > field.max {
        let problem = format!("is {value}; it must be from {} to {}", field.min, field.max);
        return Err(value_error(file, &path, &problem));
    }
    Ok(Fact { key: path, value, source, note })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_no_control_characters() {
        let error = read("name = \"a\\u001b[31mb\"", "g.toml").unwrap_err().to_string();
        assert!(error.contains("`name`") && error.contains("control characters"), "{error}");
        assert!(read("name = \"a b\"", "g.toml").is_ok());
    }
}
