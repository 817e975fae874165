//! Operators over image-shaped tensors: batch and group norm, pooling.

use super::{Pass, Traffic};
use preflop_units::{Bytes, Flops};
use serde::{Deserialize, Serialize};

/// Which operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpatialKind {
    /// Batch norm with batch statistics, by cuDNN.
    BatchNorm,
    /// Batch norm with batch statistics, by PyTorch's own three kernels (bf16 in NCHW under autocast).
    BatchNormNative,
    /// Batch norm with stored statistics.
    BatchNormEval,
    /// Group norm.
    GroupNorm,
    /// Max pooling.
    MaxPool,
    /// Average pooling.
    AvgPool,
    /// Average over the whole map.
    GlobalAvgPool,
    /// Average pooling to a given size of more than one place.
    AdaptiveAvgPool,
}

impl SpatialKind {
    /// The name used in operator files.
    pub fn name(self) -> &'static str {
        match self {
            Self::BatchNorm => "batchnorm",
            Self::BatchNormNative => "batchnorm_native",
            Self::BatchNormEval => "batchnorm_eval",
            Self::GroupNorm => "groupnorm",
            Self::MaxPool => "maxpool",
            Self::AvgPool => "avgpool",
            Self::GlobalAvgPool => "gap",
            Self::AdaptiveAvgPool => "adaptive_avgpool",
        }
    }
}

/// An operator over a batch of feature maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Spatial {
    /// Which operator.
    pub kind: SpatialKind,
    /// Images.
    pub batch: u64,
    /// Channels.
    pub channels: u64,
    /// Input height.
    pub h: u64,
    /// Input width.
    pub w: u64,
    /// Pooling window side (1 where there is none).
    pub window: u64,
    /// Pooling stride (1 where there is none).
    pub stride: u64,
    /// Pooling padding.
    pub pad: u64,
    /// Channels last in memory?
    pub channels_last: bool,
    /// Groups of channels that a group norm takes together (1 elsewhere).
    #[serde(default = "one")]
    pub groups: u64,
}

fn one() -> u64 {
    1
}

impl Spatial {
    /// A norm over square or rectangular maps.
    pub fn norm(kind: SpatialKind, batch: u64, channels: u64, h: u64, w: u64, channels_last: bool) -> Self {
        Self { kind, batch, channels, h, w, window: 1, stride: 1, pad: 0, channels_last, groups: 1 }
    }

    /// Elements of the input.
    pub fn input(&self) -> f64 {
        self.batch as f64 * self.channels as f64 * self.h as f64 * self.w as f64
    }

    /// Output height.
    pub fn oh(&self) -> u64 {
        self.out(self.h)
    }

    /// Output width.
    pub fn ow(&self) -> u64 {
        self.out(self.w)
    }

    fn out(&self, size: u64) -> u64 {
        match self.kind {
            SpatialKind::GlobalAvgPool => 1,
            SpatialKind::MaxPool | SpatialKind::AvgPool | SpatialKind::AdaptiveAvgPool => {
                (size + 2 * self.pad).saturating_sub(self.window) / self.stride.max(1) + 1
            }
            _ => size,
        }
    }

    /// Elements of the output.
    pub fn output(&self) -> f64 {
        self.batch as f64 * self.channels as f64 * self.oh() as f64 * self.ow() as f64
    }

    /// Norms: 7 per element (moments, scale, shift; 2 with stored statistics); pooling: window per output.
    pub fn flops(&self, pass: Pass) -> Flops {
        let factor = if pass == Pass::Fwd { 1.0 } else { 1.5 };
        let work = match self.kind {
            SpatialKind::BatchNorm | SpatialKind::BatchNormNative | SpatialKind::GroupNorm => {
                7.0 * self.input()
            }
            SpatialKind::BatchNormEval => 2.0 * self.input(),
            SpatialKind::MaxPool | SpatialKind::AvgPool | SpatialKind::AdaptiveAvgPool => {
                self.output() * (self.window * self.window) as f64
            }
            SpatialKind::GlobalAvgPool => self.input(),
        };
        Flops(work * factor)
    }

    /// Norms with batch statistics must see the input twice; max pooling also writes 8-byte indices.
    pub fn traffic(&self, pass: Pass, e: f64) -> Traffic {
        let (x, y) = (self.input(), self.output());
        let index = if self.kind == SpatialKind::MaxPool { 8.0 } else { 0.0 };
        let norm = matches!(
            self.kind,
            SpatialKind::BatchNorm | SpatialKind::BatchNormNative | SpatialKind::GroupNorm
        );
        match (norm, pass) {
            (true, Pass::Fwd) => Traffic::elements(2.0 * x, x, e),
            (true, _) => Traffic::elements(4.0 * x, x, e),
            (false, Pass::Fwd) => Traffic { read: Bytes(x * e), written: Bytes(y * (e + index)) },
            (false, _) => Traffic { read: Bytes(y * (e + index)), written: Bytes(x * e) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resnet_max_pool() {
        let p = Spatial {
            window: 3,
            stride: 2,
            pad: 1,
            ..Spatial::norm(SpatialKind::MaxPool, 1, 64, 112, 112, false)
        };
        assert_eq!(p.oh(), 56);
        // 64*56*56 outputs of 9 compares
        assert_eq!(p.flops(Pass::Fwd).0, 64.0 * 56.0 * 56.0 * 9.0);
        // read 64*112*112*4, written 64*56*56*(4+8)
        assert_eq!(p.traffic(Pass::Fwd, 4.0).total().0, 3_211_264.0 + 2_408_448.0);
    }
}
