//! Attention of a server: how its kernels are laid out on a generation, and what that takes.
//!
//! ```text
//! compute = rounds * (cta + tiles * (tile + 4 * rows * keys * d / rate))
//! prompt  = start + join(compute, bytes)
//! token   = start + join(compute, bytes) + merge
//! ```
//!
//! A cooperative thread array (CTA) takes the queries of one key head, packed, against all keys or a part of them. Where one kernel loads and multiplies in turn (before Hopper)
//! its steps add up; where loads run ahead (Hopper, Blackwell) the longer of both counts, and the CTAs that follow on the same multiprocessor start sooner.

use super::forms::{Constant, join, streamed};
use preflop_core::Gpu;
use preflop_core::dtype::Dtype;
use preflop_core::gpu::Architecture;

/// Attention of whole prompts over themselves, causal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prompt {
    /// Sequences.
    pub batch: f64,
    /// New tokens of each.
    pub tokens: f64,
    /// Query heads.
    pub heads: f64,
    /// Key and value heads.
    pub kv_heads: f64,
    /// Size of a head.
    pub head_dim: f64,
    /// Format in which scores are computed.
    pub dtype: Dtype,
}

/// Attention of one new token of each sequence over its keys and values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Token {
    /// Sequences.
    pub batch: f64,
    /// Keys of each.
    pub context: f64,
    /// Query heads.
    pub heads: f64,
    /// Key and value heads.
    pub kv_heads: f64,
    /// Size of a head.
    pub head_dim: f64,
    /// Bytes of one number of the cache.
    pub kv_bytes: f64,
    /// Format in which scores are computed.
    pub dtype: Dtype,
    /// May the L2 hold the keys and values of the run before, as in a measurement that repeats one kernel? Between two steps of a model the other layers pass through it.
    pub warm: bool,
}

/// How a kernel is laid out: facts of FlashAttention 3 (`tile_size.h`, `heuristics.h`) and of TensorRT-LLM's kernels as SGLang 0.5.10 runs them, as recalled, and settled by where the published times jump.
#[derive(Debug, Clone, Copy)]
struct Layout {
    /// Query rows of a tile.
    rows: f64,
    /// Keys of a tile.
    keys: f64,
    /// Keys of a tile where the keys of one head may be parted among CTAs.
    keys_parted: f64,
    /// CTAs that share a multiprocessor.
    per_sm: f64,
    /// Do loads run ahead of the products?
    overlapped: bool,
    /// TensorRT-LLM's kernels: as few rows as a group has heads, as many CTAs as multiprocessors.
    tensor_rt: bool,
}

fn layout(gpu: &Gpu) -> Layout {
    let capability = gpu.compute_capability.as_str();
    let flash = |keys, keys_parted, per_sm, overlapped| Layout {
        rows: 128.0,
        keys,
        keys_parted,
        per_sm,
        overlapped,
        tensor_rt: false,
    };
    match gpu.architecture {
        Architecture::Hopper => flash(128.0, 128.0, 1.0, true),
        // Data-centre Blackwell; the kernels of consumer boards are Ada's.
        Architecture::Blackwell if capability.starts_with("10") => {
            Layout { rows: 64.0, tensor_rt: true, ..flash(128.0, 128.0, 1.0, true) }
        }
        Architecture::Ampere if capability == "8.0" => flash(64.0, 112.0, 2.0, false),
        _ => flash(128.0, 112.0, 1.0, false),
    }
}

/// Sequences above which FlashAttention no longer parts keys by each sequence's own length.
const PARTED_BATCH: f64 = 992.0;
/// Parts at the most.
const PARTS: f64 = 128.0;

/// Parts that FlashAttention allows for the keys of one head: none where heads alone nearly fill the GPU or keys are few, else the fewest that fill it within 15 % of the best
/// (`num_splits_heuristic`, which looks at one sequence where lengths differ).
fn allowed_parts(ctas: f64, blocks: f64, sm: f64) -> f64 {
    if ctas >= 0.8 * sm || blocks <= 4.0 {
        return 1.0;
    }
    let filled = |parts: f64| {
        let waves = ctas * parts / sm;
        waves / waves.ceil().max(1.0)
    };
    let most = PARTS.min(sm).min(blocks) as u32;
    let best = (1..=most).map(|s| filled(f64::from(s))).fold(0.0, f64::max);
    (1..=most).map(f64::from).find(|s| filled(*s) >= 0.85 * best).unwrap_or(1.0)
}

/// Parts that the keys of one sequence get: as many as spread all blocks evenly, with a tenth to spare (`prepare_varlen_num_blocks`).
fn parts_taken(ctas: f64, blocks: f64, allowed: f64, sm: f64) -> f64 {
    let each = (1.1 * ctas * blocks / sm).ceil().max(1.0);
    (blocks / each).ceil().clamp(1.0, allowed.max(1.0))
}

/// Rounds of CTAs: whole ones while they are few, half a round more than the work when they are many and no longer run in step.
fn rounds(waves: f64) -> f64 {
    if waves > 4.0 { waves + 0.5 } else { (waves - 1e-9).ceil().max(1.0) }
}

/// Constants of [`token`].
pub const TOKEN: [Constant; 15] = [
    Constant::new("start_us", 4.0, 1.0),
    Constant::new("start_cycles", 6000.0, 1.0),
    Constant::new("cta_cycles", 5500.0, 1.0),
    Constant::new("tile_cycles", 900.0, 1.0),
    Constant::new("share_of_peak", 0.9, 10.0),
    Constant::new("share_of_dram", 1.08, 30.0),
    Constant::new("share_of_l2", 0.5, 3.0),
    Constant::new("kept_of_l2_part", 1.2, 10.0),
    Constant::new("norm", 2.0, 10.0),
    Constant::new("merge_cycles", 14_000.0, 1.0),
    Constant::new("merge_cycles_per_part", 120.0, 1.0),
    Constant::new("next_cta", 0.6, 1.0),
    Constant::new("many_sequences_cycles", 15_000.0, 1.0),
    Constant::new("fill_cycles", 1500.0, 1.0),
    Constant::new("chained_merge", 0.15, 1.0),
];

/// Seconds of attention of new tokens.
pub fn token(a: &Token, c: &[f64], gpu: &Gpu) -> f64 {
    let &[start, cycles, cta, tile, eff, mb, hot, keep, norm, merge, merge_part, again, many, fill, chained] =
        c
    else {
        return token(a, &Constant::starts(&TOKEN), gpu);
    };
    let (sm, clock) = (f64::from(gpu.sm_count), gpu.boost_clock.0);
    let l = layout(gpu);
    let group = (a.heads / a.kv_heads).max(1.0);
    let (mut rows, mut keys, mut per_sm, mut heads) = (l.rows, l.keys, l.per_sm, a.kv_heads);
    let (parts, merged) = if l.tensor_rt {
        rows = [8.0, 16.0, 32.0].into_iter().find(|r| group <= *r).unwrap_or(64.0);
        heads *= (group / 64.0).ceil();
        // Key tiles of 64 KiB fill a multiprocessor's shared memory.
        per_sm = (65_536.0 / (keys * a.head_dim * a.kv_bytes)).clamp(1.0, 3.0);
        let room = (sm / (a.batch * heads)).floor().max(1.0);
        let parts = room.min((a.context / keys).ceil());
        (parts, if a.batch * heads < sm { merge_part * parts } else { 0.0 })
    } else {
        let allowed =
            if a.batch > PARTED_BATCH { 1.0 } else { allowed_parts(heads, (a.context / keys).ceil(), sm) };
        if allowed > 1.0 {
            (keys, per_sm) = (l.keys_parted, 1.0);
            let parts = parts_taken(a.batch * heads, (a.context / keys).ceil(), allowed, sm);
            // A merge that is chained to the kernel before it starts while that one ends.
            (parts, merge * if l.overlapped { chained } else { 1.0 } + merge_part * parts)
        } else {
            (1.0, 0.0)
        }
    };
    let tiles = ((a.context / keys).ceil() / parts).ceil().max(1.0);
    let ctas = a.batch * heads * parts;
    let wide = if a.dtype == Dtype::Fp8 && l.overlapped { 2.0 } else { 1.0 };
    let rate = eff * gpu.peak(gpu.autocast()).0 / sm * wide;
    let product = 4.0 * rows * keys * a.head_dim / rate * (ctas / sm).clamp(1.0, per_sm);
    let waves = ctas / (sm * per_sm);
    let rounds = rounds(waves);
    let steps = if l.overlapped {
        (1.0 + (rounds - 1.0) * again) * cta / clock + rounds * tiles * product.max(0.5 * tile / clock)
    } else {
        rounds * (cta / clock + tiles * (tile / clock + product))
    };
    let compute = steps + waves.min(1.0) * fill / clock;
    let kept = 2.0 * a.kv_bytes * a.batch * a.kv_heads * a.context * a.head_dim;
    let bytes = kept + 4.0 * a.batch * a.heads * a.head_dim;
    let memory = streamed(bytes, mb, hot, keep, a.warm, gpu);
    // With more sequences FlashAttention's scheduler walks their lengths itself.
    let walk = if l.tensor_rt || a.batch <= PARTED_BATCH { 0.0 } else { many * a.batch / 1024.0 };
    start * 1e-6 + (cycles + merged + walk) / clock + join(compute, memory, norm)
}

/// Constants of [`prompt`].
pub const PROMPT: [Constant; 14] = [
    Constant::new("start_us", 4.0, 10.0),
    Constant::new("start_cycles", 6000.0, 1.0),
    Constant::new("cta_cycles", 3000.0, 1.0),
    Constant::new("tile_cycles", 500.0, 1.0),
    Constant::new("share_of_peak", 0.75, 10.0),
    Constant::new("share_of_dram", 1.0, 30.0),
    Constant::new("share_of_l2", 0.5, 3.0),
    Constant::new("kept_of_l2_part", 1.2, 30.0),
    Constant::new("norm", 2.0, 30.0),
    Constant::new("tail", 0.5, 3.0),
    Constant::new("merge_cycles", 20_000.0, 1.0),
    Constant::new("fill_cycles", 4000.0, 1.0),
    Constant::new("fp8_gain", 1.3, 10.0),
    Constant::new("share_of_sustained", 0.85, 30.0),
];

/// Seconds of attention over prompts.
pub fn prompt(a: &Prompt, c: &[f64], gpu: &Gpu) -> f64 {
    let &[start, cycles, cta, tile, eff, mb, hot, keep, norm, tail, merge, fill, fp8, held] = c else {
        return prompt(a, &Constant::starts(&PROMPT), gpu);
    };
    let (sm, clock) = (f64::from(gpu.sm_count), gpu.boost_clock.0);
    let l = layout(gpu);
    let group = (a.heads / a.kv_heads).max(1.0);
    let blocks = (a.tokens * group / l.rows).ceil().max(1.0);
    let most = (a.tokens / l.keys).ceil().max(1.0);
    // Half of the tiles of a causal square, and half a step of the staircase more.
    let each = (0.5 * (a.tokens / l.keys + (l.rows / (group * l.keys)).max(1.0))).clamp(1.0, most);
    let ctas = a.batch * a.kv_heads * blocks;
    let wide = if a.dtype == Dtype::Fp8 { fp8 } else { 1.0 };
    let half = gpu.autocast();
    let flops = 4.0 * l.rows * l.keys * a.head_dim * sm;
    let product = flops / (eff * gpu.peak(half).0 * wide);
    // Long runs are slowed to what the board's power allows.
    let slowed = flops / (held * gpu.sustained_peak(half).0 * wide);
    let allowed = if allowed_parts(a.kv_heads * blocks, most, sm) > 1.0 { most } else { 1.0 };
    let parts = parts_taken(ctas, most, allowed, sm);
    let wait = tile / clock * if l.overlapped { 0.5 } else { 1.0 };
    let work = ctas / sm * (cta / clock / l.per_sm + each * (wait / l.per_sm + product).max(slowed));
    let longest = cta / clock + most / parts * (wait + product * (ctas / sm).clamp(1.0, l.per_sm));
    let waves = ctas * parts / (sm * l.per_sm);
    let steps = if waves <= 1.0 { longest } else { work + tail * longest };
    let compute = steps + waves.min(1.0) * fill / clock;
    // Queries, results, and keys and values that are stored first and read then.
    let bytes = 2.0 * a.batch * a.tokens * a.head_dim * (2.0 * a.heads + 6.0 * a.kv_heads);
    let memory = streamed(bytes, mb, hot, keep, true, gpu);
    let merged = if parts > 1.0 { merge * if l.overlapped { 0.2 } else { 1.0 } } else { 0.0 };
    start * 1e-6 + (cycles + merged) / clock + join(compute, memory, norm)
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_core::gpu::catalog;

    impl Token {
        /// 2.1 GB of keys and values.
        pub(in super::super) const LONG: Self = Self {
            batch: 64.0,
            context: 8192.0,
            heads: 32.0,
            kv_heads: 8.0,
            head_dim: 128.0,
            kv_bytes: 2.0,
            dtype: Dtype::Bf16,
            warm: true,
        };
    }

    #[test]
    fn long_prompts_run_at_a_share_of_the_peak() {
        let gpu = catalog::find("h100-sxm").unwrap();
        let a = Prompt {
            batch: 8.0,
            tokens: 16_384.0,
            heads: 32.0,
            kv_heads: 8.0,
            head_dim: 128.0,
            dtype: Dtype::Bf16,
        };
        // Half of 4 * b * h * s^2 * d
        let flops = 2.0 * 8.0 * 32.0 * 16_384.0_f64.powi(2) * 128.0;
        let share = flops / prompt(&a, &[], &gpu) / gpu.peak(Dtype::Bf16).0;
        assert!((0.5..0.76).contains(&share), "{share}");
    }

    #[test]
    fn long_contexts_run_at_the_bandwidth() {
        let gpu = catalog::find("h100-sxm").unwrap();
        let a = Token::LONG;
        // 64 * 8 * 8192 * 128 * 2 * 2 bytes at 2.97 TB/s
        let least = 64.0 * 8.0 * 8192.0 * 128.0 * 4.0 / gpu.dram_sustained.0;
        let time = token(&a, &[], &gpu);
        assert!(time >= 0.9 * least && time < 1.4 * least, "{time} {least}");
        // Half as many bytes take about half as long.
        let fp8 = token(&Token { kv_bytes: 1.0, dtype: Dtype::Fp8, ..a }, &[], &gpu);
        assert!(fp8 < 0.75 * time);
    }

    #[test]
    fn keys_are_parted_where_heads_leave_multiprocessors_idle() {
        // 8 heads on 132 multiprocessors: 33 parts fill two rounds, 14 fill 112/132 = 0.848 of one, 15 fill 0.909, the first within 15 % of the best
        assert!((allowed_parts(8.0, 64.0, 132.0) - 15.0).abs() < 1e-9);
        assert!((allowed_parts(8.0, 4.0, 132.0) - 1.0).abs() < 1e-9);
        assert!((allowed_parts(120.0, 64.0, 132.0) - 1.0).abs() < 1e-9);
        // 64 blocks of 8 heads with a tenth to spare: 5 on each of 132, so 13 parts
        assert!((parts_taken(8.0, 64.0, 15.0, 132.0) - 13.0).abs() < 1e-9);
    }

    #[test]
    fn what_the_l2_held_is_read_faster() {
        let gpu = catalog::find("h100-sxm").unwrap();
        let small = Token { batch: 16.0, context: 512.0, ..Token::LONG };
        let cold = Token { warm: false, ..small };
        assert!(token(&small, &[], &gpu) < token(&cold, &[], &gpu));
    }
}
