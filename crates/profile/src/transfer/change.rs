//! What else changes besides the GPU: the batch, the number format, the layout (Habitat's future work).

use crate::{Analysis, KernelFamily};
use preflop_graph::Precision;
use preflop_ops::{Op, OpCall};
use preflop_units::dtype::Dtype;
use std::collections::BTreeMap;

/// Changes of the job itself.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Change {
    /// Samples of an iteration there over those here.
    pub batch: Option<f64>,
    /// Number format there.
    pub precision: Option<Precision>,
    /// Tensors lie channels-last there, so nothing converts between layouts.
    pub channels_last: bool,
}

impl Change {
    /// Is the job as it was recorded?
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// The call as it will be there.
    pub fn call(&self, call: &OpCall) -> OpCall {
        let mut call = call.clone();
        if let Some(factor) = self.batch {
            grow(&mut call.op, factor);
        }
        if let Some(precision) = self.precision {
            call.dtype = format(&call, precision);
        }
        if self.channels_last {
            match &mut call.op {
                Op::Conv(c) => c.channels_last = true,
                Op::Spatial(s) => s.channels_last = true,
                _ => {}
            }
        }
        call
    }

    /// Factor on GPU work of which no shapes are known.
    pub fn unknown(&self, family: KernelFamily) -> f64 {
        if self.channels_last && family == KernelFamily::Layout {
            return 0.0;
        }
        match family {
            KernelFamily::Optimizer | KernelFamily::Communication => 1.0,
            _ => self.batch.unwrap_or(1.0),
        }
    }
}

/// More samples in one call. Of a product the longer of rows and sums is taken to hold them: outputs and data gradients have
/// them as rows, weight gradients as sums, and both are mostly longer than a layer is wide.
fn grow(op: &mut Op, factor: f64) {
    let more = |x: &mut u64| *x = (*x as f64 * factor).round().max(1.0) as u64;
    match op {
        Op::Gemm(g) if g.batch > 1 => more(&mut g.batch),
        Op::Gemm(g) => more(if g.m >= g.k { &mut g.m } else { &mut g.k }),
        Op::Conv(c) => more(&mut c.batch),
        Op::Attention(a) => more(&mut a.batch),
        Op::Rnn(r) => more(&mut r.batch),
        Op::Rowwise(r) => more(&mut r.rows),
        Op::Spatial(s) => more(&mut s.batch),
        Op::Elementwise(e) => more(&mut e.n),
        Op::Embedding(e) => more(&mut e.tokens),
        Op::CrossEntropy(c) => more(&mut c.rows),
        Op::Movement(m) => more(&mut m.rows),
        Op::Interpolate(i) => more(&mut i.batch),
        Op::RoiAlign(r) => more(&mut r.rois),
        Op::Fused(f) => [&mut f.read, &mut f.written, &mut f.elements].into_iter().for_each(more),
        Op::Unmodelled { bytes, .. } => more(bytes),
        // Optimizers know parameters, not samples; suppression keeps its boxes.
        _ => {}
    }
}

/// The number format of a call in a precision: products follow it, autocast leaves norms and losses in fp32, and optimizers
/// stay as they are.
fn format(call: &OpCall, precision: Precision) -> Dtype {
    let product = matches!(call.op, Op::Gemm(_) | Op::Conv(_) | Op::Attention(_) | Op::Rnn(_));
    let stays = matches!(call.op, Op::Optimizer(_) | Op::Embedding(_) | Op::CrossEntropy(_))
        || matches!(call.dtype, Dtype::Int64 | Dtype::Int8);
    match precision {
        Precision::Pytorch if matches!(call.op, Op::Conv(_) | Op::Rnn(_)) => Dtype::Tf32,
        Precision::Pytorch | Precision::Fp32 if product => Dtype::Fp32,
        Precision::Tf32 if product => Dtype::Tf32,
        Precision::Pytorch | Precision::Fp32 | Precision::Tf32 => {
            if stays {
                call.dtype
            } else {
                Dtype::Fp32
            }
        }
        Precision::Fp8 if matches!(call.op, Op::Gemm(_)) => Dtype::Fp8,
        _ if stays => call.dtype,
        Precision::Amp if matches!(call.op, Op::Rowwise(_)) => Dtype::Fp32,
        Precision::Fp16 => Dtype::Fp16,
        _ => Dtype::Bf16,
    }
}

/// Samples of a recorded iteration, where convolutions, attention, recurrent layers or norms of maps tell: the batch with which
/// most of the GPU time is spent.
pub fn recorded_batch(analysis: &Analysis) -> Option<u64> {
    let mut times: BTreeMap<u64, f64> = BTreeMap::new();
    for group in &analysis.groups {
        let Some(work) = analysis.work(group) else { continue };
        for call in &work.calls {
            let batch = match &call.op {
                Op::Conv(c) => c.batch,
                Op::Attention(a) => a.batch,
                Op::Rnn(r) => r.batch,
                Op::Spatial(s) => s.batch,
                _ => continue,
            };
            *times.entry(batch).or_default() += group.time.0 / work.calls.len() as f64;
        }
    }
    times.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(batch, _)| batch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_ops::{Conv, Gemm, Pass};

    fn call(op: Op) -> OpCall {
        OpCall { op, pass: Pass::Fwd, dtype: Dtype::Fp32 }
    }

    #[test]
    fn twice_the_samples_are_twice_the_work() {
        let twice = Change { batch: Some(2.0), ..Change::default() };
        for op in [
            Op::Conv(Conv::square(8, 64, 56, 64, 3, 1, 1)),
            Op::Gemm(Gemm::linear(4096, 1024, 1024, true)),
            // A weight gradient: its sums run over the samples.
            Op::Gemm(Gemm::linear(1024, 1024, 4096, false)),
            Op::Gemm(Gemm::bmm(16, 128, 128, 64)),
        ] {
            let before = call(op);
            let after = twice.call(&before);
            assert!((after.flops().0 / before.flops().0 - 2.0).abs() < 1e-12, "{before:?}");
        }
    }

    #[test]
    fn formats_follow_the_operator() {
        let to =
            |precision, op| Change { precision: Some(precision), ..Change::default() }.call(&call(op)).dtype;
        let product = || Op::Gemm(Gemm::linear(64, 64, 64, false));
        assert_eq!(to(Precision::Amp, product()), Dtype::Bf16);
        assert_eq!(to(Precision::Tf32, product()), Dtype::Tf32);
        assert_eq!(to(Precision::Pytorch, product()), Dtype::Fp32);
        assert_eq!(to(Precision::Pytorch, Op::Conv(Conv::square(1, 8, 8, 8, 3, 1, 1))), Dtype::Tf32);
        assert_eq!(to(Precision::Fp8, product()), Dtype::Fp8);
        assert_eq!(to(Precision::Fp8, Op::Conv(Conv::square(1, 8, 8, 8, 3, 1, 1))), Dtype::Bf16);
    }

    #[test]
    fn no_change_changes_nothing() {
        let before = call(Op::Conv(Conv::square(8, 64, 56, 64, 3, 1, 1)));
        assert_eq!(Change::default().call(&before), before);
        assert!(Change::default().is_none());
        assert_eq!(Change::default().unknown(KernelFamily::Layout), 1.0);
    }
}
