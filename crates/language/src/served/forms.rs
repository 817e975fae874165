//! Closed forms of a server's kernels. Times are seconds; every constant is a share of a datasheet or measured figure, a number of cycles, or a time. The constants are the same
//! for all GPUs: what differs is how kernels are laid out ([`super::attention`], [`super::experts`], [`super::products`], [`super::blocked`]) and the GPU's figures.
//!
//! ```text
//! bytes = B * (miss / (mb * DRAM) + (1 - miss) / (hot * L2)),  miss = clamp(B / (L2 size * min(keep / parts of the L2, 1)) - 1, 0, 1), or 1 where nothing was kept
//! join  = (a^n + b^n)^(1/n)
//! ```
//!
//! Fitted on the attention, expert layers and products in fp8 and nvfp4 of ai-dynamo/aiconfigurator (Apache-2.0; SGLang 0.5.10). `preflop-fit served` prints how far they are off, first with the whole
//! GPU left out.

use super::attention::{self, PROMPT, Prompt, TOKEN, Token};
use super::blocked::{self, BLOCKED};
use super::experts::{self, Experts, GROUPED, SCALED, WIDENED};
use super::products::{self, Operands, PRODUCT, Product};
use preflop_core::Gpu;
use preflop_core::gpu::Architecture;
use preflop_core::learned::trees::{Features, MAX_FEATURES};
use preflop_core::units::math::Elementary as _;

/// A number that a fit may move.
#[derive(Debug, Clone, Copy)]
pub struct Constant {
    /// What it is, with its unit.
    pub name: &'static str,
    /// Where a fit starts, and what stands in without one.
    pub start: f64,
    /// How firmly a fit holds it there: what physics bounds is held more firmly than what only a measurement tells.
    pub held: f64,
}

impl Constant {
    pub(super) const fn new(name: &'static str, start: f64, held: f64) -> Self {
        Self { name, start, held }
    }

    /// Where a fit starts.
    pub fn starts(constants: &[Self]) -> Vec<f64> {
        constants.iter().map(|c| c.start).collect()
    }
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
    /// A product in 8-bit or 4-bit floats.
    Product(Product),
}

impl Shape {
    /// Seconds by the closed form alone.
    pub fn form(&self, constants: &[f64], gpu: &Gpu) -> f64 {
        match self {
            Self::Prompt(a) => attention::prompt(a, constants, gpu),
            Self::Token(a) => attention::token(a, constants, gpu),
            Self::Experts(a) if a.widened() => experts::widened(a, constants, gpu),
            Self::Experts(a) if a.scaled() => experts::scaled(a, constants, gpu),
            Self::Experts(a) => experts::grouped(a, constants, gpu),
            Self::Product(a) if a.operands == Operands::Fp8Blocks => blocked::product(a, constants, gpu),
            Self::Product(a) => products::product(a, constants, gpu),
        }
    }

    /// The constants of its form.
    pub fn constants(&self) -> &'static [Constant] {
        match self {
            Self::Prompt(_) => &PROMPT,
            Self::Token(_) => &TOKEN,
            Self::Experts(a) if a.widened() => &WIDENED,
            Self::Experts(a) if a.scaled() => &SCALED,
            Self::Experts(_) => &GROUPED,
            Self::Product(a) if a.operands == Operands::Fp8Blocks => &BLOCKED,
            Self::Product(_) => &PRODUCT,
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
                f64::from(u8::from(a.dtype == preflop_core::Dtype::Fp8)),
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
                    a.load.skew,
                    log(a.width * a.inner),
                    log(a.load.reached * a.width * a.inner),
                    log(rows * a.width * a.inner),
                    a.inner % TILE,
                ]);
            }
            Self::Product(a) => put(&[
                log(a.m),
                log(a.n),
                log(a.k),
                log(a.m * a.n),
                log(a.m * a.k),
                log(a.n * a.k),
                log(a.m * a.n * a.k),
                log((a.m / TILE).ceil() * (a.n / TILE).ceil()),
                a.m % TILE,
                a.n % TILE,
                a.m % KEYS,
                f64::from(u8::from(a.m <= TILE)),
            ]),
        }
        x
    }
}

/// How many features a shape has.
pub const FEATURES: usize = 12;
/// Rows of a tile, for features.
const TILE: f64 = 128.0;
/// Keys of half a tile, for features.
const KEYS: f64 = 64.0;

/// Is a Blackwell one of data centres (10.x), whose kernels are none of a desk's (12.x)?
pub(super) fn of_data_centres(gpu: &Gpu) -> bool {
    gpu.compute_capability.starts_with("10.")
}

/// Parts of an L2 that each keep their own copy of what their multiprocessors read.
pub(super) fn parts_of_l2(gpu: &Gpu) -> f64 {
    let two = match gpu.architecture {
        Architecture::Ampere => gpu.compute_capability == "8.0",
        Architecture::Hopper => true,
        Architecture::Blackwell => of_data_centres(gpu),
        _ => false,
    };
    if two { 2.0 } else { 1.0 }
}

/// Seconds for bytes that the L2 may hold: at the most all of it, less where its parts hold the same twice.
pub(super) fn streamed(bytes: f64, mb: f64, hot: f64, keep: f64, warm: bool, gpu: &Gpu) -> f64 {
    let held = gpu.l2_size.0 * (keep / parts_of_l2(gpu)).min(1.0);
    let miss = if warm { (bytes / held - 1.0).clamp(0.0, 1.0) } else { 1.0 };
    bytes * (miss / (mb * gpu.dram_sustained.0) + (1.0 - miss) / (hot * gpu.l2.0))
}

/// Two things that run at once: the longer, and some of the other. No overflow, whatever the exponent.
pub(super) fn join(a: f64, b: f64, norm: f64) -> f64 {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    if high <= 0.0 {
        return 0.0;
    }
    high * (1.0 + (low / high).max(0.0).power(norm)).power(1.0 / norm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_times_are_no_shorter_than_the_longer_and_no_longer_than_both() {
        for norm in [1.0, 2.0, 9.0] {
            let joined = join(3.0, 4.0, norm);
            assert!((4.0..=7.0 + 1e-12).contains(&joined), "{norm} {joined}");
        }
        // (3^2 + 4^2)^(1/2)
        assert!((join(3.0, 4.0, 2.0) - 5.0).abs() < 1e-12);
        assert!(join(0.0, 0.0, 2.0).abs() < 1e-12);
    }
}
