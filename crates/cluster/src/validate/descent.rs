//! A small minimiser for a handful of positive constants: one at a time, in shrinking steps of their logarithm.

/// Minimises `f` from `start`; every constant stays within `limits`.
pub fn minimise(f: &dyn Fn(&[f64]) -> f64, start: &[f64], limits: &[(f64, f64)], passes: usize) -> Vec<f64> {
    let mut best = start.to_vec();
    let mut value = f(&best);
    let mut step = 0.5_f64;
    for _ in 0..passes {
        let mut moved = false;
        for i in 0..best.len() {
            for direction in [1.0, -1.0] {
                let mut tried = best.clone();
                let (low, high) = limits.get(i).copied().unwrap_or((0.0, f64::INFINITY));
                tried[i] = (best[i] * (direction * step).exp()).clamp(low, high);
                let there = f(&tried);
                if there < value {
                    best = tried;
                    value = there;
                    moved = true;
                    break;
                }
            }
        }
        if !moved {
            step *= 0.5;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_bottom_within_its_limits() {
        let f = |x: &[f64]| (x[0].ln() - 1.0).powi(2) + (x[1] - 3.0).powi(2);
        let x = minimise(&f, &[1.0, 1.0], &[(0.1, 10.0), (0.1, 2.0)], 60);
        assert!((x[0].ln() - 1.0).abs() < 1e-2 && (x[1] - 2.0).abs() < 1e-9, "{x:?}");
    }
}
