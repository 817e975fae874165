//! Autograd: what each recorded operator does in backward, and how gradients travel.
//!
//! The engine runs recorded operators in reverse order of their creation (PyTorch's sequence numbers). A gradient
//! that arrives where another already waits is added, in place if nothing else refers to it. A gradient
//! of another shape is summed to the shape that went in, one of another format is cast.

use super::memory::Class;
use super::{Edge, Few, Lowering, Value};
use preflop_graph::Dims;
use preflop_graph::graph::{Binary, Unary};
use preflop_graph::{Mode, ModelError, Phase};
use preflop_ops::{
    Attention, Conv, CrossEntropy, ElementwiseKind as E, Embedding, Gemm, Layout, Movement, MovementKind, Op,
    Pairing, Pass, Rnn, Rowwise, RowwiseKind, Spatial,
};
use preflop_units::dtype::Dtype;
use smallvec::{SmallVec, smallvec};

/// What a recorded operator does in backward.
#[derive(Debug, Clone)]
pub(super) enum Backward {
    /// The gradient goes through as it is.
    Identity,
    /// Cast back.
    Cast,
    /// Back to the shape that went in; a copy if the layout demands it.
    View,
    /// Dimensions back in order.
    Permute(Vec<usize>),
    /// An elementwise function.
    Unary(Unary),
    /// An elementwise function of two tensors.
    Binary(Binary),
    /// Mask and scale.
    Dropout,
    /// `x W^T (+ b)`, or with a weight stored `[k, n]`.
    Linear { m: u64, n: u64, k: u64, stored_kn: bool, packed: bool },
    /// Batched product.
    Bmm { batch: u64, m: u64, n: u64, k: u64 },
    /// Softmax.
    Softmax { rows: u64, cols: u64 },
    /// Convolution, of channels-last maps or not.
    Conv { op: Conv, nhwc: bool },
    /// Norm or pooling over maps.
    Spatial(Spatial),
    /// Layer or RMS norm.
    RowNorm { kind: RowwiseKind, rows: u64, cols: u64 },
    /// Mean: expand and divide.
    Mean,
    /// Sum: expand.
    Expanded,
    /// Pieces of the gradient.
    Cat { dim: usize, sizes: Vec<u64> },
    /// Pieces put together.
    Split { dim: usize },
    /// Zeros with the piece copied in.
    Slice,
    /// A reordering copy.
    Reorder,
    /// Sum over repeated heads.
    Repeat,
    /// Look-up.
    Embedding(Embedding),
    /// Fused attention; the layouts of q, k, v where the kernel keeps them.
    Attention { op: Attention, layouts: Option<[Dims; 3]> },
    /// Recurrent layers.
    Rnn(Rnn),
    /// Log-softmax and negative log-likelihood.
    CrossEntropy(CrossEntropy),
    /// Mean of an elementwise loss.
    MeanLoss,
    /// One kernel of the same operator.
    Single(Op),
}

/// A recorded operator.
#[derive(Debug)]
pub(super) struct GradNode {
    pub kind: Backward,
    pub layer: u32,
    pub edges: Few<Edge>,
    /// Shape and format of the inputs.
    pub metas: Few<(Dims, Dtype)>,
    pub saved: Few<u32>,
    /// The values that it reads again, where the flow of data is followed.
    pub wanted: Few<u32>,
    /// Gradients that have arrived, by output.
    pub grads: SmallVec<[Option<Value>; 1]>,
    pub outputs: SmallVec<[(Dims, Dtype); 1]>,
}

impl Lowering<'_> {
    /// `loss.backward()` writes a one; what no gradient will reach is dropped with its saved tensors.
    pub(super) fn start_backward(&mut self, loss: Value) {
        let mut reached = vec![false; self.tape.len()];
        if let Edge::Node { node, .. } = loss.edge {
            reached[node as usize] = true;
        }
        for i in (0..self.tape.len()).rev() {
            if reached[i] {
                for e in &self.tape[i].edges {
                    if let Edge::Node { node, .. } = *e {
                        reached[node as usize] = true;
                    }
                }
            } else {
                for s in std::mem::take(&mut self.tape[i].saved) {
                    self.memory.release(s);
                }
            }
        }
        self.ops(1);
        self.elementwise(E::Fill, 1, loss.dtype);
        let one = self.alloc(loss.shape, loss.dtype);
        self.flow(&[], &[one]);
        self.phase = Phase::Backward;
        self.deliver(loss.edge, one, loss.shape, loss.dtype);
        self.free_temporaries();
    }

    /// Runs the recorded operators in reverse.
    pub(super) fn backward(&mut self, mode: Mode) -> Result<(), ModelError> {
        let mut tape = std::mem::take(&mut self.tape);
        for i in (0..tape.len()).rev() {
            if tape[i].grads.iter().all(Option::is_none) {
                continue;
            }
            self.recompute(&mut tape, i, mode)?;
            let (before, rest) = tape.split_at_mut(i);
            let node = &mut rest[0];
            self.current = node.layer;
            let grads = std::mem::take(&mut node.grads);
            let results = self.run_node(node, &grads);
            // The engine drops the node's own gradients before it hands on what it made.
            for r in results.iter().flatten() {
                self.memory.retain(r.storage);
            }
            for g in grads.iter().flatten() {
                self.memory.release(g.storage);
            }
            self.free_temporaries();
            for s in node.saved.drain(..) {
                self.memory.release(s);
            }
            for (j, result) in results.into_iter().enumerate() {
                let Some(value) = result else { continue };
                let (shape, dtype) = node.metas[j];
                self.deliver_into(before, node.edges[j], value, shape, dtype);
                self.memory.release(value.storage);
                self.free_temporaries();
            }
        }
        // AccumulateGrad detaches each gradient once.
        let received = self.parameter_grads.iter().filter(|g| g.is_some()).count() as u64;
        self.ops(received);
        Ok(())
    }

    fn deliver(&mut self, edge: Edge, value: Value, shape: Dims, dtype: Dtype) {
        let mut tape = std::mem::take(&mut self.tape);
        self.deliver_into(&mut tape, edge, value, shape, dtype);
        self.tape = tape;
    }

    /// Brings a gradient to the shape and format of what went in and adds it to what waits there.
    fn deliver_into(&mut self, tape: &mut [GradNode], edge: Edge, value: Value, shape: Dims, dtype: Dtype) {
        if edge == Edge::None {
            return;
        }
        let mut value = value;
        if value.shape != shape {
            self.ops(1);
            value = self.sum_cols(value, shape);
        }
        value = Value { edge: Edge::None, ..value };
        value = self.cast(value, dtype);
        let waiting = match edge {
            Edge::None => return,
            Edge::Node { node, output } => tape[node as usize].grads[output as usize],
            Edge::Parameter(p) => self.parameter_grads[p as usize],
        };
        let value = match waiting {
            None => {
                self.memory.retain(value.storage);
                value
            }
            Some(old) => {
                self.ops(1);
                let kind = if old.lies_like(&value) { E::Add } else { E::AddStrided };
                self.elementwise(kind, value.numel(), value.dtype);
                let sum = if self.memory.refs(old.storage) == 1 && old.is_dense() {
                    old
                } else {
                    let strides = old.shape.dense_like(&old.strides);
                    let sum = self.alloc_strided(old.shape, strides, old.dtype);
                    self.memory.retain(sum.storage);
                    self.memory.release(old.storage);
                    sum
                };
                self.flow(&[old, value], &[sum]);
                sum
            }
        };
        match edge {
            Edge::None => {}
            Edge::Node { node, output } => tape[node as usize].grads[output as usize] = Some(value),
            Edge::Parameter(p) => {
                self.memory.reclass(value.storage, Class::Gradients);
                self.parameter_grads[p as usize] = Some(value);
            }
        }
    }

    /// A gradient like `x` in format, dense in the order of its dimensions.
    fn grad_like(&mut self, x: Value, dtype: Dtype) -> Value {
        let strides = x.shape.dense_like(&x.strides);
        self.alloc_strided(x.shape, strides, dtype)
    }

    /// Gradients of the inputs of one recorded operator.
    fn run_node(&mut self, node: &GradNode, grads: &[Option<Value>]) -> Few<Option<Value>> {
        if let Backward::Split { dim } = node.kind {
            return smallvec![Some(self.split_backward(node, grads, dim))];
        }
        let Some(grad) = grads[0] else { return smallvec![None; node.edges.len()] };
        let metas = &node.metas;
        let needs = |i: usize| node.edges.get(i).is_some_and(|e| *e != Edge::None);
        match &node.kind {
            Backward::Identity => smallvec![Some(grad)],
            Backward::Cast => smallvec![Some(self.cast(grad, metas[0].1))],
            Backward::View => smallvec![Some(self.reshape(grad, metas[0].0))],
            Backward::Permute(order) => smallvec![Some(self.permute(grad, order))],
            Backward::Unary(kind) => smallvec![Some(self.unary_backward(*kind, grad, &node.wanted))],
            Backward::Binary(kind) => self.binary_backward(*kind, node, grad),
            Backward::Dropout => {
                self.ops(1);
                self.elementwise(E::DropoutBwd, grad.numel(), grad.dtype);
                let out = self.grad_like(grad, grad.dtype);
                self.flow_back(&[grad], &node.wanted, &[out]);
                smallvec![Some(out)]
            }
            &Backward::Linear { m, n, k, stored_kn, packed } => {
                let math = self.policy.linear_math(grad.dtype);
                let data = if stored_kn { Layout::Linear } else { Layout::Nn };
                let dx = needs(0).then(|| {
                    if packed {
                        self.unpack(n * k, grad.dtype);
                    }
                    self.ops(2);
                    self.emit(Op::Gemm(Gemm::mm(m, k, n, data)), Pass::Fwd, math);
                    let dx = self.alloc(Dims::new(&[m, k]), grad.dtype);
                    self.flow_back(&[grad], node.wanted.last(), &[dx]);
                    dx
                });
                let dw = needs(1).then(|| {
                    self.ops(if stored_kn { 2 } else { 4 });
                    let (rows, cols) = if stored_kn { (k, n) } else { (n, k) };
                    self.emit(Op::Gemm(Gemm::mm(rows, cols, m, Layout::Tn)), Pass::Fwd, math);
                    let dw = self.alloc(metas[1].0, grad.dtype);
                    self.flow_back(&[grad], node.wanted.first(), &[dw]);
                    dw
                });
                let db = needs(2).then(|| {
                    self.ops(2);
                    self.sum_cols(grad, metas[2].0)
                });
                [dx, dw, db].into_iter().take(node.edges.len()).collect()
            }
            &Backward::Bmm { batch, m, n, k } => {
                let math = self.policy.math(grad.dtype);
                let db = needs(1).then(|| {
                    self.ops(2);
                    self.emit(Op::Gemm(Gemm::bmm(batch, k, n, m)), Pass::Fwd, math);
                    let db = self.alloc(metas[1].0, grad.dtype);
                    self.flow_back(&[grad], node.wanted.first(), &[db]);
                    db
                });
                let da = needs(0).then(|| {
                    self.ops(2);
                    self.emit(Op::Gemm(Gemm::bmm(batch, m, k, n)), Pass::Fwd, math);
                    let da = self.alloc(metas[0].0, grad.dtype);
                    self.flow_back(&[grad], node.wanted.last(), &[da]);
                    da
                });
                smallvec![da, db]
            }
            &Backward::Softmax { rows, cols } => {
                self.ops(1);
                // The product of gradient and output is a kernel of its own.
                self.elementwise(E::Mul, grad.numel(), grad.dtype);
                let product = self.alloc(grad.shape, grad.dtype);
                self.flow_back(&[grad], &node.wanted, &[product]);
                let op = Rowwise { kind: RowwiseKind::Softmax, rows, cols };
                self.emit(Op::Rowwise(op), Pass::Bwd, grad.dtype);
                let out = self.alloc(metas[0].0, grad.dtype);
                self.flow_back(&[product], &node.wanted, &[out]);
                smallvec![Some(out)]
            }
            Backward::Conv { op, nhwc } => {
                self.conv_backward(op, *nhwc, grad, &node.edges, metas, &node.wanted)
            }
            Backward::Spatial(op) => {
                let grad = self.contiguous(grad);
                self.ops(1);
                self.emit(Op::Spatial(*op), Pass::Bwd, grad.dtype);
                self.made_back(grad, node)
            }
            &Backward::RowNorm { kind, rows, cols } => {
                let grad = self.contiguous(grad);
                self.ops(1);
                self.emit(Op::Rowwise(Rowwise { kind, rows, cols }), Pass::Bwd, grad.dtype);
                self.made_back(grad, node)
            }
            Backward::Mean => {
                self.ops(2);
                let shape = metas[0].0;
                self.elementwise(E::AddScalar, shape.numel(), grad.dtype);
                let out = self.alloc(shape, grad.dtype);
                self.flow(&[grad], &[out]);
                smallvec![Some(out)]
            }
            Backward::Expanded => {
                self.ops(1);
                let shape = metas[0].0;
                let strides = (0..shape.len()).fold(shape, |strides, i| strides.with(i, 0));
                smallvec![Some(Value { shape, strides, ..grad })]
            }
            Backward::Cat { dim, sizes } => {
                self.ops(sizes.len() as u64);
                sizes.iter().map(|&s| Some(Value { shape: grad.shape.with(*dim, s), ..grad })).collect()
            }
            Backward::Slice => {
                self.ops(1);
                // Zeros, and the piece copied to its place among them.
                let out = self.fill(metas[0].0, grad.dtype);
                let cols = grad.shape.last().copied().unwrap_or(1).max(1);
                let piece = Movement { kind: MovementKind::Permute, rows: grad.numel() / cols, cols };
                self.emit(Op::Movement(piece), Pass::Fwd, grad.dtype);
                self.flow(&[grad, Value { shape: Dims::new(&[0]), ..out }], &[out]);
                smallvec![Some(out)]
            }
            Backward::Reorder => {
                self.ops(1);
                self.elementwise(E::Copy, metas[0].0.numel(), grad.dtype);
                let out = self.alloc(metas[0].0, grad.dtype);
                self.flow_moved(grad, out);
                smallvec![Some(out)]
            }
            Backward::Repeat => {
                self.ops(2);
                smallvec![Some(self.sum_cols(grad, metas[0].0))]
            }
            Backward::Embedding(op) => {
                self.ops(1);
                self.emit(Op::Embedding(*op), Pass::Bwd, grad.dtype);
                let out = self.alloc(metas[0].0, grad.dtype);
                self.flow_back(&[grad], &node.wanted, &[out]);
                smallvec![Some(out)]
            }
            Backward::Attention { op, layouts } => {
                self.attention_backward(op, *layouts, grad, metas, &node.wanted)
            }
            Backward::Rnn(op) => self.rnn_backward(op, grad, metas, &node.edges),
            Backward::CrossEntropy(op) => {
                self.ops(2);
                self.alloc(metas[0].0, metas[0].1);
                self.emit(Op::CrossEntropy(*op), Pass::Bwd, metas[0].1);
                let out = self.alloc(metas[0].0, metas[0].1);
                self.flow_back(&[grad], &node.wanted, &[out]);
                smallvec![Some(out)]
            }
            Backward::MeanLoss => {
                self.ops(2);
                let (shape, dtype) = metas[0];
                let out = self.alloc(shape, dtype);
                self.elementwise(E::Mul, shape.numel(), dtype);
                self.flow_back(&[grad], &node.wanted, &[out]);
                self.elementwise(E::AddScalar, shape.numel(), dtype);
                self.flow(&[out], &[out]);
                smallvec![Some(out)]
            }
            Backward::Single(op) => {
                self.ops(1);
                self.emit(op.clone(), Pass::Bwd, grad.dtype);
                let out: Few<Option<Value>> = metas
                    .iter()
                    .enumerate()
                    .map(|(i, &(shape, dtype))| needs(i).then(|| self.alloc(shape, dtype)))
                    .collect();
                let made: Few<Value> = out.iter().flatten().copied().collect();
                self.flow_back(&[grad], &node.wanted, &made);
                out
            }
            Backward::Split { .. } => smallvec![None],
        }
    }

    /// Gradients of all inputs, made by the step that was just emitted.
    fn made_back(&mut self, grad: Value, node: &GradNode) -> Few<Option<Value>> {
        let made: Few<Value> = node.metas.iter().map(|&(shape, dtype)| self.alloc(shape, dtype)).collect();
        self.flow_back(&[grad], &node.wanted, &made);
        made.into_iter().map(Some).collect()
    }

    fn unary_backward(&mut self, kind: Unary, grad: Value, wanted: &[u32]) -> Value {
        let kernels: &[E] = match kind {
            Unary::AddScalar => return grad,
            Unary::MulScalar | Unary::Neg => &[E::AddScalar],
            Unary::Gelu => &[E::GeluBwd],
            Unary::Tanh => &[E::TanhBwd],
            Unary::Sigmoid => &[E::SigmoidBwd],
            Unary::Silu | Unary::Hardswish => &[E::SiluBwd],
            // grad * (c * x^(c-1)), grad * (-c * y^3)
            Unary::Pow | Unary::Rsqrt => &[E::Pow, E::AddScalar, E::Mul],
            Unary::Exp => &[E::Mul],
            Unary::Sine => &[E::Tanh, E::Mul],
            Unary::Relu | Unary::LeakyRelu | Unary::Relu6 | Unary::Hardsigmoid | Unary::Elu => &[E::ReluBwd],
        };
        let mut out = grad;
        for &k in kernels {
            self.ops(1);
            self.elementwise(k, grad.numel(), grad.dtype);
            let made = self.grad_like(grad, grad.dtype);
            self.flow_back(&[out], wanted, &[made]);
            out = made;
        }
        out
    }

    fn binary_backward(&mut self, kind: Binary, node: &GradNode, grad: Value) -> Few<Option<Value>> {
        let needs = |i: usize| node.edges[i] != Edge::None;
        match kind {
            Binary::Add => smallvec![Some(grad), Some(grad)],
            Binary::Sub => {
                let negative = needs(1).then(|| {
                    self.ops(1);
                    self.elementwise(E::AddScalar, grad.numel(), grad.dtype);
                    let out = self.grad_like(grad, grad.dtype);
                    self.flow(&[grad], &[out]);
                    out
                });
                smallvec![Some(grad), negative]
            }
            Binary::Mul => (0..2)
                .map(|i| {
                    needs(i).then(|| {
                        self.ops(1);
                        let (other, dtype) = node.metas[1 - i];
                        let pairing = if other.numel().saturating_mul(4) <= grad.numel() {
                            Pairing::Channel
                        } else if dtype == grad.dtype {
                            Pairing::Alike
                        } else {
                            Pairing::Mixed
                        };
                        self.elementwise(E::of_pair(true, pairing), grad.numel(), grad.dtype);
                        let out = self.grad_like(grad, grad.dtype);
                        // The other operand.
                        let other = if i == 0 { node.wanted.first() } else { node.wanted.last() };
                        self.flow_back(&[grad], other, &[out]);
                        out
                    })
                })
                .collect(),
        }
    }

    fn split_backward(&mut self, node: &GradNode, grads: &[Option<Value>], dim: usize) -> Value {
        let mut dtype = node.metas[0].1;
        for (g, &(shape, d)) in grads.iter().zip(&node.outputs) {
            if let Some(g) = g {
                dtype = g.dtype;
            } else {
                self.ops(1);
                self.fill(shape, d);
            }
        }
        self.ops(1);
        let out = self.alloc(node.metas[0].0, dtype);
        let kind = if grads.iter().flatten().all(Value::is_contiguous) {
            MovementKind::Cat
        } else {
            MovementKind::CatStrided
        };
        self.cat_kernel(node.metas[0].0, dim, dtype, kind);
        let pieces: Vec<Value> = grads.iter().flatten().copied().collect();
        self.flow(&pieces, &[out]);
        out
    }
}
