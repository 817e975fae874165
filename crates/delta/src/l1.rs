//! L1 traffic: Eq. 2 to 4.

use super::{FilterMli, Gemm, Layer, Machine, Readings, Tile};
use preflop_units::Bytes;

/// Threads whose loads are coalesced.
const WARP: f64 = 32.0;

/// Eq. 2: elements requested per element used, since a column of the IFmap matrix skips W_f - 1 elements at
/// the end of each row and Strd - 1 between two.
///
/// (W_i + 2·Pad)·Strd / (W_i + 2·Pad - W_f + 1)
///
/// With dilation W_f is the filter's reach.
pub fn requested_per_used(layer: &Layer) -> f64 {
    let padded = layer.padded(1) as f64;
    padded * layer.stride[1] as f64 / (padded - layer.reach(1) as f64 + 1.0)
}

/// Eq. 3, MLI_IFmap: L1 requests that a warp makes over those that perfect alignment would need.
///
/// Reading: an unaligned warp touches at least one request more than a perfect one, 1x1 layers too; then
/// GoogLeNet's L1 miss rates come out as the paper's Fig. 4 shows them.
pub fn mli_ifmap(layer: &Layer, machine: &Machine) -> f64 {
    let perfect = WARP * layer.element_bytes / machine.l1_request_bytes;
    let made = (requested_per_used(layer) * perfect).ceil().max(perfect.ceil() + 1.0);
    made / perfect
}

/// MLI_Filter: a warp reads runs of blk_K elements from distant filter columns; a run of b bytes, aligned to
/// its element only, touches 1 + (b - e)/sector sectors on average.
///
/// (1 + (e·blk_K - e)/sector)·sector/(e·blk_K): 2.75 for blk_K = 4 in fp32 as printed, 1.875 for 8, which the
/// paper gives as 2.0 (see [`FilterMli`]).
pub fn mli_filter(tile: &Tile, element_bytes: f64, machine: &Machine, reading: FilterMli) -> f64 {
    let run = element_bytes * tile.blk_k;
    if reading == FilterMli::Published
        && element_bytes == 4.0
        && tile.blk_k == 8.0
        && machine.sector_bytes == 32.0
    {
        return 2.0;
    }
    (1.0 + (run - element_bytes) / machine.sector_bytes) * machine.sector_bytes / run
}

/// Eq. 4, T_L1: both inputs with their inefficiencies.
///
/// Reading: each column of CTAs loads the whole IFmap matrix and each row of CTAs the whole filter matrix.
pub fn total(layer: &Layer, gemm: &Gemm, tile: &Tile, machine: &Machine, readings: Readings) -> Bytes {
    let rows = (gemm.m / tile.blk_m).ceil();
    let columns = (gemm.n / tile.blk_n).ceil();
    let ifmap = gemm.m * gemm.k * columns * mli_ifmap(layer, machine);
    let filter = gemm.n * gemm.k * rows * mli_filter(tile, layer.element_bytes, machine, readings.filter_mli);
    Bytes((ifmap + filter) * layer.element_bytes * gemm.groups)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fig6, TilePolicy};
    use preflop_gpu::catalog;
    use preflop_units::dtype::Dtype;

    fn pascal() -> Machine {
        Machine::of(&catalog::find("titan-xp").unwrap(), Dtype::Fp32)
    }

    #[test]
    fn alexnet_conv1_by_hand() {
        let l = Layer::square(256, 3, 227, 96, 11, 4, 0);
        // 227*4/217 = 4.184; one request is perfect, so ceil -> 5
        assert!((requested_per_used(&l) - 908.0 / 217.0).abs() < 1e-12);
        assert_eq!(mli_ifmap(&l, &pascal()), 5.0);
        let t = Fig6.tile(&l);
        // 774400*363*3*5 + 96*363*6050*2.75 = 4,216,608,000 + 579,783,600 elements
        let got = total(&l, &l.gemm(), &t, &pascal(), Readings::default());
        assert_eq!(got.0, 4.0 * (4_216_608_000.0 + 579_783_600.0));
    }

    #[test]
    fn filter_loads() {
        let (narrow, wide) = (Tile::of_size(128, 64).unwrap(), Tile::of_size(128, 128).unwrap());
        let mli = |t: &Tile, e, r| mli_filter(t, e, &pascal(), r);
        assert_eq!(mli(&narrow, 4.0, FilterMli::Published), 2.75);
        assert_eq!(mli(&wide, 4.0, FilterMli::Published), 2.0);
        assert_eq!(mli(&wide, 4.0, FilterMli::Exact), 1.875);
        // fp16, blk_K 8: run 16 B, (1 + 14/32)*32/16 = 2.875
        assert_eq!(mli(&wide, 2.0, FilterMli::Published), 2.875);
    }

    #[test]
    fn sectors_waste_less_than_lines() {
        let l = Layer::square(1, 64, 56, 64, 1, 1, 0);
        let volta = Machine { l1_request_bytes: 32.0, ..pascal() };
        assert_eq!(mli_ifmap(&l, &pascal()), 2.0);
        // four sectors are perfect, five are touched
        assert_eq!(mli_ifmap(&l, &volta), 1.25);
        // fp16: two sectors are perfect, three are touched
        assert_eq!(mli_ifmap(&Layer { element_bytes: 2.0, ..l }, &volta), 1.5);
    }
}
