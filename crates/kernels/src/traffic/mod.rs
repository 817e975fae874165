//! Bytes that an operator moves at each level of the memory hierarchy.

pub mod conv;

use preflop_gpu::Gpu;
use preflop_ops::Traffic;

/// Bytes by level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Levels {
    /// Loaded through the L1s (by the bulk copy engine where there is one).
    pub l1: f64,
    /// Delivered from the L2 to the SMs.
    pub l2: f64,
    /// Read from and written to DRAM.
    pub dram: f64,
}

/// Share of the L2 that still holds results when a kernel ends: they are written back later, by others.
/// On an H200 about 18 MB of 60 are missing from the DRAM writes of a convolution.
const DIRTY_SHARE: f64 = 0.3;
/// Least share of a result that is written back while the kernel runs.
const LEAST_WRITTEN: f64 = 0.2;

/// DRAM bytes of a kernel that reads its inputs from a cold cache: all reads, and the writes that do not stay
/// in the L2.
pub fn dram(read: f64, written: f64, gpu: &Gpu) -> f64 {
    read + (written - DIRTY_SHARE * gpu.l2_size.0).max(LEAST_WRITTEN * written)
}

/// An operator that passes over its data once.
pub fn streaming(t: Traffic, gpu: &Gpu) -> Levels {
    let once = t.total().0;
    Levels { l1: once, l2: once, dram: dram(t.read.0, t.written.0, gpu) }
}
