//! The calls that compute.

use super::super::builder::{Built, Param, Tensor};
use super::super::graph::{Binary, ConvGeometry, GraphOp, Unary, Window};
use super::{Import, ProgramCall, wrap};
use preflop_ops::{Resize, RnnKind};

fn unary(name: &str) -> Option<Unary> {
    Some(match name {
        "relu" | "clamp" | "clamp_min" | "threshold" => Unary::Relu,
        "leaky_relu" => Unary::LeakyRelu,
        "hardtanh" | "relu6" => Unary::Relu6,
        "gelu" | "erf" => Unary::Gelu,
        "tanh" => Unary::Tanh,
        "sigmoid" => Unary::Sigmoid,
        "silu" | "mish" | "softplus" => Unary::Silu,
        "hardswish" => Unary::Hardswish,
        "hardsigmoid" => Unary::Hardsigmoid,
        "elu" => Unary::Elu,
        "pow" | "sqrt" | "reciprocal" => Unary::Pow,
        "rsqrt" => Unary::Rsqrt,
        "exp" | "log" => Unary::Exp,
        "sin" | "cos" => Unary::Sine,
        "neg" | "abs" | "logical_not" | "bitwise_not" => Unary::Neg,
        _ => return None,
    })
}

fn binary(name: &str) -> Option<Binary> {
    Some(match name {
        "add" | "eq" | "ne" | "lt" | "le" | "gt" | "ge" | "__and__" | "__or__" | "bitwise_and"
        | "bitwise_or" | "logical_and" | "logical_or" | "maximum" | "minimum" => Binary::Add,
        "sub" | "rsub" => Binary::Sub,
        "mul" | "div" | "floor_divide" | "remainder" => Binary::Mul,
        _ => return None,
    })
}

impl Import<'_> {
    /// One call of the program.
    pub(super) fn call(&mut self, call: &ProgramCall) -> Built<()> {
        if call.outputs.is_empty() {
            return Ok(());
        }
        let stem = call.op.strip_suffix('_').filter(|s| !s.is_empty());
        let (name, inplace) = stem.map_or((call.op.as_str(), false), |s| (s, true));
        if let Some(kind) = unary(name) {
            let Some(x) = call.value(0) else { return self.unmodelled(call) };
            let x = self.tensor(x)?;
            return self.put(call, GraphOp::Unary { kind, inplace }, &[x], &[]);
        }
        if let Some(kind) = binary(name) {
            return self.binary(call, kind, inplace);
        }
        match name {
            "conv1d" | "conv2d" | "convolution" | "conv_transpose2d" => self.convolution(call, name),
            "linear" => {
                let (Some(x), Some(w)) = (call.value(0), call.value(1)) else { return self.unmodelled(call) };
                self.linear(call, x, w, call.value(2))
            }
            "addmm" => {
                let (Some(bias), Some(x), Some(w)) = (call.value(0), call.value(1), call.value(2)) else {
                    return self.unmodelled(call);
                };
                self.product(call, x, w, Some(bias))
            }
            "mm" | "matmul" | "bmm" => {
                let (Some(x), Some(w)) = (call.value(0), call.value(1)) else { return self.unmodelled(call) };
                self.product(call, x, w, None)
            }
            "batch_norm" | "_native_batch_norm_legit_no_training" | "native_batch_norm" => {
                self.with_params(call, GraphOp::BatchNorm, 0, &[1, 2])
            }
            "group_norm" => {
                let groups = call.wholes(1).first().map_or(1, |&g| g.max(1) as u64);
                self.with_params(call, GraphOp::GroupNorm { groups }, 0, &[2, 3])
            }
            "layer_norm" | "native_layer_norm" => {
                let sizes = call.wholes(1);
                let cols = sizes.iter().fold(1_u64, |n, &s| n.saturating_mul(s.max(1) as u64));
                self.with_params(call, GraphOp::LayerNorm { cols }, 0, &[2, 3])
            }
            "rms_norm" => self.with_params(call, GraphOp::RmsNorm, 0, &[2]),
            "embedding" => self.with_params(call, GraphOp::Embedding, 1, &[0]),
            "dropout" | "feature_dropout" | "native_dropout" => self.one(call, GraphOp::Dropout),
            "softmax" | "_softmax" | "log_softmax" | "_log_softmax" => self.one(call, GraphOp::Softmax),
            "max_pool2d" | "max_pool2d_with_indices" => {
                let window = window(call, 5);
                self.one(call, GraphOp::MaxPool(window))
            }
            "avg_pool2d" => {
                let window = window(call, 4);
                self.one(call, GraphOp::AvgPool(window))
            }
            "adaptive_avg_pool2d" | "_adaptive_avg_pool2d" => self.one(call, GraphOp::AdaptiveAvgPool),
            "upsample_nearest2d" | "upsample_bilinear2d" | "upsample_bicubic2d" => {
                self.one(call, GraphOp::Interpolate { how: Resize::of(name) })
            }
            "mean" | "sum" => self.reduction(call, name),
            "scaled_dot_product_attention" => self.attention(call),
            "lstm" | "gru" => self.recurrent(call, name),
            "where" => match (call.value(1), call.value(2)) {
                (Some(a), Some(b)) => {
                    let inputs = [self.tensor(a)?, self.tensor(b)?];
                    self.put(call, GraphOp::Binary { kind: Binary::Add, inplace: false }, &inputs, &[])
                }
                _ => self.unmodelled(call),
            },
            "masked_fill" => self.one(call, GraphOp::Unary { kind: Unary::AddScalar, inplace }),
            _ => self.shaping(call, name),
        }
    }

    /// A node of one tensor.
    pub(super) fn one(&mut self, call: &ProgramCall, op: GraphOp) -> Built<()> {
        let Some(x) = call.value(0) else { return self.unmodelled(call) };
        let x = self.tensor(x)?;
        self.put(call, op, &[x], &[])
    }

    /// A node of one tensor with parameters; where one of them is computed, the call is kept by name.
    fn with_params(&mut self, call: &ProgramCall, op: GraphOp, x: usize, at: &[usize]) -> Built<()> {
        let Some(x) = call.value(x) else { return self.unmodelled(call) };
        let mut params = Vec::new();
        for v in at.iter().filter_map(|&i| call.value(i)) {
            if !self.is_param(v) {
                return self.unmodelled(call);
            }
            params.push(self.param(v));
        }
        let x = self.tensor(x)?;
        self.put(call, op, &[x], &params)
    }

    fn binary(&mut self, call: &ProgramCall, kind: Binary, inplace: bool) -> Built<()> {
        match (call.value(0), call.value(1)) {
            (Some(a), Some(b)) => {
                let inputs = [self.tensor(a)?, self.tensor(b)?];
                self.put(call, GraphOp::Binary { kind, inplace }, &inputs, &[])
            }
            (Some(x), None) | (None, Some(x)) => {
                let kind = if kind == Binary::Mul { Unary::MulScalar } else { Unary::AddScalar };
                let x = self.tensor(x)?;
                self.put(call, GraphOp::Unary { kind, inplace }, &[x], &[])
            }
            (None, None) => self.unmodelled(call),
        }
    }

    fn convolution(&mut self, call: &ProgramCall, name: &str) -> Built<()> {
        let transposed = name == "conv_transpose2d" || (name == "convolution" && call.flag(6));
        // conv2d: (x, w, b, stride, padding, dilation, groups); conv_transpose2d: (.., output_padding, groups,
        // dilation); convolution: (.., transposed, output_padding, groups).
        let (dilation, groups) = match name {
            "conv_transpose2d" => (7, 6),
            "convolution" => (5, 8),
            _ => (5, 6),
        };
        let geometry = ConvGeometry {
            stride: call.pair(3, 1),
            pad: call.pair(4, 0),
            dilation: call.pair(dilation, 1),
            groups: call.wholes(groups).first().map_or(1, |&g| g.max(1) as u64),
            transposed,
        };
        self.with_params(call, GraphOp::Conv(geometry), 0, &[1, 2])
    }

    /// `x W^T + b`.
    fn linear(&mut self, call: &ProgramCall, x: usize, w: usize, bias: Option<usize>) -> Built<()> {
        let x = self.tensor(x)?;
        if self.is_param(w) && bias.is_none_or(|b| self.is_param(b)) {
            let params: Vec<Param> = [Some(w), bias].into_iter().flatten().map(|p| self.param(p)).collect();
            return self.put(call, GraphOp::Linear, &[x], &params);
        }
        let mut inputs: Vec<Tensor> = vec![x, self.tensor(w)?];
        if let Some(b) = bias {
            inputs.push(self.tensor(b)?);
        }
        self.put(call, GraphOp::Linear, &inputs, &[])
    }

    /// `x W (+ b)`: with a transposed parameter a linear layer; with a parameter as it is, one whose weight is stored
    /// `[in, out]`; of two computed tensors a batched product.
    fn product(&mut self, call: &ProgramCall, x: usize, w: usize, bias: Option<usize>) -> Built<()> {
        if let Some(&original) = self.transposed.get(&w) {
            return self.linear(call, x, original, bias);
        }
        let (rank_x, shape_w) = (self.shape(x).len(), self.shape(w));
        if self.is_param(w) && shape_w.len() == 2 {
            if let Some(b) = bias.filter(|&b| self.is_param(b)) {
                let params = [self.param(w), self.param(b)];
                let x = self.tensor(x)?;
                return self.put(call, GraphOp::Addmm, &[x], &params);
            }
            if bias.is_none() && self.params[w].is_none() {
                // The layout of the only copy is ours to choose.
                let p = self.b.parameter(&self.program.values[w].name, &[shape_w[1], shape_w[0]]);
                self.params[w] = Some(p);
                let x = self.tensor(x)?;
                return self.put(call, GraphOp::Linear, &[x], &[p]);
            }
        }
        let (x, w) = (self.tensor(x)?, self.tensor(w)?);
        if rank_x == 2 || shape_w.len() == 2 {
            let w = self.b.transpose(w, shape_w.len().saturating_sub(2), shape_w.len().saturating_sub(1))?;
            let mut inputs = vec![x, w];
            if let Some(b) = bias {
                inputs.push(self.tensor(b)?);
            }
            return self.put(call, GraphOp::Linear, &inputs, &[]);
        }
        self.put(call, GraphOp::Matmul, &[x, w], &[])
    }

    fn reduction(&mut self, call: &ProgramCall, name: &str) -> Built<()> {
        let Some(x) = call.value(0) else { return self.unmodelled(call) };
        let rank = self.shape(x).len();
        let mut dims: Vec<usize> = call.wholes(1).iter().map(|&d| wrap(d, rank)).collect();
        if dims.is_empty() {
            dims = (0..rank).collect();
        }
        dims.sort_unstable();
        dims.dedup();
        self.one(call, if name == "mean" { GraphOp::Mean { dims } } else { GraphOp::Sum { dims } })
    }

    /// A mask of flags is read by the fused kernels at little cost; one of numbers is an operand.
    fn attention(&mut self, call: &ProgramCall) -> Built<()> {
        let (Some(q), Some(k), Some(v)) = (call.value(0), call.value(1), call.value(2)) else {
            return self.unmodelled(call);
        };
        let inputs = [self.tensor(q)?, self.tensor(k)?, self.tensor(v)?];
        self.put(
            call,
            GraphOp::Attention { causal: call.flag(5), dropout: false, eager: false },
            &inputs,
            &[],
        )
    }

    fn recurrent(&mut self, call: &ProgramCall, name: &str) -> Built<()> {
        // (x, [h, c] or h, weights, has_biases, layers, dropout, train, bidirectional, batch_first)
        let (Some(x), weights) = (call.value(0), call.values(2)) else { return self.unmodelled(call) };
        if weights.is_empty() || !weights.iter().all(|&w| self.is_param(w)) {
            return self.unmodelled(call);
        }
        let kind = if name == "lstm" { RnnKind::Lstm } else { RnnKind::Gru };
        let hidden = self.shape(weights[0])[0] / kind.gates();
        let layers = call.wholes(4).first().map_or(1, |&n| n.max(1) as u64);
        let op =
            GraphOp::Rnn { kind, hidden, layers, bidirectional: call.flag(7), batch_first: call.flag(8) };
        let params: Vec<Param> = weights.iter().map(|&w| self.param(w)).collect();
        let x = self.tensor(x)?;
        self.put(call, op, &[x], &params)
    }
}

fn window(call: &ProgramCall, ceil_at: usize) -> Window {
    let size = call.pair(1, 1)[0].max(1);
    let stride = match call.wholes(2)[..] {
        [] => size,
        _ => call.pair(2, size)[0].max(1),
    };
    Window { size, stride, pad: call.pair(3, 0)[0], ceil: call.flag(ceil_at) }
}
