//! Optimizer steps over `params` parameters held in `tensors` tensors.

use super::Traffic;
use preflop_units::{Bytes, Flops};
use serde::{Deserialize, Serialize};

/// Which implementation runs: they launch very different numbers of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptimizerKind {
    /// Adam or AdamW, fused into a few kernels.
    AdamFused,
    /// Adam, one tensor at a time: seven kernels each.
    AdamSingle,
    /// Adam over lists of tensors.
    AdamForeach,
    /// SGD with momentum over lists of tensors.
    SgdForeach,
    /// Plain SGD over lists of tensors.
    SgdPlain,
}

impl OptimizerKind {
    /// The name used in operator files.
    pub fn name(self) -> &'static str {
        match self {
            Self::AdamFused => "adam",
            Self::AdamSingle => "adam_single",
            Self::AdamForeach => "adam_foreach",
            Self::SgdForeach => "sgd_foreach",
            Self::SgdPlain => "sgd_plain",
        }
    }

    /// Elements read and written per parameter.
    ///
    /// Fused Adam: p, g, m, v read; p, m, v written (28 bytes in fp32). Single and foreach Adam run seven passes:
    /// lerp 2r1w, mul 1r1w, addcmul 2r1w, sqrt 1r1w, div 1r1w, add 1r1w, addcdiv 3r1w. Momentum SGD: buffer
    /// mul 1r1w, add gradient 2r1w, add to the parameter 2r1w.
    fn passes(self) -> (f64, f64) {
        match self {
            Self::AdamFused => (4.0, 3.0),
            Self::AdamSingle | Self::AdamForeach => (11.0, 7.0),
            Self::SgdForeach => (5.0, 3.0),
            Self::SgdPlain => (2.0, 1.0),
        }
    }
}

/// One optimizer step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Optimizer {
    /// Which implementation.
    pub kind: OptimizerKind,
    /// Parameters in all.
    pub params: u64,
    /// Tensors they are held in.
    pub tensors: u64,
}

impl Optimizer {
    /// Arithmetic per parameter: Adam 12, SGD 4.
    pub fn flops(&self) -> Flops {
        let per = match self.kind {
            OptimizerKind::SgdForeach | OptimizerKind::SgdPlain => 4.0,
            _ => 12.0,
        };
        Flops(per * self.params as f64)
    }

    /// Every pass over the state, in elements of `e` bytes: parameters, gradients and states have one format.
    pub fn traffic(&self, e: f64) -> Traffic {
        let (r, w) = self.kind.passes();
        let n = self.params as f64 * e;
        Traffic { read: Bytes(n * r), written: Bytes(n * w) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fused_adam_moves_28_bytes_a_parameter() {
        let o = Optimizer { kind: OptimizerKind::AdamFused, params: 100, tensors: 1 };
        assert_eq!(o.traffic(4.0).total().0, 2800.0);
        assert_eq!(o.traffic(2.0).total().0, 1400.0);
    }
}
