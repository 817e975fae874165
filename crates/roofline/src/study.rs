//! The V100 study of arXiv 2009.04598: its machine, and the meaning of a row of its tables.

use super::bounds::Work;
use super::machine::{Machine, Pipe, Roof};
use preflop_units::dtype::Dtype;
use preflop_units::{Bytes, BytesPerSecond, Flops, FlopsPerSecond, Seconds};

/// The roof that the study holds all FLOPs against.
pub const TENSOR: Pipe = Pipe { dtype: Dtype::Fp16, tensor: true };
/// The plain fp16 roof: two products in a register, so twice the fp32 rate.
pub const FP16: Pipe = Pipe { dtype: Dtype::Fp16, tensor: false };
/// The plain fp32 roof.
pub const FP32: Pipe = Pipe { dtype: Dtype::Fp32, tensor: false };

/// The V100 as the study measured it: HBM 828.8 GB/s, tensor cores 106.49 TFLOP/s, fp32 15.158 TFLOP/s, 4.2 us
/// per launch (the study does not part device from host).
pub fn machine() -> Machine {
    // The study prints no bandwidth of the caches: the catalogue's V100 stands in.
    let [_, l2, l1] =
        preflop_gpu::catalog::find("v100-sxm2-16gb").map_or([None; 3], |gpu| Machine::of(&gpu).bandwidth);
    Machine {
        name: "v100-study".to_string(),
        title: "V100 as measured in arXiv 2009.04598".to_string(),
        roofs: vec![
            Roof { pipe: TENSOR, rate: FlopsPerSecond::from_tflops(106.49) },
            Roof { pipe: FP16, rate: FlopsPerSecond::from_tflops(2.0 * 15.158) },
            Roof { pipe: FP32, rate: FlopsPerSecond::from_tflops(15.158) },
        ],
        bandwidth: [Some(BytesPerSecond::from_gbs(828.8)), l2, l1],
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

/// A row with what its counters say of pipes and caches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StudyKernel {
    /// The row.
    pub row: StudyRow,
    /// FLOPs on fp32, fp16 and tensor units.
    pub pipes: [Flops; 3],
    /// `L2 AI` and `L1 AI`, in FLOP per byte.
    pub inner_intensity: [Option<f64>; 2],
}

impl StudyKernel {
    /// As work, each FLOP against the roof of its own pipe.
    pub fn work(&self) -> Work {
        let mut work = self.row.work();
        let pipes = [FP32, FP16, TENSOR].into_iter().zip(self.pipes);
        work.flops = pipes.filter(|(_, f)| *f > Flops::ZERO).collect();
        for (place, intensity) in [1, 2].into_iter().zip(self.inner_intensity) {
            let bytes = intensity.filter(|ai| *ai > 0.0).map(|ai| Bytes(self.row.flops.0 / ai));
            work.bytes[place] = bytes;
        }
        work
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fp32_kernels_meet_the_fp32_roof() {
        let row = StudyRow {
            flops: Flops(28.72e9),
            dram_intensity: 350.4,
            time: Seconds::from_us(2652.0),
            launches: 3.0,
        };
        let kernel = StudyKernel {
            row,
            pipes: [Flops(28.72e9), Flops::ZERO, Flops::ZERO],
            inner_intensity: [Some(100.0), Some(20.0)],
        };
        let work = kernel.work();
        assert_eq!(work.flops, vec![(FP32, Flops(28.72e9))]);
        // 28.72e9 / 15.158e12 = 1894.7 us; 2652 / 1894.7 = 1.40
        let slowdown = work.bounds(&machine()).slowdown(work.time).unwrap();
        assert!((slowdown - 1.40).abs() < 0.001, "{slowdown}");
        // bytes grow inwards: 82 MB, 287 MB, 1436 MB
        let [dram, l2, l1] = work.bytes.map(|b| b.unwrap().0);
        assert!(dram < l2 && l2 < l1);
        assert!((l2 - 28.72e9 / 100.0).abs() < 1.0);
    }
}
