//! Nelder-Mead minimisation of a function of a few numbers.

/// Minimises `f` from `start`, with steps of size `step`, in at most `evaluations` calls. Returns the best
/// point found and its value.
pub fn minimise(f: &dyn Fn(&[f64]) -> f64, start: &[f64], step: f64, evaluations: usize) -> (Vec<f64>, f64) {
    let n = start.len();
    let mut points: Vec<(Vec<f64>, f64)> = Vec::with_capacity(n + 1);
    points.push((start.to_vec(), f(start)));
    for i in 0..n {
        let mut p = start.to_vec();
        p[i] += step;
        let v = f(&p);
        points.push((p, v));
    }
    let mut used = n + 1;
    while used < evaluations {
        points.sort_by(|a, b| a.1.total_cmp(&b.1));
        if points[n].1 - points[0].1 < 1e-9 {
            break;
        }
        let centre: Vec<f64> =
            (0..n).map(|j| points[..n].iter().map(|p| p.0[j]).sum::<f64>() / n as f64).collect();
        let along =
            |t: f64| -> Vec<f64> { (0..n).map(|j| centre[j] + t * (points[n].0[j] - centre[j])).collect() };
        let reflected = along(-1.0);
        let fr = f(&reflected);
        used += 1;
        if fr < points[0].1 {
            let expanded = along(-2.0);
            let fe = f(&expanded);
            used += 1;
            points[n] = if fe < fr { (expanded, fe) } else { (reflected, fr) };
        } else if fr < points[n - 1].1 {
            points[n] = (reflected, fr);
        } else {
            let contracted = if fr < points[n].1 { along(-0.5) } else { along(0.5) };
            let fc = f(&contracted);
            used += 1;
            if fc < points[n].1.min(fr) {
                points[n] = (contracted, fc);
            } else {
                let best = points[0].0.clone();
                for p in &mut points[1..] {
                    for (x, b) in p.0.iter_mut().zip(&best) {
                        *x = b + 0.5 * (*x - b);
                    }
                    p.1 = f(&p.0);
                    used += 1;
                }
            }
        }
    }
    points.sort_by(|a, b| a.1.total_cmp(&b.1));
    points.swap_remove(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_bottom_of_a_valley() {
        let f = |x: &[f64]| (x[0] - 3.0).powi(2) + 10.0 * (x[1] + x[0] - 1.0).powi(2);
        let (x, v) = minimise(&f, &[0.0, 0.0], 0.5, 500);
        assert!((x[0] - 3.0).abs() < 1e-3 && (x[1] + 2.0).abs() < 1e-3 && v < 1e-6, "{x:?} {v}");
    }
}
