//! Norms, pooling, softmax, losses, look-ups, reductions, resizing.

use super::super::view::{Call, Tensor, wrapped};
use super::pointwise::movement;
use super::{Context, elementwise};
use preflop_ops::{
    CrossEntropy, ElementwiseKind as E, Embedding, Interpolate, Listed, ListedKind, Nms, Op, OpCall, Pass,
    Resize, RoiAlign, Rowwise, RowwiseKind, Spatial, SpatialKind,
};
use preflop_units::dtype::Dtype;

pub(super) fn kernels(name: &str, call: &Call<'_>, context: &Context) -> Option<Vec<OpCall>> {
    match name {
        "cudnn_batch_norm" | "native_batch_norm" | "_native_batch_norm_legit" | "_batch_norm_with_update" => {
            let training = name == "_batch_norm_with_update" || call.flag(5);
            batch_norm(call.tensor(0)?, name.starts_with("cudnn"), training, Pass::Fwd)
        }
        "_native_batch_norm_legit_no_training" | "_batch_norm_no_update" => {
            batch_norm(call.tensor(0)?, false, false, Pass::Fwd)
        }
        "cudnn_batch_norm_backward" => batch_norm(call.tensor(0)?, true, true, Pass::Bwd),
        "native_batch_norm_backward" | "batch_norm_backward" => {
            batch_norm(call.tensor(1)?, false, true, Pass::Bwd)
        }
        // (input, weight, bias, batch, channels, area, groups, ..)
        "native_group_norm" => group_norm(call.tensor(0)?, &call.wholes(6), Pass::Fwd),
        // (grad, input, mean, deviation, weight, batch, channels, area, groups, ..)
        "native_group_norm_backward" => group_norm(call.tensor(1)?, &call.wholes(8), Pass::Bwd),
        "max_pool2d_with_indices" => pool(call, 0, SpatialKind::MaxPool, Pass::Fwd),
        "max_pool2d_with_indices_backward" => pool(call, 1, SpatialKind::MaxPool, Pass::Bwd),
        "avg_pool2d" => pool(call, 0, SpatialKind::AvgPool, Pass::Fwd),
        "avg_pool2d_backward" => pool(call, 1, SpatialKind::AvgPool, Pass::Bwd),
        "_adaptive_avg_pool2d" => adaptive(call.tensor(0)?, call.output(0)?, Pass::Fwd),
        "_adaptive_avg_pool2d_backward" => adaptive(call.tensor(1)?, call.tensor(0)?, Pass::Bwd),
        "native_layer_norm" => norm(call, RowwiseKind::LayerNorm, Pass::Fwd),
        "native_layer_norm_backward" => norm(call, RowwiseKind::LayerNorm, Pass::Bwd),
        "_fused_rms_norm" => norm(call, RowwiseKind::RmsNorm, Pass::Fwd),
        "_fused_rms_norm_backward" => norm(call, RowwiseKind::RmsNorm, Pass::Bwd),
        "_softmax" | "_softmax_backward_data" | "_log_softmax" | "_log_softmax_backward_data" => {
            softmax(name, call, context)
        }
        "_safe_softmax" => {
            // Softmax, then zeros in rows that are masked altogether: a test, its conjunction along rows, a choice.
            let x = call.tensor(0)?;
            let mut calls = rowwise(x, x.sizes.len().saturating_sub(1), RowwiseKind::Softmax, Pass::Fwd);
            let cols = x.sizes.last().copied().unwrap_or(1).max(1);
            let all = Rowwise { kind: RowwiseKind::Sum, rows: x.elements() / cols, cols };
            calls.push(elementwise(E::Relu, x.elements(), x.dtype));
            calls.push(OpCall::fwd(Op::Rowwise(all), Dtype::Int8));
            calls.push(elementwise(E::Fill, 1, x.dtype));
            calls.push(elementwise(E::AddBias, x.elements(), x.dtype));
            Some(calls)
        }
        "binary_cross_entropy"
        | "binary_cross_entropy_with_logits"
        | "mse_loss"
        | "smooth_l1_loss"
        | "huber_loss"
        | "l1_loss" => {
            let x = call.tensor(0)?;
            let sum = Rowwise { kind: RowwiseKind::Sum, rows: 1, cols: x.elements() };
            Some(vec![elementwise(E::Mul, x.elements(), x.dtype), OpCall::fwd(Op::Rowwise(sum), x.dtype)])
        }
        "binary_cross_entropy_backward"
        | "mse_loss_backward"
        | "smooth_l1_loss_backward"
        | "huber_loss_backward" => {
            let x = call.tensor(1)?;
            let (n, dtype) = (x.elements(), x.dtype);
            Some(vec![elementwise(E::Mul, n, dtype), elementwise(E::AddScalar, n, dtype)])
        }
        "nll_loss_forward" | "nll_loss_backward" | "nll_loss2d_forward" | "nll_loss2d_backward" => {
            // Part of the cross-entropy that the log-softmax stands for.
            Some(Vec::new())
        }
        "embedding" => {
            let (table, tokens) = (call.tensor(0)?, call.tensor(1)?);
            if !tokens.is_contiguous() {
                // A column of indices, say: its places are read by the kernel that picks element by element.
                let [vocab, dim] = <[u64; 2]>::try_from(table.sizes).ok()?;
                let picked = Listed::new(ListedKind::GatherDim, &[vocab, dim, tokens.elements()]);
                return Some(vec![OpCall::fwd(Op::Listed(picked), table.dtype)]);
            }
            embedding(table.sizes, tokens.elements(), Pass::Fwd, table)
        }
        "embedding_dense_backward" => {
            let vocab = call.wholes(2).first().map(|&n| n.max(1) as u64)?;
            let grad = call.tensor(0)?;
            let dim = *grad.sizes.last()?;
            embedding(&[vocab, dim], call.tensor(1)?.elements(), Pass::Bwd, grad)
        }
        "sum" | "mean" | "amax" | "amin" | "max" | "min" | "norm" | "linalg_vector_norm" | "var"
        | "var_mean" | "std" | "all" | "any" | "argmax" | "argmin" | "prod" | "logsumexp" => {
            reduction(name, call)
        }
        "upsample_nearest2d" | "upsample_bilinear2d" | "upsample_bicubic2d" => {
            interpolate(name, call.tensor(0)?, call.output(0)?, Pass::Fwd)
        }
        "upsample_nearest2d_backward" | "upsample_bilinear2d_backward" | "upsample_bicubic2d_backward" => {
            interpolate(name, call.output(0)?, call.tensor(0)?, Pass::Bwd)
        }
        "torchvision::nms" => {
            let boxes = *call.tensor(0)?.sizes.first()?;
            Some(vec![OpCall::fwd(Op::Nms(Nms { boxes }), call.tensor(0)?.dtype)])
        }
        "torchvision::roi_align" => {
            let y = call.output(0)?;
            let [rois, channels, size, _] = <[u64; 4]>::try_from(y.sizes).ok()?;
            let sampling = call.wholes(5).first().map_or(2, |&n| if n > 0 { n as u64 } else { 2 });
            Some(vec![OpCall::fwd(Op::RoiAlign(RoiAlign { rois, channels, size, sampling }), y.dtype)])
        }
        _ => None,
    }
}

/// Images, channels, height and width; norms also run over `[b, c]` and `[b, c, l]`.
fn maps(x: Tensor<'_>) -> Option<[u64; 4]> {
    match *x.sizes {
        [b, c, h, w] => Some([b, c, h, w]),
        [b, c, ref rest @ ..] => Some([b, c, rest.iter().product::<u64>().max(1), 1]),
        _ => None,
    }
}

fn spatial(x: Tensor<'_>, kind: SpatialKind, pass: Pass) -> Option<Vec<OpCall>> {
    let [b, c, h, w] = maps(x)?;
    let op = Spatial::norm(kind, b, c, h, w, x.is_channels_last());
    Some(vec![OpCall::new(Op::Spatial(op), pass, x.dtype)])
}

/// PyTorch's own kernels run in NCHW where cuDNN is not asked (half precision, norms without weights), cuDNN's otherwise; stored
/// statistics are one pass.
fn batch_norm(x: Tensor<'_>, cudnn: bool, training: bool, pass: Pass) -> Option<Vec<OpCall>> {
    let kind = if !training {
        SpatialKind::BatchNormEval
    } else if !cudnn && !x.is_channels_last() {
        SpatialKind::BatchNormNative
    } else {
        SpatialKind::BatchNorm
    };
    spatial(x, kind, pass)
}

fn group_norm(x: Tensor<'_>, groups: &[i64], pass: Pass) -> Option<Vec<OpCall>> {
    let [b, c, h, w] = maps(x)?;
    // Groups that do not divide the channels cannot be.
    let groups = u64::try_from(groups.first().copied().unwrap_or(1)).ok()?;
    if groups == 0 || !c.is_multiple_of(groups) {
        return None;
    }
    let op = Spatial { groups, ..Spatial::norm(SpatialKind::GroupNorm, b, c, h, w, x.is_channels_last()) };
    Some(vec![OpCall::new(Op::Spatial(op), pass, x.dtype)])
}

fn pool(call: &Call<'_>, at: usize, kind: SpatialKind, pass: Pass) -> Option<Vec<OpCall>> {
    let x = call.tensor(at)?;
    let [b, c, h, w] = <[u64; 4]>::try_from(x.sizes).ok()?;
    let window = call.pair(at + 1, 1)[0].clamp(1, h.max(1));
    let stride = call.pair(at + 2, window)[0].max(1);
    let pad = call.pair(at + 3, 0)[0].min(window);
    let op = Spatial { window, stride, pad, ..Spatial::norm(kind, b, c, h, w, x.is_channels_last()) };
    Some(vec![OpCall::new(Op::Spatial(op), pass, x.dtype)])
}

fn adaptive(x: Tensor<'_>, y: Tensor<'_>, pass: Pass) -> Option<Vec<OpCall>> {
    let ([b, c, h, w], [_, _, oh, ow]) =
        (<[u64; 4]>::try_from(x.sizes).ok()?, <[u64; 4]>::try_from(y.sizes).ok()?);
    if oh == 1 && ow == 1 {
        return spatial(x, SpatialKind::GlobalAvgPool, pass);
    }
    let (window, stride) = (h.div_ceil(oh.max(1)).max(1), (h / oh.max(1)).max(1));
    let base = Spatial::norm(SpatialKind::AvgPool, b, c, h, w, x.is_channels_last());
    let op = Spatial { window, stride, pad: 0, ..base };
    Some(vec![OpCall::new(Op::Spatial(op), pass, x.dtype)])
}

/// (input, normalised, ..), or (grad, input, normalised, ..) backward.
fn norm(call: &Call<'_>, kind: RowwiseKind, pass: Pass) -> Option<Vec<OpCall>> {
    let at = usize::from(pass == Pass::Bwd);
    let (x, normalised) = (call.tensor(at)?, call.wholes(at + 1));
    let cols = normalised.iter().map(|&n| n.max(1) as u64).try_fold(1_u64, u64::checked_mul)?;
    let rows = x.elements() / cols.max(1);
    let mut calls: Vec<OpCall> = (0..=at).filter_map(|i| in_rows(call.tensor(i)?)).collect();
    calls.push(OpCall::new(Op::Rowwise(Rowwise { kind, rows, cols }), pass, x.dtype));
    Some(calls)
}

/// Kernels over rows take a tensor that does not lie row by row as a copy that does.
fn in_rows(x: Tensor<'_>) -> Option<OpCall> {
    (!x.is_contiguous()).then(|| movement(x))
}

fn rowwise(x: Tensor<'_>, dim: usize, kind: RowwiseKind, pass: Pass) -> Vec<OpCall> {
    let cols = x.sizes.get(dim).copied().unwrap_or(1).max(1);
    let rows = x.elements() / cols;
    vec![OpCall::new(Op::Rowwise(Rowwise { kind, rows, cols }), pass, x.dtype)]
}

fn softmax(name: &str, call: &Call<'_>, context: &Context) -> Option<Vec<OpCall>> {
    let backward = name.ends_with("_data");
    // (self, dim, half_to_float) or (grad, output, dim, dtype)
    let x = call.tensor(0)?;
    let dim = call.dimension(if backward { 2 } else { 1 }, x.sizes.len(), -1);
    let pass = if backward { Pass::Bwd } else { Pass::Fwd };
    if name.starts_with("_softmax") {
        let mut calls: Vec<OpCall> = in_rows(x).into_iter().collect();
        if backward {
            // The product of gradient and output is a kernel of its own.
            calls = vec![elementwise(E::Mul, x.elements(), x.dtype)];
        }
        calls.extend(rowwise(x, dim, RowwiseKind::Softmax, pass));
        return Some(calls);
    }
    let output = if backward { call.tensor(1) } else { call.output(0) };
    if output.and_then(|y| y.storage).is_none_or(|s| !context.in_losses.contains(&s)) {
        return Some(rowwise(x, dim, RowwiseKind::LogSoftmax, pass));
    }
    let classes = x.sizes.get(dim).copied().unwrap_or(1).max(1);
    let op = CrossEntropy { rows: x.elements() / classes, classes };
    Some(vec![OpCall::new(Op::CrossEntropy(op), pass, x.dtype)])
}

fn embedding(table: &[u64], tokens: u64, pass: Pass, like: Tensor<'_>) -> Option<Vec<OpCall>> {
    let [vocab, dim] = <[u64; 2]>::try_from(table).ok()?;
    Some(vec![OpCall::new(Op::Embedding(Embedding { vocab, dim, tokens }), pass, like.dtype)])
}

/// Along the last dimension (and others), down the first ones, or over whole maps. The comparison of two tensors
/// (`max`, `min`) is no reduction.
fn reduction(name: &str, call: &Call<'_>) -> Option<Vec<OpCall>> {
    let x = call.tensor(0)?;
    if call.tensor(1).is_some() {
        return None;
    }
    let rank = x.sizes.len();
    let at = if matches!(name, "norm" | "linalg_vector_norm") { 2 } else { 1 };
    let mut dims: Vec<usize> = call.wholes(at).iter().map(|&d| wrapped(d, rank)).collect();
    dims.sort_unstable();
    let outputs = call.output(0).map_or(1, |y| y.elements()).max(1);
    if rank == 4 && dims == [2, 3] {
        return spatial(x, SpatialKind::GlobalAvgPool, Pass::Fwd);
    }
    let each = x.elements() / outputs;
    let op = if dims.is_empty() || dims.contains(&(rank.saturating_sub(1))) {
        Rowwise { kind: RowwiseKind::Sum, rows: outputs, cols: each }
    } else {
        Rowwise { kind: RowwiseKind::SumCols, rows: each, cols: outputs }
    };
    if name == "sum" && x.dtype == Dtype::Int8 {
        // Flags and small numbers are added up as wide ones, into which they are written first.
        return Some(vec![
            elementwise(E::Cast, x.elements(), Dtype::Int64),
            OpCall::fwd(Op::Rowwise(op), Dtype::Int64),
        ]);
    }
    Some(vec![OpCall::fwd(Op::Rowwise(op), x.dtype)])
}

fn interpolate(name: &str, x: Tensor<'_>, y: Tensor<'_>, pass: Pass) -> Option<Vec<OpCall>> {
    let ([batch, channels, h, w], [_, _, oh, ow]) =
        (<[u64; 4]>::try_from(x.sizes).ok()?, <[u64; 4]>::try_from(y.sizes).ok()?);
    if (h, w) == (oh, ow) {
        return Some(vec![elementwise(E::Copy, x.elements(), x.dtype)]);
    }
    let op = Interpolate { batch, channels, h, w, oh, ow, how: Resize::of(name) };
    Some(vec![OpCall::new(Op::Interpolate(op), pass, x.dtype)])
}
