//! Elementwise arithmetic, casts, copies and dropout: how many tensors each reads and writes.

use super::Traffic;
use preflop_units::dtype::Dtype;
use preflop_units::{Bytes, Flops};
use serde::{Deserialize, Serialize};

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident $name:literal reads $r:literal writes $w:literal flops $f:literal mask $m:literal;)*) => {
        /// Which elementwise operator.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum ElementwiseKind {
            $($(#[$doc])* $variant,)*
        }

        impl ElementwiseKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name used in operator files.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Tensors read, tensors written, operations per element, bytes of masks per element.
            pub fn arity(self) -> (f64, f64, f64, f64) {
                match self { $(Self::$variant => ($r, $w, $f, $m),)* }
            }
        }
    };
}

kinds! {
    /// `a + b`.
    Add "add" reads 2.0 writes 1.0 flops 1.0 mask 0.0;
    /// `a * b`.
    Mul "mul" reads 2.0 writes 1.0 flops 1.0 mask 0.0;
    /// `a + c`.
    AddScalar "add_scalar" reads 1.0 writes 1.0 flops 1.0 mask 0.0;
    /// A row vector added to each row.
    AddBias "add_bias" reads 1.0 writes 1.0 flops 1.0 mask 0.0;
    /// Rectifier.
    Relu "relu" reads 1.0 writes 1.0 flops 1.0 mask 0.0;
    /// Rectifier capped at 6.
    Relu6 "relu6" reads 1.0 writes 1.0 flops 2.0 mask 0.0;
    /// Rectifier with a slope below 0.
    LeakyRelu "leaky_relu" reads 1.0 writes 1.0 flops 2.0 mask 0.0;
    /// `x * relu6(x + 3) / 6`.
    Hardswish "hardswish" reads 1.0 writes 1.0 flops 5.0 mask 0.0;
    /// `a * c`.
    MulScalar "mul_scalar" reads 1.0 writes 1.0 flops 1.0 mask 0.0;
    /// A row or column vector multiplied into a matrix.
    MulVector "mul_row" reads 1.0 writes 1.0 flops 1.0 mask 0.0;
    /// Exponential.
    Exp "exp" reads 1.0 writes 1.0 flops 4.0 mask 0.0;
    /// Square root.
    Sqrt "sqrt" reads 1.0 writes 1.0 flops 4.0 mask 0.0;
    /// Gaussian error linear unit.
    Gelu "gelu" reads 1.0 writes 1.0 flops 8.0 mask 0.0;
    /// Hyperbolic tangent.
    Tanh "tanh" reads 1.0 writes 1.0 flops 6.0 mask 0.0;
    /// Logistic function.
    Sigmoid "sigmoid" reads 1.0 writes 1.0 flops 5.0 mask 0.0;
    /// `x * sigmoid(x)`.
    Silu "silu" reads 1.0 writes 1.0 flops 6.0 mask 0.0;
    /// `x ^ c`.
    Pow "pow" reads 1.0 writes 1.0 flops 4.0 mask 0.0;
    /// Copy within a number format.
    Copy "copy" reads 1.0 writes 1.0 flops 0.0 mask 0.0;
    /// Copy into another number format (fp32 to bf16, anything else to fp32).
    Cast "cast" reads 1.0 writes 1.0 flops 0.0 mask 0.0;
    /// Constant written.
    Fill "fill" reads 0.0 writes 1.0 flops 0.0 mask 0.0;
    /// Dropout with its mask.
    Dropout "dropout" reads 1.0 writes 1.0 flops 2.0 mask 1.0;
    /// Choice by a mask.
    Where "where" reads 2.0 writes 1.0 flops 0.0 mask 1.0;
    /// Backward of the rectifier.
    ReluBwd "relu_bwd" reads 2.0 writes 1.0 flops 1.0 mask 0.0;
    /// Backward of relu6.
    Relu6Bwd "relu6_bwd" reads 2.0 writes 1.0 flops 2.0 mask 0.0;
    /// Backward of the leaky rectifier.
    LeakyReluBwd "leaky_relu_bwd" reads 2.0 writes 1.0 flops 2.0 mask 0.0;
    /// Backward of hardswish.
    HardswishBwd "hardswish_bwd" reads 2.0 writes 1.0 flops 6.0 mask 0.0;
    /// Backward of gelu.
    GeluBwd "gelu_bwd" reads 2.0 writes 1.0 flops 14.0 mask 0.0;
    /// Backward of tanh.
    TanhBwd "tanh_bwd" reads 2.0 writes 1.0 flops 3.0 mask 0.0;
    /// Backward of the logistic function.
    SigmoidBwd "sigmoid_bwd" reads 2.0 writes 1.0 flops 3.0 mask 0.0;
    /// Backward of silu.
    SiluBwd "silu_bwd" reads 2.0 writes 1.0 flops 10.0 mask 0.0;
    /// Backward of dropout.
    DropoutBwd "dropout_bwd" reads 1.0 writes 1.0 flops 1.0 mask 1.0;
    /// `a + b` of fp32 and a 16-bit format.
    AddMixed "add_mixed" reads 1.5 writes 1.0 flops 1.0 mask 0.0;
    /// `a * b` of fp32 and a 16-bit format.
    MulMixed "mul_mixed" reads 1.5 writes 1.0 flops 1.0 mask 0.0;
    /// `a + b` of tensors that lie differently in memory.
    AddStrided "add_strided" reads 2.0 writes 1.0 flops 1.0 mask 0.0;
    /// `a * b` of tensors that lie differently in memory.
    MulStrided "mul_strided" reads 2.0 writes 1.0 flops 1.0 mask 0.0;
    /// A number per channel added to NCHW maps, or any other broadcast than that of a row vector of the same format.
    AddChannel "add_channel" reads 1.0 writes 1.0 flops 1.0 mask 0.0;
    /// A constant where a mask says so, into a new tensor: a copy, then the filling.
    MaskedFill "masked_fill" reads 2.0 writes 2.0 flops 0.0 mask 1.0;
}

/// How the two operands of an elementwise function go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairing {
    /// Same format, same places in memory.
    Alike,
    /// One is a row vector, or a single number.
    Row,
    /// One is broadcast in another way, or in another format.
    Channel,
    /// fp32 and a 16-bit format.
    Mixed,
    /// They lie differently in memory.
    Strided,
}

impl ElementwiseKind {
    /// The kernel of a sum, or of a product, of two tensors.
    pub fn of_pair(product: bool, pairing: Pairing) -> Self {
        match (pairing, product) {
            // A broadcast operand costs no traffic to speak of.
            (Pairing::Row, _) => Self::AddBias,
            (Pairing::Channel, _) => Self::AddChannel,
            (Pairing::Alike, false) => Self::Add,
            (Pairing::Alike, true) => Self::Mul,
            (Pairing::Mixed, false) => Self::AddMixed,
            (Pairing::Mixed, true) => Self::MulMixed,
            (Pairing::Strided, false) => Self::AddStrided,
            (Pairing::Strided, true) => Self::MulStrided,
        }
    }

    /// The same arithmetic on whole tensors of one format, where this kind computes an offset or converts a format for
    /// every element.
    pub fn plain(self) -> Option<Self> {
        Some(match self {
            Self::AddMixed | Self::AddStrided => Self::Add,
            Self::MulMixed | Self::MulStrided => Self::Mul,
            Self::AddChannel => Self::AddBias,
            _ => return None,
        })
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = match name {
            "add_inplace" => "add",
            "relu_inplace" => "relu",
            "native_dropout" => "dropout",
            "mul_col" => "mul_row",
            "square" => "pow",
            other => other,
        };
        Self::ALL.iter().copied().find(|k| k.name() == name)
    }
}

/// An elementwise operator over `n` elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Elementwise {
    /// Which operator.
    pub kind: ElementwiseKind,
    /// Elements of the output.
    pub n: u64,
}

impl Elementwise {
    /// Operations per element as in the table of kinds.
    pub fn flops(&self) -> Flops {
        Flops(self.kind.arity().2 * self.n as f64)
    }

    /// Tensors read and written; a cast writes the other width.
    pub fn traffic(&self, dtype: Dtype) -> Traffic {
        let (r, w, _, mask) = self.kind.arity();
        let n = self.n as f64;
        let e = dtype.size();
        let out = match (self.kind, dtype) {
            (ElementwiseKind::Cast, Dtype::Fp32 | Dtype::Tf32) => 2.0,
            (ElementwiseKind::Cast, _) => 4.0,
            _ => e,
        };
        let (mask_read, mask_written) =
            if self.kind == ElementwiseKind::Dropout { (0.0, mask) } else { (mask, 0.0) };
        Traffic { read: Bytes(n * (r * e + mask_read)), written: Bytes(n * (w * out + mask_written)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hand_computed() {
        let t = |kind, d| Elementwise { kind, n: 100 }.traffic(d).total().0;
        assert_eq!(t(ElementwiseKind::Add, Dtype::Fp32), 1200.0);
        assert_eq!(t(ElementwiseKind::Cast, Dtype::Fp32), 600.0);
        assert_eq!(t(ElementwiseKind::Dropout, Dtype::Bf16), 500.0);
        assert_eq!(ElementwiseKind::from_name("silu_bwd"), Some(ElementwiseKind::SiluBwd));
    }
}
