//! Which number format each operator runs in, and the casts that autocast inserts.
//!
//! Under autocast, products run in bf16 (inputs and parameters are cast, parameters once per iteration), and
//! `layer_norm`, `softmax`, `pow`, `rsqrt`, `exp` and the losses in fp32; all else takes what comes and promotes.

use super::backward::Backward;
use super::{Lowering, Value};
use preflop_graph::Precision;
use preflop_ops::ElementwiseKind;
use preflop_units::dtype::Dtype;

/// The number formats of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Policy {
    /// Of parameters and of activations that no rule changes.
    pub tensor: Dtype,
    /// Products of fp32 tensors are done in this.
    pub fp32_math: Dtype,
    /// What cuDNN does with fp32 tensors (convolutions, recurrent layers): PyTorch has a flag of its own for it.
    pub fp32_cudnn: Dtype,
    /// The lower format of autocast, if it is on.
    pub autocast: Option<Dtype>,
    /// Do linear layers multiply in fp8?
    pub fp8_linear: bool,
}

impl Policy {
    pub fn of(precision: Precision) -> Self {
        let plain = |tensor| Self {
            tensor,
            fp32_math: Dtype::Fp32,
            fp32_cudnn: Dtype::Fp32,
            autocast: None,
            fp8_linear: false,
        };
        match precision {
            Precision::Pytorch => Self { fp32_cudnn: Dtype::Tf32, ..plain(Dtype::Fp32) },
            Precision::Fp32 => plain(Dtype::Fp32),
            Precision::Tf32 => Self { fp32_math: Dtype::Tf32, fp32_cudnn: Dtype::Tf32, ..plain(Dtype::Fp32) },
            Precision::Amp => Self { autocast: Some(Dtype::Bf16), ..plain(Dtype::Fp32) },
            Precision::Bf16 => plain(Dtype::Bf16),
            Precision::Fp16 => plain(Dtype::Fp16),
            Precision::Fp8 => Self { fp8_linear: true, ..plain(Dtype::Bf16) },
        }
    }

    /// The format in which tensors of `dtype` are multiplied.
    pub fn math(self, dtype: Dtype) -> Dtype {
        if dtype == Dtype::Fp32 { self.fp32_math } else { dtype }
    }

    /// The format in which cuDNN works on tensors of `dtype`.
    pub fn cudnn_math(self, dtype: Dtype) -> Dtype {
        if dtype == Dtype::Fp32 { self.fp32_cudnn } else { dtype }
    }

    /// The format in which a linear layer multiplies tensors of `dtype`.
    pub fn linear_math(self, dtype: Dtype) -> Dtype {
        if self.fp8_linear { Dtype::Fp8 } else { self.math(dtype) }
    }
}

impl Lowering<'_> {
    /// `x.to(dtype)`: a copy unless it already is.
    pub(super) fn cast(&mut self, x: Value, dtype: Dtype) -> Value {
        if x.dtype == dtype || x.dtype == Dtype::Int64 {
            return x;
        }
        self.ops(1);
        let strides = x.shape.dense_like(&x.strides);
        let out = self.alloc_strided(x.shape, strides, dtype);
        self.elementwise(ElementwiseKind::Cast, x.numel(), x.dtype);
        self.flow(&[x], &[out]);
        self.record1(Backward::Cast, &[x], &[], out)
    }

    /// What a product takes: the lower format under autocast.
    pub(super) fn lowered(&mut self, x: Value) -> Value {
        match self.policy.autocast {
            Some(lower) if x.dtype == Dtype::Fp32 || x.dtype.is_half() => self.cast(x, lower),
            _ => x,
        }
    }

    /// What recurrent layers take: fp16 under autocast, whatever its format (`_cudnn_rnn_cast_reflatten` in ATen/cudnn/AutocastRNN.cpp says `at::kHalf`).
    pub(super) fn in_fp16(&mut self, x: Value) -> Value {
        if self.policy.autocast.is_some() { self.cast(x, Dtype::Fp16) } else { x }
    }

    /// What numerically delicate operators take: fp32 under autocast.
    pub(super) fn in_full(&mut self, x: Value) -> Value {
        if self.policy.autocast.is_some() && x.dtype.is_half() { self.cast(x, Dtype::Fp32) } else { x }
    }

    /// A parameter as a product takes it: cast once per iteration under autocast and then cached.
    pub(super) fn lower_parameter(&mut self, p: u32) -> Value {
        if self.policy.autocast.is_none() || self.graph.parameters[p as usize].packed {
            return self.parameter(p);
        }
        if let Some(v) = self.cast_cache[p as usize] {
            return v;
        }
        let full = self.parameter(p);
        let v = self.lowered(full);
        if self.flows.is_some() && !self.training {
            // A compiled forward drops what it has cast after the last use.
            return v;
        }
        self.memory.retain(v.storage);
        self.cast_cache[p as usize] = Some(v);
        v
    }
}
