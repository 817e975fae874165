//! Matrix products `C[m,n] = A[m,k] B[k,n]`, plain, as a linear layer, or batched.

use super::Traffic;
use preflop_units::Flops;
use preflop_units::dtype::Dtype;
use serde::{Deserialize, Serialize};

/// Which library call it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GemmKind {
    /// `torch.mm`.
    Mm,
    /// `F.linear`.
    Linear,
    /// `torch.bmm`.
    Bmm,
}

impl GemmKind {
    /// The name used in operator files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mm => "mm",
            Self::Linear => "linear",
            Self::Bmm => "bmm",
        }
    }
}

/// How the operands lie in memory (row-major).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// A is `[m,k]`, B is a weight `[n,k]` used transposed: a linear layer's forward.
    Linear,
    /// A is `[m,k]`, B is `[k,n]`: a linear layer's data gradient.
    Nn,
    /// A is `[k,m]` used transposed, B is `[k,n]`: a linear layer's weight gradient.
    Tn,
}

impl Layout {
    /// The name used in operator files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Nn => "nn",
            Self::Tn => "tn",
        }
    }
}

/// A matrix product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Gemm {
    /// Which library call.
    pub kind: GemmKind,
    /// Independent products (1 unless batched).
    pub batch: u64,
    /// Rows of the result.
    pub m: u64,
    /// Columns of the result.
    pub n: u64,
    /// Length of the sums.
    pub k: u64,
    /// Operand layout.
    pub layout: Layout,
    /// Is a bias added in the epilogue?
    pub bias: bool,
}

impl Gemm {
    /// `y[m,n] = x[m,k] W[n,k]^T (+ b)`.
    pub fn linear(m: u64, n: u64, k: u64, bias: bool) -> Self {
        Self { kind: GemmKind::Linear, batch: 1, m, n, k, layout: Layout::Linear, bias }
    }

    /// `C[m,n] = A[m,k] B[k,n]` in the given layout.
    pub fn mm(m: u64, n: u64, k: u64, layout: Layout) -> Self {
        Self { kind: GemmKind::Mm, batch: 1, m, n, k, layout, bias: false }
    }

    /// `batch` products of `[m,k] [k,n]`.
    pub fn bmm(batch: u64, m: u64, n: u64, k: u64) -> Self {
        Self { kind: GemmKind::Bmm, batch, m, n, k, layout: Layout::Nn, bias: false }
    }

    /// Multiply-adds x 2, as f64 so that no shape overflows.
    pub fn flops(&self) -> Flops {
        Flops(2.0 * self.batch as f64 * self.m as f64 * self.n as f64 * self.k as f64)
    }

    /// A and B read, C written, bias read.
    pub fn traffic(&self, dtype: Dtype) -> Traffic {
        let (b, m, n, k) = (self.batch as f64, self.m as f64, self.n as f64, self.k as f64);
        let bias = if self.bias { n } else { 0.0 };
        let e = dtype.size();
        // fp8 and fp4 products write a 16-bit result.
        let out = if e < 2.0 { 2.0 } else { e };
        let mut t = Traffic::elements(b * (m * k + k * n) + bias, 0.0, e);
        t.written.0 = b * m * n * out;
        t
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hand_computed() {
        let g = Gemm::linear(64, 1000, 2048, true);
        // 2 * 64 * 1000 * 2048 = 262,144,000
        assert_eq!(g.flops().0, 262_144_000.0);
        // read 64*2048 + 2048*1000 + 1000 = 2,180,072 elements; written 64,000; fp32
        let t = g.traffic(Dtype::Fp32);
        assert_eq!(t.read.0, 4.0 * 2_180_072.0);
        assert_eq!(t.written.0, 256_000.0);
    }
}
