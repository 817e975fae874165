//! Calls grow with their sizes: what holds predictions of short calls together.

use super::draft::Draft;
use preflop_kernels::gemm;
use preflop_ops::{Op, OpCall};

/// Calls shorter than this are held against smaller ones. Products and convolutions grow with the cube of their
/// sizes, so that only the shortest waver. The time on the measured GPU decides, so that a better GPU is held against the same calls.
const SHORT_PRODUCT: f64 = 25e-6;
const SHORT_STREAM: f64 = 200e-6;
/// How often they are halved: what a call of half the size was held against counts too.
const HALVINGS: usize = 2;
/// Least time of a call of double size.
const LEAST_GROWTH: f64 = 0.98;

/// Do products of two calls have kernels of the same alignment?
fn alike(one: &OpCall, other: &OpCall) -> bool {
    match (&one.op, &other.op) {
        (Op::Gemm(a), Op::Gemm(b)) => gemm::class(a, one.dtype) == gemm::class(b, other.dtype),
        _ => true,
    }
}

/// A call that another is held against.
pub(super) struct Held {
    /// The smaller or larger call.
    pub call: OpCall,
    /// Share of its time that is the bound.
    share: f64,
    /// Smaller calls bound from below, larger ones from above.
    larger: bool,
}

impl Held {
    /// The calls that one of so many seconds on the measured GPU is held against, in this order; none for long ones.
    ///
    /// Its time does not fall below that of calls half and a quarter the size: learned corrections of short
    /// calls waver by more than such calls grow.
    ///
    /// Where half the size of a product is worse aligned, its kernels are slower indeed. There the smaller call gives way, so that
    /// the larger, which jobs are made of, stays as measured.
    pub fn against(call: &OpCall, there: f64) -> Vec<Self> {
        let short = match &call.op {
            Op::Gemm(_) | Op::Conv(_) => SHORT_PRODUCT,
            _ => SHORT_STREAM,
        };
        let mut out = Vec::new();
        if there >= short {
            return out;
        }
        let mut smaller = call.halved();
        let mut share = 1.0;
        for _ in 0..HALVINGS {
            let Some(half) = smaller.filter(|c| alike(c, call)) else { break };
            share *= LEAST_GROWTH;
            smaller = half.halved();
            out.push(Self { call: half, share, larger: false });
        }
        if let Op::Gemm(g) = &call.op {
            // Eight times any size is aligned. Of larger calls with one alignment the smallest decides: the others are
            // held against it.
            let (mut share, mut last) = (1.0, call.clone());
            for times in [2, 4, 8] {
                let larger = OpCall { op: Op::Gemm(g.grown(times)), ..call.clone() };
                share /= LEAST_GROWTH;
                if !alike(&larger, &last) {
                    out.push(Self { call: larger.clone(), share, larger: true });
                }
                last = larger;
            }
        }
        out
    }

    /// The seconds of a call, held against the bound.
    pub fn apply(&self, seconds: f64, bound: f64) -> f64 {
        if self.larger { seconds.min(bound) } else { seconds.max(bound) }
    }

    /// The bound that a draft of the other call sets.
    pub fn bound(&self, draft: &Draft) -> f64 {
        self.share * draft.seconds()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TimeModel;
    use preflop_gpu::catalog;
    use preflop_ops::{Gemm, Layout};
    use preflop_units::dtype::Dtype;

    #[test]
    fn aligned_products_are_not_held_against_slower_halves() {
        let (model, gpu) = (TimeModel::embedded(), catalog::find("h200").unwrap());
        let us = |m, n, k| {
            let call = OpCall::fwd(Op::Gemm(Gemm::mm(m, n, k, Layout::Nn)), Dtype::Bf16);
            model.predict(&call, &gpu).time.us()
        };
        // Measured: 2.92 us. Half of it has rows of 8 bytes and slower kernels.
        let whole = us(24, 584, 360);
        assert!((whole / 2.92 - 1.0).abs() < 0.2, "{whole} us");
        assert!(whole >= 0.95 * us(12, 292, 180));
    }
}
