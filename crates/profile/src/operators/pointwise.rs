//! Elementwise arithmetic, casts, copies, fills, dropout.

use super::{Input, Work, main_dtype};
use crate::kernel_name::KernelFamily;
use preflop_ops::{Elementwise, ElementwiseKind, Movement, MovementKind, Op, OpCall};
use preflop_units::Bytes;
use preflop_units::dtype::Dtype;

/// Operators with two tensors in, by plain name.
const BINARY: &[(&str, ElementwiseKind)] = &[
    ("add", ElementwiseKind::Add),
    ("sub", ElementwiseKind::Add),
    ("rsub", ElementwiseKind::Add),
    ("mul", ElementwiseKind::Mul),
    ("div", ElementwiseKind::Mul),
    ("maximum", ElementwiseKind::Add),
    ("minimum", ElementwiseKind::Add),
    ("lerp", ElementwiseKind::Add),
    ("addcmul", ElementwiseKind::Mul),
    ("addcdiv", ElementwiseKind::Mul),
    ("eq", ElementwiseKind::Add),
    ("ne", ElementwiseKind::Add),
    ("lt", ElementwiseKind::Add),
    ("le", ElementwiseKind::Add),
    ("gt", ElementwiseKind::Add),
    ("ge", ElementwiseKind::Add),
    ("bitwise_and", ElementwiseKind::Add),
    ("bitwise_or", ElementwiseKind::Add),
    ("logical_and", ElementwiseKind::Add),
    ("where", ElementwiseKind::Where),
    ("masked_fill", ElementwiseKind::Where),
    ("threshold_backward", ElementwiseKind::ReluBwd),
    ("gelu_backward", ElementwiseKind::GeluBwd),
    ("tanh_backward", ElementwiseKind::TanhBwd),
    ("sigmoid_backward", ElementwiseKind::SigmoidBwd),
    ("silu_backward", ElementwiseKind::SiluBwd),
    ("leaky_relu_backward", ElementwiseKind::ReluBwd),
    ("native_dropout_backward", ElementwiseKind::DropoutBwd),
];

/// Operators with one tensor in.
const UNARY: &[(&str, ElementwiseKind)] = &[
    ("relu", ElementwiseKind::Relu),
    ("clamp_min", ElementwiseKind::Relu),
    ("clamp", ElementwiseKind::Relu),
    ("hardtanh", ElementwiseKind::Relu),
    ("leaky_relu", ElementwiseKind::Relu),
    ("gelu", ElementwiseKind::Gelu),
    ("tanh", ElementwiseKind::Tanh),
    ("sigmoid", ElementwiseKind::Sigmoid),
    ("silu", ElementwiseKind::Silu),
    ("pow", ElementwiseKind::Pow),
    ("sqrt", ElementwiseKind::Pow),
    ("rsqrt", ElementwiseKind::Pow),
    ("exp", ElementwiseKind::Pow),
    ("log", ElementwiseKind::Pow),
    ("cos", ElementwiseKind::Pow),
    ("sin", ElementwiseKind::Pow),
    ("reciprocal", ElementwiseKind::Pow),
    ("neg", ElementwiseKind::AddScalar),
    ("abs", ElementwiseKind::AddScalar),
    ("bitwise_not", ElementwiseKind::AddScalar),
    ("native_dropout", ElementwiseKind::Dropout),
    ("bernoulli", ElementwiseKind::Dropout),
    ("fill", ElementwiseKind::Fill),
    ("zero", ElementwiseKind::Fill),
    ("arange", ElementwiseKind::Fill),
    ("normal", ElementwiseKind::Fill),
    ("uniform", ElementwiseKind::Fill),
    ("random", ElementwiseKind::Fill),
];

fn kind(table: &[(&str, ElementwiseKind)], name: &str) -> Option<ElementwiseKind> {
    table.iter().find(|(n, _)| *n == name).map(|(_, kind)| *kind)
}

/// Work of an elementwise operator, copy or fill.
pub fn work(name: &str, inputs: &[Input]) -> Option<Work> {
    if let Some(kind) = kind(BINARY, name) {
        let second = inputs.get(1).map_or(0.0, Input::elements);
        let scalar = second <= 1.0 && matches!(kind, ElementwiseKind::Add | ElementwiseKind::Mul);
        return elementwise(if scalar { ElementwiseKind::AddScalar } else { kind }, inputs);
    }
    if let Some(kind) = kind(UNARY, name) {
        return elementwise(kind, inputs);
    }
    match name {
        "copy" | "clone" | "_to_copy" | "contiguous" => copy(inputs),
        "cat" | "stack" => cat(inputs),
        n if n.starts_with("_foreach") || n.starts_with("_fused_adam") || n.starts_with("_fused_sgd") => {
            Some(optimizer(inputs))
        }
        _ => None,
    }
}

/// Elements of the broadcast output: the largest input decides, which is exact unless two inputs broadcast
/// against each other.
fn largest(inputs: &[Input]) -> Option<&Input> {
    inputs.iter().max_by(|a, b| a.elements().total_cmp(&b.elements())).filter(|i| i.elements() >= 1.0)
}

fn elementwise(kind: ElementwiseKind, inputs: &[Input]) -> Option<Work> {
    let large = largest(inputs)?;
    let n = large.elements();
    let dtype = large.dtype().unwrap_or(Dtype::Fp32);
    let call = OpCall::fwd(Op::Elementwise(Elementwise { kind, n: n as u64 }), dtype);
    let mut work = Work::of(vec![call], KernelFamily::Elementwise);
    // Each tensor as wide as it is: broadcast inputs are small, mixed types differ from the table's.
    let read: f64 = if kind == ElementwiseKind::Fill {
        0.0
    } else {
        inputs.iter().map(|i| i.elements() * i.element_bytes()).sum()
    };
    let mask = if kind == ElementwiseKind::Dropout { n } else { 0.0 };
    work.bytes = Bytes(read + n * large.element_bytes() + mask);
    Some(work)
}

/// `copy_(to, from)`, or a copy of the one input.
fn copy(inputs: &[Input]) -> Option<Work> {
    let to = inputs.first()?;
    let from = inputs.get(1).filter(|i| !i.dims.is_empty()).unwrap_or(to);
    let n = to.elements();
    if n < 1.0 {
        return None;
    }
    let from_dtype = from.dtype().unwrap_or(Dtype::Fp32);
    let op = if from.element_bytes() != to.element_bytes() {
        Op::Elementwise(Elementwise { kind: ElementwiseKind::Cast, n: n as u64 })
    } else if from.is_permuted() != to.is_permuted() && to.dims.len() >= 2 {
        let cols = to.dims.last().copied().unwrap_or(1).max(1);
        Op::Movement(Movement { kind: MovementKind::Permute, rows: n as u64 / cols, cols })
    } else {
        Op::Elementwise(Elementwise { kind: ElementwiseKind::Copy, n: n as u64 })
    };
    let mut work = Work::of(vec![OpCall::fwd(op, from_dtype)], KernelFamily::Copy);
    work.bytes = Bytes(n * (from.element_bytes() + to.element_bytes()));
    work.dtype = main_dtype(inputs).or(Some(from_dtype));
    Some(work)
}

fn cat(inputs: &[Input]) -> Option<Work> {
    let list = inputs.first()?;
    let n: f64 = list.elements();
    if n < 1.0 {
        return None;
    }
    let dtype = list.dtype().unwrap_or(Dtype::Fp32);
    let cols = list.list.first().and_then(|d| d.last()).copied().unwrap_or(1).max(1);
    // Our operator joins two matrices; half of all elements each.
    let rows = (n / 2.0 / cols as f64).round().max(1.0) as u64;
    let op = Op::Movement(Movement { kind: MovementKind::Cat, rows, cols });
    Some(Work::of(vec![OpCall::fwd(op, dtype)], KernelFamily::Copy))
}

/// Optimizers over lists of tensors: recorders leave out the sizes of such lists more often than not.
fn optimizer(inputs: &[Input]) -> Work {
    let bytes: f64 = inputs.iter().map(|i| i.elements() * 4.0).sum();
    Work { bytes: Bytes(bytes), dtype: Some(Dtype::Fp32), ..Work::unknown(KernelFamily::Optimizer) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::tensors;
    use super::super::work_of;
    use super::*;

    #[test]
    fn broadcast_input_is_small() {
        let work =
            work_of("mul", &tensors(&[&[1024], &[16, 559, 1024]], "c10::BFloat16", &[]), false).unwrap();
        // 16*559*1024 = 9,158,656 elements read and written at 2 bytes, plus 1024 read
        assert_eq!(work.bytes.0, 2.0 * (2.0 * 9_158_656.0 + 1024.0));
    }

    #[test]
    fn a_cast_moves_both_widths() {
        let mut inputs = tensors(&[&[100], &[100]], "c10::BFloat16", &[]);
        inputs[1].kind = "float".into();
        let work = work_of("copy", &inputs, false).unwrap();
        assert_eq!(work.bytes.0, 600.0);
        assert!(matches!(work.calls[0].op, Op::Elementwise(e) if e.kind == ElementwiseKind::Cast));
    }

    #[test]
    fn a_scalar_operand_reads_one_tensor() {
        let work = work_of("add", &tensors(&[&[100], &[]], "float", &[]), false).unwrap();
        assert_eq!(work.bytes.0, 800.0);
    }
}
