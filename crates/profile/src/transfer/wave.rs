//! Wave scaling: a kernel's time on another GPU from its time on this one (Habitat, section 3.3).

use crate::GpuEvent;
use crate::occupancy::wave;
use preflop_gpu::Gpu;
use preflop_units::math::Elementary as _;
use preflop_units::{Bytes, Flops, FlopsPerSecond};

/// Memory-boundedness, from the arithmetic intensity and the destination's ridge (Habitat, equation 3):
///
/// ```text
/// x <= R: gamma = 1 - 0.5 x/R        x > R: gamma = 0.5 R/x
/// ```
///
/// Where: x FLOPs per byte of the operator; R FLOPs per byte at the destination's ridge point.
pub fn gamma(flops: Flops, bytes: Bytes, peak: FlopsPerSecond, gpu: &Gpu) -> f64 {
    if bytes.0 <= 0.0 || flops.0 <= 0.0 {
        return 1.0;
    }
    let x = flops.0 / bytes.0;
    let r = peak.0 / gpu.dram_sustained.0;
    if x <= r { 1.0 - 0.5 * x / r } else { 0.5 * r / x }
}

/// The factor by which a kernel's time changes from `origin` to `destination` (Habitat, equation 1, with whole waves):
///
/// ```text
/// T_d/T_o = ceil(B/W_d) / ceil(B/W_o) * ((D_o/D_d) * (W_d/W_o))^gamma * (C_o/C_d)^(1-gamma)
/// ```
///
/// Where: B thread blocks; W wave size, multiprocessors times resident blocks, from the occupancy on each GPU; D
/// sustained memory bandwidth; C boost clock, which kernels of today run at. A kernel without a recorded
/// grid is taken to fill many waves: `(D_o/D_d)^gamma * ((W_o/W_d) * (C_o/C_d))^(1-gamma)` with the
/// multiprocessors as waves (equation 2).
pub fn factor(event: &GpuEvent, origin: &Gpu, destination: &Gpu, gamma: f64) -> f64 {
    let d = origin.dram_sustained / destination.dram_sustained;
    let c = origin.boost_clock / destination.boost_clock;
    if event.blocks == 0 {
        let w = f64::from(origin.sm_count.max(1)) / f64::from(destination.sm_count.max(1));
        return d.power(gamma) * (w * c).power(1.0 - gamma);
    }
    let (w_o, w_d) = (wave(event, origin), wave(event, destination));
    let waves = event.blocks.div_ceil(w_d) as f64 / event.blocks.div_ceil(w_o) as f64;
    waves * (d * w_d as f64 / w_o as f64).power(gamma) * c.power(1.0 - gamma)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Names;
    use crate::fixtures::event;
    use preflop_gpu::catalog;
    use proptest::prelude::*;

    #[test]
    fn gamma_at_the_ridge_is_a_half() {
        let gpu = catalog::find("h200").unwrap();
        let peak = FlopsPerSecond(gpu.dram_sustained.0 * 10.0);
        let g = |x: f64| gamma(Flops(x), Bytes(1.0), peak, &gpu);
        assert_eq!((g(0.0), g(5.0), g(10.0), g(20.0)), (1.0, 0.75, 0.5, 0.25));
    }

    #[test]
    fn hand_computed() {
        // 100 blocks of 128 threads at 32 registers: 16 blocks a multiprocessor by threads on both GPUs.
        let (h200, v100) = (catalog::find("h200").unwrap(), catalog::find("v100-sxm2-16gb").unwrap());
        let e = event(&mut Names::new(), "k", 0, 1, 0);
        let d = h200.dram_sustained / v100.dram_sustained;
        // One wave on each; memory-bound: D_o/D_d * W_d/W_o = d * 80/132.
        let f = factor(&e, &h200, &v100, 1.0);
        assert!((f - d * 80.0 / 132.0).abs() < 1e-12);
        // Compute-bound in one wave: the clocks alone.
        let f = factor(&e, &h200, &v100, 0.0);
        assert!((f - h200.boost_clock / v100.boost_clock).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn the_same_gpu_changes_nothing(blocks in 0_u64..100_000, threads in 1_u32..1024, registers in 0_u32..255,
            shared in 0_u32..232_448, gamma in 0.0..1.0_f64) {
            let gpu = catalog::find("h200").unwrap();
            let mut e = event(&mut Names::new(), "k", 0, 1, 0);
            (e.blocks, e.threads, e.registers, e.shared_bytes) = (blocks, threads, registers, shared);
            prop_assert!((factor(&e, &gpu, &gpu, gamma) - 1.0).abs() < 1e-12);
        }

        #[test]
        fn more_bandwidth_is_never_slower(blocks in 1_u64..100_000, gamma in 0.0..1.0_f64, more in 1.0..10.0_f64) {
            let origin = catalog::find("h200").unwrap();
            let slow = catalog::find("t4").unwrap();
            let mut fast = slow.clone();
            fast.dram_sustained.0 *= more;
            let mut e = event(&mut Names::new(), "k", 0, 1, 0);
            e.blocks = blocks;
            prop_assert!(factor(&e, &origin, &fast, gamma) <= factor(&e, &origin, &slow, gamma) * (1.0 + 1e-12));
        }
    }
}
