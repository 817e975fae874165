//! Operands that lie along the sum, as kernels before Volta read them: each step of the sum takes eight elements of every row of a tile,
//! a piece of 32 bytes here and one there.
//!
//! ```text
//! gx    = ceil(N/bn), gy = ceil(M/bm)                  tiles side by side run first
//! R     = clamp(3 SM/gx, 1, gy)                        rows of tiles that run at a time and share the second operand
//! lost  = 1/(1 + (L2/bytes)^3)                         of bytes that would have to stay until they are read again
//! bytes = 4 N K (1 + (gy/R - 1) lost(4 N K)) + 4 M K (1 + 0.2 (gx - 1) lost(4 bm K))
//! dram  = bytes/(0.25 DRAM)                            pieces open a page of the memory each
//! pages = wv (bm + bn) K/8 * 13 clocks * far/(1 + far), far = (K/16384)^1.5     addresses whose pages have to be looked up
//! ```
//!
//! What NeuSight's linear layers on a P100 and a P4 show, by the tile that their kernels' names give: with tiles of 64 x 64 and many columns the second operand comes
//! at 0.24 and 0.26 of the memory's rate, as often as there are rows of tiles, and at half of that once 64 rows of the first exceed the L2 (2 and 4 MiB); from sums of 16,384 on a P100 takes 13.8
//! clocks of an SM for a piece and a P4 10 to 14. The constants are rounded from fits to each alone (0.28 and 0.23, 0.24 and 0.12, 13 and 17 clocks, 14,700 and 42,900) and both together.
//! On V100, T4 and A100 the same rows show none of it.

use super::Machine;
use super::tile::Product;

/// Share of the sustained DRAM bandwidth at which pieces come.
pub const SHARE: f64 = 0.25;
/// Tiles that an SM runs at a time.
const AT_ONCE: f64 = 3.0;
/// Share of the tiles side by side that read their rows again once those no longer stay in the L2.
const AGAIN: f64 = 0.2;
/// Seconds in which an SM looks up the page of a piece, at the clock of [`Machine::latency`]: 13 clocks.
const LOOK_UP_S: f64 = 13.0 / 1.98e9;
/// Length of a sum from which half of the pieces lie in pages that have to be looked up.
const FAR: f64 = 16384.0;
/// Elements of a piece.
const PIECE: f64 = 8.0;

/// Share of bytes that no longer lie in the L2 when they are read again.
fn lost(bytes: f64, l2: f64) -> f64 {
    let room = l2 / bytes;
    1.0 / (1.0 + room * room * room)
}

/// Seconds in which the operands come from memory with a tile of `bm` x `bn`.
pub fn memory(p: &Product, (bm, bn): (f64, f64), machine: &Machine) -> f64 {
    let (across, down) = ((p.n / bn).ceil(), (p.m / bm).ceil());
    let rows = (AT_ONCE * machine.sm / across).clamp(1.0, down);
    let row = p.element * p.k;
    let second = p.n * row * (1.0 + (down / rows - 1.0) * lost(p.n * row, machine.l2_size));
    let first = p.m * row * (1.0 + AGAIN * (across - 1.0) * lost(bm * row, machine.l2_size));
    p.batch * (first + second) / (SHARE * machine.dram)
}

/// Seconds in which an SM looks up pages for `waves` tiles of `bm` x `bn` with sums of `part` elements in rows of `k`.
pub fn pages(k: f64, part: f64, waves: f64, (bm, bn): (f64, f64), machine: &Machine) -> f64 {
    let far = (k / FAR) * (k / FAR).sqrt();
    waves * (bm + bn) * part / PIECE * LOOK_UP_S * machine.latency * far / (1.0 + far)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm;
    use preflop_gpu::catalog;
    use preflop_ops::Gemm;
    use preflop_units::Dtype;

    fn rate(gpu: &str, g: &Gemm) -> f64 {
        let gpu = catalog::find(gpu).unwrap();
        let in_pieces = gemm::in_pieces(g, gpu.architecture);
        let machine = Machine { in_pieces, ..Machine::plain(&gpu, Dtype::Fp32) };
        let c = crate::tile::Constants { eff: 1.0, ..crate::tile::Constants::START };
        2.0 * (g.m * g.n * g.k) as f64 / gemm::plain_form(g, &c, &machine, gpu.architecture).time
    }

    #[test]
    fn long_sums_are_slow_before_volta() {
        let [short, long] = [2048, 32768].map(|k| Gemm::linear(4096, 4096, k, true));
        for gpu in ["p100-pcie", "p4"] {
            assert!(rate(gpu, &long) < 0.7 * rate(gpu, &short), "{gpu}");
        }
        assert!(rate("v100-pcie-32gb", &long) > 0.9 * rate("v100-pcie-32gb", &short));
    }

    #[test]
    fn more_of_anything_is_never_slower() {
        let gpu = catalog::find("p4").unwrap();
        let machine = Machine::plain(&gpu, Dtype::Fp32);
        let time = |m: &Machine, g: &Gemm| {
            let p = gemm::product(g, Dtype::Fp32);
            memory(&p, (128.0, 32.0), m)
        };
        for (m, n, k) in [(300, 70, 5000), (4096, 1024, 4096), (129, 40_000, 512), (8192, 64, 60_000)] {
            let g = Gemm::linear(m, n, k, true);
            let base = time(&machine, &g);
            for factor in [1.01, 1.3, 2.0] {
                assert!(time(&Machine { sm: machine.sm * factor, ..machine }, &g) <= base);
                assert!(time(&Machine { dram: machine.dram * factor, ..machine }, &g) <= base);
                assert!(time(&Machine { l2_size: machine.l2_size * factor, ..machine }, &g) <= base);
            }
        }
    }
}
