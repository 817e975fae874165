//! Which transformer an iteration is: by the names of its layers, the roles they stand for, and the shapes they run.
//!
//! Zoo models, `config.json` models and recorded steps all come as operators with a layer path. What is not recognised is
//! refused by name, never guessed: cutting a product the wrong way would give a time for a model that does not exist.

use super::{Experts, Norm, Transformer};
use crate::ClusterError;
use preflop_core::model::{Iteration, Phase, Step};
use preflop_core::ops::{ElementwiseKind, Gemm, RowwiseKind};
use preflop_core::{Op, Pass};
use std::collections::BTreeSet;

/// What a product of a layer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Queries, keys and values together or one of them.
    Qkv,
    /// After attention.
    Out,
    /// Up, or the gate beside it.
    Up,
    /// The gate.
    Gate,
    /// Down.
    Down,
    /// To the vocabulary.
    Head,
    /// Chooses experts.
    Router,
}

/// Endings of layer paths. Longer ones first: `attn.c_proj` is not `mlp.c_proj`.
const ROLES: &[(&str, Role)] = &[
    ("attn.c_attn", Role::Qkv),
    ("attn.c_proj", Role::Out),
    ("mlp.c_fc", Role::Up),
    ("mlp.c_proj", Role::Down),
    ("self_attn.q_proj", Role::Qkv),
    ("self_attn.k_proj", Role::Qkv),
    ("self_attn.v_proj", Role::Qkv),
    ("self_attn.o_proj", Role::Out),
    ("self_attn.out_proj", Role::Out),
    ("attention.self.query", Role::Qkv),
    ("attention.self.key", Role::Qkv),
    ("attention.self.value", Role::Qkv),
    ("attention.output.dense", Role::Out),
    ("intermediate.dense", Role::Up),
    ("output.dense", Role::Down),
    ("gate_proj", Role::Gate),
    ("up_proj", Role::Up),
    ("down_proj", Role::Down),
    ("fc1", Role::Up),
    ("fc2", Role::Down),
    ("lm_head", Role::Head),
    ("mlp.gate", Role::Router),
    ("block_sparse_moe.gate", Role::Router),
    ("moe.gate", Role::Router),
];

/// Widths beyond which a file is damaged rather than wide; products of sizes stay exact below it.
const MAX_WIDTH: u64 = 1 << 18;

fn role(name: &str) -> Option<Role> {
    ROLES.iter().find(|(ending, _)| name.ends_with(ending)).map(|(_, role)| *role)
}

/// The number of the layer in a path such as `model.layers.3.mlp.up_proj`.
fn layer_of(name: &str) -> Option<u64> {
    let mut parts = name.split('.').peekable();
    while let Some(part) = parts.next() {
        if matches!(part, "layers" | "layer" | "h" | "blocks" | "block") {
            return parts.peek().and_then(|next| next.parse().ok());
        }
    }
    None
}

/// Forward products with their names.
fn products(iteration: &Iteration) -> impl Iterator<Item = (&Step, &Gemm)> {
    iteration.steps.iter().filter(|s| s.phase == Phase::Forward).filter_map(|s| match &s.call.op {
        Op::Gemm(g) => Some((s, g)),
        _ => None,
    })
}

impl Transformer {
    /// The transformer that this iteration runs, or which part of it is not one.
    pub fn recognise(name: &str, iteration: &Iteration) -> Result<Self, ClusterError> {
        let refuse = |what: String| {
            ClusterError::Model(format!(
                "`{name}` cannot be cut by tensors or layers: {what}; data parallelism (--dp, --zero, --fsdp) works for any model"
            ))
        };
        let forward = || iteration.steps.iter().filter(|s| s.phase == Phase::Forward);
        let attention = forward()
            .find_map(|s| match &s.call.op {
                Op::Attention(a) if s.call.pass == Pass::Fwd => Some(*a),
                _ => None,
            })
            .ok_or_else(|| refuse("it has no fused attention".into()))?;
        let mut layers = BTreeSet::new();
        let mut experts_seen = BTreeSet::new();
        let (mut qkv, mut width, mut inner, mut gated, mut bias) = (0, 0, 0, false, false);
        let (mut down, mut out, mut vocabulary, mut router, mut picked) = (false, false, 0, 0, 0);
        for (step, gemm) in products(iteration) {
            let Some(role) = role(&step.name) else {
                if let Some(layer) =
                    layer_of(&step.name).filter(|_| gemm.kind != preflop_core::ops::GemmKind::Bmm)
                {
                    return Err(refuse(format!("the role of `{}` (layer {layer}) is not known", step.name)));
                }
                continue;
            };
            if role == Role::Head {
                vocabulary = gemm.n;
                continue;
            }
            let Some(layer) = layer_of(&step.name) else { continue };
            layers.insert(layer);
            let first = layers.len() == 1;
            match role {
                Role::Qkv if first => {
                    qkv += gemm.n;
                    width = gemm.k;
                    bias |= gemm.bias;
                }
                Role::Out => out = true,
                Role::Up if first => {
                    inner = gemm.n;
                    picked += gemm.m * u64::from(step.count);
                    if let Some((_, rest)) = step.name.split_once("experts.") {
                        experts_seen.insert(rest.split('.').next().unwrap_or_default().to_string());
                    }
                }
                Role::Gate => gated = true,
                Role::Down => down = true,
                Role::Router if first => router = gemm.n,
                _ => {}
            }
        }
        let missing: Vec<&str> = [
            (qkv == 0, "query, key and value"),
            (!out, "attention output"),
            (inner == 0, "up"),
            (!down, "down"),
        ]
        .iter()
        .filter(|(lacks, _)| *lacks)
        .map(|(_, what)| *what)
        .collect();
        if !missing.is_empty() {
            return Err(refuse(format!("no {} products were found by name", missing.join(", "))));
        }
        if qkv != (attention.heads + 2 * attention.kv_heads) * attention.head_dim {
            return Err(refuse(format!(
                "its {qkv} query, key and value columns are not those of {} and {} heads of {}",
                attention.heads, attention.kv_heads, attention.head_dim
            )));
        }
        let largest = width.max(inner).max(qkv / 4).max(vocabulary / 64).max(router);
        if largest > MAX_WIDTH || layers.len() > 1 << 12 {
            return Err(refuse(format!("a width of {largest} is beyond any model")));
        }
        let mut tables: Vec<u64> = forward()
            .filter_map(|s| match &s.call.op {
                Op::Embedding(e) if e.dim == width => Some(e.vocab),
                _ => None,
            })
            .collect();
        tables.sort_unstable();
        let tokens = iteration.samples.max(1) * attention.q_len;
        let table = tables.last().copied().unwrap_or(vocabulary);
        let layer_norm =
            forward().any(|s| matches!(&s.call.op, Op::Rowwise(r) if r.kind == RowwiseKind::LayerNorm));
        let dropout = attention.dropout
            || forward()
                .any(|s| matches!(&s.call.op, Op::Elementwise(e) if e.kind == ElementwiseKind::Dropout));
        let experts =
            (router > 0).then(|| Experts { count: router, taken: (picked / tokens.max(1)).clamp(1, router) });
        let mut model = Self {
            name: name.to_string(),
            layers: layers.len() as u64,
            width,
            heads: attention.heads,
            kv_heads: attention.kv_heads,
            head_dim: attention.head_dim,
            inner,
            gated,
            vocabulary: if vocabulary > 0 { vocabulary } else { table },
            positions: if tables.len() > 1 { tables[tables.len() - 2] } else { 0 },
            tied: false,
            norm: if layer_norm { Norm::Layer } else { Norm::Rms },
            bias,
            dropout,
            causal: attention.causal,
            experts,
        };
        // The token table serves as output layer where the model has no parameters for both.
        model.tied = iteration.parameters < model.parameters();
        Ok(model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_core::model::{LowerOptions, Mode, Precision, lower, zoo};

    fn iteration(name: &str) -> Iteration {
        let graph = zoo::build(name, Some(1), None).unwrap();
        let options = LowerOptions { mode: Mode::Train, precision: Precision::Bf16, optimizer: None };
        lower(&graph, &options).unwrap()
    }

    #[test]
    fn models_of_the_zoo_are_recognised_with_all_their_parameters() {
        for name in ["gpt2", "gpt2-xl", "llama-3-8b", "llama-2-7b", "gpt3-2.7b"] {
            let it = iteration(name);
            let model = Transformer::recognise(name, &it).unwrap();
            let ratio = model.parameters() as f64 / it.parameters as f64;
            assert!((ratio - 1.0).abs() < 1e-3, "{name} {ratio} {model:?}");
        }
    }

    #[test]
    fn what_is_not_a_transformer_is_refused_by_name() {
        let error = Transformer::recognise("resnet50", &iteration("resnet50")).unwrap_err().to_string();
        assert!(error.contains("`resnet50`") && error.contains("data parallelism"), "{error}");
    }
}
