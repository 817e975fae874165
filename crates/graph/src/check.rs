//! Checks a graph that may come from a file, so that running it cannot go wrong.

use super::builder::MAX_ELEMENTS;
use super::dims::Dims;
use super::error::ModelError;
use super::graph::{Graph, GraphOp, Node};

/// Fewest inputs and parameters, and the rank its first input must have (0: any).
fn needs(op: &GraphOp) -> (usize, usize, usize) {
    match op {
        GraphOp::Input | GraphOp::Create | GraphOp::Cache | GraphOp::Unmodelled { .. } => (0, 0, 0),
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
        GraphOp::MaxPool(_)
        | GraphOp::AvgPool(_)
        | GraphOp::AdaptiveAvgPool
        | GraphOp::Interpolate { .. }
        | GraphOp::RoiAlign { .. }
        | GraphOp::RepeatHeads => (1, 0, 4),
        GraphOp::Append | GraphOp::Store => (2, 0, 4),
        GraphOp::Attention { .. } => (3, 0, 4),
        GraphOp::Rnn { .. } | GraphOp::FastSelfAttention { .. } => (1, 4, 3),
        GraphOp::FastEncoderLayer { .. } => (1, 12, 3),
        _ => (1, 0, 0),
    }
}

/// Everything that lowering relies on.
pub fn check(graph: &Graph) -> Result<(), ModelError> {
    let mut known = vec![false; graph.tensors.len()];
    let mut shapes = Shapes::default();
    for (i, node) in graph.nodes.iter().enumerate() {
        check_node(graph, node, &mut known, &mut shapes).map_err(|problem| ModelError::Graph {
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

/// May a node of this kind have these shapes?
pub(super) fn acceptable(op: &GraphOp, inputs: &[Dims], parameters: &[Dims], outputs: &[Dims]) -> bool {
    let (fewest_inputs, fewest_parameters, rank) = needs(op);
    inputs.len() >= fewest_inputs
        && parameters.len() >= fewest_parameters
        && !outputs.is_empty()
        && (rank == 0 || inputs.first().is_some_and(|x| x.len() == rank))
        && (!inputs.is_empty() || fewest_inputs == 0)
        && fits(op, inputs, parameters, outputs)
}

/// Room for the shapes of one node after the other.
#[derive(Default)]
struct Shapes {
    inputs: Vec<Dims>,
    parameters: Vec<Dims>,
    outputs: Vec<Dims>,
}

fn check_node(graph: &Graph, node: &Node, known: &mut [bool], shapes: &mut Shapes) -> Result<(), String> {
    let (inputs, parameters, rank) = needs(&node.op);
    if node.inputs.len() < inputs || node.parameters.len() < parameters || node.outputs.is_empty() {
        return Err(format!("needs {inputs} inputs, {parameters} parameters and an output"));
    }
    for &t in &node.inputs {
        if !known.get(t as usize).copied().unwrap_or(false) {
            return Err(format!("input tensor {t} is not computed before"));
        }
    }
    for &p in &node.parameters {
        let shape = graph.parameters.get(p as usize).map(|p| p.shape);
        if shape.is_none_or(|s| s.contains(&0) || s.is_empty() || s.numel() > MAX_ELEMENTS) {
            return Err(format!("parameter {p} does not exist or has no usable shape"));
        }
    }
    for &t in &node.outputs {
        let info =
            graph.tensors.get(t as usize).ok_or_else(|| format!("output tensor {t} does not exist"))?;
        if std::mem::replace(&mut known[t as usize], true) {
            return Err(format!("tensor {t} is computed twice"));
        }
        if info.shape.is_empty() || info.shape.contains(&0) || info.shape.numel() > MAX_ELEMENTS {
            return Err(format!("output {} is empty or too large", info.shape));
        }
    }
    let fill = |room: &mut Vec<Dims>, numbers: &[u32], shape: &dyn Fn(usize) -> Dims| {
        room.clear();
        room.extend(numbers.iter().map(|&n| shape(n as usize)));
    };
    let Shapes { inputs, parameters, outputs } = shapes;
    fill(inputs, &node.inputs, &|t| graph.tensors[t].shape);
    if rank > 0 && inputs[0].len() != rank {
        return Err(format!("its input must have {rank} dimensions, not {}", inputs[0]));
    }
    fill(outputs, &node.outputs, &|t| graph.tensors[t].shape);
    fill(parameters, &node.parameters, &|p| graph.parameters[p].shape);
    if fits(&node.op, inputs, parameters, outputs) {
        return Ok(());
    }
    let list = |d: &[Dims]| d.iter().map(Dims::to_string).collect::<Vec<_>>().join(", ");
    Err(format!("inputs {} with parameters {} cannot give {}", list(inputs), list(parameters), list(outputs)))
}

/// The matrix shape `[n, k]` turns rows of k into rows of n.
fn is_linear(x: Dims, weight: Dims, out: Dims) -> bool {
    weight.len() == 2 && x.len() >= 2 && x.last() == weight.get(1) && out == x.with(x.len() - 1, weight[0])
}

/// Pieces of `whole` along `dim`.
fn are_pieces(whole: Dims, pieces: &[Dims], dim: usize) -> bool {
    dim < whole.len()
        && pieces.iter().all(|p| p.len() == whole.len() && p.with(dim, 1) == whole.with(dim, 1))
        && pieces.iter().fold(0_u64, |n, p| n.saturating_add(p[dim])) == whole[dim]
}

fn broadcasts(a: Dims, b: Dims, out: Dims) -> bool {
    let at = |s: &Dims, i: usize| (i + s.len()).checked_sub(out.len()).map_or(1, |j| s[j]);
    out.len() == a.len().max(b.len())
        && (0..out.len()).all(|i| {
            let (x, y) = (at(&a, i), at(&b, i));
            (x == y || x == 1 || y == 1) && out[i] == x.max(y)
        })
}

/// Do the shapes agree with what the call does?
fn fits(op: &GraphOp, x: &[Dims], p: &[Dims], outs: &[Dims]) -> bool {
    let out = outs[0];
    let same_maps = || out.len() == 4 && out[..2] == x[0][..2];
    match op {
        GraphOp::Input | GraphOp::Create | GraphOp::Unmodelled { .. } | GraphOp::Nms => true,
        GraphOp::UseParameter => out == p[0],
        GraphOp::Conv(g) => {
            let w = p[0];
            let sane = [g.stride, g.pad, g.dilation].iter().flatten().all(|&v| v < 1 << 20);
            if out.len() != 4 || w.len() != 4 || g.groups == 0 || g.stride.contains(&0) || !sane {
                return false;
            }
            let channels =
                if g.transposed { [x[0][1], out[1] / g.groups] } else { [out[1], x[0][1] / g.groups] };
            let conv = g.of(x[0], w, out[1]);
            let divide = x[0][1].is_multiple_of(g.groups) && out[1].is_multiple_of(g.groups);
            divide && w[..2] == channels && out[0] == x[0][0] && (out[2], out[3]) == (conv.oh(), conv.ow())
        }
        GraphOp::BatchNorm => out == x[0] && out.len() >= 2,
        GraphOp::GroupNorm { groups } => {
            out == x[0] && out.len() >= 2 && *groups > 0 && out[1].is_multiple_of(*groups)
        }
        GraphOp::LayerNorm { cols } => out == x[0] && *cols > 0,
        GraphOp::RmsNorm
        | GraphOp::Unary { .. }
        | GraphOp::Contiguous
        | GraphOp::Dropout
        | GraphOp::Noise { .. }
        | GraphOp::Softmax
        | GraphOp::ToFloat
        | GraphOp::ToLike => out == x[0],
        GraphOp::Append => out == x[0] || x.get(2).is_some_and(|before| are_pieces(out, &[x[0], *before], 2)),
        GraphOp::Cache => out.len() == 4,
        GraphOp::Store => {
            out == x[0] && x[1].len() == 4 && x[1].with(2, 1) == out.with(2, 1) && x[1][2] <= out[2]
        }
        GraphOp::RepeatHeads => out.with(1, 1) == x[0].with(1, 1) && out[1].is_multiple_of(x[0][1]),
        GraphOp::Linear => match (p.first(), x.get(1)) {
            (Some(&w), _) | (None, Some(&w)) => is_linear(x[0], w, out),
            (None, None) => false,
        },
        GraphOp::Addmm => p[0].len() == 2 && is_linear(x[0], p[0].permuted(&[1, 0]), out),
        GraphOp::Embedding => p[0].len() == 2 && out.len() == x[0].len() + 1 && out.last() == p[0].last(),
        GraphOp::Binary { inplace, .. } => broadcasts(x[0], x[1], out) && (!inplace || out == x[0]),
        GraphOp::Cat { dim } => are_pieces(out, x, *dim),
        GraphOp::Split { dim } => are_pieces(x[0], outs, *dim),
        GraphOp::Slice { dim, squeeze: false } => {
            *dim < out.len()
                && out.len() == x[0].len()
                && out[*dim] <= x[0][*dim]
                && out.with(*dim, 1) == x[0].with(*dim, 1)
        }
        GraphOp::Slice { dim, squeeze: true } => {
            let mut kept = x[0].to_vec();
            *dim < kept.len() && {
                kept.remove(*dim);
                *kept == *out
            }
        }
        GraphOp::View | GraphOp::Reorder => out.numel() == x[0].numel(),
        GraphOp::Permute { order } => {
            let mut seen = order.clone();
            seen.sort_unstable();
            seen.iter().copied().eq(0..x[0].len()) && out == x[0].permuted(order)
        }
        GraphOp::Expand => out.len() == x[0].len() && x[0].iter().zip(&*out).all(|(&a, &b)| a == b || a == 1),
        GraphOp::MaxPool(w) | GraphOp::AvgPool(w) => {
            same_maps() && [w.size, w.stride, w.pad].iter().all(|&v| v < 1 << 20)
        }
        GraphOp::AdaptiveAvgPool | GraphOp::Interpolate { .. } => same_maps(),
        GraphOp::RoiAlign { sampling } => out.len() == 4 && *sampling < 1 << 10,
        GraphOp::Matmul => {
            let (a, b, n) = (x[0], x[1], x[0].len());
            n >= 3
                && b.len() == n
                && a[..n - 2] == b[..n - 2]
                && a[n - 1] == b[n - 2]
                && out == a.with(n - 1, b[n - 1])
        }
        GraphOp::Attention { .. } => {
            let (q, k, v) = (x[0], x[1], x[2]);
            let heads = k.len() == 4 && k == v && q[0] == k[0] && q[3] == k[3] && q[1].is_multiple_of(k[1]);
            heads
                && out == q
                && x.len() <= 4
                && x.get(3).is_none_or(|m| broadcasts(*m, q.with(3, k[2]), q.with(3, k[2])))
        }
        GraphOp::Rnn { hidden, layers, bidirectional, .. } => {
            let dirs = if *bidirectional { 2 } else { 1 };
            (1..=1024).contains(layers)
                && (1..=1 << 20).contains(hidden)
                && p.len() as u64 == 4 * layers * dirs
                && out == x[0].with(2, hidden * dirs)
        }
        GraphOp::Mean { dims } | GraphOp::Sum { dims } => {
            let averaged = dims.iter().try_fold(1_u64, |n, &d| n.checked_mul(*x[0].get(d)?));
            averaged.and_then(|n| n.checked_mul(out.numel())) == Some(x[0].numel())
        }
        GraphOp::CrossEntropy => x[0].len() >= 2 && out.numel() == 1,
        GraphOp::BinaryCrossEntropy | GraphOp::MseLoss => out.numel() == 1,
        GraphOp::Either => x.iter().all(|s| *s == out),
        GraphOp::FastEncoderLayer { heads } | GraphOp::FastSelfAttention { heads } => {
            let d = x[0][2];
            let packed = |i: usize, rows: u64, cols: u64| *p[i] == [rows, cols];
            let projections =
                packed(0, 3 * d, d) && packed(2, d, d) && *heads > 0 && d.is_multiple_of(*heads);
            let inner = p.get(8).and_then(|w| w.first()).copied().unwrap_or(0);
            let feed = p.len() < 12 || (packed(8, inner, d) && packed(10, d, inner));
            out == x[0] && projections && feed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::ConvGeometry;

    #[test]
    fn groups_that_do_not_divide_the_channels_cannot_be() {
        let (maps, row) = (Dims::new(&[2, 64, 8, 8]), Dims::new(&[64]));
        let norm = |groups| acceptable(&GraphOp::GroupNorm { groups }, &[maps], &[row, row], &[maps]);
        assert!(norm(1) && norm(32) && norm(64));
        // Images times 2^63 groups overflow (found by fuzzing `graph_file`).
        assert!(!norm(0) && !norm(48) && !norm(128) && !norm(1 << 63));
        let conv = |groups| {
            let how =
                ConvGeometry { stride: [1, 1], pad: [0, 0], dilation: [1, 1], groups, transposed: false };
            acceptable(&GraphOp::Conv(how), &[maps], &[Dims::new(&[64, 64 / groups, 1, 1])], &[maps])
        };
        assert!(conv(1) && conv(16) && !conv(48));
    }
}
