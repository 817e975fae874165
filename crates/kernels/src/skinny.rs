//! fp32 products on plain pipes with few rows or columns: bound by bytes and by the latency of their sums.
//!
//! ```text
//! r       = bm*bn/(bm + bn);   share = r/(r + small) * (1 + small/64)
//! compute = least over tiles and splits of
//!           max(ceil(CTAs/SM) * 2*bm*bn*part*SM/(eff*peak*share), lat * part/8 * ceil(CTAs/(4 SM)))
//!           + (split > 1: 3 us + 8*M*N*split/(3 DRAM))
//! time    = t0 + (compute^4 + (bytes/(bw*DRAM))^4)^(1/4)
//! ```
//!
//! Where `part` is the length of one part of the sum, a multiple of eight; sums are split (from Volta on) while a part has 64 elements and the grid at most four
//! CTAs an SM. Where operands are read in pieces along the sum ([`row_reads`]), bw is the share of such reads: a TITAN Xp takes 64 columns at 0.26 of its memory's rate when the matrix lies so, and twice as fast when not. `lat` is at the clock of [`Machine::latency`]. eff, small, lat, bw and t0 are fitted (`crates/fit/src/boards.rs`).

use super::tile::Tiling;
use super::{Machine, row_reads};
use preflop_gpu::Architecture;
use preflop_ops::{Gemm, GemmKind};
use preflop_units::math::Elementary as _;

/// Fitted constants: eff, small, `lat_s`, bw, `t0_s`.
pub type Figures = [f64; 5];

/// Key of the constants.
pub const KEY: &str = "gemm/skinny";

/// Where fits start: figures of a study of DeepBench with GPUs left out, whose 12 us a call are mostly the host's.
pub const START: Figures = [0.95, 7.8, 45e-9, 0.68, 4e-6];

/// Rows and columns of the CTA tiles.
const TILES: [(f64, f64); 13] = [
    (128.0, 128.0),
    (128.0, 64.0),
    (64.0, 128.0),
    (64.0, 64.0),
    (128.0, 32.0),
    (32.0, 128.0),
    (64.0, 32.0),
    (32.0, 64.0),
    (32.0, 32.0),
    (128.0, 16.0),
    (16.0, 128.0),
    (64.0, 16.0),
    (16.0, 64.0),
];

/// Products with fewer rows or columns than the first are skinny, those with more than the second are not; batched ones have kernels of their own.
const EDGE: [f64; 2] = [256.0, 512.0];

/// Up to this many rows or columns libraries have kernels of other kinds.
pub const FEWEST: u64 = 32;

/// How far a product is skinny: 1 up to 256 rows or columns, 0 from 512 on.
pub fn share(g: &Gemm) -> f64 {
    if g.kind == GemmKind::Bmm {
        return 0.0;
    }
    let [from, to] = EDGE;
    let least = g.m.min(g.n).max(1) as f64;
    ((to / least).binary_log() / (to / from).binary_log()).clamp(0.0, 1.0)
}

/// The closed form.
pub fn form(g: &Gemm, f: &Figures, machine: &Machine, kernels: Architecture) -> Tiling {
    machine.by_length(|m| at_rate(g, f, m, splits(kernels)))
}

/// Do libraries split sums on a generation? Products of DeepBench with sums of 500,000 say that they do from Volta on.
fn splits(kernels: Architecture) -> bool {
    kernels != Architecture::Pascal
}

fn at_rate(g: &Gemm, f: &Figures, machine: &Machine, splits: bool) -> Tiling {
    let [eff, small, lat, bw, t0] = *f;
    let (m, n, k) = (g.m as f64, g.n as f64, g.k as f64);
    let bytes = 4.0 * (m * k + k * n + m * n) * g.batch as f64;
    // Kernels for the fewest rows or columns read whole lines.
    let in_pieces = machine.in_pieces && g.m.min(g.n) > FEWEST;
    let dram = bytes / (if in_pieces { row_reads::SHARE } else { bw } * machine.dram);
    let mut best = Tiling {
        time: f64::INFINITY,
        compute: f64::INFINITY,
        l2: 0.0,
        dram,
        latency: 0.0,
        reduction: 0.0,
        bm: 0.0,
        bn: 0.0,
        split: 1.0,
        part: k,
        tiles: 1.0,
        waves: 1.0,
        miss: 1.0,
        by_tile: [1.0; 12],
    };
    let mut least = f64::INFINITY;
    for (bm, bn) in TILES {
        let r = bm * bn / (bm + bn);
        let share = r / (r + small) * (1.0 + small / 64.0);
        let grid = (m / bm).ceil() * (n / bn).ceil() * g.batch as f64;
        let mut split = 1.0;
        loop {
            let part = (k / split / 8.0).ceil() * 8.0;
            let tiles = grid * split;
            let waves = (tiles / machine.sm).ceil();
            let compute = waves * 2.0 * bm * bn * part * machine.sm / (eff * machine.peak * share);
            let latency = lat * machine.latency * part / 8.0 * (tiles / (4.0 * machine.sm)).ceil();
            let reduction = if split > 1.0 { 3e-6 + 8.0 * m * n * split / (3.0 * machine.dram) } else { 0.0 };
            let all = compute.max(latency) + reduction;
            if all < least {
                least = all;
                best = Tiling { compute, latency, reduction, bm, bn, split, part, tiles, waves, ..best };
            }
            split *= 2.0;
            if !splits || k / split < 64.0 || grid * split > 4.0 * machine.sm {
                break;
            }
        }
    }
    let fourth = |x: f64| (x * x) * (x * x);
    Tiling { time: t0 + (fourth(least) + fourth(dram)).sqrt().sqrt(), ..best }
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_gpu::catalog;
    use preflop_units::Dtype;

    #[test]
    fn few_columns_are_bound_by_the_matrix() {
        let gpu = catalog::find("v100-sxm2-16gb").unwrap();
        let machine = Machine::plain(&gpu, Dtype::Fp32);
        let time = |m| form(&Gemm::linear(m, 5124, 2560, false), &START, &machine, gpu.architecture);
        // 5124 x 2560 weights of 4 bytes are 52 MB
        let least = 52.5e6 / gpu.dram_sustained.0;
        assert!(time(16).time > least && time(16).time < 3.0 * least + START[4], "{:?}", time(16));
        assert!(time(16).time <= time(64).time);
    }

    #[test]
    fn only_single_products_with_few_rows_or_columns_are_skinny() {
        assert_eq!(share(&Gemm::linear(32, 4096, 1024, false)), 1.0);
        assert_eq!(share(&Gemm::linear(4096, 200, 1024, false)), 1.0);
        assert_eq!(share(&Gemm::linear(4096, 4096, 16, false)), 0.0);
        assert_eq!(share(&Gemm::bmm(64, 32, 32, 64)), 0.0);
    }
}
