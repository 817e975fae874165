//! fp32 convolutions on plain pipes, by the fastest of the algorithms that cuDNN has for them.
//!
//! Hopper's choice is repeated from the library's own answers (`time/choice.rs`). On other GPUs the least of these
//! forms stands for it, T = tiles of a feature map over the batch:
//!
//! ```text
//! implicit GEMM     the product of `conv.rs` with tiles of 128 x 32, 64, 128 (all tiles and split sums backward
//!                   over weights); results and filters at 0.8 of the DRAM's rate, the image that a filter slides over at bw.
//!                   Strided data gradients sum ceil(r/stride)*ceil(s/stride) taps for every pixel; where the filter is smaller than
//!                   the stride only the pixels that it reaches, and all are cleared first
//! fused Winograd    F(2x2, 3x3): CTAs of 32 output tiles x 32 channels, 16 products of ci each
//!                   ctas = min(b*ceil(th/4)*ceil(tw/8), ceil(b/2)*ceil(th/4)*ceil(tw/4)) * ceil(co/32)
//!                   t = t0 + max(2*16*32*32*ci*ceil(ctas/SM)/(eff*peak/SM)*(1 + lone if one CTA an SM), x+y bytes/(bw*DRAM))
//!                     + kl*ci/32*ceil(ctas/SM/2) + filter bytes/(bw*DRAM)
//! unfused Winograd  F(4x4, 3x3), F(4x4, 5x5): p = 36 or 64 products T x co x ci, and the bytes of their transforms
//!                   t = t0 + product + (x + y + w + 2*4*p*(T*(ci+co) + ci*co))/(bw*DRAM)
//! ```
//!
//! The CTA shapes were read off kernel names and grids of 14,923 published rows (cuDNN 8.9, P4, T4, V100).

use super::conv::Task;
use super::tile::{Constants, PLAIN_TILES, Product, Tiling, best_of};
use super::{Machine, alignment};
use preflop_learned::trees::{Features, MAX_FEATURES};
use preflop_ops::Pass;
use preflop_units::math::Elementary as _;

/// An algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// Implicit GEMM.
    Gemm,
    /// Winograd in one kernel.
    Fused,
    /// Winograd with its transforms in memory.
    Unfused,
    /// Tiles in the frequency domain (`plain_rivals.rs`).
    Fft,
    /// Columns of a product, added up (`plain_rivals.rs`).
    Columns,
}

/// Constants of one algorithm: eff, slope (`lone` when fused), pw, kl, bw, t0.
pub type Figures = [f64; 6];

impl Algorithm {
    /// Those whose constants were fitted on rows that name their kernels.
    pub const ALL: [Self; 3] = [Self::Gemm, Self::Fused, Self::Unfused];

    /// Key of its constants.
    pub fn key(self) -> &'static str {
        match self {
            Self::Gemm => "plain/conv/gemm",
            Self::Fused => "plain/conv/fused",
            Self::Unfused => "plain/conv/unfused",
            Self::Fft | Self::Columns => super::plain_rivals::KEY,
        }
    }

    /// Name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gemm => "implicit GEMM",
            Self::Fused => "fused Winograd",
            Self::Unfused => "Winograd",
            Self::Fft => "FFT tiles",
            Self::Columns => "column product",
        }
    }

    /// Where fits start.
    pub fn start(self) -> Figures {
        match self {
            Self::Gemm | Self::Fft | Self::Columns => [0.95, 15.0, 0.5, 5e-9, 0.7, 5e-6],
            Self::Fused => [0.8, 0.5, 0.5, 2e-8, 0.7, 6e-6],
            Self::Unfused => [0.95, 15.0, 0.5, 5e-9, 0.8, 12e-6],
        }
    }

    /// The algorithm of a call from the names of its kernels.
    pub fn of_kernels(names: &str) -> Option<Self> {
        if names.contains("winograd_nonfused") {
            Some(Self::Unfused)
        } else if names.contains("winograd") {
            Some(Self::Fused)
        } else if names.contains("fft") {
            None
        } else {
            Some(Self::Gemm)
        }
    }

    /// Its tiles and seconds on a machine, if it can do the task.
    pub fn tiling(self, task: &Task, figures: &Figures, machine: &Machine) -> Option<Tiling> {
        match self {
            Self::Gemm => Some(gemm(task, figures, machine)),
            Self::Fused if unstrided(task, 3) && task.pass != Pass::Wgrad => {
                Some(fused(task, figures, machine))
            }
            Self::Unfused if unstrided(task, 3) || unstrided(task, 5) => {
                Some(unfused(task, figures, machine))
            }
            _ => None,
        }
    }
}

/// Do all algorithms apply: a 3x3 filter without stride, dilation or groups?
pub fn winograd(task: &Task) -> bool {
    unstrided(task, 3)
}

fn unstrided(task: &Task, edge: u64) -> bool {
    let c = &task.conv;
    (c.r, c.s) == (edge, edge) && c.stride == [1, 1] && c.dilation == [1, 1] && c.groups == 1
}

/// Share of the DRAM bandwidth at which implicit GEMMs move what they touch once: results, filters, and the pixels of 1x1 layers, as
/// products do.
const WRITTEN_BW: f64 = 0.8;

/// Batch, rows and columns of the result, channels in and out as this pass has them.
fn sizes(task: &Task) -> (f64, f64, f64, f64, f64) {
    let c = &task.conv;
    let (h, w) = if task.pass == Pass::Dgrad { (c.h, c.w) } else { (c.oh(), c.ow()) };
    let (ci, co) = if task.pass == Pass::Dgrad { (c.co, c.ci) } else { (c.ci, c.co) };
    (c.batch as f64, h as f64, w as f64, ci as f64, co as f64)
}

fn constants(f: &Figures) -> Constants {
    let [eff, slope, pw, kl, bw, _] = *f;
    // The L2's own terms are off: these forms were fitted where operands exceed it.
    Constants { eff, slope, pw, kl, bw, hot: 1.0, l2: 10.0, red0: 3e-6, t0: 0.0, drain: 0.0 }
}

/// Implicit GEMM, which can do every task.
pub fn gemm(task: &Task, f: &Figures, machine: &Machine) -> Tiling {
    let (mut m, n, mut k) = task.dims(1.0);
    let [x, w, y] = task.bytes();
    let c = &task.conv;
    let backward = task.pass == Pass::Wgrad;
    let taps = c.r * c.s;
    let mut cleared = 0.0;
    if task.pass == Pass::Dgrad {
        let (share, sums) = task.gradient_taps();
        m *= share;
        k = sums * (c.co / c.groups) as f64;
        if share < 1.0 {
            cleared = x;
        }
    }
    // The image is read again and again around each pixel, what is written is written once.
    let image = if task.pass == Pass::Dgrad { y } else { x };
    let again = if taps == 1 { 1.0 } else { WRITTEN_BW / f[4] };
    let product = Product {
        batch: c.groups as f64,
        m,
        n,
        k,
        element: task.dtype.size(),
        read: x + w + y + (again - 1.0) * image,
        written: 0.0,
        max_split: if backward { 128.0 } else { 1.0 },
        min_part: 256.0,
        step: 8.0,
    };
    // 128 x 128, 128 x 64, 128 x 32; weight gradients have every shape.
    let allowed = if backward { 0b1_1111_1111 } else { 0b0_0001_0101 };
    let tiling =
        best_of(&product, &Constants { bw: WRITTEN_BW, ..constants(f) }, machine, &PLAIN_TILES, allowed);
    Tiling { time: f[5] + tiling.time + cleared / (WRITTEN_BW * machine.dram), ..tiling }
}

fn fused(task: &Task, f: &Figures, machine: &Machine) -> Tiling {
    let [eff, lone, _, kl, bw, t0] = *f;
    let (b, h, w, ci, co) = sizes(task);
    let (th, tw) = ((h / 2.0).ceil(), (w / 2.0).ceil());
    let wide = b * (th / 4.0).ceil() * (tw / 8.0).ceil();
    let square = (b / 2.0).ceil() * (th / 4.0).ceil() * (tw / 4.0).ceil();
    let tiles = wide.min(square) * (co / 32.0).ceil();
    let waves = (tiles / machine.sm).ceil();
    let sum = (ci / 8.0).ceil() * 8.0;
    let slow = if waves < 2.0 { 1.0 + lone } else { 1.0 };
    let compute = 2.0 * 16.0 * 32.0 * 32.0 * sum * waves * machine.sm / (eff * machine.peak) * slow;
    let latency = kl * machine.latency * sum / 32.0 * (waves / 2.0).ceil();
    let [x, weight, y] = task.bytes();
    let filter = weight + task.dtype.size() * 16.0 * ci * co;
    let dram = (x + y) / (bw * machine.dram);
    Tiling {
        time: t0 + (compute + latency).max(dram) + filter / (bw * machine.dram),
        compute,
        l2: 0.0,
        dram,
        latency,
        reduction: 0.0,
        bm: 32.0,
        bn: 32.0,
        split: 1.0,
        part: sum,
        tiles,
        waves,
        miss: 1.0,
        by_tile: [1.0; 12],
    }
}

fn unfused(task: &Task, f: &Figures, machine: &Machine) -> Tiling {
    let (b, h, w, ci, co) = sizes(task);
    let tiles = b * (h / 4.0).ceil() * (w / 4.0).ceil();
    let backward = task.pass == Pass::Wgrad;
    let (m, k) = if backward { (ci, tiles) } else { (tiles, ci) };
    let edge = (4 + task.conv.r - 1) as f64;
    let products = edge * edge;
    let product = Product {
        batch: products,
        m,
        n: co,
        k,
        element: task.dtype.size(),
        read: 0.0,
        written: 0.0,
        max_split: if backward { 16.0 } else { 1.0 },
        min_part: 256.0,
        step: 8.0,
    };
    // 128 x 128, 64 x 128, 128 x 64, 32 x 128, 128 x 32, 64 x 64, 32 x 32
    let tiling = best_of(&product, &constants(f), machine, &PLAIN_TILES, 0b1_0011_1111);
    let bytes: f64 = task.bytes().iter().sum();
    let transformed = 2.0 * task.dtype.size() * products * (tiles * (ci + co) + ci * co);
    let dram = (bytes + transformed) / (f[4] * machine.dram);
    Tiling { time: f[5] + tiling.time + dram, dram, ..tiling }
}

/// Places of the feature vector that are filled.
pub const FEATURES: usize = 31;

fn log2(x: f64) -> f32 {
    x.max(1e-30).binary_log() as f32
}

/// Features of the correction, from the times of the algorithms (infinite where one cannot do the task).
pub fn features(task: &Task, times: &[f64; 3], machine: &Machine) -> Features {
    let mut x = [0.0f32; MAX_FEATURES];
    let mut at = 0;
    let mut push = |v: f32| {
        x[at] = v;
        at += 1;
    };
    let best = times.iter().copied().fold(f64::INFINITY, f64::min);
    let (b, h, w, ci, co) = sizes(task);
    let pixels = b * h * w;
    push(log2(best * 1e6));
    for t in times {
        push(log2((t / best).min(64.0)));
    }
    for v in [b, ci, co, h, pixels, pixels / co, ci / co] {
        push(log2(v));
    }
    for edge in [2.0, 4.0, 8.0, 16.0] {
        push((h / (edge * (h / edge).ceil())) as f32);
    }
    for columns in [32.0, 64.0, 128.0] {
        let waves = (pixels / 128.0).ceil() * (co / columns).ceil() / machine.sm;
        push((waves / waves.ceil()) as f32);
        push(log2(waves));
        push((co / columns / (co / columns).ceil()) as f32);
    }
    push(log2(alignment(ci as u64, 64) as f64));
    push(log2(alignment(co as u64, 64) as f64));
    let [input, weight, output] = task.bytes();
    push(log2((input + output) / machine.l2_size));
    push(log2(weight / machine.l2_size));
    push(log2((input + output + weight) / machine.dram / best));
    let flops = 2.0 * pixels * ci * co * (task.conv.r * task.conv.s) as f64;
    push(log2(flops / machine.peak / best));
    debug_assert!(at <= FEATURES);
    x
}
