//! Number formats of a run.

use serde::{Deserialize, Serialize};

/// Number formats of a run, as users name them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// What PyTorch does unless told otherwise: fp32 tensors and products, TF32 in what cuDNN computes (convolutions and recurrent
    /// layers) where the GPU has it (`torch.backends.cudnn.allow_tf32`).
    #[default]
    Pytorch,
    /// fp32 everywhere, TF32 off.
    Fp32,
    /// fp32 tensors, TF32 in products and convolutions.
    Tf32,
    /// Autocast over fp32 weights: bf16, or fp16 on GPUs without it.
    Amp,
    /// Weights and activations in bf16.
    Bf16,
    /// Weights and activations in fp16.
    Fp16,
    /// bf16 tensors, fp8 products in linear layers.
    Fp8,
}

impl Precision {
    /// All, in the order of the command line's help.
    pub const ALL: [Self; 7] =
        [Self::Pytorch, Self::Fp32, Self::Tf32, Self::Amp, Self::Bf16, Self::Fp16, Self::Fp8];

    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pytorch => "pytorch",
            Self::Fp32 => "fp32",
            Self::Tf32 => "tf32",
            Self::Amp => "amp",
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
            Self::Fp8 => "fp8",
        }
    }

    /// Are tensors fp32 and is autocast off? Then a narrower format is left to try.
    pub fn is_full(self) -> bool {
        matches!(self, Self::Pytorch | Self::Fp32 | Self::Tf32)
    }

    /// Bytes of a weight.
    pub fn weight_bytes(self) -> f64 {
        match self {
            Self::Bf16 | Self::Fp16 | Self::Fp8 => 2.0,
            Self::Pytorch | Self::Fp32 | Self::Tf32 | Self::Amp => 4.0,
        }
    }

    /// The name in a sentence; PyTorch's default is spelled out, as the GPU at hand runs it.
    pub fn words(self, has_tf32: bool) -> &'static str {
        match self {
            Self::Pytorch if has_tf32 => "PyTorch's default (TF32 convolutions, fp32 products)",
            Self::Pytorch => "PyTorch's default (fp32: no TF32 here)",
            named => named.name(),
        }
    }
}
