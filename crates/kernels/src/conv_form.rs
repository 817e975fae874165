//! The closed form of each convolution family: the product it makes of a task, and what it moves around it.
//!
//! Grids of named kernels show how each family cuts its work; `t0` and the rates are fitted.

use super::Machine;
use super::conv::{ConvConstants, ConvFamily, GENERAL, Task};
use super::tile::{Product, Tiling, best, in_clusters, with_tile};
use preflop_learned::choice::Variant;
use preflop_ops::{Conv, Pass};
use preflop_units::math::Elementary as _;

/// Pixels that one CTA of [`ConvFamily::Wgrad0`] sums over.
const WGRAD0_PIXELS: f64 = 512.0;
/// Threads of a CTA of the direct grouped kernels: one result each; in the weight gradient all work on one weight.
const DIRECT_THREADS: f64 = 1024.0;
const DIRECT_WGRAD_THREADS: f64 = 256.0;
/// Taps that beginning another channel is worth there: 1x1 layers of `conv_listed.csv.gz` run at a third of the rate of 3x3 ones. Not fitted.
const DIRECT_CHANNEL: f64 = 3.0;
/// The engine that runs two kernels at once for a group, and their seconds over those that pass: 2.6 in profiles of wav2vec2 and HuBERT
/// (`python/bench/fresh.py profile`), the two networks that have it. Not fitted.
const PAIRED: u8 = 1;
const PAIR: f64 = 2.5;
/// How much longer kernels of one call take together for each doubling of the groups: kernel sums of six runs of ResNeXt in fp32 over the
/// times of its grouped convolutions are 3.1 to 4.8 with 32 groups.
const HELD_UP: f64 = 0.45;
/// Seconds of a kernel that pads channels over those of one that transposes, besides their bytes.
const PADDING_START: f64 = 1.6;
/// Seconds that the general conversion kernel takes longer than one that transposes, in units of the latter.
const GENERAL_START: f64 = 2.5;
/// Transform size of FFTs whose kernels were not named.
const USUAL_FFT: f64 = 32.0;

/// The form of one family: its tiling, launches, and conversions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FamilyTime {
    /// Seconds in all.
    pub time: f64,
    /// The product's tiling.
    pub tiling: Tiling,
    /// Launches of the main kernel.
    pub launches: f64,
    /// Seconds of all kernels, each alone, over all seconds: above 1 where groups run side by side.
    pub abreast: f64,
    /// Seconds of layout conversion and other helpers.
    pub conversion: f64,
}

/// What a family makes of a task.
struct Work {
    product: Product,
    tile: Option<[f64; 3]>,
    /// Bytes that atomics add up in the L2.
    atomic: f64,
    /// Kernels before and after the product (of one group, where each has its own), and the bytes that all of them move.
    helpers: f64,
    moved: f64,
}

/// Sizes of a task that several families need.
struct Sizes {
    groups: f64,
    images: f64,
    taps: f64,
    /// Channels of one group.
    ci: f64,
    co: f64,
    /// Pixels of one output image.
    pixels: f64,
}

impl Sizes {
    fn new(task: &Task) -> Self {
        let c = &task.conv;
        let groups = c.groups as f64;
        Self {
            groups,
            images: c.batch as f64,
            taps: (c.r * c.s) as f64,
            ci: c.ci as f64 / groups,
            co: c.co as f64 / groups,
            pixels: (c.oh() * c.ow()) as f64,
        }
    }
}

impl Work {
    /// The implicit product with the variant's tile; groups run side by side.
    fn new(task: &Task, variant: &Variant) -> Self {
        let tile = variant.tile();
        let padded = variant.family.converts() && !packs_taps(task, variant);
        let tap = if padded { tile.map_or(32.0, |t| t[2].max(8.0)) } else { 1.0 };
        let (m, n, k) = task.dims(tap);
        let [x, w, y] = task.bytes();
        let (read, written) = match task.pass {
            Pass::Fwd => (x + w, y),
            Pass::Dgrad => (y + w, x),
            _ => (x + y, w),
        };
        let product = Product {
            batch: task.conv.groups as f64,
            m,
            n,
            k,
            element: task.dtype.size(),
            read,
            written,
            max_split: if task.pass == Pass::Wgrad { 128.0 } else { 16.0 },
            min_part: 256.0,
            step: 32.0,
        };
        Self { product, tile, atomic: 0.0, helpers: 0.0, moved: 0.0 }
    }

    /// Other sizes of the product, one part per sum.
    fn resize(&mut self, batch: f64, m: f64, n: f64, k: f64) {
        self.product = Product { batch, m, n, k, max_split: 1.0, ..self.product };
    }

    /// The work of one of so many groups.
    fn of_one(&self, groups: f64) -> Self {
        let p = &self.product;
        let product =
            Product { batch: p.batch / groups, read: p.read / groups, written: p.written / groups, ..*p };
        Self { product, atomic: self.atomic / groups, moved: self.moved / groups, ..*self }
    }

    /// Adds the conversions between the layouts of all three tensors.
    fn convert(&mut self, task: &Task) {
        self.helpers += 3.0;
        self.moved += 2.0 * task.bytes().iter().sum::<f64>();
    }
}

/// Does the kernel take channels of several filter taps in one step? Engines 47 (16 bit) and 48 (tf32) do, forward: their
/// kernels compute every address (`indexed_wo_smem`).
fn packs_taps(task: &Task, variant: &Variant) -> bool {
    let engine = if task.dtype.is_half() { 47 } else { 48 };
    variant.family == ConvFamily::Xmma80 && task.pass == Pass::Fwd && variant.engine == engine
}

/// The work of a task by one variant.
fn work(task: &Task, variant: &Variant) -> Work {
    let mut out = Work::new(task, variant);
    let conv = &task.conv;
    let s = Sizes::new(task);
    let [x, w, y] = task.bytes();
    let family = variant.family;
    match family {
        ConvFamily::Gemm if !conv.channels_last && task.pass != Pass::Wgrad => {
            // NCHW: one product per image.
            out.product.batch *= s.images;
            out.product.m = (out.product.m / s.images).max(1.0);
        }
        ConvFamily::Xmma90 | ConvFamily::Xmma80 if conv.groups > 1 => pack_groups(task, &s, &mut out),
        ConvFamily::Cutlass if conv.groups > 1 => cut_out(task, &mut out),
        ConvFamily::Xmma90 | ConvFamily::Xmma80 | ConvFamily::Cutlass => {
            let (bytes, kernels) = task.conversion();
            let general = if task.general_filter() { GENERAL_START } else { 0.0 };
            out.helpers = general + if conv.channels_last { PADDING_START * kernels } else { kernels };
            out.moved = bytes;
        }
        ConvFamily::DgradEngine => {
            // A product per image into all taps, added up by atomics; the result is cleared first.
            out.resize(s.images * s.groups, s.taps * s.ci, s.pixels, s.co);
            out.atomic = 4.0 * s.images * s.groups * s.taps * s.ci * s.pixels;
            (out.moved, out.helpers) = (x, 1.0);
        }
        ConvFamily::Wgrad0 => {
            let parts = (s.pixels / WGRAD0_PIXELS).ceil();
            out.resize(s.images * parts * s.groups, s.taps * s.ci, s.co, s.pixels / parts);
        }
        ConvFamily::Wgrad1 => (out.product.m, out.product.n) = (out.product.n, out.product.m),
        ConvFamily::GroupedDirect => {
            let (results, sum, threads) = match task.pass {
                Pass::Dgrad => (x, s.taps * s.co, DIRECT_THREADS),
                Pass::Wgrad => (
                    w * DIRECT_WGRAD_THREADS,
                    s.images * s.pixels / DIRECT_WGRAD_THREADS,
                    DIRECT_WGRAD_THREADS,
                ),
                _ => (y, (s.taps + DIRECT_CHANNEL) * s.ci, DIRECT_THREADS),
            };
            out.resize(1.0, results / task.dtype.size(), 1.0, sum);
            out.tile = Some([threads, 1.0, 1.0]);
        }
        ConvFamily::Winograd => winograd(task, &s, &mut out),
        ConvFamily::Fft => fft(task, &s, &mut out),
        _ => {}
    }
    let needs_nchw = matches!(
        family,
        ConvFamily::DgradEngine
            | ConvFamily::Wgrad0
            | ConvFamily::Winograd
            | ConvFamily::Fft
            | ConvFamily::Sgemm
    );
    let ffma = family == ConvFamily::Ffma;
    if (needs_nchw && conv.channels_last) || (ffma && conv.channels_last == (task.pass != Pass::Wgrad)) {
        out.convert(task);
    }
    if conv.groups > 1 && family.loops() && !family.converts() && family != ConvFamily::DgradEngine {
        out.helpers += 1.0;
        if ffma && conv.batch > 1 && task.pass != Pass::Wgrad {
            // The channels of a group are gathered from all images, and the results put back.
            out.moved += 2.0 * (x + y);
        }
    }
    out
}

/// The channels of each group are cut out of every tensor and put back: by transposing them from NCHW in blocks, by slices where
/// they are innermost and aligned, else by the general kernel.
fn cut_out(task: &Task, out: &mut Work) {
    let c = &task.conv;
    let (ci, co) = (c.ci / c.groups, c.co / c.groups);
    let [x, w, y] = task.bytes();
    if !c.channels_last {
        let one = Task { conv: Conv { batch: c.batch, ci, co, groups: 1, ..*c }, ..*task };
        let (bytes, kernels) = one.conversion();
        let general = if one.general_filter() { GENERAL_START } else { 0.0 };
        (out.moved, out.helpers) = (c.groups as f64 * bytes, kernels + general);
        return;
    }
    let vector = task.vector();
    for (channels, bytes) in [(ci, x), (co, y)] {
        let odd = !channels.is_multiple_of(vector);
        out.helpers += if odd { 1.0 + GENERAL_START } else { 1.0 };
        out.moved += 2.0 * bytes * if odd { GENERAL } else { 1.0 };
    }
    if !ci.is_multiple_of(vector) || !co.is_multiple_of(vector) {
        (out.moved, out.helpers) = (out.moved + 2.0 * w, out.helpers + PADDING_START);
    }
}

/// Channels of a group above which its tensors are converted one by one, as the kernel names of `conv_groups.csv.gz` count them.
const WIDE_GROUP: f64 = 256.0;
/// Groups that are converted at the same time there: one over the share of waiting that most engines were fitted to.
const CONVERTED_TOGETHER: f64 = 8.0;

/// Tensor-core kernels take several groups of few channels as one with a block-diagonal filter: the channels of a group
/// are padded to a power of two, and as many groups share a tile as fit into its columns.
fn pack_groups(task: &Task, s: &Sizes, out: &mut Work) {
    let [x, w, y] = task.bytes();
    let most = s.ci.max(s.co);
    if most > WIDE_GROUP {
        cut_out(task, out);
        out.helpers *= (s.groups / CONVERTED_TOGETHER).max(1.0);
        return;
    }
    let padded = most.binary_log().ceil().power_of_two().max(4.0);
    let columns = out.tile.map_or(64.0, |t| t[1]).max(padded);
    let stride = (task.conv.stride[0] * task.conv.stride[1]) as f64;
    let p = &mut out.product;
    p.batch = (s.groups * padded / columns).ceil();
    (p.m, p.n, p.k) = match task.pass {
        Pass::Wgrad => (columns, s.taps * columns, s.images * s.pixels),
        Pass::Dgrad => (p.m, columns, (s.taps / stride).max(1.0) * columns),
        _ => (p.m, columns, s.taps * columns),
    };
    // Channels that are no such power are padded by the general kernel, but for feature maps that are transposed anyway.
    let grown = |channels: f64| padded / channels;
    let filters = grown(s.ci) * grown(s.co);
    if !task.conv.channels_last {
        out.moved = x * (1.0 + grown(s.ci)) + y * (1.0 + grown(s.co));
        out.helpers = 3.0;
        if filters > 1.0 {
            (out.moved, out.helpers) = (out.moved + GENERAL * w * (1.0 + filters), 3.0 + GENERAL_START);
        } else {
            out.moved += 2.0 * w;
        }
        return;
    }
    for (bytes, grown) in [(x, grown(s.ci)), (w, filters), (y, grown(s.co))] {
        if grown > 1.0 {
            out.helpers += 1.0 + GENERAL_START;
            out.moved += GENERAL * bytes * (1.0 + grown);
        }
    }
}

/// Non-fused Winograd: a product per point of the transformed tiles, and three transforms around them.
fn winograd(task: &Task, s: &Sizes, out: &mut Work) {
    // 4x4 results of a 3x3 filter take 6x6 points, 9x9 results of a 5x5 filter 13x13.
    let (side, points) = if task.conv.r > 3 { (9, 169.0) } else { (4, 36.0) };
    let tiles = s.images * (task.conv.oh().div_ceil(side) * task.conv.ow().div_ceil(side)) as f64;
    let (m, n, k) = match task.pass {
        Pass::Wgrad => (s.ci, s.co, tiles),
        Pass::Dgrad => (tiles, s.ci, s.co),
        _ => (tiles, s.co, s.ci),
    };
    transformed(task, s, out, points * 4.0, points, (m, n, k, k));
}

/// FFT tiles: a complex product per frequency, and transforms of all three tensors.
fn fft(task: &Task, s: &Sizes, out: &mut Work) {
    let c = &task.conv;
    let size = out.tile.map_or(USUAL_FFT, |t| t[0]);
    // Half of the frequencies tell the rest.
    let points = size * (size / 2.0 + 1.0);
    let along = |length: u64, filter: u64| (length as f64 / (size - filter as f64 + 1.0).max(1.0)).ceil();
    let (h, w) = if task.pass == Pass::Dgrad { (c.h, c.w) } else { (c.oh(), c.ow()) };
    let tiles = s.images * along(h, c.r) * along(w, c.s);
    let (m, n, k) = match task.pass {
        Pass::Wgrad => (s.ci, s.co, tiles),
        Pass::Dgrad => (tiles, s.ci, s.co),
        _ => (tiles, s.co, s.ci),
    };
    // A complex product is four real ones.
    transformed(task, s, out, points * 8.0, points, (m, n, k, 4.0 * k));
    out.tile = None;
}

/// A product of (m, n, k) for each of `points`, with `bytes` for all points of one element; `sum` is k in real products.
fn transformed(
    task: &Task,
    s: &Sizes,
    out: &mut Work,
    bytes: f64,
    points: f64,
    (m, n, k, sum): (f64, f64, f64, f64),
) {
    out.resize(points * s.groups, m, n, sum);
    out.product.read = bytes * s.groups * k * (m + n);
    out.product.written = bytes * s.groups * m * n;
    out.helpers = 3.0;
    out.moved = task.bytes().iter().sum::<f64>() + out.product.read + out.product.written;
}

/// Time of a task by one variant: with its tile where it is known, else with the best one.
///
/// A kernel that is launched for each of `g` groups takes as long as all groups side by side, and as one after the other as far as they
/// wait for each other: `time = all + waiting * max(0, g * one - all)`.
pub fn family_time(task: &Task, variant: &Variant, c: &ConvConstants, machine: &Machine) -> FamilyTime {
    let work = work(task, variant);
    let all = work_time(&work, variant, c, machine);
    let groups = task.conv.groups as f64;
    if groups == 1.0 || !variant.family.loops() {
        return all;
    }
    let one = work_time(&work.of_one(groups), variant, c, machine);
    let waiting = |all: f64, one: f64| all + c.waiting * (groups * one - all).max(0.0);
    let time = waiting(all.time, one.time);
    let together = if variant.family == ConvFamily::Sgemm && variant.engine == PAIRED { PAIR } else { 1.0 };
    // Kernels without tensor cores are long enough to meet, and each then takes longer.
    let held_up = if variant.family.converts() { 1.0 } else { 1.0 + HELD_UP * groups.binary_log() };
    FamilyTime {
        time,
        abreast: (together * groups * one.time / time).max(held_up),
        conversion: waiting(all.conversion, one.conversion),
        launches: groups,
        ..all
    }
}

/// Time of one launch of a variant and of what goes with it.
fn work_time(work: &Work, variant: &Variant, c: &ConvConstants, machine: &Machine) -> FamilyTime {
    let mut product = work.product;
    let mut reduction = 0.0;
    if let Some(parts) = variant.parts() {
        let p = &mut product;
        if parts > 1.0 {
            reduction = c.tile.red0 + 8.0 * parts * p.batch * p.m * p.n / (c.tile.l2 * machine.l2);
        }
        (p.batch, p.k, p.max_split) = (p.batch * parts, p.k / parts, 1.0);
    }
    let product = &product;
    let mut tiling = match work.tile {
        Some([bm, bn, _]) if variant.cluster[0] > 0 => {
            let cluster = (f64::from(variant.cluster[0]), f64::from(variant.cluster[1].max(1)));
            in_clusters(product, &c.tile, machine, (bm, bn), cluster, variant.segments, c.epilogue)
        }
        Some(tile) => with_tile(product, &c.tile, machine, tile, c.epilogue),
        None => best(product, &c.tile, machine),
    };
    let own = tiling.compute.max(tiling.l2).max(tiling.dram);
    tiling.time += (work.atomic / (c.cvbw * machine.l2) - own).max(0.0) + reduction;
    let rate = if work.atomic > 0.0 { c.tile.bw } else { c.cvbw };
    let conversion = work.helpers * c.cv0 + work.moved / (rate * machine.dram);
    FamilyTime { time: tiling.time + conversion, tiling, launches: 1.0, abreast: 1.0, conversion }
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_units::dtype::Dtype;

    fn of(family: ConvFamily, tile: [u16; 3]) -> Variant {
        Variant { tile, ..Variant::of_family(family) }
    }

    #[test]
    fn groups_of_few_channels_share_a_tile() {
        let conv = Conv { groups: 64, channels_last: true, ..Conv::square(4, 512, 28, 512, 3, 1, 1) };
        let packed = work(&Task::new(&conv, Pass::Fwd, Dtype::Bf16), &of(ConvFamily::Xmma80, [64; 3]));
        // eight groups of eight channels: a grid of 8 x 49 tiles was seen
        assert_eq!((packed.product.batch, packed.product.n, packed.product.k), (8.0, 64.0, 576.0));
        assert_eq!(packed.helpers, 0.0);
        let odd = Conv { ci: 24 * 64, co: 24 * 64, ..conv };
        let padded = work(&Task::new(&odd, Pass::Fwd, Dtype::Bf16), &of(ConvFamily::Xmma80, [64; 3]));
        assert_eq!(padded.product.batch, 32.0);
        assert!(padded.moved > 0.0);
    }

    #[test]
    fn groups_on_one_stream_take_as_long_as_each_alone_together() {
        let gpu = preflop_gpu::catalog::find("h200").unwrap();
        let machine = Machine::of(&gpu, Dtype::Bf16);
        let conv = Conv {
            h: 1,
            w: 199,
            r: 1,
            s: 128,
            pad: [0, 64],
            groups: 16,
            ..Conv::square(6, 768, 1, 768, 1, 1, 0)
        };
        let of_one = Conv { ci: 48, co: 48, groups: 1, ..conv };
        let variant = of(ConvFamily::Sgemm, [64, 128, 8]);
        let time = |conv: &Conv, waiting: f64| {
            let c = ConvConstants { waiting, ..ConvConstants::START };
            family_time(&Task::new(conv, Pass::Fwd, Dtype::Bf16), &variant, &c, &machine).time
        };
        let alone = time(&of_one, 1.0) + ConvConstants::START.cv0;
        assert!((time(&conv, 1.0) / (16.0 * alone) - 1.0).abs() < 1e-9);
        assert!(time(&conv, 0.125) < 0.6 * time(&conv, 1.0));
    }

    #[test]
    fn engines_cut_their_work_as_their_grids_show() {
        let conv = Conv::square(4, 224, 112, 672, 5, 1, 2);
        let task = Task::new(&conv, Pass::Dgrad, Dtype::Fp32);
        let p = work(&task, &of(ConvFamily::DgradEngine, [64, 32, 8])).product;
        assert_eq!([(p.m / 64.0).ceil(), (p.n / 32.0).ceil(), p.batch], [88.0, 392.0, 4.0]);
        let conv = Conv::square(16, 128, 160, 320, 3, 2, 1);
        let task = Task::new(&conv, Pass::Wgrad, Dtype::Fp32);
        let p = work(&task, &of(ConvFamily::Wgrad0, [32, 32, 8])).product;
        assert_eq!([(p.m / 32.0).ceil(), (p.n / 32.0).ceil(), p.batch], [36.0, 10.0, 208.0]);
        let conv = Conv::square(8, 160, 71, 672, 3, 1, 1);
        let task = Task::new(&conv, Pass::Wgrad, Dtype::Fp32);
        assert_eq!(work(&task, &of(ConvFamily::Fft, [128, 128, 8])).product.batch, 8320.0);
    }
}
