//! State spaces as in Hugging Face's `MambaForCausalLM` (Gu and Dao 2023, arXiv:2312.00752) and `Mamba2ForCausalLM` (arXiv:2405.21060) with their own
//! kernels installed. The scan is one kernel that no form models: it is estimated from its bytes.

use super::super::builder::{Builder, Built, ConvSpec, Tensor};
use super::super::graph::{Graph, GraphOp, Unary};
use super::Sizes;

/// Sizes.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    /// The second version?
    pub second: bool,
    pub width: u64,
    pub inner: u64,
    pub layers: usize,
    pub state: u64,
    /// Width of what time steps are made of (first version).
    pub rank: u64,
    pub kernel: u64,
    /// Heads and groups of states (second version).
    pub heads: u64,
    pub groups: u64,
    pub vocabulary: u64,
    pub bias: bool,
    pub conv_bias: bool,
    pub tied: bool,
}

pub(super) fn assemble(s: Sizes<'_>, plan: Plan) -> Built<Graph> {
    let mut b = Builder::staged(s.name, s.batch, s.stage);
    let tokens = b.tokens(&[s.batch, s.seq])?;
    let (mut x, table) = b.embedding("backbone.embeddings", tokens, plan.vocabulary, plan.width)?;
    for i in 0..plan.layers {
        x = b.module(&format!("backbone.layers.{i}"), x, |b, x| {
            let y = b.hf_rms_norm("norm", x)?;
            let y = b.module(
                "mixer",
                y,
                |b, y| if plan.second { second(b, y, plan) } else { first(b, y, plan) },
            )?;
            b.add(x, y)
        })?;
    }
    let x = b.hf_rms_norm("backbone.norm_f", x)?;
    let logits = if plan.tied {
        b.count_module();
        b.linear_with("lm_head", x, table, None)?
    } else {
        b.linear("lm_head", x, plan.vocabulary, false)?
    };
    b.finish_language(logits)
}

/// A causal convolution of every channel over the tokens, and its SiLU.
fn convolved(b: &mut Builder, y: Tensor, plan: Plan) -> Built {
    let shape = b.shape(y);
    let [batch, seq, channels] = [shape[0], shape[1], shape[2]];
    let y = b.transpose(y, 1, 2)?;
    let y = b.view(y, &[batch, channels, 1, seq])?;
    let spec =
        ConvSpec::rect(channels, 1, plan.kernel).pad_hw(0, plan.kernel.saturating_sub(1)).groups(channels);
    let y = b.conv2d("conv1d", y, if plan.conv_bias { spec } else { spec.no_bias() })?;
    let y = b.slice(y, 3, seq)?;
    let y = b.view(y, &[batch, channels, seq])?;
    let y = b.transpose(y, 1, 2)?;
    b.activation("act", y, Unary::Silu, false)
}

fn scan(b: &mut Builder, inputs: &[Tensor], shape: &[u64]) -> Built {
    b.call("scan", GraphOp::Unmodelled { name: "selective_scan".to_owned() }, inputs, &[], shape)
}

fn first(b: &mut Builder, y: Tensor, plan: Plan) -> Built {
    let shape = b.shape(y).with(2, plan.inner);
    let both = b.linear("in_proj", y, 2 * plan.inner, plan.bias)?;
    let parts = b.chunk(both, 2, 2)?;
    let x = convolved(b, parts[0], plan)?;
    let made = b.linear("x_proj", x, plan.rank + 2 * plan.state, false)?;
    let pieces = b.split(made, &[plan.rank, plan.state, plan.state], 2)?;
    let steps = b.linear("dt_proj", pieces[0], plan.inner, true)?;
    b.parameter("A_log", &[plan.inner, plan.state]);
    b.parameter("D", &[plan.inner]);
    let y = scan(b, &[x, steps, pieces[1], pieces[2], parts[1]], &shape)?;
    b.linear("out_proj", y, plan.width, plan.bias)
}

fn second(b: &mut Builder, y: Tensor, plan: Plan) -> Built {
    let shape = b.shape(y).with(2, plan.inner);
    let mixed = plan.inner + 2 * plan.groups * plan.state;
    let all = b.linear("in_proj", y, plan.inner + mixed + plan.heads, plan.bias)?;
    let parts = b.split(all, &[plan.inner, mixed, plan.heads], 2)?;
    let x = convolved(b, parts[1], plan)?;
    for name in ["dt_bias", "A_log", "D"] {
        b.parameter(name, &[plan.heads]);
    }
    let y = scan(b, &[x, parts[2]], &shape)?;
    let gate = b.unary(parts[0], Unary::Silu)?;
    let y = b.mul(y, gate)?;
    let y = b.hf_rms_norm("norm", y)?;
    b.linear("out_proj", y, plan.width, plan.bias)
}
