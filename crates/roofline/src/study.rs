//! The V100 study of arXiv 2009.04598: its machine, and the meaning of a row of its tables.

use super::bounds::Work;
use super::machine::{Machine, Pipe, Roof};
use preflop_units::dtype::Dtype;
use preflop_units::{Bytes, BytesPerSecond, Flops, FlopsPerSecond, Seconds};

/// The roof that the study holds all FLOPs against.
pub const TENSOR: Pipe = Pipe { dtype: Dtype::Fp16, tensor: true };
/// The plain fp32 roof.
pub const FP32: Pipe = Pipe { dtype: Dtype::Fp32, tensor: false };

/// The V100 as the study measured it: HBM 828.8 GB/s, tensor cores 106.49 TFLOP/s, fp32 15.158 TFLOP/s, 4.2 us
/// per launch (the study does not part device from host).
pub fn machine() -> Machine {
    Machine {
        name: "v100-study".to_string(),
        title: "V100 as measured in arXiv 2009.04598".to_string(),
        roofs: vec![
            Roof { pipe: TENSOR, rate: FlopsPerSecond::from_tflops(106.49) },
            Roof { pipe: FP32, rate: FlopsPerSecond::from_tflops(15.158) },
        ],
        bandwidth: [Some(BytesPerSecond::from_gbs(828.8)), None, None],
        device_overhead: Seconds::from_us(4.2),
        host_overhead: Seconds::from_us(4.2),
    }
}

/// A row of the study's tables.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StudyRow {
    /// All FLOPs.
    pub flops: Flops,
    /// `DRAM AI`, in FLOP per byte.
    pub dram_intensity: f64,
    /// `CUDA Time`.
    pub time: Seconds,
    /// `Invocations`.
    pub launches: f64,
}

impl StudyRow {
    /// As work: `B = F/AI`, and all FLOPs against the tensor-core roof, as the study has it.
    pub fn work(&self) -> Work {
        let bytes = if self.dram_intensity > 0.0 { self.flops.0 / self.dram_intensity } else { 0.0 };
        Work {
            flops: vec![(TENSOR, self.flops)],
            bytes: [Some(Bytes(bytes)), None, None],
            launches: self.launches,
            time: self.time,
        }
    }
}
