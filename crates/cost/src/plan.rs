//! A whole run under a deadline or a budget.

use super::CostError;
use preflop_units::Seconds;

/// A run: so many passes over so many samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Passes over the data.
    pub epochs: u64,
    /// Samples of one pass.
    pub dataset_size: u64,
}

/// What a run must keep to.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// Longest time.
    pub deadline: Option<Seconds>,
    /// Most dollars.
    pub budget_usd: Option<f64>,
}

/// What is chosen by the limits that were given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// Cheapest that finishes in time (and within the budget, if there is one).
    Cheapest,
    /// Fastest within the budget.
    Fastest,
}

/// One way to do the run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Way {
    /// Hours of the run.
    pub time: Seconds,
    /// Dollars of the run, where there is a price.
    pub usd: Option<f64>,
}

impl Plan {
    /// Checks that the parts of a question belong together.
    pub fn new(
        epochs: Option<u64>,
        dataset_size: Option<u64>,
        limits: &Limits,
    ) -> Result<Option<Self>, CostError> {
        let limited = limits.deadline.is_some() || limits.budget_usd.is_some();
        let problem = match (epochs, dataset_size) {
            (Some(epochs), Some(dataset_size)) => return Ok(Some(Self { epochs, dataset_size })),
            (None, None) if !limited => return Ok(None),
            (None, Some(_)) if !limited => {
                return Ok(dataset_size.map(|n| Self { epochs: 1, dataset_size: n }));
            }
            (Some(_), None) => "`--epochs` needs `--dataset-size`: without it an epoch has no length",
            (None, Some(_)) => {
                "`--deadline` and `--budget` need `--epochs`: how often to go through the data"
            }
            (None, None) => {
                "`--deadline` and `--budget` need `--epochs` and `--dataset-size`: how long the run is"
            }
        };
        Err(CostError::Plan { problem: problem.to_string() })
    }

    /// Iterations of the run; the last of an epoch may be partly filled.
    pub fn iterations(&self, batch: u64) -> f64 {
        self.dataset_size.div_ceil(batch.max(1)) as f64 * self.epochs as f64
    }

    /// Time and money of the run.
    pub fn way(&self, iteration: Seconds, batch: u64, usd_per_hour: Option<f64>) -> Way {
        let time = iteration * self.iterations(batch);
        Way { time, usd: usd_per_hour.map(|usd| usd * time.0 / 3600.0) }
    }
}

impl Limits {
    /// What to choose; nothing if nothing limits.
    pub fn goal(&self) -> Option<Goal> {
        match (self.deadline, self.budget_usd) {
            (Some(_), _) => Some(Goal::Cheapest),
            (None, Some(_)) => Some(Goal::Fastest),
            (None, None) => None,
        }
    }

    /// Does this way keep to the limits? Without a price, no budget is known to be kept.
    pub fn allow(&self, way: &Way) -> bool {
        self.deadline.is_none_or(|d| way.time <= d)
            && self.budget_usd.is_none_or(|b| way.usd.is_some_and(|usd| usd <= b))
    }

    /// The index of the best way that keeps to the limits; `None` if none does.
    pub fn choose(&self, ways: &[Option<Way>]) -> Option<usize> {
        let goal = self.goal()?;
        let key = |w: &Way| match goal {
            Goal::Cheapest => w.usd,
            Goal::Fastest => Some(w.time.0),
        };
        ways.iter()
            .enumerate()
            .filter_map(|(i, w)| w.as_ref().filter(|w| self.allow(w)).and_then(|w| Some((i, key(w)?))))
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(i, _)| i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(hours: f64, usd: Option<f64>) -> Way {
        Way { time: Seconds(hours * 3600.0), usd }
    }

    #[test]
    fn a_run_is_iterations_times_time() {
        let plan = Plan { epochs: 90, dataset_size: 1_281_167 };
        // 1 281 167 / 64 = 20018.2, so 20019 iterations of 0.1 s: 2001.9 s, 90 times 180 171 s; 50.05 h at 2 usd
        let w = plan.way(Seconds(0.1), 64, Some(2.0));
        assert!((w.time.0 - 180_171.0).abs() < 1e-6);
        assert!((w.usd.unwrap() - 100.095).abs() < 1e-9);
    }

    #[test]
    fn the_parts_of_a_question_belong_together() {
        let deadline = Limits { deadline: Some(Seconds(1.0)), budget_usd: None };
        let none = Limits::default();
        assert!(Plan::new(Some(90), None, &none).unwrap_err().to_string().contains("--dataset-size"));
        assert!(Plan::new(None, Some(9), &deadline).unwrap_err().to_string().contains("--epochs"));
        assert!(Plan::new(None, None, &deadline).is_err());
        assert_eq!(Plan::new(None, None, &none), Ok(None));
        assert_eq!(Plan::new(None, Some(9), &none).unwrap().unwrap().epochs, 1);
    }

    #[test]
    fn cheapest_in_time_and_fastest_for_the_money() {
        let priced = [way(10.0, Some(50.0)), way(20.0, Some(30.0)), way(60.0, Some(10.0)), way(1.0, None)];
        let ways = [priced.map(Some).as_slice(), &[None]].concat();
        let limits = |hours: Option<f64>, usd| Limits {
            deadline: hours.map(|h| Seconds(h * 3600.0)),
            budget_usd: usd,
        };
        assert_eq!(limits(Some(48.0), None).choose(&ways), Some(1));
        assert_eq!(limits(None, Some(100.0)).choose(&ways), Some(0));
        assert_eq!(limits(None, Some(20.0)).choose(&ways), Some(2));
        assert_eq!(limits(Some(15.0), Some(40.0)).choose(&ways), None);
        assert_eq!(limits(None, None).choose(&ways), None);
    }
}
