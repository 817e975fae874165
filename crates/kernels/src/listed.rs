//! What the kernels of listed operators do: launches, bytes, work, chains of dependent steps, and the time that follows.
//!
//! ```text
//! t = c0 floor launches + c1 bytes miss/DRAM + c2 bytes/L2 + c3 work/issue + c4 chain/clock + c5 turns turn/clock + c6 pieces/issue
//! ```
//!
//! Where `floor` is an empty kernel, `miss` the share of bytes that the L2 does not keep, `issue` SMs x clock, and `turns` how often one
//! SM must begin anew with `blocks` blocks. No term grows with a resource, so a better GPU is never slower. The constants are not
//! negative; they are fitted for each class (operator, pass, way, bytes of an element) by `preflop-fit operators`.

use preflop_gpu::Gpu;
use preflop_ops::{Listed, ListedKind as K, OpCall, Pass};
use preflop_units::dtype::Dtype;

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

/// Elements that a block takes of one tensor of a list.
const CHUNK: f64 = 65_536.0;
/// Keys that are sorted by one kernel; more take ten.
const ONE_TILE: f64 = 2048.0;
/// Digits of an index, as many as a radix sort makes passes over it.
const DIGITS: f64 = 8.0;

/// PyTorch's own rule (`TensorTopK.cu`): several blocks for each row?
fn topk_by_many_blocks(rows: u64, cols: u64) -> bool {
    let least = match rows {
        0..=20 => 20_000,
        21..=40 => 10_000,
        41..=80 => 8_000,
        81..=199 => 5_000,
        200..=799 => 3_000,
        800..=4000 => 800,
        _ => 400,
    };
    cols >= least
}

/// Steps of a thread and blocks of an SM's size in PyTorch's softmax over an inner dimension (`SoftMax.cu`): threads lie along the inner
/// one, and along the other where that is narrow.
fn across(outer: f64, dim: f64, inner: f64) -> (f64, f64) {
    const THREADS: f64 = 1024.0;
    const PER_SM: f64 = 2048.0;
    let beside = inner.min(THREADS);
    let mut along = 1.0;
    if beside <= 64.0 && dim >= 64.0 {
        while beside * along * 2.0 <= THREADS && along * 2.0 <= dim {
            along *= 2.0;
        }
    }
    ((dim / along).ceil(), outer * (inner / beside).ceil() * beside * along / PER_SM)
}

fn largest_prime_factor(mut n: u64) -> u64 {
    let (mut p, mut largest) = (2, 1);
    while p * p <= n && p < 1000 {
        while n.is_multiple_of(p) {
            n /= p;
            largest = largest.max(p);
        }
        p += 1;
    }
    largest.max(n)
}

/// Transforms whose length has a larger prime factor are computed as convolutions.
const LARGEST_RADIX: u64 = 127;
/// Longest transform of one kernel.
const ONE_KERNEL_FFT: f64 = 32_768.0;

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
            let few = if a < 264.0 { 64.0 } else { 0.0 };
            let chain = b.min(b / 512.0 + few);
            Counts {
                bytes: a * b * e,
                work: a * b,
                chain,
                blocks: a / 4.0,
                turn: b / 128.0,
                pieces: a,
                ..base
            }
        }
        K::ScatterAdd
        | K::ScatterReduce
        | K::IndexAdd
        | K::Scatter
        | K::IndexPut
        | K::IndexPutAdd
        | K::IndexSelect
        | K::GatherDim => by_index(o, e),
        K::GatherRows => Counts { bytes: a * c * (e + INDEX + SECTOR), work: a * c, ..base },
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
            let steps = (b + 1.0).log2();
            Counts { bytes: a * (e + INDEX), work: a * steps, chain: steps, ..base }
        }
        K::Multinomial => {
            let passes = 12.0 * a * b;
            Counts { launches: 16.0, bytes: passes * e, work: passes, ..base }
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
        K::MaxPool3d | K::AvgPool3d => {
            let (inputs, results) = (a * b, a * d);
            let work = match (backward, o.kind) {
                (false, _) => results * c,
                (true, K::AvgPool3d) => inputs * c,
                (true, _) => inputs,
            };
            let blocks = if backward { inputs } else { results } / 256.0;
            let (launches, bytes) = (1.0 + extra, inputs * e + results * (e + INDEX));
            Counts { launches, bytes, work, chain: c, blocks, turn: c, ..base }
        }
        K::Conv3d | K::Conv3dLast | K::ConvTranspose3d => volume(o, call),
        K::ResizeNearest | K::ResizeBilinear | K::ResizeBicubic => resize(o, e, backward),
        K::SdpaCross | K::SdpaMask => attention(o, e, backward),
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
            let (bytes, chain) = (8.0 * a * b * b * e, b * (b + 1.0).log2());
            Counts { launches, bytes, work: a * b * b * b, chain, blocks: a, turn: b, ..base }
        }
        K::SgdFused | K::ForeachMul => over_lists(o, 1.0),
        K::ForeachNorm => over_lists(o, 3.0),
        K::RmspropForeach | K::AdagradForeach => over_lists(o, 5.0),
        K::AmsgradForeach => over_lists(o, 8.0),
    }
}

/// Counts with the launches of a radix sort over `keys` indices before the kernel itself.
fn sorted(keys: f64, counts: Counts) -> Counts {
    if keys <= ONE_TILE {
        Counts { way: "small", launches: 14.0, ..counts }
    } else {
        Counts { launches: 24.0, ..counts }
    }
}

/// Rows of up to 4096 are sorted by a block each, longer ones by radix sorts over memory.
fn sort(o: &Listed, e: f64) -> Counts {
    let [a, b, ..] = o.numbers();
    let n = a * b;
    if b <= 4096.0 {
        let padded = [32.0, 128.0, 1024.0, 2048.0].into_iter().find(|size| b <= *size).unwrap_or(4096.0);
        let bytes = 3.0 * n * (e + INDEX);
        let work = a * padded;
        return Counts {
            way: "block",
            launches: 4.0,
            bytes,
            work,
            chain: padded,
            blocks: a,
            turn: padded,
            pieces: 0.0,
        };
    }
    // Few rows go one by one, many are sorted together and then apart.
    let times = if a < 128.0 { a } else { 2.0 };
    let way = if a == 1.0 { "one" } else { "rows" };
    Counts {
        way,
        launches: (2.0 * e + 6.0) * times,
        bytes: 2.0 * e * n * (e + INDEX),
        work: n * e,
        blocks: a,
        ..Counts::default()
    }
}

fn top(o: &Listed, e: f64) -> Counts {
    let [a, b, c, ..] = o.numbers();
    let n = a * b;
    let kept = (o.sizes[2].next_power_of_two()) as f64;
    if topk_by_many_blocks(o.sizes[0], o.sizes[1]) {
        let (bytes, work) = (n * e * (e + 1.0), n * e + a * c);
        return Counts {
            way: "many",
            launches: 16.0,
            bytes,
            work,
            chain: kept,
            blocks: a,
            turn: kept,
            pieces: 0.0,
        };
    }
    let turn = b * e + 8.0 * kept;
    Counts {
        way: "one",
        launches: 3.0,
        bytes: 2.0 * e * n * e,
        work: 2.0 * e * n,
        chain: b + kept,
        blocks: a,
        turn,
        pieces: 0.0,
    }
}

/// One row is scanned by all SMs, several by groups of threads that walk along them, inner dimensions by a thread for each place.
fn scan(o: &Listed, e: f64) -> Counts {
    let [a, b, c, ..] = o.numbers();
    let n = a * b * c;
    let places = if o.kind == K::CumMax { INDEX } else { 0.0 };
    let all =
        Counts { launches: 1.0, bytes: n * (2.0 * e + places), work: n, blocks: 1.0, ..Counts::default() };
    if c > 1.0 {
        Counts { way: "inner", chain: b, blocks: a * c / 256.0, turn: b, ..all }
    } else if a == 1.0 {
        Counts { way: "one", launches: 2.0, blocks: b / 4096.0, ..all }
    } else {
        Counts { way: "rows", chain: b, blocks: a / 16.0, turn: b, ..all }
    }
}

fn by_index(o: &Listed, e: f64) -> Counts {
    /// Tables of more bytes are not kept by the L2, and every access takes two sectors.
    const FAR: f64 = 3e7;
    let [a, b, c, ..] = o.numbers();
    let row = b * e;
    let least = if a * row < FAR { SECTOR } else { 2.0 * SECTOR };
    let bytes = c * row.max(least) + c * row + c * INDEX;
    let base = Counts { launches: 1.0, bytes, work: b * c, blocks: 1.0, ..Counts::default() };
    let alike = c / a;
    match o.kind {
        // Rows of whole vectors are copied by a block each.
        K::IndexSelect | K::GatherDim => {
            let way = if row % 16.0 == 0.0 { "vectors" } else { "" };
            Counts { way, pieces: c * (row / 512.0).ceil().max(1.0), ..base }
        }
        K::ScatterAdd | K::ScatterReduce | K::IndexAdd => {
            let bytes = bytes + c.min(a) * row;
            Counts { bytes, chain: alike, blocks: b * c / 512.0, pieces: c * alike, ..base }
        }
        K::IndexPutAdd => {
            let blocks = c * (b / 128.0).ceil() / 64.0;
            let bytes = 2.0 * INDEX * 2.0 * DIGITS * c + 3.0 * b * c * e;
            let counts = Counts { bytes, chain: alike, blocks, turn: alike, pieces: 16.0 * c, ..base };
            sorted(c, counts)
        }
        _ => Counts { blocks: b * c / 512.0, pieces: c, ..base },
    }
}

fn transform(o: &Listed, e: f64) -> Counts {
    let [a, b, c, ..] = o.numbers();
    let (parts, real) = match o.kind {
        K::FftC2c | K::Fft2C2c => (2.0, false),
        _ => (1.0, true),
    };
    let longest = largest_prime_factor(o.sizes[1]).max(largest_prime_factor(o.sizes[2]));
    let way = if longest > LARGEST_RADIX { "odd" } else { "" };
    let base = Counts { way, blocks: a, ..Counts::default() };
    let extra = if real { 1.0 } else { 0.0 };
    if matches!(o.kind, K::Fft2C2c | K::Fft2R2c) {
        let (n, stages) = (a * b * c * parts, (b * c).max(2.0).log2());
        return Counts { launches: 2.0 + extra, bytes: 4.0 * n * e, work: n * stages, chain: stages, ..base };
    }
    let (n, stages) = (a * b * parts, b.max(2.0).log2());
    let kernels = if b <= ONE_KERNEL_FFT { 1.0 } else { 2.0 };
    let copies = if o.kind == K::FftC2r { 2.0 } else { 0.0 };
    let launches = kernels + extra + copies;
    Counts { launches, bytes: 2.0 * n * e * launches, work: n * stages, chain: stages, turn: b, ..base }
}

/// A convolution over volumes as a product of `m` x `n` over `k`, in tiles of 128 x 64.
fn volume(o: &Listed, call: &OpCall) -> Counts {
    /// Channels of tensor-core kernels come in so many bytes; others take kernels that are many times slower.
    const ALIGNED: f64 = 16.0;
    const TILE: [f64; 2] = [128.0, 64.0];
    let [batch, ci, co, inputs, outputs, window, groups] = o.numbers();
    let (pass, e) = (call.pass, call.dtype.size());
    let (narrow, wide) = (ci / groups, co / groups);
    // A transposed convolution is the data gradient of a plain one, and the other way round.
    let gathers = (pass == Pass::Dgrad) != (o.kind == K::ConvTranspose3d);
    let [m, n, k] = match (pass, gathers) {
        (Pass::Wgrad, _) => [wide, narrow * window, batch * outputs.min(inputs)],
        (Pass::Dgrad, false) => [batch * outputs.min(inputs), narrow, wide * window],
        (_, false) => [batch * outputs.min(inputs), wide, narrow * window],
        (_, true) => {
            let (places, from) = (inputs.max(outputs), inputs.min(outputs));
            let (results, sum) = if pass == Pass::Dgrad { (narrow, wide) } else { (wide, narrow) };
            [batch * places, results, sum * (window * from / places).max(1.0)]
        }
    };
    let tiles = (m / TILE[0]).ceil() * (n / TILE[1]).ceil() * groups;
    let bytes = (batch * ci * inputs + batch * co * outputs + ci * co / groups * window) * e;
    let (blocks, turn) = if pass == Pass::Wgrad { (1.0, 0.0) } else { (tiles, k) };
    let odd = [narrow, wide].iter().any(|c| (c * e) % ALIGNED > 0.0);
    let way = if groups > 1.0 && narrow == 1.0 {
        "depthwise"
    } else if odd && call.dtype.on_tensor_cores() {
        "odd"
    } else {
        ""
    };
    let work = tiles * TILE[0] * TILE[1] * k;
    let (launches, chain) = (if pass == Pass::Fwd { 1.0 } else { 2.0 }, turn);
    Counts { way, launches, bytes, work, chain, blocks, turn, pieces: m * k * groups }
}

/// Resizing of maps. Backward adds every place of the result to its sources, those that share one after the other.
fn resize(o: &Listed, e: f64, backward: bool) -> Counts {
    let [b, c, area, places, ..] = o.numbers();
    let shared = (places / area).max(1.0);
    let (all, bytes) = (b * c * places, b * c * (area + places) * e);
    let base = Counts { launches: 1.0, bytes, work: all, blocks: 1.0, ..Counts::default() };
    let both = if backward { 2.0 } else { 1.0 };
    match o.kind {
        // A thread takes one place of all maps in turn.
        K::ResizeBicubic => {
            let steps = b * c * if backward { shared } else { 1.0 };
            let pieces = if backward { all * shared } else { 0.0 };
            Counts { launches: both, chain: steps, blocks: places / 256.0, turn: steps, pieces, ..base }
        }
        // A thread takes one place of all images in turn, and all that it gave its value to.
        K::ResizeNearest if backward => {
            let steps = b * shared;
            Counts { launches: 2.0, chain: steps, blocks: c * area / 512.0, turn: steps, ..base }
        }
        _ if backward => Counts { launches: 2.0, chain: shared, pieces: all * shared.sqrt(), ..base },
        _ => Counts { chain: b * c, blocks: places / 256.0, turn: b * c, ..base },
    }
}

/// Fused attention in tiles of 128 queries and 128 keys, 64 each in fp32.
fn attention(o: &Listed, e: f64, backward: bool) -> Counts {
    let [b, h, queries, keys, d, mask, ..] = o.numbers();
    let side = if e > 2.0 { 64.0 } else { 128.0 };
    let (rows, cols) = ((queries / side).ceil(), (keys / side).ceil());
    let masked = if o.kind == K::SdpaMask { mask * queries * keys * e } else { 0.0 };
    let passes = if backward { 3.0 } else { 1.0 };
    let bytes = passes * (2.0 * b * h * (queries + keys) * d * e) + masked;
    // Backward goes by keys, forward by queries.
    let (outer, inner) = if backward { (cols, rows) } else { (rows, cols) };
    let turn = inner * (d / 32.0).ceil();
    let work = b * h * rows * cols * side * side * (d / 32.0).ceil() * 32.0;
    let launches = match (backward, e > 2.0) {
        (false, true) => 1.0,
        (false, false) => 2.0,
        (true, _) => 4.0,
    };
    let blocks = b * h * outer;
    Counts { way: "", launches, bytes, work, chain: turn, blocks, turn, pieces: b * h * queries }
}

/// Lists of tensors: half of them small, the others of one size, as networks have them; `passes` kernels over all.
fn over_lists(o: &Listed, passes: f64) -> Counts {
    let [n, parts, ..] = o.numbers();
    let size = n.min(2.0 * n / parts);
    let chunk = size.min(CHUNK);
    let blocks = (size / CHUNK).ceil() * (parts / 2.0).ceil() + parts / 2.0;
    let bytes = match o.kind {
        K::ForeachNorm => 4.0,
        K::ForeachMul => 8.0,
        K::SgdFused => 20.0,
        K::AmsgradForeach => 80.0,
        _ => 48.0,
    };
    Counts {
        way: "",
        launches: passes * (parts / 50.0).ceil(),
        bytes: bytes * n,
        work: passes * n,
        chain: passes * chunk,
        blocks: blocks / 2.0,
        turn: passes * chunk,
        pieces: passes * parts,
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

/// Seconds of each term on a GPU, for constants of 1.
pub fn terms(counts: &Counts, gpu: &Gpu) -> [f64; TERMS] {
    /// Inputs are met again after so many others: what is larger than this share of the L2 comes from DRAM.
    const ROUNDS: f64 = 6.0;
    let filled = (ROUNDS * counts.bytes / gpu.l2_size.0).powi(4);
    let miss = if filled.is_finite() { filled / (1.0 + filled) } else { 1.0 };
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
                let counts = counts(&op, &call);
                let before = form(&GENERIC, &terms(&counts, &gpu));
                assert!(before.is_finite() && before > 0.0, "{}", kind.name());
                for resource in Resource::ALL {
                    let after = form(&GENERIC, &terms(&counts, &gpu.with_more(resource, 1.37)));
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
        // 20 rows of 20,000 are searched by several blocks each, 20 of 19,999 by one.
        assert!(topk_by_many_blocks(20, 20_000) && !topk_by_many_blocks(20, 19_999));
    }

    #[test]
    fn prime_lengths_are_found() {
        assert_eq!([1, 8, 97 * 4, 1009, 360_360].map(largest_prime_factor), [1, 2, 97, 1009, 13]);
    }
}
