//! Norms and pooling over feature maps, their resizing, sums down columns, and look-ups: a closed form of what their kernels spend time on.
//!
//! ```text
//! t = sum of c_i * term_i,   c_i >= 0
//! ```
//!
//! The terms are an empty kernel, the traffic at DRAM speed, the elements read, written and looked at per SM and clock, and
//! chains: the steps of a norm that gives each channel (or group of an image) one block, one after the other, in waves of blocks, and
//! at full occupancy; of a bilinear resize, whose threads each take one place through all maps, the maps, which take longer where
//! they come from DRAM; of a column sum the square root of the rows, since blocks share the rows and then add up
//! what they found; of a look-up the rows, each of which is a block of its own, and of its gradient the rows of the table that are met, after
//! their indices were sorted. The constants (clocks per element or step) are fitted by class: operator, direction, number format, layout.

use crate::Reuse;
use crate::listed::missed;
use preflop_gpu::Gpu;
use preflop_ops::{
    Embedding, Interpolate, Op, OpCall, Pass, Resize, Rowwise, RowwiseKind, Spatial, SpatialKind,
};
use preflop_units::dtype::Dtype;
use preflop_units::math::Elementary as _;

/// Terms of the form.
pub const TERMS: usize = 11;

/// Classes of constants.
pub const CLASSES: usize = LOOK_UPS + 2 * FORMS.len();
/// After two kinds of resizing in two formats.
const LOOK_UPS: usize = SUMS + 4;
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

/// What PyTorch runs for look-ups: rows of whole vectors as a block each, others element by element; gradients of few look-ups one after the other,
/// those of many sorted.
const FORMS: [&str; 4] = ["fwd/elements", "fwd/rows", "bwd/few", "bwd/sorted"];

/// PyTorch's own rule (`Embedding.cu`): so many look-ups are not sorted.
pub(crate) const FEW_LOOK_UPS: u64 = 3072;

/// Bytes of a vector that a thread copies at once, and of a row that the L2 reads from DRAM at least.
const VECTOR: f64 = 16.0;
const SECTOR: f64 = 32.0;

/// Clocks of an SM from one block that copies a row to its next: 1,048,576 rows of 16 bytes take an H200 632 us, and so do others of fewer than
/// 500 bytes by their number (`missed.csv.gz`).
const ROW_CLOCKS: f64 = 157.0;

/// Columns of the gradient that a block of few look-ups takes.
const STRIP: u64 = 32;

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
        Op::Embedding(o) => {
            let whole = (o.dim as f64 * call.dtype.size()) % VECTOR == 0.0;
            let form = if call.pass == Pass::Fwd {
                usize::from(whole)
            } else {
                2 + usize::from(o.tokens > FEW_LOOK_UPS)
            };
            Some(LOOK_UPS + 2 * form + format.min(1))
        }
        _ => None,
    }
}

/// The key of a class in files.
pub fn key(class: usize) -> String {
    if let Some(look_up) = class.checked_sub(LOOK_UPS) {
        let form = FORMS.get(look_up / 2).copied().unwrap_or_default();
        return format!("linear/embedding/{form}/{}", if look_up % 2 == 0 { "fp32" } else { "half" });
    }
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
        Op::Embedding(o) => look_up_terms(o, call, gpu),
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

/// Which kernel a look-up or its gradient runs, in words.
pub fn look_up(call: &OpCall) -> Option<&'static str> {
    const NAMES: [&str; FORMS.len()] =
        ["look-up by elements", "look-up by rows", "sum of few rows", "sum of sorted rows"];
    let look_up = class(call)?.checked_sub(LOOK_UPS)?;
    NAMES.get(look_up / 2).copied()
}

/// Rows of a table that so many look-ups meet, spread evenly: `v (1 - e^(-n/v))`.
pub(crate) fn met(rows: f64, look_ups: f64) -> f64 {
    rows * (1.0 - (-look_ups / rows).exponential())
}

/// Look-ups. Forward, blocks follow each other, or rows come from DRAM as far as the L2 does not keep them, or pass it, whatever is slowest. Backward, the table
/// is cleared; then one row after the other is added to it, or those that are alike once they are sorted.
fn look_up_terms(op: &Embedding, call: &OpCall, gpu: &Gpu) -> [f64; TERMS] {
    let clock = gpu.boost_clock.0;
    let issue = f64::from(gpu.sm_count.max(1)) * clock;
    let (v, d, n) = (op.vocab as f64, op.dim as f64, op.tokens as f64);
    let row = d * call.dtype.size();
    let floor = gpu.kernel_floor.0;
    let (elements, unlike) = (n * d, met(v, n));
    let mut out = [0.0; TERMS];
    if call.pass == Pass::Fwd {
        let touched = unlike * row.max(SECTOR) + n * row;
        let dram = touched * missed(touched, gpu) / gpu.dram_sustained.0;
        let l2 = n * (row.max(SECTOR) + row) / gpu.l2.0;
        if row % VECTOR == 0.0 {
            let cube = |x: f64| x * x * x;
            let slowest = (cube(n * ROW_CLOCKS / issue) + cube(dram) + cube(l2)).cube_root();
            (out[0], out[1], out[2]) = (floor, slowest, l2);
        } else {
            (out[0], out[2], out[3], out[4]) = (floor, l2, dram, elements / issue);
        }
        return out;
    }
    let table = v * row;
    let [cleared, passed] = [table * missed(table, gpu) / gpu.dram_sustained.0, table / gpu.l2.0];
    let rest = if op.tokens > FEW_LOOK_UPS {
        [unlike * d / issue, elements / issue, n / issue, n / v / clock]
    } else {
        let strips = op.dim.div_ceil(STRIP * u64::from(gpu.sm_count.max(1))) as f64;
        [strips * n / clock, elements / issue, 0.0, n / v / clock]
    };
    (out[0], out[1], out[2]) = (floor, cleared, passed);
    out[3..7].copy_from_slice(&rest);
    out
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
    fn look_ups_of_short_rows_take_a_block_each() {
        let gpu = preflop_gpu::catalog::find("h200").unwrap();
        let call = |vocab, dim, tokens, pass| {
            OpCall::new(Op::Embedding(Embedding { vocab, dim, tokens }), pass, Dtype::Fp32)
        };
        let key_of = |c: &OpCall| class(c).map(key).unwrap_or_default();
        let short = call(4096, 4, 1 << 20, Pass::Fwd);
        assert_eq!(key_of(&short), "linear/embedding/fwd/rows/fp32");
        // 157 clocks of 132 SMs at 1.98 GHz for each of 1,048,576 rows: 630 us
        let [_, slowest, ..] = terms(&short, &gpu);
        assert!((slowest / 630e-6 - 1.0).abs() < 0.01, "{slowest}");
        assert_eq!(key_of(&call(4096, 3, 100, Pass::Fwd)), "linear/embedding/fwd/elements/fp32");
        assert_eq!(key_of(&call(4096, 3, 3072, Pass::Bwd)), "linear/embedding/bwd/few/fp32");
        let many = call(4096, 64, 4096, Pass::Bwd);
        assert_eq!(key_of(&many), "linear/embedding/bwd/sorted/fp32");
        // As many look-ups as rows meet 1 - 1/e of them.
        let expected = 4096.0 * (1.0 - (-1.0f64).exp()) * 64.0 / (132.0 * gpu.boost_clock.0);
        assert!((terms(&many, &gpu)[3] / expected - 1.0).abs() < 1e-9);
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
