//! From an operator to the kernels a library would launch: tiles, waves, split-K, algorithm.

pub mod attention;
pub mod conv;
pub mod conv_features;
pub mod conv_form;
pub mod gemm;
pub mod rnn;
pub mod stream;
pub mod tile;

use crate::dtype::Dtype;
use crate::gpu::Gpu;

/// The few figures of a GPU that the closed forms use, for one number format. SI units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// Streaming multiprocessors.
    pub sm: f64,
    /// Sustained FLOP/s of matrix products in this format.
    pub peak: f64,
    /// Sustained DRAM bytes per second.
    pub dram: f64,
    /// L2 bytes per second.
    pub l2: f64,
    /// L2 capacity in bytes.
    pub l2_size: f64,
}

impl Machine {
    /// The machine as products of this format see it.
    pub fn of(gpu: &Gpu, dtype: Dtype) -> Self {
        Self {
            sm: f64::from(gpu.sm_count),
            peak: gpu.sustained_peak(dtype).0,
            dram: gpu.dram_sustained.0,
            l2: gpu.l2.0,
            l2_size: gpu.l2_size.0,
        }
    }
}

/// Largest power of two that divides `x`, at most `cap`.
pub fn alignment(x: u64, cap: u64) -> u64 {
    if x == 0 { cap } else { (1 << x.trailing_zeros().min(62)).min(cap) }
}
