//! Steps of a decoder on a server.
//!
//! A layer is four products (queries, keys and values joined; output; gate and up joined; down) or a layer of experts, attention, and three fused kernels (norm with
//! residual twice, the gate's function). Decode steps are replayed. No whole step of a server was measured for this project: the interval is wide.

use super::attention::{Prompt, Token};
use super::constants::Constants;
use super::experts::{Experts, Load, TRAINED};
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

/// Format of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightFormat {
    /// 16 bits.
    Bf16,
    /// 8-bit floats, multiplied as such; activations are quantised row by row.
    Fp8,
    /// 8-bit integers, widened before they are multiplied.
    Int8,
    /// 4-bit integers with a scale for every 128, widened before they are multiplied.
    Int4,
    /// 4-bit floats with a scale for every 16, multiplied as such.
    Nvfp4,
    /// 4-bit floats with a scale for every 32: multiplied as such where the GPU can, widened before elsewhere.
    Mxfp4,
}

impl WeightFormat {
    /// All, in the order of the command line's help.
    pub const ALL: [Self; 6] = [Self::Bf16, Self::Fp8, Self::Int8, Self::Int4, Self::Nvfp4, Self::Mxfp4];

    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
            Self::Int8 => "int8",
            Self::Int4 => "int4",
            Self::Nvfp4 => "nvfp4",
            Self::Mxfp4 => "mxfp4",
        }
    }

    /// Bytes of one weight with its share of scales.
    pub fn bytes(self) -> f64 {
        match self {
            Self::Bf16 => 2.0,
            Self::Fp8 | Self::Int8 => 1.0,
            // 16 bits for every 128
            Self::Int4 => 0.5 + 2.0 / 128.0,
            // 8 bits for every 16
            Self::Nvfp4 => 0.5 + 1.0 / 16.0,
            // 8 bits for every 32
            Self::Mxfp4 => 0.5 + 1.0 / 32.0,
        }
    }

    /// Format in which products are done on a GPU.
    pub fn math(self, gpu: &Gpu) -> Dtype {
        match self {
            Self::Fp8 => Dtype::Fp8,
            Self::Nvfp4 => Dtype::Fp4,
            Self::Mxfp4 if gpu.has_tensor(Dtype::Fp4) => Dtype::Fp4,
            Self::Bf16 | Self::Int8 | Self::Int4 | Self::Mxfp4 => Dtype::Bf16,
        }
    }

    /// Are weights widened before a GPU multiplies them?
    pub fn widened(self, gpu: &Gpu) -> bool {
        self != Self::Bf16 && self.math(gpu) == Dtype::Bf16
    }

    /// What a GPU lacks for it.
    pub fn lacks(self, gpu: &Gpu) -> Option<String> {
        let math = self.math(gpu);
        let lacking = !(gpu.has_tensor(math) || math == Dtype::Bf16 && gpu.has(gpu.autocast()));
        lacking.then(|| {
            let known: Vec<&str> = Self::ALL
                .into_iter()
                .filter(|f| *f != self && f.lacks_nothing(gpu))
                .map(Self::name)
                .collect();
            format!(
                "`{}` does not multiply {}; it takes weights in {}",
                gpu.name,
                self.name(),
                known.join(", ")
            )
        })
    }

    fn lacks_nothing(self, gpu: &Gpu) -> bool {
        let math = self.math(gpu);
        gpu.has_tensor(math) || math == Dtype::Bf16
    }
}

/// Formats of weights and of keys and values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Formats {
    /// Of the layers' weights; embedding and output layer stay in 16 bits.
    pub weights: WeightFormat,
    /// Bytes of a number of the cache: 2, or 1 in fp8.
    pub kv_bytes: f64,
}

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
/// step was measured.
const SPREAD: [f64; 2] = [0.65, 1.5];
/// Tokens that a server reads at once at most, for its activations.
const READ_AT_ONCE: u64 = 8192;

impl Served<'_> {
    /// Keys and values that one token keeps, in bytes. Latent attention keeps its narrow vectors.
    pub fn cache_bytes_per_token(&self) -> f64 {
        let p = &self.plan;
        let numbers = match p.latent {
            Some(l) => l.keys + l.rotary,
            None => 2 * p.kv_heads * p.head_dim,
        };
        (numbers * p.layers as u64) as f64 * self.formats.kv_bytes
    }

    fn weight_bytes(&self) -> f64 {
        let p = &self.plan;
        let tables = p.vocabulary as f64 * p.width as f64 * if p.tied { 1.0 } else { 2.0 };
        2.0 * tables + (self.parameters as f64 - tables).max(0.0) * self.formats.weights.bytes()
    }

    fn product(&self, m: f64, n: u64, k: u64, format: WeightFormat) -> f64 {
        let gemm = |dtype| {
            let call = OpCall::fwd(Op::Gemm(Gemm::linear(m as u64, n, k, false)), dtype);
            self.model.predict(&call, self.gpu).time.0
        };
        let (m, weights) = (m.max(1.0), n as f64 * k as f64);
        let half = self.gpu.autocast();
        match format {
            WeightFormat::Bf16 => gemm(half),
            // With the kernel that quantises its activations.
            WeightFormat::Fp8 => {
                let shape = Shape::Product(Product {
                    m,
                    n: n as f64,
                    k: k as f64,
                    operands: super::products::Operands::Fp8,
                    sets: None,
                });
                self.constants.seconds("product.fp8", &shape, self.gpu)
            }
            format if !format.widened(self.gpu) => {
                gemm(Dtype::Fp4).min(gemm(Dtype::Fp8)) + self.fused(2.5 * m * k as f64)
            }
            format => {
                // The wide product less what its weights save at the DRAM's rate, no faster than its arithmetic.
                let saved = weights * (2.0 - format.bytes()) / self.gpu.dram_sustained.0;
                let least = 2.0 * m * weights / self.gpu.sustained_peak(half).0;
                let read = weights * format.bytes() / self.gpu.dram_sustained.0;
                let wide = gemm(half);
                (wide - saved).max(least).max(read + self.gpu.kernel_floor.0).min(wide)
            }
        }
    }

    fn fused(&self, bytes: f64) -> f64 {
        (bytes / (FUSED_SHARE * self.gpu.dram_sustained.0) + 0.5 * FUSED_LEAST).max(FUSED_LEAST)
    }

    /// Layers without their attention, over `rows` tokens, and the number of kernels.
    fn layers(&self, rows: f64) -> (f64, f64) {
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
        let norms = 2.0 * self.fused(8.0 * rows * p.width as f64);
        let turned = self.fused(4.0 * rows * (q + kv) as f64);
        let routed = p.experts.map_or(0, |e| (0..p.layers as u64).filter(|l| e.has(*l)).count());
        let plain = p.layers - routed;
        let mut seconds = p.layers as f64 * (projections + norms + turned);
        if plain > 0 {
            seconds += plain as f64 * dense(p.experts.map_or(p.inner, |e| e.dense_inner));
        }
        if let Some(e) = p.experts.filter(|_| routed > 0) {
            let shared = if e.shared > 0 { dense(e.shared) } else { 0.0 };
            let router = self.product(rows, e.count, p.width, WeightFormat::Bf16);
            seconds += routed as f64 * (router + shared + self.experts(rows, e.inner, e.taken, e.count));
        }
        let kernels = if p.experts.is_some() { 12.0 } else { 9.0 };
        (seconds, kernels * p.layers as f64)
    }

    fn experts(&self, tokens: f64, inner: u64, taken: u64, count: u64) -> f64 {
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
            WeightFormat::Fp8 => "experts.fp8",
            other if other.widened(self.gpu) => "experts.int4",
            _ => "experts.nvfp4",
        };
        self.constants.seconds(kind, &Shape::Experts(a), self.gpu)
    }

    /// The output layer for so many tokens, and the choice of the next.
    fn last(&self, rows: f64) -> f64 {
        let p = &self.plan;
        self.product(rows, p.vocabulary, p.width, WeightFormat::Bf16)
            + self.fused(6.0 * rows * p.vocabulary as f64)
            + SAMPLING
    }

    /// Heads and sizes that attention sees: latent attention looks at its narrow vectors as one key head.
    fn heads(&self) -> (f64, f64, f64) {
        let p = &self.plan;
        match p.latent {
            Some(l) => (p.heads as f64, 1.0, 0.5 * (2 * l.keys + l.rotary) as f64),
            None => (p.heads as f64, p.kv_heads as f64, p.head_dim as f64),
        }
    }

    fn cost(&self, seconds: f64, cached: f64, rows: f64) -> StepCost {
        let p = &self.plan;
        let wide = p.experts.map_or(p.inner, |e| e.inner * e.taken + e.shared);
        let active = 2.0 * rows.min(READ_AT_ONCE as f64) * (3 * wide + 6 * p.width) as f64;
        let cache = Bytes(cached * self.cache_bytes_per_token());
        StepCost {
            time: Seconds(seconds),
            low: Seconds(seconds * SPREAD[0]),
            high: Seconds(seconds * SPREAD[1]),
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
            dtype: if self.formats.kv_bytes < 2.0 && self.gpu.has_tensor(Dtype::Fp8) {
                Dtype::Fp8
            } else {
                self.gpu.autocast()
            },
        };
        let attention = self.constants.seconds("prompt", &Shape::Prompt(a), self.gpu) * p.layers as f64;
        Ok(self.cost(layers + attention + self.last(batch as f64) + GAP * kernels, rows, rows))
    }

    fn decode(&self, batch: u64, context: u64) -> Result<StepCost, ModelError> {
        let rows = batch as f64;
        let (layers, kernels) = self.layers(rows);
        let (heads, kv_heads, head_dim) = self.heads();
        let (context, kv_bytes) = (context as f64 + 1.0, self.formats.kv_bytes);
        let a = Token { batch: rows, context, heads, kv_heads, head_dim, kv_bytes, warm: false };
        let attention = self.constants.seconds("token", &Shape::Token(a), self.gpu) * self.plan.layers as f64;
        Ok(self.cost(layers + attention + self.last(rows) + GAP * kernels, rows * context, rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_core::gpu::catalog;
    use preflop_core::model::zoo;

    fn step(gpu: &str, weights: WeightFormat, batch: u64) -> (f64, f64) {
        let gpu = catalog::find(gpu).unwrap();
        let (model, constants) = (TimeModel::embedded(), Constants::embedded());
        let served = Served {
            plan: zoo::plan("llama-3-8b").unwrap(),
            parameters: zoo::info("llama-3-8b").unwrap().parameters,
            formats: Formats { weights, kv_bytes: 2.0 },
            constants: &constants,
            model: &model,
            gpu: &gpu,
        };
        let cost = served.decode(batch, 1024).unwrap();
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
    fn what_a_gpu_lacks_is_refused() {
        let lacks = |gpu: &str, f: WeightFormat| f.lacks(&catalog::find(gpu).unwrap());
        assert!(lacks("h200", WeightFormat::Nvfp4).unwrap().contains("fp8"));
        assert!(lacks("a100", WeightFormat::Fp8).is_some());
        assert!(lacks("b200", WeightFormat::Nvfp4).is_none());
        assert!(lacks("a100", WeightFormat::Int4).is_none());
        // Widened where they are not multiplied as such.
        let h200 = catalog::find("h200").unwrap();
        assert!(lacks("h200", WeightFormat::Mxfp4).is_none() && WeightFormat::Mxfp4.widened(&h200));
        assert!(!WeightFormat::Mxfp4.widened(&catalog::find("b200").unwrap()));
    }
}
