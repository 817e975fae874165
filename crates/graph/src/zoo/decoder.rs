//! Decoders of Hugging Face as one builder: what families differ in are fields of a [`Plan`]. `LlamaForCausalLM` with its rotary positions, RMS norms and
//! gated layers is the usual case.

use super::super::builder::{Builder, Built, Tensor};
use super::super::graph::{Graph, Unary};
use super::experts::{Experts, mixture};
use super::{Sizes, latent};

/// Norms of single heads, or of all heads of a token together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadNorm {
    /// None.
    None,
    /// Of each query and key head (Qwen 3, Gemma 3).
    Each,
    /// Of all of a token's query or key heads (OLMo 2).
    All,
}

/// Kind of norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Norm {
    /// Root mean square, operator by operator.
    Rms,
    /// `nn.LayerNorm`.
    Layer,
    /// Layer norm without bias (Cohere).
    LayerWithoutBias,
    /// Layer norm without weight or bias (OLMo).
    LayerWithoutWeight,
}

/// Where the norms of a layer stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Before attention and before the feed-forward layer.
    Before,
    /// Before and after both (Gemma 2 and 3).
    Around,
    /// After both (OLMo 2).
    After,
    /// Both read the same normed input (Phi, Cohere, Falcon 7B).
    Parallel,
    /// Both read the same input, each with a norm of its own (GPT-NeoX, Falcon 40B).
    ParallelOwn,
}

/// How positions enter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Positions {
    /// Queries and keys are turned.
    Rotary,
    /// A table of so many rows is added to the words.
    Table(u64),
    /// Slopes in the scores, or nothing.
    None,
}

/// What comes after the last layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// Logits over the vocabulary.
    Words,
    /// Labels of a sequence, by its last token.
    Labels(u64),
    /// Hidden states.
    States,
}

/// Latent attention (DeepSeek-V2, arXiv:2405.04434): queries, keys and values are made of narrow vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latent {
    /// Width of what queries are made of; `None` makes them directly.
    pub queries: Option<u64>,
    /// Width of what keys and values are made of.
    pub keys: u64,
    /// Part of a head that carries positions.
    pub rotary: u64,
    /// Part of a head that does not.
    pub plain: u64,
    /// Size of a value head.
    pub value: u64,
}

/// Sizes and kind of a decoder.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// Width of a token.
    pub width: u64,
    /// Width inside the feed-forward layer.
    pub inner: u64,
    /// Layers.
    pub layers: usize,
    /// Query heads.
    pub heads: u64,
    /// Key and value heads.
    pub kv_heads: u64,
    /// Size of a head.
    pub head_dim: u64,
    /// Words.
    pub vocabulary: u64,
    /// Biases of the query, key and value projections.
    pub qkv_bias: bool,
    /// Bias of attention's output.
    pub out_bias: bool,
    /// Biases of the feed-forward layer.
    pub inner_bias: bool,
    /// Bias of the output layer.
    pub head_bias: bool,
    /// Norms of heads.
    pub head_norm: HeadNorm,
    /// Is the output layer the embedding?
    pub tied: bool,
    /// Are the query, key and value projections one matrix?
    pub joined_qkv: bool,
    /// `down(act(gate(y)) * up(y))` instead of `down(act(up(y)))`?
    pub gated: bool,
    /// Are gate and up one matrix?
    pub joined_gate: bool,
    /// Function of the feed-forward layer.
    pub function: Unary,
    /// Is what the function gives squared (Nemotron, Arcee)?
    pub squared: bool,
    /// Kind of norm.
    pub norm: Norm,
    /// Where norms stand.
    pub placement: Placement,
    /// How positions enter.
    pub positions: Positions,
    /// A norm right after the embedding (BLOOM)?
    pub embedding_norm: bool,
    /// Is the embedding scaled (Gemma)?
    pub scaled: bool,
    /// A learned number for each head that takes part in the softmax (gpt-oss)?
    pub sinks: bool,
    /// Latent attention.
    pub latent: Option<Latent>,
    /// Mixture of experts.
    pub experts: Option<Experts>,
    /// What comes last.
    pub head: Head,
}

impl Plan {
    /// Llama 2 7B, and what is usual.
    pub const LLAMA_2_7B: Self = Self {
        width: 4096,
        inner: 11_008,
        layers: 32,
        heads: 32,
        kv_heads: 32,
        head_dim: 128,
        vocabulary: 32_000,
        qkv_bias: false,
        out_bias: false,
        inner_bias: false,
        head_bias: false,
        head_norm: HeadNorm::None,
        tied: false,
        joined_qkv: false,
        gated: true,
        joined_gate: false,
        function: Unary::Silu,
        squared: false,
        norm: Norm::Rms,
        placement: Placement::Before,
        positions: Positions::Rotary,
        embedding_norm: false,
        scaled: false,
        sinks: false,
        latent: None,
        experts: None,
        head: Head::Words,
    };
}

/// The model of these sizes.
pub(super) fn assemble(s: Sizes<'_>, plan: Plan) -> Built<Graph> {
    let Sizes { batch, seq, .. } = s;
    let mut b = Builder::staged(s.name, batch, s.stage);
    let tokens = b.tokens(&[batch, seq])?;
    b.count_module();
    let (x, embedding) = b.scope("model", |b| {
        let (mut x, embedding) = b.embedding("embed_tokens", tokens, plan.vocabulary, plan.width)?;
        if let Positions::Table(rows) = plan.positions {
            let places = b.arange(seq)?;
            let places = b.unary(places, Unary::AddScalar)?;
            let places = b.view(places, &[1, seq])?;
            let (places, _) = b.embedding("embed_positions", places, rows, plan.width)?;
            x = b.add(x, places)?;
        }
        if plan.embedding_norm {
            x = norm(b, "embed_layernorm", x, plan)?;
        }
        if plan.scaled {
            x = b.unary(x, Unary::MulScalar)?;
        }
        let turned = plan.latent.map_or(plan.head_dim, |l| l.rotary);
        let table = match plan.positions {
            Positions::Rotary => Some(b.rotary_table(seq, turned)?),
            _ => None,
        };
        for i in 0..plan.layers {
            x = b.module(&format!("layers.{i}"), x, |b, x| layer(b, x, table, plan, i as u64))?;
        }
        let y = norm(b, "norm", x, plan)?;
        for t in table.into_iter().flatten() {
            b.hold(t);
        }
        Ok((y, embedding))
    })?;
    let logits = match plan.head {
        Head::Words => {
            let x = b.wanted_positions(x)?;
            if plan.tied {
                b.count_module();
                b.linear_with("lm_head", x, embedding, None)?
            } else {
                b.linear("lm_head", x, plan.vocabulary, plan.head_bias)?
            }
        }
        Head::Labels(labels) => {
            let scores = b.linear("score", x, labels, false)?;
            let last = b.slice(scores, 1, 1)?;
            b.view(last, &[batch, labels])?
        }
        Head::States => return Ok(b.finish(x)),
    };
    b.finish_language(logits)
}

/// The plan's norm over the last dimension.
fn norm(b: &mut Builder, name: &str, x: Tensor, plan: Plan) -> Built {
    match plan.norm {
        Norm::Rms => b.hf_rms_norm(name, x),
        Norm::Layer => b.layer_norm(name, x),
        Norm::LayerWithoutBias => b.layer_norm_with(name, x, false),
        Norm::LayerWithoutWeight => b.layer_norm_bare(name, x),
    }
}

fn layer(b: &mut Builder, x: Tensor, table: Option<[Tensor; 2]>, plan: Plan, index: u64) -> Built {
    let attend = |b: &mut Builder, y| b.module("self_attn", y, |b, y| attention(b, y, table, plan));
    let feed = |b: &mut Builder, y| feed_forward(b, y, plan, index);
    match plan.placement {
        Placement::Before => {
            let y = norm(b, "input_layernorm", x, plan)?;
            let y = attend(b, y)?;
            let x = b.add(x, y)?;
            let y = norm(b, "post_attention_layernorm", x, plan)?;
            let y = feed(b, y)?;
            b.add(x, y)
        }
        Placement::Around => {
            let y = norm(b, "input_layernorm", x, plan)?;
            let y = attend(b, y)?;
            let y = norm(b, "post_attention_layernorm", y, plan)?;
            let x = b.add(x, y)?;
            let y = norm(b, "pre_feedforward_layernorm", x, plan)?;
            let y = feed(b, y)?;
            let y = norm(b, "post_feedforward_layernorm", y, plan)?;
            b.add(x, y)
        }
        Placement::After => {
            let y = attend(b, x)?;
            let y = norm(b, "post_attention_layernorm", y, plan)?;
            let x = b.add(x, y)?;
            let y = feed(b, x)?;
            let y = norm(b, "post_feedforward_layernorm", y, plan)?;
            b.add(x, y)
        }
        Placement::Parallel | Placement::ParallelOwn => {
            let y = norm(b, "input_layernorm", x, plan)?;
            let a = attend(b, y)?;
            let y = if plan.placement == Placement::Parallel {
                y
            } else {
                norm(b, "post_attention_layernorm", x, plan)?
            };
            let f = feed(b, y)?;
            let sum = b.add(a, f)?;
            b.add(x, sum)
        }
    }
}

fn split_heads(b: &mut Builder, y: Tensor, n: u64, plan: Plan, normed: Option<&str>) -> Built {
    let [batch, seq] = [b.dim(y, 0), b.dim(y, 1)];
    let mut y = y;
    if let Some(name) = normed.filter(|_| plan.head_norm == HeadNorm::All) {
        y = b.hf_rms_norm(name, y)?;
    }
    let mut y = b.view(y, &[batch, seq, n, plan.head_dim])?;
    if let Some(name) = normed.filter(|_| plan.head_norm == HeadNorm::Each) {
        y = b.hf_rms_norm(name, y)?;
    }
    b.transpose(y, 1, 2)
}

fn attention(b: &mut Builder, y: Tensor, table: Option<[Tensor; 2]>, plan: Plan) -> Built {
    if let Some(sizes) = plan.latent {
        return latent::attention(b, y, table, plan, sizes);
    }
    let shape = b.shape(y);
    if plan.sinks {
        b.parameter("sinks", &[plan.heads]);
    }
    // Separate projections are split into heads one by one, as the code does: what is alive when decides the peak.
    let [q, k, v] = if plan.joined_qkv {
        let [q, k] = [plan.heads, plan.kv_heads].map(|n| n * plan.head_dim);
        let joined = b.linear("qkv_proj", y, q + 2 * k, plan.qkv_bias)?;
        let parts = b.split(joined, &[q, k, k], 2)?;
        [
            split_heads(b, parts[0], plan.heads, plan, Some("q_norm"))?,
            split_heads(b, parts[1], plan.kv_heads, plan, Some("k_norm"))?,
            split_heads(b, parts[2], plan.kv_heads, plan, None)?,
        ]
    } else {
        let mut heads = |name: &str, n: u64, normed| {
            let y = b.linear(name, y, n * plan.head_dim, plan.qkv_bias)?;
            split_heads(b, y, n, plan, normed)
        };
        [
            heads("q_proj", plan.heads, Some("q_norm"))?,
            heads("k_proj", plan.kv_heads, Some("k_norm"))?,
            heads("v_proj", plan.kv_heads, None)?,
        ]
    };
    let (q, k) = match table {
        Some(table) => (b.rotary(q, table)?, b.rotary(k, table)?),
        None => (q, k),
    };
    // Both caches have the format of the keys, which the fp32 table promotes under autocast.
    let [k, v] = b.cache(k, v)?;
    let a = b.attend_cache(q, k, v, false)?;
    let a = b.transpose(a, 1, 2)?;
    let a = b.contiguous(a)?;
    let a = b.view(a, &shape.with(2, plan.heads * plan.head_dim))?;
    b.linear("o_proj", a, plan.width, plan.out_bias)
}

fn feed_forward(b: &mut Builder, y: Tensor, plan: Plan, index: u64) -> Built {
    match plan.experts {
        Some(experts) if experts.has(index) => {
            b.module("block_sparse_moe", y, |b, y| mixture(b, y, plan, experts))
        }
        Some(experts) => {
            let plan = Plan { inner: experts.dense_inner, ..plan };
            b.module("mlp", y, |b, y| gated(b, y, plan))
        }
        None => b.module("mlp", y, |b, y| gated(b, y, plan)),
    }
}

/// `down(act(gate(y)) * up(y))`, or `down(act(up(y)))`.
pub(super) fn gated(b: &mut Builder, y: Tensor, plan: Plan) -> Built {
    if !plan.gated {
        let y = b.linear("up_proj", y, plan.inner, plan.inner_bias)?;
        let mut y = b.activation("act_fn", y, plan.function, false)?;
        if plan.squared {
            y = b.mul(y, y)?;
        }
        return b.linear("down_proj", y, plan.width, plan.inner_bias);
    }
    let (gate, up) = if plan.joined_gate {
        let both = b.linear("gate_up_proj", y, 2 * plan.inner, plan.inner_bias)?;
        let last = b.shape(both).len() - 1;
        let parts = b.chunk(both, 2, last)?;
        (b.activation("act_fn", parts[0], plan.function, false)?, parts[1])
    } else {
        let gate = b.linear("gate_proj", y, plan.inner, plan.inner_bias)?;
        let gate = b.activation("act_fn", gate, plan.function, false)?;
        (gate, b.linear("up_proj", y, plan.inner, plan.inner_bias)?)
    };
    let joined = b.mul(gate, up)?;
    b.linear("down_proj", joined, plan.width, plan.inner_bias)
}
