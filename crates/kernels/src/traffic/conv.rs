//! Traffic of a convolution by tiles, as counters on an H200 show it for cuDNN's kernels.
//!
//! fp32 kernels load through the L1 in 32-byte sectors; tensor-core kernels fetch whole tiles with the bulk copy
//! engine. Rules for the tiles and the sector factors below: `docs/accuracy.md` compares them with the counters.

use super::{Levels, dram};
use crate::conv::Task;
use preflop_gpu::Gpu;
use preflop_ops::Pass;
use preflop_units::dtype::Dtype;

/// Bytes of a cache line and of a sector.
const LINE: f64 = 128.0;
const SECTOR: f64 = 32.0;
/// Layers with no more channels than this are not padded to the K tile.
const FEW_CHANNELS: u64 = 8;
/// Share of filter bytes that tall fp32 tiles fetch past the L1: neighbours on an SM share them.
const SHARED_FILTER: f64 = 0.7;
/// Share of 1x1 tile bytes that the L1 misses.
const POINTWISE_MISS: f64 = 0.94;

/// Bytes of a task at every level, by the tile that its layers have been seen with.
pub fn levels(task: &Task, gpu: &Gpu) -> Levels {
    by_tile(task, gpu, None)
}

/// Bytes of a task at every level by the tile of the kernel that runs (rows, columns, depth); without one, by the tile
/// that layers of its size have been seen with.
pub fn by_tile(task: &Task, gpu: &Gpu, tile: Option<[f64; 3]>) -> Levels {
    let [x, w, y] = task.bytes();
    let written = match task.pass {
        Pass::Fwd => y,
        Pass::Dgrad => x,
        _ => w,
    };
    let from_dram = dram(read(task), written, gpu);
    let (l1, l2) = if task.depthwise() {
        (x + w + y, x + w + y)
    } else if task.dtype == Dtype::Fp32 {
        sectors(task, tile)
    } else {
        let bytes = tiles(task, tile);
        (bytes, bytes)
    };
    Levels { l1: l1.max(from_dram), l2: l2.max(0.5 * from_dram), dram: from_dram }
}

/// Bytes that a task reads from a cold DRAM.
pub fn read(task: &Task) -> f64 {
    let [x, w, y] = task.bytes();
    match task.pass {
        Pass::Fwd => x * used(task) + w,
        Pass::Dgrad => y + w,
        _ => x * used(task) + y,
    }
}

/// Share of the input that is read. A stride longer than the filter skips pixels: channels-last ones are left out whole; of
/// maps in NCHW only rows are, and each row that is read brings its cache lines in full: `row + line - sector` bytes.
fn used(task: &Task) -> f64 {
    let c = &task.conv;
    if c.stride[0] <= c.r {
        return 1.0;
    }
    if c.channels_last {
        return (c.r * c.s) as f64 / (c.stride[0] * c.stride[1]) as f64;
    }
    let row = c.w as f64 * task.dtype.size();
    (c.r as f64 * (row + LINE - SECTOR) / (c.stride[0] as f64 * row)).min(1.0)
}

/// Tiles of the tensor-core kernels: bytes from the L2 to the SMs.
///
/// `ceil(M/bM) * NT * (bM + bN) * taps * ceil(c/bK) * bK * e`, NT = `ceil(N/bN)`, made even when odd and above
/// 1: CTAs work in pairs along N. 1x1 layers run as plain products with tiles of 128 x 256.
fn tiles(task: &Task, tile: Option<[f64; 3]>) -> f64 {
    let g = task.conv.groups as f64;
    let e = task.dtype.size();
    let (m, n, _) = task.dims(1.0);
    if task.pointwise() && tile.is_none() {
        let (_, _, k) = task.dims(1.0);
        let (bn, bm) = if n <= 64.0 { (64.0, 512.0) } else { (128.0, 256.0) };
        return g * (m / bm).ceil() * (n / bn).ceil() * (bm + bn) * k * e;
    }
    let channels = if task.pass == Pass::Dgrad { task.conv.co } else { task.conv.ci } / task.conv.groups;
    if channels <= FEW_CHANNELS {
        // Too few channels to fill a K tile: these kernels load through the L1, which holds the overlap of taps.
        let c = &task.conv;
        let stride = c.stride[0].min(c.r) as f64;
        let again = (1.2 * stride * stride / (c.r * c.s) as f64).min(1.0);
        return g * (m / 128.0).ceil() * (n / 128.0).ceil() * (128.0 * again + 128.0) * task.dims(1.0).2 * e;
    }
    let seen = if n <= 64.0 { [256.0, 64.0, 32.0] } else { [128.0, 128.0, 64.0] };
    let [bm, bn, bk] = tile.unwrap_or(seen);
    let bk = bk.max(1.0);
    let k = task.dims(bk).2;
    let columns = (n / bn).ceil();
    let columns = if columns > 1.0 && columns % 2.0 == 1.0 { columns + 1.0 } else { columns };
    g * (m / bm).ceil() * columns * (bm + bn) * (k / bk).ceil() * bk * e
}

/// fp32 kernels: L1 and L2 bytes from the sectors that the warps touch.
///
/// `L1 = CTAs * K * 4 * (bM fa + bN)`; past the L1 a k x k filter finds most of the input again.
fn sectors(task: &Task, tile: Option<[f64; 3]>) -> (f64, f64) {
    let c = &task.conv;
    let (m, n, k) = task.dims(1.0);
    let taps = (c.r * c.s) as f64;
    let tall = (m / 256.0).ceil() * (n / 64.0).ceil();
    // Under about ten waves of the tall tile, libraries take the small one for filters larger than 1x1.
    let seen = if taps > 1.0 && tall < 1300.0 { [32.0, 32.0, 8.0] } else { [256.0, 64.0, 8.0] };
    let [bm, bn, _] = tile.unwrap_or(seen);
    let ctas = c.groups as f64 * (m / bm).ceil() * (n / bn).ceil();
    let fa = sector_factor(task);
    let l1 = ctas * k * 4.0 * (bm * fa + bn);
    let l2 = if taps > 1.0 {
        let stride = c.stride[0].min(c.r) as f64;
        let a = fa.min(1.2 * fa * stride * stride / taps);
        ctas * k * 4.0 * (bm * a + bn * if bm >= 128.0 { SHARED_FILTER } else { 1.0 })
    } else {
        ctas * k * 4.0 * (bm * fa + bn) * POINTWISE_MISS
    };
    (l1, l2)
}

/// Sectors touched by 32 consecutive output pixels over those they need (4).
///
/// 1x1 at stride 1: a start that is off the sector costs a fifth sector, and so does a step to the next image.
/// Strided: every second element at least, more where rows are short. Larger filters: rows shift under the
/// taps; 1.13 on wide maps, 1.19 on others.
fn sector_factor(task: &Task) -> f64 {
    let c = &task.conv;
    let (area, ow) = ((c.h * c.w) as f64, c.ow() as f64);
    if c.stride[0] > 1 {
        let short = if ow < 28.0 { 6.65 / ow } else { 0.0 };
        return c.stride[0] as f64 + short;
    }
    if c.r * c.s > 1 {
        return if c.w >= 48 { 1.13 } else { 1.19 };
    }
    let off = 1.0 - crate::alignment(c.h * c.w, 8) as f64 / 8.0;
    1.0 + 0.25 * off * (1.0 + (32.0 / area).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_ops::Conv;

    #[test]
    fn a_tensor_core_layer_by_hand() {
        // ResNet152 conv4_b, fp16 NHWC, batch 256: M = 50,176, N = 256, K = 9 * 256
        let conv = Conv { channels_last: true, ..Conv::square(256, 256, 14, 256, 3, 1, 1) };
        let gpu = preflop_gpu::catalog::find("h200").unwrap();
        let l = levels(&Task::new(&conv, Pass::Fwd, Dtype::Fp16), &gpu);
        // 392 * 2 * (128+128) * 2304 * 2 = 924,844,032; the counter says 924.9 MB
        assert_eq!(l.l2, 924_844_032.0);
    }

    /// The kernel's own tile decides, where it is known: AlexNet conv4 in fp16 runs 64x192x64 tiles.
    #[test]
    fn the_tile_that_runs_decides() {
        let gpu = preflop_gpu::catalog::find("h200").unwrap();
        let conv = Conv { channels_last: true, ..Conv::square(256, 384, 13, 384, 3, 1, 1) };
        let task = Task::new(&conv, Pass::Fwd, Dtype::Fp16);
        // 676 * 2 * (64+192) * 3456 * 2 = 2,392,326,144; the counter says 2,406.5 MB
        assert_eq!(by_tile(&task, &gpu, Some([64.0, 192.0, 64.0])).l2, 2_392_326_144.0);
        // The rule would take 128x128 tiles, of which three columns count as four: 338 * 4 * 256 * 3456 * 2
        assert_eq!(levels(&task, &gpu).l2, 2_392_326_144.0);
        let fp32 = Task::new(&Conv::square(256, 256, 14, 256, 3, 1, 1), Pass::Fwd, Dtype::Fp32);
        let small = by_tile(&fp32, &gpu, Some([32.0, 32.0, 8.0]));
        let tall = by_tile(&fp32, &gpu, Some([256.0, 64.0, 8.0]));
        // Counters with 32x32: L1 8,129 MB, L2 4,220 MB
        assert!((small.l1 / 8.128_56e9 - 1.0).abs() < 0.05 && (small.l2 / 4.220_43e9 - 1.0).abs() < 0.1);
        assert!(tall.l1 < 0.5 * small.l1, "wide tiles load less");
    }

    #[test]
    fn sector_factors_match_the_counters() {
        let f = |h: u64, k: u64, s: u64, pad: u64| {
            sector_factor(&Task::new(&Conv::square(256, 256, h, 256, k, s, pad), Pass::Fwd, Dtype::Fp32))
        };
        // counters: 56x56 1.0, 14x14 1.14, 7x7 1.36; stride 2: 56 -> 2.0, 28 -> 2.39, 14 -> 3.02
        for ((h, k, s, pad), counter) in [
            ((56, 1, 1, 0), 1.0),
            ((14, 1, 1, 0), 1.14),
            ((7, 1, 1, 0), 1.36),
            ((56, 1, 2, 0), 2.0),
            ((28, 1, 2, 0), 2.39),
            ((14, 1, 2, 0), 3.02),
        ] {
            let ours = f(h, k, s, pad);
            assert!((ours / counter - 1.0).abs() < 0.05, "{h} {k} {s}: {ours} against {counter}");
        }
    }
}
