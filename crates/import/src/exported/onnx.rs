//! ONNX files: the graph of a network with named, perhaps open, dimensions.

use super::expression::evaluate;
use super::onnx_file::{self, Attribute, Dim, Graph, Node, Tensor, ValueInfo, is_whole};
use super::{Bindings, ExportedError, elements};
use preflop_core::model::graph::Content;
use preflop_core::model::program::{Arg, Program, ProgramCall, ProgramValue, Role};
use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Seek};

/// Reads a file; `name` is the model's name in reports.
pub fn read_onnx(
    file: impl Read + Seek,
    path: &str,
    name: &str,
    bindings: &Bindings,
) -> Result<Program, ExportedError> {
    let not =
        |detail: String| ExportedError::NotThat { file: path.to_owned(), what: "an ONNX model", detail };
    let graph = onnx_file::read(file).map_err(|e| not(e.to_string()))?;
    let graph = graph.ok_or_else(|| not("it has no graph".to_owned()))?;
    if graph.nodes.is_empty() {
        return Err(not("its graph has no nodes".to_owned()));
    }
    Reader::new(&graph, path, bindings)?.program(&graph, name)
}

pub(super) struct Reader<'a> {
    pub path: &'a str,
    names: BTreeMap<String, u64>,
    pub values: Vec<ProgramValue>,
    places: HashMap<String, usize>,
    /// Whole numbers known before the network runs: shapes, axes.
    pub constants: HashMap<usize, Vec<i64>>,
    /// Shapes that the exporter wrote down.
    declared: HashMap<&'a str, &'a ValueInfo>,
    pub calls: Vec<ProgramCall>,
}

impl<'a> Reader<'a> {
    fn new(graph: &'a Graph, path: &'a str, bindings: &Bindings) -> Result<Self, ExportedError> {
        let infos = graph.value_info.iter().chain(&graph.outputs);
        let mut reader = Self {
            path,
            names: bindings.dims.clone(),
            values: Vec::new(),
            places: HashMap::new(),
            constants: HashMap::new(),
            declared: infos.map(|v| (v.name.as_str(), v)).collect(),
            calls: Vec::new(),
        };
        for tensor in &graph.initializers {
            reader.initializer(&tensor.name, tensor);
        }
        let inputs: Vec<&ValueInfo> =
            graph.inputs.iter().filter(|i| !reader.places.contains_key(&i.name)).collect();
        reader.bind(&inputs, bindings)?;
        for input in inputs {
            let Some(shape) = reader.declared_shape(input, Some(&input.name))? else {
                let (value, op) = (input.name.clone(), "the caller".to_owned());
                return Err(ExportedError::Shape { file: path.to_owned(), value, op });
            };
            reader.add(&input.name, shape, is_whole(input.element), Role::Input);
        }
        Ok(reader)
    }

    /// `--batch` and `--seq` name the first dimensions of the first input; every other open one needs `--dim`.
    fn bind(&mut self, inputs: &[&ValueInfo], bindings: &Bindings) -> Result<(), ExportedError> {
        let mut open = Vec::new();
        for (i, input) in inputs.iter().enumerate() {
            for (d, dim) in input.shape.as_deref().unwrap_or_default().iter().enumerate() {
                let (given, what) = match (i, d) {
                    (0, 0) => (bindings.batch, "batch"),
                    (0, 1) => (bindings.seq, "sequence"),
                    _ => (None, ""),
                };
                match open_name(dim, Some(&input.name), d) {
                    Ok(fixed) if given.is_some_and(|g| g != fixed) => {
                        return Err(ExportedError::Fixed { file: self.path.to_owned(), what, fixed });
                    }
                    Err(Some(name)) => {
                        if let Some(size) = given {
                            self.names.entry(name.clone()).or_insert(size);
                        }
                        open.push(name);
                    }
                    _ => {}
                }
            }
        }
        if let Some(dim) = bindings.dims.keys().find(|d| !open.contains(d)) {
            open.sort();
            open.dedup();
            let open = if open.is_empty() { "none".to_owned() } else { open.join(", ") };
            return Err(ExportedError::NoSuchDim { file: self.path.to_owned(), dim: dim.clone(), open });
        }
        Ok(())
    }

    /// The shape written down for a tensor; `None` where a dimension has neither size nor name. An input's dimensions
    /// without a name are named after it, so that the user can give them.
    fn declared_shape(
        &self,
        info: &ValueInfo,
        input: Option<&str>,
    ) -> Result<Option<Vec<u64>>, ExportedError> {
        let Some(shape) = &info.shape else { return Ok(None) };
        let mut sizes = Vec::new();
        for (d, dim) in shape.iter().enumerate() {
            match open_name(dim, input, d) {
                Ok(size) => sizes.push(size),
                Err(Some(name)) => {
                    let size = match self.names.get(&name) {
                        Some(&size) => Ok(size),
                        None => evaluate(&name, &self.names),
                    };
                    sizes.push(size.map_err(|unknown| {
                        let dim = if unknown.is_empty() { name } else { unknown };
                        ExportedError::Open { file: self.path.to_owned(), dim }
                    })?);
                }
                Err(None) => return Ok(None),
            }
        }
        Ok(Some(sizes))
    }

    pub fn add(&mut self, name: &str, shape: Vec<u64>, whole: bool, role: Role) -> usize {
        let content = if whole { Content::Int } else { Content::Float };
        self.values.push(ProgramValue { name: name.to_owned(), shape, content, role });
        self.places.insert(name.to_owned(), self.values.len() - 1);
        self.values.len() - 1
    }

    fn initializer(&mut self, name: &str, tensor: &Tensor) {
        let shape: Vec<u64> = tensor.dims.iter().map(|&d| d.max(0) as u64).collect();
        let whole = is_whole(tensor.data_type);
        let single = elements(&shape) <= 1;
        let role = if whole || single { Role::Buffer } else { Role::Parameter };
        let place = self.add(name, shape, whole, role);
        if let Some(numbers) = &tensor.numbers {
            self.constants.insert(place, numbers.clone());
        }
    }

    fn program(mut self, graph: &Graph, name: &str) -> Result<Program, ExportedError> {
        for node in &graph.nodes {
            self.node(node)?;
        }
        let outputs = graph.outputs.iter().filter_map(|o| self.places.get(&o.name).copied()).collect();
        let first = self.values.iter().find(|v| v.role == Role::Input);
        let samples = first.and_then(|v| v.shape.first()).copied().unwrap_or(1).max(1);
        let seq = first.filter(|v| v.content == Content::Int).and_then(|v| v.shape.get(1)).copied();
        Ok(Program { name: name.to_owned(), samples, seq, values: self.values, calls: self.calls, outputs })
    }

    fn node(&mut self, node: &Node) -> Result<(), ExportedError> {
        let op = node.op_type.as_str();
        let mut inputs: Vec<Option<usize>> = Vec::new();
        for name in &node.inputs {
            if name.is_empty() {
                inputs.push(None);
                continue;
            }
            let Some(&place) = self.places.get(name) else {
                let (value, op) = (name.clone(), "a node that is not there".to_owned());
                return Err(ExportedError::Shape { file: self.path.to_owned(), value, op });
            };
            inputs.push(Some(place));
        }
        let attributes = Attributes(&node.attributes);
        if op == "Constant" {
            if let (Some(tensor), Some(out)) =
                (attributes.find("value").and_then(|a| a.tensor.as_ref()), node.outputs.first())
            {
                self.initializer(out, tensor);
            } else if let Some(out) = node.outputs.first() {
                let numbers = attributes
                    .wholes("value_ints")
                    .or_else(|| attributes.whole("value_int").map(|n| vec![n]));
                let place = self.add(out, Vec::new(), numbers.is_some(), Role::Buffer);
                if let Some(numbers) = numbers {
                    self.constants.insert(place, numbers);
                }
            }
            return Ok(());
        }
        self.check_node(node, &inputs, &attributes)?;
        let facts = self.infer(op, &inputs, &attributes, node.outputs.len());
        let mut outputs = Vec::new();
        for (i, name) in node.outputs.iter().enumerate().filter(|(_, n)| !n.is_empty()) {
            let declared = match self.declared.get(name.as_str()) {
                Some(&info) => self.declared_shape(info, None).unwrap_or(None),
                None => None,
            };
            let Some(shape) = facts.shapes.get(i).cloned().flatten().or(declared) else {
                return Err(ExportedError::Shape {
                    file: self.path.to_owned(),
                    value: name.clone(),
                    op: op.to_owned(),
                });
            };
            let whole = match self.declared.get(name.as_str()).and_then(|v| v.element) {
                Some(kind) => is_whole(Some(kind)),
                None => facts.whole,
            };
            let place = self.add(name, shape, whole, Role::Computed);
            if let Some(numbers) = facts.numbers.clone().filter(|_| i == 0) {
                self.constants.insert(place, numbers);
                self.values[place].role = Role::Buffer;
            }
            outputs.push(place);
        }
        if facts.numbers.is_none() {
            let path = layer_path(&node.name);
            self.translate(op, &inputs, &attributes, outputs, &path);
        }
        Ok(())
    }
}

/// `/layer1/layer1.0/conv1/Conv` is the layer `layer1.0.conv1`; other exporters write plain names.
fn layer_path(name: &str) -> String {
    let Some(inner) = name.strip_prefix('/') else { return name.to_owned() };
    let mut parts: Vec<&str> = inner.split('/').collect();
    parts.pop();
    let mut path = String::new();
    for part in parts {
        if part.starts_with(&path) && !path.is_empty() {
            part.clone_into(&mut path);
        } else {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(part);
        }
    }
    path
}

/// A dimension's size, or the name it is known by while it is open: its own, or one made of the input and its place.
/// Some exporters write an unknown size as a negative number.
fn open_name(dim: &Dim, input: Option<&str>, place: usize) -> Result<u64, Option<String>> {
    match (dim.value.and_then(|v| u64::try_from(v).ok()), dim.param.as_deref()) {
        (_, Some(name)) if !name.is_empty() => Err(Some(name.to_owned())),
        (Some(size), _) => Ok(size),
        _ => Err(input.map(|name| format!("{name}_{place}"))),
    }
}

/// Attributes by name.
pub(super) struct Attributes<'a>(&'a [Attribute]);

impl Attributes<'_> {
    fn find(&self, name: &str) -> Option<&Attribute> {
        self.0.iter().find(|a| a.name == name)
    }

    pub fn whole(&self, name: &str) -> Option<i64> {
        self.find(name)?.whole
    }

    pub fn wholes(&self, name: &str) -> Option<Vec<i64>> {
        self.find(name).map(|a| a.wholes.clone()).filter(|v| !v.is_empty())
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.find(name)?.text.as_deref()
    }
}

/// What is known of a node's results.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub shapes: Vec<Option<Vec<u64>>>,
    pub whole: bool,
    /// The first result, where it can be computed now.
    pub numbers: Option<Vec<i64>>,
}

impl Reader<'_> {
    pub(super) fn push(&mut self, op: &str, path: &str, args: Vec<Arg>, outputs: Vec<usize>) {
        self.calls.push(ProgramCall { op: op.to_owned(), path: path.to_owned(), args, outputs });
    }
}
