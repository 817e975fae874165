//! Errors, as the project reports them.

/// Mean and median of |predicted/measured - 1| and the median signed error, in per cent.
#[derive(Debug, Clone, Copy, Default)]
pub struct Score {
    pub n: usize,
    pub mean: f64,
    pub median: f64,
    pub bias: f64,
}

/// Scores pairs of (predicted, measured).
pub fn score(pairs: impl IntoIterator<Item = (f64, f64)>) -> Score {
    let mut signed: Vec<f64> = pairs.into_iter().map(|(p, m)| 100.0 * (p / m - 1.0)).collect();
    let n = signed.len();
    if n == 0 {
        return Score::default();
    }
    let mean = signed.iter().map(|e| e.abs()).sum::<f64>() / n as f64;
    signed.sort_by(f64::total_cmp);
    let bias = signed[n / 2];
    let mut size: Vec<f64> = signed.iter().map(|e| e.abs()).collect();
    size.sort_by(f64::total_cmp);
    Score { n, mean, median: size[n / 2], bias }
}

impl std::fmt::Display for Score {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "n {:6}  mean {:6.2} %  median {:6.2} %  bias {:+6.2} %",
            self.n, self.mean, self.median, self.bias
        )
    }
}

/// A prediction with its interval beside a measurement, in one unit.
#[derive(Debug, Clone, Copy)]
pub struct Scored {
    pub predicted: f64,
    pub measured: f64,
    pub low: f64,
    pub high: f64,
}

/// Errors of several predictions, how many lie in their interval, and the median of its half width in log.
#[derive(Debug, Clone, Copy)]
pub struct Line {
    pub score: Score,
    pub inside: f64,
    pub half_width: f64,
}

impl Line {
    pub fn of(rows: &[Scored]) -> Self {
        let inside = rows.iter().filter(|s| s.low <= s.measured && s.measured <= s.high).count();
        let mut widths: Vec<f64> = rows.iter().map(|s| (s.high / s.low).ln() / 2.0).collect();
        widths.sort_by(f64::total_cmp);
        Self {
            score: score(rows.iter().map(|s| (s.predicted, s.measured))),
            inside: 100.0 * inside as f64 / rows.len().max(1) as f64,
            half_width: widths.get(widths.len() / 2).copied().unwrap_or(0.0),
        }
    }
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}  in the interval {:3.0} %  half width {:.2}", self.score, self.inside, self.half_width)
    }
}
