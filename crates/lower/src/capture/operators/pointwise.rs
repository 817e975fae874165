//! Elementwise arithmetic, casts, copies, fills, concatenation.

use super::super::view::{Call, Tensor};
use super::elementwise;
use preflop_ops::{ElementwiseKind as E, Movement, MovementKind, Op, OpCall, Pairing};
use preflop_units::dtype::Dtype;

/// Functions of one tensor and their gradients, by the kernel that reads and writes as much.
const FUNCTIONS: &[(&str, E)] = &[
    ("relu", E::Relu),
    ("hardtanh", E::Relu),
    ("leaky_relu", E::Relu),
    ("hardsigmoid", E::Relu),
    ("elu", E::Relu),
    ("clamp", E::Relu),
    ("clamp_min", E::Relu),
    ("clamp_max", E::Relu),
    ("gelu", E::Gelu),
    ("tanh", E::Tanh),
    ("sin", E::Tanh),
    ("cos", E::Tanh),
    ("sigmoid", E::Sigmoid),
    ("silu", E::Silu),
    ("hardswish", E::Silu),
    ("pow", E::Pow),
    ("rsqrt", E::Pow),
    ("sqrt", E::Pow),
    ("exp", E::Pow),
    ("log", E::Pow),
    ("reciprocal", E::Pow),
    ("neg", E::AddScalar),
    ("abs", E::AddScalar),
    ("threshold_backward", E::ReluBwd),
    ("hardtanh_backward", E::ReluBwd),
    ("leaky_relu_backward", E::ReluBwd),
    ("hardsigmoid_backward", E::ReluBwd),
    ("elu_backward", E::ReluBwd),
    ("gelu_backward", E::GeluBwd),
    ("tanh_backward", E::TanhBwd),
    ("sigmoid_backward", E::SigmoidBwd),
    ("silu_backward", E::SiluBwd),
    ("hardswish_backward", E::SiluBwd),
    ("native_dropout", E::Dropout),
    ("native_dropout_backward", E::DropoutBwd),
];

/// Tensors written without reading any.
const FILLS: &[&str] = &[
    "fill",
    "zero",
    "zeros",
    "zeros_like",
    "new_zeros",
    "ones",
    "ones_like",
    "new_ones",
    "full",
    "full_like",
    "new_full",
    "scalar_tensor",
    "arange",
    "linspace",
    "eye",
    "bernoulli",
    "normal",
    "normal_functional",
    "uniform",
    "random",
    "rand",
    "randn",
    "rand_like",
    "randn_like",
    "randint",
    "randperm",
    "tril_indices",
];

pub(super) fn kernels(name: &str, in_place: bool, call: &Call<'_>) -> Option<Vec<OpCall>> {
    if let Some((_, kind)) = FUNCTIONS.iter().find(|(n, _)| *n == name) {
        let x = call.tensor(0)?;
        return Some(vec![elementwise(*kind, x.elements(), x.dtype)]);
    }
    if FILLS.contains(&name) {
        let y = call.output(0)?;
        return Some(if y.on_gpu() { vec![elementwise(E::Fill, y.elements(), y.dtype)] } else { Vec::new() });
    }
    match name {
        "add" | "sub" | "rsub" | "mul" | "div" => binary(name, in_place, call),
        "where" | "masked_fill" => {
            let y = call.output(0)?;
            let new = name == "masked_fill" && !in_place;
            let kind = if new { E::MaskedFill } else { E::Where };
            Some(vec![elementwise(kind, y.elements(), y.dtype)])
        }
        "clone" | "copy" | "_to_copy" => copy(name, call),
        "cat" | "stack" => cat(call),
        "select_backward" | "slice_backward" | "diagonal_backward" => {
            // Zeros with the piece copied in.
            let (grad, y) = (call.tensor(0)?, call.output(0)?);
            let cols = grad.sizes.last().copied().unwrap_or(1).max(1);
            let piece = Movement { kind: MovementKind::Permute, rows: grad.elements() / cols, cols };
            Some(vec![
                elementwise(E::Fill, y.elements(), y.dtype),
                OpCall::fwd(Op::Movement(piece), grad.dtype),
            ])
        }
        "roll" | "flip" | "repeat" | "constant_pad_nd" | "tril" | "triu" | "index_fill" => {
            let y = call.output(0)?;
            Some(vec![elementwise(E::Copy, y.elements(), y.dtype)])
        }
        // One number to the host.
        "_local_scalar_dense" | "_linalg_check_errors" => {
            Some(vec![elementwise(E::Copy, 1, call.tensor(0)?.dtype)])
        }
        _ if name.starts_with("_foreach") || name.starts_with("_amp_foreach") => foreach(call),
        _ if call.op.pointwise => generic(call),
        _ => None,
    }
}

/// A sum or product of two tensors, or of one and a number.
fn binary(name: &str, in_place: bool, call: &Call<'_>) -> Option<Vec<OpCall>> {
    let y = call.output(0).filter(Tensor::on_gpu)?;
    let n = y.elements();
    let dtype = if in_place { call.tensor(0)?.dtype } else { y.dtype };
    let kind = match (call.tensor(0), call.tensor(1)) {
        (Some(a), Some(b)) if crosses(&a, &b) => return Some(vec![transposed_copy(y)]),
        (Some(a), Some(b))
            if a.elements().min(b.elements()) > 1 || n == 1 && a.elements().min(b.elements()) == 1 =>
        {
            E::of_pair(matches!(name, "mul" | "div"), pairing(&a, &b, &y))
        }
        _ => E::AddScalar,
    };
    Some(vec![elementwise(kind, n, dtype)])
}

/// Do two tensors of one shape lie across each other, so that one of them is read down its columns? Such a kernel takes as long as
/// one that transposes.
fn crosses(a: &Tensor<'_>, b: &Tensor<'_>) -> bool {
    let steps =
        |t: &Tensor<'_>| t.sizes.last().is_some_and(|n| *n > 1) && t.strides.last().is_some_and(|s| *s > 1);
    a.sizes == b.sizes && a.dtype == b.dtype && steps(a) != steps(b)
}

fn pairing(a: &Tensor<'_>, b: &Tensor<'_>, y: &Tensor<'_>) -> Pairing {
    let small = if a.elements() < b.elements() { a } else { b };
    let mixed = a.dtype != b.dtype && a.dtype != Dtype::Int64 && b.dtype != Dtype::Int64;
    if small.elements().saturating_mul(4) <= y.elements() {
        let last = y.sizes.last().copied().unwrap_or(1);
        let row = small.elements() == last && small.sizes.last() == Some(&last) && !mixed;
        return if row { Pairing::Row } else { Pairing::Channel };
    }
    if mixed {
        Pairing::Mixed
    } else if a.sizes == b.sizes && !a.lies_like(b) {
        Pairing::Strided
    } else {
        Pairing::Alike
    }
}

/// By the number of tensors read.
fn generic(call: &Call<'_>) -> Option<Vec<OpCall>> {
    let y = call.output(0)?;
    let n = y.elements();
    let inputs = call.inputs();
    let wide = inputs.iter().filter(|t| t.elements().saturating_mul(4) > n && t.elements() > 1).count();
    let spread = inputs.iter().any(|t| t.elements().saturating_mul(4) <= n && t.elements() > 1);
    let kind = match wide {
        1 if spread => E::AddChannel,
        0 | 1 => E::AddScalar,
        2 => E::Add,
        _ => E::Where,
    };
    // Comparisons read wide numbers and write flags.
    let dtype = inputs.iter().map(|t| t.dtype).max_by(|a, b| a.size().total_cmp(&b.size()));
    Some(vec![elementwise(kind, n, dtype.unwrap_or(y.dtype))])
}

/// An elementwise operator over lists of tensors that belongs to no optimizer we know.
fn foreach(call: &Call<'_>) -> Option<Vec<OpCall>> {
    let first = call.list(0);
    let n = first.iter().map(Tensor::elements).sum();
    let dtype = first.first()?.dtype;
    let kind = if call.list(1).is_empty() { E::AddScalar } else { E::Add };
    Some(if first.iter().any(Tensor::on_gpu) { vec![elementwise(kind, n, dtype)] } else { Vec::new() })
}

/// The kernel that copies `x` into row-major order: whole runs of the last dimension, or a transpose.
pub(super) fn movement(x: Tensor<'_>) -> OpCall {
    let last = x.sizes.last().copied().unwrap_or(1).max(1);
    let inner = x.strides.last().copied().unwrap_or(1);
    if x.is_contiguous() || (x.is_dense() && x.dtype == Dtype::Int64) {
        return elementwise(E::Copy, x.elements(), x.dtype);
    }
    let kind = if inner == 1 || last == 1 { MovementKind::Permute } else { MovementKind::Transpose };
    OpCall::fwd(Op::Movement(Movement { kind, rows: x.elements() / last, cols: last }), x.dtype)
}

/// A row-major tensor copied into another order.
pub(super) fn transposed_copy(x: Tensor<'_>) -> OpCall {
    let last = x.sizes.last().copied().unwrap_or(1).max(1);
    let op = Movement { kind: MovementKind::Transpose, rows: x.elements() / last, cols: last };
    OpCall::fwd(Op::Movement(op), x.dtype)
}

fn copy(name: &str, call: &Call<'_>) -> Option<Vec<OpCall>> {
    // copy_(to, from); clone(from) and _to_copy(from) have their result.
    let (from, to) =
        if name == "copy" { (call.tensor(1)?, call.tensor(0)?) } else { (call.tensor(0)?, call.output(0)?) };
    if !from.on_gpu() && !to.on_gpu() {
        return Some(Vec::new());
    }
    if from.on_gpu() != to.on_gpu() {
        let way = if to.on_gpu() { "copy from the host" } else { "copy to the host" };
        let bytes = to.bytes().saturating_mul(2);
        return Some(vec![OpCall::fwd(Op::Unmodelled { name: way.to_owned(), bytes }, to.dtype)]);
    }
    if from.dtype != to.dtype {
        return Some(vec![elementwise(E::Cast, to.elements(), from.dtype)]);
    }
    if from.sizes == to.sizes && from.strides == to.strides && from.is_dense() {
        return Some(vec![elementwise(E::Copy, to.elements(), to.dtype)]);
    }
    if from.is_contiguous() && !to.is_contiguous() {
        return Some(vec![movement(Tensor { sizes: to.sizes, strides: to.strides, ..from })]);
    }
    Some(vec![movement(Tensor { sizes: from.sizes, strides: from.strides, ..from })])
}

/// One kernel that writes the result; our operator counts two halves.
fn cat(call: &Call<'_>) -> Option<Vec<OpCall>> {
    let y = call.output(0)?;
    let dim = call.dimension(1, y.sizes.len(), 0);
    if let (1, [batch, channels, h, w]) = (dim, y.sizes)
        && call.list(0).iter().all(Tensor::is_channels_last)
    {
        // Joined along the channels, which lie together.
        let op = Movement { kind: MovementKind::Cat, rows: batch * h * w, cols: (channels / 2).max(1) };
        return Some(vec![OpCall::fwd(Op::Movement(op), y.dtype)]);
    }
    let rows: u64 = y.sizes.get(..dim)?.iter().product();
    let cols = (y.sizes.get(dim..)?.iter().product::<u64>() / 2).max(1);
    let whole = call.list(0).iter().all(Tensor::is_contiguous);
    let kind = if whole { MovementKind::Cat } else { MovementKind::CatStrided };
    Some(vec![OpCall::fwd(Op::Movement(Movement { kind, rows, cols }), y.dtype)])
}
