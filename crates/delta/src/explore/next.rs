//! What binds a network on a design, and what would bind once that is gone.

use super::{Design, Scales, Workload};
use crate::{Bottleneck, DeltaError, Machine, Work, time};

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

/// A multiple of a resource at which nothing waits for it any more: layers take microseconds to seconds.
const UNLIMITED: f64 = 1e9;

/// Times of a network by the resource that binds each layer, in the order of [`Bottleneck::ALL`].
type Times = [f64; 6];

impl Workload {
    /// The bottleneck of the network on a design, and what follows it.
    ///
    /// A layer takes as long as its slowest resource: `t = sum over layers of max over r of bound(r)`, where `bound(r)` is
    /// the time of the layer if resource `r` bound it (DeLTA, Eq. 16 to 18). The bottleneck's limit is then taken away from
    /// the machine, not just its bound from the maximum: the latency bound of Eq. 17 holds arithmetic and transfers too.
    /// DRAM latency itself is no rate, so there the bound is left out.
    pub fn next(&self, design: &Design) -> Result<Next, DeltaError> {
        let machine = design.scales.machine(&self.base)?;
        let works = &self.works(&machine, design.scales.tile)?;
        let now = times(works, &machine, None);
        let bottleneck = largest(&now);
        let then = match resource(bottleneck) {
            None => times(works, &machine, Some(bottleneck)),
            Some(key) => {
                let without = Scales::default().with(key, UNLIMITED).unwrap_or_default().machine(&machine)?;
                times(&self.works(&without, design.scales.tile)?, &without, None)
            }
        };
        let headroom = now.iter().sum::<f64>() / then.iter().sum::<f64>();
        Ok(Next { bottleneck, next: largest(&then), headroom })
    }
}

/// The key of the rate behind a bottleneck.
fn resource(bottleneck: Bottleneck) -> Option<&'static str> {
    match bottleneck {
        Bottleneck::Mac => Some("mac_per_sm"),
        Bottleneck::Smem => Some("smem_bw"),
        Bottleneck::L1Bw => Some("l1_bw"),
        Bottleneck::L2Bw => Some("l2_bw"),
        Bottleneck::DramBw => Some("dram_bw"),
        Bottleneck::DramLat => None,
    }
}

fn times(works: &[(&Work, u64)], machine: &Machine, without: Option<Bottleneck>) -> Times {
    let mut times = [0.0; 6];
    for (work, count) in works {
        let bounds = time::report(work, machine).bounds;
        let slowest = Bottleneck::ALL.into_iter().filter(|b| Some(*b) != without).fold(
            None,
            |slowest: Option<Bottleneck>, b| match slowest {
                Some(s) if bounds[s as usize] >= bounds[b as usize] => Some(s),
                _ => Some(b),
            },
        );
        if let Some(slowest) = slowest {
            times[slowest as usize] += bounds[slowest as usize].0 * *count as f64;
        }
    }
    times
}

fn largest(times: &Times) -> Bottleneck {
    Bottleneck::ALL
        .into_iter()
        .fold(Bottleneck::Mac, |a, b| if times[b as usize] > times[a as usize] { b } else { a })
}

#[cfg(test)]
mod tests {
    use super::super::paper_options;
    use super::*;
    use crate::{Readings, networks};
    use preflop_gpu::catalog;
    use preflop_units::dtype::Dtype;

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

    /// However much of the bottleneck's resource there is, the network gains no more than the headroom, and with
    /// enough of it just that.
    #[test]
    fn headroom_is_the_most_that_one_resource_gives() {
        let workload = workload();
        let base = Design { name: "base".into(), scales: Scales::default() };
        let designs: Vec<Design> = std::iter::once(base).chain(paper_options()).collect();
        let mut seen = 0;
        for design in &designs {
            let next = workload.next(design).unwrap();
            let before = workload.evaluate(design).unwrap();
            assert!(next.headroom >= 1.0, "{}: {}", design.name, next.headroom);
            let Some(key) = resource(next.bottleneck) else {
                assert_ne!(next.next, Bottleneck::DramLat, "{}", design.name);
                continue;
            };
            seen += 1;
            let place = crate::explore::KEYS.iter().position(|k| *k == key).unwrap();
            for more in [2.0, 8.0, 64.0, 1e6] {
                let scales = design.scales.with(key, design.scales.values()[place] * more).unwrap();
                let after = workload.evaluate(&Design { name: "more".into(), scales }).unwrap();
                let gain = before.time / after.time;
                assert!(gain <= next.headroom * (1.0 + 1e-9), "{} {key} x {more}: {gain}", design.name);
                assert!(
                    more < 1e6 || gain > 0.999 * next.headroom,
                    "{} {key}: {gain} {}",
                    design.name,
                    next.headroom
                );
            }
        }
        assert!(seen >= 5, "{seen} designs have a rate to raise");
    }
}
