//! OPT as in Hugging Face's `OPTForCausalLM` (Zhang et al. 2022, arXiv:2205.01068).

use super::super::Rule;
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
        default_seq: Some(POSITIONS),
        max_seq: Some(POSITIONS),
        parameters,
        optimizer: Rule::Adam,
    }
}

pub(super) const MODELS: &[Entry] = &[
    Entry { info: info("opt-1.3b", "OPT 1.3B", 2, 1_315_758_080), build },
    Entry { info: info("opt-2.7b", "OPT 2.7B", 1, 2_651_596_800), build },
    Entry { info: info("opt-6.7b", "OPT 6.7B", 1, 6_658_473_984), build },
];

const VOCABULARY: u64 = 50_272;
const POSITIONS: u64 = 2048;
/// Places before the first position in its table.
const OFFSET: u64 = 2;

fn build(s: Sizes) -> Built<Graph> {
    let (width, layers) = match s.name {
        "opt-2.7b" => (2560, 32),
        "opt-6.7b" => (4096, 32),
        _ => (2048, 24),
    };
    let mut b = Builder::staged(s.name, s.batch, s.stage);
    let tokens = b.tokens(&[s.batch, s.seq])?;
    b.count_module();
    let (x, table) = b.scope("model.decoder", |b| {
        b.count_module();
        let (words, table) = b.embedding("embed_tokens", tokens, VOCABULARY, width)?;
        let places = b.arange(s.seq)?;
        let places = b.unary(places, Unary::AddScalar)?;
        let places = b.view(places, &[1, s.seq])?;
        let (places, _) = b.embedding("embed_positions", places, POSITIONS + OFFSET, width)?;
        let mut x = b.add(words, places)?;
        for i in 0..layers {
            x = b.module(&format!("layers.{i}"), x, layer)?;
        }
        Ok((b.layer_norm("final_layer_norm", x)?, table))
    })?;
    let x = b.wanted_positions(x)?;
    let logits = b.linear_with("lm_head", x, table, None)?;
    b.finish_language(logits)
}

fn layer(b: &mut Builder, x: Tensor) -> Built {
    let shape = b.shape(x);
    let [batch, seq, width] = [shape[0], shape[1], shape[2]];
    let heads = 32;
    let y = b.layer_norm("self_attn_layer_norm", x)?;
    let y = b.module("self_attn", y, |b, y| {
        let mut parts = Vec::with_capacity(3);
        for name in ["q_proj", "k_proj", "v_proj"] {
            let mut part = b.linear(name, y, width, true)?;
            if name == "q_proj" {
                part = b.unary(part, Unary::MulScalar)?;
            }
            let part = b.view(part, &[batch, seq, heads, width / heads])?;
            parts.push(b.transpose(part, 1, 2)?);
        }
        let a = b.cached_attention([parts[0], parts[1], parts[2]], &shape, false)?;
        b.linear("out_proj", a, width, true)
    })?;
    let y = b.dropout(y)?;
    let x = b.add(x, y)?;
    let y = b.layer_norm("final_layer_norm", x)?;
    let y = b.linear("fc1", y, 4 * width, true)?;
    let y = b.activation("activation_fn", y, Unary::Relu, false)?;
    let y = b.linear("fc2", y, width, true)?;
    let y = b.dropout(y)?;
    b.add(x, y)
}
