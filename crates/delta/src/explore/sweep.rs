//! Sweeps: `key=1,2,4` or `key=1:4:0.25`, all combinations of several.

use super::{Design, KEYS, Scales};
use crate::EdgeTiles;
use preflop_units::names::did_you_mean;

/// The most designs of one sweep: a few seconds of work and some hundred megabytes of results.
pub const MAX_DESIGNS: u64 = 1_000_000;
/// The most values of one key.
const MAX_VALUES: f64 = 100_000.0;
/// The largest multiple: daring, but not a wrong unit.
const MAX_SCALE: f64 = 1e6;

/// What can be wrong with `--vary`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SweepError {
    /// No `=`.
    #[error("`{text}` is not KEY=LIST; write it as `dram_bw=1,2,4` or `dram_bw=1:4:0.25`")]
    Syntax {
        /// As given.
        text: String,
    },
    /// No such key.
    #[error("unknown key `{key}`{hint} (keys: {known})", known = KEYS.join(", "))]
    Key {
        /// As given.
        key: String,
        /// Close names, as a clause.
        hint: String,
    },
    /// A value that cannot be.
    #[error("`{key}`: {problem}")]
    Value {
        /// The key.
        key: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// The same key twice.
    #[error("`{key}` is varied twice; put all its values into one list")]
    Twice {
        /// The key.
        key: String,
    },
    /// Too many combinations.
    #[error("{count} designs are too many (at most {MAX_DESIGNS}); take fewer values or larger steps")]
    TooMany {
        /// How many there would be, in words where it is beyond counting.
        count: String,
    },
}

/// Values of some keys; all their combinations are designs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sweep {
    axes: Vec<(&'static str, Vec<f64>)>,
}

impl Sweep {
    /// Adds `key=list` or `key=from:to:step`.
    pub fn vary(&mut self, text: &str) -> Result<(), SweepError> {
        let (key, list) =
            text.split_once('=').ok_or_else(|| SweepError::Syntax { text: text.to_string() })?;
        let key = key.trim();
        let known = KEYS
            .iter()
            .copied()
            .find(|k| *k == key)
            .ok_or_else(|| SweepError::Key { key: key.to_string(), hint: did_you_mean(key, KEYS) })?;
        if self.axes.iter().any(|(k, _)| *k == known) {
            return Err(SweepError::Twice { key: known.to_string() });
        }
        let values = if list.contains(':') { range(known, list)? } else { listed(known, list)? };
        self.axes.push((known, values));
        Ok(())
    }

    /// How many designs there are; 1 for no keys.
    pub fn count(&self) -> Result<u64, SweepError> {
        let count = self.axes.iter().try_fold(1_u64, |n, (_, v)| n.checked_mul(v.len() as u64));
        match count {
            Some(n) if n <= MAX_DESIGNS => Ok(n),
            Some(n) => Err(SweepError::TooMany { count: n.to_string() }),
            None => Err(SweepError::TooMany { count: "over 10^19".to_string() }),
        }
    }

    /// The design at a position below [`Sweep::count`]; the last key varies fastest.
    pub fn design(&self, position: u64) -> Design {
        let mut rest = position;
        let mut scales = Scales::default();
        let mut parts = Vec::with_capacity(self.axes.len());
        for (key, values) in self.axes.iter().rev() {
            let value = values[(rest % values.len() as u64) as usize];
            rest /= values.len() as u64;
            scales = scales.with(key, value).unwrap_or(scales);
            parts.push(format!("{key}={value}"));
        }
        parts.reverse();
        Design { name: parts.join(" "), scales }
    }

    /// All designs.
    pub fn designs(&self) -> Result<Vec<Design>, SweepError> {
        Ok((0..self.count()?).map(|i| self.design(i)).collect())
    }

    /// Tile edges that the sweep uses.
    pub fn edges(&self) -> Vec<u32> {
        self.axes
            .iter()
            .filter(|(k, _)| *k == "tile")
            .flat_map(|(_, v)| v.iter().map(|x| *x as u32))
            .collect()
    }
}

fn value_error(key: &str, problem: String) -> SweepError {
    SweepError::Value { key: key.to_string(), problem }
}

fn number(key: &str, text: &str) -> Result<f64, SweepError> {
    let text = text.trim();
    match text.parse::<f64>() {
        Ok(x) if x.is_finite() => Ok(x),
        _ => Err(value_error(key, format!("`{text}` is not a number"))),
    }
}

fn checked(key: &str, x: f64) -> Result<f64, SweepError> {
    if key == "tile" {
        if x < 0.0 || x.fract() != 0.0 || EdgeTiles::new(x as u32).is_err() {
            return Err(value_error(
                key,
                format!("{x} is no tile edge; take a power of two from 32 to 1024"),
            ));
        }
    } else if x <= 0.0 || x > MAX_SCALE {
        let zero = if key == "sm_count" && x == 0.0 { "a design with zero SMs runs nothing; " } else { "" };
        return Err(value_error(
            key,
            format!("{zero}{x} must be above 0 and at most {MAX_SCALE} (times the base)"),
        ));
    }
    Ok(x)
}

fn listed(key: &str, list: &str) -> Result<Vec<f64>, SweepError> {
    list.split(',').map(|part| checked(key, number(key, part)?)).collect()
}

/// `from:to:step`, both ends included when the steps meet them.
fn range(key: &str, text: &str) -> Result<Vec<f64>, SweepError> {
    let parts: Vec<&str> = text.split(':').collect();
    let [from, to, step] = parts[..] else {
        return Err(value_error(key, format!("`{text}` is not FROM:TO:STEP, such as 1:4:0.25")));
    };
    let (from, to, step) = (number(key, from)?, number(key, to)?, number(key, step)?);
    if step <= 0.0 || to < from {
        return Err(value_error(
            key,
            format!("`{text}` goes nowhere; FROM must not exceed TO, and STEP be above 0"),
        ));
    }
    // Steps such as 0.1 do not add up exactly: a millionth of one is forgiven.
    let steps = ((to - from) / step + 1e-6).floor();
    if steps >= MAX_VALUES {
        return Err(SweepError::TooMany { count: format!("{:.0} values of `{key}`", steps + 1.0) });
    }
    (0..=steps as u64).map(|i| checked(key, tidy(from + step * i as f64))).collect()
}

/// 1.1 rather than 1.1000000000000001.
fn tidy(x: f64) -> f64 {
    (x * 1e9).round() / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(texts: &[&str]) -> Result<Sweep, SweepError> {
        let mut s = Sweep::default();
        texts.iter().try_for_each(|t| s.vary(t))?;
        Ok(s)
    }

    #[test]
    fn combinations() {
        let s = sweep(&["sm_count=1,2", "dram_bw=1:2:0.5"]).unwrap();
        assert_eq!(s.count(), Ok(6));
        let names: Vec<String> = s.designs().unwrap().into_iter().map(|d| d.name).collect();
        assert_eq!(names[0], "sm_count=1 dram_bw=1");
        assert_eq!(names[1], "sm_count=1 dram_bw=1.5");
        assert_eq!(names[5], "sm_count=2 dram_bw=2");
        assert_eq!(sweep(&["l2_bw=1:1.3:0.1"]).unwrap().axes[0].1, [1.0, 1.1, 1.2, 1.3]);
        assert_eq!(sweep(&["tile=128,256"]).unwrap().edges(), [128, 256]);
        assert_eq!(sweep(&[]).unwrap().count(), Ok(1));
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, part) in [
            ("sm_count", "is not KEY=LIST"),
            ("sm_cuont=1", "did you mean `sm_count`"),
            ("sm_count=0", "zero SMs"),
            ("sm_count=-1", "above 0"),
            ("dram_bw=fast", "`fast` is not a number"),
            ("dram_bw=NaN", "is not a number"),
            ("dram_bw=", "is not a number"),
            ("dram_bw=1:2", "FROM:TO:STEP"),
            ("dram_bw=2:1:0.5", "goes nowhere"),
            ("dram_bw=1:2:0", "goes nowhere"),
            ("dram_bw=1:1000000:0.001", "too many"),
            ("tile=100", "power of two"),
            ("tile=-1", "power of two"),
        ] {
            let e = sweep(&[text]).unwrap_err().to_string();
            assert!(e.contains(part), "{text}: {e}");
        }
        assert!(sweep(&["reg=1", "reg=2"]).unwrap_err().to_string().contains("twice"));
        let wide = ["sm_count=1:100:1", "dram_bw=1:100:1", "l2_bw=1:101:1"];
        assert!(sweep(&wide).unwrap().count().unwrap_err().to_string().contains("1010000 designs"));
    }
}
