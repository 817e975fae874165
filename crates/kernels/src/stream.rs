//! Operators bound by memory: one reference form for all, and the features that correct it.
//!
//! ```text
//! reference = floor + bytes / DRAM
//! ```
//!
//! Where `floor` is the GPU's empty kernel, `bytes` the compulsory traffic and `DRAM` the sustained
//! bandwidth. What a kernel loses against it (few rows, odd widths, several passes, data that stays in the
//! L2) is learned from dimensionless features. Norms and pooling over feature maps, sums down columns and look-ups have a form of their own (`linear`).

use crate::{alignment, linear};
use preflop_gpu::{Gpu, Vendor};
use preflop_learned::trees::{Features, MAX_FEATURES};
use preflop_ops::{
    Elementwise, ElementwiseKind, Family, Movement, MovementKind, Op, OpCall, OptimizerKind, Pass, Resize,
    Rowwise, RowwiseKind, SpatialKind,
};
use preflop_units::dtype::Dtype;
use preflop_units::math::Elementary as _;

/// Reference time in seconds.
pub fn reference(call: &OpCall, gpu: &Gpu) -> f64 {
    gpu.kernel_floor.0 + (call.traffic().total() / gpu.dram_sustained).0
}

/// Clocks of an SM from one row of a norm to the next. Every row is a block of its own, so that many short ones take their number and not their bytes.
///
/// From rows of up to 128 columns, 100,000 and more (`gaps.csv.gz`): 381 to 395 of layer norm forward in fp32, 278 to 290 in 16 bit; 185 to 196 and
/// 159 to 161 of RMS norm; 1,310 to 1,400 of both where rows are no multiple of four and thus no vectors; backward 203 to 260 and 172 to 220.
fn row_clocks(op: &Rowwise, pass: Pass, dtype: Dtype) -> f64 {
    const VECTOR: u64 = 4;
    let layer = match op.kind {
        RowwiseKind::LayerNorm => true,
        RowwiseKind::RmsNorm => false,
        _ => return 0.0,
    };
    match (pass, op.cols.is_multiple_of(VECTOR), layer, dtype.is_half()) {
        (Pass::Fwd, false, ..) => 1320.0,
        (Pass::Fwd, true, true, false) => 382.0,
        (Pass::Fwd, true, true, true) => 285.0,
        (Pass::Fwd, true, false, false) => 187.0,
        (Pass::Fwd, true, false, true) => 160.0,
        (_, _, true, _) => 207.0,
        (_, _, false, _) => 174.0,
    }
}

/// Seconds that the correction starts from where an operator has no form of its own: its bytes, or its rows one after the other.
pub fn form(call: &OpCall, gpu: &Gpu) -> f64 {
    let Op::Rowwise(o) = &call.op else { return reference(call, gpu) };
    let issue = f64::from(gpu.sm_count.max(1)) * gpu.boost_clock.0;
    let rows = o.rows as f64 * row_clocks(o, call.pass, call.dtype) / issue;
    reference(call, gpu).max(gpu.kernel_floor.0 + rows)
}

/// Places of the feature vector that are filled.
pub const FEATURES: usize = 40;

/// The operator's shape as a matrix and as a feature map: what decides how a kernel spreads the work.
struct Layout {
    rows: f64,
    cols: f64,
    batch: f64,
    channels: f64,
    area: f64,
    flag: f64,
    extra: f64,
    align: u64,
}

fn layout(call: &OpCall) -> Layout {
    let base = Layout {
        rows: 1.0,
        cols: 1.0,
        batch: 1.0,
        channels: 1.0,
        area: 1.0,
        flag: 0.0,
        extra: 0.0,
        align: 1,
    };
    match &call.op {
        Op::Rowwise(o) => Layout { rows: o.rows as f64, cols: o.cols as f64, align: o.cols, ..base },
        Op::CrossEntropy(o) => {
            Layout { rows: o.rows as f64, cols: o.classes as f64, align: o.classes, ..base }
        }
        Op::Spatial(o) if o.kind == SpatialKind::GroupNorm => Layout {
            rows: (o.batch * o.groups) as f64,
            cols: (o.h * o.w * o.channels) as f64 / o.groups.max(1) as f64,
            batch: o.batch as f64,
            channels: o.channels as f64,
            area: (o.h * o.w) as f64,
            flag: f64::from(u8::from(o.channels_last)),
            extra: (o.groups as f64).binary_log(),
            align: o.h * o.w,
        },
        Op::Spatial(o) => Layout {
            rows: (o.batch * o.channels) as f64,
            cols: (o.h * o.w) as f64,
            batch: o.batch as f64,
            channels: o.channels as f64,
            area: (o.h * o.w) as f64,
            flag: f64::from(u8::from(o.channels_last)),
            extra: o.window as f64 + 16.0 * o.stride as f64,
            align: if o.channels_last { o.channels } else { o.h * o.w },
        },
        Op::Interpolate(o) => Layout {
            rows: (o.batch * o.channels) as f64,
            cols: (o.h * o.w) as f64,
            batch: o.batch as f64,
            channels: o.channels as f64,
            area: (o.oh * o.ow) as f64,
            flag: f64::from(u8::from(o.how == Resize::Bilinear)),
            align: o.ow,
            ..base
        },
        Op::RoiAlign(o) => Layout {
            rows: o.rois as f64,
            cols: o.channels as f64,
            area: (o.size * o.size) as f64,
            align: o.channels,
            ..base
        },
        Op::Elementwise(o) => Layout { cols: o.n as f64, align: o.n, ..base },
        Op::Embedding(o) => Layout {
            rows: o.tokens as f64,
            cols: o.dim as f64,
            extra: (o.vocab as f64).binary_log(),
            align: o.dim,
            ..base
        },
        Op::Optimizer(o) => Layout { rows: o.tensors as f64, cols: o.params as f64, align: o.params, ..base },
        Op::Movement(o) => Layout { rows: o.rows as f64, cols: o.cols as f64, align: o.cols, ..base },
        _ => base,
    }
}

/// A stable number for each operator within its family, for the trees.
fn code(call: &OpCall) -> f32 {
    match &call.op {
        Op::Rowwise(o) => f32::from(o.kind as u8),
        Op::Spatial(o) => f32::from(o.kind as u8),
        Op::Interpolate(_) => 20.0,
        Op::RoiAlign(_) => 21.0,
        Op::Elementwise(o) => f32::from(o.kind as u8),
        Op::CrossEntropy(_) | Op::Embedding(_) => 10.0,
        Op::Optimizer(o) => 20.0 + f32::from(o.kind as u8),
        Op::Movement(o) => f32::from(o.kind as u8),
        _ => 0.0,
    }
}

fn log2(x: f64) -> f32 {
    x.max(1e-30).binary_log() as f32
}

/// Features of the correction; `form` is the time in seconds that the correction starts from.
pub fn features(call: &OpCall, gpu: &Gpu, form: f64) -> Features {
    let mut x = [0.0f32; MAX_FEATURES];
    let mut at = 0;
    let mut push = |v: f32| {
        x[at] = v;
        at += 1;
    };
    let l = layout(call);
    let t = call.traffic();
    let e = call.dtype.size();
    let sm = f64::from(gpu.sm_count);
    let operator = code(call);
    push(2.0 * operator + f32::from(u8::from(call.pass != Pass::Fwd)));
    push(f32::from(u8::from(call.pass != Pass::Fwd)));
    push(match call.dtype {
        Dtype::Fp32 | Dtype::Tf32 => 0.0,
        Dtype::Bf16 => 1.0,
        _ => 2.0,
    });
    push(log2(reference(call, gpu) * 1e6));
    push(log2(t.total() / gpu.l2_size));
    push(log2(t.read / gpu.l2_size));
    push(log2(t.written / gpu.l2_size));
    push(log2(l.rows));
    push(log2(l.cols));
    push(log2(l.cols * e));
    push(log2(l.rows / sm));
    let waves = l.rows / sm;
    push((waves / waves.ceil()) as f32);
    let waves = l.rows / (4.0 * sm);
    push((waves / waves.ceil()) as f32);
    push(log2(alignment(l.align, 64) as f64));
    push(log2(l.batch));
    push(log2(l.channels));
    push(log2(l.area));
    push(log2(l.channels / sm));
    let waves = l.channels / sm;
    push((waves / waves.ceil()) as f32);
    push(log2(l.batch * l.area));
    push(l.flag as f32);
    push(l.extra as f32);
    push(log2(call.flops().0 / gpu.plain_peak(Dtype::Fp32).0 / reference(call, gpu)));
    push(log2(l.rows * l.cols / sm));
    push(log2(alignment(l.channels as u64, 64) as f64));
    // One place per operator that is common in its family.
    for c in 0..12 {
        push(if operator as i32 == c { 1.0 } else { 0.0 });
    }
    push(log2(form / reference(call, gpu)));
    push(match &call.op {
        Op::Spatial(o) => linear::fullness(o) as f32,
        _ => 0.0,
    });
    debug_assert!(at <= FEATURES);
    x
}

/// The call on whole tensors of one format, where the kernel of this one computes an offset or converts a format for every element.
pub fn plain(call: &OpCall) -> Option<OpCall> {
    let op = match &call.op {
        Op::Elementwise(o) => Op::Elementwise(Elementwise { kind: o.kind.plain()?, ..*o }),
        Op::Movement(o) if o.kind == MovementKind::CatStrided => {
            Op::Movement(Movement { kind: MovementKind::Cat, ..*o })
        }
        Op::Rowwise(o) if o.kind == RowwiseKind::SumChannels => {
            Op::Rowwise(Rowwise { kind: RowwiseKind::SumCols, ..*o })
        }
        _ => return None,
    };
    Some(OpCall { op, ..call.clone() })
}

/// Lanes that AMD's power function keeps busy for one clock per element: published calls on an MI100 take 2.7 clocks of its 64.
const AMD_POWER: f64 = 173.0;

/// Least seconds of such a call: clocks of an SM for each element.
///
/// From the kernels of 380 profiled iterations on an H200: broadcast along rows 0.78 to 0.82, mixed formats
/// 0.93 to 1.2, different strides 0.93 to 1.25, concatenated heads 1.2 to 1.8, sums by channel 0.43 to 0.56, permuted copies
/// at least 0.6 (0.68 in single calls). The shortest take 1.6 empty kernels.
pub fn least(call: &OpCall, gpu: &Gpu) -> f64 {
    const SHORTEST: f64 = 1.6;
    let clocks = match &call.op {
        Op::Elementwise(o) => match o.kind {
            ElementwiseKind::AddChannel => 0.8,
            ElementwiseKind::AddMixed | ElementwiseKind::MulMixed => 1.05,
            ElementwiseKind::AddStrided | ElementwiseKind::MulStrided => 1.0,
            ElementwiseKind::Pow if gpu.vendor == Vendor::Amd => {
                AMD_POWER / f64::from(gpu.fp32_lanes_per_sm.max(1))
            }
            _ => return 0.0,
        },
        Op::Movement(o) => match o.kind {
            MovementKind::CatStrided => 1.6,
            MovementKind::Permute | MovementKind::Transpose => 0.65,
            _ => return 0.0,
        },
        Op::Rowwise(o) if o.kind == RowwiseKind::SumChannels => 0.48,
        _ => return 0.0,
    };
    let issue = f64::from(gpu.sm_count) * gpu.boost_clock.0;
    SHORTEST * gpu.kernel_floor.0 + clocks * elements(call) / issue
}

/// Elements that a call goes through.
fn elements(call: &OpCall) -> f64 {
    let t = call.traffic();
    let sum = matches!(call.op, Op::Rowwise(_));
    (if sum { t.read } else { t.written }).0 / call.dtype.size()
}

/// Kernels that one call launches, memsets included.
///
/// Counted in profiles of whole iterations: PyTorch's batch norm three (also with stored statistics in bf16) and one, in channels-last bf16 four and three (each
/// reduction zeroes its semaphores first), layer norm backward two,
/// reductions with a memset, the two halves of a loss, seven kernels of single-tensor Adam, foreach steps in
/// chunks of about 55 tensors, in the backward of an embedding a sort and its passes (14 in `missed.csv.gz`), or two for few look-ups.
pub fn launches(call: &OpCall) -> f64 {
    let backward = call.pass != Pass::Fwd;
    match &call.op {
        Op::Spatial(o) => match (o.kind, backward) {
            (SpatialKind::BatchNormNative, false) => 3.0,
            (SpatialKind::BatchNorm, true) if o.channels_last && call.dtype == Dtype::Bf16 => 3.0,
            (SpatialKind::BatchNorm, false) if o.channels_last && call.dtype == Dtype::Bf16 => 4.0,
            (SpatialKind::BatchNormEval, false) if call.dtype == Dtype::Bf16 => 3.0,
            (SpatialKind::GroupNorm, _)
            | (SpatialKind::MaxPool | SpatialKind::AvgPool | SpatialKind::AdaptiveAvgPool, true) => 2.0,
            _ => 1.0,
        },
        Op::Rowwise(o) => match (o.kind, backward) {
            (RowwiseKind::LayerNorm | RowwiseKind::RmsNorm, true) => 2.0,
            (RowwiseKind::Sum | RowwiseKind::SumCols | RowwiseKind::SumChannels, _)
                if o.rows * o.cols > 1 << 20 =>
            {
                2.0
            }
            _ => 1.0,
        },
        Op::CrossEntropy(_) => 2.0,
        Op::Elementwise(o) if o.kind == ElementwiseKind::MaskedFill => 2.0,
        Op::Embedding(o) if backward => {
            if o.tokens > linear::FEW_LOOK_UPS {
                14.0
            } else {
                2.0
            }
        }
        Op::Optimizer(o) => {
            let chunks = (o.tensors as f64 / 55.0).ceil();
            match o.kind {
                OptimizerKind::AdamSingle => 7.0,
                OptimizerKind::AdamFused | OptimizerKind::SgdPlain => chunks,
                OptimizerKind::AdamForeach => 12.0 * chunks,
                OptimizerKind::SgdForeach => 3.0 * chunks,
            }
        }
        _ => 1.0,
    }
}

/// Class of the interval: operator and direction.
pub fn interval_class(call: &OpCall) -> String {
    format!("{}/{}", call.name(), call.pass.name())
}

/// The forest of an operator that is bound by memory: operators whose kernels are built alike share one.
pub fn forest_name(call: &OpCall) -> &'static str {
    let forward = call.pass == Pass::Fwd;
    match (&call.op, call.family()) {
        (Op::Rowwise(o), _) => match o.kind {
            RowwiseKind::Softmax | RowwiseKind::LogSoftmax if forward => "rowwise/softmax",
            RowwiseKind::Softmax | RowwiseKind::LogSoftmax => "rowwise/softmax/bwd",
            RowwiseKind::LayerNorm | RowwiseKind::RmsNorm if forward => "rowwise/norm",
            RowwiseKind::LayerNorm | RowwiseKind::RmsNorm => "rowwise/norm/bwd",
            _ => "rowwise/sum",
        },
        (_, Family::Rowwise) => "rowwise/loss",
        (Op::Spatial(o), _) => match o.kind {
            SpatialKind::MaxPool | SpatialKind::AvgPool | SpatialKind::AdaptiveAvgPool => "spatial/pool",
            SpatialKind::GlobalAvgPool => "spatial/other",
            SpatialKind::BatchNormEval => "spatial/eval",
            SpatialKind::BatchNorm if forward => "spatial/norm",
            SpatialKind::BatchNormNative if forward => "spatial/native",
            SpatialKind::GroupNorm => "spatial/group",
            _ => "spatial/norm/bwd",
        },
        (Op::Interpolate(_), _) => "spatial/resize",
        (_, Family::Spatial) => "spatial/other",
        (_, Family::Elementwise) => "elementwise",
        (Op::Embedding(_), _) if !forward => "movement/scatter",
        (Op::Optimizer(_), _) => "movement/optimizer",
        _ => "movement",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_gpu::catalog;
    use preflop_ops::Spatial;

    #[test]
    fn many_short_rows_of_a_norm_take_their_number() {
        let gpu = catalog::find("h200").unwrap();
        let call = |cols| {
            let op = Rowwise { kind: RowwiseKind::LayerNorm, rows: 1 << 19, cols };
            OpCall::fwd(Op::Rowwise(op), Dtype::Fp32)
        };
        // Measured in a network that restores images: 798 us, of which 32 are its bytes.
        assert!((form(&call(32), &gpu) * 1e6 / 798.0 - 1.0).abs() < 0.05);
        assert_eq!(form(&call(1024), &gpu), reference(&call(1024), &gpu));
        assert!(form(&call(33), &gpu) > 3.0 * form(&call(32), &gpu));
    }

    #[test]
    fn offsets_cost_clocks_by_element() {
        let gpu = catalog::find("h200").unwrap();
        let call = |kind| OpCall::fwd(Op::Elementwise(Elementwise { kind, n: 1 << 28 }), Dtype::Bf16);
        let issue = 132.0 * 1.98e9;
        let expected = 1.6 * gpu.kernel_floor.0 + 0.8 * f64::from(1 << 28) / issue;
        assert!((least(&call(ElementwiseKind::AddChannel), &gpu) / expected - 1.0).abs() < 1e-12);
        assert_eq!(plain(&call(ElementwiseKind::AddChannel)), Some(call(ElementwiseKind::AddBias)));
        assert_eq!(least(&call(ElementwiseKind::Add), &gpu), 0.0);
        assert_eq!(plain(&call(ElementwiseKind::Add)), None);
        // A sum goes through what it reads.
        let sum = Rowwise { kind: RowwiseKind::SumChannels, rows: 1 << 20, cols: 64 };
        let expected = 1.6 * gpu.kernel_floor.0 + 0.48 * f64::from(1 << 26) / issue;
        assert!((least(&OpCall::fwd(Op::Rowwise(sum), Dtype::Fp32), &gpu) / expected - 1.0).abs() < 1e-12);
    }

    /// A profile of resnet50 in channels-last bf16 has, for each of its 53 norms: statistics, zeroed semaphores, running statistics and the map; then sums,
    /// zeroed semaphores and the gradient.
    #[test]
    fn batch_norm_in_channels_last_launches_seven_kernels() {
        let count = |channels_last, dtype| {
            let op = Spatial::norm(SpatialKind::BatchNorm, 48, 64, 56, 56, channels_last);
            [Pass::Fwd, Pass::Bwd].map(|pass| launches(&OpCall::new(Op::Spatial(op), pass, dtype)))
        };
        assert_eq!(count(true, Dtype::Bf16), [4.0, 3.0]);
        // cuDNN's.
        assert_eq!(count(true, Dtype::Fp32), [1.0, 1.0]);
        assert_eq!(count(false, Dtype::Fp32), [1.0, 1.0]);
    }
}
