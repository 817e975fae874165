//! Builds a [`Graph`] by code that reads like the model's `forward`.
//!
//! ```
//! use preflop_graph::{Builder, ConvSpec};
//! # fn main() -> Result<(), preflop_graph::ModelError> {
//! let mut b = Builder::new("tiny", 8);
//! let x = b.images(3, 32, 32)?;
//! let x = b.conv2d("conv", x, ConvSpec::new(16, 3).pad(1))?;
//! let x = b.relu_(x)?;
//! let x = b.adaptive_avg_pool("pool", x, 1, 1)?;
//! let x = b.flatten(x, 1)?;
//! let x = b.linear("fc", x, 10, true)?;
//! let graph = b.finish_with_cross_entropy(x)?;
//! // 16*3*9 + 16 + 10*16 + 10
//! assert_eq!(graph.parameter_count(), 618);
//! # Ok(())
//! # }
//! ```

mod attention;
mod functions;
mod layers;
mod loss;
mod shaping;
mod vision;

pub use layers::{ConvSpec, RnnSpec};

use super::OptimizerChoice;
use super::checkpoint::Checkpoint;
use super::dims::{Dims, MAX_RANK};
use super::error::ModelError;
use super::graph::{Content, Graph, GraphOp, Masks, Node, Parameter, TensorInfo, When};
use super::stage::Stage;

/// Handle of a tensor of the graph being built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tensor(pub(crate) u32);

/// Handle of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Param(pub(crate) u32);

/// Builds a graph call by call. Layer methods check shapes and return one clear error.
#[derive(Debug)]
pub struct Builder {
    graph: Graph,
    path: String,
    when: When,
    pending_modules: u32,
    /// The mask of a static cache, made once for all layers.
    mask: Option<Tensor>,
}

/// Result of a builder method.
pub type Built<T = Tensor> = Result<T, ModelError>;

impl Builder {
    /// A new graph for `samples` samples an iteration; the top module's own call is counted.
    pub fn new(name: &str, samples: u64) -> Self {
        let graph = Graph {
            name: name.to_owned(),
            samples,
            seq: None,
            tensors: Vec::new(),
            parameters: Vec::new(),
            channels_last: false,
            checkpoint: Checkpoint::None,
            masks: Masks::Never,
            buffer_elements: 0,
            nodes: Vec::new(),
            kept: Vec::new(),
            held: Vec::new(),
            loss: None,
            optimizer: OptimizerChoice::SGD,
            stage: Stage::Full,
            cache_elements_per_token: 0,
            stored: None,
            fixed: None,
        };
        Self { graph, path: String::new(), when: When::Always, pending_modules: 1, mask: None }
    }

    /// As [`Builder::new`] for a step of generation.
    pub fn staged(name: &str, samples: u64, stage: Stage) -> Self {
        let mut builder = Self::new(name, samples);
        builder.graph.stage = stage;
        builder
    }

    /// Says that the code builds masks while it is compiled or captured.
    pub fn mask_under_capture(&mut self) {
        self.graph.masks = Masks::UnderCapture;
    }

    /// What is computed.
    pub fn stage(&self) -> Stage {
        self.graph.stage
    }

    /// Samples of one iteration.
    pub fn batch(&self) -> u64 {
        self.graph.samples
    }

    /// Says how long the sequences are, for reports.
    pub fn set_seq(&mut self, seq: u64) {
        self.graph.seq = Some(seq);
    }

    /// Shape of a tensor.
    pub fn shape(&self, t: Tensor) -> Dims {
        self.graph.tensors[t.0 as usize].shape
    }

    /// Size of dimension `i`, 1 if there is none.
    pub fn dim(&self, t: Tensor, i: usize) -> u64 {
        self.shape(t).get(i).copied().unwrap_or(1)
    }

    /// Runs `f` as the module `name` called with `x`: its layers are named below it, one module call is
    /// counted, and the caller holds `x` until it returns.
    pub fn module<R>(
        &mut self,
        name: &str,
        x: Tensor,
        f: impl FnOnce(&mut Self, Tensor) -> Built<R>,
    ) -> Built<R> {
        self.pending_modules += 1;
        let out = self.scope(name, |b| f(b, x))?;
        self.hold(x);
        Ok(out)
    }

    /// Names the layers built by `f` below `name` without counting a module call.
    pub fn scope<R>(&mut self, name: &str, f: impl FnOnce(&mut Self) -> Built<R>) -> Built<R> {
        let before = self.path.len();
        if !self.path.is_empty() && !name.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(name);
        let out = f(self);
        self.path.truncate(before);
        out
    }

    /// Counts a module call that has no operator of its own (`Identity`, containers).
    pub fn count_module(&mut self) {
        self.pending_modules += 1;
    }

    /// Nodes built by `f` run only when `when` holds.
    pub fn only<R>(&mut self, when: When, f: impl FnOnce(&mut Self) -> Built<R>) -> Built<R> {
        let before = std::mem::replace(&mut self.when, when);
        let out = f(self);
        self.when = before;
        out
    }

    /// A caller holds `t` up to the node built last.
    pub fn hold(&mut self, t: Tensor) {
        let last = self.graph.nodes.len().saturating_sub(1) as u32;
        self.graph.held.push((t.0, last));
    }

    /// `t` lives until the forward ends (an output or a cache).
    pub fn keep(&mut self, t: Tensor) {
        self.graph.kept.push(t.0);
    }

    /// A float input of the given shape.
    pub fn input(&mut self, shape: &[u64]) -> Built {
        self.push_new("input", GraphOp::Input, &[], &[], shape, Content::Float)
    }

    /// Integer input: tokens, targets.
    pub fn tokens(&mut self, shape: &[u64]) -> Built {
        self.push_new("input", GraphOp::Input, &[], &[], shape, Content::Int)
    }

    /// A batch of images `[batch, channels, height, width]`.
    pub fn images(&mut self, channels: u64, h: u64, w: u64) -> Built {
        self.input(&[self.batch(), channels, h, w])
    }

    /// Registers a parameter below the current path.
    pub fn parameter(&mut self, name: &str, shape: &[u64]) -> Param {
        let name = self.name_below(name);
        self.graph.parameters.push(Parameter { name, shape: Dims::new(shape), frozen: false, packed: false });
        Param(self.graph.parameters.len() as u32 - 1)
    }

    /// Shape of a parameter.
    pub(crate) fn parameter_shape(&self, p: Param) -> Dims {
        self.graph.parameters[p.0 as usize].shape
    }

    /// Registers `elements` 4-byte elements of buffers.
    pub fn buffer(&mut self, elements: u64) {
        self.graph.buffer_elements = self.graph.buffer_elements.saturating_add(elements);
    }

    /// A parameter as a tensor, for arithmetic with it.
    pub fn use_parameter(&mut self, p: Param) -> Built {
        let shape = self.graph.parameters[p.0 as usize].shape;
        self.push_new("parameter", GraphOp::UseParameter, &[], &[p], &shape, Content::Float)
    }

    fn name_below(&self, name: &str) -> String {
        match (self.path.is_empty(), name.is_empty()) {
            (true, _) => name.to_owned(),
            (false, true) => self.path.clone(),
            (false, false) => format!("{}.{name}", self.path),
        }
    }

    /// An error at layer `name` below the current path.
    pub fn error<R>(&self, name: &str, problem: impl Into<String>) -> Built<R> {
        Err(ModelError::Layer { layer: self.name_below(name), problem: problem.into() })
    }

    /// Adds a call with one new output tensor.
    pub(crate) fn push_new(
        &mut self,
        name: &str,
        op: GraphOp,
        inputs: &[Tensor],
        parameters: &[Param],
        shape: &[u64],
        content: Content,
    ) -> Built {
        let out = self.push_many(name, op, inputs, parameters, &[shape], content)?;
        Ok(out[0])
    }

    /// Adds a call with float output of the given shape.
    pub(crate) fn call(
        &mut self,
        name: &str,
        op: GraphOp,
        inputs: &[Tensor],
        params: &[Param],
        shape: &[u64],
    ) -> Built {
        self.push_new(name, op, inputs, params, shape, Content::Float)
    }

    /// Adds a call with several outputs.
    pub(crate) fn push_many(
        &mut self,
        name: &str,
        op: GraphOp,
        inputs: &[Tensor],
        parameters: &[Param],
        shapes: &[&[u64]],
        content: Content,
    ) -> Built<Vec<Tensor>> {
        let mut outputs = Vec::with_capacity(shapes.len());
        for shape in shapes {
            if shape.len() > MAX_RANK {
                return self.error(
                    name,
                    format!("a tensor has {} dimensions, at most {MAX_RANK} are known", shape.len()),
                );
            }
            let dims = Dims::new(shape);
            if dims.contains(&0) {
                return self.error(name, format!("its output {dims} would be empty"));
            }
            if dims.numel() > MAX_ELEMENTS {
                return self.error(name, format!("its output {dims} has more than {MAX_ELEMENTS} elements"));
            }
            self.graph.tensors.push(TensorInfo { shape: dims, content });
            outputs.push(Tensor(self.graph.tensors.len() as u32 - 1));
        }
        self.graph.nodes.push(Node {
            name: self.name_below(name),
            op,
            inputs: inputs.iter().map(|t| t.0).collect(),
            parameters: parameters.iter().map(|p| p.0).collect(),
            outputs: outputs.iter().map(|t| t.0).collect(),
            when: self.when,
            modules: std::mem::take(&mut self.pending_modules),
        });
        Ok(outputs)
    }

    /// Ends the graph; `output` is kept to the end of the forward.
    pub fn finish(mut self, output: Tensor) -> Graph {
        self.keep(output);
        self.graph
    }
}

/// Largest tensor that is accepted: far above any device, far below where u64 arithmetic on bytes overflows.
pub const MAX_ELEMENTS: u64 = 1 << 50;
