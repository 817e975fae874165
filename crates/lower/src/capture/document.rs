//! The file of a recorded iteration, and what makes one unreadable.

use preflop_graph::{Mode, Phase};
use preflop_units::dtype::Dtype;
use serde::Deserialize;
use thiserror::Error;

/// The newest form of the file that this reader knows: the second has kernels that a compiler fused.
const VERSION: u64 = 2;
/// Elements of one tensor; beyond this a file is damaged (a terabyte of fp32).
const MAX_ELEMENTS: u64 = 1 << 38;

/// Why a capture cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CaptureError {
    /// Not JSON, or not of this form.
    #[error("not a captured graph: {0}")]
    Json(String),
    /// Written by a newer recorder.
    #[error("a captured graph of version {0}; this program reads versions up to {VERSION}")]
    Version(u64),
    /// The file contradicts itself.
    #[error("operator {op} (`{name}`): {problem}")]
    Operator {
        /// Its place in the list.
        op: usize,
        /// Its name.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// A table of the file is damaged.
    #[error("{table} {index}: {problem}")]
    Table {
        /// Which table.
        table: &'static str,
        /// Where in it.
        index: usize,
        /// What is wrong.
        problem: &'static str,
    },
}

/// A tensor: format, sizes, strides, storage (none for tensors of the host).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct TensorEntry(pub String, pub Vec<u64>, pub Vec<u64>, pub Option<u32>);

/// What a storage is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum StorageKind {
    Weight,
    Buffer,
    Gradient,
    Optimizer,
    Input,
    Activation,
}

/// A storage: bytes, use, the operator before which it appeared, the operator before which it was gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) struct StorageEntry(pub u64, pub StorageKind, pub u64, pub Option<u64>);

/// An argument of an operator.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub(super) enum Argument {
    /// A tensor by its number.
    Tensor {
        /// The number.
        t: u32,
    },
    /// Several.
    List(Vec<Self>),
    /// A flag.
    Flag(bool),
    /// A whole number.
    Whole(i64),
    /// A number.
    Real(f64),
    /// Formats, layouts and so on.
    Text(String),
    /// Nothing.
    Absent(()),
}

/// One operator.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Operator {
    /// Name, such as `aten::addmm`.
    #[serde(rename = "op")]
    pub name: String,
    /// Part of the iteration.
    pub phase: Phase,
    /// Path of the module that called it.
    pub module: String,
    /// Arguments in the order of the operator's schema.
    #[serde(rename = "in")]
    pub inputs: Vec<Argument>,
    /// Result tensors.
    #[serde(rename = "out")]
    pub outputs: Vec<u32>,
    /// Is the result a view of an argument?
    #[serde(default)]
    pub view: bool,
    /// Does it work element by element?
    #[serde(default)]
    pub pointwise: bool,
    /// Was it only captured into a CUDA graph, not run?
    #[serde(default)]
    pub captured: bool,
    /// Was it run by replaying a CUDA graph?
    #[serde(default)]
    pub replayed: bool,
    /// What is known of it if a compiler fused it.
    #[serde(default)]
    pub fused: Option<FusedKernel>,
}

/// A fused kernel as its compiler lists it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct FusedKernel {
    /// Name; it lists the operators that were fused.
    pub kernel: String,
    /// How it walks: `pointwise`, `reduction`, `persistent_reduction`, `template`, ..
    pub form: String,
    /// What a reduction runs along: `inner`, `outer`, ..
    #[serde(default)]
    pub hint: Option<String>,
    /// Does it walk in two orders?
    #[serde(default)]
    pub tiled_2d: bool,
    /// Places of the result.
    pub elements: u64,
    /// Values reduced for each.
    pub reduced: u64,
    /// Rows of a kernel that walks in two orders.
    #[serde(default)]
    pub y: Option<u64>,
    /// The compiler's count of bytes.
    pub bytes: u64,
    /// Loads at each place.
    pub loads: u32,
    /// Stores.
    pub stores: u32,
    /// Does it add to memory one by one?
    #[serde(default)]
    pub atomics: bool,
    /// Does it draw random numbers?
    #[serde(default)]
    pub random: bool,
}

/// What the recorder says about compilation.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Compiled {
    /// The GPU that was compiled for.
    pub gpu: String,
    /// The version of PyTorch that compiled.
    #[serde(default)]
    pub torch: Option<String>,
    /// Programs that the compiler wrote.
    pub graphs: u64,
    /// Why it broke the graph, once for each reason.
    #[serde(default)]
    pub breaks: Vec<String>,
    /// Were CUDA graphs asked for (`mode="reduce-overhead"`)?
    #[serde(default)]
    pub cuda_graphs: bool,
    /// Was autotuning asked for (`mode="max-autotune"`)?
    #[serde(default)]
    pub autotune: bool,
    /// Functions that could not be compiled and were recorded eagerly, with the reason.
    #[serde(default)]
    pub eager: Vec<String>,
}

/// A size that was assumed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[allow(clippy::struct_field_names)]
pub(super) struct Assumed {
    /// The operator whose results have it.
    pub operator: String,
    /// The line of the program that called it.
    pub line: String,
    /// In words.
    pub assumed: String,
    /// How often.
    pub count: u64,
}

/// A recorded iteration.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Capture {
    format: String,
    version: u64,
    /// Name of the model.
    pub name: String,
    /// Samples of the iteration.
    pub samples: u64,
    /// Tokens per sample.
    #[serde(default)]
    pub seq: Option<u64>,
    /// Training or inference.
    pub mode: Mode,
    /// The lower format of autocast, if it was on.
    #[serde(default)]
    pub(super) autocast: Option<String>,
    /// May fp32 matrix products run in TF32?
    pub(super) tf32_products: bool,
    /// May fp32 convolutions and recurrent layers run in TF32?
    pub(super) tf32_convolutions: bool,
    /// Parameters of the model.
    pub parameters: u64,
    /// Parameter tensors that optimizers walked.
    pub(super) parameter_tensors: u64,
    /// Module calls, in forward and where backward computes a part of it again.
    pub(super) module_calls: u64,
    /// Operators of the warm-up before the recorded iteration.
    pub(super) first_op: u64,
    /// Operators before the program reset its peak of memory.
    #[serde(default)]
    pub(super) peak_from: u64,
    /// Streams beside the default one on which products ran.
    #[serde(default)]
    pub(super) side_streams: u64,
    pub(super) tensors: Vec<TensorEntry>,
    pub(super) storages: Vec<StorageEntry>,
    pub(super) ops: Vec<Operator>,
    /// What was compiled, if anything was.
    #[serde(default)]
    pub compile: Option<Compiled>,
    /// Sizes that only data would tell.
    #[serde(default)]
    pub(super) assumptions: Vec<Assumed>,
    /// What the recorder noticed about the program.
    #[serde(default)]
    pub(super) notes: Vec<String>,
    /// Was the iteration captured as a CUDA graph?
    #[serde(default)]
    pub(super) replayed: bool,
}

impl Capture {
    /// Reads and checks a file.
    pub fn parse(bytes: &[u8]) -> Result<Self, CaptureError> {
        let capture: Self = serde_json::from_slice(bytes).map_err(|e| CaptureError::Json(e.to_string()))?;
        if capture.format != "preflop-capture" {
            return Err(CaptureError::Json(format!("its format is `{}`", capture.format)));
        }
        if !(1..=VERSION).contains(&capture.version) {
            return Err(CaptureError::Version(capture.version));
        }
        capture.check()?;
        Ok(capture)
    }

    fn check(&self) -> Result<(), CaptureError> {
        let broken = |table, index, problem| Err(CaptureError::Table { table, index, problem });
        if self.samples == 0 {
            return broken("samples", 0, "an iteration has at least one");
        }
        for (i, t) in self.tensors.iter().enumerate() {
            if t.1.len() != t.2.len() {
                return broken("tensor", i, "as many strides as sizes are needed");
            }
            let elements = t.1.iter().try_fold(1_u64, |n, &s| n.checked_mul(s.max(1)));
            if elements.is_none_or(|n| n > MAX_ELEMENTS) {
                return broken("tensor", i, "it is larger than any memory");
            }
            if t.3.is_some_and(|s| s as usize >= self.storages.len()) {
                return broken("tensor", i, "its storage is not listed");
            }
        }
        for (i, s) in self.storages.iter().enumerate() {
            if s.0 > MAX_ELEMENTS * 8 {
                return broken("storage", i, "it is larger than any memory");
            }
            if s.3.is_some_and(|last| last < s.2) {
                return broken("storage", i, "it ends before it begins");
            }
        }
        let count = self.tensors.len();
        for (i, op) in self.ops.iter().enumerate() {
            let known = op.inputs.iter().all(|a| listed(a, count))
                && op.outputs.iter().all(|&t| (t as usize) < count);
            if !known {
                return Err(CaptureError::Operator {
                    op: i,
                    name: op.name.clone(),
                    problem: format!("it uses a tensor beyond the {count} listed"),
                });
            }
        }
        Ok(())
    }
}

fn listed(argument: &Argument, count: usize) -> bool {
    match argument {
        Argument::Tensor { t } => (*t as usize) < count,
        Argument::List(items) => items.iter().all(|a| listed(a, count)),
        _ => true,
    }
}

/// The format of a tensor as our operators count it: integers by their use, flags by their width.
pub(super) fn dtype(name: &str) -> Dtype {
    Dtype::from_name(name).unwrap_or(match name {
        "bool" | "uint8" => Dtype::Int8,
        "int32" | "int16" | "complex64" => Dtype::Int64,
        n if n.starts_with("float8") => Dtype::Fp8,
        n if n.starts_with("complex") => Dtype::Fp64,
        _ => Dtype::Fp32,
    })
}
