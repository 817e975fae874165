//! T5 as in Hugging Face's `T5ForConditionalGeneration` with shared embeddings (Raffel et al. 2019, arXiv:1910.10683).
//! Source and target have the same length.

use super::super::Rule;
use super::super::builder::{Builder, Built, Tensor};
use super::super::graph::{Graph, Unary};
use super::{Entry, ModelInfo, Sizes};

const fn info(name: &'static str, title: &'static str, parameters: u64) -> ModelInfo {
    ModelInfo {
        name,
        title,
        family: "transformer",
        input: "pair of token sequences",
        default_batch: 16,
        default_seq: Some(128),
        max_seq: None,
        parameters,
        optimizer: Rule::Adam,
    }
}

pub(super) const MODELS: &[Entry] = &[
    Entry { info: info("t5-small", "T5 small, 6 + 6 layers", 60_506_624), build },
    Entry { info: info("t5-base", "T5 base, 12 + 12 layers", 222_903_552), build },
];

/// Sizes of a T5.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub width: u64,
    pub inner: u64,
    pub layers: usize,
    pub decoder_layers: usize,
    pub heads: u64,
    pub head_dim: u64,
    pub vocabulary: u64,
    /// Kinds of distances.
    pub buckets: u64,
    /// A gated feed-forward layer (version 1.1)?
    pub gated: bool,
    /// Is the output layer the embedding?
    pub tied: bool,
}

const SMALL: Plan = Plan {
    width: 512,
    inner: 2048,
    layers: 6,
    decoder_layers: 6,
    heads: 8,
    head_dim: 64,
    vocabulary: 32_128,
    buckets: 32,
    gated: false,
    tied: true,
};

fn build(s: Sizes) -> Built<Graph> {
    let plan = match s.name {
        "t5-base" => Plan { width: 768, inner: 3072, layers: 12, decoder_layers: 12, heads: 12, ..SMALL },
        _ => SMALL,
    };
    assemble(s, plan)
}

/// The model of these sizes.
pub(super) fn assemble(s: Sizes<'_>, plan: Plan) -> Built<Graph> {
    let mut b = Builder::new(s.name, s.batch);
    let source = b.tokens(&[s.batch, s.seq])?;
    let target = b.tokens(&[s.batch, s.seq])?;
    let (x, table) = b.embedding("shared", source, plan.vocabulary, plan.width)?;
    let memory = stack(&mut b, "encoder", x, None, plan)?;
    b.keep(memory);
    let y = b.embedding_with("shared", target, table)?;
    let y = stack(&mut b, "decoder", y, Some(memory), plan)?;
    if !plan.tied {
        let logits = b.linear("lm_head", y, plan.vocabulary, false)?;
        return b.finish_with_cross_entropy(logits);
    }
    // Tied embeddings: the output is scaled by width^-0.5.
    let y = b.unary(y, Unary::MulScalar)?;
    b.count_module();
    let logits = b.linear_with("lm_head", y, table, None)?;
    b.finish_with_cross_entropy(logits)
}

fn stack(b: &mut Builder, name: &str, x: Tensor, memory: Option<Tensor>, plan: Plan) -> Built {
    b.module(name, x, |b, x| {
        let x = b.dropout(x)?;
        let bias = position_bias(b, x, memory.is_some(), plan)?;
        let mut x = x;
        let layers = if memory.is_some() { plan.decoder_layers } else { plan.layers };
        for i in 0..layers {
            x = b.module(&format!("block.{i}"), x, |b, x| block(b, x, bias, memory, plan))?;
        }
        b.hold(bias);
        let x = b.hf_rms_norm("final_layer_norm", x)?;
        b.dropout(x)
    })
}

/// `T5Attention.compute_bias`: distances sorted into buckets, one learned number for each bucket and head. The result
/// `[1, heads, seq, seq]` is a permuted view, which no fused attention kernel takes.
fn position_bias(b: &mut Builder, x: Tensor, causal: bool, plan: Plan) -> Built {
    let seq = b.dim(x, 1);
    b.scope("block.0.layer.0.SelfAttention", |b| {
        let places = b.arange(seq)?;
        let distance = b.view(places, &[1, seq])?;
        let other = b.arange(seq)?;
        let other = b.view(other, &[seq, 1])?;
        let distance = b.add(distance, other)?;
        // Absolute value, comparison with the exact range, logarithm (divide, log, two products, a sum), cast,
        // minimum, choice.
        let mut bucket = distance;
        for _ in 0..9 {
            bucket = b.unary(bucket, Unary::AddScalar)?;
        }
        let (values, _) = b.embedding("relative_attention_bias", bucket, plan.buckets, plan.heads)?;
        let bias = b.permute(values, &[2, 0, 1])?;
        let bias = b.view(bias, &[1, plan.heads, seq, seq])?;
        if causal {
            let mask = b.create("mask", &[1, 1, seq, seq])?;
            return b.add(bias, mask);
        }
        Ok(bias)
    })
}

fn heads(b: &mut Builder, name: &str, x: Tensor, plan: Plan) -> Built {
    let [batch, seq] = [b.dim(x, 0), b.dim(x, 1)];
    let y = b.linear(name, x, plan.heads * plan.head_dim, false)?;
    let y = b.view(y, &[batch, seq, plan.heads, plan.head_dim])?;
    b.transpose(y, 1, 2)
}

fn block(b: &mut Builder, x: Tensor, bias: Tensor, memory: Option<Tensor>, plan: Plan) -> Built {
    let decoder = memory.is_some();
    let x = b.module("layer.0", x, |b, x| {
        let y = b.hf_rms_norm("layer_norm", x)?;
        let y = b.module("SelfAttention", y, |b, y| attention(b, y, y, decoder, Some(bias), plan))?;
        let y = b.dropout(y)?;
        b.add(x, y)
    })?;
    let x = match memory {
        None => x,
        Some(memory) => b.module("layer.1", x, |b, x| {
            let y = b.hf_rms_norm("layer_norm", x)?;
            let y = b.module("EncDecAttention", y, |b, y| attention(b, y, memory, true, None, plan))?;
            let y = b.dropout(y)?;
            b.add(x, y)
        })?,
    };
    b.module(if decoder { "layer.2" } else { "layer.1" }, x, |b, x| {
        let y = b.hf_rms_norm("layer_norm", x)?;
        let y = b.module("DenseReluDense", y, |b, y| {
            let y = if plan.gated {
                let gate = b.linear("wi_0", y, plan.inner, false)?;
                let gate = b.gelu_new(gate)?;
                let up = b.linear("wi_1", y, plan.inner, false)?;
                b.mul(gate, up)?
            } else {
                let y = b.linear("wi", y, plan.inner, false)?;
                b.relu(y)?
            };
            let y = b.dropout(y)?;
            // `hidden_states.to(self.wo.weight.dtype)`: fp32 under autocast, which then casts it back.
            let weight = b.parameter("wo.weight", &[plan.width, plan.inner]);
            let like = b.use_parameter(weight)?;
            let y = b.to_like(y, like)?;
            b.count_module();
            b.linear_with("wo", y, weight, None)
        })?;
        let y = b.dropout(y)?;
        b.add(x, y)
    })
}

fn attention(
    b: &mut Builder,
    x: Tensor,
    source: Tensor,
    cached: bool,
    bias: Option<Tensor>,
    plan: Plan,
) -> Built {
    let [batch, seq] = [b.dim(x, 0), b.dim(x, 1)];
    let q = heads(b, "q", x, plan)?;
    let mut k = heads(b, "k", source, plan)?;
    let mut v = heads(b, "v", source, plan)?;
    if cached {
        [k, v] = b.cache(k, v)?;
    }
    let mask = match bias {
        Some(bias) => bias,
        // The padding mask of the source, all true, becomes a tensor of zeros at each call.
        None => b.create("mask", &[batch, 1, seq, seq])?,
    };
    let a = b.sdpa_masked_dropout(q, k, v, mask)?;
    let a = b.transpose(a, 1, 2)?;
    let a = b.contiguous(a)?;
    let a = b.view(a, &[batch, seq, plan.heads * plan.head_dim])?;
    b.linear("o", a, plan.width, false)
}
