//! Two encoders that meet in one space: `CLIPModel` (Radford et al. 2021, arXiv:2103.00020) and `SiglipModel` (Zhai et al. 2023, arXiv:2303.15343).

use super::super::builder::{Builder, Built, ConvSpec, Tensor};
use super::super::graph::{Graph, Unary};
use super::Sizes;

/// Sizes of one encoder.
#[derive(Clone, Copy)]
pub(super) struct Tower {
    pub width: u64,
    pub inner: u64,
    pub layers: usize,
    pub heads: u64,
}

/// Sizes of both.
pub(super) struct Plan {
    /// CLIP, or SigLIP?
    pub clip: bool,
    pub words: Tower,
    pub images: Tower,
    pub vocabulary: u64,
    pub positions: u64,
    pub side: u64,
    pub patch: u64,
    pub channels: u64,
    /// Width of the space in which both meet.
    pub joint: u64,
}

pub(super) fn assemble(s: Sizes<'_>, plan: &Plan) -> Built<Graph> {
    let mut b = Builder::new(s.name, s.batch);
    let tokens = b.tokens(&[s.batch, s.seq])?;
    let pixels = b.images(plan.channels, plan.side, plan.side)?;
    b.parameter("logit_scale", &[1]);
    if !plan.clip {
        b.parameter("logit_bias", &[1]);
    }
    let image = b.scope("vision_model", |b| see(b, pixels, plan))?;
    let text = b.scope("text_model", |b| read(b, tokens, s, plan))?;
    let (image, text) = if plan.clip {
        (
            b.linear("visual_projection", image, plan.joint, false)?,
            b.linear("text_projection", text, plan.joint, false)?,
        )
    } else {
        (image, text)
    };
    let (image, text) = (unit(&mut b, image)?, unit(&mut b, text)?);
    let width = b.dim(text, 1);
    let text = b.view(text, &[1, s.batch, width])?;
    let image = b.view(image, &[1, s.batch, width])?;
    let image = b.transpose(image, 1, 2)?;
    let scores = b.matmul(text, image)?;
    let scores = b.unary(scores, Unary::MulScalar)?;
    let scores = b.view(scores, &[s.batch, s.batch])?;
    b.finish_with_cross_entropy(scores)
}

/// Divided by its length.
fn unit(b: &mut Builder, x: Tensor) -> Built {
    let squared = b.unary(x, Unary::Pow)?;
    let sum = b.sum(squared, &[1], true)?;
    let scale = b.unary(sum, Unary::Rsqrt)?;
    b.mul(x, scale)
}

fn read(b: &mut Builder, tokens: Tensor, s: Sizes<'_>, plan: &Plan) -> Built {
    let tower = plan.words;
    let (words, _) = b.embedding("embeddings.token_embedding", tokens, plan.vocabulary, tower.width)?;
    let places = b.arange(s.seq)?;
    let places = b.view(places, &[1, s.seq])?;
    let (places, _) = b.embedding("embeddings.position_embedding", places, plan.positions, tower.width)?;
    let x = b.add(words, places)?;
    let x = encode(b, x, tower, plan.clip)?;
    let x = b.layer_norm("final_layer_norm", x)?;
    let x = b.select(x, 1)?;
    if plan.clip { Ok(x) } else { b.linear("head", x, plan.joint, true) }
}

fn see(b: &mut Builder, pixels: Tensor, plan: &Plan) -> Built {
    let tower = plan.images;
    let (batch, places) = (b.batch(), (plan.side / plan.patch).pow(2));
    let spec = ConvSpec::new(tower.width, plan.patch).stride(plan.patch);
    let x = b.conv2d("embeddings.patch_embedding", pixels, if plan.clip { spec.no_bias() } else { spec })?;
    let x = b.view(x, &[batch, tower.width, places])?;
    let mut x = b.transpose(x, 1, 2)?;
    if plan.clip {
        let class = b.parameter("embeddings.class_embedding", &[1, 1, tower.width]);
        let class = b.use_parameter(class)?;
        let class = b.expand(class, &[batch, 1, tower.width])?;
        x = b.cat(&[class, x], 1)?;
    }
    let rows = b.dim(x, 1);
    let order = b.arange(rows)?;
    let order = b.view(order, &[1, rows])?;
    let (table, _) = b.embedding("embeddings.position_embedding", order, rows, tower.width)?;
    let mut x = b.add(x, table)?;
    if plan.clip {
        x = b.layer_norm("pre_layrnorm", x)?;
    }
    let x = encode(b, x, tower, false)?;
    if plan.clip {
        let x = b.select(x, 1)?;
        return b.layer_norm("post_layernorm", x);
    }
    let x = b.layer_norm("post_layernorm", x)?;
    b.scope("head", |b| pool(b, x, tower))
}

/// `SiglipMultiheadAttentionPoolingHead`: one learned query looks at all places.
fn pool(b: &mut Builder, x: Tensor, tower: Tower) -> Built {
    let [batch, rows, width] = [b.dim(x, 0), b.dim(x, 1), tower.width];
    let probe = b.parameter("probe", &[1, 1, width]);
    let probe = b.use_parameter(probe)?;
    let probe = b.expand(probe, &[batch, 1, width])?;
    let each = width / tower.heads;
    let mut project = |name: &str, x: Tensor, n: u64| {
        let y = b.linear(name, x, width, true)?;
        let y = b.view(y, &[batch, n, tower.heads, each])?;
        b.transpose(y, 1, 2)
    };
    let q = project("attention.q", probe, 1)?;
    let k = project("attention.k", x, rows)?;
    let v = project("attention.v", x, rows)?;
    let a = b.sdpa(q, k, v, false)?;
    let a = b.transpose(a, 1, 2)?;
    let a = b.view(a, &[batch, 1, width])?;
    let a = b.linear("attention.out_proj", a, width, true)?;
    let y = b.layer_norm("layernorm", a)?;
    let y = feed(b, y, tower)?;
    let y = b.add(a, y)?;
    b.select(y, 1)
}

fn feed(b: &mut Builder, y: Tensor, tower: Tower) -> Built {
    b.module("mlp", y, |b, y| {
        let y = b.linear("fc1", y, tower.inner, true)?;
        let y = b.gelu(y)?;
        b.linear("fc2", y, tower.width, true)
    })
}

fn encode(b: &mut Builder, x: Tensor, tower: Tower, causal: bool) -> Built {
    let mut x = x;
    for i in 0..tower.layers {
        x = b.module(&format!("encoder.layers.{i}"), x, |b, x| {
            let shape = b.shape(x);
            let [batch, seq] = [shape[0], shape[1]];
            let y = b.layer_norm("layer_norm1", x)?;
            let y = b.module("self_attn", y, |b, y| {
                let mut heads = |name: &str| {
                    let part = b.linear(name, y, tower.width, true)?;
                    let part = b.view(part, &[batch, seq, tower.heads, tower.width / tower.heads])?;
                    b.transpose(part, 1, 2)
                };
                let (q, k, v) = (heads("q_proj")?, heads("k_proj")?, heads("v_proj")?);
                let a = b.sdpa(q, k, v, causal)?;
                let a = b.transpose(a, 1, 2)?;
                let a = b.view(a, &shape)?;
                b.linear("out_proj", a, tower.width, true)
            })?;
            let x = b.add(x, y)?;
            let y = b.layer_norm("layer_norm2", x)?;
            let y = feed(b, y, tower)?;
            b.add(x, y)
        })?;
    }
    Ok(x)
}
