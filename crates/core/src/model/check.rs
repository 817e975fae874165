//! Checks a graph that may come from a file, so that running it cannot index out of range.

use super::builder::MAX_ELEMENTS;
use super::error::ModelError;
use super::graph::{Graph, GraphOp, Node};

/// Fewest inputs and parameters, and the rank its first input must have (0: any).
fn needs(op: &GraphOp) -> (usize, usize, usize) {
    match op {
        GraphOp::Input | GraphOp::Create | GraphOp::Unmodelled { .. } => (0, 0, 0),
        GraphOp::UseParameter => (0, 1, 0),
        GraphOp::Conv(_) => (1, 1, 4),
        GraphOp::BatchNorm | GraphOp::GroupNorm { .. } | GraphOp::Addmm => (1, 2, 0),
        GraphOp::RmsNorm | GraphOp::Embedding => (1, 1, 0),
        GraphOp::Binary { .. }
        | GraphOp::Matmul
        | GraphOp::ToLike
        | GraphOp::CrossEntropy
        | GraphOp::BinaryCrossEntropy
        | GraphOp::MseLoss => (2, 0, 0),
        GraphOp::MaxPool(_) | GraphOp::AvgPool(_) | GraphOp::AdaptiveAvgPool | GraphOp::Interpolate => {
            (1, 0, 4)
        }
        GraphOp::Attention { .. } => (3, 0, 4),
        GraphOp::Rnn { .. } | GraphOp::FastSelfAttention { .. } => (1, 4, 3),
        GraphOp::FastEncoderLayer { .. } => (1, 12, 3),
        _ => (1, 0, 0),
    }
}

/// Everything that lowering relies on.
pub(super) fn check(graph: &Graph) -> Result<(), ModelError> {
    let mut known = vec![false; graph.tensors.len()];
    for (i, node) in graph.nodes.iter().enumerate() {
        check_node(graph, node, &mut known).map_err(|problem| ModelError::Graph {
            node: i,
            name: node.name.clone(),
            problem,
        })?;
    }
    let outside = |t: &u32| *t as usize >= graph.tensors.len();
    if graph.kept.iter().chain(graph.held.iter().map(|(t, _)| t)).chain(graph.loss.iter()).any(outside) {
        return Err(ModelError::Layer {
            layer: graph.name.clone(),
            problem: "a kept tensor or the loss does not exist".to_owned(),
        });
    }
    Ok(())
}

fn check_node(graph: &Graph, node: &Node, known: &mut [bool]) -> Result<(), String> {
    let (inputs, parameters, rank) = needs(&node.op);
    if node.inputs.len() < inputs || node.parameters.len() < parameters || node.outputs.is_empty() {
        return Err(format!("needs {inputs} inputs, {parameters} parameters and an output"));
    }
    for &t in &node.inputs {
        if !known.get(t as usize).copied().unwrap_or(false) {
            return Err(format!("input tensor {t} is not computed before"));
        }
    }
    if let Some(p) = node.parameters.iter().find(|&&p| p as usize >= graph.parameters.len()) {
        return Err(format!("parameter {p} does not exist"));
    }
    for &t in &node.outputs {
        let info =
            graph.tensors.get(t as usize).ok_or_else(|| format!("output tensor {t} does not exist"))?;
        if std::mem::replace(&mut known[t as usize], true) {
            return Err(format!("tensor {t} is computed twice"));
        }
        if info.shape.contains(&0) || info.shape.numel() > MAX_ELEMENTS {
            return Err(format!("output {} is empty or too large", info.shape));
        }
    }
    let shape = |t: u32| graph.tensors[t as usize].shape;
    let out = shape(node.outputs[0]);
    let first = node.inputs.first().map(|&t| shape(t));
    if rank > 0 && first.is_some_and(|s| s.len() != rank) {
        return Err(format!("its input must have {rank} dimensions"));
    }
    let same_size =
        matches!(node.op, GraphOp::View | GraphOp::Unary { .. } | GraphOp::Dropout | GraphOp::Contiguous);
    if same_size && first.is_some_and(|s| s.numel() != out.numel()) {
        return Err("input and output differ in size".to_owned());
    }
    let bad = match &node.op {
        GraphOp::Conv(_) => out.len() != 4 || graph.parameters[node.parameters[0] as usize].shape.len() != 4,
        GraphOp::MaxPool(_) | GraphOp::AvgPool(_) | GraphOp::AdaptiveAvgPool | GraphOp::Interpolate => {
            out.len() != 4
        }
        GraphOp::RoiAlign { .. } => out.len() != 4,
        GraphOp::Linear => linear_is_bad(graph, node),
        GraphOp::Addmm | GraphOp::Embedding => graph.parameters[node.parameters[0] as usize].shape.len() != 2,
        GraphOp::BatchNorm | GraphOp::GroupNorm { .. } => out.len() < 2 || Some(out) != first,
        GraphOp::Permute { order } => {
            let mut seen = order.clone();
            seen.sort_unstable();
            !seen.iter().copied().eq(0..out.len()) || first.is_some_and(|s| s.len() != out.len())
        }
        GraphOp::Expand => first.is_some_and(|s| s.len() != out.len()),
        GraphOp::Cat { dim } => node.inputs.iter().any(|&t| shape(t).len() != out.len() || *dim >= out.len()),
        GraphOp::Split { dim } => first.is_some_and(|s| *dim >= s.len()),
        GraphOp::Slice { dim, squeeze } => {
            first.is_some_and(|s| *dim >= s.len() || out.len() + usize::from(*squeeze) != s.len())
        }
        GraphOp::Matmul => {
            let (a, b) = (shape(node.inputs[0]), shape(node.inputs[1]));
            a.len() < 3 || a.len() != b.len()
        }
        GraphOp::Attention { .. } => {
            node.inputs.len() > 4 || node.inputs[..3].iter().any(|&t| shape(t).len() != 4)
        }
        GraphOp::Rnn { layers, hidden, .. } => *layers > 1024 || *hidden > 1 << 20,
        GraphOp::CrossEntropy => first.is_some_and(|s| s.len() < 2),
        GraphOp::FastEncoderLayer { heads } | GraphOp::FastSelfAttention { heads } => {
            *heads == 0 || out.len() != 3 || !out[2].is_multiple_of(*heads)
        }
        _ => false,
    };
    if bad { Err("its shapes do not fit".to_owned()) } else { Ok(()) }
}

fn linear_is_bad(graph: &Graph, node: &Node) -> bool {
    let x = graph.tensors[node.inputs[0] as usize].shape;
    let weight = match (node.parameters.first(), node.inputs.get(1)) {
        (Some(&p), _) => graph.parameters[p as usize].shape,
        (None, Some(&t)) => graph.tensors[t as usize].shape,
        (None, None) => return true,
    };
    weight.len() != 2 || x.len() < 2 || x.last() != weight.get(1)
}
