//! Networks as graphs, and what an iteration of one consists of.
//!
//! `zoo` builds a [`Graph`] with the [`Builder`], `program` makes one of what another tool exported; an [`Iteration`] is what
//! lowering makes of it: operators in order, the host's work, the memory at its peak.

mod adapters;
mod builder;
mod check;
mod checkpoint;
mod dims;
mod error;
pub mod graph;
mod optimizer;
mod precision;
mod stage;

pub mod program;
pub mod zoo;

pub use adapters::MAX_RANK as MAX_ADAPTER_RANK;
pub use builder::{Builder, Built, ConvSpec, Param, RnnSpec, Tensor};
pub use check::check;
pub use checkpoint::Checkpoint;
pub use dims::Dims;
pub use error::ModelError;
use graph::Content;
pub use graph::Graph;
pub use optimizer::{Implementation, OptimizerChoice, Rule};
pub use precision::Precision;
pub use stage::{CacheKind, Stage};

use preflop_ops::{ElementwiseKind, Op, OpCall};
use preflop_units::Bytes;
use serde::{Deserialize, Serialize};

/// Training or inference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Forward, loss, backward, optimizer step.
    Train,
    /// Forward without gradients.
    Infer,
}

impl Mode {
    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Infer => "infer",
        }
    }
}

/// How an iteration is launched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Run {
    /// Operator by operator.
    #[default]
    Eager,
    /// Captured once as a CUDA graph, then replayed.
    Graph,
    /// Through `torch.compile`.
    Compile,
    /// Both: `mode="reduce-overhead"`.
    CompileGraph,
}

impl Run {
    /// All, in the order of the command line's help.
    pub const ALL: [Self; 4] = [Self::Eager, Self::Graph, Self::Compile, Self::CompileGraph];

    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Eager => "eager",
            Self::Graph => "graph",
            Self::Compile => "compile",
            Self::CompileGraph => "compile-graph",
        }
    }

    /// Is it compiled?
    pub fn compiles(self) -> bool {
        matches!(self, Self::Compile | Self::CompileGraph)
    }

    /// Is it replayed?
    pub fn replays(self) -> bool {
        matches!(self, Self::Graph | Self::CompileGraph)
    }
}

/// How to run a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LowerOptions {
    /// Training or inference.
    pub mode: Mode,
    /// Number formats.
    pub precision: Precision,
    /// Optimizer; `None` takes the graph's own.
    pub optimizer: Option<OptimizerChoice>,
}

/// Part of an iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Forward, loss included.
    Forward,
    /// Backward.
    Backward,
    /// Optimizer step.
    Optimizer,
}

impl Phase {
    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Optimizer => "optimizer",
        }
    }
}

/// One operator call of an iteration, where it comes from and how often it runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Layer path, such as `layer1.0.conv2`.
    pub name: String,
    /// Part of the iteration.
    pub phase: Phase,
    /// The call.
    pub call: OpCall,
    /// Times it runs with this very shape in this place.
    pub count: u32,
}

/// What the host does in one iteration: the inputs of the host-time formula.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct HostWork {
    /// Framework operators dispatched in forward and loss, views included.
    pub forward_ops: u64,
    /// Module calls, those of recomputation included.
    pub module_calls: u64,
    /// Framework operators dispatched in backward.
    pub backward_ops: u64,
    /// Parameter tensors that the optimizer walks (0 in inference).
    pub parameter_tensors: u64,
    /// Seconds that pass before the first operator worth waiting for, while the GPU has nothing to do.
    #[serde(default)]
    pub lead_s: f64,
}

/// Peak device memory of an iteration, by part.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct MemoryUse {
    /// Parameters and buffers.
    pub weights: Bytes,
    /// Gradients at the peak.
    pub gradients: Bytes,
    /// Optimizer states.
    pub optimizer: Bytes,
    /// Keys and values of the tokens so far, at the peak.
    #[serde(default)]
    pub cache: Bytes,
    /// Activations and temporaries at the peak.
    pub activations: Bytes,
    /// Library workspaces at the peak.
    pub workspace: Bytes,
    /// What `max_memory_allocated` would show: the peak of the sum, not the sum of the peaks.
    pub peak: Bytes,
}

/// One iteration: every operator with its count, the host's work, the memory it needs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Iteration {
    /// Operators in the order in which they run.
    pub steps: Vec<Step>,
    /// Host work.
    pub host: HostWork,
    /// Memory.
    pub memory: MemoryUse,
    /// Parameters of the model.
    pub parameters: u64,
    /// Samples of one iteration.
    pub samples: u64,
    /// Is it captured as a CUDA graph and replayed? Then the host launches it as a whole.
    #[serde(default)]
    pub replayed: bool,
    /// Are algorithms of convolutions found by trial (`cudnn.benchmark`), not by the library's heuristic?
    #[serde(default)]
    pub autotuned: bool,
    /// Which of its operators stand in for kernels that were not measured.
    #[serde(default)]
    pub stand_ins: StandIns,
}

/// Operators whose bytes are those of kernels that nobody measured: their times are as uncertain as what is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StandIns {
    /// The optimizer's step (8-bit or paged states).
    pub optimizer: bool,
    /// Copies in forward and backward (weights of 4 bits that are widened).
    pub copies: bool,
}

impl StandIns {
    /// Does a step stand in for another kernel?
    pub fn has(self, step: &Step) -> bool {
        match (&step.call.op, step.phase) {
            (_, Phase::Optimizer) => self.optimizer,
            (Op::Elementwise(e), _) => self.copies && e.kind == ElementwiseKind::Copy,
            _ => false,
        }
    }
}

/// An iteration that is fixed: its number formats, mode and batch are as recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct Fixed {
    /// The operators, host work and memory.
    pub iteration: Iteration,
    /// As recorded.
    pub mode: Mode,
    /// As recorded.
    pub precision: Precision,
    /// How it was launched.
    pub run: Run,
    /// What a reader of the result should know about the recording.
    pub notes: Vec<String>,
}
