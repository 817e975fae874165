//! The machine of a Roofline: roofs per pipe, bandwidth per level, overhead per launch.

use preflop_gpu::Gpu;
use preflop_ops::{Family, OpCall};
use preflop_units::dtype::Dtype;
use preflop_units::{BytesPerSecond, FlopsPerSecond, Seconds};
use serde::Serialize;

/// A pipe that does arithmetic: a number format on the plain or on the tensor units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pipe {
    /// Number format.
    pub dtype: Dtype,
    /// On tensor (matrix) units?
    pub tensor: bool,
}

impl Pipe {
    /// `fp32`, `bf16 tensor`.
    pub fn name(self) -> String {
        if self.tensor { format!("{} tensor", self.dtype) } else { self.dtype.to_string() }
    }

    /// The pipe a call runs on: matrix work on the tensor units of its format where the GPU has them, all else
    /// on the plain units. A format the GPU lacks runs as fp32.
    pub fn of_call(call: &OpCall, gpu: &Gpu) -> Self {
        let matrix = matches!(call.family(), Family::Gemm | Family::Conv | Family::Attention | Family::Rnn);
        if matrix && gpu.has_tensor(call.dtype) {
            return Self { dtype: call.dtype, tensor: true };
        }
        let dtype = if gpu.plain.get(call.dtype).is_some() { call.dtype } else { Dtype::Fp32 };
        Self { dtype, tensor: false }
    }
}

impl Serialize for Pipe {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.name())
    }
}

/// A horizontal roof.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Roof {
    /// Which pipe.
    pub pipe: Pipe,
    /// Its peak.
    pub rate: FlopsPerSecond,
}

/// A memory level, outermost first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Device memory.
    Dram,
    /// L2 cache.
    L2,
    /// L1 caches.
    L1,
}

impl Level {
    /// All levels, outermost first.
    pub const ALL: [Self; 3] = [Self::Dram, Self::L2, Self::L1];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dram => "DRAM",
            Self::L2 => "L2",
            Self::L1 => "L1",
        }
    }
}

/// What a Roofline needs to know of a GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// Name of the GPU.
    pub name: String,
    /// Name for people.
    pub title: String,
    /// Peaks, highest first.
    pub roofs: Vec<Roof>,
    /// Bandwidths by [`Level`]; `None` where not known.
    pub bandwidth: [Option<BytesPerSecond>; 3],
    /// Device time of one launch.
    pub device_overhead: Seconds,
    /// Host time of one launch.
    pub host_overhead: Seconds,
}

impl Machine {
    /// With the datasheet's figures: a roof is what no kernel can pass.
    pub fn of(gpu: &Gpu) -> Self {
        let mut roofs: Vec<Roof> = Vec::new();
        for dtype in Dtype::MATH {
            for (tensor, rate) in [(true, gpu.tensor.get(dtype)), (false, gpu.plain.get(dtype))] {
                roofs.extend(rate.map(|rate| Roof { pipe: Pipe { dtype, tensor }, rate }));
            }
        }
        roofs.sort_by(|a, b| b.rate.0.total_cmp(&a.rate.0).then(a.pipe.cmp(&b.pipe)));
        let l1 = gpu.l1_bytes_per_clock * f64::from(gpu.sm_count) * gpu.boost_clock.0;
        Self {
            name: gpu.name.clone(),
            title: gpu.title.clone(),
            roofs,
            bandwidth: [Some(gpu.dram), Some(gpu.l2), Some(BytesPerSecond(l1))],
            device_overhead: gpu.kernel_floor,
            host_overhead: gpu.host_launch,
        }
    }

    /// Peak of a pipe; the lowest roof where the machine has no such pipe, so that a bound is never missed.
    pub fn peak(&self, pipe: Pipe) -> FlopsPerSecond {
        let own = self.roofs.iter().find(|r| r.pipe == pipe);
        own.or_else(|| self.roofs.last()).map_or(FlopsPerSecond(f64::INFINITY), |r| r.rate)
    }

    /// Bandwidth of a level, if known.
    pub fn bandwidth(&self, level: Level) -> Option<BytesPerSecond> {
        self.bandwidth[level as usize]
    }

    /// Machine balance `MB = P/W` in FLOP per byte.
    pub fn balance(&self, pipe: Pipe, level: Level) -> Option<f64> {
        Some(self.peak(pipe).0 / self.bandwidth(level)?.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_gpu::catalog;
    use preflop_ops::{Elementwise, ElementwiseKind, Gemm, Op};

    #[test]
    fn matrix_work_goes_to_the_tensor_units_where_there_are_some() {
        let product = |dtype| OpCall::fwd(Op::Gemm(Gemm::linear(64, 64, 64, false)), dtype);
        let h200 = catalog::find("h200").unwrap();
        assert_eq!(Pipe::of_call(&product(Dtype::Bf16), &h200).name(), "bf16 tensor");
        assert_eq!(Pipe::of_call(&product(Dtype::Fp32), &h200).name(), "fp32");
        let pascal = catalog::find("titan-xp").unwrap();
        assert_eq!(Pipe::of_call(&product(Dtype::Bf16), &pascal).name(), "fp32");
        let add = Op::Elementwise(Elementwise { kind: ElementwiseKind::Add, n: 8 });
        assert!(!Pipe::of_call(&OpCall::fwd(add, Dtype::Bf16), &h200).tensor);
    }

    #[test]
    fn roofs_stand_highest_first_and_levels_narrow_outwards() {
        let m = Machine::of(&catalog::find("h200").unwrap());
        assert!(m.roofs.windows(2).all(|w| w[0].rate >= w[1].rate));
        let [dram, l2, l1] = m.bandwidth.map(|b| b.unwrap().0);
        assert!(dram < l2 && l2 < l1, "{dram} {l2} {l1}");
    }
}
