//! Design studies: what a network gains when a GPU's resources grow, and which resource binds then.
//!
//! A [`Design`] scales a base machine; [`Workload`] holds a network's layers cut into tiles, counted once per
//! tile policy, so that a sweep only repeats the time equations. Designs are independent: shells may
//! evaluate them in parallel.

mod area;
mod design;
mod next;
mod sweep;

pub use area::{AREA_WEIGHTS, AreaError, AreaWeights};
pub use design::{Design, KEYS, Scales, paper_options};
pub use next::Next;
pub use sweep::{MAX_DESIGNS, Sweep, SweepError};

use crate::networks::{NamedLayer, counted};
use crate::{Bottleneck, DeltaError, EdgeTiles, Machine, Readings, Work, plan, time};
use preflop_units::Seconds;
use std::collections::BTreeMap;

/// A network's distinct layers, cut into tiles for every tile edge that a study uses.
#[derive(Debug, Clone)]
pub struct Workload {
    by_edge: BTreeMap<u32, Vec<(Work, u64)>>,
    base: Machine,
    base_time: Seconds,
}

/// What a design does to a network.
#[derive(Debug, Clone, PartialEq)]
pub struct DesignResult {
    /// The design.
    pub design: Design,
    /// Sum over all layers.
    pub time: Seconds,
    /// Time of the base machine over this.
    pub speedup: f64,
    /// Layers bound by each resource, in the order of [`Bottleneck::ALL`].
    pub bottlenecks: [u64; 6],
    /// Time spent in layers bound by each resource.
    pub bottleneck_time: [Seconds; 6],
}

impl DesignResult {
    /// Layers bound by this resource.
    pub fn layers(&self, bottleneck: Bottleneck) -> u64 {
        self.bottlenecks[bottleneck as usize]
    }
}

/// The base tile edge: Fig. 6.
///
/// A wider edge is offered, not forced: the size of the tiles is a choice of the library's ("GEMM parameter
/// choices", Sec. VII-C), and Fig. 6's tiles stay, so each layer takes the faster of the two.
pub const BASE_EDGE: u32 = 128;

impl Workload {
    /// Cuts the layers for the base and for every tile edge in `edges`.
    pub fn new(
        layers: &[NamedLayer],
        base: &Machine,
        edges: impl IntoIterator<Item = u32>,
        readings: Readings,
    ) -> Result<Self, DeltaError> {
        base.check()?;
        let distinct = counted(layers);
        let mut by_edge = BTreeMap::new();
        for edge in edges.into_iter().chain([BASE_EDGE]) {
            let policy = EdgeTiles::new(edge)?;
            let works: Result<Vec<_>, DeltaError> = distinct
                .iter()
                .map(|(named, count)| {
                    let work =
                        plan(&named.layer, base, &policy, readings).map_err(|e| e.in_layer(&named.name))?;
                    Ok((work, *count))
                })
                .collect();
            by_edge.insert(edge, works?);
        }
        let mut workload = Self { by_edge, base: *base, base_time: Seconds::ZERO };
        workload.base_time = workload.sum(&workload.base, BASE_EDGE)?.0;
        Ok(workload)
    }

    /// Distinct layers.
    pub fn distinct_layers(&self) -> usize {
        self.by_edge.get(&BASE_EDGE).map_or(0, Vec::len)
    }

    /// Time of the network on the base machine.
    pub fn base_time(&self) -> Seconds {
        self.base_time
    }

    /// Time, speed-up and bottlenecks of one design.
    pub fn evaluate(&self, design: &Design) -> Result<DesignResult, DeltaError> {
        let machine = design.scales.machine(&self.base)?;
        let (time, bottlenecks, bottleneck_time) = self.sum(&machine, design.scales.tile)?;
        Ok(DesignResult {
            design: design.clone(),
            time,
            speedup: self.base_time / time,
            bottlenecks,
            bottleneck_time,
        })
    }

    /// The layers with how often they occur, cut as the library would: see [`BASE_EDGE`].
    fn works(&self, machine: &Machine, edge: u32) -> Result<Vec<(&Work, u64)>, DeltaError> {
        let cut = |edge: u32| {
            self.by_edge.get(&edge).map(Vec::as_slice).ok_or_else(|| DeltaError::Tile {
                tile: edge.to_string(),
                problem: "this study was not prepared for this tile edge",
            })
        };
        let time = |work: &Work| time::report(work, machine).time;
        let choose = |wide: &'_ Work, fig6: &'_ Work| edge > BASE_EDGE && time(fig6) < time(wide);
        let pairs = cut(edge)?.iter().zip(cut(BASE_EDGE)?);
        Ok(pairs.map(|((wide, n), (fig6, _))| (if choose(wide, fig6) { fig6 } else { wide }, *n)).collect())
    }

    fn sum(&self, machine: &Machine, edge: u32) -> Result<(Seconds, [u64; 6], [Seconds; 6]), DeltaError> {
        let (mut total, mut counts, mut times) = (Seconds::ZERO, [0; 6], [Seconds::ZERO; 6]);
        for (work, count) in self.works(machine, edge)? {
            let report = time::report(work, machine);
            let time = report.time * count as f64;
            total += time;
            counts[report.bottleneck as usize] += count;
            times[report.bottleneck as usize] += time;
        }
        Ok((total, counts, times))
    }
}

/// Which of these (speed-up, cost) pairs no other beats in both? Equal pairs stay together.
pub fn pareto(points: &[(f64, f64)]) -> Vec<bool> {
    let mut order: Vec<usize> = (0..points.len()).collect();
    // Cheapest first; of equal cost the fastest first.
    order.sort_by(|&a, &b| points[a].1.total_cmp(&points[b].1).then(points[b].0.total_cmp(&points[a].0)));
    let mut on_front = vec![false; points.len()];
    let mut best: Option<(f64, f64)> = None;
    for i in order {
        let (speedup, cost) = points[i];
        if !speedup.is_finite() || !cost.is_finite() {
            continue;
        }
        if best.is_none_or(|(s, c)| speedup > s || (speedup == s && cost == c)) {
            on_front[i] = true;
            best = Some((speedup, cost));
        }
    }
    on_front
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::networks;
    use preflop_gpu::catalog;
    use preflop_units::dtype::Dtype;

    fn titan_xp() -> Machine {
        Machine::of(&catalog::find("titan-xp").unwrap(), Dtype::Fp32)
    }

    fn speedups() -> Vec<DesignResult> {
        let layers = networks::find("resnet152", 256).unwrap();
        let workload = Workload::new(&layers, &titan_xp(), [256], Readings::default()).unwrap();
        paper_options().iter().map(|d| workload.evaluate(d).unwrap()).collect()
    }

    /// Paper, Sec. VII-C and Fig. 16.
    #[test]
    fn the_papers_nine_options() {
        let results = speedups();
        let s = |option: usize| results[option - 1].speedup;
        for (option, r) in (1..).zip(&results) {
            println!("option {option}: {:.3}x {:?}", r.speedup, r.bottlenecks);
        }
        assert!((s(1) / 1.9 - 1.0).abs() < 0.05, "option 1: paper 1.9x, here {:.2}x", s(1));
        assert!((s(2) / 3.4 - 1.0).abs() < 0.05, "option 2: paper 3.4x, here {:.2}x", s(2));
        assert!(s(3) <= 2.4 && s(4) <= 2.4, "options 3 and 4: {:.2}x, {:.2}x", s(3), s(4));
        assert!((s(5) / s(2) - 1.0).abs() < 0.10, "option 5 {:.2}x, option 2 {:.2}x", s(5), s(2));
        assert!(s(9) > s(8) && s(8) > s(7), "options 7 to 9: {:.2}x, {:.2}x, {:.2}x", s(7), s(8), s(9));
        // Options 3 and 4: what binds is DRAM and the SM's own resources, not arithmetic.
        assert_eq!(results[3].layers(Bottleneck::Mac), 0, "{:?}", results[3].bottlenecks);
        // Option 6: L2 bandwidth becomes a limiter.
        assert!(results[5].layers(Bottleneck::L2Bw) > 0, "{:?}", results[5].bottlenecks);
        for r in &results {
            assert_eq!(r.bottlenecks.iter().sum::<u64>(), 155);
        }
    }

    /// Paper, Sec. VII-C: larger tiles "are only beneficial for GPU designs with high arithmetic throughput".
    #[test]
    fn wide_tiles_pay_where_arithmetic_is_fast_and_nowhere_else() {
        let layers = networks::find("resnet152", 256).unwrap();
        let workload = Workload::new(&layers, &titan_xp(), [256], Readings::default()).unwrap();
        let gain = |option: &Design| {
            let with = |tile| Design { scales: Scales { tile, ..option.scales }, ..option.clone() };
            workload.evaluate(&with(256)).unwrap().speedup / workload.evaluate(&with(128)).unwrap().speedup
        };
        let gains: Vec<f64> = paper_options().iter().map(gain).collect();
        println!("speed-up of 256 over 128: {gains:.3?}");
        for option in [1, 2, 3, 5] {
            assert!(gains[option - 1] < 1.001, "option {option}: {:.3}", gains[option - 1]);
        }
        for option in [7, 8, 9] {
            assert!(gains[option - 1] > 1.005, "option {option}: {:.3}", gains[option - 1]);
        }
    }

    #[test]
    fn the_base_is_one() {
        let layers = networks::find("alexnet-original", 256).unwrap();
        let workload = Workload::new(&layers, &titan_xp(), [], Readings::default()).unwrap();
        let base = Design { name: "base".into(), scales: Scales::default() };
        assert_eq!(workload.evaluate(&base).unwrap().speedup, 1.0);
        let none = Design { name: "none".into(), scales: Scales { sm_count: 0.0, ..Scales::default() } };
        assert!(workload.evaluate(&none).unwrap_err().to_string().contains("number of SMs"));
    }

    #[test]
    fn a_front_by_hand() {
        let points =
            [(1.0, 1.0), (2.0, 1.5), (1.9, 1.5), (2.0, 1.6), (3.0, 4.0), (2.0, 1.5), (f64::NAN, 0.1)];
        assert_eq!(pareto(&points), [true, true, false, false, true, true, false]);
    }
}
