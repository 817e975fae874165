//! Layers of experts on a server: grouped products, one for gate and up, one for down, over the tokens that each expert was given.
//!
//! ```text
//! grouped = start + join(join(flops / rate, L2 bytes) + tiles * cta, DRAM bytes)
//! scaled  = start + join(join(flops / peak + steps * scaling + tiles * cta, L2 bytes), DRAM bytes)
//! ```
//!
//! The tokens of an expert are rounded up to whole tiles. Triton's kernels in bf16 take tiles of 16 x 32 while there are fewer tokens than experts and of 64 x 64 above
//! (`get_default_config`), unless the server ships a tuned configuration; the larger tile reads 64 bytes of a row of weights at a time, which wastes a third of the bandwidth. In fp8 with a scale for
//! each block they take tiles of 64 x 128 always.
//! Marlin's kernels (4-bit integers) choose the tile by the tokens of an expert and multiply with warp-level instructions on every generation.

use super::forms::{Constant, join, streamed};
use preflop_core::Gpu;
use preflop_core::dtype::Dtype;
use preflop_core::units::math::Elementary as _;

/// A layer of experts: the router's choice is made, the sum is taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Experts {
    /// Tokens.
    pub tokens: f64,
    /// Width of a token.
    pub width: f64,
    /// Width inside an expert.
    pub inner: f64,
    /// Experts that one token takes.
    pub taken: f64,
    /// Experts in all.
    pub count: f64,
    /// Bytes of one weight.
    pub weight_bytes: f64,
    /// Format of the products.
    pub dtype: Dtype,
    /// Which tokens go where.
    pub load: Load,
    /// Does the server ship a tuned configuration for these experts on this GPU ([`super::tuned`])?
    pub tuned: bool,
    /// May the L2 hold the weights of the run before, as in a measurement that repeats one layer?
    pub warm: bool,
}

/// How tokens spread over experts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Exponent of the power law by which experts are chosen; 0 where all are taken equally often.
    pub skew: f64,
    /// Experts that any token takes.
    pub reached: f64,
    /// Tiles of [`TILES`] rows that the tokens of all experts fill.
    pub tiles: [f64; TILES.len()],
}

/// Rows of a tile.
pub const TILES: [f64; 5] = [8.0, 16.0, 32.0, 48.0, 64.0];
/// The exponent that stands for a trained router.
pub const TRAINED: f64 = 1.01;
/// Experts that are counted one by one at the most.
const COUNTED: f64 = 4096.0;

impl Load {
    /// Tokens by a power law between one and 0.8 of all tokens, as aiconfigurator draws them: expert i of E is the quantile (i + 1/2) / E.
    pub fn of(tokens: f64, taken: f64, count: f64, skew: f64) -> Self {
        let experts = count.clamp(1.0, COUNTED).floor();
        let rows = (tokens * taken).max(1.0);
        let high = (0.8 * tokens).max(1.0001);
        let shape = 1.0 - skew;
        let weight = |i: f64| {
            if skew <= 0.0 {
                return 1.0;
            }
            let u = (i + 0.5) / experts;
            ((high.power(shape) - 1.0) * u + 1.0).power(1.0 / shape)
        };
        let numbers = || (0..experts as u32).map(f64::from);
        let all: f64 = numbers().map(weight).sum();
        let (mut reached, mut tiles, mut before, mut sum) = (0.0_f64, [0.0_f64; TILES.len()], 0.0, 0.0);
        for i in numbers() {
            sum += weight(i) / all * rows;
            // Rounded so that no token is lost; an expert gets each token once.
            let own = (sum.round() - before).clamp(0.0, tokens.max(1.0));
            before = sum.round();
            if own > 0.0 {
                reached += 1.0;
                for (tile, n) in TILES.iter().zip(&mut tiles) {
                    *n += (own / tile).ceil();
                }
            }
        }
        Self { skew, reached: reached.max(1.0), tiles: tiles.map(|t| t.max(1.0)) }
    }

    fn tiles(&self, rows: f64) -> f64 {
        let found = TILES.iter().zip(self.tiles).find(|(t, _)| **t >= rows);
        found.map_or(self.tiles[TILES.len() - 1], |(_, n)| n)
    }
}

impl Experts {
    /// Have the operands of products scales of their own, block by block?
    pub fn scaled(&self) -> bool {
        self.dtype.size() < 2.0
    }

    /// Are weights widened before they are multiplied?
    pub fn widened(&self) -> bool {
        self.weight_bytes < self.dtype.size()
    }

    /// Bytes that pass between layers and between the two products.
    fn activations(&self) -> f64 {
        2.0 * self.tokens * self.taken * (2.0 * self.width + 3.0 * self.inner)
            + 4.0 * self.tokens * self.width
    }
}

/// Constants of [`grouped`].
pub const GROUPED: [Constant; 13] = [
    Constant::new("start_us", 15.0, 10.0),
    Constant::new("start_cycles", 25_000.0, 3.0),
    Constant::new("share_of_dram", 0.97, 30.0),
    Constant::new("half_lines", 0.7, 10.0),
    Constant::new("share_of_peak", 0.6, 10.0),
    Constant::new("share_of_l2", 0.75, 10.0),
    Constant::new("small_tile_cycles", 500.0, 1.0),
    Constant::new("large_tile_cycles", 2000.0, 1.0),
    Constant::new("norm", 3.0, 10.0),
    Constant::new("warm_share_of_l2", 0.7, 3.0),
    Constant::new("kept_of_l2_part", 1.2, 10.0),
    Constant::new("odd_width", 1.4, 3.0),
    Constant::new("tuned_gain", 1.7, 10.0),
];

/// Seconds of a layer of experts in 16 bits by Triton's grouped products.
pub fn grouped(a: &Experts, c: &[f64], gpu: &Gpu) -> f64 {
    let &[start, cycles, mb, half, eff, l2, small, large, norm, hot, keep, odd, gain] = c else {
        return grouped(a, &Constant::starts(&GROUPED), gpu);
    };
    let (sm, clock) = (f64::from(gpu.sm_count), gpu.boost_clock.0);
    let few = a.tokens <= a.count;
    // Rows, columns and depth of a tile.
    let (rows, columns, depth) = if few { (16.0, 32.0, 64.0) } else { (64.0, 64.0, 32.0) };
    let tall = a.load.tiles(rows);
    let tuned = a.tuned && !few;
    let wide = (2.0 * a.inner / columns).ceil();
    let tiles = tall * (wide + (a.width / columns).ceil());
    let flops = 2.0 * tall * rows * a.width * (wide * columns + (a.inner / depth).ceil() * depth);
    let through_l2 = 0.5 * flops * (1.0 / rows + 1.0 / columns) * a.weight_bytes;
    let cached = through_l2 / (l2 * gpu.l2.0 * if tuned { gain } else { 1.0 });
    let product = flops / (eff * gpu.peak(a.dtype).0);
    let tile = if few { small } else { large };
    let compute = join(product, cached, norm) + tiles / sm * tile / clock;
    let mut weights = a.load.reached * 3.0 * a.width * a.inner * a.weight_bytes;
    if !(few || tuned) {
        weights /= half;
    }
    // Rows that do not start at 16 elements are read one element at a time.
    if a.inner % 16.0 > 0.0 {
        weights *= odd;
    }
    let memory = streamed(weights + a.activations(), mb, hot, keep, a.warm, gpu);
    start * 1e-6 + cycles / clock + join(compute, memory, norm)
}

/// Constants of [`scaled`].
pub const SCALED: [Constant; 10] = [
    Constant::new("start_us", 20.0, 10.0),
    Constant::new("start_cycles", 38_000.0, 3.0),
    Constant::new("share_of_dram", 0.97, 30.0),
    Constant::new("share_of_l2", 0.7, 10.0),
    Constant::new("tile_cycles", 4500.0, 1.0),
    Constant::new("step_cycles", 600.0, 1.0),
    Constant::new("norm", 4.0, 10.0),
    Constant::new("warm_share_of_l2", 1.3, 3.0),
    Constant::new("kept_of_l2_part", 1.2, 10.0),
    Constant::new("odd_width", 35.0, 3.0),
];

/// Rows, columns and depth of a tile whose operands have scales: a block of weights with one scale is as wide and as deep.
const SCALED_TILE: [f64; 3] = [64.0, 128.0, 128.0];

/// Seconds of a layer of experts in narrow floats with scales by blocks, and of quantising what they read.
///
/// At every step along the sum a tile waits for its product, scales it and adds it up: those cycles come on top of the product's own and are the same on every generation. They bound the arithmetic
/// well below the peak, and where memory is fast, the reading of weights too.
pub fn scaled(a: &Experts, c: &[f64], gpu: &Gpu) -> f64 {
    let &[start, cycles, mb, l2, tile, step, norm, hot, keep, odd] = c else {
        return scaled(a, &Constant::starts(&SCALED), gpu);
    };
    let (sm, clock) = (f64::from(gpu.sm_count), gpu.boost_clock.0);
    let [rows, columns, depth] = SCALED_TILE;
    let tall = a.load.tiles(rows);
    let (up, down) = ((2.0 * a.inner / columns).ceil(), (a.width / columns).ceil());
    let tiles = tall * (up + down);
    let steps = tall * (up * (a.width / depth).ceil() + down * (a.inner / depth).ceil());
    let flops = 2.0 * rows * columns * depth * steps;
    let compute = flops / gpu.peak(a.dtype).0 + (steps * step + tiles * tile) / (sm * clock);
    let cached = 0.5 * flops * (1.0 / rows + 1.0 / columns) * a.weight_bytes / (l2 * gpu.l2.0);
    let mut weights = a.load.reached * 3.0 * a.width * a.inner * a.weight_bytes;
    // As in `grouped`, but a byte at a time.
    if a.inner % 16.0 > 0.0 {
        weights *= odd;
    }
    let memory = streamed(weights + a.activations(), mb, hot, keep, a.warm, gpu);
    start * 1e-6 + cycles / clock + join(join(compute, cached, norm), memory, norm)
}

/// Constants of [`widened`].
pub const WIDENED: [Constant; 9] = [
    Constant::new("start_us", 10.0, 10.0),
    Constant::new("start_cycles", 15_000.0, 3.0),
    Constant::new("share_of_dram", 0.97, 100.0),
    Constant::new("share_of_warp_rate", 0.55, 10.0),
    Constant::new("share_of_l2", 0.6, 3.0),
    Constant::new("tile_cycles", 30_000.0, 1.0),
    Constant::new("norm", 3.0, 10.0),
    Constant::new("warm_share_of_l2", 0.7, 3.0),
    Constant::new("kept_of_l2_part", 1.2, 10.0),
];

/// FLOPs that warp-level matrix instructions do in a cycle of a multiprocessor at the most, since Ampere (1,024 fused multiplications and additions in 16 bits).
const WARP_FLOPS: f64 = 2048.0;

/// Seconds of a layer of experts by Marlin's kernels.
pub fn widened(a: &Experts, c: &[f64], gpu: &Gpu) -> f64 {
    let &[start, cycles, mb, eff, l2, tile, norm, hot, keep] = c else {
        return widened(a, &Constant::starts(&WIDENED), gpu);
    };
    let (sm, clock) = (f64::from(gpu.sm_count), gpu.boost_clock.0);
    let each = a.tokens * a.taken / a.count.max(1.0);
    let rows = TILES.into_iter().find(|t| each < 0.9 * t).unwrap_or(TILES[TILES.len() - 1]);
    let tall = a.load.tiles(rows);
    let flops = 6.0 * tall * rows.max(16.0) * a.width * a.inner;
    let rate = gpu.sustained_peak(a.dtype).0.min(sm * clock * WARP_FLOPS);
    let weights = 3.0 * a.width * a.inner * a.weight_bytes;
    // Each row of tiles reads the expert's weights; 256 columns share what they read of the tokens.
    let cached = (tall * weights + 6.0 * tall * rows * a.width * a.inner / 256.0) / (l2 * gpu.l2.0);
    let compute = join(flops / (eff * rate), cached, norm) + tall / sm * tile / clock;
    let memory = streamed(a.load.reached * weights + a.activations(), mb, hot, keep, a.warm, gpu);
    start * 1e-6 + cycles / clock + join(compute, memory, norm)
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_core::gpu::catalog;

    fn layer(tokens: f64) -> Experts {
        Experts {
            tokens,
            width: 4096.0,
            inner: 14_336.0,
            taken: 2.0,
            count: 8.0,
            weight_bytes: 2.0,
            dtype: Dtype::Bf16,
            load: Load::of(tokens, 2.0, 8.0, 0.0),
            tuned: true,
            warm: false,
        }
    }

    #[test]
    fn few_tokens_read_the_experts_that_they_take() {
        let gpu = catalog::find("h100-sxm").unwrap();
        let one = grouped(&layer(1.0), &[], &gpu);
        let all = grouped(&layer(64.0), &[], &gpu);
        assert!(all > 2.5 * one && all < 4.8 * one, "{one} {all}");
    }

    #[test]
    fn no_token_is_lost() {
        // 3 tokens that take 2 of 8 experts: 6 experts with one row each
        let even = Load::of(3.0, 2.0, 8.0, 0.0);
        assert!((even.reached - 6.0).abs() < 1e-9 && (even.tiles[0] - 6.0).abs() < 1e-9);
        // 1000 tokens that take 8 of 128: 62.5 rows each, in tiles of 64
        let many = Load::of(1000.0, 8.0, 128.0, 0.0);
        assert!((many.tiles[4] - 128.0).abs() < 1e-9);
        let skewed = Load::of(64.0, 8.0, 256.0, TRAINED);
        assert!(skewed.reached < 256.0 && skewed.reached > 64.0, "{skewed:?}");
    }

    #[test]
    fn scaling_keeps_products_below_the_peak() {
        let gpu = catalog::find("b200").unwrap();
        let layer = Experts { weight_bytes: 1.0, dtype: Dtype::Fp8, ..layer(8192.0) };
        let rate = 6.0 * 8192.0 * 2.0 * 4096.0 * 14_336.0 / scaled(&layer, &[], &gpu);
        // Published: 931 TFLOP/s of 4,500; constants where fits start.
        assert!((0.6e15..1.2e15).contains(&rate), "{rate}");
    }

    #[test]
    fn an_untuned_shape_wastes_bandwidth() {
        let gpu = catalog::find("h100-sxm").unwrap();
        let (tuned, default) = (layer(80.0), Experts { tuned: false, ..layer(80.0) });
        assert!(grouped(&default, &[], &gpu) > 1.2 * grouped(&tuned, &[], &gpu));
    }
}
