//! From a recorded operator to the work it asks for: our operator calls, FLOPs, bytes and family.

mod matrix;
mod pointwise;
mod sequence;
mod spatial;

use super::inputs::{self, Input};
use super::kernel_name::KernelFamily;
use super::{HostOp, Names};
use preflop_ops::{Op, OpCall};
use preflop_units::dtype::Dtype;
use preflop_units::{Bytes, Flops};

/// What one recorded operator asks of the GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    /// The calls that our model predicts; empty when the operator is not modelled or its shapes are unknown.
    pub calls: Vec<OpCall>,
    /// FLOPs.
    pub flops: Flops,
    /// Compulsory traffic.
    pub bytes: Bytes,
    /// Family.
    pub family: KernelFamily,
    /// Number format of its main input.
    pub dtype: Option<Dtype>,
}

impl Work {
    /// Work of modelled calls.
    fn of(calls: Vec<OpCall>, family: KernelFamily) -> Self {
        let flops = calls.iter().map(OpCall::flops).sum();
        let bytes = calls.iter().map(|c| c.traffic().total()).sum();
        let dtype = calls.first().map(|c| c.dtype);
        Self { calls, flops, bytes, family, dtype }
    }

    /// Work without arithmetic intensity: the shapes are unknown.
    pub fn unknown(family: KernelFamily) -> Self {
        Self { calls: Vec::new(), flops: Flops::ZERO, bytes: Bytes::ZERO, family, dtype: None }
    }

    /// The same work with fp32 products on tensor cores, as kernel names show it.
    #[must_use]
    pub fn with_tf32(&self) -> Self {
        let mut work = self.clone();
        for call in &mut work.calls {
            let product = matches!(call.op, Op::Gemm(_) | Op::Conv(_) | Op::Attention(_) | Op::Rnn(_));
            if product && call.dtype == Dtype::Fp32 {
                call.dtype = Dtype::Tf32;
            }
        }
        if work.dtype == Some(Dtype::Fp32) {
            work.dtype = Some(Dtype::Tf32);
        }
        work
    }
}

/// The name without its library prefix, and without the underscore of in-place variants.
fn plain(name: &str) -> &str {
    let name = name.rsplit("::").next().unwrap_or(name);
    match name.strip_suffix('_') {
        Some(stem) if !stem.is_empty() => stem,
        _ => name,
    }
}

/// Type of the first tensor that has one.
fn main_dtype(inputs: &[Input]) -> Option<Dtype> {
    inputs.iter().filter(|i| i.elements() > 0.0).find_map(|i| match i.dtype() {
        Some(Dtype::Int64 | Dtype::Int8) | None => None,
        other => other,
    })
}

/// The work of a recorded operator, or `None` where its name says nothing to us.
pub fn work(op: &HostOp, names: &Names) -> Option<Work> {
    let inputs = inputs::read(op, names);
    let name = names.text(op.name);
    work_of(plain(name), &inputs, op.backward)
}

/// As [`work`], from the plain name and the inputs.
pub fn work_of(name: &str, inputs: &[Input], backward: bool) -> Option<Work> {
    matrix::work(name, inputs, backward)
        .or_else(|| spatial::work(name, inputs))
        .or_else(|| sequence::work(name, inputs))
        .or_else(|| pointwise::work(name, inputs))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Inputs from sizes and types; the scalars by position.
    pub fn tensors(dims: &[&[u64]], kind: &str, scalars: &[(usize, &str)]) -> Vec<Input> {
        let count = dims.len().max(scalars.iter().map(|s| s.0 + 1).max().unwrap_or(0));
        (0..count)
            .map(|i| Input {
                dims: dims.get(i).map(|d| d.to_vec()).unwrap_or_default(),
                kind: if dims.get(i).is_some_and(|d| !d.is_empty()) { kind.into() } else { "Scalar".into() },
                value: scalars.iter().find(|s| s.0 == i).map(|s| s.1.to_string()).unwrap_or_default(),
                ..Input::default()
            })
            .collect()
    }

    #[test]
    fn plain_names() {
        assert_eq!(plain("aten::add_"), "add");
        assert_eq!(plain("aten::_log_softmax"), "_log_softmax");
        assert_eq!(plain("_"), "_");
    }

    #[test]
    fn an_unknown_operator_is_no_work() {
        assert_eq!(work_of("moe_forward", &[], false), None);
    }
}
