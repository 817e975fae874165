//! Norms and pooling over feature maps, their resizing, and sums down columns: a closed form of what their kernels spend time on.
//!
//! ```text
//! t = sum of c_i * term_i,   c_i >= 0
//! ```
//!
//! The terms are an empty kernel, the traffic at DRAM speed, the elements read, written and looked at per SM and clock, and
//! chains: the steps of a norm that gives each channel (or group of an image) one block, one after the other, in waves of blocks, and
//! at full occupancy; of a bilinear resize, whose threads each take one place through all maps, the maps, which take longer where
//! they come from DRAM; of a column sum the square root of the rows, since blocks share the rows and then add up
//! what they found. The constants (clocks per element or step) are fitted by class: operator, direction, number format, layout.

use crate::Reuse;
use preflop_gpu::Gpu;
use preflop_ops::{Interpolate, Op, OpCall, Pass, Resize, Rowwise, RowwiseKind, Spatial, SpatialKind};
use preflop_units::dtype::Dtype;

/// Terms of the form.
pub const TERMS: usize = 11;

/// Classes of constants.
pub const CLASSES: usize = SUMS + 4;
const SUMS: usize = MAPS + 2 * FORMATS.len();
const MAPS: usize = KINDS.len() * 2 * FORMATS.len() * 2;

const KINDS: [SpatialKind; 8] = [
    SpatialKind::BatchNorm,
    SpatialKind::BatchNormNative,
    SpatialKind::BatchNormEval,
    SpatialKind::GroupNorm,
    SpatialKind::MaxPool,
    SpatialKind::AvgPool,
    SpatialKind::GlobalAvgPool,
    SpatialKind::AdaptiveAvgPool,
];
const FORMATS: [&str; 3] = ["fp32", "bf16", "fp16"];

/// Constants of adaptive pooling, of which no calls were measured: 650 clocks of an SM for each map (580 to 760, forward and
/// backward, in profiles of 51 iterations of AlexNet, VGG and GoogLeNet on an H200).
pub const ADAPTIVE: [f64; TERMS] = [1.2, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 650.0, 0.0];

/// Threads of a block that norms a channel.
const BLOCK: u64 = 512;

/// Threads that an SM holds.
const RESIDENT: u64 = 1024;

/// Columns that a thread of an aligned column sum reads at once.
const LANES: u64 = 8;

/// Number of the class of a call, below [`CLASSES`]; none where the form does not apply.
pub fn class(call: &OpCall) -> Option<usize> {
    let format = match call.dtype {
        Dtype::Bf16 => 1,
        d if d.is_half() => 2,
        _ => 0,
    };
    match &call.op {
        Op::Spatial(o) => {
            let kind = KINDS.iter().position(|k| *k == o.kind)?;
            let backward = usize::from(call.pass != Pass::Fwd);
            Some(((kind * 2 + backward) * FORMATS.len() + format) * 2 + usize::from(o.channels_last))
        }
        Op::Rowwise(o) if o.kind == RowwiseKind::SumCols => {
            Some(MAPS + 2 * format + usize::from(o.cols.is_multiple_of(LANES)))
        }
        // 16-bit formats alike; the backward pass, which was not measured, as the forward one.
        Op::Interpolate(o) => Some(SUMS + 2 * format.min(1) + usize::from(o.how == Resize::Bilinear)),
        _ => None,
    }
}

/// The key of a class in files.
pub fn key(class: usize) -> String {
    if let Some(resize) = class.checked_sub(SUMS) {
        let how = if resize % 2 == 1 { "bilinear" } else { "nearest" };
        return format!("linear/interpolate/{}/{how}", if resize < 2 { "fp32" } else { "half" });
    }
    if let Some(sum) = class.checked_sub(MAPS) {
        let columns = if sum % 2 == 1 { "aligned" } else { "odd" };
        return format!("linear/sum_cols/fwd/{}/{columns}", FORMATS[sum / 2 % FORMATS.len()]);
    }
    let layout = if class % 2 == 1 { "nhwc" } else { "nchw" };
    let format = FORMATS[class / 2 % FORMATS.len()];
    let rest = class / 2 / FORMATS.len();
    let pass = if rest % 2 == 1 { "bwd" } else { "fwd" };
    let kind = KINDS.get(rest / 2).map_or("", |k| k.name());
    format!("linear/{kind}/{pass}/{format}/{layout}")
}

/// Blocks of a norm: one for each channel, or for each group of an image.
fn blocks(op: &Spatial) -> u64 {
    if op.kind == SpatialKind::GroupNorm { op.batch * op.groups } else { op.channels }
}

/// Steps of one block over its channel or group: its threads cover a map as far as it goes and then further images.
fn steps(op: &Spatial) -> (u64, u64) {
    let area = (op.h * op.w).max(1);
    if op.kind == SpatialKind::GroupNorm {
        return (1, (area * op.channels.div_ceil(op.groups.max(1))).div_ceil(BLOCK));
    }
    let across = area.next_power_of_two().clamp(32, BLOCK);
    let images = op.batch.div_ceil(BLOCK / across).max(1);
    (images, images * area.div_ceil(across))
}

/// The terms in seconds.
pub fn terms(call: &OpCall, gpu: &Gpu) -> [f64; TERMS] {
    match &call.op {
        Op::Spatial(o) => map_terms(o, call, gpu),
        Op::Rowwise(o) => sum_terms(o, call, gpu),
        Op::Interpolate(o) => resize_terms(o, call, gpu),
        _ => [0.0; TERMS],
    }
}

fn sum_terms(op: &Rowwise, call: &OpCall, gpu: &Gpu) -> [f64; TERMS] {
    let sm = u64::from(gpu.sm_count).max(1);
    let clock = gpu.boost_clock.0;
    let (rows, n) = (op.rows as f64, op.rows as f64 * op.cols as f64);
    let waves = |columns: u64| op.cols.div_ceil(columns * sm) as f64;
    [
        gpu.kernel_floor.0,
        (call.traffic().total() / gpu.dram_sustained).0,
        n / (sm as f64 * clock),
        rows.sqrt() / clock,
        rows.sqrt() * waves(128) / clock,
        n.sqrt() / clock,
        rows * waves(512) / clock,
        op.cols as f64 / clock,
        0.0,
        0.0,
        0.0,
    ]
}

fn resize_terms(op: &Interpolate, call: &OpCall, gpu: &Gpu) -> [f64; TERMS] {
    let sm = u64::from(gpu.sm_count).max(1);
    let clock = gpu.boost_clock.0;
    let issue = sm as f64 * clock;
    let t = call.traffic();
    let (x, y) = (t.read.0 / call.dtype.size(), t.written.0 / call.dtype.size());
    let chain = op.maps() * (op.oh * op.ow).div_ceil(RESIDENT * sm) as f64 / clock;
    let cold = Reuse::OWN.miss([t.read.0, 0.0, t.written.0], gpu.l2_size.0);
    let floor = gpu.kernel_floor.0;
    let dram = (t.total() / gpu.dram_sustained).0;
    [floor, dram, x / issue, y / issue, chain, chain * cold, 0.0, 0.0, 0.0, 0.0, 0.0]
}

fn map_terms(op: &Spatial, call: &OpCall, gpu: &Gpu) -> [f64; TERMS] {
    let sm = u64::from(gpu.sm_count).max(1);
    let clock = gpu.boost_clock.0;
    let issue = sm as f64 * clock;
    let blocks = blocks(op);
    let waves = |of: u64| blocks.div_ceil(of * sm) as f64;
    let (images, steps) = steps(op);
    let steps = steps as f64;
    let (x, y) = (op.input(), op.output());
    [
        gpu.kernel_floor.0,
        (call.traffic().total() / gpu.dram_sustained).0,
        x / issue,
        y / issue,
        y * (op.window * op.window) as f64 / issue,
        steps / clock,
        steps * waves(2) / clock,
        steps * waves(4) / clock,
        steps * blocks as f64 / issue,
        (op.batch * op.channels) as f64 / issue,
        images as f64 * waves(1) / clock,
    ]
}

/// The time of the form in seconds.
pub fn form(constants: &[f64; TERMS], terms: &[f64; TERMS]) -> f64 {
    constants.iter().zip(terms).map(|(c, t)| c * t).sum()
}

/// How full the threads of a channel's block are.
pub fn fullness(op: &Spatial) -> f64 {
    let (_, steps) = steps(op);
    op.input() / (steps * BLOCK * blocks(op)).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_keys_of_their_own() {
        let keys: std::collections::BTreeSet<String> = (0..CLASSES).map(key).collect();
        assert_eq!(keys.len(), CLASSES);
        let op = Spatial::norm(SpatialKind::BatchNormNative, 32, 64, 7, 7, false);
        let call = OpCall::new(Op::Spatial(op), Pass::Bwd, Dtype::Bf16);
        assert_eq!(class(&call).map(key).as_deref(), Some("linear/batchnorm_native/bwd/bf16/nchw"));
        let sum = Rowwise { kind: RowwiseKind::SumCols, rows: 100, cols: 24 };
        let call = OpCall::fwd(Op::Rowwise(sum), Dtype::Fp16);
        assert_eq!(class(&call).map(key).as_deref(), Some("linear/sum_cols/fwd/fp16/aligned"));
        assert_eq!(class(&OpCall::fwd(Op::Unmodelled { name: String::new(), bytes: 1 }, Dtype::Fp32)), None);
    }

    #[test]
    fn a_group_of_an_image_is_one_block() {
        let norm = Spatial::norm(SpatialKind::GroupNorm, 4, 64, 32, 32, false);
        // 32 groups: 128 blocks of 2 channels x 1024 pixels, 4 steps of 512 threads; one group: 4 blocks of 128 steps
        let of = |groups| Spatial { groups, ..norm };
        assert_eq!((blocks(&of(32)), steps(&of(32))), (128, (1, 4)));
        assert_eq!((blocks(&of(1)), steps(&of(1))), (4, (1, 128)));
        assert_eq!(fullness(&of(32)), 1.0);
    }

    #[test]
    fn a_bilinear_resize_takes_its_maps_one_after_the_other() {
        let gpu = preflop_gpu::catalog::find("h200").unwrap();
        let call = |channels, dtype| {
            let op = Interpolate { batch: 1, channels, h: 8, w: 8, oh: 16, ow: 16, how: Resize::Bilinear };
            OpCall::fwd(Op::Interpolate(op), dtype)
        };
        assert_eq!(terms(&call(64, Dtype::Fp32), &gpu)[4], 64.0 / gpu.boost_clock.0);
        let key_of = |d| class(&call(64, d)).map(key);
        assert_eq!(key_of(Dtype::Fp32).as_deref(), Some("linear/interpolate/fp32/bilinear"));
        assert_eq!(key_of(Dtype::Bf16), key_of(Dtype::Fp16));
    }

    #[test]
    fn steps_of_a_block() {
        // 49 pixels on 64 threads, 8 images at a time: 32 images in 4 steps, 32*49 of 4*512 threads busy
        let op = Spatial::norm(SpatialKind::BatchNorm, 32, 64, 7, 7, false);
        assert_eq!(steps(&op), (4, 4));
        assert!((fullness(&op) - 1568.0 / 2048.0).abs() < 1e-12);
        // 3136 pixels on 512 threads: 7 steps for each image
        let op = Spatial::norm(SpatialKind::BatchNorm, 2, 64, 56, 56, false);
        assert_eq!(steps(&op), (2, 14));
    }
}
