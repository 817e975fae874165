//! Fused attention: tiles of queries that stream over blocks of keys, and decode over a cache.
//!
//! Forward and backward, for tiles of `bq` = 128 queries and `bk` = 64 keys (at most 64 queries, or fewer keys:
//! the next multiple of 16):
//!
//! ```text
//! nq, nk  = ceil(q_len/bq), ceil(kv_len/bk)
//! pairs   = tiles of the score matrix that the mask leaves
//! tile    = p*2*bq*bk*(d' + soft) / (eff*peak/SM)     one tile on one SM; p = 2 products, 5 backward
//! work    = batch*heads*pairs*tile / SM
//! w       = batch*heads*nq / SM                       CTAs over SMs
//! t_c     = max(work + quant*(ceil(w) - w)*mean, whole*longest) * (causal ? mask : 1)
//! t_m     = bytes / (bw*DRAM)                         bytes / (0.4*L2BW) when they stay in the L2
//! t_lat   = step * longest CTA in tiles * min(ceil(w), 4) + cta*w
//! time    = t0 + max(t_c, t_m) + t_lat
//! ```
//!
//! Where d' is the head size as the kernels pad it, `soft` the exponentials' cost in elements of a head
//! (FlashAttention-3, Shah et al. 2024, section 3.2: their unit is far slower than the tensor cores, so short
//! heads run further below peak), and `mean` and `longest` are the mean and the longest CTA.
//!
//! Decode (few queries over a long cache) is bound by reading the cache; the cache is split over CTAs until
//! they fill the GPU (split-KV), and the parts are merged:
//!
//! ```text
//! heads'  = batch*kv_heads                            one CTA serves a group of query heads
//! split   = clamp(ceil(SM/heads'), 1, ceil(kv_len/256))
//! w       = heads'*split/SM
//! t_m     = bytes / (bw*DRAM) * max(1, fill/w)^lone    a lone CTA cannot pull its share of a busy DRAM
//! t_h     = bytes / (hot*L2BW)                        in place of t_m when the cache stays in the L2
//! t_c     = tokens a CTA reads * step
//! time    = t0 + (split > 1 ? merge : 0) + cta*batch*heads*split/SM + max(t_m, t_c)
//! ```
//!
//! eff, soft, quant, mask, bw, step, t0 and so on are fitted (`data/fitted`), see [`start`].

use super::alignment;
use super::tile::mixed;
use preflop_gpu::{Architecture, Gpu};
use preflop_learned::trees::{Features, MAX_FEATURES};
use preflop_ops::{Attention, Pass};
use preflop_units::Bytes;
use preflop_units::dtype::Dtype;
use preflop_units::math::Elementary as _;

/// Most queries of a tile.
const QUERIES: f64 = 128.0;

/// Keys of a tile.
const KEYS: f64 = 64.0;

/// How a call runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// Many queries, forward.
    Forward,
    /// Gradients of q, k and v.
    Backward,
    /// Few queries over a longer cache.
    Decode,
}

/// Most queries that a decode kernel packs into one tile together with the heads of a group.
const DECODE_QUERIES: u64 = 16;

/// Forward calls with one query, or with at most 16 over more keys, run as decode.
pub fn mode(op: &Attention, pass: Pass) -> Mode {
    if pass != Pass::Fwd {
        Mode::Backward
    } else if op.q_len == 1 || (op.q_len <= DECODE_QUERIES && op.kv_len > op.q_len) {
        Mode::Decode
    } else {
        Mode::Forward
    }
}

/// Name of the constants and of the interval: mode and number format.
pub fn class(op: &Attention, pass: Pass, dtype: Dtype) -> &'static str {
    let wide = match dtype {
        Dtype::Bf16 | Dtype::Fp16 => 0,
        Dtype::Tf32 => 1,
        Dtype::Fp32 | Dtype::Fp64 => 2,
        _ => 3,
    };
    match (mode(op, pass), wide) {
        (Mode::Forward, 0) => "attention/fwd/half",
        (Mode::Forward, 1) => "attention/fwd/tf32",
        (Mode::Forward, 2) => "attention/fwd/fp32",
        (Mode::Forward, _) => "attention/fwd/fp8",
        (Mode::Backward, 0) => "attention/bwd/half",
        (Mode::Backward, 1) => "attention/bwd/tf32",
        (Mode::Backward, 2) => "attention/bwd/fp32",
        (Mode::Backward, _) => "attention/bwd/fp8",
        (Mode::Decode, 0) => "attention/decode/half",
        (Mode::Decode, 1) => "attention/decode/tf32",
        (Mode::Decode, 2) => "attention/decode/fp32",
        (Mode::Decode, _) => "attention/decode/fp8",
    }
}

/// Key of the constants of one generation; [`class`] alone is the key of the pooled ones.
pub fn key(class: &str, generation: Architecture) -> String {
    format!("{class}/{}", generation.name())
}

/// Number of constants of every mode.
pub const CONSTANTS: usize = 9;

/// Where fits start, and what is used without a fit: a healthy kernel on tensor cores.
const PREFILL_START: [f64; CONSTANTS] = [0.8, 40.0, 0.7, 1.1, 0.8, 5e-8, 6e-6, 0.9, 2e-7];

/// Memory-efficient kernels of wide formats: no tensor cores, or tensor cores fed with 4-byte elements.
const WIDE_START: [f64; CONSTANTS] = [0.5, 30.0, 0.7, 1.1, 0.8, 5e-8, 8e-6, 0.9, 2e-7];

/// Backward kernels: a preparation and a conversion kernel beside the main one.
const BACKWARD_START: [f64; CONSTANTS] = [0.6, 40.0, 0.7, 1.1, 0.6, 1e-7, 1.5e-5, 0.9, 2e-7];

/// Where fits of decode start.
pub const DECODE_START: [f64; CONSTANTS] = [0.9, 0.4, 0.8, 0.5, 2e-9, 3e-6, 8e-6, 0.3, 2e-7];

/// Where the fit of a class starts.
pub fn start(mode: Mode, dtype: Dtype) -> &'static [f64; CONSTANTS] {
    match mode {
        Mode::Decode => &DECODE_START,
        Mode::Backward => &BACKWARD_START,
        Mode::Forward if dtype.size() > 2.0 => &WIDE_START,
        Mode::Forward => &PREFILL_START,
    }
}

/// The closed form's time and where it goes. Seconds and counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Terms {
    /// Closed-form time.
    pub time: f64,
    /// Arithmetic, whole CTAs counted.
    pub compute: f64,
    /// Compulsory bytes.
    pub memory: f64,
    /// Latency along the keys, and merging of parts.
    pub latency: f64,
    /// Launch, prologue and epilogue.
    pub launch: f64,
    /// Arithmetic with all SMs busy.
    pub work: f64,
    /// CTAs over SMs.
    pub waves: f64,
    /// Parts of the cache.
    pub split: f64,
}

/// No run is faster: FLOPs that the result needs at the chip's roof; all bytes at the L2's rate; what the L2
/// cannot hold from before at the datasheet DRAM rate.
pub fn floor(op: &Attention, pass: Pass, dtype: Dtype, gpu: &Gpu) -> f64 {
    let bytes = op.traffic(pass, dtype.size()).total();
    let beyond = (bytes - gpu.l2_size).max(Bytes::ZERO);
    (op.flops(pass) / gpu.roof(dtype)).max(bytes / gpu.l2).max(beyond / gpu.dram).0
}

/// Head size as the kernels pad it: multiples of 32 up to 128, then of 64.
fn padded_head(d: u64) -> f64 {
    let step = if d > 64 { 64 } else { 32 };
    (d.div_ceil(step).max(1) * step) as f64
}

/// The peak that `eff` is a share of. The exponentials keep 16-bit tensor cores below their power limit, so that
/// attention holds the same share of the datasheet on GPUs whose large products do not (0.66 on A100, 0.60 on
/// L40S, 0.64 on H100 at best in aiconfigurator's prefill).
fn peak(dtype: Dtype, gpu: &Gpu) -> f64 {
    if dtype.size() > 2.0 { gpu.sustained_peak(dtype).0 } else { gpu.peak(dtype).0 }
}

/// How much faster an SM's clock is than that of the GPU whose constants apply.
fn clock_ratio(gpu: &Gpu, fitted_on: &Gpu) -> f64 {
    gpu.usual_clock.0 / fitted_on.usual_clock.0
}

/// Tiles of the score matrix that the mask leaves. The mask is aligned at the top left, so that row i of tiles
/// sees the first `ratio*(i + 1)` of them, `ratio` being queries over keys of a tile.
fn live_tiles(nq: f64, nk: f64, ratio: f64, causal: bool) -> f64 {
    let cut = if causal { nq.min((nk / ratio).floor()) } else { 0.0 };
    ratio * cut * (cut + 1.0) / 2.0 + (nq - cut) * nk
}

/// The closed form. `constants` that are not [`CONSTANTS`] numbers are replaced by [`start`]; `fitted_on` is the GPU that they are
/// of: its kernels decide how a cache is split.
pub fn form(
    op: &Attention,
    pass: Pass,
    dtype: Dtype,
    constants: &[f64],
    gpu: &Gpu,
    fitted_on: &Gpu,
) -> Terms {
    let mode = mode(op, pass);
    let c = constants.first_chunk().unwrap_or(start(mode, dtype));
    let mut t = if mode == Mode::Decode {
        decode(op, pass, dtype, c, gpu, fitted_on)
    } else {
        prefill(op, pass, dtype, c, gpu, fitted_on)
    };
    t.time = t.time.max(floor(op, pass, dtype, gpu));
    t
}

/// The closed form's time in seconds.
pub fn reference(op: &Attention, pass: Pass, dtype: Dtype, constants: &[f64], gpu: &Gpu) -> f64 {
    form(op, pass, dtype, constants, gpu, gpu).time
}

/// Share of the bytes that come from DRAM. The ramp from `keep` to twice `keep` of the capacity stands for the
/// L2's imperfect replacement.
fn miss_share(bytes: f64, keep: f64, gpu: &Gpu) -> f64 {
    (bytes / (keep * gpu.l2_size.0) - 1.0).clamp(0.0, 1.0)
}

/// `keep` of prefill, and its share of the L2 bandwidth: as products have it (`tile::Constants::START`, eight
/// sets of operands in turn).
const PREFILL_KEEP: f64 = 0.4;
const PREFILL_HOT: f64 = 0.4;

fn prefill(
    op: &Attention,
    pass: Pass,
    dtype: Dtype,
    c: &[f64; CONSTANTS],
    gpu: &Gpu,
    fitted_on: &Gpu,
) -> Terms {
    let [eff, soft, quant, mask, bw, step, t0, whole, cta] = *c;
    let sm = f64::from(gpu.sm_count);
    let products = if pass == Pass::Fwd { 2.0 } else { 5.0 };
    let short = |n: u64| n.div_ceil(16).max(1) as f64 * 16.0;
    let bq = if op.q_len as f64 <= KEYS { short(op.q_len) } else { QUERIES };
    let bk = short(op.kv_len).min(KEYS);
    let ratio = bq / bk;
    let (nq, nk) = ((op.q_len as f64 / bq).ceil(), (op.kv_len as f64 / bk).ceil());
    let heads = op.batch as f64 * op.heads as f64;
    let pairs = live_tiles(nq, nk, ratio, op.causal);
    let per_sm = eff * peak(dtype, gpu) / sm;
    let scores = products * 2.0 * bq * bk;
    // Exponentials take an SM's clocks, however fast its tensor cores are: GeForce boards and their chips have a quarter of an A100's.
    let soft_per_sm =
        eff * (peak(dtype, fitted_on) / f64::from(fitted_on.sm_count)) * clock_ratio(gpu, fitted_on);
    let tile = scores * (padded_head(op.head_dim) / per_sm + soft / soft_per_sm);
    let longest = if op.causal { nk.min(nq * ratio) } else { nk };
    let waves = heads * nq / sm;
    let work = heads * pairs * tile / sm;
    let mean = pairs / nq * tile;
    let mask = if op.causal { mask } else { 1.0 };
    let rounded = work + quant * (waves.ceil() - waves) * mean;
    let compute = rounded.max(whole.min(1.0) * longest * tile) * mask;
    let bytes = op.traffic(pass, dtype.size()).total().0;
    let [miss, fitted] = [gpu, fitted_on].map(|g| miss_share(bytes, PREFILL_KEEP, g));
    let (cold, hot) = (bytes / (bw * gpu.dram_sustained.0), bytes / (PREFILL_HOT * gpu.l2.0));
    let memory = mixed(cold, hot, fitted, miss);
    let latency = step * longest * waves.ceil().min(4.0) + cta * waves;
    let time = t0 + compute.max(memory) + latency;
    Terms { time, compute, memory, latency, launch: t0, work, waves, split: 1.0 }
}

fn decode(
    op: &Attention,
    pass: Pass,
    dtype: Dtype,
    c: &[f64; CONSTANTS],
    gpu: &Gpu,
    fitted_on: &Gpu,
) -> Terms {
    let [bw, hot, fill, lone, step, merge, t0, keep, cta] = *c;
    let sm = f64::from(gpu.sm_count);
    let heads = op.batch as f64 * op.kv_heads.max(1) as f64;
    let kv = op.kv_len as f64;
    let planned = f64::from(fitted_on.sm_count);
    let split = (planned / heads).ceil().clamp(1.0, (kv / 256.0).ceil());
    let waves = heads * split / sm;
    let full = heads * split / planned;
    let bytes = op.traffic(pass, dtype.size()).total().0;
    let alone = if full < fill { (fill / full).power(lone) } else { 1.0 };
    let [miss, fitted] = [gpu, fitted_on].map(|g| miss_share(bytes, keep, g));
    let (cold, hot) = (bytes / (bw * gpu.dram_sustained.0), bytes / (hot * gpu.l2.0));
    let memory = alone * mixed(cold, hot, fitted, miss);
    let compute = step * kv / split * waves.ceil();
    let merge = if split > 1.0 { merge } else { 0.0 };
    let latency = merge + cta * op.batch as f64 * op.heads as f64 * split / sm;
    let work = op.flops(pass).0 / peak(dtype, gpu);
    let time = t0 + latency + memory.max(compute);
    Terms { time, compute, memory, latency, launch: t0, work, waves, split }
}

/// The forest that corrects a call: `attention` learned from the project's own measurement (PyTorch on Hopper),
/// `attention/served` from the published 16-bit forward and decode rows of a server on other generations.
pub fn forest(class: &str, generation: Architecture) -> &'static str {
    let served = matches!(class, "attention/fwd/half" | "attention/decode/half");
    if served && generation != Architecture::Hopper { "attention/served" } else { OWN_FOREST }
}

/// The forest of the project's own measurements.
pub const OWN_FOREST: &str = "attention";

/// Places of the feature vector that are filled.
pub const FEATURES: usize = 48;

fn log2(x: f64) -> f32 {
    (x.max(1e-30) as f32).binary_log()
}

/// Dimensionless features of the correction: shares of the closed form, waves, block efficiency, shape.
pub fn features(op: &Attention, pass: Pass, dtype: Dtype, t: &Terms, gpu: &Gpu) -> Features {
    let mut x = [0.0f32; MAX_FEATURES];
    let mut at = 0;
    let mut push = |v: f32| {
        x[at] = v;
        at += 1;
    };
    let sm = f64::from(gpu.sm_count);
    let share = |v: f64| log2((v / t.time).max(1e-4));
    let flag = |b: bool| f32::from(u8::from(b));
    let (b, h, kv) = (op.batch as f64, op.heads as f64, op.kv_heads.max(1) as f64);
    let (q, k) = (op.q_len as f64, op.kv_len as f64);
    let bytes = op.traffic(pass, dtype.size());
    push(log2(t.time * 1e6));
    push(share(t.compute));
    push(share(t.memory));
    push(share(t.latency));
    push(share(t.launch));
    push(share(t.work));
    push(t.waves.min(20.0) as f32);
    push(log2(t.waves));
    push((t.waves / t.waves.ceil()) as f32);
    push(log2(t.split));
    push(match mode(op, pass) {
        Mode::Forward => 0.0,
        Mode::Backward => 1.0,
        Mode::Decode => 2.0,
    });
    push(match dtype {
        Dtype::Bf16 => 0.0,
        Dtype::Fp16 => 1.0,
        Dtype::Tf32 => 2.0,
        Dtype::Fp32 => 3.0,
        _ => 4.0,
    });
    push(flag(op.causal));
    push(log2(b));
    push(log2(h));
    push(log2(kv));
    push(log2(h / kv));
    push(log2(q));
    push(log2(k));
    push(op.head_dim as f32);
    push(log2(b * h));
    push(log2(b * kv));
    push(log2(alignment(op.head_dim, 64) as f64));
    push(log2(alignment(op.q_len, 128) as f64));
    push(log2(alignment(op.kv_len, 128) as f64));
    for rows in [64.0, 128.0, 256.0] {
        let (nq, nk) = ((q / rows).ceil(), (k / rows).ceil());
        push((q / (nq * rows)) as f32);
        let w = b * h * nq / sm;
        push((w / w.ceil()) as f32);
        push(log2(w));
        push(((k / rows) / nk) as f32);
    }
    let pair_waves = b * h * (q / QUERIES).ceil() / (2.0 * sm);
    push((pair_waves / pair_waves.ceil()) as f32);
    push(log2(bytes.total().0 / gpu.l2_size.0));
    push(log2(bytes.read.0 / gpu.l2_size.0));
    push(log2(b * kv * k * op.head_dim as f64 * dtype.size() / gpu.l2_size.0));
    push(log2(op.flops(pass).0 / peak(dtype, gpu) / t.time));
    push(log2(bytes.total().0 / gpu.dram_sustained.0 / t.time));
    push(log2(b * kv / sm));
    push(log2(b * q * k / sm));
    push(log2(h * q / kv));
    push(generation(gpu.architecture));
    debug_assert!(at <= FEATURES);
    x
}

/// Age of the kernels that a generation runs: before FlashAttention, with it, with asynchronous tensor cores.
fn generation(a: Architecture) -> f32 {
    match a {
        Architecture::Ampere => 1.0,
        Architecture::Ada => 2.0,
        Architecture::Hopper => 3.0,
        Architecture::Blackwell => 4.0,
        _ => 0.0,
    }
}

/// Seconds that dropout adds: random numbers for every score.
///
/// Clocks of an SM for each score, from 195 forward calls with dropout on an H200 (16 bit 0.28, fp32 0.67 to 0.9 in the median) and from
/// profiles of BERT and GPT-2 in training (backward 0.13 to 0.22 and 1.0 to 1.1).
pub fn dropout_time(op: &Attention, pass: Pass, dtype: Dtype, gpu: &Gpu) -> f64 {
    if !op.dropout {
        return 0.0;
    }
    let clocks = match (dtype.is_half(), pass) {
        (true, Pass::Fwd) => 0.29,
        (true, _) => 0.16,
        (false, Pass::Fwd) => 0.7,
        (false, _) => 1.0,
    };
    clocks * op.scores() / (f64::from(gpu.sm_count) * gpu.boost_clock.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_gpu::catalog;
    use proptest::prelude::*;

    fn call(b: u64, h: u64, q: u64, k: u64, d: u64, causal: bool) -> Attention {
        Attention {
            batch: b,
            heads: h,
            kv_heads: h,
            q_len: q,
            kv_len: k,
            head_dim: d,
            causal,
            dropout: false,
        }
    }

    #[test]
    fn tiles_under_the_mask() {
        assert_eq!(live_tiles(4.0, 4.0, 1.0, false), 16.0);
        assert_eq!(live_tiles(4.0, 4.0, 1.0, true), 10.0);
        // rows 0 and 1 of 4 key tiles: 1 + 2
        assert_eq!(live_tiles(2.0, 4.0, 1.0, true), 3.0);
        // 1 + 2 and then two rows of 2
        assert_eq!(live_tiles(4.0, 2.0, 1.0, true), 7.0);
        // queries twice as many as keys in a tile: 2 + 4, then two rows of 5
        assert_eq!(live_tiles(4.0, 5.0, 2.0, true), 16.0);
    }

    #[test]
    fn few_queries_over_a_cache_are_decode() {
        assert_eq!(mode(&call(1, 8, 1, 4096, 128, false), Pass::Fwd), Mode::Decode);
        assert_eq!(mode(&call(1, 8, 1, 1, 128, false), Pass::Fwd), Mode::Decode);
        assert_eq!(mode(&call(1, 8, 2, 2, 128, false), Pass::Fwd), Mode::Forward);
        assert_eq!(mode(&call(1, 8, 1, 4096, 128, false), Pass::Bwd), Mode::Backward);
        assert_eq!(class(&call(1, 8, 64, 64, 128, true), Pass::Bwd, Dtype::Bf16), "attention/bwd/half");
        assert_eq!(key("attention/fwd/half", Architecture::Hopper), "attention/fwd/half/hopper");
    }

    #[test]
    fn a_large_prefill_runs_at_its_efficiency() {
        let gpu = catalog::find("h200").unwrap();
        let op = call(16, 32, 4096, 4096, 128, false);
        let mut c = PREFILL_START;
        (c[0], c[1], c[5], c[6], c[8]) = (0.8, 32.0, 0.0, 0.0, 0.0);
        let t = form(&op, Pass::Fwd, Dtype::Bf16, &c, &gpu, &gpu);
        // 4*512*4096^2*128 FLOPs, x 160/128 for the exponentials; 16384 CTAs fill 124.12 of 125 waves
        let ideal = 4.0 * 512.0 * 4096f64.powi(2) * 160.0 / (0.8 * gpu.peak(Dtype::Bf16).0);
        assert!((t.work / ideal - 1.0).abs() < 1e-12);
        let rounding = 1.0 + 0.7 * (125.0 - 16384.0 / 132.0) / (16384.0 / 132.0);
        assert!((t.time / ideal / rounding - 1.0).abs() < 1e-12, "{} {}", t.time, ideal * rounding);
    }

    #[test]
    fn a_missing_fit_falls_back_to_the_start() {
        let gpu = catalog::find("a100-sxm-80gb").unwrap();
        let op = call(4, 16, 512, 512, 64, true);
        let a = form(&op, Pass::Fwd, Dtype::Bf16, &[], &gpu, &gpu);
        assert_eq!(a, form(&op, Pass::Fwd, Dtype::Bf16, &PREFILL_START, &gpu, &gpu));
    }

    proptest! {
        #[test]
        fn never_faster_than_physics_and_never_faster_when_larger(
            (b, h, q, k) in (1u64..64, 1u64..64, 1u64..9000, 1u64..70_000),
            d in 1u64..257, causal: bool, bwd: bool,
        ) {
            let gpu = catalog::find("h200").unwrap();
            let pass = if bwd { Pass::Bwd } else { Pass::Fwd };
            let op = call(b, h, q, k, d, causal);
            let t = reference(&op, pass, Dtype::Bf16, &[], &gpu);
            prop_assert!(t.is_finite() && t >= floor(&op, pass, Dtype::Bf16, &gpu));
            let twice = Attention { batch: 2 * b, ..op };
            let t2 = reference(&twice, pass, Dtype::Bf16, &[], &gpu);
            prop_assert!(t2 >= 0.95 * t, "{t} {t2}");
        }
    }
}
