//! Optimizer steps: the operators that together are one of ours.
//!
//! Adam is seven operators (`lerp_`, `mul_`, `addcmul_`, `sqrt`, `div_`, `add_`, `addcdiv_`), over lists or tensor by tensor;
//! SGD with momentum is three over lists (`mul_`, `add_`, `add_`), without it one; fused steps are one call. What else an
//! optimizer runs (decay, clipping, averages) stays as it is.

use super::super::document::Capture;
use super::super::view::{Call, Tensor};
use preflop_graph::{Phase, Step};
use preflop_ops::{Listed, ListedKind, Op, OpCall, Optimizer, OptimizerKind};
use preflop_units::dtype::Dtype;
use std::collections::HashMap;

/// Operators of Adam before the last one, `addcdiv`.
const ADAM: [&str; 6] = ["lerp", "mul", "addcmul", "sqrt", "div", "add"];

/// The format of the largest tensor: states have that of their parameters.
fn format(tensors: &[Tensor<'_>]) -> Dtype {
    tensors.iter().max_by_key(|t| t.elements()).map_or(Dtype::Fp32, |t| t.dtype)
}

fn step(kind: OptimizerKind, tensors: &[Tensor<'_>]) -> Vec<OpCall> {
    let params = tensors.iter().map(Tensor::elements).sum();
    let op = Optimizer { kind, params, tensors: tensors.len() as u64 };
    if params == 0 { Vec::new() } else { vec![OpCall::fwd(Op::Optimizer(op), format(tensors))] }
}

/// What the operators of optimizer steps become, by their place; those that are left out stay as they are.
pub(super) fn plan(capture: &Capture) -> HashMap<usize, Vec<OpCall>> {
    let mut plan = HashMap::new();
    // Places of operators that wait for the one which tells what they belong to.
    let mut waiting: Vec<(usize, String)> = Vec::new();
    let all = capture.ops.iter().enumerate().filter(|(_, op)| op.phase == Phase::Optimizer);
    for (i, op) in all {
        let call = Call::new(capture, op);
        let (name, _) = call.plain_name();
        let (stem, list) = match name.strip_prefix("_foreach_") {
            Some(stem) => (stem, true),
            None => (name, false),
        };
        let on_gpu = call.inputs().iter().any(Tensor::on_gpu);
        match name {
            _ if !on_gpu => {
                // Step counters on the host.
                plan.insert(i, Vec::new());
            }
            "_fused_adam" | "_fused_adamw" => {
                plan.insert(i, step(OptimizerKind::AdamFused, &call.list(0)));
            }
            "_fused_sgd" => {
                let list = call.list(0);
                let n = list.iter().map(Tensor::elements).sum();
                let op = Listed::new(ListedKind::SgdFused, &[n, list.len() as u64]);
                plan.insert(i, vec![OpCall::fwd(Op::Listed(op), format(&list))]);
            }
            _ if stem == "addcdiv" => {
                let tensors = if list { call.list(0) } else { call.tensor(0).into_iter().collect() };
                let kind = if list { OptimizerKind::AdamForeach } else { OptimizerKind::AdamSingle };
                for wanted in ADAM {
                    let key = if list { format!("_foreach_{wanted}") } else { wanted.to_owned() };
                    if let Some(at) = waiting.iter().rposition(|(_, n)| *n == key) {
                        plan.insert(waiting.remove(at).0, Vec::new());
                    }
                }
                plan.insert(i, step(kind, &tensors));
            }
            _ => waiting.push((i, name.to_owned())),
        }
    }
    momentum(capture, &waiting, &mut plan);
    plan
}

/// SGD over lists: `mul_` and `add_` of the buffers, `add_` of the parameters.
fn momentum(capture: &Capture, waiting: &[(usize, String)], plan: &mut HashMap<usize, Vec<OpCall>>) {
    let tensors_of = |i: usize| Call::new(capture, &capture.ops[i]).list(0);
    let mut i = 0;
    while i < waiting.len() {
        let name = |k: usize| waiting.get(k).map(|w| w.1.as_str());
        let (used, kind) = match (name(i), name(i + 1), name(i + 2)) {
            (Some("_foreach_mul"), Some("_foreach_add"), Some("_foreach_add")) => {
                (3, OptimizerKind::SgdForeach)
            }
            (Some("_foreach_add"), _, _) if !is_decay(capture, waiting[i].0) => (1, OptimizerKind::SgdPlain),
            _ => (0, OptimizerKind::SgdPlain),
        };
        if used > 0 {
            for (at, _) in &waiting[i..i + used] {
                plan.insert(*at, Vec::new());
            }
            plan.insert(waiting[i + used - 1].0, step(kind, &tensors_of(waiting[i + used - 1].0)));
        }
        i += used.max(1);
    }
}

/// Weight decay makes new tensors (`grads = grads + decay * params`); a step writes over the parameters.
fn is_decay(capture: &Capture, at: usize) -> bool {
    !capture.ops[at].name.ends_with('_')
}

/// Single-tensor steps of one size are one step with a count.
pub(super) fn grouped(steps: Vec<Step>) -> Vec<Step> {
    let mut out: Vec<Step> = Vec::with_capacity(steps.len());
    let mut places: HashMap<OpCall, usize> = HashMap::new();
    for step in steps {
        let single = matches!(step.call.op, Op::Optimizer(o) if o.kind == OptimizerKind::AdamSingle);
        if !single {
            out.push(step);
        } else if let Some(&at) = places.get(&step.call) {
            out[at].count += 1;
        } else {
            places.insert(step.call.clone(), out.len());
            out.push(step);
        }
    }
    out
}
