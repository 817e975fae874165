//! Number formats: how wide an element is in memory and which pipe multiplies it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A number format. `Tf32` is a way to multiply: in memory it is a 4-byte float.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// 64-bit float.
    Fp64,
    /// 32-bit float, multiplied exactly (no TF32).
    Fp32,
    /// 32-bit float in memory, multiplied on tensor cores with a 10-bit mantissa.
    Tf32,
    /// bfloat16.
    Bf16,
    /// IEEE half.
    Fp16,
    /// 8-bit float (e4m3 or e5m2).
    Fp8,
    /// 4-bit float.
    Fp4,
    /// 8-bit integer.
    Int8,
    /// 64-bit integer: indices and targets.
    Int64,
}

impl Dtype {
    /// All formats that a matrix product can be done in.
    pub const MATH: [Self; 8] =
        [Self::Fp64, Self::Fp32, Self::Tf32, Self::Bf16, Self::Fp16, Self::Fp8, Self::Fp4, Self::Int8];

    /// Bytes an element takes in memory (half a byte for 4-bit formats).
    pub fn size(self) -> f64 {
        match self {
            Self::Fp64 | Self::Int64 => 8.0,
            Self::Fp32 | Self::Tf32 => 4.0,
            Self::Bf16 | Self::Fp16 => 2.0,
            Self::Fp8 | Self::Int8 => 1.0,
            Self::Fp4 => 0.5,
        }
    }

    /// Is this one of the two 16-bit float formats?
    pub fn is_half(self) -> bool {
        matches!(self, Self::Bf16 | Self::Fp16)
    }

    /// Do NVIDIA GPUs of today multiply this format on tensor cores?
    pub fn on_tensor_cores(self) -> bool {
        !matches!(self, Self::Fp32 | Self::Int64)
    }

    /// The name used in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fp64 => "fp64",
            Self::Fp32 => "fp32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
            Self::Fp8 => "fp8",
            Self::Fp4 => "fp4",
            Self::Int8 => "int8",
            Self::Int64 => "int64",
        }
    }

    /// The format of that name, as PyTorch or as we write it.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "fp64" | "float64" | "double" => Self::Fp64,
            "fp32" | "float32" | "float" => Self::Fp32,
            "tf32" => Self::Tf32,
            "bf16" | "bfloat16" => Self::Bf16,
            "fp16" | "float16" | "half" => Self::Fp16,
            "fp8" | "float8" | "e4m3" | "float8_e4m3fn" => Self::Fp8,
            "fp4" | "nvfp4" => Self::Fp4,
            "int8" => Self::Int8,
            "int64" => Self::Int64,
            _ => return None,
        })
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for d in Dtype::MATH {
            assert_eq!(Dtype::from_name(d.name()), Some(d));
        }
    }
}
