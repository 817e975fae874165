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

    /// From errors of other systems that were left out: as far either way as nine tenths of them lie, because nobody knows to which side
    /// a new system errs.
    pub fn either_way(errors: &[f64]) -> Option<Self> {
        let mut sizes: Vec<f64> = errors.iter().map(|e| e.abs()).filter(|e| e.is_finite()).collect();
        if sizes.is_empty() {
            return None;
        }
        sizes.sort_by(f64::total_cmp);
        let side = quantile(&sizes, 0.9);
        Some(Self { low: -side, high: side })
    }

    /// Both ends around a value.
    pub fn around(self, value: f64) -> (f64, f64) {
        (value * self.low.exponential(), value * self.high.exponential())
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
    fn independent_errors_partly_cancel() {
        let one = LogInterval { low: -0.1, high: 0.1 };
        // sqrt(2 * (5 * 0.1)^2) / 10 = 0.0707
        let joined = LogInterval::joined(&[(5.0, one), (5.0, one)]);
        assert!((joined.high - 0.070_710).abs() < 1e-5 && (joined.low + joined.high).abs() < 1e-12);
    }
}
