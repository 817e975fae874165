//! L2 traffic: Eq. 5 to 9. L1 catches the reuse inside one CTA's input tile, so the distinct elements of a
//! tile go to L2; their number is estimated from address distances along the tile's two edges.

use super::{Gemm, Layer, Tile};
use preflop_units::Bytes;

/// Eq. 5, DIST_V: addresses spanned by blk_M rows of one IFmap-matrix column.
///
/// blk_M·(W_i + 2·Pad)·Strd / (W_i + 2·Pad - W_f + 1)
pub fn dist_v(layer: &Layer, tile: &Tile) -> f64 {
    tile.blk_m * super::l1::requested_per_used(layer)
}

/// Eq. 6, A_DIST_V: blk_K columns belong to blk_K/(H_f·W_f) channels, each with its own DIST_V.
pub fn a_dist_v(layer: &Layer, tile: &Tile) -> f64 {
    dist_v(layer, tile) * tile.blk_k / (layer.r * layer.s) as f64
}

/// Eq. 7, DIST_H: addresses spanned by blk_K columns of one IFmap-matrix row.
///
/// (blk_K - 1)/W_f·((W_i - W_f + 1) + Strd·(W_f - blk_K + 1)) + (W_f - blk_K + 1)/W_f·Strd·(blk_K - 1)
///
/// Reading: literal, negative terms included, W_i without padding. With dilation (not in the paper) taps in a
/// row are D_w apart and the step to the next filter row is D_h·W_i - D_w·(W_f - 1).
pub fn dist_h(layer: &Layer, tile: &Tile) -> f64 {
    let s = layer.s as f64;
    let [d_h, d_w] = layer.dilation.map(|d| d as f64);
    let row_step = d_h * layer.w as f64 - d_w * (s - 1.0);
    let step = layer.stride[1] as f64 * d_w;
    let beyond = s - tile.blk_k + 1.0;
    (tile.blk_k - 1.0) / s * (row_step + step * beyond) + beyond / s * (step * (tile.blk_k - 1.0))
}

/// Eq. 8, A_DIST_H: blk_M rows may hold several samples, each with its own DIST_H.
///
/// DIST_H·(1 + blk_M / (((H_i + 2·Pad - H_f + 1)/Strd)·((W_i + 2·Pad - W_f + 1)/Strd)))
///
/// The paper assumes square maps and squares the height; both sides are used here.
pub fn a_dist_h(layer: &Layer, tile: &Tile) -> f64 {
    let side = |axis: usize| {
        (layer.padded(axis) as f64 - layer.reach(axis) as f64 + 1.0) / layer.stride[axis] as f64
    };
    dist_h(layer, tile) * (1.0 + tile.blk_m / (side(0) * side(1)))
}

/// A_DIST_IFmap: distinct IFmap elements of one tile. All are distinct in 1x1 and fully connected layers.
pub fn a_dist_ifmap(layer: &Layer, tile: &Tile) -> f64 {
    if layer.is_pointwise() {
        return tile.blk_m * tile.blk_k;
    }
    (a_dist_v(layer, tile) + a_dist_h(layer, tile)).max(0.0)
}

/// Eq. 9, T_L2: distinct elements per tile x tiles.
///
/// Reading: K/blk_K is not rounded, and of the filter only the valid columns count.
pub fn total(layer: &Layer, gemm: &Gemm, tile: &Tile) -> Bytes {
    let rows = (gemm.m / tile.blk_m).ceil();
    let columns = (gemm.n / tile.blk_n).ceil();
    let ifmap = a_dist_ifmap(layer, tile) * gemm.k / tile.blk_k * rows * columns;
    let filter = gemm.n * gemm.k * rows;
    Bytes((ifmap + filter) * layer.element_bytes * gemm.groups)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fig6, TilePolicy};

    #[test]
    fn alexnet_conv1_by_hand() {
        let l = Layer::square(256, 3, 227, 96, 11, 4, 0);
        let t = Fig6.tile(&l);
        // 128*908/217 = 535.594; *4/121 = 17.7056
        assert!((a_dist_v(&l, &t) - 535.594_47 * 4.0 / 121.0).abs() < 1e-4);
        // 3/11*((227-11+1) + 4*8) + 8/11*4*3 = 67.9091 + 8.7273 = 76.6364
        assert!((dist_h(&l, &t) - 76.636_36).abs() < 1e-4);
        // 76.6364*(1 + 128/(54.25^2)) = 79.9694
        assert!((a_dist_h(&l, &t) - 79.969_4).abs() < 1e-3);
        // (97.675*90.75*18150 + 96*363*6050)*4 = 1486.85 MB
        assert!((total(&l, &l.gemm(), &t).0 / 1e6 - 1486.85).abs() < 0.05);
    }

    #[test]
    fn pointwise_tiles_have_no_reuse() {
        let l = Layer::square(256, 64, 56, 256, 1, 1, 0);
        assert_eq!(a_dist_ifmap(&l, &Fig6.tile(&l)), 1024.0);
    }

    #[test]
    fn dilation_one_is_the_paper() {
        let l = Layer::square(32, 64, 28, 128, 3, 1, 1);
        let t = Fig6.tile(&l);
        // 7/3*((28-3+1) + (3-8+1)) + (-4/3)*7 = 51.3333 - 9.3333 = 42
        assert!((dist_h(&l, &t) - 42.0).abs() < 1e-9);
        let dilated = Layer { dilation: [2, 2], pad: [2, 2], ..l };
        // 7/3*((56-4) + 2*(-4)) + (-4/3)*2*7 = 102.6667 - 18.6667 = 84
        assert!((dist_h(&dilated, &t) - 84.0).abs() < 1e-9);
    }
}
