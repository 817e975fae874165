//! Functions without parameters: activations, arithmetic, pooling, attention.

use super::super::graph::{Binary, Content, GraphOp, Unary, Window};
use super::{Builder, Built, Tensor};
use preflop_ops::Resize;

impl Builder {
    /// Elementwise function (functional: no module call).
    pub fn unary(&mut self, x: Tensor, kind: Unary) -> Built {
        let shape = self.shape(x);
        self.call(unary_name(kind), GraphOp::Unary { kind, inplace: false }, &[x], &[], &shape)
    }

    /// In-place elementwise function (functional: no module call).
    pub fn unary_(&mut self, x: Tensor, kind: Unary) -> Built {
        let shape = self.shape(x);
        self.call(unary_name(kind), GraphOp::Unary { kind, inplace: true }, &[x], &[], &shape)
    }

    /// An activation module, in place or not.
    pub fn activation(&mut self, name: &str, x: Tensor, kind: Unary, inplace: bool) -> Built {
        let shape = self.shape(x);
        self.count_module();
        self.call(name, GraphOp::Unary { kind, inplace }, &[x], &[], &shape)
    }

    /// `nn.ReLU(inplace=True)`.
    pub fn relu_(&mut self, x: Tensor) -> Built {
        self.activation("relu", x, Unary::Relu, true)
    }

    /// `nn.ReLU()`.
    pub fn relu(&mut self, x: Tensor) -> Built {
        self.activation("relu", x, Unary::Relu, false)
    }

    /// `nn.GELU()`.
    pub fn gelu(&mut self, x: Tensor) -> Built {
        self.activation("gelu", x, Unary::Gelu, false)
    }

    /// Hugging Face's `NewGELUActivation`: 0.5 x (1 + tanh(c (x + 0.044715 x^3))), operator by operator.
    pub fn gelu_new(&mut self, x: Tensor) -> Built {
        self.count_module();
        self.scope("act", |b| {
            let half = b.unary(x, Unary::MulScalar)?;
            let cube = b.unary(x, Unary::Pow)?;
            let cube = b.unary(cube, Unary::MulScalar)?;
            let sum = b.add(x, cube)?;
            let sum = b.unary(sum, Unary::MulScalar)?;
            let tanh = b.unary(sum, Unary::Tanh)?;
            let one = b.unary(tanh, Unary::AddScalar)?;
            b.mul(half, one)
        })
    }

    /// `a + b` with broadcasting.
    pub fn add(&mut self, a: Tensor, b: Tensor) -> Built {
        self.binary(a, b, Binary::Add, false)
    }

    /// `a += b`.
    pub fn add_(&mut self, a: Tensor, b: Tensor) -> Built {
        self.binary(a, b, Binary::Add, true)
    }

    /// `a * b` with broadcasting.
    pub fn mul(&mut self, a: Tensor, b: Tensor) -> Built {
        self.binary(a, b, Binary::Mul, false)
    }

    /// Elementwise function of two tensors.
    pub fn binary(&mut self, a: Tensor, b: Tensor, kind: Binary, inplace: bool) -> Built {
        let (sa, sb) = (self.shape(a), self.shape(b));
        let name = match kind {
            Binary::Add => "add",
            Binary::Sub => "sub",
            Binary::Mul => "mul",
        };
        let rank = sa.len().max(sb.len());
        let at = |s: &[u64], i: usize| (i + s.len()).checked_sub(rank).map_or(1, |j| s[j]);
        let mut out = Vec::with_capacity(rank);
        for i in 0..rank {
            let (x, y) = (at(&sa, i), at(&sb, i));
            if x != y && x != 1 && y != 1 {
                return self.error(name, format!("{sa} and {sb} do not broadcast"));
            }
            out.push(x.max(y));
        }
        self.call(name, GraphOp::Binary { kind, inplace }, &[a, b], &[], &out)
    }

    /// `nn.Dropout`.
    pub fn dropout(&mut self, x: Tensor) -> Built {
        let shape = self.shape(x);
        self.count_module();
        self.call("dropout", GraphOp::Dropout, &[x], &[], &shape)
    }

    /// `nn.MaxPool2d`.
    pub fn max_pool(&mut self, name: &str, x: Tensor, window: Window) -> Built {
        self.count_module();
        self.pool(name, x, window, GraphOp::MaxPool(window))
    }

    /// `nn.AvgPool2d`.
    pub fn avg_pool(&mut self, name: &str, x: Tensor, window: Window) -> Built {
        self.count_module();
        self.pool(name, x, window, GraphOp::AvgPool(window))
    }

    /// `F.max_pool2d`: no module call.
    pub fn functional_max_pool(&mut self, x: Tensor, window: Window) -> Built {
        self.pool("max_pool", x, window, GraphOp::MaxPool(window))
    }

    /// `F.avg_pool2d`: no module call.
    pub fn functional_avg_pool(&mut self, x: Tensor, window: Window) -> Built {
        self.pool("avg_pool", x, window, GraphOp::AvgPool(window))
    }

    fn pool(&mut self, name: &str, x: Tensor, w: Window, op: GraphOp) -> Built {
        let shape = self.shape(x);
        let &[batch, channels, height, width] = &*shape else {
            return self.error(name, format!("pooling needs [batch, channels, height, width], not {shape}"));
        };
        let out = |size: u64| -> Option<u64> {
            let span = size.checked_add(w.pad.checked_mul(2)?)?.checked_sub(w.size)?;
            let stride = w.stride.max(1);
            let n = if w.ceil { span.div_ceil(stride) + 1 } else { span / stride + 1 };
            // A window that starts beyond the padded input is dropped (PyTorch's ceil rule).
            Some(if w.ceil && (n - 1) * stride >= size + w.pad { n - 1 } else { n })
        };
        let (Some(oh), Some(ow)) = (out(height), out(width)) else {
            return self.error(name, format!("a window of {} does not fit into {shape}", w.size));
        };
        self.call(name, op, &[x], &[], &[batch, channels, oh, ow])
    }

    /// `nn.AdaptiveAvgPool2d`.
    pub fn adaptive_avg_pool(&mut self, name: &str, x: Tensor, oh: u64, ow: u64) -> Built {
        let shape = self.shape(x);
        if shape.len() != 4 {
            return self.error(name, format!("pooling needs [batch, channels, height, width], not {shape}"));
        }
        self.count_module();
        self.call(name, GraphOp::AdaptiveAvgPool, &[x], &[], &[shape[0], shape[1], oh, ow])
    }

    /// Resizing to `oh` x `ow`.
    pub fn interpolate(&mut self, x: Tensor, oh: u64, ow: u64, how: Resize) -> Built {
        let shape = self.shape(x);
        if shape.len() != 4 {
            return self.error("interpolate", format!("needs [batch, channels, height, width], not {shape}"));
        }
        self.call("interpolate", GraphOp::Interpolate { how }, &[x], &[], &[shape[0], shape[1], oh, ow])
    }

    /// `roi_align` of `rois` regions to `size` x `size`.
    pub fn roi_align(&mut self, x: Tensor, rois: u64, size: u64, sampling: u64) -> Built {
        let channels = self.dim(x, 1);
        self.call("roi_align", GraphOp::RoiAlign { sampling }, &[x], &[], &[rois, channels, size, size])
    }

    /// Non-maximum suppression: integer indices of `kept` of the boxes `[n, 4]`.
    pub fn nms(&mut self, boxes: Tensor, kept: u64) -> Built {
        self.push_new("nms", GraphOp::Nms, &[boxes], &[], &[kept], Content::Int)
    }

    /// `softmax(dim=-1)`.
    pub fn softmax(&mut self, x: Tensor) -> Built {
        let shape = self.shape(x);
        self.call("softmax", GraphOp::Softmax, &[x], &[], &shape)
    }

    /// `torch.matmul`/`bmm` of `[.., m, k]` and `[.., k, n]` with equal leading sizes.
    pub fn matmul(&mut self, a: Tensor, b: Tensor) -> Built {
        let (sa, sb) = (self.shape(a), self.shape(b));
        let rank = sa.len();
        if rank < 3 || sb.len() != rank || sa[..rank - 2] != sb[..rank - 2] || sa[rank - 1] != sb[rank - 2] {
            return self.error("matmul", format!("{sa} and {sb} cannot be multiplied"));
        }
        self.call("matmul", GraphOp::Matmul, &[a, b], &[], &sa.with(rank - 1, sb[rank - 1]))
    }
}

fn unary_name(kind: Unary) -> &'static str {
    match kind {
        Unary::Relu => "relu",
        Unary::LeakyRelu => "leaky_relu",
        Unary::Relu6 => "relu6",
        Unary::Gelu => "gelu",
        Unary::Tanh => "tanh",
        Unary::Sigmoid => "sigmoid",
        Unary::Silu => "silu",
        Unary::Hardswish => "hardswish",
        Unary::Hardsigmoid => "hardsigmoid",
        Unary::Elu => "elu",
        Unary::AddScalar => "add",
        Unary::MulScalar => "mul",
        Unary::Pow => "pow",
        Unary::Rsqrt => "rsqrt",
        Unary::Exp => "exp",
        Unary::Sine => "sine",
        Unary::Neg => "neg",
    }
}
