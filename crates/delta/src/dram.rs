//! DRAM traffic: Eq. 10. CTAs run column by column, so the filter is loaded once and the IFmap once per
//! column of CTAs.

use super::{Gemm, Layer};
use preflop_units::Bytes;

/// Elements of the IFmap that come from DRAM: B·H_i·W_i·C_i with padding, or in a 1x1 layer only those that
/// the stride touches.
pub fn ifmap_elements(layer: &Layer) -> f64 {
    let (h, w) =
        if layer.is_pointwise() { (layer.out(0), layer.out(1)) } else { (layer.padded(0), layer.padded(1)) };
    (layer.batch * layer.ci) as f64 * h as f64 * w as f64
}

/// Eq. 10, T_DRAM: IFmap size x columns of CTA tiles (of one group) + filter size.
pub fn total(layer: &Layer, gemm: &Gemm, columns: f64) -> Bytes {
    let filter = gemm.n * gemm.k * gemm.groups;
    Bytes((ifmap_elements(layer) * columns + filter) * layer.element_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alexnet_conv1_by_hand() {
        let l = Layer::square(256, 3, 227, 96, 11, 4, 0);
        // (256*3*227*227*3 + 96*363)*4
        assert_eq!(total(&l, &l.gemm(), 3.0).0, 4.0 * (118_722_816.0 + 34_848.0));
    }

    #[test]
    fn a_strided_1x1_layer_skips_what_it_does_not_touch() {
        let l = Layer::square(2, 8, 56, 16, 1, 2, 0);
        assert_eq!(ifmap_elements(&l), 2.0 * 8.0 * 28.0 * 28.0);
        assert_eq!(ifmap_elements(&Layer::square(2, 8, 56, 16, 3, 2, 1)), 2.0 * 8.0 * 58.0 * 58.0);
    }
}
