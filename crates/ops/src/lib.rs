//! The operators: what a network asks of a GPU, with shapes, number formats and layout.
//!
//! An [`OpCall`] is one call of one library operator, in one direction (forward, backward, data or
//! weight gradient). Each operator knows its FLOPs and its compulsory traffic: every input byte read
//! once, every output byte written once. How a library does it is the business of `kernels`.

mod attention;
mod conv;
mod elementwise;
mod fused;
mod gemm;
mod indexing;
mod listed;
mod movement;
mod optimizer;
mod rnn;
pub mod row;
mod rowwise;
pub mod shape;
mod sizes;
mod spatial;
mod vision;

pub use attention::Attention;
pub use conv::Conv;
pub use elementwise::{Elementwise, ElementwiseKind, Pairing};
pub use fused::{Fused, FusedForm, FusedTraits};
pub use gemm::{Gemm, GemmKind, Layout};
pub use indexing::{CrossEntropy, Embedding};
pub use listed::{Listed, ListedKind, Phases};
pub use movement::{Movement, MovementKind};
pub use optimizer::{Optimizer, OptimizerKind};
pub use rnn::{Rnn, RnnKind};
pub use rowwise::{Rowwise, RowwiseKind};
pub use spatial::{Spatial, SpatialKind};
pub use vision::{Interpolate, Nms, Resize, RoiAlign};

use preflop_units::dtype::Dtype;
use preflop_units::{Bytes, Flops};
use serde::{Deserialize, Serialize};

/// The direction of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pass {
    /// Forward.
    Fwd,
    /// The whole backward of an operator.
    Bwd,
    /// Gradient with respect to the data input.
    Dgrad,
    /// Gradient with respect to the weight.
    Wgrad,
}

impl Pass {
    /// The name used in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fwd => "fwd",
            Self::Bwd => "bwd",
            Self::Dgrad => "dgrad",
            Self::Wgrad => "wgrad",
        }
    }

    /// The pass of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "fwd" => Self::Fwd,
            "bwd" => Self::Bwd,
            "dgrad" => Self::Dgrad,
            "wgrad" => Self::Wgrad,
            _ => return None,
        })
    }
}

/// An operator with its shape.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Matrix product: mm, linear, batched.
    Gemm(Gemm),
    /// 2-D convolution, also transposed.
    Conv(Conv),
    /// Fused scaled-dot-product attention.
    Attention(Attention),
    /// LSTM, GRU or plain recurrent layers.
    Rnn(Rnn),
    /// Softmax, layer and RMS norm, row and column sums.
    Rowwise(Rowwise),
    /// Batch and group norm, pooling.
    Spatial(Spatial),
    /// Elementwise arithmetic, casts, copies, dropout.
    Elementwise(Elementwise),
    /// Embedding look-up.
    Embedding(Embedding),
    /// Cross-entropy loss.
    CrossEntropy(CrossEntropy),
    /// Optimizer step.
    Optimizer(Optimizer),
    /// Transposes, concatenation, permuted copies.
    Movement(Movement),
    /// Image resizing.
    Interpolate(Interpolate),
    /// Region-of-interest alignment.
    RoiAlign(RoiAlign),
    /// Non-maximum suppression.
    Nms(Nms),
    /// A kernel that a compiler fused.
    Fused(Fused),
    /// An operator of the table in `listed.rs`: sorting, scans, scatters, transforms, solvers.
    Listed(Listed),
    /// An operator we do not know: kept by name with its bytes, never counted as zero.
    Unmodelled {
        /// Its name.
        name: String,
        /// Bytes of all its inputs and outputs.
        bytes: u64,
    },
}

/// The families that share a time model, a correction and an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Family {
    Gemm,
    Conv,
    Attention,
    Rnn,
    Rowwise,
    Spatial,
    Elementwise,
    Movement,
    Unmodelled,
    Fused,
    Listed,
}

impl Family {
    /// All families.
    pub const ALL: [Self; 11] = [
        Self::Gemm,
        Self::Conv,
        Self::Attention,
        Self::Rnn,
        Self::Rowwise,
        Self::Spatial,
        Self::Elementwise,
        Self::Movement,
        Self::Unmodelled,
        Self::Fused,
        Self::Listed,
    ];

    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gemm => "gemm",
            Self::Conv => "conv",
            Self::Attention => "attention",
            Self::Rnn => "rnn",
            Self::Rowwise => "rowwise",
            Self::Spatial => "spatial",
            Self::Elementwise => "elementwise",
            Self::Movement => "movement",
            Self::Unmodelled => "unmodelled",
            Self::Fused => "fused",
            Self::Listed => "other",
        }
    }
}

/// One call of one operator.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OpCall {
    /// The operator with its shape.
    pub op: Op,
    /// Direction.
    pub pass: Pass,
    /// Number format it computes in.
    pub dtype: Dtype,
}

/// Compulsory traffic of a call.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes of all inputs.
    pub read: Bytes,
    /// Bytes of all outputs.
    pub written: Bytes,
}

impl Traffic {
    /// Reads and writes given in elements of one size.
    pub(crate) fn elements(read: f64, written: f64, size: f64) -> Self {
        Self { read: Bytes(read * size), written: Bytes(written * size) }
    }

    /// Reads and writes together.
    pub fn total(self) -> Bytes {
        self.read + self.written
    }
}

impl OpCall {
    /// A call.
    pub fn new(op: Op, pass: Pass, dtype: Dtype) -> Self {
        Self { op, pass, dtype }
    }

    /// A forward call.
    pub fn fwd(op: Op, dtype: Dtype) -> Self {
        Self::new(op, Pass::Fwd, dtype)
    }

    /// Useful floating-point operations; a fused multiply-add counts as two.
    pub fn flops(&self) -> Flops {
        match &self.op {
            Op::Gemm(o) => o.flops(),
            Op::Conv(o) => o.flops(),
            Op::Attention(o) => o.flops(self.pass),
            Op::Rnn(o) => o.flops(self.pass),
            Op::Rowwise(o) => o.flops(self.pass),
            Op::Spatial(o) => o.flops(self.pass),
            Op::Elementwise(o) => o.flops(),
            Op::Embedding(o) => o.flops(self.pass),
            Op::CrossEntropy(o) => o.flops(),
            Op::Optimizer(o) => o.flops(),
            Op::Movement(_) | Op::Fused(_) | Op::Unmodelled { .. } => Flops::ZERO,
            Op::Interpolate(o) => o.flops(),
            Op::RoiAlign(o) => o.flops(),
            Op::Nms(o) => o.flops(),
            Op::Listed(o) => o.flops(self.pass),
        }
    }

    /// Compulsory traffic.
    pub fn traffic(&self) -> Traffic {
        let e = self.dtype.size();
        match &self.op {
            Op::Gemm(o) => o.traffic(self.dtype),
            Op::Conv(o) => o.traffic(self.pass, self.dtype),
            Op::Attention(o) => o.traffic(self.pass, e),
            Op::Rnn(o) => o.traffic(self.pass, e),
            Op::Rowwise(o) => o.traffic(self.pass, e),
            Op::Spatial(o) => o.traffic(self.pass, e),
            Op::Elementwise(o) => o.traffic(self.dtype),
            Op::Embedding(o) => o.traffic(self.pass, e),
            Op::CrossEntropy(o) => o.traffic(self.pass, e),
            Op::Optimizer(o) => o.traffic(e),
            Op::Movement(o) => o.traffic(e),
            Op::Interpolate(o) => o.traffic(e),
            Op::RoiAlign(o) => o.traffic(e),
            Op::Nms(o) => o.traffic(),
            Op::Fused(o) => o.traffic(),
            Op::Listed(o) => o.traffic(self.pass, e),
            Op::Unmodelled { bytes, .. } => {
                Traffic { read: Bytes(*bytes as f64 / 2.0), written: Bytes(*bytes as f64 / 2.0) }
            }
        }
    }

    /// The family whose model, correction and interval this call uses.
    pub fn family(&self) -> Family {
        match &self.op {
            Op::Gemm(_) => Family::Gemm,
            Op::Conv(_) => Family::Conv,
            Op::Attention(_) => Family::Attention,
            Op::Rnn(_) => Family::Rnn,
            Op::Rowwise(_) | Op::CrossEntropy(_) => Family::Rowwise,
            Op::Spatial(_) | Op::Interpolate(_) | Op::RoiAlign(_) => Family::Spatial,
            Op::Elementwise(_) => Family::Elementwise,
            Op::Embedding(_) | Op::Optimizer(_) | Op::Movement(_) => Family::Movement,
            Op::Fused(_) => Family::Fused,
            Op::Listed(_) => Family::Listed,
            Op::Nms(_) | Op::Unmodelled { .. } => Family::Unmodelled,
        }
    }

    /// The same call in another number format.
    #[must_use]
    pub fn in_format(&self, dtype: Dtype) -> Self {
        Self { dtype, ..self.clone() }
    }

    /// The operator's name as in operator files.
    pub fn name(&self) -> &str {
        match &self.op {
            Op::Gemm(o) => o.kind.name(),
            Op::Conv(o) if o.transposed => "conv_transpose2d",
            Op::Conv(_) => "conv2d",
            Op::Attention(_) => "sdpa",
            Op::Rnn(o) => o.kind.name(),
            Op::Rowwise(o) => o.kind.name(),
            Op::Spatial(o) => o.kind.name(),
            Op::Elementwise(o) => o.kind.name(),
            Op::Embedding(_) => "embedding",
            Op::CrossEntropy(_) => "cross_entropy",
            Op::Optimizer(o) => o.kind.name(),
            Op::Movement(o) => o.kind.name(),
            Op::Interpolate(_) => "interpolate",
            Op::RoiAlign(_) => "roi_align",
            Op::Nms(_) => "nms",
            Op::Fused(o) => o.form.name(),
            Op::Listed(o) => o.kind.name(),
            Op::Unmodelled { name, .. } => name,
        }
    }
}
