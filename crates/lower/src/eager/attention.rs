//! Scaled-dot-product attention with PyTorch's choice of backend, and recurrent layers.
//!
//! On Hopper, half-precision attention runs in cuDNN's fused kernel, fp32 in the memory-efficient kernel; fp32
//! with grouped heads or a bias that needs a gradient falls back to plain products with the scores materialised.

use super::backward::Backward;
use super::{Class, Edge, Few, Lowering, Value};
use preflop_graph::graph::{Binary, Masks, Unary};
use preflop_graph::{Dims, Stage};
use preflop_ops::{
    Attention, ElementwiseKind as E, Movement, MovementKind, Op, Pass, Rnn, RnnKind, Rowwise, RowwiseKind,
};
use preflop_units::dtype::Dtype;
use smallvec::smallvec;

/// Time of a copy that reads each element once for several results, over that of one that reads as much as it writes: decode steps of two models with
/// groups of four heads on an H200 (18 rows).
const SHARED_READ: f64 = 0.88;

impl Lowering<'_> {
    pub(super) fn attention(&mut self, inputs: &[Value], causal: bool, dropout: bool) -> Value {
        let inputs_lowered: Vec<Value> = inputs.iter().rev().map(|&v| self.lowered(v)).collect();
        let ([v, k, q] | [_, v, k, q]) = inputs_lowered[..] else { return inputs[0] };
        let mask = if inputs_lowered.len() == 4 { Some(inputs_lowered[0]) } else { None };
        if mask.is_none() && self.graph.masks == Masks::Always {
            return self.masked_attention([q, k, v], causal, dropout);
        }
        let grouped = q.shape[1] != k.shape[1];
        // The fused kernels read rows of the mask and give no gradient for it.
        let unfit = |m: Value| m.edge != Edge::None || m.strides.last() != Some(&1);
        if (grouped && q.dtype == Dtype::Fp32) || mask.is_some_and(unfit) {
            return self.math_attention(q, k, v, mask, causal, dropout);
        }
        let dropout = dropout && self.training;
        let op = Attention { dropout, ..attention_op(q.shape, k.shape, causal) };
        let cudnn = q.dtype.is_half();
        if let Some(mask) = mask.filter(|_| self.graph.stage != Stage::Full) {
            self.additive_mask(mask);
        }
        // The efficient kernel's wrapper transposes its operands and its result.
        self.ops(1);
        let [batch, heads, len, dim] = [q.shape[0], q.shape[1], q.shape[2], q.shape[3]];
        // cuDNN's output follows the query's layout, the efficient kernel writes [b, s, h, d].
        let strides = if cudnn {
            q.shape.dense_like(&q.strides)
        } else {
            Dims::new(&[batch, len, heads, dim]).contiguous_strides().permuted(&[0, 2, 1, 3])
        };
        let out = self.alloc_strided(q.shape, strides, q.dtype);
        let statistics = self.alloc_elements(batch.saturating_mul(heads).saturating_mul(len), Dtype::Fp32);
        self.emit(Op::Attention(op), Pass::Fwd, self.policy.math(q.dtype));
        let read: Vec<Value> = [q, k, v].into_iter().chain(mask).collect();
        self.flow_more(&read, &[out], &[statistics]);
        let saved = [q.storage, k.storage, v.storage, out.storage, statistics];
        let layouts = [q.strides, k.strides, v.strides];
        let layouts = cudnn.then_some(layouts);
        self.record1(Backward::Attention { op, layouts }, &[q, k, v], &saved, out)
    }

    /// Attention of Hugging Face's code under capture: a causal mask as a tensor, behind which the fused kernel computes all scores; an encoder's mask of
    /// what is padded is expanded over the queries, which no fused kernel takes.
    fn masked_attention(&mut self, [q, k, v]: [Value; 3], causal: bool, dropout: bool) -> Value {
        let mask = self.causal_mask(q.shape[2], k.shape[2]);
        if !causal {
            return self.math_attention(q, k, v, Some(mask), false, dropout);
        }
        let shape = Dims::new(&[q.shape[0], 1, q.shape[2], k.shape[2]]);
        let mask = self.alloc(shape, Dtype::Int8);
        self.additive_mask(mask);
        let [k, v] =
            [k, v].map(|x| if x.shape[1] == q.shape[1] { x } else { self.repeat_heads(x, q.shape[1]) });
        let strides = mask.shape.contiguous_strides();
        let mask = Value { strides, dtype: q.dtype, ..mask };
        self.attention(&[q, k, v, mask], false, dropout)
    }

    /// Hugging Face's `eager_attention_forward`: the scores as a tensor in the model's own format, each step a kernel
    /// of its own. The causal mask is a choice between scores and a constant.
    pub(super) fn eager_attention(&mut self, inputs: &[Value], causal: bool, dropout: bool) -> Value {
        let (&[q, mut k, mut v] | &[q, mut k, mut v, _]) = inputs else { return inputs[0] };
        if k.shape[1] != q.shape[1] {
            k = self.repeat_heads(k, q.shape[1]);
            v = self.repeat_heads(v, q.shape[1]);
        }
        let k = self.permute(k, &[0, 1, 3, 2]);
        let [q, k] = [q, k].map(|x| self.lowered(x));
        let scores = self.matmul(q, k);
        let mut scores = self.unary(scores, Unary::MulScalar, false);
        if let Some(&mask) = inputs.get(3) {
            scores = self.binary(scores, mask, Binary::Add, scores.shape, false);
        } else if causal {
            scores = self.unary(scores, Unary::AddScalar, false);
        }
        let weights = self.softmax(scores);
        let dropped = if dropout { self.dropout(weights) } else { weights };
        let [dropped, v] = [dropped, v].map(|x| self.lowered(x));
        self.matmul(dropped, v)
    }

    /// `_scaled_dot_product_attention_math`: the scores as a tensor. Half precision is computed in fp32, and
    /// the kernel sits below autocast.
    fn math_attention(
        &mut self,
        q: Value,
        k: Value,
        v: Value,
        mask: Option<Value>,
        causal: bool,
        dropout: bool,
    ) -> Value {
        let outside = q.dtype;
        let heads = q.shape[1];
        let [q, mut k, mut v] = [q, k, v].map(|x| self.cast(x, Dtype::Fp32));
        if k.shape[1] != heads {
            k = self.repeat_heads(k, heads);
            v = self.repeat_heads(v, heads);
        }
        let mask = mask.or_else(|| causal.then(|| self.causal_mask(q.shape[2], k.shape[2])));
        let q = self.unary(q, Unary::MulScalar, false);
        let k = self.permute(k, &[0, 1, 3, 2]);
        let k = self.unary(k, Unary::MulScalar, false);
        let mut scores = self.matmul(q, k);
        if let Some(m) = mask {
            scores = self.binary(scores, m, Binary::Add, scores.shape, true);
        }
        let weights = self.safe_softmax(scores);
        let dropped = if dropout { self.dropout(weights) } else { weights };
        let out = self.matmul(dropped, v);
        let out = self.cast(out, outside);
        // The weights are a second result, in the format of the first.
        self.cast(Value { edge: Edge::None, ..dropped }, outside);
        out
    }

    /// A mask of yes and no as the fused kernels want it: two constants and a choice between them, at each call.
    fn additive_mask(&mut self, mask: Value) {
        self.ops(3);
        let dtype = self.policy.autocast.unwrap_or(self.policy.tensor);
        for _ in 0..2 {
            self.fill(Dims::new(&[1]), dtype);
        }
        self.alloc(mask.shape, dtype);
        self.elementwise(E::Where, mask.numel(), dtype);
        // What the kernel reads from here on.
        self.flow(&[mask], &[Value { dtype, ..mask }]);
    }

    /// `ones(bool).tril()` and its translation into 0 and minus infinity.
    fn causal_mask(&mut self, rows: u64, cols: u64) -> Value {
        let shape = Dims::new(&[rows, cols]);
        self.ops(5);
        let ones = self.fill(shape, Dtype::Int8);
        let lower = self.alloc(shape, Dtype::Int8);
        self.elementwise(E::Copy, shape.numel(), Dtype::Int8);
        self.flow(&[ones], &[lower]);
        for _ in 0..2 {
            self.fill(Dims::new(&[1]), Dtype::Fp32);
        }
        let mask = self.alloc(shape, Dtype::Fp32);
        self.elementwise(E::Where, shape.numel(), Dtype::Fp32);
        self.flow(&[lower], &[mask]);
        mask
    }

    /// `_safe_softmax`: softmax, then zeros in rows that are masked altogether: a test for minus infinity, its
    /// conjunction along rows, and a choice that overwrites (the measured peak leaves no room for another tensor).
    fn safe_softmax(&mut self, x: Value) -> Value {
        let out = self.softmax(x);
        let cols = x.shape.last().copied().unwrap_or(1);
        let rows = x.numel() / cols.max(1);
        self.ops(4);
        let hidden = self.alloc(x.shape, Dtype::Int8);
        self.elementwise(E::Relu, x.numel(), x.dtype);
        self.flow(&[x], &[hidden]);
        let all = Value { shape: Dims::new(&[rows]), strides: Dims::new(&[1]), ..hidden };
        self.emit(Op::Rowwise(Rowwise { kind: RowwiseKind::Sum, rows, cols }), Pass::Fwd, Dtype::Int8);
        self.flow(&[hidden], &[all]);
        self.fill(Dims::new(&[1]), x.dtype);
        self.elementwise(E::AddBias, x.numel(), x.dtype);
        self.flow(&[out, all], &[out]);
        out
    }

    /// Concatenation to a cache, empty unless there is one `before`: a copy, which changes the format if the cache has another.
    pub(super) fn append(&mut self, x: Value, dtype: Dtype, before: Option<Value>) -> Value {
        let out = if let Some(before) = before {
            let shape = x.shape.with(2, before.shape[2] + x.shape[2]);
            self.cat(&[before, x], 2, shape)
        } else if x.dtype == dtype {
            self.cat(&[x], 2, x.shape)
        } else {
            self.ops(1);
            let out = self.alloc(x.shape, super::aten::promote(x.dtype, dtype));
            self.elementwise(E::Cast, x.numel(), x.dtype);
            self.flow(&[x], &[out]);
            self.record1(Backward::Cast, &[x], &[], out)
        };
        if !self.training {
            self.memory.reclass(out.storage, Class::Cache);
            self.flow_kept(&out);
        }
        out
    }

    /// `index_copy_` of new keys or values into their places of a static cache, by a kernel that computes an offset for every element.
    pub(super) fn store(&mut self, cache: Value, x: Value) -> Value {
        self.ops(1);
        self.offset_kernel(x);
        self.flow(&[x], &[cache]);
        cache
    }

    /// `repeat_interleave` of key or value heads: a copy; backward sums over each group.
    fn repeat_heads(&mut self, x: Value, heads: u64) -> Value {
        self.ops(3);
        let shape = x.shape.with(1, heads);
        let out = self.alloc(shape, x.dtype);
        self.elementwise(E::Copy, out.numel(), x.dtype);
        self.flow_moved(x, out);
        self.record1(Backward::Repeat, &[x], &[], out)
    }

    /// Hugging Face's `repeat_kv`: an expanded view is copied, by the kernel that computes an offset for every element. A single head
    /// that all share stays a view.
    pub(super) fn repeat_kv(&mut self, x: Value, heads: u64) -> Value {
        self.ops(4);
        let shape = x.shape.with(1, heads);
        if x.shape[1] == 1 {
            let out = Value { shape, strides: x.strides.with(1, 0), ..x };
            return self.record1(Backward::Repeat, &[x], &[], out);
        }
        let out = self.alloc(shape, x.dtype);
        let cols = shape.last().copied().unwrap_or(1);
        let rows = (out.numel() as f64 * SHARED_READ / cols.max(1) as f64).ceil() as u64;
        self.emit(Op::Movement(Movement { kind: MovementKind::Permute, rows, cols }), Pass::Fwd, x.dtype);
        self.flow(&[x], &[out]);
        self.record1(Backward::Repeat, &[x], &[], out)
    }

    pub(super) fn attention_backward(
        &mut self,
        op: &Attention,
        layouts: Option<[Dims; 3]>,
        grad: Value,
        metas: &[(Dims, Dtype)],
        wanted: &[u32],
    ) -> Few<Option<Value>> {
        let math = self.policy.math(grad.dtype);
        self.ops(1);
        if let Some(layouts) = layouts {
            let grads: Few<Option<Value>> = (0..3)
                .map(|i| {
                    let strides = metas[i].0.dense_like(&layouts[i]);
                    Some(self.alloc_strided(metas[i].0, strides, grad.dtype))
                })
                .collect();
            self.emit(Op::Attention(*op), Pass::Bwd, math);
            let made: Vec<Value> = grads.iter().flatten().copied().collect();
            self.flow_back(&[grad], wanted, &made);
            return grads;
        }
        // [b, h, s, d] seen as [b, s, h, d], then copied if it does not lie so.
        let as_rows = Value {
            shape: grad.shape.permuted(&[0, 2, 1, 3]),
            strides: grad.strides.permuted(&[0, 2, 1, 3]),
            ..grad
        };
        if !as_rows.is_contiguous() {
            let copy = self.alloc(as_rows.shape, grad.dtype);
            self.copy_kernel(as_rows);
            self.flow(&[grad], &[copy]);
            debug_assert!(copy.is_contiguous());
        }
        // delta = rowsum(grad * out), transposed
        let rows = grad.numel() / grad.shape[3].max(1);
        let product = self.alloc(grad.shape, grad.dtype);
        self.elementwise(E::Mul, grad.numel(), grad.dtype);
        self.flow_back(&[grad], wanted.get(3), &[product]);
        self.emit(
            Op::Rowwise(Rowwise { kind: RowwiseKind::Sum, rows, cols: grad.shape[3] }),
            Pass::Fwd,
            grad.dtype,
        );
        let delta = Value { shape: Dims::new(&[rows]), strides: Dims::new(&[1]), ..product };
        self.flow(&[product], &[delta]);
        self.elementwise(E::Copy, rows, grad.dtype);
        self.flow(&[delta], &[delta]);
        let grads: Few<Option<Value>> = metas
            .iter()
            .take(3)
            .map(|&(shape, dtype)| {
                let strides = shape.permuted(&[0, 2, 1, 3]).contiguous_strides().permuted(&[0, 2, 1, 3]);
                Some(self.alloc_strided(shape, strides, dtype))
            })
            .collect();
        self.emit(Op::Attention(*op), Pass::Bwd, math);
        let made: Vec<Value> = grads.iter().flatten().copied().collect();
        self.flow_back(&[grad, delta], wanted, &made);
        grads
    }

    /// Recurrent layers by cuDNN. Initial states are written first; under autocast the weights are cast into one
    /// flat buffer. Training keeps a reserve of the gates and states of every step.
    pub(super) fn rnn(&mut self, x: Value, weights: &[u32], op: Rnn, shape: Dims) -> Value {
        let x = self.in_fp16(x);
        let x = self.contiguous(x);
        let dtype = x.dtype;
        let state = Dims::new(&[op.layers * op.directions(), op.batch, op.hidden]);
        let states = if op.kind == RnnKind::Lstm { 2 } else { 1 };
        self.ops(states + 1);
        for _ in 0..states {
            let zeros = self.fill(state, self.policy.tensor);
            self.in_fp16(zeros);
        }
        // Not cached: each call fills its own flat buffer.
        let weights: Vec<Value> = weights
            .iter()
            .map(|&w| {
                let full = self.parameter(w);
                self.in_fp16(full)
            })
            .collect();
        let out = self.alloc(shape, dtype);
        for _ in 0..states {
            self.alloc(state, dtype);
        }
        let mut saved = vec![x.storage, out.storage];
        saved.extend(weights.iter().map(|w| w.storage));
        if self.training {
            let per_step = op.layers * op.directions() * op.hidden * (op.kind.gates() + 2);
            saved.push(self.alloc_elements(op.seq.saturating_mul(op.batch).saturating_mul(per_step), dtype));
        }
        let elements = weights.iter().fold(0_u64, |n, w| n.saturating_add(w.numel()));
        self.memory.workspace(rnn_workspace(&op, elements, dtype));
        self.emit(Op::Rnn(op), Pass::Fwd, self.policy.cudnn_math(dtype));
        let inputs: Vec<Value> = std::iter::once(x).chain(weights).collect();
        self.flow_more(&inputs, &[out], &saved[inputs.len() + 1..]);
        self.record1(Backward::Rnn(op), &inputs, &saved, out)
    }

    pub(super) fn rnn_backward(
        &mut self,
        op: &Rnn,
        grad: Value,
        metas: &[(Dims, Dtype)],
        needed: &[Edge],
    ) -> Few<Option<Value>> {
        let grad = self.contiguous(grad);
        let state = Dims::new(&[op.layers * op.directions(), op.batch, op.hidden]);
        let states = if op.kind == RnnKind::Lstm { 2 } else { 1 };
        self.ops(2 + states);
        for _ in 0..states {
            self.fill(state, grad.dtype);
        }
        let elements = metas[1..].iter().fold(0_u64, |n, m| n.saturating_add(m.0.numel()));
        let flat = self.fill(Dims::new(&[elements]), grad.dtype);
        let dx = self.alloc(metas[0].0, grad.dtype);
        self.emit(Op::Rnn(*op), Pass::Bwd, self.policy.cudnn_math(grad.dtype));
        let mut out: Few<Option<Value>> = smallvec![(needed[0] != Edge::None).then_some(dx)];
        out.extend(metas[1..].iter().map(|&(shape, dtype)| {
            Some(Value { shape, strides: shape.contiguous_strides(), dtype, ..flat })
        }));
        out
    }
}

/// What cuDNN takes while recurrent layers run: its own arrangement of the weights, gates and states of one layer over
/// all steps, and 32 MiB. (Read off the peaks of nine H200 inference runs of `gnmt-wide` with batches of 1 to 32.)
pub(crate) fn rnn_workspace(op: &Rnn, weight_elements: u64, dtype: Dtype) -> f64 {
    let steps = op.seq as f64 * op.batch as f64 * op.hidden as f64 * op.directions() as f64;
    (weight_elements as f64 + steps * (op.kind.gates() + 3) as f64) * dtype.size() + 32.0 * 1024.0 * 1024.0
}

fn attention_op(q: Dims, k: Dims, causal: bool) -> Attention {
    Attention {
        batch: q[0],
        heads: q[1],
        kv_heads: k[1],
        q_len: q[2],
        kv_len: k[2],
        head_dim: q[3],
        causal,
        dropout: false,
    }
}
