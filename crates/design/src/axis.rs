//! Which resources vary, and how far.

use crate::DesignError;
use preflop_core::names::did_you_mean;

/// What a design scales, as multiples of the base: SMs; their clock; multiply-adds of each SM and clock; slices of the L2, which bring
/// capacity and bandwidth; bandwidth of the memory.
pub const KEYS: [&str; 5] = ["sm_count", "clock", "mac_per_sm", "l2", "dram_bw"];

/// No chip is a hundred times another of its kind.
const MAX_SCALE: f64 = 100.0;
/// Values of one key.
const MAX_VALUES: f64 = 1e6;

/// The values of a key.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// These.
    List(Vec<f64>),
    /// Any between two.
    Range(f64, f64),
}

impl Values {
    /// The smallest and the largest.
    pub fn ends(&self) -> (f64, f64) {
        match self {
            Self::Range(low, high) => (*low, *high),
            Self::List(list) => {
                list.iter().fold((f64::INFINITY, 0.0), |(low, high), x| (low.min(*x), high.max(*x)))
            }
        }
    }

    /// The nearest value that it may take.
    pub fn nearest(&self, x: f64) -> f64 {
        match self {
            Self::Range(low, high) => x.clamp(*low, *high),
            Self::List(list) => {
                list.iter().copied().min_by(|a, b| (a - x).abs().total_cmp(&(b - x).abs())).unwrap_or(1.0)
            }
        }
    }
}

/// A key with its values.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// Place in [`KEYS`].
    pub key: usize,
    /// Its values.
    pub values: Values,
}

/// Reads `key=1,2,4`, `key=1:4:0.5` or `key=0.5..4`.
pub fn axis(text: &str) -> Result<Axis, DesignError> {
    let wrong = |problem: String| DesignError::Vary { text: text.to_string(), problem };
    let example = "write it as dram_bw=1,2,4 or dram_bw=1:4:0.5 or, for any value between, dram_bw=0.5..4";
    let (key, list) = text.split_once('=').ok_or_else(|| wrong(example.to_string()))?;
    let key = KEYS.iter().position(|k| *k == key.trim()).ok_or_else(|| {
        let hint = did_you_mean(key.trim(), KEYS);
        wrong(format!("unknown key `{}`{hint} (keys: {})", key.trim(), KEYS.join(", ")))
    })?;
    let number = |part: &str| match part.trim().parse::<f64>() {
        Ok(x) if x > 0.0 && x <= MAX_SCALE => Ok(x),
        Ok(x) => Err(wrong(format!("{x} must be above 0 and at most {MAX_SCALE} (times the base)"))),
        Err(_) => Err(wrong(format!("`{}` is no number; {example}", part.trim()))),
    };
    let values = if let Some((low, high)) = list.split_once("..") {
        let (low, high) = (number(low)?, number(high)?);
        if high <= low {
            return Err(wrong(format!("from {low} to {high} goes nowhere")));
        }
        Values::Range(low, high)
    } else if list.contains(':') {
        let parts: Vec<&str> = list.split(':').collect();
        let [from, to, step] = parts[..] else { return Err(wrong(example.to_string())) };
        let (from, to, step) = (number(from)?, number(to)?, number(step)?);
        // Steps such as 0.1 do not add up exactly: a millionth of one is forgiven.
        let steps = ((to - from) / step + 1e-6).floor();
        if to < from || steps >= MAX_VALUES {
            return Err(wrong("goes nowhere, or in too many steps".to_string()));
        }
        Values::List((0..=steps as u64).map(|i| ((from + step * i as f64) * 1e9).round() / 1e9).collect())
    } else {
        Values::List(list.split(',').map(number).collect::<Result<_, _>>()?)
    };
    Ok(Axis { key, values })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_steps_and_ranges() {
        assert_eq!(axis("clock=1,1.5").unwrap(), Axis { key: 1, values: Values::List(vec![1.0, 1.5]) });
        assert_eq!(axis("l2=1:1.2:0.1").unwrap().values, Values::List(vec![1.0, 1.1, 1.2]));
        assert_eq!(axis("dram_bw=0.5..4").unwrap().values, Values::Range(0.5, 4.0));
        assert_eq!(Values::List(vec![1.0, 2.0, 4.0]).nearest(2.9), 2.0);
    }

    #[test]
    fn wrong_ones_say_why() {
        for (text, part) in [
            ("dram", "write it as"),
            ("dram_bv=1", "did you mean `dram_bw`"),
            ("dram_bw=0", "above 0"),
            ("dram_bw=x", "no number"),
            ("dram_bw=4..1", "nowhere"),
            ("dram_bw=1:2", "write it as"),
            ("dram_bw=nan", "above 0"),
        ] {
            let error = axis(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
