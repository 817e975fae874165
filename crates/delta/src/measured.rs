//! Measurements beside the model: the paper's two figures of error (Sec. VII).

use serde::Serialize;

/// Errors below this count as this: one exact row would make a geometric mean zero.
const LEAST_ERROR: f64 = 1e-3;

/// How far predictions are from measurements.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Errors {
    /// Rows.
    pub rows: usize,
    /// GMAE, the geometric mean of the absolute errors: `exp(mean(ln |p/m - 1|))`.
    pub gmae: f64,
    /// Standard deviation of p/m.
    pub standard_deviation: f64,
    /// Mean of |p/m - 1|.
    pub mean_absolute_error: f64,
    /// Geometric mean of the factor between the two, `exp(mean |ln p/m|)`.
    pub mean_factor: f64,
}

impl Errors {
    /// Of ratios p/m, predicted over measured; nothing where there are none.
    ///
    /// Reading: "geometric mean absolute error" is taken by its words. For errors about zero it is about half of the
    /// standard deviation, and so are the paper's pairs (4.2 and 7.2 %, 6.9 and 13.3, 12.4 and 25.0); a mean of absolute
    /// errors would be 0.8 of it.
    pub fn of(ratios: &[f64]) -> Option<Self> {
        let n = ratios.len() as f64;
        if ratios.is_empty() || ratios.iter().any(|r| !(*r > 0.0 && r.is_finite())) {
            return None;
        }
        let mean = |f: &dyn Fn(f64) -> f64| ratios.iter().map(|r| f(*r)).sum::<f64>() / n;
        let middle = mean(&|r| r);
        Some(Self {
            rows: ratios.len(),
            gmae: mean(&|r| (r - 1.0).abs().max(LEAST_ERROR).ln()).exp(),
            standard_deviation: mean(&|r| (r - middle).powi(2)).sqrt(),
            mean_absolute_error: mean(&|r| (r - 1.0).abs()),
            mean_factor: mean(&|r| r.ln().abs()).exp(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_by_hand() {
        // |1.1-1| = 0.1, |0.6-1| = 0.4: geometric mean 0.2, mean 0.25; mean ratio 0.85, deviation 0.25
        let e = Errors::of(&[1.1, 0.6]).unwrap();
        let close = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(
            close(e.gmae, 0.2) && close(e.mean_absolute_error, 0.25) && close(e.standard_deviation, 0.25)
        );
        // exp((ln 1.1 + ln 1/0.6)/2) = sqrt(1.1/0.6)
        assert!(close(e.mean_factor, (1.1_f64 / 0.6).sqrt()));
        // An exact row counts as 0.1 %: sqrt(0.001 * 0.1) = 0.01
        assert!(close(Errors::of(&[1.0, 1.1]).unwrap().gmae, 0.01));
    }

    #[test]
    fn nothing_is_said_of_nothing() {
        assert_eq!(Errors::of(&[]), None);
        assert_eq!(Errors::of(&[1.0, f64::NAN]), None);
        assert_eq!(Errors::of(&[0.0]), None);
    }
}
