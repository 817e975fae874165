//! ONNX files: the graph of a network with named, perhaps open, dimensions.

use super::expression::evaluate;
use super::{Bindings, ExportedError, elements};
use preflop_core::model::graph::Content;
use preflop_core::model::program::{Arg, Program, ProgramCall, ProgramValue, Role};
use rten_onnx::onnx::{
    AttributeProto, DataType, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto,
};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;

/// Elements of a whole-number constant that is followed; shapes and axes are shorter.
const MAX_CONSTANT: usize = 64;

/// Reads a file; `name` is the model's name in reports.
pub fn read_onnx(file: File, path: &str, name: &str, bindings: &Bindings) -> Result<Program, ExportedError> {
    let not =
        |detail: String| ExportedError::NotThat { file: path.to_owned(), what: "an ONNX model", detail };
    let model = ModelProto::parse_file(file).map_err(|e| not(e.to_string()))?;
    let graph = model.graph.ok_or_else(|| not("it has no graph".to_owned()))?;
    if graph.node.is_empty() {
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
    declared: HashMap<&'a str, &'a ValueInfoProto>,
    pub calls: Vec<ProgramCall>,
}

fn is_whole(kind: Option<DataType>) -> bool {
    matches!(kind.map(|k| k.0), Some(2..=7 | 9 | 12 | 13))
}

impl<'a> Reader<'a> {
    fn new(graph: &'a GraphProto, path: &'a str, bindings: &Bindings) -> Result<Self, ExportedError> {
        let infos = graph.value_info.iter().chain(&graph.output);
        let mut reader = Self {
            path,
            names: bindings.dims.clone(),
            values: Vec::new(),
            places: HashMap::new(),
            constants: HashMap::new(),
            declared: infos.filter_map(|v| Some((v.name.as_deref()?, v))).collect(),
            calls: Vec::new(),
        };
        for tensor in &graph.initializer {
            reader.initializer(tensor);
        }
        let inputs: Vec<&ValueInfoProto> = graph
            .input
            .iter()
            .filter(|i| i.name.as_ref().is_some_and(|n| !reader.places.contains_key(n)))
            .collect();
        reader.bind(&inputs, bindings)?;
        for input in inputs {
            let name = input.name.clone().unwrap_or_default();
            let shape = reader.declared_shape(input)?.unwrap_or_default();
            let whole = is_whole(element(input));
            reader.add(&name, shape, whole, Role::Input);
        }
        Ok(reader)
    }

    /// `--batch` and `--seq` name the first dimensions of the first input; every other open one needs `--dim`.
    fn bind(&mut self, inputs: &[&ValueInfoProto], bindings: &Bindings) -> Result<(), ExportedError> {
        let mut open = Vec::new();
        for (i, input) in inputs.iter().enumerate() {
            let dims =
                input.r#type.as_ref().and_then(|t| t.tensor_type.as_ref()).and_then(|t| t.shape.as_ref());
            for (d, dim) in dims.map_or(&[][..], |s| s.dim.as_slice()).iter().enumerate() {
                let (given, what) = match (i, d) {
                    (0, 0) => (bindings.batch, "batch"),
                    (0, 1) => (bindings.seq, "sequence"),
                    _ => (None, ""),
                };
                match (&dim.dim_param, dim.dim_value) {
                    (Some(name), _) if !name.is_empty() => {
                        open.push(name.clone());
                        if let Some(size) = given {
                            self.names.entry(name.clone()).or_insert(size);
                        }
                    }
                    (_, Some(fixed)) if given.is_some_and(|g| i64::try_from(g) != Ok(fixed)) => {
                        let fixed = fixed.max(0) as u64;
                        return Err(ExportedError::Fixed { file: self.path.to_owned(), what, fixed });
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

    fn declared_shape(&self, info: &ValueInfoProto) -> Result<Option<Vec<u64>>, ExportedError> {
        let tensor = info.r#type.as_ref().and_then(|t| t.tensor_type.as_ref());
        let Some(shape) = tensor.and_then(|t| t.shape.as_ref()) else { return Ok(None) };
        let mut sizes = Vec::new();
        for dim in &shape.dim {
            match (dim.dim_value, &dim.dim_param) {
                (Some(n), _) => sizes.push(n.max(0) as u64),
                (None, Some(name)) => sizes.push(evaluate(name, &self.names).map_err(|unknown| {
                    let dim = if unknown.is_empty() { name.clone() } else { unknown };
                    ExportedError::Open { file: self.path.to_owned(), dim }
                })?),
                (None, None) => return Ok(None),
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

    fn initializer(&mut self, tensor: &TensorProto) {
        let shape: Vec<u64> = tensor.dims.iter().map(|&d| d.max(0) as u64).collect();
        let whole = is_whole(tensor.data_type);
        let single = elements(&shape) <= 1;
        let role = if whole || single { Role::Buffer } else { Role::Parameter };
        let name = tensor.name.clone().unwrap_or_default();
        let place = self.add(&name, shape, whole, role);
        if let Some(numbers) = whole_numbers(tensor) {
            self.constants.insert(place, numbers);
        }
    }

    fn program(mut self, graph: &GraphProto, name: &str) -> Result<Program, ExportedError> {
        for node in &graph.node {
            self.node(node)?;
        }
        let outputs =
            graph.output.iter().filter_map(|o| self.places.get(o.name.as_deref()?).copied()).collect();
        let first = self.values.iter().find(|v| v.role == Role::Input);
        let samples = first.and_then(|v| v.shape.first()).copied().unwrap_or(1).max(1);
        let seq = first.filter(|v| v.content == Content::Int).and_then(|v| v.shape.get(1)).copied();
        Ok(Program { name: name.to_owned(), samples, seq, values: self.values, calls: self.calls, outputs })
    }

    fn node(&mut self, node: &NodeProto) -> Result<(), ExportedError> {
        let op = node.op_type.as_deref().unwrap_or_default();
        let mut inputs: Vec<Option<usize>> = Vec::new();
        for name in &node.input {
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
        let attributes = Attributes(&node.attribute);
        if op == "Constant" {
            if let (Some(tensor), Some(out)) =
                (attributes.find("value").and_then(|a| a.t.as_ref()), node.output.first())
            {
                let tensor = TensorProto { name: Some(out.clone()), ..tensor.clone() };
                self.initializer(&tensor);
            } else if let Some(out) = node.output.first() {
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
        let facts = self.infer(op, &inputs, &attributes, node.output.len());
        let mut outputs = Vec::new();
        for (i, name) in node.output.iter().enumerate().filter(|(_, n)| !n.is_empty()) {
            let declared = match self.declared.get(name.as_str()) {
                Some(&info) => self.declared_shape(info).unwrap_or(None),
                None => None,
            };
            let Some(shape) = facts.shapes.get(i).cloned().flatten().or(declared) else {
                return Err(ExportedError::Shape {
                    file: self.path.to_owned(),
                    value: name.clone(),
                    op: op.to_owned(),
                });
            };
            let whole = match self.declared.get(name.as_str()).and_then(|v| element(v)) {
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
            let path = layer_path(node.name.as_deref().unwrap_or_default());
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

fn element(info: &ValueInfoProto) -> Option<DataType> {
    info.r#type.as_ref()?.tensor_type.as_ref()?.elem_type
}

/// Short whole-number contents, from whichever field holds them.
fn whole_numbers(tensor: &TensorProto) -> Option<Vec<i64>> {
    let count = tensor.dims.iter().fold(1_usize, |n, &d| n.saturating_mul(d.max(0) as usize));
    if count > MAX_CONSTANT {
        return None;
    }
    if !tensor.int64_data.is_empty() {
        return Some(tensor.int64_data.clone());
    }
    if !tensor.int32_data.is_empty() && is_whole(tensor.data_type) {
        return Some(tensor.int32_data.iter().map(|&n| i64::from(n)).collect());
    }
    let raw = tensor.raw_data.as_ref()?.borrow();
    match tensor.data_type? {
        DataType::INT64 => {
            Some(raw.chunks_exact(8).filter_map(|c| Some(i64::from_le_bytes(c.try_into().ok()?))).collect())
        }
        DataType::INT32 => Some(
            raw.chunks_exact(4)
                .filter_map(|c| Some(i64::from(i32::from_le_bytes(c.try_into().ok()?))))
                .collect(),
        ),
        _ => None,
    }
}

/// Attributes by name.
pub(super) struct Attributes<'a>(&'a [AttributeProto]);

impl Attributes<'_> {
    fn find(&self, name: &str) -> Option<&AttributeProto> {
        self.0.iter().find(|a| a.name.as_deref() == Some(name))
    }

    pub fn whole(&self, name: &str) -> Option<i64> {
        self.find(name)?.i
    }

    pub fn wholes(&self, name: &str) -> Option<Vec<i64>> {
        self.find(name).map(|a| a.ints.clone()).filter(|v| !v.is_empty())
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.find(name)?.s.as_deref()
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
