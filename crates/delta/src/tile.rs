//! CTA tiles and the policies that choose them.

use super::{DeltaError, Layer, Machine};

/// A CTA tile with its warp tiles and what it takes of an SM.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tile {
    /// blk_M, output pixels.
    pub blk_m: f64,
    /// blk_N, output channels.
    pub blk_n: f64,
    /// blk_K, depth per main-loop iteration.
    pub blk_k: f64,
    /// blk_WM.
    pub warp_m: f64,
    /// blk_WN.
    pub warp_n: f64,
    /// Num_warps of a CTA.
    pub num_warps: f64,
    /// 32-bit registers of a CTA.
    pub registers: f64,
}

/// Registers of the SMs on which the active CTAs below were profiled (Pascal: 256 KiB).
const PROFILED_REGISTERS: f64 = 65_536.0;

impl Tile {
    /// A tile of cuDNN's fp32 family.
    ///
    /// Fig. 6 and Fig. 10's text give blk_K (4 for widths below 128, else 8) and profiled active CTAs of
    /// 5, 4 and 2 per SM for widths 32, 64 and 128 at blk_M = 128. Registers bind there, so a CTA takes a
    /// 5th, 4th or half of 65,536; other sizes scale with the area. The warp tile is 64x32 (32x32 for
    /// width 32), which the paper does not print.
    pub fn of_size(blk_m: u32, blk_n: u32) -> Result<Self, DeltaError> {
        let fine = |x: u32| x.is_power_of_two() && (32..=1024).contains(&x);
        if !fine(blk_m) || !fine(blk_n) {
            return Err(DeltaError::Tile {
                tile: format!("{blk_m}x{blk_n}"),
                problem: "sides must be powers of two from 32 to 1024, such as 128x64",
            });
        }
        Ok(Self::sized(f64::from(blk_m), f64::from(blk_n)))
    }

    fn sized(blk_m: f64, blk_n: f64) -> Self {
        let active = if blk_n < 64.0 {
            5.0
        } else if blk_n < 128.0 {
            4.0
        } else {
            2.0
        };
        let warp_m = if blk_n < 64.0 { 32.0 } else { blk_m.min(64.0) };
        let warp_n = 32.0;
        Self {
            blk_m,
            blk_n,
            blk_k: if blk_n < 128.0 { 4.0 } else { 8.0 },
            warp_m,
            warp_n,
            num_warps: blk_m * blk_n / (warp_m * warp_n),
            registers: PROFILED_REGISTERS / active * (blk_m / 128.0) * (blk_n / 128.0).max(1.0),
        }
    }

    /// Shared memory of a CTA: both operands, double buffered (paper, Sec. II-C).
    pub fn smem_bytes(&self, element_bytes: f64) -> f64 {
        2.0 * (self.blk_m + self.blk_n) * self.blk_k * element_bytes
    }

    /// Num_ACT_CTA: CTAs that an SM holds, by registers and shared memory; at least one.
    pub fn active_ctas(&self, machine: &Machine, element_bytes: f64) -> f64 {
        let by_registers = machine.registers_per_sm / self.registers;
        let by_smem = machine.smem_per_sm.0 / self.smem_bytes(element_bytes);
        // A fifth of the registers five times is all of them, also in binary.
        (by_registers.min(by_smem) * (1.0 + 1e-12)).floor().max(1.0)
    }
}

/// Chooses the CTA tile of a layer.
pub trait TilePolicy: Sync {
    /// The tile for this layer.
    fn tile(&self, layer: &Layer) -> Tile;
}

/// Width class of Fig. 6 for N output channels (of one group): cuDNN 7 fits blk_N to the remainder.
fn fig6_width(n: u64) -> f64 {
    match n {
        0..=32 | 65..=96 => 32.0,
        33..=64 | 129..=192 | 257..=320 => 64.0,
        _ => 128.0,
    }
}

fn group_channels(layer: &Layer) -> u64 {
    layer.co / layer.groups.max(1)
}

/// The profiled table of Fig. 6: blk_M = 128, blk_N by the output channels.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fig6;

impl TilePolicy for Fig6 {
    fn tile(&self, layer: &Layer) -> Tile {
        Tile::sized(128.0, fig6_width(group_channels(layer)))
    }
}

/// Tiles with another edge, for design studies (paper, Sec. VII-C: 256 in options 7 to 9).
///
/// blk_M is the edge. blk_N stays as in Fig. 6, except that layers in its widest class take the smallest
/// power of two that covers their channels, up to the edge; a smaller edge caps it.
#[derive(Debug, Clone, Copy)]
pub struct EdgeTiles {
    edge: u32,
}

impl EdgeTiles {
    /// Edges are powers of two from 32 to 1024; 128 is Fig. 6.
    pub fn new(edge: u32) -> Result<Self, DeltaError> {
        Tile::of_size(edge, edge)?;
        Ok(Self { edge })
    }
}

impl TilePolicy for EdgeTiles {
    fn tile(&self, layer: &Layer) -> Tile {
        let n = group_channels(layer);
        let edge = f64::from(self.edge);
        let width = fig6_width(n);
        let wide = if width < 128.0 { width } else { (n.next_power_of_two() as f64).max(width) };
        Tile::sized(edge, wide.min(edge))
    }
}

/// One tile for all layers, such as the one that a kernel's name tells.
#[derive(Debug, Clone, Copy)]
pub struct FixedTile(pub Tile);

impl TilePolicy for FixedTile {
    fn tile(&self, _: &Layer) -> Tile {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_gpu::catalog;
    use preflop_units::dtype::Dtype;

    fn layer(co: u64) -> Layer {
        Layer::square(1, 16, 14, co, 3, 1, 1)
    }

    #[test]
    fn fig6_boundaries() {
        for (co, n, k) in [
            (1, 32.0, 4.0),
            (32, 32.0, 4.0),
            (33, 64.0, 4.0),
            (64, 64.0, 4.0),
            (65, 32.0, 4.0),
            (96, 32.0, 4.0),
            (97, 128.0, 8.0),
            (128, 128.0, 8.0),
            (129, 64.0, 4.0),
            (192, 64.0, 4.0),
            (193, 128.0, 8.0),
            (256, 128.0, 8.0),
            (257, 64.0, 4.0),
            (320, 64.0, 4.0),
            (321, 128.0, 8.0),
            (2048, 128.0, 8.0),
        ] {
            let t = Fig6.tile(&layer(co));
            assert_eq!((t.blk_m, t.blk_n, t.blk_k), (128.0, n, k), "C_o = {co}");
        }
    }

    #[test]
    fn profiled_active_ctas_and_warps() {
        let pascal = Machine::of(&catalog::find("titan-xp").unwrap(), Dtype::Fp32);
        for (co, active, warps) in [(32, 5.0, 4.0), (64, 4.0, 4.0), (128, 2.0, 8.0)] {
            let t = Fig6.tile(&layer(co));
            assert_eq!((t.active_ctas(&pascal, 4.0), t.num_warps), (active, warps), "C_o = {co}");
        }
        let triple = Machine { registers_per_sm: 3.0 * 65_536.0, ..pascal };
        // 256x256 takes 4 x 32,768 registers: one fits into 3 x 65,536
        assert_eq!(Tile::of_size(256, 256).unwrap().active_ctas(&triple, 4.0), 1.0);
        // 256x128 takes 2 x 32,768: three fit
        assert_eq!(Tile::of_size(256, 128).unwrap().active_ctas(&triple, 4.0), 3.0);
    }

    #[test]
    fn large_edges_widen_only_wide_layers() {
        let tiles = EdgeTiles::new(256).unwrap();
        let size = |co| (tiles.tile(&layer(co)).blk_m, tiles.tile(&layer(co)).blk_n);
        assert_eq!(size(64), (256.0, 64.0));
        assert_eq!(size(128), (256.0, 128.0));
        assert_eq!(size(256), (256.0, 256.0));
        assert_eq!(size(2048), (256.0, 256.0));
        for co in [16, 64, 96, 128, 192, 512] {
            assert_eq!(EdgeTiles::new(128).unwrap().tile(&layer(co)), Fig6.tile(&layer(co)));
        }
        assert!(EdgeTiles::new(100).is_err());
    }
}
