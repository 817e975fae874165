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

#[derive(Clone, Copy)]
struct Plan {
    width: u64,
    inner: u64,
    layers: usize,
    heads: u64,
    kv_heads: u64,
    vocabulary: u64,
}

impl Plan {
    fn head_dim(self) -> u64 {
        self.width / self.heads
    }
}

fn build(s: Sizes) -> Built<Graph> {
    let big = Plan { width: 4096, inner: 11_008, layers: 32, heads: 32, kv_heads: 32, vocabulary: 32_000 };
    let plan = match s.name {
        "llama-2-7b" => big,
        "llama-3-8b" => Plan { inner: 14_336, kv_heads: 8, vocabulary: 128_256, ..big },
        _ => Plan { width: 2048, inner: 8192, layers: 16, heads: 32, kv_heads: 8, vocabulary: 128_256 },
    };
    let mut b = Builder::new(s.name, s.batch);
    let tokens = b.tokens(&[s.batch, s.seq])?;
    b.count_module();
    let x = b.scope("model", |b| {
        let (mut x, _) = b.embedding("embed_tokens", tokens, plan.vocabulary, plan.width)?;
        let table = b.rotary_table(s.seq, plan.head_dim())?;
        for i in 0..plan.layers {
            x = b.module(&format!("layers.{i}"), x, |b, x| layer(b, x, table, plan))?;
        }
        let y = b.hf_rms_norm("norm", x)?;
        for t in table {
            b.hold(t);
        }
        Ok(y)
    })?;
    let logits = b.linear("lm_head", x, plan.vocabulary, false)?;
    b.finish_with_cross_entropy(logits)
}

fn heads(b: &mut Builder, name: &str, x: Tensor, n: u64, plan: Plan) -> Built {
    let [batch, seq] = [b.dim(x, 0), b.dim(x, 1)];
    let y = b.linear(name, x, n * plan.head_dim(), false)?;
    let y = b.view(y, &[batch, seq, n, plan.head_dim()])?;
    b.transpose(y, 1, 2)
}

fn layer(b: &mut Builder, x: Tensor, table: [Tensor; 2], plan: Plan) -> Built {
    let shape = b.shape(x);
    let y = b.hf_rms_norm("input_layernorm", x)?;
    let y = b.module("self_attn", y, |b, y| {
        let q = heads(b, "q_proj", y, plan.heads, plan)?;
        let k = heads(b, "k_proj", y, plan.kv_heads, plan)?;
        let v = heads(b, "v_proj", y, plan.kv_heads, plan)?;
        let q = b.rotary(q, table)?;
        let k = b.rotary(k, table)?;
        // Both caches have the format of the keys, which the fp32 table promotes under autocast.
        let cached = b.cache(k, k)?;
        let v = b.cache(v, k)?;
        let a = b.sdpa(q, cached, v, true)?;
        let a = b.transpose(a, 1, 2)?;
        let a = b.contiguous(a)?;
        let a = b.view(a, &shape)?;
        b.linear("o_proj", a, plan.width, false)
    })?;
    let x = b.add(x, y)?;
    let y = b.hf_rms_norm("post_attention_layernorm", x)?;
    let y = b.module("mlp", y, |b, y| {
        let gate = b.linear("gate_proj", y, plan.inner, false)?;
        let gate = b.activation("act_fn", gate, Unary::Silu, false)?;
        let up = b.linear("up_proj", y, plan.inner, false)?;
        let joined = b.mul(gate, up)?;
        b.linear("down_proj", joined, plan.width, false)
    })?;
    b.add(x, y)
}
