//! Orders candidates and marks those that no other beats.

use serde::Serialize;
use std::cmp::Ordering;

/// Dollars of a million samples: `usd_per_hour / 3600 s / samples_per_s * 10^6`.
pub fn usd_per_million_samples(usd_per_hour: f64, samples_per_s: f64) -> f64 {
    usd_per_hour / 3600.0 / samples_per_s * 1e6
}

/// What a list is ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RankBy {
    /// Time of one sample.
    Time,
    /// Dollars of one sample.
    Cost,
    /// Joules of one sample.
    Energy,
}

/// One GPU with one way to run on it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// Does it fit in memory?
    pub fits: bool,
    /// Seconds of one sample.
    pub seconds_per_sample: f64,
    /// Dollars of one sample, where there is a price.
    pub usd_per_sample: Option<f64>,
    /// Joules of one sample.
    pub joules_per_sample: f64,
}

impl Candidate {
    fn key(&self, by: RankBy) -> f64 {
        match by {
            RankBy::Time => self.seconds_per_sample,
            RankBy::Cost => self.usd_per_sample.unwrap_or(f64::INFINITY),
            RankBy::Energy => self.joules_per_sample,
        }
    }

    /// The better one first: what fits, then the chosen quantity, then time.
    pub fn compare(&self, other: &Self, by: RankBy) -> Ordering {
        other
            .fits
            .cmp(&self.fits)
            .then(self.key(by).total_cmp(&other.key(by)))
            .then(self.seconds_per_sample.total_cmp(&other.seconds_per_sample))
    }

    /// At least as good in time and money, and better in one of them.
    fn beats(&self, other: &Self) -> bool {
        let (Some(a), Some(b)) = (self.usd_per_sample, other.usd_per_sample) else { return false };
        let (s, t) = (self.seconds_per_sample, other.seconds_per_sample);
        self.fits && s <= t && a <= b && (s < t || a < b)
    }
}

/// For each candidate, whether it is on the Pareto front of time and money: it fits, has a price, and no other
/// one is both as fast and as cheap.
pub fn front(candidates: &[Candidate]) -> Vec<bool> {
    candidates
        .iter()
        .map(|c| c.fits && c.usd_per_sample.is_some() && !candidates.iter().any(|other| other.beats(c)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn candidate(fits: bool, s: f64, usd: Option<f64>) -> Candidate {
        Candidate { fits, seconds_per_sample: s, usd_per_sample: usd, joules_per_sample: s }
    }

    #[test]
    fn the_front_is_what_nothing_beats() {
        let all = [
            candidate(true, 1.0, Some(3.0)),  // fastest
            candidate(true, 2.0, Some(1.0)),  // cheapest
            candidate(true, 2.0, Some(2.0)),  // beaten by the second
            candidate(false, 0.5, Some(0.5)), // does not fit
            candidate(true, 0.1, None),       // no price
        ];
        assert_eq!(front(&all), [true, true, false, false, false]);
    }

    #[test]
    fn what_does_not_fit_or_has_no_price_comes_last() {
        let mut all =
            [candidate(false, 0.1, Some(0.1)), candidate(true, 1.0, None), candidate(true, 2.0, Some(9.0))];
        all.sort_by(|a, b| a.compare(b, RankBy::Cost));
        assert_eq!(all.map(|c| c.seconds_per_sample), [2.0, 1.0, 0.1]);
        all.sort_by(|a, b| a.compare(b, RankBy::Time));
        assert_eq!(all.map(|c| c.seconds_per_sample), [1.0, 2.0, 0.1]);
    }

    proptest! {
        #[test]
        fn everything_off_the_front_is_beaten_by_something_on_it(
            points in proptest::collection::vec((0.1_f64..10.0, 0.1_f64..10.0), 1..30)
        ) {
            let all: Vec<Candidate> = points.iter().map(|(s, usd)| candidate(true, *s, Some(*usd))).collect();
            let on = front(&all);
            prop_assert!(on.iter().any(|f| *f));
            for (c, on_front) in all.iter().zip(&on) {
                let beaten = all.iter().zip(&on).any(|(other, f)| *f && other.beats(c));
                prop_assert_eq!(beaten, !on_front);
            }
        }
    }
}
