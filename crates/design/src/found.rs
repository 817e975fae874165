//! Designs that were tried: all of a small space, the best of them, and those that no other beats.

use crate::{Axis, Design, DesignError, Evaluated, Limits, Objective, Values, Workload};
use preflop_core::explore::pareto;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Designs that are evaluated one by one; more are searched.
pub const MAX_GRID: u64 = 20_000;

/// What a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Every design that was evaluated.
    pub all: Vec<Evaluated>,
    /// Place of the best one within the limits.
    pub best: usize,
}

/// All combinations, the last key fastest; nothing where they are too many or not counted.
pub fn grid(axes: &[Axis]) -> Option<Vec<Design>> {
    let lists: Option<Vec<&Vec<f64>>> = axes
        .iter()
        .map(|axis| match &axis.values {
            Values::List(list) => Some(list),
            Values::Range(..) => None,
        })
        .collect();
    let lists = lists?;
    let count = lists.iter().try_fold(1_u64, |n, list| n.checked_mul(list.len() as u64))?;
    if count > MAX_GRID {
        return None;
    }
    let at = |place: u64| {
        let mut rest = place;
        let mut values = vec![1.0; lists.len()];
        for (value, list) in values.iter_mut().zip(&lists).rev() {
            *value = list[(rest % list.len() as u64) as usize];
            rest /= list.len() as u64;
        }
        Workload::design(axes, &values)
    };
    Some((0..count).map(at).collect())
}

impl Found {
    /// The best of these.
    pub fn of(all: Vec<Evaluated>, objective: Objective, limits: &Limits) -> Result<Self, DesignError> {
        let all = distinct(all, objective, limits);
        let key = |i: &usize| all[*i].objective(objective);
        let within = (0..all.len()).filter(|i| limits.excess(&all[*i]) == 0.0);
        if let Some(best) = within.min_by(|a, b| key(a).total_cmp(&key(b))) {
            return Ok(Self { all, best });
        }
        let nearest = all.iter().min_by(|a, b| limits.excess(a).total_cmp(&limits.excess(b)));
        let text = |e: &Evaluated| {
            let area = e.area_mm2.map_or(String::new(), |mm2| format!(", {mm2:.0} mm2"));
            format!("{:.0} W{area}", e.watts)
        };
        let limit = |name: &str, x: Option<f64>| x.map(|x| format!("{name}={x}"));
        let limits = [limit("watts", limits.watts), limit("area", limits.area_mm2)];
        Err(DesignError::Nothing {
            limits: limits.into_iter().flatten().collect::<Vec<_>>().join(", "),
            nearest: nearest.map_or_else(|| "nothing".to_string(), text),
        })
    }
}

/// Each design once, by its name: a search comes back to good ones, and close by. The better of two stays.
fn distinct(all: Vec<Evaluated>, objective: Objective, limits: &Limits) -> Vec<Evaluated> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut out: Vec<Evaluated> = Vec::with_capacity(all.len());
    for design in all {
        let key = |e: &Evaluated| (limits.excess(e), e.objective(objective));
        match places.entry(design.design.name()) {
            Entry::Vacant(place) => {
                place.insert(out.len());
                out.push(design);
            }
            Entry::Occupied(place) if key(&design) < key(&out[*place.get()]) => out[*place.get()] = design,
            Entry::Occupied(_) => {}
        }
    }
    out
}

/// Which designs within the limits no other beats in both the objective and area.
pub fn front(all: &[Evaluated], objective: Objective, limits: &Limits) -> Vec<bool> {
    let point = |e: &Evaluated| {
        let gain = if limits.excess(e) == 0.0 { 1.0 / e.objective(objective) } else { f64::NAN };
        (gain, e.share)
    };
    pareto(&all.iter().map(point).collect::<Vec<_>>())
}
