//! Convolution, norms and pooling: operators over feature maps and rows.

use super::backward::Backward;
use super::{Edge, Few, Lowering, Value};
use preflop_graph::Dims;
use preflop_graph::graph::{ConvGeometry, Window};
use preflop_ops::{Conv, ElementwiseKind as E, Op, Pass, Rowwise, RowwiseKind, Spatial, SpatialKind};
use preflop_units::dtype::Dtype;

/// Strides of maps `[n, c, h, w]` with the channels innermost.
fn channels_last_strides(shape: Dims) -> Dims {
    shape.permuted(&[0, 2, 3, 1]).contiguous_strides().permuted(&[0, 3, 1, 2])
}

/// Channels and places of a convolution's tensors, over maps or volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub batch: u64,
    pub ci: u64,
    pub co: u64,
    /// Places of an input map, an output map and a filter.
    pub x: u64,
    pub y: u64,
    pub w: u64,
}

/// [`nhwc_copies`] of a convolution over maps.
pub(crate) fn layout_workspace(c: &Conv, pass: Pass, math: Dtype) -> f64 {
    let (x, y) = (c.h.saturating_mul(c.w), c.oh().saturating_mul(c.ow()));
    let w = c.r.saturating_mul(c.s);
    nhwc_copies(c, Extent { batch: c.batch, ci: c.ci, co: c.co, x, y, w }, pass, math)
}

/// cuDNN runs tensor-core convolutions in NHWC. For NCHW tensors it holds copies of input, output and filter in
/// that layout while the call runs, channels padded to 16 bytes; of grouped ones input and output as they are. It needs none where each channel is a group of
/// its own, for 1x1 filters in TF32 or forward, where the products can read NCHW as it is, nor forward over images (fewer channels than 16 bytes hold) with filters of
/// up to nine places. Channels-last it copies only to pad. (Rules read off the peaks of H200 runs.)
pub(crate) fn nhwc_copies(c: &Conv, of: Extent, pass: Pass, math: Dtype) -> f64 {
    let e = math.size();
    let lanes = 16.0 / e;
    let padded = |channels: u64| (channels as f64 / lanes).ceil() * lanes;
    let reads_nchw = of.w == 1 && (pass == Pass::Fwd || !math.is_half());
    let image = padded(of.ci) > of.ci as f64 && of.w <= 9 && pass == Pass::Fwd && c.groups == 1;
    if !math.on_tensor_cores() || c.groups >= of.ci && c.groups > 1 {
        return 0.0;
    }
    let (x, y) = (of.batch as f64 * of.x as f64, of.batch as f64 * of.y as f64);
    if c.channels_last {
        // Maps of few channels (images) are copied with their channels padded.
        let copied = padded(of.ci) > of.ci as f64 && math.is_half() && pass == Pass::Fwd && c.groups == 1;
        return if copied { x * padded(of.ci) * e } else { 0.0 };
    }
    if reads_nchw || image {
        return 0.0;
    }
    if c.groups > 1 {
        return (x * of.ci as f64 + y * of.co as f64) * e;
    }
    let (ci, co) = (padded(of.ci), padded(of.co));
    (x * ci + y * co + ci * co * of.w as f64) * e
}

impl Lowering<'_> {
    /// `convolution`: the product, and the bias as an `add_` of its own.
    pub(super) fn conv(
        &mut self,
        x: Value,
        weight: Value,
        bias: Option<Value>,
        g: &ConvGeometry,
        shape: Dims,
    ) -> Value {
        // Maps that come channels-last stay so, and the filter is copied into that layout.
        let nhwc = x.is_channels_last();
        let x = if nhwc { x } else { self.contiguous(x) };
        self.ops(1);
        let channels_last = nhwc || self.graph.channels_last;
        let op = Conv { channels_last, ..g.of(x.shape, weight.shape, shape[1]) };
        let math = self.policy.cudnn_math(x.dtype);
        let out = if nhwc {
            self.copy_filter(weight);
            self.alloc_strided(shape, channels_last_strides(shape), x.dtype)
        } else {
            self.alloc(shape, x.dtype)
        };
        self.memory.workspace(layout_workspace(&op, Pass::Fwd, math));
        self.emit(Op::Conv(op), Pass::Fwd, math);
        self.flow(&[x, weight], &[out]);
        if let Some(b) = bias {
            let kind = if channels_last { E::AddBias } else { E::AddChannel };
            self.elementwise(kind, out.numel(), out.dtype);
            self.flow(&[out, b], &[out]);
        }
        let inputs: Vec<Value> = [x, weight].into_iter().chain(bias).collect();
        self.record1(Backward::Conv { op, nhwc }, &inputs, &[x.storage, weight.storage], out)
    }

    /// A filter brought to channels-last, or its gradient back: a copy, unless one layout is both (one channel or one place).
    fn copy_filter(&mut self, weight: Value) {
        let places: u64 = weight.shape[2..].iter().product();
        if weight.shape[1] > 1 && places > 1 {
            let copy = Value { strides: channels_last_strides(weight.shape), ..weight };
            let out = self.alloc(weight.shape, weight.dtype);
            self.copy_kernel(copy);
            self.flow(&[weight], &[out]);
        }
    }

    /// A gradient brought to the layout of the forward.
    fn channels_last_copy(&mut self, x: Value) -> Value {
        if x.is_channels_last() {
            return x;
        }
        let out = self.alloc_strided(x.shape, channels_last_strides(x.shape), x.dtype);
        self.copy_kernel(out);
        self.flow(&[x], &[out]);
        out
    }

    /// Both gradients of a convolution in one call, and the bias gradient.
    pub(super) fn conv_backward(
        &mut self,
        op: &Conv,
        nhwc: bool,
        grad: Value,
        needed: &[Edge],
        metas: &[(Dims, Dtype)],
        wanted: &[u32],
    ) -> Few<Option<Value>> {
        let grad = if nhwc { self.channels_last_copy(grad) } else { self.contiguous(grad) };
        self.ops(1);
        let math = self.policy.cudnn_math(grad.dtype);
        let mut out = Few::new();
        for (i, pass) in [(0, Pass::Dgrad), (1, Pass::Wgrad)] {
            out.push((needed[i] != Edge::None).then(|| {
                let (shape, data) = (metas[i].0, pass == Pass::Dgrad);
                let v = if nhwc && data {
                    self.alloc_strided(shape, channels_last_strides(shape), grad.dtype)
                } else {
                    self.alloc(shape, grad.dtype)
                };
                self.memory.workspace(layout_workspace(op, pass, math));
                self.emit(Op::Conv(*op), pass, math);
                self.flow_back(&[grad], wanted.get(1 - i), &[v]);
                if nhwc {
                    // The filter for the data gradient; the filter's gradient back to the parameter's layout.
                    let (shape, dtype) = metas[1];
                    self.copy_filter(Value { shape, dtype, ..v });
                }
                v
            }));
        }
        if needed.len() > 2 {
            let kind = if op.channels_last { RowwiseKind::SumCols } else { RowwiseKind::SumChannels };
            out.push(Some(self.sum_as(kind, grad, metas[2].0)));
        }
        out
    }

    /// Batch norm: by cuDNN, or by PyTorch's own kernels for bf16 in NCHW; with stored statistics in inference.
    pub(super) fn batch_norm(&mut self, x: Value, weight: Value, bias: Value) -> Value {
        let x = self.contiguous(x);
        let shape = x.shape;
        let maps: u64 = shape.get(2..).map_or(1, |s| s.iter().product());
        let (h, w) = if shape.len() == 4 { (shape[2], shape[3]) } else { (maps, 1) };
        let kind = match (self.training, x.dtype) {
            (false, _) => SpatialKind::BatchNormEval,
            (true, Dtype::Bf16) if !self.graph.channels_last => SpatialKind::BatchNormNative,
            (true, _) => SpatialKind::BatchNorm,
        };
        if self.training {
            // num_batches_tracked += 1
            self.ops(1);
            self.elementwise(E::AddScalar, 1, Dtype::Int64);
        }
        self.ops(1);
        let out = self.alloc(shape, x.dtype);
        let op = Spatial::norm(kind, shape[0], shape[1], h, w, self.graph.channels_last);
        self.emit(Op::Spatial(op), Pass::Fwd, x.dtype);
        if !self.training {
            self.flow(&[x, weight, bias], &[out]);
            return out;
        }
        let mean = self.alloc_elements(shape[1], Dtype::Fp32);
        let deviation = self.alloc_elements(shape[1], Dtype::Fp32);
        self.flow_more(&[x, weight, bias], &[out], &[mean, deviation]);
        let saved = [x.storage, weight.storage, mean, deviation];
        self.record1(Backward::Spatial(op), &[x, weight, bias], &saved, out)
    }

    /// Group norm; autocast computes it in fp32.
    pub(super) fn group_norm(&mut self, x: Value, weight: Value, bias: Value, groups: u64) -> Value {
        let x = self.in_full(x);
        let x = self.contiguous(x);
        let shape = x.shape;
        let maps: u64 = shape.get(2..).map_or(1, |s| s.iter().product());
        let (h, w) = if shape.len() == 4 { (shape[2], shape[3]) } else { (maps, 1) };
        self.ops(1);
        let out = self.alloc(shape, x.dtype);
        let last = self.graph.channels_last;
        let op = Spatial { groups, ..Spatial::norm(SpatialKind::GroupNorm, shape[0], shape[1], h, w, last) };
        self.emit(Op::Spatial(op), Pass::Fwd, x.dtype);
        let mean = self.alloc_elements(shape[0].saturating_mul(groups), x.dtype);
        let deviation = self.alloc_elements(shape[0].saturating_mul(groups), x.dtype);
        self.flow_more(&[x, weight, bias], &[out], &[mean, deviation]);
        self.record1(Backward::Spatial(op), &[x, weight, bias], &[x.storage, mean, deviation], out)
    }

    /// Layer norm or RMS norm along rows; autocast computes them in fp32.
    pub(super) fn row_norm(&mut self, x: Value, affine: &[Value], cols: u64, kind: RowwiseKind) -> Value {
        let x = self.in_full(x);
        let x = self.contiguous(x);
        self.ops(1);
        let rows = x.numel() / cols.max(1);
        let out = self.alloc(x.shape, x.dtype);
        self.emit(Op::Rowwise(Rowwise { kind, rows, cols }), Pass::Fwd, x.dtype);
        let mut saved = vec![x.storage, self.alloc_elements(rows, Dtype::Fp32)];
        if kind == RowwiseKind::LayerNorm {
            saved.push(self.alloc_elements(rows, Dtype::Fp32));
        }
        let inputs: Vec<Value> = std::iter::once(x).chain(affine.iter().copied()).collect();
        self.flow_more(&inputs, &[out], &saved[1..]);
        self.record1(Backward::RowNorm { kind, rows, cols }, &inputs, &saved, out)
    }

    /// Max or average pooling.
    pub(super) fn pool(&mut self, x: Value, kind: SpatialKind, window: &Window, shape: Dims) -> Value {
        let x = self.contiguous(x);
        self.ops(1);
        let out = self.alloc(shape, x.dtype);
        let op = Spatial {
            window: window.size,
            stride: window.stride,
            pad: window.pad,
            ..Spatial::norm(kind, x.shape[0], x.shape[1], x.shape[2], x.shape[3], self.graph.channels_last)
        };
        self.emit(Op::Spatial(op), Pass::Fwd, x.dtype);
        let mut saved = vec![x.storage];
        if kind == SpatialKind::MaxPool {
            saved.push(self.alloc_elements(out.numel(), Dtype::Int64));
        }
        self.flow_more(&[x], &[out], &saved[1..]);
        self.record1(Backward::Spatial(op), &[x], &saved, out)
    }

    /// Mean over dimensions; a mean over whole maps is global average pooling.
    pub(super) fn mean(&mut self, x: Value, dims: &[usize], shape: Dims) -> Value {
        self.ops(1);
        let out = self.alloc(shape, x.dtype);
        self.reduce_kernel(x, dims, out.numel());
        self.flow(&[x], &[out]);
        self.record1(Backward::Mean, &[x], &[], out)
    }

    /// Sum over dimensions; autocast computes it in fp32.
    pub(super) fn sum(&mut self, x: Value, dims: &[usize], shape: Dims) -> Value {
        let x = self.in_full(x);
        self.ops(1);
        let out = self.alloc(shape, x.dtype);
        self.reduce_kernel(x, dims, out.numel());
        self.flow(&[x], &[out]);
        self.record1(Backward::Expanded, &[x], &[], out)
    }

    fn reduce_kernel(&mut self, x: Value, dims: &[usize], outputs: u64) {
        let per_output = x.numel() / outputs.max(1);
        if x.shape.len() == 4 && dims == [2, 3] {
            let op = Spatial::norm(
                SpatialKind::GlobalAvgPool,
                x.shape[0],
                x.shape[1],
                x.shape[2],
                x.shape[3],
                self.graph.channels_last,
            );
            self.emit(Op::Spatial(op), Pass::Fwd, x.dtype);
            return;
        }
        let inner = dims.contains(&(x.shape.len().saturating_sub(1)));
        let op = if inner {
            Rowwise { kind: RowwiseKind::Sum, rows: outputs, cols: per_output }
        } else {
            Rowwise { kind: RowwiseKind::SumCols, rows: per_output, cols: outputs }
        };
        self.emit(Op::Rowwise(op), Pass::Fwd, x.dtype);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A 3x3 layer over 56 x 56 maps of 64 channels, four images.
    fn layer() -> Conv {
        Conv {
            batch: 4,
            ci: 64,
            h: 56,
            w: 56,
            co: 64,
            r: 3,
            s: 3,
            stride: [1; 2],
            pad: [1; 2],
            dilation: [1; 2],
            groups: 1,
            channels_last: false,
            transposed: false,
        }
    }

    #[test]
    fn copies_of_plain_grouped_and_first_layers() {
        let bytes = |c: &Conv| layout_workspace(c, Pass::Fwd, Dtype::Bf16);
        let maps = f64::from(4 * 64 * 56 * 56 * 2);
        assert_eq!(bytes(&layer()), 2.0 * maps + f64::from(64 * 64 * 9 * 2));
        assert_eq!(bytes(&Conv { groups: 4, ..layer() }), 2.0 * maps);
        assert_eq!(bytes(&Conv { groups: 64, ..layer() }), 0.0);
        assert_eq!(bytes(&Conv { r: 1, s: 1, pad: [0; 2], ..layer() }), 0.0);
        assert_eq!(bytes(&Conv { channels_last: true, ..layer() }), 0.0);
        // Images: read as they are by 3x3 filters, copied to eight channels for 7x7.
        assert_eq!(bytes(&Conv { ci: 3, ..layer() }), 0.0);
        let wide = Conv { ci: 3, r: 7, s: 7, pad: [3; 2], ..layer() };
        assert_eq!(bytes(&wide), maps / 8.0 + maps + f64::from(8 * 64 * 49 * 2));
        // Without tensor cores nothing is turned.
        assert_eq!(layout_workspace(&layer(), Pass::Fwd, Dtype::Fp32), 0.0);
    }

    #[test]
    fn a_volume_is_copied_once() {
        let of = Extent { batch: 4, ci: 64, co: 64, x: 8 * 56 * 56, y: 8 * 56 * 56, w: 27 };
        let volume = f64::from(4 * 64 * 8 * 56 * 56 * 2);
        let bytes = nhwc_copies(&layer(), of, Pass::Fwd, Dtype::Bf16);
        assert_eq!(bytes, 2.0 * volume + f64::from(64 * 64 * 27 * 2));
    }
}
