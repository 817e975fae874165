//! mm, linear and bmm: kernel class by alignment, tiled closed form, features for the correction.

use super::tile::{Constants, PLAIN_TILES, Product, Tiling, best, best_of};
use super::{Machine, alignment};
use preflop_gpu::Architecture;
use preflop_learned::trees::{Features, MAX_FEATURES};
use preflop_ops::{Gemm, GemmKind, Layout};
use preflop_units::dtype::Dtype;
use preflop_units::math::Elementary as _;

/// How well the operands are aligned: decides which kernels a library may use.
///
/// Leading dimensions in memory (row-major): linear A:k W:k C:n; nn A:k B:n C:n; tn A:m B:n C:n. One
/// misaligned operand is enough. 16-bit: class 2 needs 16-byte rows, class 1 4- or 8-byte rows; tf32 has two
/// classes, fp32 one; fp8 and fp4 need 16-byte rows.
pub fn class(g: &Gemm, dtype: Dtype) -> u8 {
    let (a, b, c) = leading(g);
    let amin = alignment(a, 16).min(alignment(b, 16)).min(alignment(c, 16));
    match dtype {
        Dtype::Bf16 | Dtype::Fp16 => match amin {
            8.. => 2,
            2..=7 => 1,
            _ => 0,
        },
        Dtype::Tf32 => {
            if amin >= 4 {
                2
            } else {
                0
            }
        }
        _ => 2,
    }
}

fn leading(g: &Gemm) -> (u64, u64, u64) {
    match g.layout {
        Layout::Linear => (g.k, g.k, g.n),
        Layout::Nn => (g.k, g.n, g.n),
        Layout::Tn => (g.m, g.n, g.n),
    }
}

/// Class of the interval.
pub fn interval_class(dtype: Dtype, class: u8) -> &'static str {
    match (dtype, class) {
        (Dtype::Fp32 | Dtype::Fp64, _) => "gemm/fp32",
        (Dtype::Tf32, 2) => "gemm/tf32/2",
        (Dtype::Tf32, _) => "gemm/tf32/0",
        (Dtype::Bf16 | Dtype::Fp16, 2) => "gemm/half/2",
        (Dtype::Bf16 | Dtype::Fp16, 1) => "gemm/half/1",
        (Dtype::Bf16 | Dtype::Fp16, _) => "gemm/half/0",
        _ => "gemm/fp8",
    }
}

/// The forest that speaks for the measured GPU: kernels of one instruction set and alignment share one.
pub fn own_forest(dtype: Dtype, class: u8) -> &'static str {
    match (dtype, class) {
        (Dtype::Fp32 | Dtype::Fp64, _) => "gemm/h200/fp32",
        (Dtype::Tf32, 2) => "gemm/h200/tf32",
        (Dtype::Tf32, _) => "gemm/h200/tf32/odd",
        (Dtype::Bf16 | Dtype::Fp16, 0) => "gemm/h200/half/odd",
        (Dtype::Bf16 | Dtype::Fp16, 1) => "gemm/h200/half/even",
        _ => "gemm/h200/half",
    }
}

/// Least length of a part of a sum that is split.
pub const MIN_PART: f64 = 128.0;

/// The product as the tiler sees it.
pub fn product(g: &Gemm, dtype: Dtype) -> Product {
    let t = g.traffic(dtype);
    Product {
        batch: g.batch as f64,
        m: g.m as f64,
        n: g.n as f64,
        k: g.k as f64,
        element: dtype.size(),
        read: t.read.0,
        written: t.written.0,
        max_split: 32.0,
        min_part: MIN_PART,
        step: 32.0,
    }
}

/// The closed form.
pub fn form(g: &Gemm, dtype: Dtype, constants: &Constants, machine: &Machine) -> Tiling {
    let p = Product { min_part: machine.min_part, ..product(g, dtype) };
    machine.by_length(|m| best(&p, constants, m))
}

/// The closed form of an fp32 product on plain pipes, with the tiles that cuBLAS has for the generation.
///
/// The kernel names of 73,000 published rows say which: batched products come with one to three tiles and are
/// never split, others with any. They take the sum in steps of eight.
pub fn plain_form(g: &Gemm, constants: &Constants, machine: &Machine, generation: Architecture) -> Tiling {
    let batched = g.kind == GemmKind::Bmm;
    // Bits count through PLAIN_TILES: rows x columns of the row-major result.
    let allowed = match (generation, batched) {
        (Architecture::Pascal, true) => 0b0_0000_0010,
        (Architecture::Volta, true) => 0b0_0011_0000,
        (Architecture::Turing, true) => 0b0_0010_1010,
        (Architecture::Ampere | Architecture::Ada, true) => 0b0_0000_0001,
        (Architecture::Pascal, false) if machine.in_pieces => pascal_tile(g),
        (Architecture::Pascal, false) => 0b0_0011_1000,
        _ => 0b1_1111_1111,
    };
    let p = product(g, Dtype::Fp32);
    let p = Product { step: 8.0, max_split: if batched { 1.0 } else { p.max_split }, ..p };
    machine.by_length(|m| best_of(&p, constants, m, &PLAIN_TILES, allowed))
}

/// Does cuBLAS read the operands of an fp32 product in pieces along the sum ([`super::row_reads`])? Both operands of a linear layer lie so; kernels from Volta on do not mind.
pub fn in_pieces(g: &Gemm, generation: Architecture) -> bool {
    generation == Architecture::Pascal && g.layout == Layout::Linear && g.kind != GemmKind::Bmm
}

/// The tile that cuBLAS takes for a linear layer on Pascal, as a bit of [`PLAIN_TILES`]: 128 rows and 32 columns or 64 and 64, whichever pads the result less. That names 83 % of
/// the kernels of 4,200 linear layers on a P4 and 67 % on a P100, which leans to the first (94 % where it may pad 6.5 % more). The memory does not enter: on a P4 the second takes twice as long.
fn pascal_tile(g: &Gemm) -> u16 {
    const FEW_ROWS: u64 = 32;
    let up = |x: u64, edge: f64| (x as f64 / edge).ceil() * edge;
    let padded = |rows: f64, columns: f64| up(g.m, rows) * up(g.n, columns);
    if g.m <= FEW_ROWS {
        0b0_0000_1000
    } else if padded(128.0, 32.0) <= padded(64.0, 64.0) {
        0b0_0001_0000
    } else {
        0b0_0010_0000
    }
}

/// Places of the feature vector that a GEMM fills.
pub const FEATURES: usize = 62;

fn log2(x: f64) -> f32 {
    x.max(1e-30).binary_log() as f32
}

/// Dimensionless features of the correction: shares of the closed form, waves, tile efficiency, alignment,
/// shape ratios. No peak, clock or SM count as such, so that they carry over to other GPUs.
pub fn features(g: &Gemm, dtype: Dtype, t: &Tiling, machine: &Machine, generation: Architecture) -> Features {
    let mut x = [0.0f32; MAX_FEATURES];
    let mut at = 0;
    let mut push = |v: f32| {
        x[at] = v;
        at += 1;
    };
    let p = product(g, dtype);
    let share = |v: f64| log2((v / t.time).max(1e-4));
    push(log2(t.time * 1e6));
    push(log2(p.batch));
    push(log2(p.m));
    push(log2(p.n));
    push(log2(p.k));
    push(share(t.compute));
    push(share(t.l2));
    push(share(t.dram));
    push(share(t.latency));
    push(share(t.reduction));
    push(log2(t.bm));
    push(log2(t.bn));
    push(log2(t.split));
    push(t.waves.min(20.0) as f32);
    push(log2(t.tiles));
    push(log2(p.read));
    push(log2(p.written));
    push(log2((8.0 * p.read + p.written) / machine.l2_size));
    for (bm, bn) in [(32.0, 32.0), (64.0, 64.0), (128.0, 128.0), (128.0, 256.0)] {
        let tiles = (p.m / bm).ceil() * (p.n / bn).ceil() * p.batch;
        let w: f64 = tiles / machine.sm;
        push((w / w.ceil()) as f32);
        push((p.m * p.n * p.batch / (tiles * bm * bn)) as f32);
        push(log2(w));
    }
    let (a, b, c) = leading(g);
    push(log2(alignment(a, 16) as f64));
    push(log2(alignment(b, 16) as f64));
    push(log2(alignment(c, 16) as f64));
    push(log2(alignment(g.m, 16) as f64));
    push(log2(alignment(g.n, 64) as f64));
    push(log2(alignment(g.k, 64) as f64));
    push(match g.layout {
        Layout::Linear => 0.0,
        Layout::Nn => 1.0,
        Layout::Tn => 2.0,
    });
    push(f32::from(u8::from(g.bias)));
    push(f32::from(u8::from(g.kind == GemmKind::Bmm)));
    push(match dtype {
        Dtype::Fp32 => 0.0,
        Dtype::Tf32 => 1.0,
        Dtype::Bf16 => 2.0,
        Dtype::Fp16 => 3.0,
        Dtype::Fp8 => 4.0,
        _ => 5.0,
    });
    push(f32::from(class(g, dtype)));
    push(log2(p.k * p.k / (p.m * p.n * p.batch)));
    push(log2(p.m / p.n));
    push(log2(2.0 * p.batch * p.m * p.n * p.k / (p.read + p.written)));
    push(log2(2.0 * p.batch * p.m * p.n * p.k / machine.peak * 1e6));
    push(f32::from(generation as u8));
    push(t.miss as f32);
    for time in t.by_tile {
        push(log2(time / t.time));
    }
    debug_assert!(at <= FEATURES);
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_odd_dimension_costs_the_fast_kernels() {
        assert_eq!(class(&Gemm::linear(64, 1000, 2048, false), Dtype::Bf16), 2);
        assert_eq!(class(&Gemm::linear(64, 1002, 2048, false), Dtype::Bf16), 1);
        assert_eq!(class(&Gemm::linear(64, 1001, 2048, false), Dtype::Bf16), 0);
        assert_eq!(class(&Gemm::linear(63, 1001, 2047, false), Dtype::Fp32), 2);
        // tn: A is stored k x m, so m must be aligned and k need not be
        assert_eq!(class(&Gemm::mm(64, 128, 33, Layout::Tn), Dtype::Bf16), 2);
        assert_eq!(class(&Gemm::mm(63, 128, 32, Layout::Tn), Dtype::Bf16), 0);
    }
}
