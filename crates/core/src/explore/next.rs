//! What binds a network on a design, and what would bind once that is gone.

use super::{Design, Workload};
use crate::delta::{Bottleneck, DeltaError, time};
use crate::units::Seconds;

/// The bottleneck of a whole network, and the one behind it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Next {
    /// The resource whose layers take most of the time.
    pub bottleneck: Bottleneck,
    /// The resource whose layers take most of the time once the bottleneck has no limit.
    pub next: Bottleneck,
    /// How much faster the network gets at most when only its bottleneck is removed.
    pub headroom: f64,
}

impl Workload {
    /// The bottleneck of the network on a design, and what follows it.
    ///
    /// A layer takes as long as its slowest resource, so a network without resource `b` takes
    /// `sum over layers of max over r != b of bound(r)`. Where: `bound(r)` is the time of the layer if resource `r`
    /// bound it (DeLTA, Eq. 14 to 18).
    pub fn next(&self, design: &Design) -> Result<Next, DeltaError> {
        let machine = design.scales.machine(&self.base)?;
        let works = self.works(design.scales.tile)?;
        let bounds: Vec<([Seconds; 6], f64)> =
            works.iter().map(|(work, count)| (time::report(work, &machine).bounds, *count as f64)).collect();
        let by_resource = |without: Option<Bottleneck>| {
            let mut times = [0.0; 6];
            for (bounds, count) in &bounds {
                let slowest = Bottleneck::ALL
                    .into_iter()
                    .filter(|b| Some(*b) != without)
                    .map(|b| (bounds[b as usize].0, b))
                    .fold((0.0, Bottleneck::Mac), |a, b| if b.0 > a.0 { b } else { a });
                times[slowest.1 as usize] += slowest.0 * count;
            }
            times
        };
        let largest = |times: &[f64; 6]| {
            Bottleneck::ALL
                .into_iter()
                .fold(Bottleneck::Mac, |a, b| if times[b as usize] > times[a as usize] { b } else { a })
        };
        let now = by_resource(None);
        let bottleneck = largest(&now);
        let then = by_resource(Some(bottleneck));
        let headroom = now.iter().sum::<f64>() / then.iter().sum::<f64>();
        Ok(Next { bottleneck, next: largest(&then), headroom })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Scales, paper_options};
    use super::*;
    use crate::delta::{Machine, Readings, networks};
    use crate::dtype::Dtype;
    use crate::gpu::catalog;

    fn workload() -> Workload {
        let layers = networks::find("resnet152", 256).unwrap();
        let base = Machine::of(&catalog::find("titan-xp").unwrap(), Dtype::Fp32);
        Workload::new(&layers, &base, [256], Readings::default()).unwrap()
    }

    #[test]
    fn arithmetic_binds_the_titan_xp_and_wide_arithmetic_moves_that() {
        let workload = workload();
        let base = workload.next(&Design { name: "base".into(), scales: Scales::default() }).unwrap();
        assert_eq!(base.bottleneck, Bottleneck::Mac);
        assert_ne!(base.next, Bottleneck::Mac);
        assert!(base.headroom > 1.0);
        // Paper, Sec. VII-C: with four times the MACs alone the memory system binds.
        let option_4 = workload.next(&paper_options()[3]).unwrap();
        assert_ne!(option_4.bottleneck, Bottleneck::Mac);
    }

    #[test]
    fn headroom_is_what_a_huge_resource_gives() {
        let workload = workload();
        let scales = Scales::default();
        let next = workload.next(&Design { name: "base".into(), scales }).unwrap();
        let huge = Design { name: "huge".into(), scales: Scales { mac_per_sm: 1e9, ..scales } };
        let speedup = workload.evaluate(&huge).unwrap().speedup;
        assert!((speedup / next.headroom - 1.0).abs() < 0.02, "{speedup} {}", next.headroom);
    }
}
