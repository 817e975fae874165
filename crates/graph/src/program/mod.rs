//! Programs from elsewhere: the forward of a network as a list of library calls on tensors of known shape.
//!
//! Readers of exported files (`torch.export`, ONNX) write their calls with ATen's names and argument order; here they
//! become a [`Graph`], so that precision, backward, optimizer and memory are derived as for the zoo. A call that no node
//! models is kept by name with its bytes.

mod calls;
mod shaping;

use super::builder::{Builder, Built, Param, Tensor};
use super::check;
use super::dims::{Dims, MAX_RANK};
use super::error::ModelError;
use super::graph::{Content, Graph, GraphOp, When};
use std::collections::HashMap;

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Given from outside.
    Input,
    /// Trained.
    Parameter,
    /// Stored but not trained.
    Buffer,
    /// Made by a call.
    Computed,
}

/// A tensor of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramValue {
    /// Its name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<u64>,
    /// What it holds.
    pub content: Content,
    /// Where it comes from.
    pub role: Role,
}

/// An argument of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Arg {
    /// Nothing.
    None,
    /// A tensor, by its place in the list of values.
    Value(usize),
    /// Several.
    Values(Vec<usize>),
    /// A whole number.
    Whole(i64),
    /// Several.
    Wholes(Vec<i64>),
    /// A number.
    Real(f64),
    /// A flag.
    Flag(bool),
}

/// A call, with ATen's name and order of arguments.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgramCall {
    /// Name without namespace and overload, such as `conv2d`.
    pub op: String,
    /// Layer path.
    pub path: String,
    /// Arguments in ATen's order.
    pub args: Vec<Arg>,
    /// Tensors it makes.
    pub outputs: Vec<usize>,
}

/// The forward of a network.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Program {
    /// Name of the model.
    pub name: String,
    /// Samples of one iteration.
    pub samples: u64,
    /// Tokens of a sample.
    pub seq: Option<u64>,
    /// Tensors.
    pub values: Vec<ProgramValue>,
    /// Calls in order.
    pub calls: Vec<ProgramCall>,
    /// What the network returns.
    pub outputs: Vec<usize>,
}

impl Program {
    /// The graph; for training its loss is the cross-entropy of the first output, or its squared error where the output
    /// has no rows of classes.
    pub fn into_graph(self) -> Result<Graph, ModelError> {
        let mut import = Import::new(&self);
        for value in 0..self.values.len() {
            if self.values[value].role == Role::Input {
                import.input(value)?;
            }
        }
        for call in &self.calls {
            import.count_modules(&call.path);
            import.call(call)?;
        }
        let output = self
            .outputs
            .iter()
            .find(|&&v| {
                self.values.get(v).is_some_and(|v| v.content == Content::Float && !v.shape.is_empty())
            })
            .copied();
        let Some(output) = output.filter(|&v| self.values[v].role == Role::Computed) else {
            return Err(ModelError::Layer {
                layer: self.name.clone(),
                problem: "no call makes a floating-point output".to_owned(),
            });
        };
        let tensor = import.tensor(output)?;
        let mut b = import.b;
        if let Some(seq) = self.seq {
            b.set_seq(seq);
        }
        if matches!(b.shape(tensor).len(), 2 | 3) {
            return b.finish_with_cross_entropy(tensor);
        }
        let shape = b.shape(tensor);
        let loss = b.scope("loss", |b| {
            b.only(When::Train, |b| {
                let target = b.input(&shape)?;
                b.call("mse", GraphOp::MseLoss, &[tensor, target], &[], &[1])
            })
        })?;
        Ok(b.finish_with_loss(tensor, loss))
    }
}

/// A program on its way to a graph.
struct Import<'a> {
    program: &'a Program,
    b: Builder,
    tensors: Vec<Option<Tensor>>,
    params: Vec<Option<Param>>,
    /// Values that are a parameter matrix seen transposed.
    transposed: HashMap<usize, usize>,
    path: Vec<String>,
}

impl<'a> Import<'a> {
    fn new(program: &'a Program) -> Self {
        Self {
            program,
            b: Builder::new(&program.name, program.samples.max(1)),
            tensors: vec![None; program.values.len()],
            params: vec![None; program.values.len()],
            transposed: HashMap::new(),
            path: Vec::new(),
        }
    }

    /// A module call begins wherever the path goes deeper than that of the call before.
    fn count_modules(&mut self, path: &str) {
        let parts: Vec<String> = path.split('.').filter(|p| !p.is_empty()).map(str::to_owned).collect();
        let same = parts.iter().zip(&self.path).take_while(|(a, b)| a == b).count();
        for _ in same..parts.len() {
            self.b.count_module();
        }
        self.path = parts;
    }

    /// The shape of a value; a scalar is a tensor of one element.
    fn shape(&self, value: usize) -> Vec<u64> {
        match self.program.values.get(value) {
            Some(v) if !v.shape.is_empty() => v.shape.clone(),
            _ => vec![1],
        }
    }

    fn content(&self, value: usize) -> Content {
        self.program.values.get(value).map_or(Content::Float, |v| v.content)
    }

    fn role(&self, value: usize) -> Role {
        self.program.values.get(value).map_or(Role::Computed, |v| v.role)
    }

    fn input(&mut self, value: usize) -> Built {
        let (shape, content) = (self.shape(value), self.content(value));
        let t = self.b.push_new("input", GraphOp::Input, &[], &[], &shape, content)?;
        self.tensors[value] = Some(t);
        Ok(t)
    }

    /// A value as a tensor: parameters are used as they are, buffers and what was left out exist from the start.
    fn tensor(&mut self, value: usize) -> Built {
        if let Some(t) = self.tensors.get(value).copied().flatten() {
            return Ok(t);
        }
        if self.role(value) == Role::Parameter && self.content(value) == Content::Float {
            let p = self.param(value);
            let t = self.b.use_parameter(p)?;
            self.tensors[value] = Some(t);
            return Ok(t);
        }
        self.input(value)
    }

    /// A value as a parameter.
    fn param(&mut self, value: usize) -> Param {
        if let Some(p) = self.params[value] {
            return p;
        }
        let shape = self.shape(value);
        let p = self.b.parameter(&self.program.values[value].name, &shape);
        self.params[value] = Some(p);
        p
    }

    fn is_param(&self, value: usize) -> bool {
        self.role(value) == Role::Parameter && self.content(value) == Content::Float
    }

    /// Adds the node if its shapes agree, else the call by its name.
    fn put(&mut self, call: &ProgramCall, op: GraphOp, inputs: &[Tensor], params: &[Param]) -> Built<()> {
        let Some(&out) = call.outputs.first() else { return Ok(()) };
        let shape = self.shape(out);
        let content = self.content(out);
        if shape.len() > MAX_RANK || shape.contains(&0) {
            return self.b.error(&call.path, format!("`{}` gives a tensor of shape {shape:?}", call.op));
        }
        let dims = |ts: &[Tensor]| ts.iter().map(|&t| self.b.shape(t)).collect::<Vec<Dims>>();
        let shapes: Vec<Dims> = params.iter().map(|&p| self.b.parameter_shape(p)).collect();
        if !check::acceptable(&op, &dims(inputs), &shapes, &[Dims::new(&shape)]) {
            return self.unmodelled(call);
        }
        let t = self.b.push_new(&call.path, op, inputs, params, &shape, content)?;
        self.tensors[out] = Some(t);
        self.rest(call)
    }

    /// Results after the first (indices, statistics, states) exist but cost nothing of their own.
    fn rest(&mut self, call: &ProgramCall) -> Built<()> {
        for &out in call.outputs.iter().skip(1) {
            if self.tensors.get(out).is_some_and(Option::is_none) {
                self.input(out)?;
            }
        }
        Ok(())
    }

    /// The call by its name, with all it reads and writes.
    fn unmodelled(&mut self, call: &ProgramCall) -> Built<()> {
        let Some(&out) = call.outputs.first() else { return Ok(()) };
        let mut inputs = Vec::new();
        for arg in &call.args {
            match arg {
                Arg::Value(v) => inputs.push(self.tensor(*v)?),
                Arg::Values(vs) => {
                    for &v in vs {
                        inputs.push(self.tensor(v)?);
                    }
                }
                _ => {}
            }
        }
        let (shape, content) = (self.shape(out), self.content(out));
        let op = GraphOp::Unmodelled { name: call.op.clone() };
        let t = self.b.push_new(&call.path, op, &inputs, &[], &shape, content)?;
        self.tensors[out] = Some(t);
        self.rest(call)
    }

    /// The result is its argument under another name.
    fn alias(&mut self, call: &ProgramCall, value: usize) -> Built<()> {
        let t = self.tensor(value)?;
        if let Some(&out) = call.outputs.first() {
            if self.b.shape(t) != Dims::new(&self.shape(out)) {
                return self.put(call, GraphOp::View, &[t], &[]);
            }
            self.tensors[out] = Some(t);
        }
        Ok(())
    }
}

impl ProgramCall {
    fn value(&self, i: usize) -> Option<usize> {
        match self.args.get(i) {
            Some(Arg::Value(v)) => Some(*v),
            _ => None,
        }
    }

    fn values(&self, i: usize) -> Vec<usize> {
        match self.args.get(i) {
            Some(Arg::Values(vs)) => vs.clone(),
            Some(Arg::Value(v)) => vec![*v],
            _ => Vec::new(),
        }
    }

    fn wholes(&self, i: usize) -> Vec<i64> {
        match self.args.get(i) {
            Some(Arg::Wholes(ns)) => ns.clone(),
            Some(Arg::Whole(n)) => vec![*n],
            _ => Vec::new(),
        }
    }

    fn pair(&self, i: usize, default: u64) -> [u64; 2] {
        let sizes: Vec<u64> = self.wholes(i).iter().map(|&n| n.max(0) as u64).collect();
        match sizes[..] {
            [] => [default; 2],
            [one] => [one; 2],
            [.., h, w] => [h, w],
        }
    }

    fn flag(&self, i: usize) -> bool {
        matches!(self.args.get(i), Some(Arg::Flag(true)))
    }

    fn dimension(&self, i: usize, rank: usize, default: i64) -> usize {
        wrap(self.wholes(i).first().copied().unwrap_or(default), rank)
    }
}

/// A dimension, counted from the end if negative, within the rank.
fn wrap(d: i64, rank: usize) -> usize {
    let r = i64::try_from(rank).unwrap_or(0);
    let d = if d < 0 { d.saturating_add(r) } else { d };
    usize::try_from(d.clamp(0, (r - 1).max(0))).unwrap_or(0)
}
