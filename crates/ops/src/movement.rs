//! Data movement without arithmetic: transposes, permuted copies, concatenation, gathers.

use super::Traffic;
use serde::{Deserialize, Serialize};

/// Which movement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MovementKind {
    /// `x.t().contiguous()` of a rows x cols matrix.
    Transpose,
    /// Two rows x cols matrices joined along the columns.
    Cat,
    /// `[b, s, h, d] -> [b, h, s, d]` copied: `rows` = b*s*h, `cols` = d. Long runs stay whole.
    Permute,
    /// Rows picked by index.
    Gather,
    /// NCHW to NHWC or back, as cuDNN does around its kernels: rows = channels, cols = pixels, per image.
    LayoutConversion,
    /// Concatenation of tensors that do not lie row by row: keys and values with their heads inside.
    CatStrided,
}

impl MovementKind {
    /// The name used in operator files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Transpose => "transpose",
            Self::Cat => "cat",
            Self::CatStrided => "cat_strided",
            Self::Permute => "permute_copy",
            Self::Gather => "gather",
            Self::LayoutConversion => "layout_conversion",
        }
    }
}

/// A movement over a `rows` x `cols` matrix (two of them for a concatenation).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Movement {
    /// Which movement.
    pub kind: MovementKind,
    /// Rows.
    pub rows: u64,
    /// Columns.
    pub cols: u64,
}

impl Movement {
    /// Everything read once and written once.
    pub fn traffic(&self, e: f64) -> Traffic {
        let copies =
            if matches!(self.kind, MovementKind::Cat | MovementKind::CatStrided) { 2.0 } else { 1.0 };
        let n = copies * self.rows as f64 * self.cols as f64;
        Traffic::elements(n, n, e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cat_moves_two_matrices() {
        let c = Movement { kind: MovementKind::Cat, rows: 3, cols: 5 };
        assert_eq!(c.traffic(4.0).total().0, 240.0);
    }
}
