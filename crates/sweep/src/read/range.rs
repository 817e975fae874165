//! Ranges: many values in one line.

use super::Reader;
use crate::axis::{Value, Values};
use crate::error::StudyError;
use preflop_core::names::did_you_mean;
use preflop_table::choices;
use toml::de::DeTable;

/// Values that one range may stand for.
const MAX_VALUES: f64 = 1e7;

impl Reader<'_> {
    /// `{ from, to, step }`, `{ from, to, count, scale }`, or `{ from, to, scale }` in a random design.
    pub(super) fn range(&self, name: &str, at: usize, range: &DeTable<'_>) -> Result<Values, StudyError> {
        const KEYS: [&str; 5] = ["from", "to", "step", "count", "scale"];
        let wrong = |problem: String| self.at(at, format!("`{name}`: {problem}"));
        for (key, _) in range {
            if !KEYS.contains(&&**key.get_ref()) {
                let hint = did_you_mean(key.get_ref(), KEYS);
                return Err(self.at(
                    key.span().start,
                    format!("`{name}` has no `{}`{hint} (a range has {})", key.get_ref(), KEYS.join(", ")),
                ));
            }
        }
        let item = |key: &str| range.iter().find(|(k, _)| k.get_ref() == key).map(|(_, item)| item);
        let number = |key: &str| -> Result<Option<(f64, bool)>, StudyError> {
            let Some(item) = item(key) else { return Ok(None) };
            match self.value(name, item)? {
                Value::Whole(n) => Ok(Some((n as f64, true))),
                Value::Real(x) => Ok(Some((x, false))),
                _ => Err(wrong(format!("`{key}` must be a number"))),
            }
        };
        if choices(name).is_some() || matches!(name, "model" | "gpu" | "cluster" | "op" | "phase" | "dtype") {
            return Err(wrong("it takes names, not a range".into()));
        }
        let (Some((from, whole_from)), Some((to, whole_to))) = (number("from")?, number("to")?) else {
            return Err(wrong("a range needs `from` and `to`".into()));
        };
        let log = match item("scale").map(|i| self.value(name, i)).transpose()? {
            None => false,
            Some(Value::Text(text)) if text == "linear" => false,
            Some(Value::Text(text)) if text == "log" => true,
            Some(other) => return Err(wrong(format!("`scale` is `{other}`; it may be linear or log"))),
        };
        if to < from || log && from <= 0.0 {
            return Err(wrong(format!(
                "from {from} to {to} goes nowhere; `from` must not exceed `to`, nor be 0 with `scale = \"log\"`"
            )));
        }
        let figure = name.starts_with("gpu.") || name == "usd_per_hour";
        let whole = whole_from && whole_to && !figure;
        let least = if figure || name.starts_with("shape.") || name == "zero" { 0.0 } else { 1.0 };
        if from < least || !whole && !figure && !name.starts_with("shape.") {
            return Err(wrong(format!("it takes whole numbers from {least}")));
        }
        let (step, count) = (number("step")?, number("count")?);
        let many =
            |n: f64| wrong(format!("{n} values are too many (at most {MAX_VALUES}); take a larger step"));
        let values: Vec<f64> = match (step, count) {
            (Some(_), Some(_)) => return Err(wrong("`step` or `count`, not both".into())),
            (None, None) if self.random => return Ok(Values::Range { from, to, log, whole }),
            (None, None) => return Err(wrong("a range needs `step` or `count` in this design".into())),
            (Some((step, _)), None) => {
                if step <= 0.0 || log {
                    return Err(wrong("`step` must be above 0, and goes with a linear scale".into()));
                }
                // Steps such as 0.1 do not add up exactly: a millionth of one is forgiven.
                let steps = ((to - from) / step + 1e-6).floor();
                if steps >= MAX_VALUES {
                    return Err(many(steps + 1.0));
                }
                (0..=steps as u64).map(|i| tidy(from + step * i as f64)).collect()
            }
            (None, Some((count, is_whole))) => {
                if !is_whole || !(1.0..=MAX_VALUES).contains(&count) {
                    return Err(wrong(format!("`count` must be a whole number from 1 to {MAX_VALUES}")));
                }
                let share = |i: u64| if count > 1.0 { i as f64 / (count - 1.0) } else { 0.0 };
                let between = |s: f64| if log { from * (to / from).powf(s) } else { from + (to - from) * s };
                (0..count as u64).map(|i| tidy(between(share(i)))).collect()
            }
        };
        let value = |x: &f64| if whole { Value::Whole(x.round() as i64) } else { Value::Real(*x) };
        let mut list: Vec<Value> = values.iter().map(value).collect();
        // Rounded to whole numbers, the steps of a logarithmic range meet at its small end.
        list.dedup();
        Ok(Values::List(list))
    }
}

/// 1.1 rather than 1.1000000000000001.
fn tidy(x: f64) -> f64 {
    (x * 1e9).round() / 1e9
}
