//! GPT-2 as in Hugging Face's `GPT2LMHeadModel` (Radford et al. 2019), and the sizes of GPT-3 (Brown et al. 2020, table 2.1)
//! in the same code, as published measurements run them: heads times head size is the width there, so that GPT-3 XL is
//! 3072 wide.

use super::super::Rule;
use super::super::builder::{Builder, Built, Tensor};
use super::super::graph::Graph;
use super::{Entry, ModelInfo, Sizes};

const fn info(name: &'static str, title: &'static str, batch: u64, parameters: u64) -> ModelInfo {
    ModelInfo {
        name,
        title,
        family: "transformer",
        input: "sequence of tokens",
        default_batch: batch,
        default_seq: Some(1024),
        max_seq: Some(POSITIONS),
        parameters,
        optimizer: Rule::Adam,
    }
}

const fn long(info: ModelInfo) -> ModelInfo {
    ModelInfo { default_seq: Some(LONG_POSITIONS), max_seq: Some(LONG_POSITIONS), ..info }
}

pub(super) const MODELS: &[Entry] = &[
    Entry { info: info("gpt2", "GPT-2 small", 8, 124_439_808), build },
    Entry { info: info("gpt2-medium", "GPT-2 medium", 4, 354_823_168), build },
    Entry { info: info("gpt2-large", "GPT-2 large", 4, 774_030_080), build },
    Entry { info: info("gpt2-xl", "GPT-2 XL", 2, 1_557_611_200), build },
    Entry { info: long(info("gpt3-xl", "GPT-3 XL, 24 layers of 3072", 2, 2_879_554_560)), build },
    Entry { info: long(info("gpt3-2.7b", "GPT-3 2.7B", 2, 2_651_553_280)), build },
];

const VOCABULARY: u64 = 50_257;
const POSITIONS: u64 = 1024;
const LONG_POSITIONS: u64 = 2048;

/// Sizes of a GPT-2.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub width: u64,
    pub inner: u64,
    pub layers: usize,
    pub heads: u64,
    pub vocabulary: u64,
    pub positions: u64,
}

fn build(s: Sizes) -> Built<Graph> {
    let positions = if s.name.starts_with("gpt3") { LONG_POSITIONS } else { POSITIONS };
    let (width, layers, heads) = match s.name {
        "gpt3-xl" => (3072, 24, 24),
        "gpt3-2.7b" => (2560, 32, 32),
        "gpt2-medium" => (1024, 24, 16),
        "gpt2-large" => (1280, 36, 20),
        "gpt2-xl" => (1600, 48, 25),
        _ => (768, 12, 12),
    };
    let (inner, vocabulary) = (4 * width, VOCABULARY);
    assemble(s, Plan { width, inner, layers, heads, vocabulary, positions })
}

/// The model of these sizes.
pub(super) fn assemble(s: Sizes<'_>, plan: Plan) -> Built<Graph> {
    let width = plan.width;
    let Sizes { batch, seq, .. } = s;
    let mut b = Builder::staged(s.name, batch, s.stage);
    let tokens = b.tokens(&[batch, seq])?;
    b.count_module();
    let (x, table) = b.scope("transformer", |b| {
        let tokens = b.view(tokens, &[batch, seq])?;
        let (words, table) = b.embedding("wte", tokens, plan.vocabulary, width)?;
        let positions = b.arange(seq)?;
        let positions = b.unary(positions, super::super::graph::Unary::AddScalar)?;
        let positions = b.view(positions, &[1, seq])?;
        let (places, _) = b.embedding("wpe", positions, plan.positions, width)?;
        let x = b.add(words, places)?;
        let mut x = b.dropout(x)?;
        for i in 0..plan.layers {
            x = b.module(&format!("h.{i}"), x, |b, x| block(b, x, plan))?;
        }
        let x = b.layer_norm("ln_f", x)?;
        Ok((b.view(x, &[batch, seq, width])?, table))
    })?;
    let x = b.wanted_positions(x)?;
    b.count_module();
    let logits = b.linear_with("lm_head", x, table, None)?;
    b.finish_language(logits)
}

fn block(b: &mut Builder, x: Tensor, plan: Plan) -> Built {
    let heads = plan.heads;
    let shape = b.shape(x);
    let [batch, seq, width] = [shape[0], shape[1], shape[2]];
    let y = b.layer_norm("ln_1", x)?;
    let y = b.module("attn", y, |b, y| {
        let qkv = b.hf_conv1d("c_attn", y, 3 * width)?;
        let mut parts = Vec::with_capacity(3);
        for part in b.chunk(qkv, 3, 2)? {
            let part = b.view(part, &[batch, seq, heads, width / heads])?;
            parts.push(b.transpose(part, 1, 2)?);
        }
        let a = b.cached_attention([parts[0], parts[1], parts[2]], &shape, true)?;
        let a = b.hf_conv1d("c_proj", a, width)?;
        b.dropout(a)
    })?;
    let x = b.add(y, x)?;
    let y = b.layer_norm("ln_2", x)?;
    let y = b.module("mlp", y, |b, y| {
        let y = b.hf_conv1d("c_fc", y, plan.inner)?;
        let y = b.gelu_new(y)?;
        let y = b.hf_conv1d("c_proj", y, width)?;
        b.dropout(y)
    })?;
    b.add(x, y)
}
