//! Reads a study file. Every complaint names the key, its line and what it may be.

mod list;
mod range;

use crate::axis::{Axis, Value, Values};
use crate::error::StudyError;
use crate::study::{Design, MAX_ROWS, Study};
use preflop_core::gpu::{CHANGEABLE, changeable};
use preflop_core::names::did_you_mean;
use preflop_table::{JOB_COLUMNS, Kind, OPERATOR_COLUMNS, choices};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Keys about the study itself.
const OWN: [&str; 4] = ["design", "samples", "seed", "row"];

type Item<'a, 'i> = &'a Spanned<DeValue<'i>>;

struct Reader<'a> {
    text: &'a str,
    file: &'a str,
    kind: Kind,
    random: bool,
}

/// A key with its place in the file.
struct Key<'a, 'i> {
    name: String,
    at: usize,
    item: Item<'a, 'i>,
}

pub(crate) fn study(text: &str, file: &str) -> Result<Study, StudyError> {
    let mut reader = Reader { text, file, kind: Kind::Jobs, random: false };
    let table = DeTable::parse(text).map_err(|e| {
        let message = e.message().split_whitespace().collect::<Vec<_>>().join(" ");
        // `gpu = "h200"` and `gpu.dram_gbs = ..` cannot stand side by side in TOML.
        let hint =
            if message.contains("dotted key") { "; beside `gpu.FIGURE`, GPUs are `gpu.name`" } else { "" };
        reader.at(e.span().map_or(0, |s| s.start), format!("not valid TOML: {message}{hint}"))
    })?;
    let table = table.get_ref();
    let has = |name: &str| table.iter().any(|(key, _)| key.get_ref() == name);
    let listed_op =
        |table: &DeTable<'_>| rows_of(table).iter().any(|row| row.iter().any(|(k, _)| k.get_ref() == "op"));
    reader.kind = if has("op") || listed_op(table) { Kind::Operators } else { Kind::Jobs };
    let design = reader.design(table)?;
    reader.random = matches!(design, Design::Random | Design::LatinHypercube);
    let mut keys = Vec::new();
    reader.flatten("", table, &mut keys)?;
    keys.sort_by_key(|key| key.at);
    let mut axes = Vec::new();
    for key in &keys {
        axes.push(reader.axis(key)?);
    }
    let seed = reader.whole(table, "seed", 0, u64::MAX >> 1)?.unwrap_or(0);
    let samples = reader.whole(table, "samples", 1, MAX_ROWS)?;
    let (rows, listed) = match design {
        Design::List => reader.listed(table, &mut axes)?,
        Design::Grid => (reader.combinations(&axes)?, Vec::new()),
        Design::Random | Design::LatinHypercube => {
            let Some(samples) = samples else {
                return Err(
                    reader.whole_file("`samples` is missing: how many rows, such as `samples = 10000`")
                );
            };
            (samples, Vec::new())
        }
    };
    if samples.is_some() && !reader.random {
        let at = table.iter().find(|(k, _)| k.get_ref() == "samples").map_or(0, |(k, _)| k.span().start);
        return Err(reader.at(at, "`samples` is for `design = \"random\"` and `\"latin-hypercube\"`".into()));
    }
    reader.needed(&axes)?;
    Ok(Study::new(file, axes, design, rows, seed, reader.kind, listed))
}

/// The tables of `[[row]]`.
fn rows_of<'a, 'i>(table: &'a DeTable<'i>) -> Vec<&'a DeTable<'i>> {
    let item = table.iter().find(|(key, _)| key.get_ref() == "row").map(|(_, item)| item.get_ref());
    match item {
        Some(DeValue::Array(rows)) => rows
            .iter()
            .filter_map(|row| match row.get_ref() {
                DeValue::Table(row) => Some(row),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    }
}

impl Reader<'_> {
    fn line(&self, at: usize) -> usize {
        self.text.get(..at).map_or(1, |before| before.matches('\n').count() + 1)
    }

    fn at(&self, at: usize, problem: String) -> StudyError {
        StudyError::Line { file: self.file.to_string(), line: self.line(at), problem }
    }

    fn whole_file(&self, problem: &str) -> StudyError {
        StudyError::File { file: self.file.to_string(), problem: problem.to_string() }
    }

    fn columns(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Jobs => &JOB_COLUMNS,
            Kind::Operators => &OPERATOR_COLUMNS,
        }
    }

    fn unknown(&self, at: usize, name: &str) -> StudyError {
        let known: Vec<&str> = self.columns().iter().chain(&OWN).copied().collect();
        let hint = did_you_mean(name, known.iter().copied());
        let also = if self.kind == Kind::Jobs { "gpu.FIGURE" } else { "shape.KEY, gpu.FIGURE" };
        self.at(at, format!("unknown key `{name}`{hint} (keys: {}, {also})", known.join(", ")))
    }

    fn design(&self, table: &DeTable<'_>) -> Result<Design, StudyError> {
        let has_rows = !rows_of(table).is_empty();
        let Some((_, item)) = table.iter().find(|(key, _)| key.get_ref() == "design") else {
            return Ok(if has_rows { Design::List } else { Design::Grid });
        };
        let names: Vec<&str> = Design::ALL.iter().map(|(name, _)| *name).collect();
        let DeValue::String(text) = item.get_ref() else {
            return Err(self.at(item.span().start, format!("`design` must be one of {}", names.join(", "))));
        };
        let found = Design::ALL.iter().find(|(name, _)| name == text).map(|(_, design)| *design);
        let design = found.ok_or_else(|| {
            let hint = did_you_mean(text, names.iter().copied());
            self.at(
                item.span().start,
                format!("unknown design `{text}`{hint} (it may be {})", names.join(", ")),
            )
        })?;
        if has_rows && design != Design::List {
            return Err(
                self.at(item.span().start, "`[[row]]` lists rows: that is `design = \"list\"`".into())
            );
        }
        Ok(design)
    }

    fn whole(
        &self,
        table: &DeTable<'_>,
        key: &str,
        least: u64,
        most: u64,
    ) -> Result<Option<u64>, StudyError> {
        let Some((_, item)) = table.iter().find(|(k, _)| k.get_ref() == key) else { return Ok(None) };
        let wrong =
            || self.at(item.span().start, format!("`{key}` must be a whole number from {least} to {most}"));
        match self.value(key, item)? {
            Value::Whole(n) => {
                u64::try_from(n).ok().filter(|n| (least..=most).contains(n)).map(Some).ok_or_else(wrong)
            }
            _ => Err(wrong()),
        }
    }

    /// All columns with their places; `gpu` and `shape` may be tables of their own.
    fn flatten<'a, 'i>(
        &self,
        prefix: &str,
        table: &'a DeTable<'i>,
        out: &mut Vec<Key<'a, 'i>>,
    ) -> Result<(), StudyError> {
        for (key, item) in table {
            let at = key.span().start;
            let name = if prefix.is_empty() {
                key.get_ref().to_string()
            } else {
                format!("{prefix}.{}", key.get_ref())
            };
            if prefix.is_empty() && OWN.contains(&name.as_str()) {
                continue;
            }
            let nested = match item.get_ref() {
                DeValue::Table(inner) if !is_range(inner) => Some(inner),
                _ => None,
            };
            match (name.as_str(), nested) {
                ("gpu", Some(inner)) => self.flatten("gpu", inner, out)?,
                ("shape", Some(inner)) if self.kind == Kind::Operators => {
                    self.flatten("shape", inner, out)?;
                }
                ("gpu.name", None) => out.push(Key { name: "gpu".into(), at, item }),
                (_, Some(inner)) if prefix == "gpu" => self.flatten(&name, inner, out)?,
                (_, None) if prefix.starts_with("gpu") => {
                    let key = name.strip_prefix("gpu.").unwrap_or(&name);
                    let key = changeable(key).map_err(|_| {
                        let known = CHANGEABLE.iter().copied().chain(["name"]);
                        let hint = did_you_mean(key, known);
                        let all = format!("gpu.name, gpu.{}", CHANGEABLE.join(", gpu."));
                        self.at(at, format!("unknown key `{name}`{hint} (keys: {all})"))
                    })?;
                    out.push(Key { name: format!("gpu.{key}"), at, item });
                }
                (_, None) if prefix == "shape" => out.push(Key { name, at, item }),
                (name, None) if self.columns().contains(&name) && name != "shape" => {
                    out.push(Key { name: name.to_string(), at, item });
                }
                _ => return Err(self.unknown(at, &name)),
            }
        }
        Ok(())
    }

    fn value(&self, key: &str, item: Item<'_, '_>) -> Result<Value, StudyError> {
        let wrong = |problem: &str| self.at(item.span().start, format!("`{key}` {problem}"));
        Ok(match item.get_ref() {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Boolean(flag) => Value::Flag(*flag),
            DeValue::Integer(n) => Value::Whole(
                i64::from_str_radix(n.as_str(), n.radix())
                    .map_err(|_| wrong("has a number that is too large"))?,
            ),
            DeValue::Float(x) => {
                let x: f64 = x.as_str().parse().map_err(|_| wrong("has a number that cannot be read"))?;
                if !x.is_finite() {
                    return Err(wrong("must be finite"));
                }
                Value::Real(x)
            }
            _ => {
                return Err(wrong(
                    "must be a text, a number or true/false, a list of them, or { from, to, step }",
                ));
            }
        })
    }

    fn axis(&self, key: &Key<'_, '_>) -> Result<Axis, StudyError> {
        let wrong = |at: usize, problem: String| self.at(at, format!("`{}` {problem}", key.name));
        let values = match key.item.get_ref() {
            DeValue::Array(items) => {
                let values: Result<Vec<Value>, StudyError> =
                    items.iter().map(|item| self.checked(&key.name, item)).collect();
                Values::List(values?)
            }
            DeValue::Table(range) => self.range(&key.name, key.at, range)?,
            _ => Values::List(vec![self.checked(&key.name, key.item)?]),
        };
        if values.count() == Some(0) {
            return Err(wrong(key.at, "is an empty list; leave it out or give a value".into()));
        }
        if let Values::List(list) = &values {
            let number = |v: &Value| matches!(v, Value::Whole(_) | Value::Real(_));
            let same = list.windows(2).all(|w| w[0].kind() == w[1].kind() || number(&w[0]) && number(&w[1]));
            if !same {
                return Err(wrong(key.at, "mixes texts, numbers and flags".into()));
            }
        }
        Ok(Axis { name: key.name.clone(), line: self.line(key.at), values })
    }

    /// A value that its column may have.
    fn checked(&self, name: &str, item: Item<'_, '_>) -> Result<Value, StudyError> {
        let value = self.value(name, item)?;
        let wrong = |problem: String| self.at(item.span().start, format!("`{name}` {problem}"));
        let texts = ["model", "gpu", "cluster", "op", "phase", "dtype"];
        let is_text = matches!(value, Value::Text(_));
        if let (Some(known), Kind::Jobs) = (choices(name), self.kind) {
            let text = value.to_string();
            if !known.contains(&text.as_str()) {
                let hint = did_you_mean(&text, known.iter().copied());
                return Err(wrong(format!("is `{text}`{hint} (it may be {})", known.join(", "))));
            }
        } else if texts.contains(&name) {
            if !is_text {
                return Err(wrong(format!("is {value}; it must be a text")));
            }
        } else if name == "sequence_parallel" {
            if !matches!(value, Value::Flag(_)) {
                return Err(wrong("must be true or false".into()));
            }
        } else if !name.starts_with("shape.") {
            let least =
                if name.starts_with("gpu.") || matches!(name, "usd_per_hour" | "zero") { 0.0 } else { 1.0 };
            let (number, whole) = match &value {
                Value::Whole(n) => (*n as f64, true),
                Value::Real(x) => (*x, false),
                _ => return Err(wrong(format!("is `{value}`; it must be a number"))),
            };
            if number < least || !whole && !name.starts_with("gpu.") && name != "usd_per_hour" {
                return Err(wrong(format!("is {value}; it must be a whole number from {least}")));
            }
        }
        Ok(value)
    }

    fn combinations(&self, axes: &[Axis]) -> Result<u64, StudyError> {
        let count = axes.iter().try_fold(1_u64, |n, axis| n.checked_mul(axis.values.count()?));
        count.filter(|n| *n <= MAX_ROWS).ok_or_else(|| {
            self.whole_file(&format!(
                "more than {MAX_ROWS} combinations; take fewer values, or a random design"
            ))
        })
    }

    /// Without these nothing can be predicted.
    fn needed(&self, axes: &[Axis]) -> Result<(), StudyError> {
        let has = |name: &str| axes.iter().any(|a| a.name == name);
        let need = |name: &str, example: &str| {
            if has(name) {
                Ok(())
            } else {
                Err(self.whole_file(&format!("`{name}` is missing, such as `{example}`")))
            }
        };
        match self.kind {
            Kind::Jobs => {
                need("model", "model = [\"resnet50\", \"bert-base\"]")?;
                if !has("cluster") {
                    need("gpu", "gpu = [\"h100\", \"h200\"]")?;
                }
            }
            Kind::Operators => {
                need("dtype", "dtype = \"bf16\"")?;
                need("gpu", "gpu = \"h200\"")?;
                if !axes.iter().any(|a| a.name.starts_with("shape.")) {
                    return Err(self.whole_file("`shape` is missing, such as `shape.m = [1024, 4096]`"));
                }
            }
        }
        Ok(())
    }
}

/// A table with one of a range's keys is a range.
fn is_range(table: &DeTable<'_>) -> bool {
    table.iter().any(|(key, _)| matches!(&**key.get_ref(), "from" | "to" | "step" | "count"))
}
