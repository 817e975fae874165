//! Llama as in Hugging Face's `LlamaForCausalLM`: rotary positions, RMS norm operator by operator, SwiGLU, grouped heads
//! (Touvron et al. 2023, arXiv:2307.09288; Llama 3: arXiv:2407.21783). `llama-1b` has the sizes of Llama 3.2 1B with an
//! output layer of its own.

use super::super::OptimizerChoice;
use super::super::builder::{Builder, Built, Tensor};
use super::super::graph::{Graph, Unary};
use super::{Entry, ModelInfo, Sizes};

const fn info(name: &'static str, title: &'static str, batch: u64, parameters: u64) -> ModelInfo {
    ModelInfo {
        name,
        title,
        family: "transformer",
        input: "sequence of tokens",
        default_batch: batch,
        default_seq: Some(2048),
        max_seq: None,
        parameters,
        optimizer: OptimizerChoice::Adam,
    }
}

pub(super) const MODELS: &[Entry] = &[
    Entry { info: info("llama-1b", "Llama, 16 layers of 2048, untied", 2, 1_498_482_688), build },
    Entry { info: info("llama-2-7b", "Llama 2 7B", 1, 6_738_415_616), build },
    Entry { info: info("llama-3-8b", "Llama 3 8B", 1, 8_030_261_248), build },
];

/// Sizes of a decoder with rotary positions.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub width: u64,
    pub inner: u64,
    pub layers: usize,
    pub heads: u64,
    pub kv_heads: u64,
    pub head_dim: u64,
    pub vocabulary: u64,
    /// Biases of the query, key and value projections (Qwen 2).
    pub qkv_bias: bool,
    /// A norm of each query and key head (Qwen 3).
    pub qk_norm: bool,
    /// Is the output layer the embedding?
    pub tied: bool,
    /// Experts, and how many each token takes (Mixtral).
    pub experts: Option<(u64, u64)>,
}

impl Plan {
    pub(super) const LLAMA_2_7B: Self = Self {
        width: 4096,
        inner: 11_008,
        layers: 32,
        heads: 32,
        kv_heads: 32,
        head_dim: 128,
        vocabulary: 32_000,
        qkv_bias: false,
        qk_norm: false,
        tied: false,
        experts: None,
    };
}

fn build(s: Sizes<'_>) -> Built<Graph> {
    let big = Plan::LLAMA_2_7B;
    let plan = match s.name {
        "llama-2-7b" => big,
        "llama-3-8b" => Plan { inner: 14_336, kv_heads: 8, vocabulary: 128_256, ..big },
        _ => Plan {
            width: 2048,
            inner: 8192,
            layers: 16,
            kv_heads: 8,
            head_dim: 64,
            vocabulary: 128_256,
            ..big
        },
    };
    assemble(s, plan)
}

/// The model of these sizes.
pub(super) fn assemble(s: Sizes<'_>, plan: Plan) -> Built<Graph> {
    let Sizes { batch, seq, .. } = s;
    let mut b = Builder::staged(s.name, batch, s.stage);
    let tokens = b.tokens(&[batch, seq])?;
    b.count_module();
    let (x, embedding) = b.scope("model", |b| {
        let (mut x, embedding) = b.embedding("embed_tokens", tokens, plan.vocabulary, plan.width)?;
        let table = b.rotary_table(seq, plan.head_dim)?;
        for i in 0..plan.layers {
            x = b.module(&format!("layers.{i}"), x, |b, x| layer(b, x, table, plan))?;
        }
        let y = b.hf_rms_norm("norm", x)?;
        for t in table {
            b.hold(t);
        }
        Ok((y, embedding))
    })?;
    let x = b.wanted_positions(x)?;
    let logits = if plan.tied {
        b.count_module();
        b.linear_with("lm_head", x, embedding, None)?
    } else {
        b.linear("lm_head", x, plan.vocabulary, false)?
    };
    b.finish_language(logits)
}

fn heads(b: &mut Builder, name: &str, x: Tensor, n: u64, plan: Plan, norm: Option<&str>) -> Built {
    let [batch, seq] = [b.dim(x, 0), b.dim(x, 1)];
    let y = b.linear(name, x, n * plan.head_dim, plan.qkv_bias)?;
    let mut y = b.view(y, &[batch, seq, n, plan.head_dim])?;
    if let Some(norm) = norm.filter(|_| plan.qk_norm) {
        y = b.hf_rms_norm(norm, y)?;
    }
    b.transpose(y, 1, 2)
}

fn layer(b: &mut Builder, x: Tensor, table: [Tensor; 2], plan: Plan) -> Built {
    let shape = b.shape(x);
    let y = b.hf_rms_norm("input_layernorm", x)?;
    let y = b.module("self_attn", y, |b, y| {
        let q = heads(b, "q_proj", y, plan.heads, plan, Some("q_norm"))?;
        let k = heads(b, "k_proj", y, plan.kv_heads, plan, Some("k_norm"))?;
        let v = heads(b, "v_proj", y, plan.kv_heads, plan, None)?;
        let q = b.rotary(q, table)?;
        let k = b.rotary(k, table)?;
        // Both caches have the format of the keys, which the fp32 table promotes under autocast.
        let [k, v] = b.cache(k, v)?;
        let a = b.attend_cache(q, k, v, false)?;
        let a = b.transpose(a, 1, 2)?;
        let a = b.contiguous(a)?;
        let a = b.view(a, &shape.with(2, plan.heads * plan.head_dim))?;
        b.linear("o_proj", a, plan.width, false)
    })?;
    let x = b.add(x, y)?;
    let y = b.hf_rms_norm("post_attention_layernorm", x)?;
    let y = match plan.experts {
        Some((experts, taken)) => {
            b.module("block_sparse_moe", y, |b, y| mixture(b, y, plan, experts, taken))?
        }
        None => b.module("mlp", y, |b, y| gated(b, y, plan))?,
    };
    b.add(x, y)
}

/// `down(silu(gate(y)) * up(y))`.
fn gated(b: &mut Builder, y: Tensor, plan: Plan) -> Built {
    let gate = b.linear("gate_proj", y, plan.inner, false)?;
    let gate = b.activation("act_fn", gate, Unary::Silu, false)?;
    let up = b.linear("up_proj", y, plan.inner, false)?;
    let joined = b.mul(gate, up)?;
    b.linear("down_proj", joined, plan.width, false)
}

/// A mixture of experts (Jiang et al. 2024, arXiv:2401.04088): the router's softmax, then every expert on its share of
/// the tokens, taken as equal shares; picking and putting back are copies of whole rows.
fn mixture(b: &mut Builder, y: Tensor, plan: Plan, experts: u64, taken: u64) -> Built {
    let shape = b.shape(y);
    let tokens = shape[0].saturating_mul(shape[1]);
    let flat = b.view(y, &[tokens, plan.width])?;
    let scores = b.linear("gate", flat, experts, false)?;
    let weights = b.softmax(scores)?;
    let work = tokens.saturating_mul(taken);
    let rows = work.div_ceil(experts).min(tokens);
    let busy = work.div_ceil(rows).min(experts);
    let mut parts = Vec::new();
    for e in 0..experts {
        let part = b.scope(&format!("experts.{e}"), |b| {
            if e >= busy {
                for (name, out, input) in [
                    ("gate_proj.weight", plan.inner, plan.width),
                    ("up_proj.weight", plan.inner, plan.width),
                    ("down_proj.weight", plan.width, plan.inner),
                ] {
                    b.parameter(name, &[out, input]);
                }
                return Ok(None);
            }
            let last = work.saturating_sub(e * rows).min(rows);
            let picked = b.slice(flat, 0, last)?;
            let picked = b.reorder("pick", picked, &[last, plan.width])?;
            b.count_module();
            let out = gated(b, picked, plan)?;
            Ok(Some(b.unary(out, Unary::MulScalar)?))
        })?;
        parts.extend(part);
    }
    b.hold(weights);
    let joined = b.cat(&parts, 0)?;
    let joined = b.view(joined, &[taken, tokens, plan.width])?;
    let sum = b.sum(joined, &[0], false)?;
    b.view(sum, &shape)
}
