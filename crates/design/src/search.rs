//! All designs of a space, or an optimiser's way through it where they are too many.
//!
//! The optimiser is Nelder and Mead's simplex (1965) from the crate argmin: designs are few-dimensional, and times have corners where the bottleneck
//! changes, which gradients do not like. It works on logarithms of the scales; what exceeds a limit or the space is worse by how far it does. To
//! get a front and not one point, it is run under a ladder of area limits, each from the best design found so far that keeps to it; the first
//! are those of a coarse net over the space, and the base.

use crate::{Axis, Design, DesignError, Evaluated, Limits, Objective, Values, Workload};
use argmin::core::{CostFunction, Error, Executor};
use argmin::solver::neldermead::NelderMead;
use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Designs that are evaluated one by one; more are searched.
pub const MAX_GRID: u64 = 20_000;
/// Steps of the ladder of area limits.
const LADDER: usize = 8;
/// Iterations of one simplex; each asks for one or two designs.
const STEPS: u64 = 60;
/// What an excess of 100 % adds to the logarithm of the objective: more than any design can gain.
const PENALTY: f64 = 50.0;
/// Edge of the first simplex, as a share of the space.
const EDGE: f64 = 0.25;

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

struct Problem<'a> {
    workload: &'a Workload<'a>,
    axes: &'a [Axis],
    objective: Objective,
    limits: Limits,
    /// Most of the base's area, from the ladder.
    most: f64,
    seen: &'a RefCell<Vec<Evaluated>>,
}

impl Problem<'_> {
    /// The value of an axis at a place from 0 to 1, on a logarithmic scale.
    fn value(axis: &Axis, place: f64) -> f64 {
        let (low, high) = axis.values.ends();
        axis.values.nearest(low * (high / low).powf(place.clamp(0.0, 1.0)))
    }

    fn place(axis: &Axis, value: f64) -> f64 {
        let (low, high) = axis.values.ends();
        if high > low { (value / low).ln() / (high / low).ln() } else { 0.0 }
    }

    fn penalised(&self, places: &[f64]) -> f64 {
        let values: Vec<f64> = self.axes.iter().zip(places).map(|(a, p)| Self::value(a, *p)).collect();
        let outside: f64 = places.iter().map(|p| (p - p.clamp(0.0, 1.0)).abs()).sum();
        let e = self.workload.evaluate(Workload::design(self.axes, &values));
        let excess = self.limits.excess(&e) + (e.share / self.most - 1.0).max(0.0);
        let cost = e.objective(self.objective).ln() + PENALTY * (excess + outside);
        self.seen.borrow_mut().push(e);
        cost
    }
}

impl CostFunction for Problem<'_> {
    type Param = Vec<f64>;
    type Output = f64;

    fn cost(&self, places: &Vec<f64>) -> Result<f64, Error> {
        Ok(self.penalised(places))
    }
}

/// The ends and the middle of every axis in all combinations, and the base as far as the axes allow it.
fn net(axes: &[Axis]) -> Vec<Design> {
    let places = [0.0, 0.5, 1.0];
    let count = places.len().pow(axes.len() as u32);
    let at = |mut rest: usize| {
        let mut value = |axis: &Axis| {
            let place = places[rest % places.len()];
            rest /= places.len();
            Problem::value(axis, place)
        };
        Workload::design(axes, &axes.iter().map(&mut value).collect::<Vec<_>>())
    };
    let base: Vec<f64> = axes.iter().map(|a| a.values.nearest(1.0)).collect();
    (0..count).map(at).chain([Workload::design(axes, &base)]).collect()
}

/// Searches a space that is too large for [`grid`].
pub fn optimise(
    workload: &Workload<'_>,
    axes: &[Axis],
    objective: Objective,
    limits: &Limits,
) -> Result<Found, DesignError> {
    // A simplex finds the valley that it starts in: a coarse net over the space, and the base, say which are deep.
    let seen = RefCell::new(net(axes).into_iter().map(|d| workload.evaluate(d)).collect::<Vec<_>>());
    let corner =
        |pick: fn((f64, f64)) -> f64| -> Vec<f64> { axes.iter().map(|a| pick(a.values.ends())).collect() };
    let ends =
        [corner(|e| e.0), corner(|e| e.1)].map(|v| workload.evaluate(Workload::design(axes, &v)).share);
    let (low, high) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
    for step in 1..=LADDER {
        let most = low * (high / low).powf(step as f64 / LADDER as f64);
        let within = |e: &&Evaluated| limits.excess(e) == 0.0 && e.share <= most;
        let start: Vec<f64> = seen
            .borrow()
            .iter()
            .filter(within)
            .min_by(|a, b| a.objective(objective).total_cmp(&b.objective(objective)))
            .map_or_else(
                || vec![0.1; axes.len()],
                |e| axes.iter().map(|a| Problem::place(a, e.design.0[a.key])).collect(),
            );
        let problem = Problem { workload, axes, objective, limits: *limits, most, seen: &seen };
        let mut simplex = vec![start.clone()];
        for i in 0..axes.len() {
            let mut corner = start.clone();
            // Into the space, wherever the start lies.
            corner[i] += if corner[i] > 0.5 { -EDGE } else { EDGE };
            simplex.push(corner);
        }
        let run =
            Executor::new(problem, NelderMead::new(simplex)).configure(|state| state.max_iters(STEPS)).run();
        run.map_err(|e| DesignError::Base(format!("the optimiser failed: {e}")))?;
    }
    Found::of(seen.into_inner(), objective, limits)
}
