//! Steps of a decoder on a server.
//!
//! A layer is four products (queries, keys and values joined; output; gate and up joined; down) or a layer of experts, attention, and three fused kernels (norm with
//! residual twice, the gate's function). Decode steps are replayed. No whole step of a server was measured for this project: the interval is wide.

use super::UNSEEN;
use super::attention::{Prompt, Token};
use super::constants::Constants;
use super::experts::{Experts, Load, TRAINED};
use super::formats::{Formats, WeightFormat};
use super::forms::Shape;
use super::products::Product;
use super::tuned::tuned;
use crate::generate::{Stack, StepCost};
use preflop_core::dtype::Dtype;
use preflop_core::gpu::Gpu;
use preflop_core::model::ModelError;
use preflop_core::model::zoo::decoder::Plan;
use preflop_core::ops::{Gemm, Op, OpCall};
use preflop_core::time::TimeModel;
use preflop_core::units::{Bytes, Seconds};
use std::ops::{Add, Mul};

/// A server with one GPU.
#[derive(Debug)]
pub struct Served<'a> {
    /// The model.
    pub plan: Plan,
    /// Its parameters.
    pub parameters: u64,
    /// Formats.
    pub formats: Formats,
    /// Constants of its kernels.
    pub constants: &'a Constants,
    /// Times of products and fused kernels.
    pub model: &'a TimeModel,
    /// The GPU.
    pub gpu: &'a Gpu,
}

/// Seconds between two kernels of a replayed step, as in decode steps of an H200 (`schedule`).
const GAP: f64 = 0.75e-6;
/// Share of the DRAM rate that a fused elementwise kernel reaches, and the least seconds it takes.
const FUSED_SHARE: f64 = 0.87;
const FUSED_LEAST: f64 = 2e-6;
/// Seconds of choosing the next token from the logits, beside reading them.
const SAMPLING: f64 = 20e-6;
/// Whole steps lie between these shares of the prediction: attention and experts with their GPU left out are off by a tenth to a fifth, and no
/// step was measured. What was measured in no such format or on no such generation has [`UNSEEN`] instead.
const SPREAD: [f64; 2] = [0.65, 1.5];
/// Tokens that a server reads at once at most, for its activations.
const READ_AT_ONCE: u64 = 8192;

/// Seconds of kernels that were measured, and of kernels that follow from bytes or from other generations.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    seen: f64,
    unseen: f64,
}

impl Spent {
    fn of(seconds: f64, seen: bool) -> Self {
        if seen { Self::seen(seconds) } else { Self { unseen: seconds, seen: 0.0 } }
    }

    fn seen(seconds: f64) -> Self {
        Self { seen: seconds, unseen: 0.0 }
    }

    /// The time between the low (0) or the high (1) shares.
    fn bound(self, side: usize) -> f64 {
        self.seen * SPREAD[side] + self.unseen * UNSEEN[side]
    }
}

impl Add for Spent {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { seen: self.seen + other.seen, unseen: self.unseen + other.unseen }
    }
}

impl Mul<f64> for Spent {
    type Output = Self;

    fn mul(self, times: f64) -> Self {
        Self { seen: self.seen * times, unseen: self.unseen * times }
    }
}

impl Served<'_> {
    /// Keys and values that one token keeps, in bytes. Latent attention keeps its narrow vectors.
    pub fn cache_bytes_per_token(&self) -> f64 {
        let p = &self.plan;
        let numbers = match p.latent {
            Some(l) => l.keys + l.rotary,
            None => 2 * p.kv_heads * p.head_dim,
        };
        (numbers * p.layers as u64) as f64 * self.kv_bytes()
    }

    /// Bytes of a number of the cache.
    fn kv_bytes(&self) -> f64 {
        let p = &self.plan;
        self.formats.kv.bytes(p.latent.map_or(p.head_dim, |l| l.keys + l.rotary) as f64)
    }

    fn weight_bytes(&self) -> f64 {
        let p = &self.plan;
        let tables = p.vocabulary as f64 * p.width as f64 * if p.tied { 1.0 } else { 2.0 };
        2.0 * tables + (self.parameters as f64 - tables).max(0.0) * self.formats.weights.bytes()
    }

    fn product(&self, m: f64, n: u64, k: u64, format: WeightFormat) -> Spent {
        let half = self.gpu.autocast();
        let m = m.max(1.0);
        let wide = || {
            let call = OpCall::fwd(Op::Gemm(Gemm::linear(m as u64, n, k, false)), half);
            self.model.predict(&call, self.gpu).time.0
        };
        if format == WeightFormat::Bf16 {
            return Spent::seen(wide());
        }
        if let Some(operands) = format.operands(self.gpu) {
            // With the kernel that quantises its activations.
            let shape = Shape::Product(Product { m, n: n as f64, k: k as f64, operands, sets: None });
            let seconds = self.constants.seconds(operands.kind(), &shape, self.gpu);
            let same = format != WeightFormat::Mxfp4;
            return Spent::of(seconds, same && self.constants.measured(operands.kind(), self.gpu));
        }
        // The wide product less what its weights save at the DRAM's rate, no faster than its arithmetic.
        let weights = n as f64 * k as f64;
        let saved = weights * (2.0 - format.bytes()) / self.gpu.dram_sustained.0;
        let least = 2.0 * m * weights / self.gpu.sustained_peak(half).0;
        let read = weights * format.bytes() / self.gpu.dram_sustained.0;
        let wide = wide();
        Spent::of((wide - saved).max(least).max(read + self.gpu.kernel_floor.0).min(wide), false)
    }

    fn fused(&self, bytes: f64) -> Spent {
        Spent::seen((bytes / (FUSED_SHARE * self.gpu.dram_sustained.0) + 0.5 * FUSED_LEAST).max(FUSED_LEAST))
    }

    /// Layers without their attention, over `rows` tokens, and the number of kernels.
    fn layers(&self, rows: f64) -> (Spent, f64) {
        let p = &self.plan;
        let format = self.formats.weights;
        let product = |n, k| self.product(rows, n, k, format);
        let (q, kv) = (p.heads * p.head_dim, 2 * p.kv_heads * p.head_dim);
        let projections = match p.latent {
            None => product(q + kv, p.width) + product(p.width, q),
            Some(l) => {
                let key = l.plain + l.rotary;
                let queries = match l.queries {
                    Some(rank) => product(rank, p.width) + product(p.heads * key, rank),
                    None => product(p.heads * key, p.width),
                };
                queries
                    + product(l.keys + l.rotary, p.width)
                    + product(p.heads * (l.plain + l.value), l.keys)
                    + product(p.width, p.heads * l.value)
            }
        };
        let dense = |inner: u64| {
            let wide = if p.gated { 2 * inner } else { inner };
            product(wide, p.width) + product(p.width, inner) + self.fused(2.0 * rows * (wide + inner) as f64)
        };
        let norms = self.fused(8.0 * rows * p.width as f64) * 2.0;
        let turned = self.fused(4.0 * rows * (q + kv) as f64);
        let routed = p.experts.map_or(0, |e| (0..p.layers as u64).filter(|l| e.has(*l)).count());
        let plain = p.layers - routed;
        let mut spent = (projections + norms + turned) * p.layers as f64;
        if plain > 0 {
            spent = spent + dense(p.experts.map_or(p.inner, |e| e.dense_inner)) * plain as f64;
        }
        if let Some(e) = p.experts.filter(|_| routed > 0) {
            let shared = if e.shared > 0 { dense(e.shared) } else { Spent::default() };
            let router = self.product(rows, e.count, p.width, WeightFormat::Bf16);
            let experts = self.experts(rows, e.inner, e.taken, e.count);
            spent = spent + (router + shared + experts) * routed as f64;
        }
        let kernels = if p.experts.is_some() { 12.0 } else { 9.0 };
        (spent, kernels * p.layers as f64)
    }

    fn experts(&self, tokens: f64, inner: u64, taken: u64, count: u64) -> Spent {
        let format = self.formats.weights;
        let a = Experts {
            tokens,
            width: self.plan.width as f64,
            inner: inner as f64,
            taken: taken as f64,
            count: count as f64,
            weight_bytes: format.bytes(),
            dtype: match format.math(self.gpu) {
                Dtype::Bf16 => self.gpu.autocast(),
                other => other,
            },
            load: Load::of(tokens, taken as f64, count as f64, TRAINED),
            tuned: tuned(self.gpu.architecture, count as f64, inner as f64),
            warm: false,
        };
        // Only 4-bit integers of the widened formats, and one kind of 4-bit floats, were published with enough rows.
        let kind = match format {
            WeightFormat::Bf16 => "experts.bf16",
            WeightFormat::Fp8 | WeightFormat::Fp8Block => "experts.fp8",
            other if other.widened(self.gpu) => "experts.int4",
            _ => "experts.nvfp4",
        };
        let same = !matches!(format, WeightFormat::Int8 | WeightFormat::Mxfp4);
        let seconds = self.constants.seconds(kind, &Shape::Experts(a), self.gpu);
        Spent::of(seconds, same && self.constants.measured(kind, self.gpu))
    }

    /// The output layer for so many tokens, and the choice of the next.
    fn last(&self, rows: f64) -> Spent {
        let p = &self.plan;
        self.product(rows, p.vocabulary, p.width, WeightFormat::Bf16)
            + self.fused(6.0 * rows * p.vocabulary as f64)
            + Spent::seen(SAMPLING)
    }

    /// Heads and sizes that attention sees: latent attention looks at its narrow vectors as one key head.
    fn heads(&self) -> (f64, f64, f64) {
        let p = &self.plan;
        match p.latent {
            Some(l) => (p.heads as f64, 1.0, 0.5 * (2 * l.keys + l.rotary) as f64),
            None => (p.heads as f64, p.kv_heads as f64, p.head_dim as f64),
        }
    }

    /// All layers' attention.
    fn attention(&self, kind: &str, shape: Shape) -> Spent {
        let seen = self.formats.kv.measured() && self.constants.measured(kind, self.gpu);
        Spent::of(self.constants.seconds(kind, &shape, self.gpu), seen) * self.plan.layers as f64
    }

    fn cost(&self, spent: Spent, cached: f64, rows: f64) -> StepCost {
        let p = &self.plan;
        let wide = p.experts.map_or(p.inner, |e| e.inner * e.taken + e.shared);
        let active = 2.0 * rows.min(READ_AT_ONCE as f64) * (3 * wide + 6 * p.width) as f64;
        let cache = Bytes(cached * self.cache_bytes_per_token());
        StepCost {
            time: Seconds(spent.seen + spent.unseen),
            low: Seconds(spent.bound(0)),
            high: Seconds(spent.bound(1)),
            peak: Bytes(self.weight_bytes() + active) + cache,
            cache,
        }
    }
}

impl Stack for Served<'_> {
    fn prefill(&self, batch: u64, prompt: u64) -> Result<StepCost, ModelError> {
        let rows = batch as f64 * prompt as f64;
        let (layers, kernels) = self.layers(rows);
        let p = &self.plan;
        let a = Prompt {
            batch: batch as f64,
            tokens: prompt as f64,
            heads: p.heads as f64,
            kv_heads: if p.latent.is_some() { p.heads as f64 } else { p.kv_heads as f64 },
            head_dim: p.latent.map_or(p.head_dim, |l| l.plain + l.rotary) as f64,
            // With a cache in fp8 the scores are computed in it.
            dtype: self.formats.kv.math(self.gpu),
        };
        let attention = self.attention("prompt", Shape::Prompt(a));
        let gaps = Spent::seen(GAP * kernels);
        Ok(self.cost(layers + attention + self.last(batch as f64) + gaps, rows, rows))
    }

    fn decode(&self, batch: u64, context: u64) -> Result<StepCost, ModelError> {
        let rows = batch as f64;
        let (layers, kernels) = self.layers(rows);
        let (heads, kv_heads, head_dim) = self.heads();
        let context = context as f64 + 1.0;
        let (kv_bytes, dtype) = (self.kv_bytes(), self.formats.kv.math(self.gpu));
        let a = Token { batch: rows, context, heads, kv_heads, head_dim, kv_bytes, dtype, warm: false };
        let attention = self.attention("token", Shape::Token(a));
        let gaps = Spent::seen(GAP * kernels);
        Ok(self.cost(layers + attention + self.last(rows) + gaps, rows * context, rows))
    }
}

#[cfg(test)]
mod tests {
    use super::super::formats::KvFormat;
    use super::*;
    use preflop_core::gpu::catalog;
    use preflop_core::model::zoo;

    fn cost(gpu: &str, weights: WeightFormat, kv: KvFormat, batch: u64) -> StepCost {
        let gpu = catalog::find(gpu).unwrap();
        let (model, constants) = (TimeModel::embedded(), Constants::embedded());
        let served = Served {
            plan: zoo::plan("llama-3-8b").unwrap(),
            parameters: zoo::info("llama-3-8b").unwrap().parameters,
            formats: Formats { weights, kv },
            constants: &constants,
            model: &model,
            gpu: &gpu,
        };
        served.decode(batch, 1024).unwrap()
    }

    fn step(gpu: &str, weights: WeightFormat, batch: u64) -> (f64, f64) {
        let cost = cost(gpu, weights, KvFormat::Bf16, batch);
        (cost.time.ms(), cost.peak.mib())
    }

    #[test]
    fn smaller_weights_are_read_faster() {
        let (bf16, large) = step("h200", WeightFormat::Bf16, 1);
        // 15 GB of weights at 4.8 TB/s at the most, and some milliseconds at the least
        assert!(bf16 > 3.1 && bf16 < 8.0, "{bf16}");
        let (fp8, _) = step("h200", WeightFormat::Fp8, 1);
        let (int4, small) = step("h200", WeightFormat::Int4, 1);
        assert!(fp8 < bf16 && int4 < bf16, "{bf16} {fp8} {int4}");
        assert!(small < 0.5 * large);
        let (mxfp4, _) = step("h200", WeightFormat::Mxfp4, 1);
        assert!((mxfp4 / int4 - 1.0).abs() < 0.05, "{mxfp4} {int4}");
    }

    #[test]
    fn blocks_of_scales_cost_more_than_rows_on_blackwell() {
        let (rows, _) = step("b200", WeightFormat::Fp8, 8);
        let (blocks, _) = step("b200", WeightFormat::Fp8Block, 8);
        // Published products of one token: 8 us and 14 to 30 us
        assert!(blocks > 1.2 * rows, "{rows} {blocks}");
        let (nvfp4, _) = step("b200", WeightFormat::Nvfp4, 8);
        assert!(nvfp4 < blocks, "{nvfp4} {blocks}");
    }

    #[test]
    fn a_cache_that_nobody_measured_has_its_bytes_and_a_wide_interval() {
        let of = |kv| cost("b200", WeightFormat::Bf16, kv, 64);
        let (bf16, int8, fp4) = (of(KvFormat::Bf16), of(KvFormat::Int8), of(KvFormat::Fp4));
        // 132 bytes in place of 256 for a head's vector of 128; 72
        assert!((int8.cache.0 / bf16.cache.0 - 132.0 / 256.0).abs() < 1e-9);
        assert!((fp4.cache.0 / bf16.cache.0 - 72.0 / 256.0).abs() < 1e-9);
        assert!(fp4.time <= int8.time && int8.time <= bf16.time, "{fp4:?} {int8:?} {bf16:?}");
        let wide = |c: StepCost| c.high.0 / c.low.0;
        assert!(wide(int8) > wide(bf16) && wide(fp4) > wide(bf16));
    }
}
