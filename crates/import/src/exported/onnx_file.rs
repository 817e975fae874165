//! The messages of an ONNX file, as far as they say something about time: nodes, shapes and short whole-number constants.
//!
//! Weights are stepped over (an 80 GB file is read in moments), and so are the graphs inside attributes (branches and
//! loops), whose nodes run a number of times that no file tells. The messages that are read nest five deep:
//! model, graph, node, attribute, tensor. Field numbers are those of `onnx.proto3`.

use super::protobuf::{Fields, Wire, WireError};
use std::io::{Read, Seek};

/// Elements of a whole-number constant that is followed; shapes and axes are shorter.
pub const MAX_CONSTANT: usize = 64;
/// Texts of attributes that are kept: words such as `SAME_UPPER`. Longer ones are somebody's data.
const MAX_WORD: u64 = 256;

/// A network.
#[derive(Debug, Default)]
pub struct Graph {
    pub nodes: Vec<Node>,
    pub initializers: Vec<Tensor>,
    pub inputs: Vec<ValueInfo>,
    pub outputs: Vec<ValueInfo>,
    pub value_info: Vec<ValueInfo>,
}

/// One call of an operator.
#[derive(Debug, Default)]
pub struct Node {
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    pub name: String,
    pub op_type: String,
    pub attributes: Vec<Attribute>,
}

/// A named argument of a node.
#[derive(Debug, Default)]
pub struct Attribute {
    pub name: String,
    pub whole: Option<i64>,
    pub wholes: Vec<i64>,
    pub text: Option<String>,
    pub tensor: Option<Tensor>,
}

/// A weight or a constant, without its contents unless they are few whole numbers.
#[derive(Debug, Default, Clone)]
pub struct Tensor {
    pub name: String,
    pub dims: Vec<i64>,
    pub data_type: Option<i64>,
    pub numbers: Option<Vec<i64>>,
}

/// Name, element type and shape of a tensor.
#[derive(Debug, Default)]
pub struct ValueInfo {
    pub name: String,
    pub element: Option<i64>,
    pub shape: Option<Vec<Dim>>,
}

/// One dimension: a size, a name, or neither.
#[derive(Debug, Default, Clone)]
pub struct Dim {
    pub value: Option<i64>,
    pub param: Option<String>,
}

const INT32: i64 = 6;
const INT64: i64 = 7;

/// Element types that are whole numbers or booleans.
pub fn is_whole(kind: Option<i64>) -> bool {
    matches!(kind, Some(2..=7 | 9 | 12 | 13))
}

type Wired<T> = Result<T, WireError>;

/// The graph of a model; `None` where it has none.
pub fn read(file: impl Read + Seek) -> Wired<Option<Graph>> {
    let mut fields = Fields::new(file)?;
    let end = fields.length();
    let mut graph = None;
    while let Some(field) = fields.next(end)? {
        match (field.number, field.wire) {
            (7, Wire::Bytes(bytes)) => graph = Some(read_graph(&mut fields, bytes)?),
            _ => fields.skip(field, end)?,
        }
    }
    Ok(graph)
}

fn read_graph<R: Read + Seek>(fields: &mut Fields<R>, bytes: u64) -> Wired<Graph> {
    let end = fields.end_of(bytes);
    let mut graph = Graph::default();
    while let Some(field) = fields.next(end)? {
        let Wire::Bytes(bytes) = field.wire else {
            fields.skip(field, end)?;
            continue;
        };
        match field.number {
            1 => graph.nodes.push(read_node(fields, bytes)?),
            5 => graph.initializers.push(read_tensor(fields, bytes)?),
            11 => graph.inputs.push(read_value_info(fields, bytes)?),
            12 => graph.outputs.push(read_value_info(fields, bytes)?),
            13 => graph.value_info.push(read_value_info(fields, bytes)?),
            _ => fields.skip(field, end)?,
        }
    }
    Ok(graph)
}

fn read_node<R: Read + Seek>(fields: &mut Fields<R>, bytes: u64) -> Wired<Node> {
    fields.keep(size_of::<Node>())?;
    let end = fields.end_of(bytes);
    let mut node = Node::default();
    while let Some(field) = fields.next(end)? {
        match (field.number, field.wire) {
            (1 | 2, Wire::Bytes(_)) => {
                fields.keep(size_of::<String>())?;
                let name = fields.text(field, end)?.unwrap_or_default();
                if field.number == 1 { &mut node.inputs } else { &mut node.outputs }.push(name);
            }
            (3, _) => node.name = fields.text(field, end)?.unwrap_or_default(),
            (4, _) => node.op_type = fields.text(field, end)?.unwrap_or_default(),
            (5, Wire::Bytes(bytes)) => node.attributes.push(read_attribute(fields, bytes)?),
            _ => fields.skip(field, end)?,
        }
    }
    Ok(node)
}

fn read_attribute<R: Read + Seek>(fields: &mut Fields<R>, bytes: u64) -> Wired<Attribute> {
    fields.keep(size_of::<Attribute>())?;
    let end = fields.end_of(bytes);
    let mut attribute = Attribute::default();
    while let Some(field) = fields.next(end)? {
        match (field.number, field.wire) {
            (1, _) => attribute.name = fields.text(field, end)?.unwrap_or_default(),
            (3, _) => attribute.whole = fields.whole(field, end)?,
            (4, _) => {
                let word = fields.bytes(field, end, MAX_WORD)?;
                attribute.text = word.map(|w| String::from_utf8_lossy(&w).into_owned());
            }
            (5, Wire::Bytes(bytes)) => attribute.tensor = Some(read_tensor(fields, bytes)?),
            (8, _) => fields.wholes(field, end, usize::MAX, &mut attribute.wholes)?,
            _ => fields.skip(field, end)?,
        }
    }
    Ok(attribute)
}

fn read_tensor<R: Read + Seek>(fields: &mut Fields<R>, bytes: u64) -> Wired<Tensor> {
    fields.keep(size_of::<Tensor>())?;
    let end = fields.end_of(bytes);
    let mut tensor = Tensor::default();
    let (mut listed, mut raw) = (Vec::new(), None);
    while let Some(field) = fields.next(end)? {
        match field.number {
            1 => fields.wholes(field, end, usize::MAX, &mut tensor.dims)?,
            2 => tensor.data_type = fields.whole(field, end)?,
            // 32-bit and 64-bit numbers; one more than is followed, so that longer ones are noticed.
            5 | 7 => fields.wholes(field, end, MAX_CONSTANT + 1, &mut listed)?,
            8 => tensor.name = fields.text(field, end)?.unwrap_or_default(),
            9 => raw = fields.bytes(field, end, (MAX_CONSTANT * size_of::<i64>()) as u64)?,
            _ => fields.skip(field, end)?,
        }
    }
    if is_whole(tensor.data_type) {
        tensor.numbers = match raw {
            _ if !listed.is_empty() => Some(listed),
            Some(raw) if tensor.data_type == Some(INT64) => {
                Some(raw.as_chunks().0.iter().map(|c| i64::from_le_bytes(*c)).collect())
            }
            Some(raw) if tensor.data_type == Some(INT32) => {
                Some(raw.as_chunks().0.iter().map(|c| i64::from(i32::from_le_bytes(*c))).collect())
            }
            _ => None,
        }
        .filter(|n: &Vec<i64>| n.len() <= MAX_CONSTANT);
    }
    Ok(tensor)
}

fn read_value_info<R: Read + Seek>(fields: &mut Fields<R>, bytes: u64) -> Wired<ValueInfo> {
    fields.keep(size_of::<ValueInfo>())?;
    let end = fields.end_of(bytes);
    let mut info = ValueInfo::default();
    while let Some(field) = fields.next(end)? {
        match (field.number, field.wire) {
            (1, _) => info.name = fields.text(field, end)?.unwrap_or_default(),
            (2, Wire::Bytes(bytes)) => read_type(fields, bytes, &mut info)?,
            _ => fields.skip(field, end)?,
        }
    }
    Ok(info)
}

/// `TypeProto`, of which only tensors are read.
fn read_type<R: Read + Seek>(fields: &mut Fields<R>, bytes: u64, info: &mut ValueInfo) -> Wired<()> {
    let end = fields.end_of(bytes);
    while let Some(field) = fields.next(end)? {
        match (field.number, field.wire) {
            (1, Wire::Bytes(bytes)) => {
                let tensor = fields.end_of(bytes);
                while let Some(field) = fields.next(tensor)? {
                    match (field.number, field.wire) {
                        (1, _) => info.element = fields.whole(field, tensor)?,
                        (2, Wire::Bytes(bytes)) => info.shape = Some(read_shape(fields, bytes)?),
                        _ => fields.skip(field, tensor)?,
                    }
                }
            }
            _ => fields.skip(field, end)?,
        }
    }
    Ok(())
}

fn read_shape<R: Read + Seek>(fields: &mut Fields<R>, bytes: u64) -> Wired<Vec<Dim>> {
    let end = fields.end_of(bytes);
    let mut dims = Vec::new();
    while let Some(field) = fields.next(end)? {
        let (1, Wire::Bytes(bytes)) = (field.number, field.wire) else {
            fields.skip(field, end)?;
            continue;
        };
        fields.keep(size_of::<Dim>())?;
        let inner = fields.end_of(bytes);
        let mut dim = Dim::default();
        while let Some(field) = fields.next(inner)? {
            match field.number {
                1 => dim.value = fields.whole(field, inner)?,
                2 => dim.param = fields.text(field, inner)?,
                _ => fields.skip(field, inner)?,
            }
        }
        dims.push(dim);
    }
    Ok(dims)
}
