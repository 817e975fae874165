//! How the traffic answers to one size of a layer at a time (paper, appendix A, Fig. 17).

use super::{DeltaError, Layer, Machine, Readings, Tile, TilePolicy, Traffic, plan};

/// The size that varies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    /// C_o, Fig. 17a.
    OutputChannels,
    /// C_i, Fig. 17b.
    InputChannels,
    /// H_i = W_i, Fig. 17c.
    FeatureSize,
    /// B, Fig. 17d.
    Batch,
}

impl Axis {
    /// All four, in the paper's order.
    pub const ALL: [Self; 4] = [Self::OutputChannels, Self::InputChannels, Self::FeatureSize, Self::Batch];

    /// For file names.
    pub fn name(self) -> &'static str {
        match self {
            Self::OutputChannels => "output-channels",
            Self::InputChannels => "input-channels",
            Self::FeatureSize => "feature-size",
            Self::Batch => "batch",
        }
    }

    /// For plots.
    pub fn title(self) -> &'static str {
        match self {
            Self::OutputChannels => "output channels C_o",
            Self::InputChannels => "input channels C_i",
            Self::FeatureSize => "feature height and width H_i = W_i",
            Self::Batch => "mini-batch B",
        }
    }

    /// The values: steps of 16 from 16 to 512 as in Fig. 17, and every feature size from 4 to 64.
    pub fn values(self) -> Vec<u64> {
        match self {
            Self::FeatureSize => (4..=64).collect(),
            _ => (1..=32).map(|i| 16 * i).collect(),
        }
    }

    /// The base layer with this size set.
    pub fn layer(self, value: u64) -> Layer {
        let base = base();
        match self {
            Self::OutputChannels => Layer { co: value, ..base },
            Self::InputChannels => Layer { ci: value, ..base },
            Self::FeatureSize => Layer { h: value, w: value, ..base },
            Self::Batch => base.with_batch(value),
        }
    }
}

/// The appendix's layer: 256 input channels, 13x13 map, 128 output channels, 3x3 filter, stride 1. Padding 1
/// and batch 256 as in the networks it is taken from.
pub const fn base() -> Layer {
    Layer::square(256, 256, 13, 128, 3, 1, 1)
}

/// One point of a study.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Value of the axis.
    pub value: u64,
    /// Tile that the policy chose.
    pub tile: Tile,
    /// Bytes at each level.
    pub traffic: Traffic,
    /// Bytes per multiply-accumulate at L1, L2 and DRAM, over those of the base layer: 1 where traffic grows
    /// as the arithmetic does.
    pub relative: [f64; 3],
}

/// Traffic along one axis.
pub fn study(
    axis: Axis,
    machine: &Machine,
    policy: &dyn TilePolicy,
    readings: Readings,
) -> Result<Vec<Point>, DeltaError> {
    let per_mac = |layer: &Layer| {
        let work = plan(layer, machine, policy, readings)?;
        let macs = work.gemm.m * work.gemm.n * work.gemm.k;
        let t = work.traffic;
        Ok::<_, DeltaError>((work, [t.l1.0 / macs, t.l2.0 / macs, t.dram.0 / macs]))
    };
    let (_, reference) = per_mac(&base())?;
    axis.values()
        .into_iter()
        .map(|value| {
            let (work, bytes) = per_mac(&axis.layer(value))?;
            let relative = std::array::from_fn(|i| bytes[i] / reference[i]);
            Ok(Point { value, tile: work.tile, traffic: work.traffic, relative })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fig6;
    use preflop_gpu::catalog;
    use preflop_units::dtype::Dtype;

    #[test]
    fn shapes_of_the_four_studies() {
        let machine = Machine::of(&catalog::find("titan-xp").unwrap(), Dtype::Fp32);
        let run = |axis| study(axis, &machine, &Fig6, Readings::default()).unwrap();
        // Traffic follows the input channels exactly: each channel adds the same work and the same loads.
        for p in run(Axis::InputChannels) {
            assert!(p.relative.iter().all(|r| (r - 1.0).abs() < 1e-9), "{p:?}");
        }
        // The batch changes L1 and L2 only by the last row of CTAs (43264 rows = 338 x 128 at the base).
        for p in run(Axis::Batch) {
            assert!(p.relative[..2].iter().all(|r| (r - 1.0).abs() < 0.05), "{p:?}");
        }
        // Narrow tiles read the inputs more often: C_o = 96 takes three columns of width 32.
        let co = run(Axis::OutputChannels);
        let at = |value| co.iter().find(|p| p.value == value).unwrap();
        assert_eq!((at(96).tile.blk_n, at(128).tile.blk_n), (32.0, 128.0));
        assert!(at(96).relative[2] > 3.0 && (at(128).relative[2] - 1.0).abs() < 1e-12);
        // Padding weighs more on small maps: (6/4)^2 at 4x4 over (66/64)^2 at 64x64, filter loads apart.
        let size = run(Axis::FeatureSize);
        assert!(size[0].relative[2] > 1.5 * size[60].relative[2]);
    }
}
