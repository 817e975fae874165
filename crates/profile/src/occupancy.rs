//! How many blocks of a kernel one multiprocessor holds at a time.
//!
//! Recorders get this wrong (Kineto writes 0 % for every kernel above 48 KiB of shared memory), and another
//! GPU has other limits, so it is computed from the launch.

use super::GpuEvent;
use preflop_gpu::{Architecture, Gpu, Vendor};

/// How finely a multiprocessor hands out its registers and shared memory.
///
/// Source: NVIDIA CUDA occupancy calculator, "GPU data" sheet, per compute capability. Registers go out in units
/// of 256 per warp, to one of four schedulers (two on Pascal's P100, which changes nothing here: 64 warps);
/// shared memory in 256 bytes up to Volta and Turing and 128 from Ampere on, which also keeps 1 KiB per block.
struct Granularity {
    registers_per_warp: u64,
    schedulers: u64,
    shared_unit: u64,
    shared_reserved: u64,
}

fn granularity(gpu: &Gpu) -> Granularity {
    let ampere_or_later = gpu.vendor == Vendor::Nvidia
        && matches!(
            gpu.architecture,
            Architecture::Ampere | Architecture::Ada | Architecture::Hopper | Architecture::Blackwell
        );
    Granularity {
        registers_per_warp: 256,
        schedulers: 4,
        shared_unit: if ampere_or_later { 128 } else { 256 },
        shared_reserved: if ampere_or_later { 1024 } else { 0 },
    }
}

/// Resident blocks per multiprocessor, at least 1.
///
/// The least of four limits: block slots, threads, registers and shared memory. A limit whose input was not
/// recorded does not count. A kernel that asks for more than this GPU has would not run on it; the library's
/// stand-in is taken to fill the multiprocessor alone, so the answer is 1.
pub fn blocks_per_sm(event: &GpuEvent, gpu: &Gpu) -> u32 {
    let g = granularity(gpu);
    let warp = u64::from(gpu.warp_size.max(1));
    let warps = u64::from(event.threads).div_ceil(warp).max(1);
    let mut blocks = u64::from(gpu.blocks_per_sm.max(1));
    if event.threads > 0 {
        blocks = blocks.min(u64::from(gpu.threads_per_sm) / warp / warps);
    }
    if event.has_resources && event.registers > 0 && gpu.vendor != Vendor::Amd {
        let per_warp = (u64::from(event.registers) * warp).next_multiple_of(g.registers_per_warp);
        let per_scheduler = u64::from(gpu.registers_per_sm) / g.schedulers / per_warp;
        blocks = blocks.min(per_scheduler * g.schedulers / warps);
    }
    if event.has_resources && event.shared_bytes > 0 {
        let per_block = (u64::from(event.shared_bytes) + g.shared_reserved).next_multiple_of(g.shared_unit);
        blocks = blocks.min(gpu.shared_per_sm.0 as u64 / per_block);
    }
    blocks.max(1) as u32
}

/// Theoretical occupancy: resident warps over the most that fit, in (0, 1].
pub fn occupancy(event: &GpuEvent, gpu: &Gpu) -> Option<f64> {
    if event.threads == 0 || event.blocks == 0 {
        return None;
    }
    let warp = gpu.warp_size.max(1);
    let warps = event.threads.div_ceil(warp) * blocks_per_sm(event, gpu);
    Some((f64::from(warps) / f64::from((gpu.threads_per_sm / warp).max(1))).min(1.0))
}

/// Wave size: blocks that the whole GPU holds at a time.
pub fn wave(event: &GpuEvent, gpu: &Gpu) -> u64 {
    u64::from(gpu.sm_count.max(1)) * u64::from(blocks_per_sm(event, gpu))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GpuKind, NameId};
    use preflop_gpu::catalog;

    fn kernel(threads: u32, registers: u32, shared_bytes: u32) -> GpuEvent {
        GpuEvent {
            start_ns: 0,
            dur_ns: 1,
            name: NameId::EMPTY,
            kind: GpuKind::Kernel,
            graph: false,
            device: 0,
            stream: 0,
            correlation: 0,
            external: 0,
            blocks: 1,
            threads,
            registers,
            shared_bytes,
            has_resources: true,
            bytes: 0,
        }
    }

    #[test]
    fn hand_computed() {
        let h200 = catalog::find("h200").unwrap();
        // 256 threads = 8 warps; 32 registers -> 1024 a warp -> 16 warps of 16384 registers per scheduler
        // = 64 warps = 8 blocks; threads 2048/256 = 8.
        assert_eq!(blocks_per_sm(&kernel(256, 32, 0), &h200), 8);
        // 168 registers x 384 threads = 12 warps: 5376 a warp, 3 per scheduler, 12 warps: 1 block.
        assert_eq!(blocks_per_sm(&kernel(384, 168, 0), &h200), 1);
        // 100 KiB shared + 1 KiB reserved: 228/101 = 2 blocks.
        assert_eq!(blocks_per_sm(&kernel(128, 32, 100 * 1024), &h200), 2);
        let v100 = catalog::find("v100-sxm2-16gb").unwrap();
        // 96 KiB per multiprocessor, nothing reserved: one block of 96 KiB.
        assert_eq!(blocks_per_sm(&kernel(128, 32, 96 * 1024), &v100), 1);
        // 200 KiB does not fit at all: its stand-in fills the multiprocessor.
        assert_eq!(blocks_per_sm(&kernel(128, 32, 200 * 1024), &v100), 1);
    }

    #[test]
    fn large_shared_memory_is_not_zero() {
        let h200 = catalog::find("h200").unwrap();
        // 4 warps of 64 = 6.25 %
        assert_eq!(occupancy(&kernel(128, 168, 227 * 1024), &h200), Some(0.0625));
    }
}
