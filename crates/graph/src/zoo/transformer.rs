//! The translation transformer as `nn.Transformer` with embedding and output layer (Vaswani et al. 2017, arXiv:1706.03762).

use super::super::Rule;
use super::super::builder::{Builder, Built, Param, Tensor};
use super::super::graph::{Graph, GraphOp, Unary, When};
use super::{Entry, ModelInfo, Sizes};

const fn info(name: &'static str, title: &'static str, parameters: u64) -> ModelInfo {
    ModelInfo {
        name,
        title,
        family: "transformer",
        input: "sentence pair",
        default_batch: 64,
        default_seq: Some(50),
        max_seq: None,
        parameters,
        optimizer: Rule::Adam,
    }
}

pub(super) const MODELS: &[Entry] = &[
    Entry { info: info("transformer", "Transformer base, 6 + 6 layers", 76_940_544), build },
    Entry { info: info("transformer-big", "Transformer big, 6 + 6 layers", 241_929_472), build },
];

const VOCABULARY: u64 = 32_000;
const LAYERS: usize = 6;

/// Sizes of a layer.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub width: u64,
    pub heads: u64,
    pub inner: u64,
    /// Are attention weights dropped in training?
    pub dropout: bool,
}

/// Parameters of one `nn.MultiheadAttention`.
#[derive(Clone, Copy)]
pub(super) struct AttentionParams {
    pub in_weight: Param,
    pub in_bias: Param,
    pub out_weight: Param,
    pub out_bias: Param,
}

fn build(s: Sizes) -> Built<Graph> {
    let plan = match s.name {
        "transformer-big" => Plan { width: 1024, heads: 16, inner: 4096, dropout: true },
        _ => Plan { width: 512, heads: 8, inner: 2048, dropout: true },
    };
    let mut b = Builder::new(s.name, s.batch);
    let source = b.tokens(&[s.batch, s.seq])?;
    let target = b.tokens(&[s.batch, s.seq])?;
    let (x, table) = b.embedding("e", source, VOCABULARY, plan.width)?;
    let y = b.embedding_with("e", target, table)?;
    b.count_module();
    let memory = b.module("t.encoder", x, |b, x| {
        let mut x = x;
        for i in 0..LAYERS {
            x = b.module(&format!("layers.{i}"), x, |b, x| encoder_layer(b, x, plan))?;
        }
        b.layer_norm("norm", x)
    })?;
    let out = b.module("t.decoder", y, |b, y| {
        let mut y = y;
        for i in 0..LAYERS {
            y = b.module(&format!("layers.{i}"), y, |b, y| decoder_layer(b, y, memory, plan))?;
        }
        b.layer_norm("norm", y)
    })?;
    b.hold(memory);
    let logits = b.linear("o", out, VOCABULARY, true)?;
    b.finish_with_cross_entropy(logits)
}

pub(super) fn attention_params(b: &mut Builder, name: &str, width: u64) -> AttentionParams {
    AttentionParams {
        in_weight: b.parameter(&format!("{name}.in_proj_weight"), &[3 * width, width]),
        in_bias: b.parameter(&format!("{name}.in_proj_bias"), &[3 * width]),
        out_weight: b.parameter(&format!("{name}.out_proj.weight"), &[width, width]),
        out_bias: b.parameter(&format!("{name}.out_proj.bias"), &[width]),
    }
}

/// A linear layer's or a norm's two parameters, registered before the paths of training and inference part.
fn pair(b: &mut Builder, name: &str, shape: &[u64]) -> [Param; 2] {
    [b.parameter(&format!("{name}.weight"), shape), b.parameter(&format!("{name}.bias"), &shape[..1])]
}

fn norm(b: &mut Builder, name: &str, x: Tensor, p: [Param; 2]) -> Built {
    let shape = b.shape(x);
    b.count_module();
    b.call(name, GraphOp::LayerNorm { cols: shape[shape.len() - 1] }, &[x], &p, &shape)
}

/// In inference without autocast the whole layer is one fused call.
fn encoder_layer(b: &mut Builder, x: Tensor, plan: Plan) -> Built {
    let d = plan.width;
    let a = attention_params(b, "self_attn", d);
    let lin1 = pair(b, "linear1", &[plan.inner, d]);
    let lin2 = pair(b, "linear2", &[d, plan.inner]);
    let norm1 = pair(b, "norm1", &[d]);
    let norm2 = pair(b, "norm2", &[d]);
    let slow = b.only(When::TrainOrAutocast, |b| {
        let y = b.module("self_attn", x, |b, x| self_attention(b, x, a, plan))?;
        let y = b.dropout(y)?;
        let y = b.add(x, y)?;
        let y = norm(b, "norm1", y, norm1)?;
        let f = feed_forward(b, y, lin1, lin2)?;
        let z = b.add(y, f)?;
        norm(b, "norm2", z, norm2)
    })?;
    let shape = b.shape(x);
    let fast = b.only(When::InferWithoutAutocast, |b| {
        let p = [
            a.in_weight,
            a.in_bias,
            a.out_weight,
            a.out_bias,
            norm1[0],
            norm1[1],
            norm2[0],
            norm2[1],
            lin1[0],
            lin1[1],
            lin2[0],
            lin2[1],
        ];
        b.call("fast", GraphOp::FastEncoderLayer { heads: plan.heads }, &[x], &p, &shape)
    })?;
    b.either(&[slow, fast])
}

fn decoder_layer(b: &mut Builder, x: Tensor, memory: Tensor, plan: Plan) -> Built {
    let d = plan.width;
    let own = attention_params(b, "self_attn", d);
    let cross = attention_params(b, "multihead_attn", d);
    let lin1 = pair(b, "linear1", &[plan.inner, d]);
    let lin2 = pair(b, "linear2", &[d, plan.inner]);
    let norms: Vec<[Param; 2]> = ["norm1", "norm2", "norm3"].iter().map(|n| pair(b, n, &[d])).collect();
    let shape = b.shape(x);
    let slow =
        b.only(When::TrainOrAutocast, |b| b.module("self_attn", x, |b, x| self_attention(b, x, own, plan)))?;
    let fast = b.only(When::InferWithoutAutocast, |b| {
        let p = [own.in_weight, own.in_bias, own.out_weight, own.out_bias];
        b.call("self_attn", GraphOp::FastSelfAttention { heads: plan.heads }, &[x], &p, &shape)
    })?;
    let y = b.either(&[slow, fast])?;
    let y = b.dropout(y)?;
    let y = b.add(x, y)?;
    let x = norm(b, "norm1", y, norms[0])?;
    let y = b.module("multihead_attn", x, |b, x| cross_attention(b, x, memory, cross, plan))?;
    let y = b.dropout(y)?;
    let y = b.add(x, y)?;
    let x = norm(b, "norm2", y, norms[1])?;
    let f = feed_forward(b, x, lin1, lin2)?;
    let y = b.add(x, f)?;
    norm(b, "norm3", y, norms[2])
}

fn feed_forward(b: &mut Builder, x: Tensor, lin1: [Param; 2], lin2: [Param; 2]) -> Built {
    b.count_module();
    let f = b.linear_with("linear1", x, lin1[0], Some(lin1[1]))?;
    let f = b.unary(f, Unary::Relu)?;
    let f = b.dropout(f)?;
    b.count_module();
    let f = b.linear_with("linear2", f, lin2[0], Some(lin2[1]))?;
    b.dropout(f)
}

/// Packed projection split into `n` row-major pieces `[s, b, d]`.
fn unpack(b: &mut Builder, packed: Tensor, n: u64, d: u64) -> Built<Vec<Tensor>> {
    let [s, batch] = [b.dim(packed, 0), b.dim(packed, 1)];
    let y = b.view(packed, &[s, batch, n, d])?;
    let y = b.view(y, &[1, s, batch, n, d])?;
    let y = b.transpose(y, 0, 3)?;
    let y = b.view(y, &[n, s, batch, d])?;
    let y = b.contiguous(y)?;
    (0..n).map(|_| b.select(y, 0)).collect()
}

/// `F.multi_head_attention_forward` from projected q, k, v `[s, b, d]` on.
fn attend(b: &mut Builder, qkv: &[Tensor], a: AttentionParams, plan: Plan) -> Built {
    let d = plan.width;
    let head = d / plan.heads;
    let [s, batch] = [b.dim(qkv[0], 0), b.dim(qkv[0], 1)];
    let mut split = Vec::with_capacity(3);
    for &t in qkv {
        let len = b.dim(t, 0);
        let t = b.view(t, &[len, batch * plan.heads, head])?;
        split.push(b.transpose(t, 0, 1)?);
    }
    for t in &mut split {
        let len = b.dim(*t, 1);
        *t = b.view(*t, &[batch, plan.heads, len, head])?;
    }
    let y = if plan.dropout {
        b.sdpa_dropout(split[0], split[1], split[2])?
    } else {
        b.sdpa(split[0], split[1], split[2], false)?
    };
    let y = b.permute(y, &[2, 0, 1, 3])?;
    let y = b.contiguous(y)?;
    let y = b.view(y, &[batch * s, d])?;
    let y = b.linear_with("out_proj", y, a.out_weight, Some(a.out_bias))?;
    let y = b.view(y, &[s, batch, d])?;
    b.transpose(y, 0, 1)
}

pub(super) fn self_attention(b: &mut Builder, x: Tensor, a: AttentionParams, plan: Plan) -> Built {
    let x = b.transpose(x, 0, 1)?;
    let packed = b.linear_with("in_proj", x, a.in_weight, Some(a.in_bias))?;
    let qkv = unpack(b, packed, 3, plan.width)?;
    attend(b, &qkv, a, plan)
}

fn cross_attention(b: &mut Builder, x: Tensor, memory: Tensor, a: AttentionParams, plan: Plan) -> Built {
    let d = plan.width;
    let q = b.transpose(x, 0, 1)?;
    let kv = b.transpose(memory, 0, 1)?;
    let weight = b.use_parameter(a.in_weight)?;
    let weights = b.split(weight, &[d, 2 * d], 0)?;
    let bias = b.use_parameter(a.in_bias)?;
    let biases = b.split(bias, &[d, 2 * d], 0)?;
    let q = b.linear_tensors("q_proj", q, weights[0], biases[0])?;
    let packed = b.linear_tensors("kv_proj", kv, weights[1], biases[1])?;
    let kv = unpack(b, packed, 2, d)?;
    attend(b, &[q, kv[0], kv[1]], a, plan)
}
