//! Norms over images, pooling, resizing.

use super::{Input, Work, main_dtype};
use crate::kernel_name::KernelFamily;
use preflop_ops::{Interpolate, Op, OpCall, Pass, Resize, Spatial, SpatialKind};

/// Work of an operator over feature maps.
pub fn work(name: &str, inputs: &[Input]) -> Option<Work> {
    let (kind, at, pass) = match name {
        "cudnn_batch_norm" | "miopen_batch_norm" => (SpatialKind::BatchNorm, 0, Pass::Fwd),
        // (input, grad, weight, ..)
        "cudnn_batch_norm_backward" | "miopen_batch_norm_backward" => (SpatialKind::BatchNorm, 0, Pass::Bwd),
        // (input, weight, bias, mean, variance, training, ..)
        "native_batch_norm" | "_native_batch_norm_legit" => {
            let training = inputs.get(5).is_none_or(|t| !t.value.eq_ignore_ascii_case("false"));
            let kind = if training { SpatialKind::BatchNormNative } else { SpatialKind::BatchNormEval };
            (kind, 0, Pass::Fwd)
        }
        "native_batch_norm_backward" => (SpatialKind::BatchNormNative, 1, Pass::Bwd),
        "native_group_norm" => (SpatialKind::GroupNorm, 0, Pass::Fwd),
        "native_group_norm_backward" => (SpatialKind::GroupNorm, 1, Pass::Bwd),
        "max_pool2d_with_indices" => (SpatialKind::MaxPool, 0, Pass::Fwd),
        "max_pool2d_with_indices_backward" => (SpatialKind::MaxPool, 1, Pass::Bwd),
        "avg_pool2d" => (SpatialKind::AvgPool, 0, Pass::Fwd),
        "avg_pool2d_backward" => (SpatialKind::AvgPool, 1, Pass::Bwd),
        "_adaptive_avg_pool2d" | "adaptive_avg_pool2d" => (SpatialKind::GlobalAvgPool, 0, Pass::Fwd),
        "_adaptive_avg_pool2d_backward" => (SpatialKind::GlobalAvgPool, 1, Pass::Bwd),
        "upsample_nearest2d" | "upsample_bilinear2d" => return upsample(name, inputs),
        _ => return None,
    };
    let input = inputs.get(at)?;
    // Norms also run over [b, c] and [b, c, l].
    let [b, c, h, w] = match input.dims.as_slice() {
        [b, c, h, w] => [*b, *c, *h, *w],
        [b, c, l] => [*b, *c, *l, 1],
        [b, c] => [*b, *c, 1, 1],
        _ => return None,
    };
    let mut op = Spatial::norm(kind, b, c, h, w, input.is_channels_last());
    let pool = matches!(kind, SpatialKind::MaxPool | SpatialKind::AvgPool);
    if pool {
        let argument = |i: usize| inputs.get(at + i).map(Input::integers).unwrap_or_default();
        op.window = argument(1).first().copied().unwrap_or(1).max(1);
        op.stride = argument(2).first().copied().unwrap_or(op.window).max(1);
        op.pad = argument(3).first().copied().unwrap_or(0);
    }
    if kind == SpatialKind::GroupNorm {
        // (input, weight, bias, batch, channels, area, groups, ..); its backward has mean and deviation in front of them too
        let groups =
            inputs.get(if pass == Pass::Fwd { 6 } else { 8 }).map(Input::integers).unwrap_or_default();
        op.groups = groups.first().copied().unwrap_or(USUAL_GROUPS).clamp(1, c.max(1));
    }
    let family = match kind {
        SpatialKind::MaxPool | SpatialKind::AvgPool | SpatialKind::GlobalAvgPool => KernelFamily::Pooling,
        _ => KernelFamily::Normalisation,
    };
    Some(Work::of(vec![OpCall::new(Op::Spatial(op), pass, main_dtype(inputs)?)], family))
}

/// Groups of a group norm whose number was not recorded: what most networks take.
const USUAL_GROUPS: u64 = 32;

fn upsample(name: &str, inputs: &[Input]) -> Option<Work> {
    let [batch, channels, h, w] = <[u64; 4]>::try_from(inputs.first()?.dims.as_slice()).ok()?;
    let out = inputs.get(1)?.integers();
    let (oh, ow) = match out.as_slice() {
        [oh, ow] => (*oh, *ow),
        _ => return None,
    };
    let op = Interpolate { batch, channels, h, w, oh, ow, how: Resize::of(name) };
    Some(Work::of(vec![OpCall::fwd(Op::Interpolate(op), main_dtype(inputs)?)], KernelFamily::Pooling))
}

#[cfg(test)]
mod tests {
    use super::super::tests::tensors;
    use super::super::work_of;

    #[test]
    fn pool_window() {
        let scalars = [(1, "[3, 3]"), (2, "[2, 2]"), (3, "[1, 1]")];
        let work =
            work_of("max_pool2d_with_indices", &tensors(&[&[1, 64, 112, 112]], "float", &scalars), false);
        // as in ops::spatial: read 64*112*112*4, written 64*56*56*(4+8)
        assert_eq!(work.unwrap().bytes.0, 3_211_264.0 + 2_408_448.0);
    }
}
