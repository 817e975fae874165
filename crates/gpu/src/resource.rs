//! Resources of a GPU, one by one: what a better GPU has more of.

use super::{Gpu, Peaks};
use preflop_units::{FlopsPerSecond, Seconds};

/// Something of which a GPU may have more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resource {
    /// Clock of the SMs, and with it every rate of arithmetic.
    Clock,
    /// SMs, and with them every rate of arithmetic.
    Sms,
    /// Bandwidth of the memory.
    Dram,
    /// Bandwidth of the L2.
    L2,
    /// Size of the L2.
    L2Size,
    /// Rates of arithmetic at the same clock and SMs.
    Peak,
    /// Kernels started per second, by the GPU and by the host.
    Launch,
}

impl Resource {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Clock, Self::Sms, Self::Dram, Self::L2, Self::L2Size, Self::Peak, Self::Launch];

    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Clock => "clock",
            Self::Sms => "SMs",
            Self::Dram => "DRAM bandwidth",
            Self::L2 => "L2 bandwidth",
            Self::L2Size => "L2 size",
            Self::Peak => "peak rates",
            Self::Launch => "launch rate",
        }
    }
}

impl Peaks {
    /// All rates times a factor.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        Self { rates: self.rates.map(|r| r.map(|r| FlopsPerSecond(r.0 * factor))) }
    }
}

impl Gpu {
    /// The same GPU with more of one resource. SMs come whole: their number is rounded up.
    #[must_use]
    pub fn with_more(&self, resource: Resource, factor: f64) -> Self {
        let mut out = self.clone();
        let mut arithmetic = 1.0;
        match resource {
            Resource::Clock => {
                arithmetic = factor;
                out.boost_clock = out.boost_clock * factor;
                out.base_clock = out.base_clock * factor;
                out.usual_clock = out.usual_clock * factor;
            }
            Resource::Sms => {
                out.sm_count = (f64::from(self.sm_count) * factor).ceil() as u32;
                arithmetic = f64::from(out.sm_count) / f64::from(self.sm_count.max(1));
            }
            Resource::Dram => {
                out.dram = out.dram * factor;
                out.dram_sustained = out.dram_sustained * factor;
            }
            Resource::L2 => out.l2 = out.l2 * factor,
            Resource::L2Size => out.l2_size = out.l2_size * factor,
            Resource::Peak => arithmetic = factor,
            Resource::Launch => {
                out.kernel_floor = Seconds(out.kernel_floor.0 / factor);
                out.host_launch = Seconds(out.host_launch.0 / factor);
            }
        }
        out.plain = out.plain.scaled(arithmetic);
        out.tensor = out.tensor.scaled(arithmetic);
        out.sustained = out.sustained.scaled(arithmetic);
        out.plain_limit = FlopsPerSecond(out.plain_limit.0 * arithmetic);
        out.plain_burst = FlopsPerSecond(out.plain_burst.0 * arithmetic);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;
    use preflop_units::Dtype;

    #[test]
    fn more_sms_compute_more_and_nothing_else_moves() {
        let gpu = catalog::find("h200").unwrap();
        let more = gpu.with_more(Resource::Sms, 1.001);
        assert_eq!(more.sm_count, 133);
        let ratio = more.peak(Dtype::Bf16).0 / gpu.peak(Dtype::Bf16).0;
        assert!((ratio - 133.0 / 132.0).abs() < 1e-12);
        assert_eq!(more.dram, gpu.dram);
        let faster = gpu.with_more(Resource::Launch, 2.0);
        assert_eq!(faster.kernel_floor.0 * 2.0, gpu.kernel_floor.0);
    }
}
