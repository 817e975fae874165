//! Products in 8-bit floats with a scale for each 128 terms of a row of activations and for each block of 128 x 128 weights, as the checkpoints of DeepSeek-V3 are
//! (`weight_block_size`): a kernel quantises the activations group by group, another multiplies and scales every partial sum (DeepGEMM, as SGLang 0.5.10 runs it).
//!
//! ```text
//! quantising = join(DRAM bytes, L2 bytes, blocks / at once * (block + row))
//! product    = join(join(rounds * (tile + end), L2 bytes), DRAM bytes),  tile = max(FLOPs / peak + steps * scaling, steps / what is under way)
//! power      = FLOPs / sustained * (1/gain + (1 - 1/gain) * t/(t + slow)),  t = FLOPs / sustained
//! seconds    = kernels * start + join(quantising + product, power) + weights read again
//! ```
//!
//! Tiles have 64 or 128 rows and as many columns as need the fewest rounds (`get_best_configs`). Blackwell multiplies powers of two as scales: there further kernels make such scales of the
//! published ones, and the weights pass once more. That is read off the published times: a B200 starts 9 us later than an H100, and weights that both stream take twice what their bytes do.

use super::forms::{Constant, join, of_data_centres};
use super::products::{self, AT_ONCE, DEPTH, Product, SHARE_OF_DRAM, unread, unwritten};
use preflop_core::Gpu;
use preflop_core::dtype::Dtype;
use preflop_core::gpu::Architecture;

/// Constants of [`product`].
pub const BLOCKED: [Constant; 13] = [
    Constant::new("start_cycles_per_kernel", 5000.0, 3.0),
    Constant::new("row_cycles", 0.6, 3.0),
    Constant::new("cta_cycles", 200.0, 1.0),
    Constant::new("load_cycles", 1600.0, 100.0),
    Constant::new("share_of_peak", 1.0, 100.0),
    Constant::new("gain_over_16_bits", 3.0, 10.0),
    Constant::new("share_of_l2", 1.1, 3.0),
    Constant::new("norm", 3.5, 10.0),
    Constant::new("quantising_share_of_l2", 0.11, 3.0),
    Constant::new("stored_cycles", 0.1, 3.0),
    Constant::new("block_cycles", 350.0, 3.0),
    Constant::new("slowing_ms", 11.0, 30.0),
    Constant::new("scaling_cycles", 60.0, 1.0),
];

/// Rows of activations that a multiprocessor quantises at once: 8 blocks of 256 threads.
const BLOCKS: f64 = 8.0;
/// Steps of a sum whose operands are under way at the most.
const STAGES: f64 = 8.0;
/// Rows of a tile with few tokens, and with more.
const ROWS: [f64; 2] = [64.0, 128.0];
/// Rows from which two tiles share the weights that they load.
const SHARED_FROM: f64 = 512.0;
/// Rows or columns of tiles that follow each other before the next are begun, so that what they read stays in the L2.
const GROUP: f64 = 8.0;
/// Numbers of a tile of 128 x 128, of which `scaling_cycles` speak.
const FULL_TILE: f64 = 16_384.0;
/// Share of an L2's part that keeps results until they are written.
const KEPT: f64 = 0.7;

/// Are scales powers of two?
fn powers_of_two(gpu: &Gpu) -> bool {
    gpu.architecture == Architecture::Blackwell && of_data_centres(gpu)
}

/// Columns of a tile: those of the fewest rounds; among them the fullest last round, then the narrowest.
fn columns(m: f64, n: f64, rows: f64, gpu: &Gpu) -> f64 {
    let sm = f64::from(gpu.sm_count);
    let tall = (m / rows).ceil();
    let (step, most) = if powers_of_two(gpu) { (16, 256) } else { (8, 128) };
    let mut best = (f64::INFINITY, 0.0, 16.0);
    for columns in (16..=most).step_by(step).map(f64::from) {
        let tiles = tall * (n / columns).ceil();
        let rounds = (tiles / sm).ceil();
        let last = tiles - (rounds - 1.0) * sm;
        if rounds < best.0 || rounds <= best.0 && last > best.1 {
            best = (rounds, last, columns);
        }
    }
    best.2
}

/// Seconds of a product with scales by blocks, and of quantising its activations.
pub fn product(a: &Product, c: &[f64], gpu: &Gpu) -> f64 {
    let &[start, row, cta, load, eff, gain, l2, norm, quantising_l2, stored, block, slowing, scaling] = c
    else {
        return product(a, &Constant::starts(&BLOCKED), gpu);
    };
    let (sm, clock) = (f64::from(gpu.sm_count), gpu.boost_clock.0);
    let dram = SHARE_OF_DRAM * gpu.dram_sustained.0;
    let miss = |bytes| unread(bytes, gpu);
    let (left, right, result) = (a.m * a.k, a.n * a.k, 2.0 * a.m * a.n);
    let [arriving, weights] = products::misses(a, gpu);
    let quantised = left * (2.0 * arriving + miss(3.0 * left)) / dram;
    let rows_quantised = a.m / (BLOCKS * sm) * (block + row * a.k) / clock;
    let quantising =
        join(join(quantised, 3.0 * left / (quantising_l2 * gpu.l2.0), norm), rows_quantised, norm);

    let rows = ROWS[usize::from(a.m > ROWS[0])];
    let columns = columns(a.m, a.n, rows, gpu);
    let (tall, wide, steps) = ((a.m / rows).ceil(), (a.n / columns).ceil(), (a.k / DEPTH).ceil());
    let tiles = tall * wide;
    let rounds = (tiles / sm).ceil();
    let flops = 2.0 * rows * columns * DEPTH * steps;
    let shared = if tall >= 2.0 && a.m >= SHARED_FROM { 2.0 } else { 1.0 };
    let stages = (gpu.shared_per_block.0 / ((rows + columns) * DEPTH)).min(STAGES);
    let scaled = steps * scaling * rows * columns / FULL_TILE / clock;
    let multiplied = flops * sm / (eff * gpu.peak(Dtype::Fp8).0) + scaled;
    let tile = join(multiplied, steps * load / stages / clock, AT_ONCE);
    let cached = tiles * (rows + columns / shared) * DEPTH * steps / (l2 * gpu.l2.0);
    let repeated = if tall < wide { left } else { right };
    let passes = (tiles / sm).max(1.0).min(tall.min(wide) / GROUP).max(1.0);
    let read = left * miss(3.0 * left) + right * weights + repeated * (passes - 1.0) * miss(repeated);
    let stores = result * unwritten(result, KEPT, gpu) / dram;
    let end = rounds * (cta + stored * rows * columns) / clock;
    let body = join(join(rounds * tile + end, cached, norm), read / dram + stores, norm);
    let power = products::power(tiles * flops, gain, slowing, a.sets.is_some(), gpu);
    // The kernel that quantises and the one that multiplies; three more where scales are made anew, and the weights once more.
    let (kernels, again) = if powers_of_two(gpu) { (5.0, right * weights / dram) } else { (2.0, 0.0) };
    kernels * start / clock + join(quantising + body, power, norm) + again
}

#[cfg(test)]
mod tests {
    use super::super::products::Operands;
    use super::*;
    use preflop_core::gpu::catalog;

    fn seconds(gpu: &str, m: f64, n: f64, k: f64) -> f64 {
        let gpu = catalog::find(gpu).unwrap();
        let a = Product { m, n, k, operands: Operands::Fp8Blocks, sets: Product::PUBLISHED };
        product(&a, &[], &gpu)
    }

    #[test]
    fn tiles_are_as_wide_as_the_fewest_rounds_need() {
        let gpu = catalog::find("h100-sxm").unwrap();
        // 4096 columns in tiles of 32: 128 tiles on 132 multiprocessors; 24 would need two rounds
        assert!((columns(64.0, 4096.0, 64.0, &gpu) - 32.0).abs() < 1e-9);
    }

    #[test]
    fn weights_stream_on_hopper_and_pass_twice_on_blackwell() {
        // 51,200 x 4,096 bytes at 2.97 and 7.11 TB/s x 0.87: 81 us, and 34; published 78 and 77
        let (hopper, blackwell) =
            (seconds("h100-sxm", 64.0, 51_200.0, 4096.0), seconds("b200", 64.0, 51_200.0, 4096.0));
        assert!((76e-6..95e-6).contains(&hopper), "{hopper}");
        assert!((70e-6..90e-6).contains(&blackwell), "{blackwell}");
    }

    #[test]
    fn large_products_run_below_the_peak() {
        // Published: 1,170 TFLOP/s of 1,979 on an H100
        let rate = 2.0 * 16_384.0 * 16_384.0 * 4096.0 / seconds("h100-sxm", 16_384.0, 16_384.0, 4096.0);
        assert!((0.9e15..1.4e15).contains(&rate), "{rate}");
    }
}
