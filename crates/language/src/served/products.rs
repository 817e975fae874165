//! Products in 8-bit floats on a server, and in 4-bit floats (nvfp4): a kernel quantises the activations row by row, another multiplies (CUTLASS, as SGLang 0.5.10 builds it).
//!
//! ```text
//! quantising = join(DRAM bytes, L2 bytes, rounds * (block + row))
//! product    = join(join(rounds * (tile + end), L2 bytes), DRAM bytes),  tile = max(FLOPs / peak, steps / what is under way)
//! power      = FLOPs / sustained * (1/gain + (1 - 1/gain) * t/(t + slow)),  t = FLOPs / sustained
//! seconds    = start + join(quantising + product, power)
//! ```
//!
//! No kernel parts the sum, so few tiles with long sums take as long as one multiprocessor needs. Tiles follow each other along the shorter side; where that side has more
//! tiles than there are multiprocessors, every pass along it reads its whole operand again, and from DRAM if the L2 does not hold it. A board that draws too much slows down
//! after some milliseconds only: until then 8 bits gain over 16, afterwards each product costs what one in 16 bits does. A measurement that repeats one call sees the gain where
//! the call is short; a model, which goes on, does not.

use super::forms::{Constant, join, of_data_centres, parts_of_l2};
use preflop_core::Gpu;
use preflop_core::dtype::Dtype;
use preflop_core::gpu::Architecture;

/// What a product multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operands {
    /// 8-bit floats, with a scale for each row of activations and each output.
    Fp8,
    /// 8-bit floats, with a scale for each 128 terms of a row and each block of 128 x 128 weights ([`super::blocked`]).
    Fp8Blocks,
    /// 4-bit floats, with a scale of 8 bits for every 16.
    Nvfp4,
}

impl Operands {
    /// The name of their constants and trees.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Fp8 => "product.fp8",
            Self::Fp8Blocks => "product.fp8_block",
            Self::Nvfp4 => "product.nvfp4",
        }
    }

    /// Bytes of a number with its share of scales; scales of rows and of large blocks are too few to count.
    fn bytes(self) -> f64 {
        match self {
            Self::Fp8 | Self::Fp8Blocks => 1.0,
            Self::Nvfp4 => 0.5 + 1.0 / 16.0,
        }
    }

    fn dtype(self) -> Dtype {
        match self {
            Self::Fp8 | Self::Fp8Blocks => Dtype::Fp8,
            Self::Nvfp4 => Dtype::Fp4,
        }
    }
}

/// A product of activations (`m` x `k`, 16 bits, quantised on the way) and weights (`n` x `k`, 8 or 4 bits).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Product {
    /// Rows: tokens.
    pub m: f64,
    /// Outputs.
    pub n: f64,
    /// Terms of each sum.
    pub k: f64,
    /// Formats of both, once the activations are quantised.
    pub operands: Operands,
    /// Sets of operands that a measurement goes through in turn and that the L2 may hold; none in a model, where other layers pass through it.
    pub sets: Option<f64>,
}

impl Product {
    /// Sets of the published measurements: on the L40S (96 MiB of L2) operands of 16 MiB and more come from DRAM, smaller ones do not.
    pub const PUBLISHED: Option<f64> = Some(6.0);
}

/// How a product is laid out: facts of `fp8_gemm_kernel.cu` of SGLang's kernels, as recalled, and settled by where the published times jump with `m`.
#[derive(Debug, Clone, Copy)]
struct Layout {
    /// Rows and columns of a tile.
    rows: f64,
    columns: f64,
    /// CTAs of a cluster along rows and columns, which share what they load.
    cluster: [f64; 2],
    /// Multiprocessors that work on one tile.
    pair: f64,
    /// Do tiles follow each other along the rows, whichever side is shorter?
    along_rows: bool,
    /// Does a CTA stay for all its tiles, so that it stores a result and fetches operands while it computes?
    overlapped: bool,
    /// Steps of a sum whose operands are under way at the most; as many as shared memory holds unless given.
    stages: f64,
    /// Do rows of tiles that are partly empty run apart from the full ones, so that weights pass twice?
    apart: bool,
}

fn layout(gpu: &Gpu, m: f64) -> Layout {
    let plain = |rows, columns| Layout {
        rows,
        columns,
        cluster: [1.0, 1.0],
        pair: 1.0,
        along_rows: true,
        overlapped: false,
        stages: STAGES,
        apart: false,
    };
    let ahead = |side: [f64; 2], cluster, pair| Layout {
        cluster,
        pair,
        along_rows: false,
        overlapped: true,
        stages: f64::INFINITY,
        apart: gpu.architecture == Architecture::Hopper,
        ..plain(side[0], side[1])
    };
    match gpu.architecture {
        Architecture::Hopper if m <= 1.0 => ahead([64.0; 2], [1.0, 8.0], 1.0),
        Architecture::Hopper if m <= 64.0 => ahead([64.0; 2], [1.0, 4.0], 1.0),
        Architecture::Hopper if m <= 256.0 => ahead([64.0; 2], [1.0, 1.0], 1.0),
        Architecture::Hopper if m <= 1024.0 => ahead([128.0; 2], [1.0, 1.0], 1.0),
        Architecture::Hopper => ahead([128.0; 2], [2.0, 1.0], 1.0),
        Architecture::Blackwell if of_data_centres(gpu) => match m {
            m if m <= 16.0 => ahead([64.0; 2], [1.0, 4.0], 1.0),
            m if m <= 64.0 => ahead([64.0; 2], [1.0, 1.0], 1.0),
            m if m <= 256.0 => ahead([128.0, 64.0], [1.0, 1.0], 1.0),
            _ => ahead([256.0, 128.0], [1.0, 2.0], 2.0),
        },
        _ => match m {
            m if m <= 16.0 => plain(16.0, 64.0),
            m if m <= 64.0 => plain(32.0, 64.0),
            m if m <= 128.0 => plain(64.0, 64.0),
            m if m <= 256.0 => plain(128.0, 64.0),
            _ => plain(128.0, 128.0),
        },
    }
}

/// Share of what is read in turn that the L2 has lost when its turn comes again.
pub(super) fn unread(bytes: f64, gpu: &Gpu) -> f64 {
    let copied = gpu.l2_size.0 / parts_of_l2(gpu);
    ((bytes - copied) / (WHOLE * gpu.l2_size.0 - copied)).clamp(0.0, 1.0)
}

/// Share of results that the L2, which keeps a part of itself for them, does not hold back.
pub(super) fn unwritten(bytes: f64, keep: f64, gpu: &Gpu) -> f64 {
    let kept = keep * gpu.l2_size.0 / parts_of_l2(gpu);
    ((bytes / kept - 1.0) / OUTGROWN).clamp(0.0, 1.0)
}

/// Shares of the activations that arrive and of the weights that come from DRAM. In a model the kernel before has just written the activations, and other layers' weights have
/// passed.
pub(super) fn misses(a: &Product, gpu: &Gpu) -> [f64; 2] {
    let (given, bytes) = (2.0 * a.m * a.k, a.operands.bytes());
    match a.sets {
        Some(sets) => [unread(sets * (given + bytes * a.n * a.k), gpu); 2],
        None => [unread(given + bytes * a.m * a.k, gpu), 1.0],
    }
}

/// Seconds that a board's power allows for so many FLOPs: narrow formats gain over 16 bits until, after `slowing` milliseconds, the board slows down. A model does not stop.
pub(super) fn power(flops: f64, gain: f64, slowing: f64, stops: bool, gpu: &Gpu) -> f64 {
    let long = flops / gpu.sustained_peak(gpu.autocast()).0;
    let slowed = if stops { long / (long + slowing * 1e-3) } else { 1.0 };
    long * (1.0 / gain + (1.0 - 1.0 / gain).max(0.0) * slowed)
}

/// Constants of [`product`].
pub const PRODUCT: [Constant; 14] = [
    Constant::new("start_cycles", 9000.0, 3.0),
    Constant::new("row_cycles", 0.6, 3.0),
    Constant::new("cta_cycles", 1000.0, 1.0),
    Constant::new("load_cycles", 1500.0, 100.0),
    Constant::new("share_of_peak", 0.94, 100.0),
    Constant::new("gain_over_16_bits", 1.5, 10.0),
    Constant::new("share_of_l2", 1.0, 3.0),
    Constant::new("results_kept_in_l2", 0.75, 10.0),
    Constant::new("norm", 6.0, 10.0),
    Constant::new("quantising_share_of_l2", 0.4, 3.0),
    Constant::new("stored_cycles", 0.08, 3.0),
    Constant::new("read_again", 0.6, 10.0),
    Constant::new("block_cycles", 400.0, 3.0),
    Constant::new("slowing_ms", 5.0, 3.0),
];

/// Share of the DRAM rate that kernels which stream reach, as fused kernels do.
pub(super) const SHARE_OF_DRAM: f64 = 0.87;
/// What is read in turn, over the L2, of which nothing is left there when its turn comes again. An L2 of two parts begins to lose at a half, where all that it holds is there twice.
/// On the L40S (one part of 96 MiB) six sets of 15.7 MB stay and six of 18.4 do not.
const WHOLE: f64 = 1.05;
/// How soon an L2 holds back none of the results that are written to it, once they outgrow what it keeps of them.
const OUTGROWN: f64 = 0.25;
/// Rows whose quantising is under way at once (48 to 64 warps on each of 130 to 150 multiprocessors).
const ROWS_AT_ONCE: f64 = 7000.0;
/// Blocks of threads that share a multiprocessor while it quantises.
const BLOCKS: f64 = 6.0;
/// Terms by which a sum is rounded up, and of one step.
pub(super) const DEPTH: f64 = 128.0;
/// Steps under way in kernels that fetch by threads instead of whole tiles, on the generations before Hopper.
const STAGES: f64 = 4.0;
/// Waits for memory at both ends of a tile by a CTA that ends with it: the first operands, the last, and the result.
const WAITS: f64 = 3.0;
/// Share of the shorter of computing and storing that shows where CTAs end with their tile: two share a multiprocessor, and one stores while the other computes.
const BETWEEN: f64 = 0.5;
/// Share of the weights that the partly empty row of tiles reads again, if it were all empty, while nothing else runs: with 65 rows in place of 128 products that stream weights take
/// 1.4 to 1.8 times as long on an H100, and products that compute take longer by the same time.
const READ_APART: f64 = 0.8;
/// Sharpness of the corner between multiplying and fetching, which a tile does at once.
pub(super) const AT_ONCE: f64 = 8.0;

/// Seconds of a product with the quantising of its activations.
pub fn product(a: &Product, c: &[f64], gpu: &Gpu) -> f64 {
    let &[start, row, cta, load, eff, gain, l2, keep, norm, quantising_l2, stored, again, block, slowing] = c
    else {
        return product(a, &Constant::starts(&PRODUCT), gpu);
    };
    let (sm, clock) = (f64::from(gpu.sm_count), gpu.boost_clock.0);
    let dram = SHARE_OF_DRAM * gpu.dram_sustained.0;
    let miss = |bytes| unread(bytes, gpu);
    let bytes = a.operands.bytes();
    let (given, left, right) = (2.0 * a.m * a.k, bytes * a.m * a.k, bytes * a.n * a.k);
    let result = 2.0 * a.m * a.n;
    let [arriving, weights] = misses(a, gpu);
    let left_over = miss(given + left);
    // A block of threads reads its row twice, for the largest number and for all.
    let under_way = 2.0 * a.m.min(ROWS_AT_ONCE) * a.k;
    let quantised = (given * (arriving + again * miss(under_way)) + left * left_over) / dram;
    let rows = (a.m / (BLOCKS * sm)).ceil() * (block + row * a.k) / clock;
    let through_l2 = (2.0 * given + left) / (quantising_l2 * gpu.l2.0);
    let quantising = join(join(quantised, through_l2, norm), rows, norm);

    let t = layout(gpu, a.m);
    let clusters = |side: f64, tile: f64, together: f64| (side / (tile * together)).ceil() * together;
    let (tall, wide) = (clusters(a.m, t.rows, t.cluster[0]), clusters(a.n, t.columns, t.cluster[1]));
    let steps = (a.k / DEPTH).ceil();
    let (tiles, at_once) = (tall * wide, sm / t.pair);
    let rounds = (tiles / at_once).ceil();
    let flops = 2.0 * t.rows * t.columns * DEPTH * steps;
    let loaded = (t.rows / t.cluster[1] + t.columns / t.cluster[0]) * DEPTH * bytes;
    // Shared memory holds what is under way, and each step is so for so many cycles.
    let stages = (gpu.shared_per_block.0 * t.pair / loaded).min(t.stages);
    let multiplied = flops * at_once / (eff * gpu.peak(a.operands.dtype()).0);
    let tile = join(multiplied, steps * load / stages / clock, AT_ONCE);
    let cached = tiles * loaded * steps / (l2 * gpu.l2.0);
    let along_rows = t.along_rows || tall < wide;
    let (fast, slow, repeated) = if along_rows { (tall, wide, left) } else { (wide, tall, right) };
    let together = t.cluster[usize::from(along_rows)];
    let passes = (slow * fast / at_once).min(slow / together).max(1.0);
    let stores = result * unwritten(result, keep, gpu) / dram;
    let read = left * left_over + right * weights + repeated * (passes - 1.0) * miss(repeated);
    let tall_exactly = a.m / t.rows;
    let empty = if t.apart && tall_exactly > 1.0 { tall_exactly.ceil() - tall_exactly } else { 0.0 };
    let apart = READ_APART * empty * right * weights / dram;
    let waits = if t.overlapped { 0.0 } else { WAITS * load * (rounds - 1.0) };
    let end = (rounds * (cta + stored * t.rows * t.columns / t.pair) + waits) / clock;
    let body = join(rounds * tile + end, cached, norm);
    let body = if t.overlapped {
        join(body, read / dram + stores, norm)
    } else {
        let body = join(body, read / dram, norm);
        body.max(stores) + BETWEEN * body.min(stores)
    };
    let power = power(tiles * flops, gain, slowing, a.sets.is_some(), gpu);
    start / clock + join(quantising + body + apart, power, norm)
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_core::gpu::catalog;

    fn seconds(gpu: &str, m: f64, n: f64, k: f64) -> f64 {
        let gpu = catalog::find(gpu).unwrap();
        let a = Product { m, n, k, operands: Operands::Fp8, sets: Product::PUBLISHED };
        product(&a, &[], &gpu)
    }

    #[test]
    fn weights_that_the_l2_does_not_hold_come_from_dram() {
        // 64 MiB of weights at 739 GB/s x 0.87, and no 64 MiB of 96 in six sets
        let seconds = seconds("l40s", 1.0, 16_384.0, 4096.0);
        assert!((104e-6..125e-6).contains(&seconds), "{seconds}");
    }

    #[test]
    fn an_operand_that_outgrows_the_l2_is_read_with_every_pass() {
        // 128 rows of tiles on 142 multiprocessors: 128 MiB pass the L2 for each column of tiles, 64 MiB stay there
        let rate = |k: f64| 2.0 * 16_384.0 * 16_384.0 * k / seconds("l40s", 16_384.0, 16_384.0, k);
        assert!(rate(8192.0) < 0.65 * rate(4096.0), "{} {}", rate(8192.0), rate(4096.0));
    }

    #[test]
    fn no_kernel_parts_a_long_sum() {
        let (one, more) =
            (seconds("h100-sxm", 64.0, 64.0, 65_536.0), seconds("h100-sxm", 64.0, 4096.0, 65_536.0));
        // 64 times the work on 64 multiprocessors in place of one
        assert!(more < 2.5 * one, "{one} {more}");
    }
}
