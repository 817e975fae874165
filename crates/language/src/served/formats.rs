//! Number formats of a server: those of the layers' weights, and those of keys and values.

use super::products::Operands;
use preflop_core::Gpu;
use preflop_core::dtype::Dtype;
use preflop_core::model::zoo::config::Stored;

/// Format of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightFormat {
    /// 16 bits.
    Bf16,
    /// 8-bit floats, multiplied as such; activations are quantised row by row.
    Fp8,
    /// 8-bit floats with a scale for each block of 128 x 128, multiplied as such; activations are quantised in groups of 128.
    Fp8Block,
    /// 8-bit integers, widened before they are multiplied.
    Int8,
    /// 4-bit integers with a scale for every 128, widened before they are multiplied.
    Int4,
    /// 4-bit floats with a scale for every 16, multiplied as such.
    Nvfp4,
    /// 4-bit floats with a scale for every 32: multiplied as such where the GPU can, widened before elsewhere.
    Mxfp4,
}

impl WeightFormat {
    /// All, in the order of the command line's help.
    pub const ALL: [Self; 7] =
        [Self::Bf16, Self::Fp8, Self::Fp8Block, Self::Int8, Self::Int4, Self::Nvfp4, Self::Mxfp4];

    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        self.stored().map_or("bf16", Stored::name)
    }

    /// As a checkpoint says it; nothing for 16 bits.
    fn stored(self) -> Option<Stored> {
        Some(match self {
            Self::Bf16 => return None,
            Self::Fp8 => Stored::Fp8,
            Self::Fp8Block => Stored::Fp8Block,
            Self::Int8 => Stored::Int8,
            Self::Int4 => Stored::Int4,
            Self::Nvfp4 => Stored::Nvfp4,
            Self::Mxfp4 => Stored::Mxfp4,
        })
    }

    /// Bytes of one weight with its share of scales.
    pub fn bytes(self) -> f64 {
        match self {
            Self::Bf16 => 2.0,
            Self::Fp8 | Self::Int8 => 1.0,
            // 32 bits for every 128 x 128
            Self::Fp8Block => 1.0 + 4.0 / 16_384.0,
            // 16 bits for every 128
            Self::Int4 => 0.5 + 2.0 / 128.0,
            // 8 bits for every 16
            Self::Nvfp4 => 0.5 + 1.0 / 16.0,
            // 8 bits for every 32
            Self::Mxfp4 => 0.5 + 1.0 / 32.0,
        }
    }

    /// Format in which products are done on a GPU.
    pub fn math(self, gpu: &Gpu) -> Dtype {
        match self {
            Self::Fp8 | Self::Fp8Block => Dtype::Fp8,
            Self::Nvfp4 => Dtype::Fp4,
            Self::Mxfp4 if gpu.has_tensor(Dtype::Fp4) => Dtype::Fp4,
            Self::Bf16 | Self::Int8 | Self::Int4 | Self::Mxfp4 => Dtype::Bf16,
        }
    }

    /// Are weights widened before a GPU multiplies them?
    pub fn widened(self, gpu: &Gpu) -> bool {
        self != Self::Bf16 && self.math(gpu) == Dtype::Bf16
    }

    /// What a product on a GPU multiplies, unless it is 16 bits.
    pub fn operands(self, gpu: &Gpu) -> Option<Operands> {
        match self {
            Self::Fp8 => Some(Operands::Fp8),
            Self::Fp8Block => Some(Operands::Fp8Blocks),
            Self::Nvfp4 | Self::Mxfp4 => (self.math(gpu) == Dtype::Fp4).then_some(Operands::Nvfp4),
            Self::Bf16 | Self::Int8 | Self::Int4 => None,
        }
    }

    /// The format that a checkpoint is kept in; 16 bits where it says none, `None` where it is not known.
    pub fn of(stored: Option<Stored>) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.stored() == stored)
    }

    /// What a GPU lacks for it.
    pub fn lacks(self, gpu: &Gpu) -> Option<String> {
        let math = self.math(gpu);
        let lacking = !(gpu.has_tensor(math) || math == Dtype::Bf16 && gpu.has(gpu.autocast()));
        lacking.then(|| {
            let known: Vec<&str> = Self::ALL
                .into_iter()
                .filter(|f| *f != self && f.lacks_nothing(gpu))
                .map(Self::name)
                .collect();
            format!(
                "`{}` does not multiply {}; it takes weights in {}",
                gpu.name,
                self.name(),
                known.join(", ")
            )
        })
    }

    fn lacks_nothing(self, gpu: &Gpu) -> bool {
        let math = self.math(gpu);
        gpu.has_tensor(math) || math == Dtype::Bf16
    }
}

/// Format of keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvFormat {
    /// 16 bits.
    Bf16,
    /// 8-bit floats with a scale for a layer; scores are computed in them where the GPU can.
    Fp8,
    /// 8-bit integers with a scale and a zero of 16 bits for each vector of a token and head, widened before scores are computed.
    Int8,
    /// 4-bit floats with a scale of 8 bits for every 16 (as nvfp4), widened before scores are computed.
    Fp4,
}

impl KvFormat {
    /// All, in the order of the command line's help.
    pub const ALL: [Self; 4] = [Self::Bf16, Self::Fp8, Self::Int8, Self::Fp4];

    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
            Self::Int8 => "int8",
            Self::Fp4 => "fp4",
        }
    }

    /// Bytes of one number of a vector of so many, with its share of scales.
    pub fn bytes(self, vector: f64) -> f64 {
        match self {
            Self::Bf16 => 2.0,
            Self::Fp8 => 1.0,
            Self::Int8 => 1.0 + 4.0 / vector.max(1.0),
            Self::Fp4 => 0.5 + 1.0 / 16.0,
        }
    }

    /// Format in which scores are computed.
    pub fn math(self, gpu: &Gpu) -> Dtype {
        match self {
            Self::Fp8 if gpu.has_tensor(Dtype::Fp8) => Dtype::Fp8,
            _ => gpu.autocast(),
        }
    }

    /// Was attention with such a cache measured on any GPU?
    pub fn measured(self) -> bool {
        matches!(self, Self::Bf16 | Self::Fp8)
    }

    /// What a GPU lacks for it. Integers are widened by any.
    pub fn lacks(self, gpu: &Gpu) -> Option<String> {
        let needed = match self {
            Self::Bf16 | Self::Int8 => return None,
            Self::Fp8 => Dtype::Fp8,
            Self::Fp4 => Dtype::Fp4,
        };
        (!gpu.has(needed)).then(|| {
            format!("`{}` has no {}, so keys and values cannot be kept in it", gpu.name, self.name())
        })
    }
}

/// Formats of weights and of keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Formats {
    /// Of the layers' weights; embedding and output layer stay in 16 bits.
    pub weights: WeightFormat,
    /// Of keys and values.
    pub kv: KvFormat,
}

impl Formats {
    /// The formats asked for, or those of the checkpoint and 16 bits; or why a GPU cannot, with what to do.
    pub fn choose(
        weights: Option<WeightFormat>,
        kv: Option<KvFormat>,
        stored: Option<Stored>,
        gpu: &Gpu,
    ) -> Result<Self, Unfit> {
        let weights = weights.or_else(|| WeightFormat::of(stored)).ok_or_else(|| {
            Unfit::Weights("`quantization_config.quant_method` of this checkpoint is not known".to_string())
        })?;
        let kv = kv.unwrap_or(KvFormat::Bf16);
        if let Some(lacks) = weights.lacks(gpu) {
            return Err(Unfit::Weights(lacks));
        }
        kv.lacks(gpu).map_or(Ok(Self { weights, kv }), |lacks| Err(Unfit::Kv(lacks)))
    }
}

/// A format that cannot be, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// Of the weights.
    Weights(String),
    /// Of keys and values.
    Kv(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_core::gpu::catalog;

    #[test]
    fn what_a_gpu_lacks_is_refused() {
        let lacks = |gpu: &str, f: WeightFormat| f.lacks(&catalog::find(gpu).unwrap());
        assert!(lacks("h200", WeightFormat::Nvfp4).unwrap().contains("fp8"));
        assert!(
            lacks("a100", WeightFormat::Fp8).is_some() && lacks("a100", WeightFormat::Fp8Block).is_some()
        );
        assert!(lacks("b200", WeightFormat::Nvfp4).is_none());
        assert!(lacks("a100", WeightFormat::Int4).is_none());
        // Widened where they are not multiplied as such.
        let h200 = catalog::find("h200").unwrap();
        assert!(lacks("h200", WeightFormat::Mxfp4).is_none() && WeightFormat::Mxfp4.widened(&h200));
        assert!(!WeightFormat::Mxfp4.widened(&catalog::find("b200").unwrap()));
        let kv = |gpu: &str, f: KvFormat| f.lacks(&catalog::find(gpu).unwrap());
        assert!(kv("a100", KvFormat::Fp8).is_some() && kv("a100", KvFormat::Int8).is_none());
        assert!(kv("h200", KvFormat::Fp4).is_some() && kv("b200", KvFormat::Fp4).is_none());
    }

    #[test]
    fn scales_are_counted() {
        // 128 bytes and two numbers of 16 bits; 64 bytes and 8 scales of one byte
        assert!((128.0 * KvFormat::Int8.bytes(128.0) - 132.0).abs() < 1e-9);
        assert!((128.0 * KvFormat::Fp4.bytes(128.0) - 72.0).abs() < 1e-9);
        // 128 x 128 bytes and one number of 32 bits
        assert!((16_384.0 * WeightFormat::Fp8Block.bytes() - 16_388.0).abs() < 1e-6);
    }
}
