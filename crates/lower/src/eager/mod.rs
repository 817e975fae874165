//! From a graph to the operators, the host work and the memory of one eager PyTorch iteration.
//!
//! The graph is run as PyTorch would run it, with shapes, strides, number formats and storages but without
//! data: every ATen operator that launches a kernel becomes a [`Step`], every dispatched operator (views
//! included) counts as host work, autograd records what backward will do, and each storage lives exactly
//! as long as something refers to it. `forward` holds the calls a user writes, `aten` the operators they
//! consist of, `backward` their gradients, `autocast` the number formats.

mod aten;
mod attention;
mod autocast;
mod backward;
mod checkpoint;
mod flow;
mod forward;
mod memory;
mod norm;
mod optimizer;

use crate::fusion::fused;
use crate::launching;
pub(crate) use attention::rnn_workspace;
use autocast::Policy;
use backward::{Backward, GradNode};
use checkpoint::Segments;
use flow::Flows;
pub(crate) use flow::{Access, Flow};
pub(crate) use memory::{Class, Memory, Peak, counted};
pub(crate) use norm::{Extent, layout_workspace, nhwc_copies};
use preflop_graph::graph::{Content, Graph, GraphOp};
use preflop_graph::{
    Dims, HostWork, Iteration, LowerOptions, Mode, ModelError, Phase, Stage, StandIns, Step,
};
use preflop_ops::{Elementwise, ElementwiseKind, Op, OpCall, Pass};
use preflop_units::dtype::Dtype;
use smallvec::{SmallVec, smallvec};

/// What most operators have at most three of: inputs, gradients, what is saved for backward.
type Few<T> = SmallVec<[T; 3]>;

/// Where the gradient of a value goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edge {
    /// No gradient is needed.
    None,
    /// To output `output` of a recorded operator.
    Node { node: u32, output: u16 },
    /// To a parameter.
    Parameter(u32),
}

/// A tensor at run time: a view of a storage.
#[derive(Debug, Clone, Copy)]
struct Value {
    storage: u32,
    shape: Dims,
    strides: Dims,
    dtype: Dtype,
    edge: Edge,
}

impl Value {
    fn numel(&self) -> u64 {
        self.shape.numel()
    }

    fn is_contiguous(&self) -> bool {
        self.shape.is_contiguous(&self.strides)
    }

    /// Feature maps `[n, c, h, w]` that lie channels-last and not also row-major.
    fn is_channels_last(&self) -> bool {
        self.shape.len() == 4 && !self.is_contiguous() && {
            let order = [0, 2, 3, 1];
            self.shape.permuted(&order).is_contiguous(&self.strides.permuted(&order))
        }
    }

    /// Do the elements of both lie in the same order, without gaps?
    fn lies_like(&self, other: &Self) -> bool {
        let order = |i: usize| self.shape[i] == 1 || self.strides[i] == other.strides[i];
        self.shape == other.shape && self.is_dense() && (0..self.shape.len()).all(order)
    }

    /// Does it fill the places from its first element to its last, each once? A part of each row does not, nor does what is repeated.
    fn is_whole(&self) -> bool {
        let steps =
            self.shape.iter().zip(self.strides.iter()).map(|(n, stride)| n.saturating_sub(1) * stride);
        steps.sum::<u64>() + 1 == self.numel().max(1)
    }

    /// Dense and without overlap, whatever the order of dimensions.
    fn is_dense(&self) -> bool {
        self.shape.dense_like(&self.strides) == self.strides || self.is_contiguous()
    }
}

/// The state of a run.
struct Lowering<'g> {
    graph: &'g Graph,
    policy: Policy,
    training: bool,
    phase: Phase,
    /// Index of the graph node whose operators are being emitted.
    current: u32,
    steps: Vec<Step>,
    host: HostWork,
    memory: Memory,
    values: Vec<Option<Value>>,
    parameters: Vec<Value>,
    cast_cache: Vec<Option<Value>>,
    parameter_grads: Vec<Option<Value>>,
    temporaries: Vec<u32>,
    tape: Vec<GradNode>,
    segments: Segments,
    /// What each step reads and writes, where kernels are fused.
    flows: Option<Flows>,
    /// Storages of weights that are kept in 4 bits.
    packed: Vec<bool>,
}

/// Weights of 4 bits that share a scale.
const PACKED_BLOCK: u64 = 64;
/// Bytes of a weight of 4 bits: itself, a scale of 8 bits for every 64, and one of 32 bits for every 256 of those.
const PACKED_BYTES: f64 = 0.5 + 1.0 / 64.0 + 4.0 / (64.0 * 256.0);

/// Seconds that Hugging Face's code takes around a step of generation (arguments, cache, mask, positions) while the GPU waits: iteration less
/// busy time of six prefills that the GPU binds, on an H200: 2.0 to 4.4 ms, 2.7 in the mean.
const GENERATION_LEAD: f64 = 2.5e-3;

/// The operators, host work and memory of one iteration of `graph`.
pub fn lower(graph: &Graph, options: &LowerOptions) -> Result<Iteration, ModelError> {
    lower_with(graph, *options, false)
}

/// As [`lower`], fused as a compiler would, with the memory of a compiled run.
pub(crate) fn lower_fused(graph: &Graph, options: LowerOptions) -> Result<Iteration, ModelError> {
    lower_with(graph, options, true)
}

fn lower_with(graph: &Graph, options: LowerOptions, compiled: bool) -> Result<Iteration, ModelError> {
    if let Some(fixed) = &graph.fixed {
        return Ok(fixed.iteration.clone());
    }
    let training = options.mode == Mode::Train;
    if training && graph.loss.is_none() {
        return Err(ModelError::NoLoss { model: graph.name.clone() });
    }
    preflop_graph::check(graph)?;
    let optimizer = options.optimizer.unwrap_or(graph.optimizer);
    let mut run = Lowering::new(graph, Policy::of(options.precision), training);
    if compiled {
        run.flows = Some(Flows::default());
        run.memory.uncounted = true;
    }
    if training {
        let trained = run.trained_parameters(options.mode);
        run.alloc_optimizer_state(optimizer, &trained);
    }
    run.forward(options.mode)?;
    if training {
        run.backward(options.mode)?;
        run.memory.uncounted = false;
        run.optimizer_step(optimizer);
    }
    let mut host = run.host;
    let trained = graph.parameters.iter().filter(|p| !p.frozen).count() as u64;
    host.parameter_tensors = if training { trained } else { 0 };
    if graph.stage != Stage::Full {
        host.lead_s = GENERATION_LEAD;
    }
    if let Some(flows) = run.flows.take() {
        let held = |v: &Value| flows.held(v.storage);
        let gradients: Vec<u32> = run.parameter_grads.iter().flatten().filter_map(held).collect();
        let (steps, peak) = fused(&run.steps, &flows.of, &gradients, &flows.kept);
        run.memory.compiled(peak);
        host = launching(host, &steps);
        run.steps = steps;
    }
    let how = optimizer.implementation;
    let stand_ins = StandIns {
        optimizer: training && (how.narrow() || how.paged()),
        copies: graph.parameters.iter().any(|p| p.packed),
    };
    Ok(Iteration {
        memory: run.memory.finish(training, 0),
        steps: run.steps,
        host,
        parameters: graph.parameter_count(),
        samples: graph.samples,
        replayed: false,
        autotuned: false,
        stand_ins,
    })
}

impl<'g> Lowering<'g> {
    fn new(graph: &'g Graph, policy: Policy, training: bool) -> Self {
        let mut memory = Memory::default();
        let parameters = graph
            .parameters
            .iter()
            .enumerate()
            .map(|(i, p)| Value {
                storage: if p.packed {
                    memory.request(p.shape.numel() as f64 * PACKED_BYTES, Class::Weights)
                } else {
                    memory.alloc(p.shape.numel(), policy.tensor, Class::Weights)
                },
                shape: p.shape,
                strides: p.shape.contiguous_strides(),
                dtype: policy.tensor,
                edge: if training && !p.frozen { Edge::Parameter(i as u32) } else { Edge::None },
            })
            .collect::<Vec<Value>>();
        let mut packed = vec![false; parameters.len()];
        for (value, p) in parameters.iter().zip(&graph.parameters).filter(|(_, p)| p.packed) {
            let storage = value.storage as usize;
            packed.resize(packed.len().max(storage + 1), false);
            packed[storage] = p.packed;
        }
        memory.alloc(graph.buffer_elements, Dtype::Fp32, Class::Weights);
        Self {
            graph,
            policy,
            training,
            phase: Phase::Forward,
            current: 0,
            steps: Vec::with_capacity(graph.nodes.len() * 4),
            host: HostWork::default(),
            memory,
            values: vec![None; graph.tensors.len()],
            parameters,
            cast_cache: vec![None; graph.parameters.len()],
            parameter_grads: vec![None; graph.parameters.len()],
            temporaries: Vec::new(),
            tape: Vec::with_capacity(if training { graph.nodes.len() } else { 0 }),
            segments: Segments::of(graph, training),
            flows: None,
            packed,
        }
    }

    /// Does a gradient reach the parameter? Those of unused heads get none, and no optimizer state.
    fn trained_parameters(&self, mode: Mode) -> Vec<bool> {
        let mut reached = vec![false; self.graph.tensors.len()];
        let mut trained = vec![false; self.graph.parameters.len()];
        if let Some(loss) = self.graph.loss {
            reached[loss as usize] = true;
        }
        let autocast = self.policy.autocast.is_some();
        for node in self.graph.nodes.iter().rev().filter(|n| n.when.holds(mode, autocast)) {
            if node.outputs.iter().any(|&t| reached[t as usize]) {
                node.inputs.iter().for_each(|&t| reached[t as usize] = true);
                for &p in &node.parameters {
                    trained[p as usize] = !self.graph.parameters[p as usize].frozen;
                }
            }
        }
        trained
    }

    /// Runs the nodes in order and frees every tensor after its last use.
    fn forward(&mut self, mode: Mode) -> Result<(), ModelError> {
        let graph = self.graph;
        let autocast = self.policy.autocast.is_some();
        let active: Vec<bool> = graph.nodes.iter().map(|n| n.when.holds(mode, autocast)).collect();
        let mut last_use = vec![0_u32; graph.tensors.len()];
        for (i, node) in graph.nodes.iter().enumerate().filter(|(i, _)| active[*i]) {
            for &t in node.outputs.iter().chain(&node.inputs) {
                last_use[t as usize] = i as u32;
            }
        }
        for &(t, node) in &graph.held {
            last_use[t as usize] = last_use[t as usize].max(node);
        }
        let end = graph.nodes.len() as u32;
        for &t in &graph.kept {
            last_use[t as usize] = end;
        }
        let mut dying: Vec<(u32, u32)> = last_use.iter().enumerate().map(|(t, &n)| (n, t as u32)).collect();
        dying.sort_unstable();
        let mut dying = dying.into_iter().peekable();
        // Inputs exist before the first operator and outlive the iteration.
        let outside = |op: &GraphOp| matches!(op, GraphOp::Input | GraphOp::Cache);
        for node in graph.nodes.iter().zip(&active).filter(|(n, a)| **a && outside(&n.op)).map(|x| x.0) {
            for &t in &node.outputs {
                let info = &graph.tensors[t as usize];
                let dtype = match (&node.op, info.content) {
                    (GraphOp::Cache, _) => self.policy.autocast.unwrap_or(self.policy.tensor),
                    (_, Content::Int) => Dtype::Int64,
                    _ => self.policy.tensor,
                };
                let v = self.alloc(info.shape, dtype);
                if node.op == GraphOp::Cache {
                    self.memory.reclass(v.storage, Class::Cache);
                }
                self.memory.retain(v.storage);
                self.memory.write(v.storage);
                self.values[t as usize] = Some(v);
            }
        }
        self.temporaries.clear();
        for (i, node) in graph.nodes.iter().enumerate() {
            self.enter_segment(i);
            if active[i] {
                self.current = i as u32;
                self.host.module_calls += u64::from(node.modules);
                self.node(node)?;
                for &t in &node.outputs {
                    if let Some(v) = self.values[t as usize].filter(|_| !outside(&node.op)) {
                        self.memory.retain(v.storage);
                    }
                }
                self.free_temporaries();
            }
            while let Some((_, t)) = dying.next_if(|(n, _)| *n <= i as u32) {
                self.forget(t);
            }
            self.leave_segment(i);
        }
        let loss = graph.loss.and_then(|t| self.values[t as usize]);
        for t in &graph.kept {
            if let Some(v) = self.values[*t as usize] {
                self.flow_kept(&v);
            }
        }
        for p in 0..self.cast_cache.len() {
            if let Some(v) = self.cast_cache[p].take() {
                self.memory.release(v.storage);
            }
        }
        for (_, t) in dying {
            if graph.loss != Some(t) {
                self.forget(t);
            }
        }
        if let (true, Some(loss)) = (self.training, loss) {
            self.start_backward(loss);
        }
        Ok(())
    }

    fn forget(&mut self, tensor: u32) {
        if self.graph.loss == Some(tensor) {
            return;
        }
        if let Some(v) = self.values[tensor as usize].take() {
            self.memory.release(v.storage);
        }
    }

    /// Adds `n` dispatched operators to the host's work.
    fn ops(&mut self, n: u64) {
        match self.phase {
            Phase::Forward => self.host.forward_ops += n,
            Phase::Backward => self.host.backward_ops += n,
            Phase::Optimizer => {}
        }
    }

    fn push_named_step(&mut self, name: &str, call: OpCall, count: u32) {
        self.steps.push(Step { name: name.to_owned(), phase: self.phase, call, count });
    }

    /// Emits an operator of the current layer.
    fn emit(&mut self, op: Op, pass: Pass, dtype: Dtype) {
        let name = self.graph.nodes[self.current as usize].name.clone();
        self.steps.push(Step { name, phase: self.phase, call: OpCall::new(op, pass, dtype), count: 1 });
    }

    /// Emits an elementwise kernel.
    fn elementwise(&mut self, kind: ElementwiseKind, n: u64, dtype: Dtype) {
        self.emit(Op::Elementwise(Elementwise { kind, n }), Pass::Fwd, dtype);
    }

    fn alloc_elements(&mut self, elements: u64, dtype: Dtype) -> u32 {
        let storage = self.memory.alloc(elements, dtype, Class::Activations);
        self.temporaries.push(storage);
        storage
    }

    /// A fresh row-major tensor; freed at the end of the present operator unless something keeps it.
    fn alloc(&mut self, shape: Dims, dtype: Dtype) -> Value {
        self.alloc_strided(shape, shape.contiguous_strides(), dtype)
    }

    fn alloc_strided(&mut self, shape: Dims, strides: Dims, dtype: Dtype) -> Value {
        let storage = self.alloc_elements(shape.numel(), dtype);
        Value { storage, shape, strides, dtype, edge: Edge::None }
    }

    fn free_temporaries(&mut self) {
        while let Some(s) = self.temporaries.pop() {
            self.memory.release(s);
        }
    }

    fn parameter(&self, p: u32) -> Value {
        self.parameters[p as usize]
    }

    /// Records what backward has to do for `out`, which was computed from `inputs`; `saved` storages live until then.
    fn record1(&mut self, kind: Backward, inputs: &[Value], saved: &[u32], out: Value) -> Value {
        match self.record(kind, inputs, saved, &[out]) {
            Some(node) => Value { edge: Edge::Node { node, output: 0 }, ..out },
            None => Value { edge: Edge::None, ..out },
        }
    }

    fn record(&mut self, kind: Backward, inputs: &[Value], saved: &[u32], outs: &[Value]) -> Option<u32> {
        if self.phase != Phase::Forward || !inputs.iter().any(|v| v.edge != Edge::None) {
            return None;
        }
        for &s in saved {
            self.memory.retain(s);
        }
        if !saved.is_empty() {
            // An operator that saves only what goes in has done so before its kernel runs.
            let before = saved.iter().all(|s| inputs.iter().any(|v| v.storage == *s));
            self.segments.needed = self.steps.len().saturating_sub(usize::from(before));
        }
        let wanted = self.versions(saved);
        self.tape.push(GradNode {
            kind,
            layer: self.current,
            edges: inputs.iter().map(|v| v.edge).collect(),
            metas: inputs.iter().map(|v| (v.shape, v.dtype)).collect(),
            wanted,
            saved: saved.into(),
            grads: smallvec![None; outs.len()],
            outputs: outs.iter().map(|v| (v.shape, v.dtype)).collect(),
        });
        Some(self.tape.len() as u32 - 1)
    }
}
