//! What the kernels of listed operators do: launches, bytes, work, chains of dependent steps, and the time that follows.
//!
//! ```text
//! t = c0 floor launches + c1 bytes miss/DRAM + c2 bytes/L2 + c3 work/issue + c4 chain/clock + c5 turns turn/clock + c6 pieces/issue
//! ```
//!
//! Where `floor` is an empty kernel, `miss` the share of bytes that the L2 does not keep, `issue` SMs x clock, and `turns` how often one
//! SM must begin anew with `blocks` blocks. No term grows with a resource, so a better GPU is never slower. The constants are not
//! negative; they are fitted for each class (operator, pass, way, bytes of an element) by `preflop-fit operators`.

mod ways;

use crate::Machine;
use crate::tile::{self, Constants, Product, Tiling};
use preflop_gpu::Gpu;
use preflop_learned::trees::{Features, MAX_FEATURES};
use preflop_ops::{Listed, ListedKind as K, OpCall, Pass};
use preflop_units::dtype::Dtype;
use preflop_units::math::Elementary as _;
use ways::{
    DIGITS, Reduction, across, attention, by_index, over_lists, pool, product_of, resize, scan, sort, sorted,
    top, transform, volume,
};

/// Terms of the form.
pub const TERMS: usize = 7;
/// A class that was not measured: two passes by a few kernels. A guess, with an interval to match.
pub const GENERIC: [f64; TERMS] = [2.0, 1.2, 1.5, 1.0, 50.0, 1.0, 50.0];
/// Bytes of an index.
const INDEX: f64 = 8.0;
/// Bytes that one access to a far row takes at least.
const SECTOR: f64 = 32.0;

/// What the kernels of a call do, whatever the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Counts {
    /// Which of its ways the library takes; classes are told apart by it.
    pub way: &'static str,
    /// Kernels and memsets.
    pub launches: f64,
    /// Bytes that pass the L2.
    pub bytes: f64,
    /// Elements handled, over all SMs.
    pub work: f64,
    /// Longest chain of dependent steps.
    pub chain: f64,
    /// Blocks that SMs take in turn; an SM holds one.
    pub blocks: f64,
    /// Steps of one block.
    pub turn: f64,
    /// Pieces of work with a cost of their own: rows, blocks, places.
    pub pieces: f64,
}

/// The counts of a call.
pub fn counts(o: &Listed, call: &OpCall) -> Counts {
    let [a, b, c, d, f, ..] = o.numbers();
    let e = call.dtype.size();
    let backward = call.pass != Pass::Fwd;
    let base = Counts { launches: 1.0, blocks: 1.0, ..Counts::default() };
    let extra = if backward { 1.0 } else { 0.0 };
    match o.kind {
        K::Sort => sort(o, e),
        K::TopK => top(o, e),
        K::KthValue => {
            Counts { bytes: 8.0 * a * b * e, work: 8.0 * a * b, chain: b, blocks: a, turn: b, ..base }
        }
        K::CumSum | K::CumMax => scan(o, e),
        K::SumInner | K::MaxInner => {
            let n = a * b * c;
            let chain = b * (256.0 / (a * c)).min(1.0);
            Counts { bytes: n * e, work: n, chain, blocks: a * c / 128.0, turn: b, ..base }
        }
        K::SoftmaxInner | K::LogSoftmaxInner => {
            let n = a * b * c;
            let (chain, blocks) = across(a, b, c);
            let product = if o.kind == K::SoftmaxInner { extra } else { 0.0 };
            let bytes = (3.0 + extra) * n * e;
            let pieces = n / (c * e / SECTOR).min(1.0);
            Counts { launches: 1.0 + product, bytes, work: n, chain, blocks, turn: chain, pieces, ..base }
        }
        K::CrossEntropy2d => {
            let n = a * b * c;
            let (chain, blocks) = across(a, b, c);
            let bytes = (3.0 + 2.0 * extra) * n * e + a * c * INDEX;
            Counts { launches: 3.0, bytes, work: n, chain, blocks, turn: chain, pieces: a * c, ..base }
        }
        K::MaxRows | K::VarMean | K::LogSumExp => {
            let Reduction { way, steps, blocks, launches } = Reduction::new(a, b);
            Counts { way, launches, bytes: a * b * e, work: a * b, blocks, turn: steps, pieces: a, ..base }
        }
        K::ScatterAdd
        | K::ScatterReduce
        | K::IndexAdd
        | K::Scatter
        | K::IndexPut
        | K::IndexPutAdd
        | K::IndexSelect
        | K::GatherDim => by_index(o, e),
        K::GatherRows => {
            // Every element reads its sector, until all of the row has been read.
            let read = (c * SECTOR).min((b * e).max(SECTOR));
            Counts { bytes: a * (c * (e + INDEX) + read), work: a * c, ..base }
        }
        K::EmbeddingBag if backward => {
            let keys = c * d;
            let bytes = 2.0 * DIGITS * keys * INDEX + keys * b * e + 2.0 * a * b * e;
            let alike = keys / a;
            let counts = Counts { bytes, work: keys * b, chain: alike, turn: alike.min(10.0), ..base };
            Counts { blocks: keys / 64.0, pieces: keys, ..sorted(keys, counts) }
        }
        K::EmbeddingBag => {
            let bytes = c * d * (b * e + INDEX) + c * b * e;
            let blocks = c * (b / 32.0).max(1.0) / 8.0;
            Counts { bytes, work: c * d * b, chain: d, blocks, turn: d, ..base }
        }
        K::NonZero => Counts { launches: 4.0, bytes: 2.0 * a + 0.5 * a * INDEX, work: a, ..base },
        K::MaskedSelect => {
            Counts { launches: 5.0, bytes: a * (2.0 + INDEX + 1.5 * e), work: 2.0 * a, ..base }
        }
        K::Unique => Counts { launches: 16.0, bytes: 16.0 * a * e, work: 8.0 * a, ..base },
        K::RandPerm => Counts { launches: 16.0, bytes: 16.0 * a * INDEX, work: 8.0 * a, ..base },
        K::BinCount => Counts { launches: 8.0, bytes: 3.0 * a * INDEX, work: a, chain: a / b, ..base },
        K::SearchSorted => {
            let steps = (b + 1.0).binary_log();
            Counts { bytes: a * (e + INDEX), work: a * steps, chain: steps, ..base }
        }
        // Checks, sums, random numbers, their quotient and its largest: eight passes, four of them reductions of rows.
        K::Multinomial => {
            let Reduction { way, steps, blocks, .. } = Reduction::new(a, b);
            let bytes = 8.0 * a * b * e;
            Counts { way, launches: 12.0, bytes, work: a * b, blocks, turn: steps, pieces: a, ..base }
        }
        K::FftC2c | K::FftR2c | K::FftC2r | K::Fft2C2c | K::Fft2R2c => transform(o, e),
        K::GridSample | K::GridSampleNearest => {
            let bytes = (1.0 + extra) * a * b * c * e + (1.0 + 2.0 * extra) * a * b * d * e;
            let (launches, blocks) = (1.0 + 2.0 * extra, a * d / 256.0);
            Counts { launches, bytes, work: a * b * d, chain: b, blocks, turn: b, ..base }
        }
        K::Resize3d | K::Resize3dNearest | K::ReflectionPad => {
            // A thread takes its place of all maps in turn; gradients of the nearest place go by inputs.
            let places = if backward && o.kind != K::Resize3d { b } else { c };
            let (launches, bytes) = (1.0 + extra, a * (b + c) * e);
            Counts { launches, bytes, work: a * c, chain: a, blocks: places / 256.0, turn: a, ..base }
        }
        K::Unfold => {
            let bytes = (a * b * c + a * b * d * f) * e;
            Counts { launches: a, bytes, work: a * b * d * f, chain: a * d, ..base }
        }
        K::Fold => {
            let (bytes, blocks) = ((a * b * c + a * b * d * f) * e, a * b * c / 512.0);
            Counts { bytes, work: a * b * d * f, chain: d, blocks, turn: d, ..base }
        }
        K::MaxPool3d | K::AvgPool3d => pool(o, e, backward),
        K::Conv3d | K::Conv3dLast | K::ConvTranspose3d => volume(o, call),
        K::ResizeNearest | K::ResizeBilinear | K::ResizeBilinearLast | K::ResizeBicubic => {
            resize(o, e, backward)
        }
        K::SdpaCross | K::SdpaMask | K::SdpaBias => attention(o, e, backward),
        K::BatchNormLine | K::BatchNormLineEval => {
            let n = a * b * c;
            let stored = o.kind == K::BatchNormLineEval;
            let bytes = if stored { 2.0 + 2.0 * extra } else { 3.0 + 2.0 * extra } * n * e;
            // Rows share blocks by 32 channels, lines have a block for each channel.
            let (way, chain, blocks) =
                if c == 1.0 { ("rows", (a / 64.0).max(1.0), b / 32.0) } else { ("lines", a * c / 512.0, b) };
            Counts { way, launches: 3.0 - extra, bytes, work: n, chain, blocks, turn: chain, pieces: b }
        }
        K::PRelu => Counts { bytes: (2.0 + 2.0 * extra) * a * b * c * e, work: a * b * c, ..base },
        K::CtcLoss => {
            let paths = a * b * (2.0 * d + 1.0);
            let bytes = (1.0 + 2.0 * extra) * paths * e + 6.0 * extra * a * b * c * e;
            let chain = b * ((2.0 * d + 1.0) / 512.0).max(1.0);
            Counts { launches: 4.0 + 18.0 * extra, bytes, work: paths, chain, blocks: a, turn: b, ..base }
        }
        K::CDist => {
            let pairs = a * b * c;
            Counts { bytes: pairs * e, work: pairs * d.max(32.0), pieces: pairs, ..base }
        }
        K::WeightNorm => {
            let turn = b / 512.0;
            Counts { bytes: (2.0 + extra) * a * b * e, work: a * b, chain: turn, blocks: a, turn, ..base }
        }
        K::LstmCell | K::GruCell => Counts {
            launches: 1.0 + 2.0 * extra,
            bytes: 18.0 * a * b * e,
            work: a * b,
            chain: extra * a,
            ..base
        },
        K::Cholesky | K::Solve | K::Inverse | K::Qr | K::Eigh | K::Svd | K::SolveTriangular => {
            let launches = match o.kind {
                K::SolveTriangular => 5.0,
                K::Cholesky => 7.0,
                K::Solve | K::Qr => 12.0,
                K::Inverse => 14.0,
                _ => 15.0,
            };
            let (bytes, chain) = (8.0 * a * b * b * e, b * (b + 1.0).binary_log());
            Counts { launches, bytes, work: a * b * b * b, chain, blocks: a, turn: b, ..base }
        }
        K::SgdFused | K::ForeachMul => over_lists(o, e, 1.0),
        K::ForeachNorm => over_lists(o, e, 3.0),
        K::RmspropForeach | K::AdagradForeach => over_lists(o, e, 5.0),
        K::AmsgradForeach => over_lists(o, e, 8.0),
        // A kernel writes down where each group begins.
        K::GroupedMm => {
            Counts { launches: 2.0, bytes: (b * d + a * d * c + b * c) * e, chain: a, pieces: a * c, ..base }
        }
        K::GroupedSums => {
            let bytes = ((b + c) * d + a * b * c) * e;
            Counts { launches: 2.0, bytes, chain: a, pieces: a * b * c, ..base }
        }
    }
}

/// The class whose constants hold: operator, pass, way, bytes of an element (or tf32, which other units compute).
pub fn class(o: &Listed, call: &OpCall) -> String {
    let way = counts(o, call).way;
    let start = format!("{}/{}/{way}", o.kind.name(), call.pass.name());
    // Too few rows to tell formats apart.
    if o.kind == K::ConvTranspose3d {
        return format!("{}/{}//any", o.kind.name(), call.pass.name());
    }
    if call.dtype == Dtype::Tf32 { format!("{start}/tf32") } else { format!("{start}/{}", call.dtype.size()) }
}

/// Share of a call's bytes that the L2 does not keep from one call to the next.
pub(crate) fn missed(bytes: f64, gpu: &Gpu) -> f64 {
    /// Inputs are met again after so many others: what is larger than this share of the L2 comes from DRAM.
    const ROUNDS: f64 = 6.0;
    let filled = (ROUNDS * bytes / gpu.l2_size.0).powi(4);
    if filled.is_finite() { filled / (1.0 + filled) } else { 1.0 }
}

/// Seconds of each term of a call on a GPU, for constants of 1. The work of a convolution over volumes, and that of grouped products, is that of the tiled
/// product it is.
pub fn terms(o: &Listed, call: &OpCall, gpu: &Gpu) -> [f64; TERMS] {
    let counts = counts(o, call);
    let mut out = terms_of(&counts, gpu);
    if is_product(o.kind) && counts.way != ways::DEPTHWISE {
        out[WORK] = tiled(o, call, gpu).time;
    }
    out
}

/// Is the work that of a product in tiles?
fn is_product(kind: K) -> bool {
    forest(kind) == VOLUMES || matches!(kind, K::GroupedMm | K::GroupedSums)
}

/// Place of the work among the terms.
const WORK: usize = 3;

fn terms_of(counts: &Counts, gpu: &Gpu) -> [f64; TERMS] {
    let miss = missed(counts.bytes, gpu);
    let (sm, clock) = (f64::from(gpu.sm_count.max(1)), gpu.boost_clock.0);
    let turns = (counts.blocks.max(1.0) / sm).ceil();
    [
        counts.launches * gpu.kernel_floor.0,
        counts.bytes * miss / gpu.dram_sustained.0,
        counts.bytes / gpu.l2.0,
        counts.work / (sm * clock),
        counts.chain / clock,
        turns * counts.turn / clock,
        counts.pieces / (sm * clock),
    ]
}

/// Places of the feature vector that a listed operator fills.
pub const FEATURES: usize = 4 + 7 + TERMS + 3 + 11;

/// The forest of convolutions over volumes.
const VOLUMES: &str = "listed/volumes";

/// The forest that knows what the form leaves out, by what the kernels do.
pub fn forest(kind: K) -> &'static str {
    match kind {
        K::Conv3d | K::Conv3dLast | K::ConvTranspose3d => VOLUMES,
        K::Sort
        | K::TopK
        | K::KthValue
        | K::ScatterAdd
        | K::ScatterReduce
        | K::IndexAdd
        | K::Scatter
        | K::IndexPut
        | K::IndexPutAdd
        | K::IndexSelect
        | K::GatherDim
        | K::GatherRows
        | K::EmbeddingBag => "listed/places",
        _ => "listed/others",
    }
}

/// A convolution over volumes, or the products of groups, as products in tiles. Groups are alike: how a router spreads them is not known before it runs.
fn tiled(o: &Listed, call: &OpCall, gpu: &Gpu) -> Tiling {
    let sizes = o.numbers();
    let ([m, n, k], batch) = match o.kind {
        K::GroupedMm => ([(sizes[1] / sizes[0]).ceil(), sizes[2], sizes[3]], sizes[0]),
        K::GroupedSums => ([sizes[1], sizes[2], (sizes[3] / sizes[0]).ceil()], sizes[0]),
        _ => (product_of(o, call.pass), sizes[6]),
    };
    let element = call.dtype.size();
    let read = element * batch * (m * k + k * n);
    let written = element * batch * m * n;
    let product =
        Product { batch, m, n, k, element, read, written, max_split: 32.0, min_part: 128.0, step: 32.0 };
    tile::best(&product, &Constants::START, &Machine::of(gpu, call.dtype))
}

/// Of that product its time over that of the form, its waves, how full they are and its parts; rows and columns; channels of a group, how they are aligned, and
/// how many places a result has for one. Zeros for the others.
fn as_product(o: &Listed, call: &OpCall, time: f64, gpu: &Gpu) -> [f32; 11] {
    if forest(o.kind) != VOLUMES {
        return [0.0; 11];
    }
    let ([m, n, k], t) = (product_of(o, call.pass), tiled(o, call, gpu));
    let [_, ci, co, inputs, outputs, _, batch] = o.numbers();
    let full = m * n * batch * t.split / (t.tiles * t.bm * t.bn);
    let (narrow, wide) = (ci / batch, co / batch);
    let aligned = |channels: f64| crate::alignment(channels as u64, 64) as f64;
    [
        t.time / time,
        t.waves,
        full,
        t.split,
        k,
        m,
        n,
        narrow.min(wide),
        aligned(narrow),
        aligned(wide),
        outputs / inputs,
    ]
    .map(|v| v.max(1e-30).binary_log() as f32)
}

/// What the correction looks at: sizes and their alignment, and which terms of the form count, with a class's constants.
pub fn features(
    o: &Listed,
    call: &OpCall,
    constants: &[f64; TERMS],
    terms: &[f64; TERMS],
    gpu: &Gpu,
) -> Features {
    /// Terms below this share of the time do not count.
    const LEAST: f64 = 1e-4;
    let mut x = [0.0f32; MAX_FEATURES];
    let time = form(constants, terms).max(1e-12);
    let log = |v: f64| v.max(1e-30).binary_log() as f32;
    // Formats of one size run other kernels.
    let format = match call.dtype {
        Dtype::Tf32 => 0.5,
        Dtype::Bf16 => 0.25,
        _ => 0.0,
    };
    // Operators are told apart by their place in the table: one that is added at the end moves no other.
    let (kind, pass) = (f32::from(o.kind as u8), f32::from(call.pass as u8));
    let first = [log(time * 1e6), kind, pass, call.dtype.size() as f32 + format];
    let sizes = o.numbers();
    let shares = constants.iter().zip(terms).map(|(c, t)| log((c * t / time).max(LEAST)));
    let aligned = sizes.iter().take(3).map(|s| (*s as u64).trailing_zeros().min(6) as f32);
    let values = first
        .into_iter()
        .chain(sizes.iter().map(|s| log(s.max(1.0))))
        .chain(shares)
        .chain(aligned)
        .chain(as_product(o, call, time, gpu));
    for (place, value) in x.iter_mut().zip(values) {
        *place = value;
    }
    x
}

/// Seconds with a class's constants.
pub fn form(constants: &[f64; TERMS], terms: &[f64; TERMS]) -> f64 {
    constants.iter().zip(terms).map(|(c, t)| c * t).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_gpu::{Resource, catalog};
    use preflop_ops::Op;

    fn call(kind: K, sizes: &[u64], pass: Pass) -> (Listed, OpCall) {
        let op = Listed::new(kind, sizes);
        (op, OpCall::new(Op::Listed(op), pass, Dtype::Fp32))
    }

    #[test]
    fn a_better_gpu_is_never_slower() {
        let gpu = catalog::find("h200").unwrap();
        for &kind in K::ALL {
            for (sizes, pass) in
                [([7; 7], Pass::Fwd), ([300; 7], Pass::Bwd), ([300; 7], Pass::Wgrad), ([5000; 7], Pass::Fwd)]
            {
                let (op, call) = call(kind, &sizes, pass);
                let before = form(&GENERIC, &terms(&op, &call, &gpu));
                assert!(before.is_finite() && before > 0.0, "{}", kind.name());
                for resource in Resource::ALL {
                    let after = form(&GENERIC, &terms(&op, &call, &gpu.with_more(resource, 1.37)));
                    assert!(after <= before, "{} {}", kind.name(), resource.name());
                }
            }
        }
    }

    #[test]
    fn long_rows_are_sorted_otherwise_than_short_ones() {
        let ways = [100, 4096, 4097].map(|cols| {
            let (op, call) = call(K::Sort, &[8, cols], Pass::Fwd);
            counts(&op, &call).way
        });
        assert_eq!(ways, ["block", "block", "rows"]);
    }
}
