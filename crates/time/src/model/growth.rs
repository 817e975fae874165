//! Calls grow with their sizes: what holds predictions of short calls together.

use super::{MEASURED, TimeModel};
use preflop_gpu::Gpu;
use preflop_kernels::gemm;
use preflop_ops::{Op, OpCall};

/// Calls shorter than this are held against smaller ones. Products and convolutions grow with the cube of their
/// sizes, so that only the shortest waver; more of them do on GPUs whose corrections came from others.
const SHORT_PRODUCT_MEASURED: f64 = 25e-6;
const SHORT_PRODUCT: f64 = 1e-3;
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

impl TimeModel {
    /// A time that does not fall below that of calls half and a quarter the size: learned corrections of short
    /// calls waver by more than such calls grow.
    ///
    /// Where half the size of a product is worse aligned, its kernels are slower indeed. There the smaller call gives way, so that
    /// the larger, which jobs are made of, stays as measured.
    pub(super) fn grown(&self, call: &OpCall, seconds: f64, gpu: &Gpu) -> f64 {
        let mut least = seconds;
        let short = match (&call.op, gpu.name == MEASURED) {
            (Op::Gemm(_) | Op::Conv(_), true) => SHORT_PRODUCT_MEASURED,
            (Op::Gemm(_) | Op::Conv(_), false) => SHORT_PRODUCT,
            _ => SHORT_STREAM,
        };
        let mut smaller = if seconds < short { call.halved() } else { None };
        let mut share = 1.0;
        for _ in 0..HALVINGS {
            let Some(call) = smaller.filter(|c| alike(c, call)) else { break };
            share *= LEAST_GROWTH;
            least = least.max(share * self.draft(&call, gpu).seconds() * self.generation_factor(&call, gpu));
            smaller = call.halved();
        }
        if let (Op::Gemm(g), true) = (&call.op, seconds < short) {
            // Eight times any size is aligned. Of larger calls with one alignment the smallest decides: the others are
            // held against it.
            let (mut share, mut last) = (1.0, call.clone());
            for times in [2, 4, 8] {
                let larger = OpCall { op: Op::Gemm(g.grown(times)), ..call.clone() };
                share /= LEAST_GROWTH;
                if !alike(&larger, &last) {
                    least = least.min(share * self.draft(&larger, gpu).seconds());
                }
                last = larger;
            }
        }
        least
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
