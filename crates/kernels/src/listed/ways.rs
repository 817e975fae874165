//! What single kinds of kernels do: sorts, scans, look-ups, transforms, volumes, resizing, attention, lists of tensors.

use super::{Counts, INDEX, SECTOR};
use preflop_ops::{Listed, ListedKind as K, OpCall, Pass};
use preflop_units::dtype::Dtype;
use preflop_units::math::Elementary as _;

/// Elements that a block takes of one tensor of a list.
const CHUNK: f64 = 65_536.0;
/// Keys that are sorted by one kernel; more take ten.
const ONE_TILE: f64 = 2048.0;
/// Digits of an index, as many as a radix sort makes passes over it.
pub(super) const DIGITS: f64 = 8.0;

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
pub(super) fn across(outer: f64, dim: f64, inner: f64) -> (f64, f64) {
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

/// How PyTorch's reduction of rows of neighbours shares them out (`Reduce.cuh`): a warp for a row where there are many, all threads of a block for longer ones,
/// several blocks for the longest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Reduction {
    pub way: &'static str,
    /// Elements that one thread takes in turn.
    pub steps: f64,
    /// SMs full of blocks.
    pub blocks: f64,
    pub launches: f64,
}

impl Reduction {
    pub fn new(rows: f64, cols: f64) -> Self {
        /// Threads of a block, rows that it takes at most, elements that a thread reads at once, and blocks of an SM.
        const THREADS: f64 = 512.0;
        const ROWS: f64 = 16.0;
        const VECTOR: f64 = 4.0;
        const RESIDENT: f64 = 4.0;
        /// Rows from this length on are read in vectors; steps from which on more threads share a row.
        const LONG: f64 = 128.0;
        const MANY: f64 = 256.0;
        let power = |x: f64| x.max(1.0).binary_log().floor().power_of_two();
        let together = power(rows).min(ROWS);
        let along = power(if cols >= LONG { cols / VECTOR } else { cols }).min(THREADS / together);
        let together = together.min(THREADS / along);
        let steps = (cols / along).ceil();
        let new = |way, steps, blocks, launches| Self { way, steps, blocks: blocks / RESIDENT, launches };
        if steps < MANY.min(together * ROWS) {
            return new("warp", steps, rows / together, 1.0);
        }
        let steps = (cols / (along * together)).ceil();
        if steps < MANY { new("block", steps, rows, 1.0) } else { new("split", MANY, rows, 2.0) }
    }
}

/// Pooling over volumes: a block of 32 x 8 places for each map and each place of its depth, which narrow maps fill in small part. How deep they are the sizes
/// do not say: as deep as wide.
pub(super) fn pool(o: &Listed, e: f64, backward: bool) -> Counts {
    const BLOCK: [f64; 2] = [32.0, 8.0];
    /// Blocks along the last side of a grid.
    const LAST: f64 = 65_535.0;
    let [maps, area, window, places, ..] = o.numbers();
    let (inputs, results) = (maps * area, maps * places);
    // Gradients of means gather by inputs, those of maxima scatter by results.
    let walked = if backward && o.kind == K::AvgPool3d { area } else { places };
    let side = walked.cube_root();
    let planes = maps * side;
    let blocks = planes * (side / BLOCK[0]).ceil() * (side / BLOCK[1]).ceil();
    let launches = (planes / LAST).ceil() + if backward { 1.0 } else { 0.0 };
    let bytes = inputs * e + results * (e + INDEX);
    let work = blocks * BLOCK[1] * window;
    Counts { way: "", launches, bytes, work, chain: window, blocks: 1.0, turn: 0.0, pieces: blocks }
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

/// Counts with the launches of a radix sort over `keys` indices before the kernel itself.
pub(super) fn sorted(keys: f64, counts: Counts) -> Counts {
    if keys <= ONE_TILE {
        Counts { way: "small", launches: 14.0, ..counts }
    } else {
        Counts { launches: 24.0, ..counts }
    }
}

/// Rows of up to 4096 are sorted by a block each, longer ones by radix sorts over memory.
pub(super) fn sort(o: &Listed, e: f64) -> Counts {
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

pub(super) fn top(o: &Listed, e: f64) -> Counts {
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
pub(super) fn scan(o: &Listed, e: f64) -> Counts {
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

pub(super) fn by_index(o: &Listed, e: f64) -> Counts {
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

pub(super) fn transform(o: &Listed, e: f64) -> Counts {
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
        let (n, stages) = (a * b * c * parts, (b * c).max(2.0).binary_log());
        return Counts { launches: 2.0 + extra, bytes: 4.0 * n * e, work: n * stages, chain: stages, ..base };
    }
    let (n, stages) = (a * b * parts, b.max(2.0).binary_log());
    let kernels = if b <= ONE_KERNEL_FFT { 1.0 } else { 2.0 };
    let copies = if o.kind == K::FftC2r { 2.0 } else { 0.0 };
    let launches = kernels + extra + copies;
    Counts { launches, bytes: 2.0 * n * e * launches, work: n * stages, chain: stages, turn: b, ..base }
}

/// The way of convolutions of single channels.
pub(super) const DEPTHWISE: &str = "depthwise";

/// The product that a convolution over volumes is: rows, columns and length of the sums, for each group.
pub(super) fn product_of(o: &Listed, pass: Pass) -> [f64; 3] {
    let [batch, ci, co, inputs, outputs, window, groups] = o.numbers();
    let (narrow, wide) = (ci / groups, co / groups);
    // A transposed convolution is the data gradient of a plain one, and the other way round.
    let gathers = (pass == Pass::Dgrad) != (o.kind == K::ConvTranspose3d);
    match (pass, gathers) {
        (Pass::Wgrad, _) => [wide, narrow * window, batch * outputs.min(inputs)],
        (Pass::Dgrad, false) => [batch * outputs.min(inputs), narrow, wide * window],
        (_, false) => [batch * outputs.min(inputs), wide, narrow * window],
        (_, true) => {
            let (places, from) = (inputs.max(outputs), inputs.min(outputs));
            let (results, sum) = if pass == Pass::Dgrad { (narrow, wide) } else { (wide, narrow) };
            [batch * places, results, sum * (window * from / places).max(1.0)]
        }
    }
}

/// A convolution over volumes as a product of `m` x `n` over `k`, in tiles of 128 x 64.
pub(super) fn volume(o: &Listed, call: &OpCall) -> Counts {
    /// Channels of tensor-core kernels come in so many bytes; others take kernels that are many times slower.
    const ALIGNED: f64 = 16.0;
    const TILE: [f64; 2] = [128.0, 64.0];
    /// In bf16 those of few channels (up to 8) run at most at 14 TFLOP/s, in tiles of 32 x 32: 197 rows of `operators.csv.gz`. Those of more channels do
    /// find tensor cores; they share this class, which is too coarse for them.
    const PLAIN_TILE: [f64; 2] = [32.0, 32.0];
    let [batch, ci, co, inputs, outputs, window, groups] = o.numbers();
    let (pass, e) = (call.pass, call.dtype.size());
    let (narrow, wide) = (ci / groups, co / groups);
    let [m, n, k] = product_of(o, pass);
    let bytes = (batch * ci * inputs + batch * co * outputs + ci * co / groups * window) * e;
    let odd = [narrow, wide].iter().any(|c| (c * e) % ALIGNED > 0.0);
    let way = if groups > 1.0 && narrow == 1.0 {
        DEPTHWISE
    } else if groups > 1.0 {
        "grouped"
    } else if odd && call.dtype == Dtype::Bf16 {
        "plain"
    } else if odd && call.dtype.on_tensor_cores() {
        "odd"
    } else {
        ""
    };
    let tile = if way == "plain" { PLAIN_TILE } else { TILE };
    let tiles = (m / tile[0]).ceil() * (n / tile[1]).ceil() * groups;
    let (blocks, turn) = if pass == Pass::Wgrad { (1.0, 0.0) } else { (tiles, k) };
    let work = tiles * tile[0] * tile[1] * k;
    let (launches, chain) = (if pass == Pass::Fwd { 1.0 } else { 2.0 }, turn);
    Counts { way, launches, bytes, work, chain, blocks, turn, pieces: m * k * groups }
}

/// Resizing of maps. Backward adds every place of the result to its sources, those that share one after the other.
pub(super) fn resize(o: &Listed, e: f64, backward: bool) -> Counts {
    /// Adders to one place from which more do not wait longer each. Read off 106 gradients of bilinear resizing on an H200 (`operators.csv.gz`), not fitted: the time of a
    /// place grows with its adders up to about 1,000 and by half as much to 4,000.
    const CROWD: f64 = 3000.0;
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
        // A thread takes one place of all images in turn, and all that it gave its value to, line by line; the first of a line it waits for.
        K::ResizeNearest if backward => {
            let chain = b * (shared.sqrt() + shared / 4.0);
            let (blocks, turn) = (c * area / 2048.0, b * (shared + 4.0));
            Counts { chain, blocks, turn, pieces: b * c * area, ..base }
        }
        // Every place adds to those it was made of; adders to one place wait for each other, up to a crowd.
        _ if backward => {
            let waiting = shared / (1.0 + shared / CROWD);
            Counts { launches: 2.0, chain: shared, pieces: all * waiting, ..base }
        }
        // A thread takes one value.
        K::ResizeBilinearLast => base,
        _ => Counts { chain: b * c, blocks: places / 256.0, turn: b * c, ..base },
    }
}

/// Fused attention in tiles of 128 queries and 128 keys, 64 each in fp32 and where the mask gets a gradient.
pub(super) fn attention(o: &Listed, e: f64, backward: bool) -> Counts {
    let [b, h, queries, keys, d, mask, ..] = o.numbers();
    let side = if e > 2.0 || o.kind == K::SdpaBias { 64.0 } else { 128.0 };
    let (rows, cols) = ((queries / side).ceil(), (keys / side).ceil());
    let masked = if o.kind == K::SdpaCross { 0.0 } else { mask * queries * keys * e };
    // A gradient for every head's scores.
    let learned = if backward && o.kind == K::SdpaBias { b * h * queries * keys * e } else { 0.0 };
    let passes = if backward { 3.0 } else { 1.0 };
    let bytes = passes * (2.0 * b * h * (queries + keys) * d * e) + masked + learned;
    // Backward goes by keys, forward by queries.
    let (outer, inner) = if backward { (cols, rows) } else { (rows, cols) };
    let turn = inner * (d / 32.0).ceil();
    let work = b * h * rows * cols * side * side * (d / 32.0).ceil() * 32.0;
    let launches = match backward {
        true => 4.0,
        // cuDNN's 16-bit kernel clears something first.
        false if e <= 2.0 && o.kind != K::SdpaBias => 2.0,
        false => 1.0,
    };
    let blocks = b * h * outer;
    Counts { way: "", launches, bytes, work, chain: turn, blocks, turn, pieces: b * h * queries }
}

/// Lists of tensors: half of them small, the others of one size, as networks have them; `passes` kernels over all.
pub(super) fn over_lists(o: &Listed, e: f64, passes: f64) -> Counts {
    let [n, parts, ..] = o.numbers();
    let size = n.min(2.0 * n / parts);
    let chunk = size.min(CHUNK);
    let blocks = (size / CHUNK).ceil() * (parts / 2.0).ceil() + parts / 2.0;
    let elements = match o.kind {
        K::ForeachNorm => 1.0,
        K::ForeachMul => 2.0,
        K::SgdFused => 5.0,
        K::AmsgradForeach => 20.0,
        _ => 12.0,
    };
    Counts {
        way: "",
        launches: passes * (parts / 50.0).ceil(),
        bytes: elements * e * n,
        work: passes * n,
        chain: passes * chunk,
        blocks: blocks / 2.0,
        turn: passes * chunk,
        pieces: passes * parts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_rows_of_few_are_searched_by_many_blocks() {
        // 20 rows of 20,000 are searched by several blocks each, 20 of 19,999 by one.
        assert!(topk_by_many_blocks(20, 20_000) && !topk_by_many_blocks(20, 19_999));
    }

    #[test]
    fn rows_are_shared_out_by_their_number_and_length() {
        let of = |rows, cols| {
            let r = Reduction::new(rows, cols);
            (r.way, r.steps, r.blocks)
        };
        // 16 rows of a block with 32 threads each: 128 elements for a thread; 28 rows take two blocks, half an SM
        assert_eq!(of(28.0, 4096.0), ("warp", 128.0, 28.0 / 16.0 / 4.0));
        // 256 elements for each of 32 threads: so all 512 share a row
        assert_eq!(of(100.0, 8192.0), ("block", 16.0, 25.0));
        assert_eq!(of(1.0, 128_256.0), ("block", 251.0, 0.25));
        assert_eq!(of(1.0, 1e6), ("split", 256.0, 0.25));
    }

    #[test]
    fn prime_lengths_are_found() {
        assert_eq!([1, 8, 97 * 4, 1009, 360_360].map(largest_prime_factor), [1, 2, 97, 1009, 13]);
    }
}
