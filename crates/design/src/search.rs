//! An optimiser's way through a space that has too many designs to try them all.
//!
//! The optimiser is Nelder and Mead's simplex (1965) from the crate argmin: designs are few-dimensional, and times have corners where the bottleneck
//! changes, which gradients do not like. It works on logarithms of the scales; what exceeds a limit or the space is worse by how far it does. To
//! get a front and not one point, it is run under a ladder of area limits, each from the best design found so far that keeps to it; the first
//! are those of a coarse net over the space, and the base.

use crate::{Axis, Design, DesignError, Evaluated, Found, Limits, Objective, Workload};
use argmin::core::{CostFunction, Error, Executor};
use argmin::solver::neldermead::NelderMead;
use std::cell::RefCell;

/// Steps of the ladder of area limits.
const LADDER: usize = 8;
/// Iterations of one simplex; each asks for one or two designs.
const STEPS: u64 = 60;
/// What an excess of 100 % adds to the logarithm of the objective: more than any design can gain.
const PENALTY: f64 = 50.0;
/// Edge of the first simplex, as a share of the space.
const EDGE: f64 = 0.25;

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

/// Searches a space that is too large for [`grid`](crate::grid).
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
