//! Cross-validation and final training, the same for every family.

use crate::gbdt::{self, Settings};
use preflop_core::time::fitted::LogInterval;
use preflop_core::time::trees::{Features, Forest};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// One measurement as the learner sees it.
#[derive(Debug, Clone)]
pub struct Sample {
    pub x: Features,
    /// Closed-form time in seconds.
    pub reference: f64,
    /// Measured time in seconds.
    pub seconds: f64,
    /// The forest that learns it; empty for the one that is named as the family.
    pub forest: &'static str,
    /// Class of its interval.
    pub class: String,
    pub gpu: usize,
    /// Rows with the same number share a fold.
    pub group: usize,
    /// How much the row counts in training.
    pub weight: f32,
    /// File it comes from.
    pub source: &'static str,
}

impl Sample {
    fn target(&self) -> f32 {
        (self.seconds / self.reference).ln() as f32
    }
}

/// The forests of a family by name.
#[derive(Debug, Default)]
pub struct Forests(pub BTreeMap<&'static str, Forest>);

impl Forests {
    /// What the sample's forest says of it.
    pub fn log(&self, s: &Sample) -> f64 {
        self.0.get(s.forest).map_or(0.0, |f| f64::from(f.predict(&s.x)))
    }
}

/// Trains every forest of the family on those of its samples that `keep` lets through.
pub fn fit_all(
    samples: &[Sample],
    features: usize,
    settings: &Settings,
    keep: impl Fn(&Sample) -> bool + Sync,
) -> Forests {
    let mut names: Vec<&'static str> = samples.iter().map(|s| s.forest).collect();
    names.sort_unstable();
    names.dedup();
    let one = |name| (name, fit(samples, features, settings, |s| s.forest == name && keep(s)));
    Forests(names.into_par_iter().map(one).collect())
}

/// Trains one forest on the samples that `keep` lets through.
pub fn fit(
    samples: &[Sample],
    features: usize,
    settings: &Settings,
    keep: impl Fn(&Sample) -> bool,
) -> Forest {
    let kept: Vec<&Sample> = samples.iter().filter(|s| keep(s)).collect();
    let x: Vec<Features> = kept.iter().map(|s| s.x).collect();
    let y: Vec<f32> = kept.iter().map(|s| s.target()).collect();
    let w: Vec<f32> = kept.iter().map(|s| s.weight).collect();
    if settings.bags <= 1 {
        return gbdt::train(&x, &y, Some(&w), features, settings).rounded();
    }
    // Two losses make different errors, and their mean is better than either.
    let forests: Vec<Forest> = (0..settings.bags)
        .map(|bag| {
            let loss = if bag % 2 == 0 { settings.loss } else { settings.second };
            let own = Settings { seed: settings.seed + bag as u64, loss, ..*settings };
            gbdt::train(&x, &y, Some(&w), features, &own)
        })
        .collect();
    Forest::mean(&forests).rounded()
}

/// The forests of each of so many folds, trained on the other folds' samples.
pub fn folds(samples: &[Sample], features: usize, settings: &Settings, folds: usize) -> Vec<Forests> {
    (0..folds)
        .into_par_iter()
        .map(|fold| fit_all(samples, features, settings, |s| s.group % folds != fold))
        .collect()
}

/// Predicted seconds of every sample by the forests that did not see its fold.
pub fn unseen(samples: &[Sample], folds: &[Forests]) -> Vec<f64> {
    samples.iter().map(|s| s.reference * folds[s.group % folds.len()].log(s).exp()).collect()
}

/// Predicted seconds of every sample by a model that did not see its fold.
pub fn cross_validate(samples: &[Sample], features: usize, settings: &Settings, count: usize) -> Vec<f64> {
    unseen(samples, &folds(samples, features, settings, count))
}

/// 5 % and 95 % quantiles of log(measured/predicted) by class, for classes with at least `least` rows.
pub fn intervals(
    rows: impl IntoIterator<Item = (String, f64)>,
    least: usize,
) -> BTreeMap<String, LogInterval> {
    let mut by_class: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (class, log) in rows {
        by_class.entry(class).or_default().push(log);
    }
    by_class
        .into_iter()
        .filter(|(_, v)| v.len() >= least)
        .map(|(class, mut v)| {
            v.sort_by(f64::total_cmp);
            let n = v.len() as f64;
            // Split conformal: ranks widened by one for the unseen row.
            let low = ((0.05 * (n + 1.0)).floor() as usize).max(1) - 1;
            let high = ((0.95 * (n + 1.0)).ceil() as usize).min(v.len()) - 1;
            (class, LogInterval { low: v[low], high: v[high] })
        })
        .collect()
}
