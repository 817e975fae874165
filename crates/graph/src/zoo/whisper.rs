//! Whisper as in Hugging Face's `WhisperForConditionalGeneration` (Radford et al. 2022, arXiv:2212.04356): 30 seconds of sound, `seq` tokens of text.

use super::super::builder::{Builder, Built, ConvSpec, Tensor};
use super::super::graph::{Graph, Unary};
use super::Sizes;

/// Sizes.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub width: u64,
    pub inner: u64,
    pub layers: usize,
    pub decoder_layers: usize,
    pub heads: u64,
    /// Frequencies of the spectrogram.
    pub bins: u64,
    /// Places of the encoder.
    pub sources: u64,
    pub positions: u64,
    pub vocabulary: u64,
}

pub(super) fn assemble(s: Sizes<'_>, plan: Plan) -> Built<Graph> {
    let mut b = Builder::new(s.name, s.batch);
    let sound = b.input(&[s.batch, plan.bins, 1, 2 * plan.sources])?;
    let tokens = b.tokens(&[s.batch, s.seq])?;
    let memory = b.scope("model.encoder", |b| {
        let x = b.conv2d("conv1", sound, ConvSpec::rect(plan.width, 1, 3).pad_hw(0, 1))?;
        let x = b.gelu(x)?;
        let x = b.conv2d("conv2", x, ConvSpec::rect(plan.width, 1, 3).stride(2).pad_hw(0, 1))?;
        let x = b.gelu(x)?;
        let x = b.view(x, &[s.batch, plan.width, plan.sources])?;
        let x = b.transpose(x, 1, 2)?;
        let table = b.parameter("embed_positions.weight", &[plan.sources, plan.width]);
        let table = b.use_parameter(table)?;
        let mut x = b.add(x, table)?;
        for i in 0..plan.layers {
            x = b.module(&format!("layers.{i}"), x, |b, x| {
                let x = attend(b, "self_attn", x, None, false, plan)?;
                feed(b, x, plan)
            })?;
        }
        b.layer_norm("layer_norm", x)
    })?;
    b.keep(memory);
    let (x, table) = b.scope("model.decoder", |b| {
        let (words, table) = b.embedding("embed_tokens", tokens, plan.vocabulary, plan.width)?;
        let places = b.arange(s.seq)?;
        let places = b.view(places, &[1, s.seq])?;
        let (places, _) = b.embedding("embed_positions", places, plan.positions, plan.width)?;
        let mut x = b.add(words, places)?;
        for i in 0..plan.decoder_layers {
            x = b.module(&format!("layers.{i}"), x, |b, x| {
                let x = attend(b, "self_attn", x, None, true, plan)?;
                let x = attend(b, "encoder_attn", x, Some(memory), false, plan)?;
                feed(b, x, plan)
            })?;
        }
        Ok((b.layer_norm("layer_norm", x)?, table))
    })?;
    b.count_module();
    let logits = b.linear_with("proj_out", x, table, None)?;
    b.finish_with_cross_entropy(logits)
}

fn attend(b: &mut Builder, name: &str, x: Tensor, memory: Option<Tensor>, causal: bool, plan: Plan) -> Built {
    let shape = b.shape(x);
    let y = b.layer_norm(&format!("{name}_layer_norm"), x)?;
    let source = memory.unwrap_or(y);
    let y = b.module(name, y, |b, y| {
        let mut heads = |name: &str, x: Tensor, bias: bool| {
            let [batch, seq] = [b.dim(x, 0), b.dim(x, 1)];
            let part = b.linear(name, x, plan.width, bias)?;
            let part = b.view(part, &[batch, seq, plan.heads, plan.width / plan.heads])?;
            b.transpose(part, 1, 2)
        };
        // Keys have no bias: the softmax would take it out again.
        let (q, k, v) =
            (heads("q_proj", y, true)?, heads("k_proj", source, false)?, heads("v_proj", source, true)?);
        let a = b.sdpa(q, k, v, causal)?;
        let a = b.transpose(a, 1, 2)?;
        let a = b.view(a, &shape)?;
        b.linear("out_proj", a, plan.width, true)
    })?;
    b.add(x, y)
}

fn feed(b: &mut Builder, x: Tensor, plan: Plan) -> Built {
    let y = b.layer_norm("final_layer_norm", x)?;
    let y = b.linear("fc1", y, plan.inner, true)?;
    let y = b.activation("activation_fn", y, Unary::Gelu, false)?;
    let y = b.linear("fc2", y, plan.width, true)?;
    b.add(x, y)
}
