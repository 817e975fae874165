//! Llama as in Hugging Face's `LlamaForCausalLM`: rotary positions, RMS norm operator by operator, SwiGLU, grouped heads
//! (Touvron et al. 2023, arXiv:2307.09288; Llama 3: arXiv:2407.21783). `llama-1b` has the sizes of Llama 3.2 1B with an
//! output layer of its own.

use super::super::Rule;
use super::super::builder::Built;
use super::super::graph::Graph;
use super::decoder::{Plan, assemble};
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
        optimizer: Rule::Adam,
    }
}

pub(super) const MODELS: &[Entry] = &[
    Entry { info: info("llama-1b", "Llama, 16 layers of 2048, untied", 2, 1_498_482_688), build },
    Entry { info: info("llama-2-7b", "Llama 2 7B", 1, 6_738_415_616), build },
    Entry { info: info("llama-3-8b", "Llama 3 8B", 1, 8_030_261_248), build },
];

/// The plan of a model of this family.
pub(super) fn plan(name: &str) -> Option<Plan> {
    let big = Plan::LLAMA_2_7B;
    Some(match name {
        "llama-2-7b" => big,
        "llama-3-8b" => Plan { inner: 14_336, kv_heads: 8, vocabulary: 128_256, ..big },
        "llama-1b" => Plan {
            width: 2048,
            inner: 8192,
            layers: 16,
            kv_heads: 8,
            head_dim: 64,
            vocabulary: 128_256,
            ..big
        },
        _ => return None,
    })
}

fn build(s: Sizes<'_>) -> Built<Graph> {
    assemble(s, plan(s.name).unwrap_or(Plan::LLAMA_2_7B))
}
