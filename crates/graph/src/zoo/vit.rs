//! Vision transformers as in torchvision (Dosovitskiy et al. 2020, arXiv:2010.11929). Their `nn.MultiheadAttention` takes
//! its fused path in inference without autocast; all dropouts have probability 0 and launch nothing.

use super::super::Rule;
use super::super::builder::{Builder, Built, ConvSpec, Tensor};
use super::super::graph::{Graph, GraphOp, When};
use super::transformer::{Plan, attention_params, self_attention};
use super::{Entry, ModelInfo, Sizes, classifier};

const fn info(name: &'static str, title: &'static str, batch: u64, parameters: u64) -> ModelInfo {
    ModelInfo { family: "transformer", optimizer: Rule::Adam, ..classifier(name, title, batch, parameters) }
}

pub(super) const MODELS: &[Entry] = &[
    Entry { info: info("vit_b_16", "ViT-B/16", 64, 86_567_656), build },
    Entry { info: info("vit_b_32", "ViT-B/32", 64, 88_224_232), build },
    Entry { info: info("vit_l_16", "ViT-L/16", 32, 304_326_632), build },
    Entry { info: info("vit_l_32", "ViT-L/32", 32, 306_535_400), build },
];

fn build(s: Sizes) -> Built<Graph> {
    let patch = if s.name.ends_with("_32") { 32 } else { 16 };
    let (layers, plan) = if s.name.starts_with("vit_l") {
        (24, Plan { width: 1024, heads: 16, inner: 4096, dropout: false })
    } else {
        (12, Plan { width: 768, heads: 12, inner: 3072, dropout: false })
    };
    assemble(s.name, s.batch, &Images { side: 224, channels: 3, patch, classes: 1000 }, layers, plan)
}

/// What a vision transformer looks at.
pub(super) struct Images {
    pub side: u64,
    pub channels: u64,
    pub patch: u64,
    pub classes: u64,
}

/// The model of these sizes.
pub(super) fn assemble(name: &str, batch: u64, images: &Images, layers: usize, plan: Plan) -> Built<Graph> {
    let (d, patch) = (plan.width, images.patch);
    let mut b = Builder::new(name, batch);
    let x = b.images(images.channels, images.side, images.side)?;
    let token = b.parameter("class_token", &[1, 1, d]);
    let side = images.side / patch;
    let x = b.conv2d("conv_proj", x, ConvSpec::new(d, patch).stride(patch))?;
    let x = b.view(x, &[batch, d, side * side])?;
    let x = b.permute(x, &[0, 2, 1])?;
    let token = b.use_parameter(token)?;
    let token = b.expand(token, &[batch, 1, d])?;
    let x = b.cat(&[token, x], 1)?;
    let x = b.module("encoder", x, |b, x| {
        let positions = b.parameter("pos_embedding", &[1, side * side + 1, d]);
        let positions = b.use_parameter(positions)?;
        let x = b.add(x, positions)?;
        b.count_module();
        let x = b.module("layers", x, |b, x| {
            let mut x = x;
            for i in 0..layers {
                x = b.module(&format!("encoder_layer_{i}"), x, |b, x| encoder_block(b, x, plan))?;
            }
            Ok(x)
        })?;
        b.layer_norm("ln", x)
    })?;
    let x = b.select(x, 1)?;
    let x = b.module("heads", x, |b, x| b.linear("head", x, images.classes, true))?;
    b.finish_with_cross_entropy(x)
}

fn encoder_block(b: &mut Builder, x: Tensor, plan: Plan) -> Built {
    let shape = b.shape(x);
    let y = b.layer_norm("ln_1", x)?;
    let a = attention_params(b, "self_attention", plan.width);
    let slow = b.only(When::TrainOrAutocast, |b| {
        b.module("self_attention", y, |b, y| self_attention(b, y, a, plan))
    })?;
    let fast = b.only(When::InferWithoutAutocast, |b| {
        let p = [a.in_weight, a.in_bias, a.out_weight, a.out_bias];
        b.count_module();
        b.call("self_attention", GraphOp::FastSelfAttention { heads: plan.heads }, &[y], &p, &shape)
    })?;
    let y = b.either(&[slow, fast])?;
    b.count_module();
    let x = b.add(y, x)?;
    let y = b.layer_norm("ln_2", x)?;
    let y = b.module("mlp", y, |b, y| {
        let y = b.linear("0", y, plan.inner, true)?;
        let y = b.gelu(y)?;
        b.count_module();
        let y = b.linear("3", y, plan.width, true)?;
        b.count_module();
        Ok(y)
    })?;
    b.add(x, y)
}
