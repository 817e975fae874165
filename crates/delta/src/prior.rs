//! The models before DeLTA, for comparison: a fixed cache miss rate, 1.0 as they advise (paper, Sec. VII-A
//! and Fig. 15b).

use super::{Bottleneck, LayerReport, Machine, Traffic};
use preflop_units::Seconds;

/// What a model with a fixed miss rate says about a layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PriorReport {
    /// L1 traffic as DeLTA counts it, L2 and DRAM by the miss rate.
    pub traffic: Traffic,
    /// Time.
    pub time: Seconds,
    /// The resource that sets it.
    pub bottleneck: Bottleneck,
}

/// T_L2 = miss·T_L1, T_DRAM = miss·T_L2; time = max(T_MAC, T_SMEM, T_L1 of DeLTA, T_L2/BW_L2, T_DRAM/BW_DRAM).
///
/// Reading: such models weigh arithmetic against the bandwidth of the whole chip, so memory time is volume
/// over bandwidth, without the rounding to whole CTAs per SM and without the epilogue of Eq. 18, and they
/// have no latency case. With Eq. 18 in full the mean over-prediction is 2.15x instead of 1.98x.
pub fn report(delta: &LayerReport, machine: &Machine, miss_rate: f64) -> PriorReport {
    let l1 = delta.traffic.l1;
    let l2 = l1 * miss_rate;
    let traffic = Traffic { l1, l2, dram: l2 * miss_rate };
    let bounds = [
        (Bottleneck::Mac, delta.bound(Bottleneck::Mac)),
        (Bottleneck::Smem, delta.bound(Bottleneck::Smem)),
        (Bottleneck::L1Bw, delta.bound(Bottleneck::L1Bw)),
        (Bottleneck::L2Bw, traffic.l2 / machine.l2),
        (Bottleneck::DramBw, traffic.dram / machine.dram),
    ];
    let (bottleneck, time) =
        bounds.into_iter().fold(bounds[0], |best, bound| if bound.1 > best.1 { bound } else { best });
    PriorReport { traffic, time, bottleneck }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fig6, Layer, Readings, evaluate};
    use preflop_gpu::catalog;
    use preflop_units::dtype::Dtype;

    #[test]
    fn alexnet_conv1_by_hand() {
        let machine = Machine::of(&catalog::find("titan-xp").unwrap(), Dtype::Fp32);
        let layer = Layer::square(256, 3, 227, 96, 11, 4, 0);
        let delta = evaluate(&layer, &machine, &Fig6, Readings::default()).unwrap();
        let prior = report(&delta, &machine, 1.0);
        // 19,185.57 MB / 450 GB/s = 42.635 ms
        assert!((prior.time.ms() - 42.635).abs() < 0.001);
        assert_eq!(prior.bottleneck, Bottleneck::DramBw);
        // At a rate of 0.5 a quarter comes from DRAM: 10.66 ms
        assert!((report(&delta, &machine, 0.5).time.ms() - 10.659).abs() < 0.001);
        assert_eq!(report(&delta, &machine, 0.0).time, delta.bound(Bottleneck::L1Bw));
    }
}
