//! An iteration over tokens: how many a second, and how much of the GPU's arithmetic they use.
//!
//! ```text
//! tokens/s = samples * tokens of a sample / t
//! MFU      = F / (t * peak)
//! ```
//!
//! Where t is the iteration's time, peak the datasheet's dense rate of the number format in which most of F is done, and F the FLOPs of matrix products and of
//! attention: two for each multiplication, of a causal mask only what it leaves, forward and backward, nothing that is computed twice
//! (Chowdhery et al. 2022, arXiv:2204.02311, appendix B, counts the mask's other half too: its MFU is higher by that).

use preflop_core::Gpu;
use preflop_core::dtype::Dtype;
use preflop_core::model::{Graph, Iteration, Stage};
use preflop_core::ops::Op;
use preflop_core::time::IterationPrediction;
use serde::Serialize;

/// What one iteration says about tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, utoipa::ToSchema)]
pub struct Words {
    /// Tokens that one iteration reads (training, prefill) or writes (decode).
    pub tokens: u64,
    /// Tokens a second.
    pub tokens_per_s: f64,
    /// Model FLOPs utilisation, from 0 to 1.
    pub mfu: f64,
    /// FLOPs of products and attention in one iteration.
    pub model_flops: f64,
    /// Bytes of keys and values that one more token of one sequence keeps.
    pub cache_bytes_per_token: f64,
}

/// Tokens of one iteration, where the model has any.
pub fn tokens(graph: &Graph) -> Option<u64> {
    let each = match graph.stage {
        Stage::Decode { .. } => 1,
        _ => graph.seq?,
    };
    Some(graph.samples.saturating_mul(each))
}

/// FLOPs of products and attention, and the format in which most of them are done.
pub fn model_flops(iteration: &Iteration) -> (f64, Dtype) {
    let mut by_format: Vec<(Dtype, f64)> = Vec::new();
    for step in &iteration.steps {
        if !matches!(step.call.op, Op::Gemm(_) | Op::Attention(_)) {
            continue;
        }
        let flops = step.call.flops().0 * f64::from(step.count);
        match by_format.iter_mut().find(|(dtype, _)| *dtype == step.call.dtype) {
            Some((_, sum)) => *sum += flops,
            None => by_format.push((step.call.dtype, flops)),
        }
    }
    let all = by_format.iter().map(|(_, f)| f).sum();
    let most = by_format.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
    (all, most.map_or(Dtype::Bf16, |(dtype, _)| dtype))
}

impl Words {
    /// The words for an iteration of `graph`; `None` where it reads no tokens.
    pub fn of(
        graph: &Graph,
        iteration: &Iteration,
        prediction: &IterationPrediction,
        gpu: &Gpu,
    ) -> Option<Self> {
        let tokens = tokens(graph)?;
        let (flops, dtype) = model_flops(iteration);
        let seconds = prediction.time.0.max(f64::MIN_POSITIVE);
        let dtype = if dtype.is_half() { gpu.autocast() } else { dtype };
        Some(Self {
            tokens,
            tokens_per_s: tokens as f64 / seconds,
            mfu: flops / (seconds * gpu.peak(dtype).0),
            model_flops: flops,
            cache_bytes_per_token: cache_bytes_per_token(graph, iteration),
        })
    }
}

/// Bytes that one more token of one sequence keeps, by the cache that the iteration has; 0 without one.
fn cache_bytes_per_token(graph: &Graph, iteration: &Iteration) -> f64 {
    let places = match graph.stage {
        Stage::Full => return 0.0,
        Stage::Prefill => graph.seq.unwrap_or(1),
        Stage::Decode { context, .. } => context,
    };
    let held = graph.samples.saturating_mul(places).saturating_mul(graph.cache_elements_per_token);
    if held == 0 || iteration.memory.cache.0 <= 0.0 {
        return 0.0;
    }
    // Blocks are rounded up, so the width of an element is the nearest that there is.
    let width = (iteration.memory.cache.0 / held as f64).clamp(0.5, 4.0);
    let known = [0.5, 1.0, 2.0, 4.0];
    let width =
        known.into_iter().min_by(|a, b| (a - width).abs().total_cmp(&(b - width).abs())).unwrap_or(2.0);
    graph.cache_elements_per_token as f64 * width
}

/// Dollars of a million tokens at a price of an hour.
pub fn usd_per_million_tokens(usd_per_hour: f64, tokens_per_s: f64) -> f64 {
    usd_per_hour / 3600.0 / tokens_per_s * 1e6
}

/// Hours that so many tokens take.
pub fn hours_of(tokens: u64, tokens_per_s: f64) -> f64 {
    tokens as f64 / tokens_per_s / 3600.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_core::model::{CacheKind, LowerOptions, Mode, Precision, lower, zoo};

    fn options() -> LowerOptions {
        LowerOptions { mode: Mode::Infer, precision: Precision::Bf16, optimizer: None }
    }

    #[test]
    fn a_decoded_token_costs_two_flops_a_weight() {
        let stage = Stage::Decode { context: 512, cache: CacheKind::Static };
        let graph = zoo::build_stage("llama-3-8b", Some(4), None, stage).unwrap();
        let iteration = lower(&graph, &options()).unwrap();
        let (flops, dtype) = model_flops(&iteration);
        assert_eq!(dtype, Dtype::Bf16);
        // 8.03 G weights, of which 128256 * 4096 are looked up and 266,240 are of norms; 4 FLOPs for each of 32 layers' 4096 numbers of 520 keys.
        let weights = 8_030_261_248.0 - 128_256.0 * 4096.0 - 266_240.0;
        let expected = 4.0 * (2.0 * weights + 4.0 * 32.0 * 4096.0 * 520.0);
        assert!((flops / expected - 1.0).abs() < 1e-9, "{flops} {expected}");
        // 2 (keys, values) * 8 heads * 128 * 32 layers * 2 bytes
        assert!((cache_bytes_per_token(&graph, &iteration) - 131_072.0).abs() < 1e-9);
        assert_eq!(tokens(&graph), Some(4));
    }

    #[test]
    fn prices_of_tokens() {
        // 3.6 dollars an hour are 0.1 cents a second, which buys 1000 tokens.
        assert!((usd_per_million_tokens(3.6, 1000.0) - 1.0).abs() < 1e-12);
    }
}
