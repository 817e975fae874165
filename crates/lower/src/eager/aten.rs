//! The ATen operators that the user's calls consist of.

use super::backward::Backward;
use super::{Lowering, Value};
use super::{PACKED_BLOCK, PACKED_BYTES};
use preflop_graph::Dims;
use preflop_graph::graph::{Binary, Unary};
use preflop_ops::{
    ElementwiseKind as E, Gemm, Layout, Movement, MovementKind, Op, Pairing, Pass, Rowwise, RowwiseKind,
};
use preflop_units::dtype::Dtype;

/// The format two operands promote to.
pub(super) fn promote(a: Dtype, b: Dtype) -> Dtype {
    match (a, b) {
        (Dtype::Int64, other) | (other, Dtype::Int64) => other,
        (a, b) if a == b => a,
        _ => Dtype::Fp32,
    }
}

/// Forward kernel of an elementwise function: the one that reads and writes as much.
fn unary_kernel(kind: Unary) -> E {
    match kind {
        Unary::Gelu => E::Gelu,
        Unary::Tanh | Unary::Sine => E::Tanh,
        Unary::Sigmoid => E::Sigmoid,
        Unary::Silu | Unary::Hardswish => E::Silu,
        Unary::Pow | Unary::Rsqrt | Unary::Exp => E::Pow,
        Unary::AddScalar | Unary::MulScalar | Unary::Neg => E::AddScalar,
        Unary::Relu | Unary::LeakyRelu | Unary::Relu6 | Unary::Hardsigmoid | Unary::Elu => E::Relu,
    }
}

/// Is the derivative a function of the input, and not of the result?
fn saves_original(kind: Unary) -> bool {
    matches!(kind, Unary::Relu6 | Unary::Silu | Unary::Hardswish | Unary::Hardsigmoid | Unary::Gelu)
}

impl Lowering<'_> {
    /// `view`: no kernel. The caller knows that the strides allow it.
    fn view_with(&mut self, x: Value, shape: Dims, strides: Dims) -> Value {
        self.ops(1);
        self.record1(Backward::View, &[x], &[], Value { shape, strides, ..x })
    }

    /// `reshape`: a view, or a copy and a view.
    pub(super) fn reshape(&mut self, x: Value, shape: Dims) -> Value {
        if let Some(strides) = x.shape.view_strides(&x.strides, &shape) {
            return self.view_with(x, shape, strides);
        }
        let copy = self.clone_contiguous(x);
        self.view_with(copy, shape, shape.contiguous_strides())
    }

    /// `permute`: no kernel.
    pub(super) fn permute(&mut self, x: Value, order: &[usize]) -> Value {
        self.ops(1);
        let out = Value { shape: x.shape.permuted(order), strides: x.strides.permuted(order), ..x };
        let mut inverse = vec![0; order.len()];
        for (to, &from) in order.iter().enumerate() {
            inverse[from] = to;
        }
        self.record1(Backward::Permute(inverse), &[x], &[], out)
    }

    /// A row-major copy.
    pub(super) fn clone_contiguous(&mut self, x: Value) -> Value {
        self.ops(1);
        let out = self.alloc(x.shape, x.dtype);
        self.copy_kernel(x);
        self.flow_moved(x, out);
        self.record1(Backward::Identity, &[x], &[], out)
    }

    /// `contiguous()`: a copy unless it already is.
    pub(super) fn contiguous(&mut self, x: Value) -> Value {
        if x.is_contiguous() { x } else { self.clone_contiguous(x) }
    }

    /// The kernel that copies `x` into row-major order: whole runs of the last dimension, or a transpose.
    pub(super) fn copy_kernel(&mut self, x: Value) {
        let last = x.shape.last().copied().unwrap_or(1);
        let inner = x.strides.last().copied().unwrap_or(1);
        let rows = x.numel() / last.max(1);
        let kind = if inner == 1 || last == 1 { MovementKind::Permute } else { MovementKind::Transpose };
        if x.is_dense() && x.dtype == Dtype::Int64 || x.is_contiguous() {
            self.elementwise(E::Copy, x.numel(), x.dtype);
        } else {
            self.emit(Op::Movement(Movement { kind, rows, cols: last }), Pass::Fwd, x.dtype);
        }
    }

    /// A kernel that computes an offset for every element of `x`.
    pub(super) fn offset_kernel(&mut self, x: Value) {
        let cols = x.shape.last().copied().unwrap_or(1).max(1);
        let permute = Movement { kind: MovementKind::Permute, rows: x.numel() / cols, cols };
        self.emit(Op::Movement(permute), Pass::Fwd, x.dtype);
    }

    /// An elementwise function of one tensor.
    pub(super) fn unary(&mut self, x: Value, kind: Unary, inplace: bool) -> Value {
        let x = if matches!(kind, Unary::Pow | Unary::Rsqrt | Unary::Exp) { self.in_full(x) } else { x };
        // An in-place function whose derivative needs the original keeps a copy of it.
        let original = if inplace && saves_original(kind) && x.edge != super::Edge::None {
            self.ops(1);
            self.elementwise(E::Copy, x.numel(), x.dtype);
            let copy = self.alloc(x.shape, x.dtype);
            self.flow(&[x], &[copy]);
            // A compiler has no need of it.
            self.flow_alias(copy.storage, &x);
            copy
        } else {
            x
        };
        self.ops(1);
        // Of a part of each row, as of half a head's dimensions, offsets take longer than the arithmetic.
        if x.is_whole() {
            self.elementwise(unary_kernel(kind), x.numel(), x.dtype);
        } else {
            self.offset_kernel(x);
        }
        let out = if inplace {
            x
        } else {
            let strides = x.shape.dense_like(&x.strides);
            self.alloc_strided(x.shape, strides, x.dtype)
        };
        self.flow(&[x], &[out]);
        let saved = match kind {
            Unary::AddScalar | Unary::MulScalar | Unary::Neg => None,
            Unary::Relu | Unary::Tanh | Unary::Sigmoid | Unary::Rsqrt | Unary::Exp => Some(out.storage),
            _ => Some(original.storage),
        };
        self.record1(Backward::Unary(kind), &[x], saved.as_slice(), out)
    }

    /// An elementwise function of two tensors, with promotion and broadcasting.
    pub(super) fn binary(&mut self, a: Value, b: Value, kind: Binary, shape: Dims, inplace: bool) -> Value {
        self.ops(1);
        let n = shape.numel();
        let dtype = if inplace { a.dtype } else { promote(a.dtype, b.dtype) };
        let small = if a.numel() < b.numel() { a } else { b };
        let mixed = a.dtype != b.dtype && a.dtype != Dtype::Int64 && b.dtype != Dtype::Int64;
        let pairing = if small.numel().saturating_mul(4) <= n {
            let last = shape.last().copied().unwrap_or(1);
            let row =
                small.numel() <= 1 || small.numel() == last && small.shape.last() == Some(&last) && !mixed;
            if row { Pairing::Row } else { Pairing::Channel }
        } else if mixed {
            Pairing::Mixed
        } else if a.shape == b.shape && !a.lies_like(&b) {
            Pairing::Strided
        } else {
            Pairing::Alike
        };
        let kernel = E::of_pair(kind == Binary::Mul, pairing);
        self.elementwise(kernel, n, dtype);
        let out = if inplace {
            a
        } else {
            // The first operand of full shape decides the order of dimensions.
            let like = if a.shape == shape { a } else { b };
            let strides = if like.shape == shape {
                shape.dense_like(&like.strides)
            } else {
                shape.contiguous_strides()
            };
            self.alloc_strided(shape, strides, dtype)
        };
        self.flow(&[a, b], &[out]);
        let saved: Vec<u32> = match kind {
            Binary::Mul => {
                let for_a = (a.edge != super::Edge::None).then_some(b.storage);
                let for_b = (b.edge != super::Edge::None).then_some(a.storage);
                for_a.into_iter().chain(for_b).collect()
            }
            _ => Vec::new(),
        };
        self.record1(Backward::Binary(kind), &[a, b], &saved, out)
    }

    /// `F.linear(x, weight, bias)` with the paths of PyTorch: one `addmm` for matrices and contiguous
    /// inputs of more dimensions with a bias, else `matmul` and an added bias.
    pub(super) fn linear(&mut self, x: Value, weight: Value, bias: Option<Value>) -> Value {
        let (n, k) = (weight.shape[0], weight.shape[1]);
        let rank = x.shape.len();
        let rows = x.numel() / k.max(1);
        let flat = Dims::new(&[rows, k]);
        let fused = bias.filter(|_| rank == 2 || (rank >= 3 && x.is_contiguous()));
        let x2 = if rank == 2 { x } else { self.reshape(x, flat) };
        // t and the product
        self.ops(2);
        let math = self.policy.linear_math(x.dtype);
        if self.policy.fp8_linear {
            // Quantisation of both operands.
            self.elementwise(E::Copy, x2.numel(), x2.dtype);
            self.elementwise(E::Copy, weight.numel(), weight.dtype);
        }
        let packed = self.packed.get(weight.storage as usize).copied().unwrap_or(false);
        if packed {
            self.unpack(weight.numel(), x.dtype);
        }
        let gemm = Gemm { bias: fused.is_some(), ..Gemm::linear(rows, n, k, false) };
        let out = self.alloc(Dims::new(&[rows, n]), x.dtype);
        self.emit(Op::Gemm(gemm), Pass::Fwd, math);
        let mut saved = Vec::with_capacity(2);
        if weight.edge != super::Edge::None {
            saved.push(x2.storage);
        }
        if x2.edge != super::Edge::None {
            saved.push(weight.storage);
        }
        let kind = Backward::Linear { m: rows, n, k, stored_kn: false, packed };
        let inputs: Vec<Value> = [x2, weight].into_iter().chain(fused).collect();
        self.flow(&inputs, &[out]);
        let out = self.record1(kind, &inputs, &saved, out);
        let shape = x.shape.with(rank - 1, n);
        let out = if rank == 2 { out } else { self.reshape(out, shape) };
        match bias {
            Some(b) if fused.is_none() => self.binary(out, b, Binary::Add, shape, true),
            _ => out,
        }
    }

    /// Weights of 4 bits widened into a tensor of their own, which lives as long as the operator: the scales are widened and shifted first, then everything is written once.
    pub(super) fn unpack(&mut self, elements: u64, dtype: Dtype) {
        self.ops(3);
        let scales = elements.div_ceil(PACKED_BLOCK).max(1);
        for _ in 0..2 {
            self.elementwise(E::Copy, scales, Dtype::Fp32);
        }
        self.alloc_elements(elements, dtype);
        // A copy reads as much as it writes; this reads the packed weights.
        let share = (PACKED_BYTES + dtype.size()) / (2.0 * dtype.size());
        self.elementwise(E::Copy, ((elements as f64 * share) as u64).max(1), dtype);
    }

    /// `addmm(bias, x, weight)` over the flattened rows of x, weight stored `[k, n]`.
    pub(super) fn addmm(&mut self, x: Value, weight: Value, bias: Value) -> Value {
        let (k, n) = (weight.shape[0], weight.shape[1]);
        let rows = x.numel();
        self.ops(1);
        let gemm = Gemm { bias: true, ..Gemm::mm(rows / k.max(1), n, k, Layout::Nn) };
        let m = gemm.m;
        let out = self.alloc(Dims::new(&[m, n]), x.dtype);
        self.emit(Op::Gemm(gemm), Pass::Fwd, self.policy.linear_math(x.dtype));
        self.flow(&[x, weight, bias], &[out]);
        let kind = Backward::Linear { m, n, k, stored_kn: true, packed: false };
        self.record1(kind, &[x, weight, bias], &[x.storage, weight.storage], out)
    }

    /// `bmm` of `[b, m, k]` and `[b, k, n]`.
    pub(super) fn bmm(&mut self, a: Value, b: Value) -> Value {
        let (batch, m, k, n) = (a.shape[0], a.shape[1], a.shape[2], b.shape[2]);
        self.ops(1);
        let out = self.alloc(Dims::new(&[batch, m, n]), a.dtype);
        self.emit(Op::Gemm(Gemm::bmm(batch, m, n, k)), Pass::Fwd, self.policy.math(a.dtype));
        self.flow(&[a, b], &[out]);
        self.record1(Backward::Bmm { batch, m, n, k }, &[a, b], &[a.storage, b.storage], out)
    }

    /// `matmul` of any rank: three-dimensional operands go straight to `bmm`, others are reshaped first.
    pub(super) fn matmul(&mut self, a: Value, b: Value) -> Value {
        let rank = a.shape.len();
        if rank == 3 {
            return self.bmm(a, b);
        }
        // matmul expands both operands before it flattens their batch dimensions.
        self.ops(2);
        let (m, k, n) = (a.shape[rank - 2], a.shape[rank - 1], b.shape[rank - 1]);
        let batch: u64 = a.shape[..rank - 2].iter().product();
        let a3 = self.reshape(a, Dims::new(&[batch, m, k]));
        let b3 = self.reshape(b, Dims::new(&[batch, k, n]));
        let out = self.bmm(a3, b3);
        self.reshape(out, a.shape.with(rank - 1, n))
    }

    /// `softmax` along the last dimension.
    pub(super) fn softmax(&mut self, x: Value) -> Value {
        let x = self.in_full(x);
        let x = self.contiguous(x);
        self.ops(1);
        let cols = x.shape.last().copied().unwrap_or(1);
        let rows = x.numel() / cols.max(1);
        let out = self.alloc(x.shape, x.dtype);
        self.emit(Op::Rowwise(Rowwise { kind: RowwiseKind::Softmax, rows, cols }), Pass::Fwd, x.dtype);
        self.flow(&[x], &[out]);
        self.record1(Backward::Softmax { rows, cols }, &[x], &[out.storage], out)
    }

    /// `cat` along `dim`; the formats are promoted.
    pub(super) fn cat(&mut self, xs: &[Value], dim: usize, shape: Dims) -> Value {
        let dtype = xs.iter().map(|x| x.dtype).reduce(promote).unwrap_or(Dtype::Fp32);
        let xs: Vec<Value> = xs.iter().map(|&x| self.cast(x, dtype)).collect();
        self.ops(1);
        let out = self.alloc(shape, dtype);
        let kind =
            if xs.iter().all(Value::is_contiguous) { MovementKind::Cat } else { MovementKind::CatStrided };
        self.cat_kernel(shape, dim, dtype, kind);
        self.flow(&xs, &[out]);
        let sizes = xs.iter().map(|x| x.shape[dim]).collect();
        self.record1(Backward::Cat { dim, sizes }, &xs, &[], out)
    }

    /// One kernel that writes `shape`; the operator counts two halves.
    pub(super) fn cat_kernel(&mut self, shape: Dims, dim: usize, dtype: Dtype, kind: MovementKind) {
        let rows: u64 = shape[..dim].iter().product();
        let cols = (shape[dim..].iter().product::<u64>() / 2).max(1);
        self.emit(Op::Movement(Movement { kind, rows, cols }), Pass::Fwd, dtype);
    }

    /// `native_dropout`: output and a byte mask.
    pub(super) fn dropout(&mut self, x: Value) -> Value {
        if !self.training {
            return x;
        }
        self.ops(1);
        let strides = x.shape.dense_like(&x.strides);
        let out = self.alloc_strided(x.shape, strides, x.dtype);
        let mask = self.alloc_elements(x.numel(), Dtype::Int8);
        self.elementwise(E::Dropout, x.numel(), x.dtype);
        self.flow_more(&[x], &[out], &[mask]);
        self.record1(Backward::Dropout, &[x], &[mask], out)
    }

    /// `x * noise`: the noise is drawn (`bernoulli_`) and scaled (`div_`) first. Per sample the product is a new tensor,
    /// per element it is written over x.
    pub(super) fn noise(&mut self, x: Value, per_sample: bool) -> Value {
        if !self.training {
            return x;
        }
        // empty, bernoulli_, div_
        self.ops(3);
        let mut shape = x.shape;
        if per_sample {
            for i in 1..shape.len() {
                shape = shape.with(i, 1);
            }
        }
        let noise = self.alloc(shape, x.dtype);
        self.elementwise(E::Fill, noise.numel(), x.dtype);
        self.flow(&[], &[noise]);
        self.elementwise(E::AddScalar, noise.numel(), x.dtype);
        self.flow(&[noise], &[noise]);
        self.binary(x, noise, Binary::Mul, x.shape, !per_sample)
    }

    /// A constant written.
    pub(super) fn fill(&mut self, shape: Dims, dtype: Dtype) -> Value {
        let out = self.alloc(shape, dtype);
        self.elementwise(E::Fill, out.numel(), dtype);
        self.flow(&[], &[out]);
        out
    }

    /// Sum of `x` over the leading part of a matrix: `[rows, cols]` to `[cols]`, seen as `shape`.
    pub(super) fn sum_cols(&mut self, x: Value, shape: Dims) -> Value {
        self.sum_as(RowwiseKind::SumCols, x, shape)
    }

    /// A sum of that kind over all rows of `x`.
    pub(super) fn sum_as(&mut self, kind: RowwiseKind, x: Value, shape: Dims) -> Value {
        let out = self.alloc(shape, x.dtype);
        let cols = shape.numel();
        let rows = x.numel() / cols.max(1);
        self.emit(Op::Rowwise(Rowwise { kind, rows, cols }), Pass::Fwd, x.dtype);
        self.flow(&[x], &[out]);
        out
    }
}
