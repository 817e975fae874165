//! From ATen operators to ours: one recorded call becomes the kernels that PyTorch runs for it on an NVIDIA GPU.
//!
//! The rules are those by which `model::lower` expands the zoo, read in the other direction, so that a zoo model and the
//! recorded run of the same network give the same operators.

mod fused;
mod layers;
mod listed;
mod optimizer;
mod pointwise;
mod products;

use super::document::{Capture, Operator};
use super::view::{Call, Tensor};
use crate::eager::{layout_workspace, nhwc_copies, rnn_workspace};
use preflop_graph::{Phase, Step};
use preflop_ops::{Elementwise, ElementwiseKind, Op, OpCall, Pass};
use preflop_units::dtype::Dtype;
use std::collections::HashSet;

/// What the whole recording says about single calls.
#[derive(Debug)]
struct Context {
    tf32_products: bool,
    tf32_convolutions: bool,
    /// Log-probabilities that go into a loss: both operators are one of ours.
    in_losses: HashSet<u32>,
    phase: Phase,
}

impl Context {
    fn product(&self, dtype: Dtype) -> Dtype {
        if dtype == Dtype::Fp32 && self.tf32_products { Dtype::Tf32 } else { dtype }
    }

    fn convolution(&self, dtype: Dtype) -> Dtype {
        if dtype == Dtype::Fp32 && self.tf32_convolutions { Dtype::Tf32 } else { dtype }
    }
}

/// Operators that launch nothing, besides views.
const FREE: &[&str] = &[
    "_unsafe_view",
    "_reshape_alias",
    "alias",
    "as_strided",
    "detach",
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "lift_fresh",
    "new_empty",
    "new_empty_strided",
    "record_stream",
    "resize",
    "set",
    "squeeze",
    "swapdims",
    "t",
    "transpose",
    "unsqueeze",
    "_cudnn_init_dropout_state",
    "is_pinned",
];

/// The operators of the iteration in order.
pub(super) fn steps(capture: &Capture) -> Vec<Step> {
    let mut context = context(capture);
    let mut steps = Vec::with_capacity(capture.ops.len());
    let plan = optimizer::plan(capture);
    for (i, op) in capture.ops.iter().enumerate() {
        context.phase = op.phase;
        let (calls, count) = match plan.get(&i) {
            Some(planned) => (planned.clone(), 1),
            None => (kernels(&Call::new(capture, op), &context), 1),
        };
        let name = if op.module.is_empty() { op.phase.name() } else { &op.module };
        steps.extend(calls.into_iter().map(|call| Step {
            name: name.to_owned(),
            phase: op.phase,
            call,
            count,
        }));
    }
    optimizer::grouped(steps)
}

/// Framework operators that one recorded operator stands for.
pub(super) fn dispatched(capture: &Capture, op: &Operator) -> u64 {
    if op.captured || op.replayed {
        return 0;
    }
    let call = Call::new(capture, op);
    match call.plain_name().0 {
        // The reserve that batch norm asks for is part of its call.
        "empty" if call.output(0).is_some_and(|t| t.elements() == 0) => 0,
        // Recorded as one, run as softmax, eq, all, a scalar and where.
        "_safe_softmax" => 5,
        _ => 1,
    }
}

/// Library workspaces: the operator's place in the recording, and bytes.
pub(super) fn workspaces(capture: &Capture) -> Vec<(u64, f64)> {
    let context = context(capture);
    let mut out = Vec::new();
    for (i, op) in capture.ops.iter().enumerate() {
        let call = Call::new(capture, op);
        let heavy = ["convolution", "convolution_backward", "_cudnn_rnn"].contains(&call.plain_name().0);
        if !heavy {
            continue;
        }
        let name = call.plain_name().0;
        let volume = products::volume(name, &call);
        let planar = products::convolutions(name, &call, &context).filter(|_| name.starts_with("conv"));
        for kernel in planar.unwrap_or_else(|| kernels(&call, &context)) {
            let bytes = match kernel.op {
                Op::Conv(conv) => match volume {
                    Some(extent) => nhwc_copies(&conv, extent, kernel.pass, kernel.dtype),
                    None => layout_workspace(&conv, kernel.pass, kernel.dtype),
                },
                Op::Rnn(rnn) if kernel.pass == Pass::Fwd => {
                    let weights = call.list(1).iter().map(Tensor::elements).sum();
                    rnn_workspace(&rnn, weights, kernel.dtype)
                }
                _ => 0.0,
            };
            if bytes > 0.0 {
                out.push((capture.first_op.saturating_add(i as u64), bytes));
            }
        }
    }
    out
}

fn context(capture: &Capture) -> Context {
    let losses = capture.ops.iter().filter(|op| op.name.contains("nll_loss") && op.name.ends_with("forward"));
    Context {
        tf32_products: capture.tf32_products,
        tf32_convolutions: capture.tf32_convolutions,
        in_losses: losses.filter_map(|op| Call::new(capture, op).tensor(0)?.storage).collect(),
        phase: Phase::Forward,
    }
}

/// The kernels of one recorded operator.
fn kernels(call: &Call<'_>, context: &Context) -> Vec<OpCall> {
    if call.op.captured {
        return Vec::new();
    }
    if let Some(kernel) = &call.op.fused {
        return vec![fused::launch(kernel, call)];
    }
    let (name, in_place) = call.plain_name();
    if call.op.view || FREE.contains(&name) {
        return Vec::new();
    }
    let touched = call.inputs().iter().chain(&call.outputs()).map(Tensor::elements).max().unwrap_or(0);
    if touched == 0 && !call.op.outputs.is_empty() {
        return Vec::new();
    }
    products::kernels(name, call, context)
        .or_else(|| listed::kernels(name, call, context))
        .or_else(|| layers::kernels(name, call, context))
        .or_else(|| pointwise::kernels(name, in_place, call))
        .unwrap_or_else(|| vec![unmodelled(call)])
}

/// Kept by name with its bytes.
fn unmodelled(call: &Call<'_>) -> OpCall {
    let inputs = call.inputs();
    let bytes = inputs.iter().chain(&call.outputs()).map(Tensor::bytes).sum();
    let dtype = inputs.first().map_or(Dtype::Fp32, |t| t.dtype);
    OpCall::fwd(Op::Unmodelled { name: call.op.name.clone(), bytes }, dtype)
}

fn elementwise(kind: ElementwiseKind, n: u64, dtype: Dtype) -> OpCall {
    OpCall::fwd(Op::Elementwise(Elementwise { kind, n }), dtype)
}
