//! Mixtures of experts (Jiang et al. 2024, arXiv:2401.04088): the router's softmax, then every expert on its share of the tokens, taken as
//! equal shares; picking and putting back are copies of whole rows.

use super::super::builder::{Builder, Built, Tensor};
use super::super::graph::Unary;
use super::decoder::{Plan, gated};

/// Experts of a decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Experts {
    /// How many.
    pub count: u64,
    /// How many each token takes.
    pub taken: u64,
    /// Width inside one.
    pub inner: u64,
    /// Width inside the expert that every token takes; 0 without one.
    pub shared: u64,
    /// Is the shared expert weighed by a number of its own?
    pub shared_gate: bool,
    /// Bias of the router, and biases of the experts?
    pub bias: bool,
    /// Layers at the start that have none.
    pub dense_first: u64,
    /// Every how many layers have some.
    pub every: u64,
    /// Width inside the layers that have none.
    pub dense_inner: u64,
}

impl Experts {
    /// Has this layer experts?
    pub fn has(&self, layer: u64) -> bool {
        layer >= self.dense_first && (layer + 1).is_multiple_of(self.every.max(1))
    }
}

pub(super) fn mixture(b: &mut Builder, y: Tensor, plan: Plan, experts: Experts) -> Built {
    let shape = b.shape(y);
    let Experts { count, taken, .. } = experts;
    let tokens = shape[0].saturating_mul(shape[1]);
    let flat = b.view(y, &[tokens, plan.width])?;
    let scores = b.linear("gate", flat, count, experts.bias)?;
    let weights = b.softmax(scores)?;
    let work = tokens.saturating_mul(taken);
    let rows = work.div_ceil(count).min(tokens);
    let busy = work.div_ceil(rows).min(count);
    let one = Plan { inner: experts.inner, inner_bias: experts.bias, ..plan };
    let mut parts = Vec::new();
    for e in 0..count {
        let part = b.scope(&format!("experts.{e}"), |b| {
            if e >= busy {
                idle(b, one);
                return Ok(None);
            }
            let last = work.saturating_sub(e * rows).min(rows);
            let picked = b.slice(flat, 0, last)?;
            let picked = b.reorder("pick", picked, &[last, plan.width])?;
            b.count_module();
            let out = gated(b, picked, one)?;
            Ok(Some(b.unary(out, Unary::MulScalar)?))
        })?;
        parts.extend(part);
    }
    b.hold(weights);
    let joined = b.cat(&parts, 0)?;
    let joined = b.view(joined, &[taken, tokens, plan.width])?;
    let sum = b.sum(joined, &[0], false)?;
    let sum = b.view(sum, &shape)?;
    if experts.shared == 0 {
        return Ok(sum);
    }
    let shared = Plan { inner: experts.shared, inner_bias: false, ..plan };
    let mut all = b.module("shared_expert", y, |b, y| gated(b, y, shared))?;
    if experts.shared_gate {
        let weight = b.linear("shared_expert_gate", y, 1, false)?;
        let weight = b.unary(weight, Unary::Sigmoid)?;
        all = b.mul(all, weight)?;
    }
    b.add(sum, all)
}

/// The parameters of an expert that no token takes.
fn idle(b: &mut Builder, plan: Plan) {
    let mut linear = |name: &str, out: u64, input: u64| {
        b.parameter(&format!("{name}.weight"), &[out, input]);
        if plan.inner_bias {
            b.parameter(&format!("{name}.bias"), &[out]);
        }
    };
    if plan.joined_gate {
        linear("gate_up_proj", 2 * plan.inner, plan.width);
    } else {
        linear("gate_proj", plan.inner, plan.width);
        linear("up_proj", plan.inner, plan.width);
    }
    linear("down_proj", plan.width, plan.inner);
}
