//! Layers with parameters, activations and pooling.

use super::super::graph::{ConvGeometry, GraphOp, Unary};
use super::{Builder, Built, Param, Tensor};
use preflop_ops::{Conv, RnnKind};

/// A convolution to be built: output channels and filter, the rest by chained setters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvSpec {
    co: u64,
    filter: [u64; 2],
    stride: [u64; 2],
    pad: [u64; 2],
    dilation: [u64; 2],
    groups: u64,
    bias: bool,
    transposed: bool,
}

impl ConvSpec {
    /// `co` output channels, a square filter of side `k`, stride 1, no padding, with bias.
    pub fn new(co: u64, k: u64) -> Self {
        Self::rect(co, k, k)
    }

    /// A filter of `r` x `s`.
    pub fn rect(co: u64, r: u64, s: u64) -> Self {
        Self {
            co,
            filter: [r, s],
            stride: [1; 2],
            pad: [0; 2],
            dilation: [1; 2],
            groups: 1,
            bias: true,
            transposed: false,
        }
    }

    /// Stride in both directions.
    #[must_use]
    pub fn stride(mut self, stride: u64) -> Self {
        self.stride = [stride; 2];
        self
    }

    /// Padding on all sides.
    #[must_use]
    pub fn pad(self, pad: u64) -> Self {
        self.pad_hw(pad, pad)
    }

    /// Padding by direction.
    #[must_use]
    pub fn pad_hw(mut self, h: u64, w: u64) -> Self {
        self.pad = [h, w];
        self
    }

    /// Dilation in both directions.
    #[must_use]
    pub fn dilation(mut self, dilation: u64) -> Self {
        self.dilation = [dilation; 2];
        self
    }

    /// Channel groups.
    #[must_use]
    pub fn groups(mut self, groups: u64) -> Self {
        self.groups = groups;
        self
    }

    /// Without bias.
    #[must_use]
    pub fn no_bias(mut self) -> Self {
        self.bias = false;
        self
    }

    /// Transposed.
    #[must_use]
    pub fn transposed(mut self) -> Self {
        self.transposed = true;
        self
    }
}

/// Recurrent layers to be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RnnSpec {
    /// Cell.
    pub kind: RnnKind,
    /// State size.
    pub hidden: u64,
    /// Layers.
    pub layers: u64,
    /// Both directions?
    pub bidirectional: bool,
    /// Is the input `[batch, seq, features]`?
    pub batch_first: bool,
}

impl RnnSpec {
    /// `layers` LSTM layers of `hidden` features in one direction over `[seq, batch, features]`.
    pub fn lstm(hidden: u64, layers: u64) -> Self {
        Self { kind: RnnKind::Lstm, hidden, layers, bidirectional: false, batch_first: false }
    }
}

impl Builder {
    /// `nn.Conv2d` or, if the spec says so, `nn.ConvTranspose2d`.
    pub fn conv2d(&mut self, name: &str, x: Tensor, c: ConvSpec) -> Built {
        let shape = self.shape(x);
        let &[batch, ci, h, w] = &*shape else {
            return self
                .error(name, format!("a convolution needs [batch, channels, height, width], not {shape}"));
        };
        if c.groups == 0
            || !ci.is_multiple_of(c.groups)
            || !c.co.is_multiple_of(c.groups)
            || c.stride.contains(&0)
        {
            return self.error(
                name,
                format!("{ci} input and {} output channels do not divide into {} groups", c.co, c.groups),
            );
        }
        let conv = Conv {
            batch,
            ci,
            h,
            w,
            co: c.co,
            r: c.filter[0],
            s: c.filter[1],
            stride: c.stride,
            pad: c.pad,
            dilation: c.dilation,
            groups: c.groups,
            channels_last: false,
            transposed: c.transposed,
        };
        let (oh, ow) = (conv.oh(), conv.ow());
        if oh == 0 || ow == 0 {
            return self.error(name, format!("a {}x{} filter does not fit into {shape}", conv.r, conv.s));
        }
        let (first, second) = if c.transposed { (ci, c.co / c.groups) } else { (c.co, ci / c.groups) };
        let mut params =
            vec![self.layer_parameter(name, "weight", &[first, second, c.filter[0], c.filter[1]])];
        if c.bias {
            params.push(self.layer_parameter(name, "bias", &[c.co]));
        }
        let geometry = ConvGeometry {
            stride: c.stride,
            pad: c.pad,
            dilation: c.dilation,
            groups: c.groups,
            transposed: c.transposed,
        };
        self.count_module();
        self.call(name, GraphOp::Conv(geometry), &[x], &params, &[batch, c.co, oh, ow])
    }

    fn layer_parameter(&mut self, layer: &str, name: &str, shape: &[u64]) -> Param {
        self.parameter(&format!("{layer}.{name}"), shape)
    }

    /// `nn.BatchNorm2d` over dimension 1.
    pub fn batch_norm(&mut self, name: &str, x: Tensor) -> Built {
        let shape = self.shape(x);
        if shape.len() < 2 {
            return self.error(name, format!("batch norm needs channels, got {shape}"));
        }
        let channels = shape[1];
        let params = [
            self.layer_parameter(name, "weight", &[channels]),
            self.layer_parameter(name, "bias", &[channels]),
        ];
        // Running mean and variance, and the 8-byte counter.
        self.buffer(2 * channels + 2);
        self.count_module();
        self.call(name, GraphOp::BatchNorm, &[x], &params, &shape)
    }

    /// `nn.GroupNorm`.
    pub fn group_norm(&mut self, name: &str, x: Tensor, groups: u64) -> Built {
        let shape = self.shape(x);
        let channels = self.dim(x, 1);
        if shape.len() < 2 || groups == 0 || !channels.is_multiple_of(groups) {
            return self.error(name, format!("{shape} does not divide into {groups} groups of channels"));
        }
        let params = [
            self.layer_parameter(name, "weight", &[channels]),
            self.layer_parameter(name, "bias", &[channels]),
        ];
        self.count_module();
        self.call(name, GraphOp::GroupNorm { groups }, &[x], &params, &shape)
    }

    /// `nn.LayerNorm` over the last dimension.
    pub fn layer_norm(&mut self, name: &str, x: Tensor) -> Built {
        self.layer_norm_with(name, x, true)
    }

    /// Layer norm over the last dimension, with or without bias.
    pub fn layer_norm_with(&mut self, name: &str, x: Tensor, bias: bool) -> Built {
        let shape = self.shape(x);
        let cols = shape.last().copied().unwrap_or(1);
        let mut params = vec![self.layer_parameter(name, "weight", &[cols])];
        if bias {
            params.push(self.layer_parameter(name, "bias", &[cols]));
        }
        self.count_module();
        self.call(name, GraphOp::LayerNorm { cols }, &[x], &params, &shape)
    }

    /// A layer norm that learns nothing.
    pub fn layer_norm_bare(&mut self, name: &str, x: Tensor) -> Built {
        let shape = self.shape(x);
        let cols = shape.last().copied().unwrap_or(1);
        self.count_module();
        self.call(name, GraphOp::LayerNorm { cols }, &[x], &[], &shape)
    }

    /// Fused `nn.RMSNorm` over the last dimension.
    pub fn rms_norm(&mut self, name: &str, x: Tensor) -> Built {
        let shape = self.shape(x);
        let cols = shape.last().copied().unwrap_or(1);
        let params = [self.layer_parameter(name, "weight", &[cols])];
        self.count_module();
        self.call(name, GraphOp::RmsNorm, &[x], &params, &shape)
    }

    /// `LlamaRMSNorm` and `T5LayerNorm` of Hugging Face: to fp32, square, mean, add, rsqrt, multiply, back, times weight.
    pub fn hf_rms_norm(&mut self, name: &str, x: Tensor) -> Built {
        let cols = self.shape(x).last().copied().unwrap_or(1);
        let last = self.shape(x).len().saturating_sub(1);
        let weight = self.layer_parameter(name, "weight", &[cols]);
        self.count_module();
        self.scope(name, |b| {
            let f = b.to_float(x)?;
            let squared = b.unary(f, Unary::Pow)?;
            let mean = b.mean(squared, &[last], true)?;
            let shifted = b.unary(mean, Unary::AddScalar)?;
            let scale = b.unary(shifted, Unary::Rsqrt)?;
            let normed = b.mul(f, scale)?;
            let back = b.to_like(normed, x)?;
            let w = b.use_parameter(weight)?;
            b.mul(w, back)
        })
    }

    /// `nn.Linear` on the last dimension.
    pub fn linear(&mut self, name: &str, x: Tensor, out: u64, bias: bool) -> Built {
        let features = self.shape(x).last().copied().unwrap_or(1);
        let weight = self.layer_parameter(name, "weight", &[out, features]);
        let bias = bias.then(|| self.layer_parameter(name, "bias", &[out]));
        self.count_module();
        self.linear_with(name, x, weight, bias)
    }

    /// A linear layer with given (tied or packed) parameters; no module call is counted.
    pub fn linear_with(&mut self, name: &str, x: Tensor, weight: Param, bias: Option<Param>) -> Built {
        let shape = self.shape(x);
        let w = self.graph.parameters[weight.0 as usize].shape;
        let (&[out, features], Some(&last)) = (&*w, shape.last()) else {
            return self.error(name, format!("a weight of shape {w} is no matrix"));
        };
        if features != last {
            return self.error(name, format!("expects {features} features, got {shape}"));
        }
        let params: Vec<Param> = std::iter::once(weight).chain(bias).collect();
        self.call(name, GraphOp::Linear, &[x], &params, &shape.with(shape.len() - 1, out))
    }

    /// A linear layer whose weight and bias are tensors, such as pieces of a packed projection.
    pub fn linear_tensors(&mut self, name: &str, x: Tensor, weight: Tensor, bias: Tensor) -> Built {
        let (shape, w) = (self.shape(x), self.shape(weight));
        if w.len() != 2 || shape.last() != Some(&w[1]) {
            return self.error(name, format!("a weight of shape {w} does not fit {shape}"));
        }
        self.call(name, GraphOp::Linear, &[x, weight, bias], &[], &shape.with(shape.len() - 1, w[0]))
    }

    /// Hugging Face's `Conv1D`: a linear layer with its weight stored `[in, out]`.
    pub fn hf_conv1d(&mut self, name: &str, x: Tensor, out: u64) -> Built {
        let shape = self.shape(x);
        let features = shape.last().copied().unwrap_or(1);
        let params = [
            self.layer_parameter(name, "weight", &[features, out]),
            self.layer_parameter(name, "bias", &[out]),
        ];
        self.count_module();
        self.call(name, GraphOp::Addmm, &[x], &params, &shape.with(shape.len().saturating_sub(1), out))
    }

    /// `nn.Embedding`; returns the table too, for tied output layers.
    pub fn embedding(&mut self, name: &str, indices: Tensor, vocab: u64, dim: u64) -> Built<(Tensor, Param)> {
        let table = self.layer_parameter(name, "weight", &[vocab, dim]);
        Ok((self.embedding_with(name, indices, table)?, table))
    }

    /// Look-up in a given table.
    pub fn embedding_with(&mut self, name: &str, indices: Tensor, table: Param) -> Built {
        let mut shape = self.shape(indices).to_vec();
        let Some(&dim) = self.graph.parameters[table.0 as usize].shape.get(1) else {
            return self.error(name, "its table is no matrix");
        };
        shape.push(dim);
        self.count_module();
        self.call(name, GraphOp::Embedding, &[indices], &[table], &shape)
    }

    /// `nn.LSTM`, `nn.GRU` or `nn.RNN` without dropout; x is `[seq, batch, features]`, or batch first.
    pub fn rnn(&mut self, name: &str, x: Tensor, spec: RnnSpec) -> Built {
        let RnnSpec { kind, hidden, layers, bidirectional, batch_first } = spec;
        let shape = self.shape(x);
        let &[a, b, features] = &*shape else {
            return self.error(name, format!("a recurrent layer needs [seq, batch, features], not {shape}"));
        };
        if hidden == 0 || layers == 0 || layers > 1024 {
            return self.error(name, format!("{layers} layers of {hidden} features make no recurrent layer"));
        }
        let dirs = if bidirectional { 2 } else { 1 };
        let rows = kind.gates() * hidden;
        let mut params = Vec::new();
        for layer in 0..layers {
            let input = if layer == 0 { features } else { hidden * dirs };
            for dir in 0..dirs {
                let suffix = if dir == 0 { "" } else { "_reverse" };
                for (part, shape) in [
                    ("weight_ih", vec![rows, input]),
                    ("weight_hh", vec![rows, hidden]),
                    ("bias_ih", vec![rows]),
                    ("bias_hh", vec![rows]),
                ] {
                    params.push(self.layer_parameter(name, &format!("{part}_l{layer}{suffix}"), &shape));
                }
            }
        }
        self.count_module();
        let op = GraphOp::Rnn { kind, hidden, layers, bidirectional, batch_first };
        self.call(name, op, &[x], &params, &[a, b, hidden * dirs])
    }
}
