//! Closed forms of a server's kernels. Times are seconds; every constant is a share of a datasheet or measured figure, or a time.
//!
//! ```text
//! bytes  = B * (miss / (mb * DRAM) + (1 - miss) / (hot * L2)),  miss = clamp(B / (keep * L2 size) - 1, 0, 1)
//! prompt = start + (compute^2 + bytes^2)^(1/2)
//! token  = start + (bytes^2 + latency^2)^(1/2) + merge * (1 - 1/parts)
//! expert = start + (compute^2 + bytes^2)^(1/2)
//! ```
//!
//! Fitted on the attention and expert layers of ai-dynamo/aiconfigurator (Apache-2.0; SGLang 0.5.10). `preflop-fit served` prints how far they are off, first with the whole
//! GPU left out.

use preflop_core::Gpu;
use preflop_core::dtype::Dtype;
use preflop_core::learned::trees::{Features, MAX_FEATURES};
use preflop_core::units::math::Elementary as _;

/// Attention of whole prompts over themselves, causal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prompt {
    /// Sequences.
    pub batch: f64,
    /// New tokens of each.
    pub tokens: f64,
    /// Query heads.
    pub heads: f64,
    /// Key and value heads.
    pub kv_heads: f64,
    /// Size of a head.
    pub head_dim: f64,
    /// Format in which scores are computed.
    pub dtype: Dtype,
}

/// Attention of one new token of each sequence over its keys and values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Token {
    /// Sequences.
    pub batch: f64,
    /// Keys of each.
    pub context: f64,
    /// Query heads.
    pub heads: f64,
    /// Key and value heads.
    pub kv_heads: f64,
    /// Size of a head.
    pub head_dim: f64,
    /// Bytes of one number of the cache.
    pub kv_bytes: f64,
}

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
    /// Are all experts taken equally often? Else as a power law says, whose exponent is near 1.
    pub balanced: bool,
}

/// A kernel of a server, with its sizes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shape {
    /// Attention over prompts.
    Prompt(Prompt),
    /// Attention of new tokens.
    Token(Token),
    /// A layer of experts.
    Experts(Experts),
}

impl Shape {
    /// Seconds by the closed form alone.
    pub fn form(&self, constants: &[f64], gpu: &Gpu) -> f64 {
        match self {
            Self::Prompt(a) => prompt(a, constants, gpu),
            Self::Token(a) => token(a, constants, gpu),
            Self::Experts(a) => experts(a, constants, gpu),
        }
    }

    /// What trees see of it: sizes alone, so that a better GPU keeps its correction and is not slower.
    pub fn features(&self) -> Features {
        let mut x: Features = [0.0; MAX_FEATURES];
        let mut put = |values: &[f64]| {
            for (slot, value) in x.iter_mut().zip(values) {
                *slot = *value as f32;
            }
        };
        let log = |v: f64| v.max(1e-3).binary_log();
        match self {
            Self::Prompt(a) => put(&[
                log(a.batch),
                log(a.tokens),
                log(a.heads),
                log(a.kv_heads),
                log(a.heads / a.kv_heads),
                log(a.head_dim),
                log(a.batch * a.heads),
                log(a.batch * a.kv_heads),
                log(a.batch * a.tokens),
                log(a.batch * a.heads * (a.tokens / TILE).ceil()),
                log(a.batch * a.heads * a.tokens * a.tokens * a.head_dim),
                log(a.batch * a.tokens * a.head_dim * (2.0 * a.heads + 6.0 * a.kv_heads)),
            ]),
            Self::Token(a) => put(&[
                log(a.batch),
                log(a.context),
                log(a.heads),
                log(a.kv_heads),
                log(a.heads / a.kv_heads),
                log(a.head_dim),
                a.kv_bytes,
                log(a.batch * a.heads),
                log(a.batch * a.kv_heads),
                log(a.batch * a.context),
                log(a.batch * a.kv_heads * a.context * a.head_dim),
                log(a.batch * a.kv_heads * (a.context / KEYS).ceil()),
            ]),
            Self::Experts(a) => {
                let rows = a.tokens * a.taken;
                put(&[
                    log(a.tokens),
                    log(a.width),
                    log(a.inner),
                    log(a.taken),
                    log(a.count),
                    log(rows),
                    log(rows / a.count),
                    f64::from(u8::from(a.balanced)),
                    log(a.width * a.inner),
                    log(a.count.min(rows) * a.width * a.inner),
                    log(rows * a.width * a.inner),
                    a.inner % TILE,
                ]);
            }
        }
        x
    }
}

/// How many features a shape has.
pub const FEATURES: usize = 12;

/// Names of the constants of [`prompt`].
pub const PROMPT_NAMES: [&str; 9] =
    ["start_us", "start_cycles", "mb", "hot", "keep", "eff", "soft", "longest", "cta_cycles"];
/// Where fits of [`prompt`] start.
pub const PROMPT_START: [f64; 9] = [5.0, 12_000.0, 0.85, 0.45, 0.85, 0.76, 25.0, 0.6, 500.0];
/// Names of the constants of [`token`].
pub const TOKEN_NAMES: [&str; 9] =
    ["start_us", "mb", "hot", "keep", "step_cycles", "merge_cycles", "cta_cycles", "occupancy", "packing"];
/// Where fits of [`token`] start.
pub const TOKEN_START: [f64; 9] = [8.5, 1.0, 0.4, 0.5, 400.0, 10_000.0, 2000.0, 0.6, 0.08];
/// Names of the constants of [`experts`].
pub const EXPERT_NAMES: [&str; 7] = ["start_us", "start_cycles", "mb", "eff", "small", "quant", "spread"];
/// Where fits of [`experts`] start.
pub const EXPERT_START: [f64; 7] = [30.0, 30_000.0, 1.1, 0.4, 0.1, 0.2, 0.7];

/// Seconds for bytes that the L2 may hold.
fn streamed(bytes: f64, mb: f64, hot: f64, keep: f64, gpu: &Gpu) -> f64 {
    let miss = (bytes / (keep * gpu.l2_size.0) - 1.0).clamp(0.0, 1.0);
    bytes * (miss / (mb * gpu.dram_sustained.0) + (1.0 - miss) / (hot * gpu.l2.0))
}

/// Rows of a tile of queries and of keys.
const TILE: f64 = 128.0;

/// Seconds of attention over prompts.
pub fn prompt(a: &Prompt, c: &[f64], gpu: &Gpu) -> f64 {
    let &[start, cycles, mb, hot, keep, eff, soft, longest, cta] = c else {
        return prompt(a, &PROMPT_START, gpu);
    };
    let (sm, clock) = (f64::from(gpu.sm_count), gpu.boost_clock.0);
    let rows = (a.tokens / TILE).ceil().max(1.0);
    // A short prompt fills part of a tile.
    let part = ((a.tokens / 16.0).ceil() * 16.0 / TILE).min(1.0);
    let keys = if a.tokens < TILE { (a.tokens / 64.0).ceil() * 64.0 / TILE } else { 1.0 };
    let tile = 4.0 * TILE * TILE * (a.head_dim + soft) * part * keys / (eff * gpu.peak(a.dtype).0 / sm);
    let heads = a.batch * a.heads;
    let waves = heads * rows / sm;
    let work = heads * rows * (rows + 1.0) / 2.0 * tile / sm;
    // The last row of tiles is the longest; few of them are split along the keys.
    let split = (0.15 / waves).clamp(1.0, 8.0);
    let tail = longest * rows * tile;
    let compute = (work + 0.7 * tail * waves.min(1.0)).max(tail / split) + cta / clock * waves.ceil();
    // Queries, results, and keys and values that are stored first and read then.
    let bytes = 2.0 * a.batch * a.tokens * a.head_dim * (2.0 * a.heads + 6.0 * a.kv_heads);
    start * 1e-6 + cycles / clock + compute.hypotenuse(streamed(bytes, mb, hot, keep, gpu))
}

/// Keys that one step of a decode kernel takes.
const KEYS: f64 = 64.0;

/// Seconds of attention of new tokens.
pub fn token(a: &Token, c: &[f64], gpu: &Gpu) -> f64 {
    let &[start, mb, hot, keep, step, merge, cta, occupancy, packing] = c else {
        return token(a, &TOKEN_START, gpu);
    };
    let (sm, clock) = (f64::from(gpu.sm_count), gpu.boost_clock.0);
    let group = (a.heads / a.kv_heads).max(1.0);
    // Kernels that do not pack a group into one tile work on its heads one by one.
    let ctas = a.batch * a.kv_heads * group.power(packing);
    let blocks = (a.context / KEYS).ceil().max(1.0);
    let room = (occupancy * sm).max(1.0);
    let parts = (room / ctas).max(1.0).min((0.4 * blocks).max(1.0));
    let waves = (ctas * parts / room).max(1.0);
    let kept = 2.0 * a.kv_bytes * a.batch * a.kv_heads * a.context * a.head_dim;
    let bytes = kept * group.power(0.3 * packing) + 4.0 * a.batch * a.heads * a.head_dim;
    let latency = (step * blocks / parts + cta) * waves / clock;
    let memory = streamed(bytes, mb, hot, keep, gpu);
    start * 1e-6 + memory.hypotenuse(latency) + merge / clock * (1.0 - 1.0 / parts)
}

/// Seconds of a layer of experts.
pub fn experts(a: &Experts, c: &[f64], gpu: &Gpu) -> f64 {
    let &[start, cycles, mb, eff, small, quant, spread] = c else {
        return experts(a, &EXPERT_START, gpu);
    };
    let (sm, clock) = (f64::from(gpu.sm_count), gpu.boost_clock.0);
    let rows = (a.tokens * a.taken).max(1.0);
    let each = rows / a.count;
    // Experts that any token takes: all there are, or as many as a skewed choice reaches.
    let reached =
        if a.balanced { a.count } else { a.count * (1.0 - (-spread * each.power(0.8)).exponential()) };
    let busy = reached.min(rows).max(1.0);
    let each = rows / busy;
    let tile = [16.0, 32.0, 64.0].into_iter().find(|t| each <= *t).unwrap_or(TILE);
    let tall = (each / tile).ceil() * busy;
    let flops = 6.0 * tall * tile * a.width * a.inner;
    let tiles = tall * ((2.0 * a.inner / TILE).ceil() + (a.width / TILE).ceil()) / 2.0;
    let waves = (tiles / sm).max(1e-3);
    let rounding = 1.0 + quant * (waves.ceil() - waves) / waves.max(1.0);
    let compute = flops / (eff * (tile / TILE).power(small) * gpu.peak(a.dtype).0) * rounding;
    let weights = busy * 3.0 * a.width * a.inner * a.weight_bytes;
    let bytes = weights + rows * (2.0 * a.width + 3.0 * a.inner) * 2.0 + 4.0 * a.tokens * a.width;
    start * 1e-6 + cycles / clock + compute.hypotenuse(bytes / (mb * gpu.dram_sustained.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_core::gpu::catalog;

    impl Token {
        /// 2.1 GB of keys and values.
        pub(in super::super) const LONG: Self =
            Self { batch: 64.0, context: 8192.0, heads: 32.0, kv_heads: 8.0, head_dim: 128.0, kv_bytes: 2.0 };
    }

    #[test]
    fn long_prompts_run_at_a_share_of_the_peak() {
        let gpu = catalog::find("h100-sxm").unwrap();
        let a = Prompt {
            batch: 8.0,
            tokens: 16_384.0,
            heads: 32.0,
            kv_heads: 8.0,
            head_dim: 128.0,
            dtype: Dtype::Bf16,
        };
        // Half of 4 * b * h * s^2 * d
        let flops = 2.0 * 8.0 * 32.0 * 16_384.0_f64.powi(2) * 128.0;
        let share = flops / prompt(&a, &PROMPT_START, &gpu) / gpu.peak(Dtype::Bf16).0;
        assert!((0.5..0.76).contains(&share), "{share}");
    }

    #[test]
    fn long_contexts_run_at_the_bandwidth() {
        let gpu = catalog::find("h100-sxm").unwrap();
        let a = Token::LONG;
        // 64 * 8 * 8192 * 128 * 2 * 2 bytes at 2.97 TB/s
        let least = 64.0 * 8.0 * 8192.0 * 128.0 * 4.0 / gpu.dram_sustained.0;
        let time = token(&a, &TOKEN_START, &gpu);
        assert!(time >= 0.95 * least && time < 1.4 * least, "{time} {least}");
        // Half as many bytes take about half as long.
        let fp8 = token(&Token { kv_bytes: 1.0, ..a }, &TOKEN_START, &gpu);
        assert!(fp8 < 0.75 * time);
    }

    #[test]
    fn few_tokens_read_the_experts_that_they_take() {
        let gpu = catalog::find("h100-sxm").unwrap();
        let a = Experts {
            tokens: 1.0,
            width: 4096.0,
            inner: 14_336.0,
            taken: 2.0,
            count: 8.0,
            weight_bytes: 2.0,
            dtype: Dtype::Bf16,
            balanced: true,
        };
        let one = experts(&a, &EXPERT_START, &gpu);
        let all = experts(&Experts { tokens: 64.0, ..a }, &EXPERT_START, &gpu);
        assert!(all > 2.5 * one && all < 4.5 * one, "{one} {all}");
    }
}
