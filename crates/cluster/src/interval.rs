//! 90 % intervals of logarithmic errors, and how errors of several parts add up.

use preflop_core::units::math::Elementary as _;
use serde::{Deserialize, Serialize};

/// Natural logs of measured over predicted at the 5th and 95th percentile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LogInterval {
    /// 5th percentile.
    pub low: f64,
    /// 95th percentile.
    pub high: f64,
}

impl LogInterval {
    /// A factor either way.
    pub fn factor(of: f64) -> Self {
        Self { low: -of.natural_log(), high: of.natural_log() }
    }

    /// From errors of rows that were left out: their 5th and 95th percentile, which always span zero.
    pub fn of(errors: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = errors.iter().copied().filter(|e| e.is_finite()).collect();
        if sorted.is_empty() {
            return None;
        }
        sorted.sort_by(f64::total_cmp);
        Some(Self { low: quantile(&sorted, 0.05).min(0.0), high: quantile(&sorted, 0.95).max(0.0) })
    }

    /// From errors of runs on several systems that were left out: as far either way as nine tenths of them lie, because nobody knows to
    /// which side a new system errs. Each system counts as much as any other, however many of its runs there are.
    pub fn either_way_by<'a>(errors: impl Iterator<Item = (&'a str, f64)>) -> Option<Self> {
        let mut sizes: Vec<(f64, &str)> =
            errors.filter(|(_, e)| e.is_finite()).map(|(s, e)| (e.abs(), s)).collect();
        sizes.sort_by(|a, b| a.0.total_cmp(&b.0));
        let rows_of = |system: &str| sizes.iter().filter(|(_, s)| *s == system).count() as f64;
        let shares: Vec<f64> = sizes.iter().map(|(_, s)| 1.0 / rows_of(s)).collect();
        let wanted = 0.9 * shares.iter().sum::<f64>() - 1e-9;
        let mut counted = 0.0;
        for ((size, _), share) in sizes.iter().zip(&shares) {
            counted += share;
            if counted >= wanted {
                return Some(Self { low: -size, high: *size });
            }
        }
        None
    }

    /// Both ends around a value.
    pub fn around(self, value: f64) -> (f64, f64) {
        (value * self.low.exponential(), value * self.high.exponential())
    }

    /// The same with another independent error of this size, either way.
    #[must_use]
    pub fn wider_by(self, other: f64) -> Self {
        Self { low: -self.low.hypotenuse(other), high: self.high.hypotenuse(other) }
    }

    /// The interval of a sum of parts with independent errors: variances of each side add.
    ///
    /// ```text
    /// side = sqrt(sum (t_i * e_i)^2) / sum t_i
    /// ```
    ///
    /// Where t_i is the time of a part and e_i its log error on that side.
    pub fn joined(parts: &[(f64, Self)]) -> Self {
        let total: f64 = parts.iter().map(|(t, _)| t).sum();
        if total <= 0.0 {
            return Self { low: 0.0, high: 0.0 };
        }
        let side = |pick: fn(&Self) -> f64| {
            parts.iter().map(|(t, i)| (t * pick(i)).powi(2)).sum::<f64>().sqrt() / total
        };
        Self { low: -side(|i| i.low), high: side(|i| i.high) }
    }
}

/// The value below which a share `q` of a sorted list lies, interpolated.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let place = q.clamp(0.0, 1.0) * last as f64;
    let (below, share) = (place.floor() as usize, place.fract());
    let above = sorted.get(below + 1).unwrap_or(&sorted[last]);
    sorted[below] + share * (above - sorted[below])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_interpolated() {
        let sorted: Vec<f64> = (0..=100).map(f64::from).collect();
        assert_eq!(quantile(&sorted, 0.05), 5.0);
        assert_eq!(quantile(&[1.0, 2.0], 0.5), 1.5);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }

    #[test]
    fn a_system_with_many_runs_counts_as_one_with_few() {
        let runs = (0..90).map(|i| ("many", f64::from(i) * 1e-3)).chain([("few", -0.3), ("few", 0.1)]);
        // Half of all weight lies in `few`: nine tenths of it are reached by its larger error only.
        assert_eq!(LogInterval::either_way_by(runs), Some(LogInterval { low: -0.3, high: 0.3 }));
        assert_eq!(LogInterval::either_way_by(std::iter::empty()), None);
    }

    #[test]
    fn independent_errors_partly_cancel() {
        let one = LogInterval { low: -0.1, high: 0.1 };
        // sqrt(2 * (5 * 0.1)^2) / 10 = 0.0707
        let joined = LogInterval::joined(&[(5.0, one), (5.0, one)]);
        assert!((joined.high - 0.070_710).abs() < 1e-5 && (joined.low + joined.high).abs() < 1e-12);
    }
}
