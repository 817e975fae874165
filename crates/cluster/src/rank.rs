//! The one thing that is asked of the time model: how long a list of operators keeps a GPU busy, and how sure that is.

use crate::interval::LogInterval;
use preflop_core::model::{HostWork, Iteration, Step};
use preflop_core::ops::Family;
use preflop_core::schedule::Schedule as _;
use preflop_core::time::TimeModel;
use preflop_core::units::math::Elementary as _;
use preflop_core::{Dtype, Gpu, Op};

/// Time of a list of operators on one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Busy {
    /// Seconds, pauses between kernels included.
    pub time: f64,
    /// Seconds at the lower end of the 90 % interval.
    pub low: f64,
    /// Seconds at the upper end.
    pub high: f64,
    /// Kernels.
    pub launches: f64,
    /// Useful FLOPs.
    pub flops: f64,
}

impl Busy {
    /// The interval as logs.
    pub fn interval(&self) -> LogInterval {
        if self.time <= 0.0 {
            return LogInterval { low: 0.0, high: 0.0 };
        }
        LogInterval { low: (self.low / self.time).natural_log(), high: (self.high / self.time).natural_log() }
    }
}

/// Whoever knows how long operators take.
pub trait OperatorTimes {
    /// Time of these operators, run one after the other.
    fn busy(&self, steps: &[Step]) -> Busy;
}

/// The core's time model on one GPU.
#[derive(Debug)]
pub struct CoreTimes<'a> {
    /// The model.
    pub model: &'a TimeModel,
    /// The GPU.
    pub gpu: &'a Gpu,
}

impl CoreTimes<'_> {
    /// The 16-bit product that takes as long as an 8-bit one of cuBLASLt, whose kernels training runs (Transformer Engine and
    /// `torch._scaled_mm` alike): the one of half the depth.
    ///
    /// A tensor-core instruction takes 32 bytes of depth in either format (PTX ISA, `wgmma` and `tcgen05.mma`: k = 16 in 16 bits,
    /// 32 in 8), so both run as many instructions, move as many bytes through every memory and write the same 16-bit result. The
    /// largest rates found bear it out where power does not bind: 3,432 and 3,616 TFLOP/s in 8 bits on a B200 and a GB200 against
    /// 1,745 and 1,822 in 16 (stas00/ml-engineering). What the time model knows of 8-bit products itself is an inference
    /// server's kernels, which scale every row and column and hold 2,650 there.
    fn as_timed(&self, step: &Step) -> Step {
        let mut step = step.clone();
        let has_units = self.gpu.tensor.get(Dtype::Fp8).is_some();
        if let (Op::Gemm(gemm), Dtype::Fp8, true) = (&mut step.call.op, step.call.dtype, has_units) {
            gemm.k = gemm.k.div_ceil(2);
            step.call.dtype = Dtype::Bf16;
        }
        step
    }
}

impl OperatorTimes for CoreTimes<'_> {
    fn busy(&self, steps: &[Step]) -> Busy {
        if steps.is_empty() {
            return Busy::default();
        }
        let timed = steps.iter().map(|s| self.as_timed(s)).collect();
        let iteration = Iteration { steps: timed, host: HostWork::default(), ..Iteration::default() };
        let p = self.model.predict_iteration(&iteration, self.gpu);
        let pauses = self.model.host_model(self.gpu).pauses(p.launches).0;
        Busy {
            time: p.gpu_wall.0 + pauses,
            low: p.gpu_busy_low.0 + pauses,
            high: p.gpu_busy_high.0 + pauses,
            launches: p.launches,
            flops: steps.iter().map(|s| s.call.flops().0 * f64::from(s.count)).sum(),
        }
    }
}

/// The same times with attention and everything but products slower by a factor: kernels of an older stack.
#[derive(Debug)]
pub struct Aged<'a, T> {
    /// Times of today's kernels.
    pub inner: &'a T,
    /// Factor of fused attention.
    pub attention: f64,
    /// Factor of norms, activations, residuals, loss.
    pub pointwise: f64,
}

impl<T: OperatorTimes> OperatorTimes for Aged<'_, T> {
    fn busy(&self, steps: &[Step]) -> Busy {
        let mut out = Busy::default();
        let of = |family: Family| match family {
            Family::Gemm => 1.0,
            Family::Attention => self.attention,
            _ => self.pointwise,
        };
        for kind in [Family::Gemm, Family::Attention, Family::Elementwise] {
            let factor = of(kind);
            let own: Vec<Step> = steps
                .iter()
                .filter(|s| {
                    let family = s.call.family();
                    match kind {
                        Family::Elementwise => !matches!(family, Family::Gemm | Family::Attention),
                        _ => family == kind,
                    }
                })
                .cloned()
                .collect();
            let part = self.inner.busy(&own);
            out.time += factor * part.time;
            out.low += factor * part.low;
            out.high += factor * part.high;
            out.launches += part.launches;
            out.flops += part.flops;
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_core::gpu::catalog;
    use preflop_core::model::Phase;
    use preflop_core::ops::Gemm;
    use preflop_core::{OpCall, Pass};

    fn product(k: u64, dtype: Dtype) -> Step {
        let op = Op::Gemm(Gemm::linear(8192, 8192, k, false));
        Step { name: "up".into(), phase: Phase::Forward, call: OpCall::new(op, Pass::Fwd, dtype), count: 3 }
    }

    #[test]
    fn an_eight_bit_product_of_training_takes_as_long_as_half_of_it_in_sixteen_bits() {
        let model = TimeModel::embedded();
        let gpu = catalog::find("gb200").unwrap();
        let times = CoreTimes { model: &model, gpu: &gpu };
        let eight = times.busy(&[product(8192, Dtype::Fp8)]);
        let sixteen = times.busy(&[product(4096, Dtype::Bf16)]);
        assert_eq!(eight.time, sixteen.time);
        // Its FLOPs are its own: 3 * 2 * 8192^3.
        assert_eq!(eight.flops, 3.0 * 2.0 * 8192_f64.powi(3));
        assert_eq!(sixteen.flops, eight.flops / 2.0);
        // Without units for 8 bits nothing is halved.
        let gpu = catalog::find("a100-sxm-80gb").unwrap();
        let older = CoreTimes { model: &model, gpu: &gpu };
        assert_eq!(older.as_timed(&product(8192, Dtype::Fp8)), product(8192, Dtype::Fp8));
    }
}
