//! Operators that work along the rows (or down the columns) of a matrix.

use super::{Pass, Traffic};
use preflop_units::Flops;
use serde::{Deserialize, Serialize};

/// Which operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowwiseKind {
    /// Softmax along the row.
    Softmax,
    /// Log-softmax along the row.
    LogSoftmax,
    /// Layer norm.
    LayerNorm,
    /// RMS norm.
    RmsNorm,
    /// Sum along the row.
    Sum,
    /// Sum down the columns: bias gradients.
    SumCols,
    /// Sum by channel of NCHW maps: bias gradients of convolutions. Rows are pixels of all images, columns channels. (Trees know it by this number.)
    SumChannels = 7,
}

impl RowwiseKind {
    /// The name used in operator files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Softmax => "softmax",
            Self::LogSoftmax => "log_softmax",
            Self::LayerNorm => "layernorm",
            Self::RmsNorm => "rmsnorm",
            Self::Sum => "sum",
            Self::SumCols => "sum_cols",
            Self::SumChannels => "sum_channels",
        }
    }
}

/// An operator over a `rows` x `cols` matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rowwise {
    /// Which operator.
    pub kind: RowwiseKind,
    /// Rows.
    pub rows: u64,
    /// Columns: the normalised or summed length.
    pub cols: u64,
}

impl Rowwise {
    /// Arithmetic per element: softmax 5 (max, subtract, exp, sum, divide), norms 7 (two moments, scale,
    /// shift), sums 1; backward about 1.5 times that.
    pub fn flops(&self, pass: Pass) -> Flops {
        let per = match self.kind {
            RowwiseKind::Softmax | RowwiseKind::LogSoftmax | RowwiseKind::RmsNorm => 5.0,
            RowwiseKind::LayerNorm => 7.0,
            RowwiseKind::Sum | RowwiseKind::SumCols | RowwiseKind::SumChannels => 1.0,
        };
        let factor = if pass == Pass::Fwd { 1.0 } else { 1.5 };
        Flops(per * factor * self.rows as f64 * self.cols as f64)
    }

    /// One read and one write of the matrix; sums write a vector; backward reads two matrices.
    pub fn traffic(&self, pass: Pass, e: f64) -> Traffic {
        let (rows, cols) = (self.rows as f64, self.cols as f64);
        let n = rows * cols;
        let (read, written) = match (self.kind, pass) {
            (RowwiseKind::Sum, _) => (n, rows),
            (RowwiseKind::SumCols | RowwiseKind::SumChannels, _) => (n, cols),
            (RowwiseKind::LayerNorm | RowwiseKind::RmsNorm, Pass::Fwd) => (n + 2.0 * cols, n),
            (_, Pass::Fwd) => (n, n),
            (_, _) => (2.0 * n, n),
        };
        Traffic::elements(read, written, e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hand_computed() {
        let s = Rowwise { kind: RowwiseKind::Softmax, rows: 10, cols: 100 };
        assert_eq!(s.traffic(Pass::Fwd, 4.0).total().0, 8000.0);
        assert_eq!(s.flops(Pass::Fwd).0, 5000.0);
        let b = Rowwise { kind: RowwiseKind::SumCols, rows: 10, cols: 100 };
        assert_eq!(b.traffic(Pass::Fwd, 2.0).total().0, 2200.0);
    }
}
