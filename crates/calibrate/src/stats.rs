//! What several measurements of one thing say together.

/// Several measurements in short.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// The middle one.
    pub median: f64,
    /// How far they lie apart, relative to the median: half of the middle 80 %.
    pub spread: f64,
    /// How many.
    pub count: usize,
}

/// Value at a share of the sorted samples, with straight lines between them.
///
/// `quantile(p) = x[i] + (h - i) (x[i+1] - x[i])`, `h = p (n - 1)`, `i = floor(h)`: definition 7 of Hyndman and Fan,
/// "Sample quantiles in statistical packages", The American Statistician 50 (1996).
pub fn quantile(sorted: &[f64], p: f64) -> f64 {
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return f64::NAN };
    let h = p.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let i = h.floor() as usize;
    match (sorted.get(i), sorted.get(i + 1)) {
        (Some(a), Some(b)) => a + (h - i as f64) * (b - a),
        (Some(a), None) => *a,
        _ => {
            if p < 0.5 {
                *first
            } else {
                *last
            }
        }
    }
}

/// Sums up samples; `None` where there are none or one is no positive number.
pub fn summary(samples: &[f64]) -> Option<Summary> {
    if samples.is_empty() || samples.iter().any(|x| !x.is_finite() || *x <= 0.0) {
        return None;
    }
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = quantile(&sorted, 0.5);
    let spread = (quantile(&sorted, 0.9) - quantile(&sorted, 0.1)) / (2.0 * median);
    Some(Summary { median, spread, count: samples.len() })
}

/// Rounds to so many significant digits: a file should not claim more than was measured.
pub fn significant(x: f64, digits: i32) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    // Through text, so that 4321.4 becomes 4321 and not 4321.000000000001.
    let places = digits - 1 - x.abs().log10().floor() as i32;
    if places >= 0 {
        format!("{x:.*}", places as usize).parse().unwrap_or(x)
    } else {
        let unit = 10f64.powi(-places);
        (x / unit).round() * unit
    }
}

/// The size at which a rate falls from its plateau to what lies behind: the first crossing of the geometric mean of
/// both ends, on a straight line between the two points around it. `None` where the rate does not fall by a fifth, or
/// does not fall at all within the points.
pub fn knee(points: &[(f64, f64)]) -> Option<f64> {
    let plateau = points.iter().take(points.len().div_ceil(4)).map(|p| p.1).fold(0.0, f64::max);
    let behind = points.last()?.1;
    if behind.is_nan() || behind <= 0.0 || plateau < 1.25 * behind {
        return None;
    }
    let level = (plateau * behind).sqrt();
    points.windows(2).find_map(|pair| {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        (y0 >= level && y1 < level).then(|| x0 + (x1 - x0) * (y0 - level) / (y0 - y1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_summary_is_hand_computed() {
        // sorted 1..=11: median 6; 10 % and 90 % points are 2 and 10; (10 - 2) / (2 x 6) = 2/3
        let samples: Vec<f64> = (1..=11).rev().map(f64::from).collect();
        let s = summary(&samples).unwrap();
        assert_eq!((s.median, s.count), (6.0, 11));
        assert!((s.spread - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(summary(&[]), None);
        assert_eq!(summary(&[1.0, f64::NAN]), None);
        assert_eq!(summary(&[1.0, 0.0]), None);
        // one outlier among eleven does not move the spread
        let mut quiet = vec![100.0; 10];
        quiet.push(500.0);
        assert_eq!(summary(&quiet).unwrap().spread, 0.0);
    }

    #[test]
    fn digits_are_cut() {
        assert_eq!(significant(4321.43, 4), 4321.0);
        assert_eq!(significant(54321.0, 4), 54320.0);
        assert_eq!(significant(1.158_31, 3), 1.16);
        assert_eq!(significant(0.0, 3), 0.0);
    }

    #[test]
    fn a_cache_ends_where_the_rate_falls() {
        // plateau 100, behind 25, level 50: between (40, 90) and (50, 40) at 40 + 10 x 40/50 = 48
        let points = [
            (10.0, 100.0),
            (20.0, 99.0),
            (30.0, 100.0),
            (40.0, 90.0),
            (50.0, 40.0),
            (60.0, 26.0),
            (80.0, 25.0),
        ];
        assert!((knee(&points).unwrap() - 48.0).abs() < 1e-9);
        assert_eq!(knee(&[(1.0, 100.0), (2.0, 95.0), (3.0, 94.0), (4.0, 93.0)]), None);
        assert_eq!(knee(&[]), None);
    }

    proptest! {
        #[test]
        fn a_median_lies_within_and_scales(samples in prop::collection::vec(0.001f64..1e6, 1..40), k in 0.01f64..100.0) {
            let s = summary(&samples).unwrap();
            let (low, high) = samples.iter().fold((f64::MAX, 0.0f64), |(l, h), x| (l.min(*x), h.max(*x)));
            prop_assert!(s.median >= low && s.median <= high && s.spread >= 0.0);
            let scaled: Vec<f64> = samples.iter().map(|x| x * k).collect();
            let t = summary(&scaled).unwrap();
            prop_assert!((t.median / (s.median * k) - 1.0).abs() < 1e-9);
            prop_assert!((t.spread - s.spread).abs() < 1e-9);
        }
    }
}
