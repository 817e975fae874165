//! The calls of a graph, one by one.

use super::aten::promote;
use super::backward::Backward;
use super::{Edge, Few, Lowering, Value};
use preflop_graph::ModelError;
use preflop_graph::graph::{Binary, Content, GraphOp, Node, Window};
use preflop_ops::{
    CrossEntropy, ElementwiseKind as E, Embedding, Interpolate, Nms, Op, Pass, Rnn, RoiAlign, Rowwise,
    RowwiseKind, SpatialKind,
};
use preflop_units::dtype::Dtype;

impl Lowering<'_> {
    /// Runs one call and stores its outputs.
    pub(super) fn node(&mut self, node: &Node) -> Result<(), ModelError> {
        if matches!(node.op, GraphOp::Input | GraphOp::Cache) {
            return Ok(());
        }
        if let GraphOp::Either = node.op {
            let chosen = node.inputs.iter().find_map(|&t| self.values[t as usize]);
            self.values[node.outputs[0] as usize] = Some(chosen.ok_or_else(|| self.missing(node))?);
            return Ok(());
        }
        let mut inputs: Few<Value> = Few::new();
        for &t in &node.inputs {
            inputs.push(self.values[t as usize].ok_or_else(|| self.missing(node))?);
        }
        if let GraphOp::Split { dim } = node.op {
            self.split(node, inputs[0], dim);
            return Ok(());
        }
        let out = self.single(node, &inputs);
        let declared = self.graph.tensors[node.outputs[0] as usize].shape;
        if out.shape != declared {
            return Err(ModelError::Graph {
                node: self.current as usize,
                name: node.name.clone(),
                problem: format!("its output is {}, not {declared}", out.shape),
            });
        }
        self.values[node.outputs[0] as usize] = Some(out);
        Ok(())
    }

    fn missing(&self, node: &Node) -> ModelError {
        ModelError::Graph {
            node: self.current as usize,
            name: node.name.clone(),
            problem: "an input is not computed in this mode".to_owned(),
        }
    }

    /// A call with one output.
    fn single(&mut self, node: &Node, inputs: &[Value]) -> Value {
        let graph = self.graph;
        let info = &graph.tensors[node.outputs[0] as usize];
        let shape = info.shape;
        let params = &node.parameters;
        match &node.op {
            GraphOp::Conv(g) => {
                let bias = params.get(1).map(|&p| self.lower_parameter(p));
                let weight = self.lower_parameter(params[0]);
                let x = self.lowered(inputs[0]);
                self.conv(x, weight, bias, g, shape)
            }
            GraphOp::BatchNorm => {
                let (w, b) = (self.parameter(params[0]), self.parameter(params[1]));
                self.batch_norm(inputs[0], w, b)
            }
            GraphOp::GroupNorm { groups } => {
                let (w, b) = (self.parameter(params[0]), self.parameter(params[1]));
                self.group_norm(inputs[0], w, b, *groups)
            }
            GraphOp::LayerNorm { cols } => {
                let affine: Vec<Value> = params.iter().map(|&p| self.parameter(p)).collect();
                self.row_norm(inputs[0], &affine, *cols, RowwiseKind::LayerNorm)
            }
            GraphOp::RmsNorm => {
                let affine: Vec<Value> = params.iter().map(|&p| self.parameter(p)).collect();
                let cols = shape.last().copied().unwrap_or(1);
                self.row_norm(inputs[0], &affine, cols, RowwiseKind::RmsNorm)
            }
            GraphOp::Linear => {
                let bias = match params.get(1) {
                    Some(&p) => Some(self.lower_parameter(p)),
                    None => inputs.get(2).copied().map(|b| self.lowered(b)),
                };
                let weight = match params.first() {
                    Some(&p) => self.lower_parameter(p),
                    None => self.lowered(inputs[1]),
                };
                let x = self.lowered(inputs[0]);
                self.linear(x, weight, bias)
            }
            GraphOp::Addmm => {
                let k = inputs[0].shape.last().copied().unwrap_or(1);
                let rows = inputs[0].numel() / k.max(1);
                let x = self.reshape(inputs[0], super::Dims::new(&[rows, k]));
                let weight = self.lower_parameter(params[0]);
                let x = self.lowered(x);
                let bias = self.lower_parameter(params[1]);
                let out = self.addmm(x, weight, bias);
                self.reshape(out, shape)
            }
            GraphOp::Embedding => {
                let table = self.parameter(params[0]);
                self.ops(1);
                let op = Embedding { vocab: table.shape[0], dim: table.shape[1], tokens: inputs[0].numel() };
                let out = self.alloc(shape, table.dtype);
                self.emit(Op::Embedding(op), Pass::Fwd, table.dtype);
                // As many rows of the table are read as are written.
                self.flow(&[Value { storage: table.storage, ..out }, inputs[0]], &[out]);
                self.record1(Backward::Embedding(op), &[table], &[inputs[0].storage], out)
            }
            GraphOp::Unary { kind, inplace } => self.unary(inputs[0], *kind, *inplace),
            GraphOp::Binary { kind, inplace } => self.binary(inputs[0], inputs[1], *kind, shape, *inplace),
            GraphOp::Cat { dim } => self.cat(inputs, *dim, shape),
            GraphOp::Slice { dim, squeeze } => self.slice(inputs[0], *dim, *squeeze, shape),
            GraphOp::View => self.reshape(inputs[0], shape),
            GraphOp::Permute { order } => self.permute(inputs[0], order),
            GraphOp::Expand => self.expand(inputs[0], shape),
            GraphOp::Contiguous => self.contiguous(inputs[0]),
            GraphOp::Reorder => {
                self.ops(1);
                let x = inputs[0];
                let out = self.alloc(shape, x.dtype);
                self.elementwise(E::Copy, out.numel(), x.dtype);
                self.flow_moved(x, out);
                self.record1(Backward::Reorder, &[x], &[], out)
            }
            GraphOp::MaxPool(w) => self.pool(inputs[0], SpatialKind::MaxPool, w, shape),
            GraphOp::AvgPool(w) => self.pool(inputs[0], SpatialKind::AvgPool, w, shape),
            GraphOp::AdaptiveAvgPool => self.adaptive_pool(inputs[0], shape),
            GraphOp::Dropout => self.dropout(inputs[0]),
            GraphOp::Noise { per_sample } => self.noise(inputs[0], *per_sample),
            GraphOp::Softmax => self.softmax(inputs[0]),
            GraphOp::Matmul => {
                let b = self.lowered(inputs[1]);
                let a = self.lowered(inputs[0]);
                self.matmul(a, b)
            }
            GraphOp::Attention { causal, dropout, eager: false } => self.attention(inputs, *causal, *dropout),
            GraphOp::Attention { causal, dropout, eager: true } => {
                self.eager_attention(inputs, *causal, *dropout)
            }
            GraphOp::Rnn { kind, hidden, layers, bidirectional, batch_first } => {
                let s = inputs[0].shape;
                let (seq, batch) = if *batch_first { (s[1], s[0]) } else { (s[0], s[1]) };
                let op = Rnn {
                    kind: *kind,
                    batch,
                    seq,
                    input: s[2],
                    hidden: *hidden,
                    layers: *layers,
                    bidirectional: *bidirectional,
                };
                self.rnn(inputs[0], params, op, shape)
            }
            GraphOp::Mean { dims } => self.mean(inputs[0], dims, shape),
            GraphOp::Sum { dims } => self.sum(inputs[0], dims, shape),
            GraphOp::Interpolate { how } => {
                let x = self.contiguous(inputs[0]);
                let op = Interpolate {
                    batch: x.shape[0],
                    channels: x.shape[1],
                    h: x.shape[2],
                    w: x.shape[3],
                    oh: shape[2],
                    ow: shape[3],
                    how: *how,
                };
                self.ops(1);
                let out = self.alloc(shape, x.dtype);
                self.emit(Op::Interpolate(op), Pass::Fwd, x.dtype);
                self.flow(&[x], &[out]);
                self.record1(Backward::Single(Op::Interpolate(op)), &[x], &[], out)
            }
            GraphOp::RoiAlign { sampling } => {
                let x = self.in_full(inputs[0]);
                let op = RoiAlign { rois: shape[0], channels: shape[1], size: shape[2], sampling: *sampling };
                self.ops(1);
                let out = self.alloc(shape, x.dtype);
                self.emit(Op::RoiAlign(op), Pass::Fwd, x.dtype);
                self.flow(&[x], &[out]);
                self.record1(Backward::Single(Op::RoiAlign(op)), &[x], &[], out)
            }
            GraphOp::Nms => {
                self.ops(1);
                self.emit(Op::Nms(Nms { boxes: inputs[0].shape[0] }), Pass::Fwd, Dtype::Fp32);
                self.alloc(shape, Dtype::Int64)
            }
            GraphOp::ToFloat => self.cast(inputs[0], Dtype::Fp32),
            GraphOp::ToLike => self.cast(inputs[0], inputs[1].dtype),
            GraphOp::Append => self.append(inputs[0], inputs[1].dtype, inputs.get(2).copied()),
            GraphOp::Store => self.store(inputs[0], inputs[1]),
            GraphOp::RepeatHeads => self.repeat_kv(inputs[0], shape[1]),
            GraphOp::Create => {
                self.ops(1);
                let dtype = if info.content == Content::Int { Dtype::Int64 } else { self.policy.tensor };
                self.fill(shape, dtype)
            }
            GraphOp::CrossEntropy => self.cross_entropy(inputs[0], inputs[1]),
            GraphOp::BinaryCrossEntropy | GraphOp::MseLoss => self.mean_loss(inputs[0], inputs[1]),
            GraphOp::UseParameter => self.parameter(params[0]),
            GraphOp::FastEncoderLayer { heads } => self.fast_encoder_layer(inputs[0], params, *heads),
            GraphOp::FastSelfAttention { heads } => self.fast_attention(inputs[0], params, *heads),
            GraphOp::Unmodelled { name } => {
                let bytes: f64 = inputs.iter().map(|v| v.numel() as f64 * v.dtype.size()).sum();
                let dtype = inputs.iter().map(|v| v.dtype).reduce(promote).unwrap_or(self.policy.tensor);
                self.ops(1);
                let out = self.alloc(shape, dtype);
                let bytes = (bytes + out.numel() as f64 * dtype.size()) as u64;
                let op = Op::Unmodelled { name: name.clone(), bytes };
                self.emit(op.clone(), Pass::Fwd, dtype);
                self.flow(inputs, &[out]);
                let saved: Vec<u32> = inputs.iter().map(|v| v.storage).collect();
                self.record1(Backward::Single(op), inputs, &saved, out)
            }
            // Handled before: they have no or several values.
            GraphOp::Input | GraphOp::Cache | GraphOp::Either | GraphOp::Split { .. } => inputs[0],
        }
    }

    fn split(&mut self, node: &Node, x: Value, dim: usize) {
        self.ops(1);
        let outs: Vec<Value> = node
            .outputs
            .iter()
            .map(|&t| Value { shape: self.graph.tensors[t as usize].shape, ..x })
            .collect();
        let recorded = self.record(Backward::Split { dim }, &[x], &[], &outs);
        for (i, (&t, out)) in node.outputs.iter().zip(outs).enumerate() {
            let edge = recorded.map_or(Edge::None, |n| Edge::Node { node: n, output: i as u16 });
            self.values[t as usize] = Some(Value { edge, ..out });
        }
    }

    fn slice(&mut self, x: Value, dim: usize, squeeze: bool, shape: super::Dims) -> Value {
        self.ops(1);
        let strides = if squeeze {
            let mut s = x.strides.to_vec();
            s.remove(dim);
            super::Dims::new(&s)
        } else {
            x.strides
        };
        self.record1(Backward::Slice, &[x], &[], Value { shape, strides, ..x })
    }

    fn expand(&mut self, x: Value, shape: super::Dims) -> Value {
        self.ops(1);
        let mut strides = x.strides;
        for i in 0..shape.len() {
            if x.shape[i] != shape[i] {
                strides = strides.with(i, 0);
            }
        }
        // The engine sums what comes back to the shape that went in.
        self.record1(Backward::Identity, &[x], &[], Value { shape, strides, ..x })
    }

    fn adaptive_pool(&mut self, x: Value, shape: super::Dims) -> Value {
        if shape[2] == 1 && shape[3] == 1 {
            return self.mean(x, &[2, 3], shape);
        }
        let stride = (x.shape[2] / shape[2].max(1)).max(1);
        let window = Window { size: x.shape[2].div_ceil(shape[2].max(1)), stride, pad: 0, ceil: false };
        self.pool(x, SpatialKind::AdaptiveAvgPool, &window, shape)
    }

    /// `log_softmax` (in fp32) and `nll_loss`: the log-probabilities stay for backward.
    fn cross_entropy(&mut self, logits: Value, targets: Value) -> Value {
        let logits = self.in_full(logits);
        self.ops(2);
        let (rows, classes) = (logits.shape[0], logits.numel() / logits.shape[0].max(1));
        let op = CrossEntropy { rows, classes };
        let probabilities = self.alloc(logits.shape, logits.dtype);
        self.emit(Op::CrossEntropy(op), Pass::Fwd, logits.dtype);
        let loss = self.alloc(super::Dims::new(&[1]), logits.dtype);
        self.flow(&[logits, targets], &[loss]);
        self.flow_alias(probabilities.storage, &logits);
        self.record1(Backward::CrossEntropy(op), &[logits], &[probabilities.storage, targets.storage], loss)
    }

    /// Elementwise loss and its mean.
    fn mean_loss(&mut self, x: Value, targets: Value) -> Value {
        let x = self.in_full(x);
        self.ops(1);
        let n = x.numel();
        self.elementwise(E::Mul, n, x.dtype);
        let each = self.alloc(x.shape, x.dtype);
        self.flow(&[x, targets], &[each]);
        self.emit(Op::Rowwise(Rowwise { kind: RowwiseKind::Sum, rows: 1, cols: n }), Pass::Fwd, x.dtype);
        let loss = self.alloc(super::Dims::new(&[1]), x.dtype);
        self.flow(&[each], &[loss]);
        self.record1(Backward::MeanLoss, &[x], &[x.storage, targets.storage], loss)
    }

    /// `_transformer_encoder_layer_fwd`: attention, residual and norm, two products (the first with its
    /// activation fused), residual and norm.
    fn fast_encoder_layer(&mut self, x: Value, params: &[u32], heads: u64) -> Value {
        let ops = self.host.forward_ops;
        let shape = x.shape;
        let cols = shape.last().copied().unwrap_or(1);
        let p: Vec<Value> = params.iter().map(|&p| self.parameter(p)).collect();
        let a = self.fast_attention(x, &params[..4], heads);
        let a = self.binary(a, x, Binary::Add, shape, true);
        let a = self.row_norm(a, &p[4..6], cols, RowwiseKind::LayerNorm);
        let f = self.linear(a, p[8], Some(p[9]));
        let f = self.linear(f, p[10], Some(p[11]));
        let f = self.binary(f, a, Binary::Add, shape, true);
        let out = self.row_norm(f, &p[6..8], cols, RowwiseKind::LayerNorm);
        self.host.forward_ops = ops + 1;
        out
    }

    /// `_native_multi_head_attention` on one tensor: packed projection, attention, output projection.
    fn fast_attention(&mut self, x: Value, params: &[u32], heads: u64) -> Value {
        let ops = self.host.forward_ops;
        let [b, s, d] = [x.shape[0], x.shape[1], x.shape[2]];
        let p: Vec<Value> = params.iter().map(|&p| self.parameter(p)).collect();
        let qkv = self.linear(x, p[0], Some(p[1]));
        let piece = Value { shape: super::Dims::new(&[b, s, d]), ..qkv };
        let split = self.reshape(piece, super::Dims::new(&[b, s, heads, d / heads.max(1)]));
        let head = self.permute(split, &[0, 2, 1, 3]);
        let out = self.attention(&[head, head, head], false, false);
        let out = self.permute(out, &[0, 2, 1, 3]);
        let out = self.reshape(out, x.shape);
        let out = self.linear(out, p[2], Some(p[3]));
        self.host.forward_ops = ops + 1;
        out
    }
}
