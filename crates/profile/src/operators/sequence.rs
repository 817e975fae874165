//! Recurrent layers, norms and softmax along rows, look-ups, reductions, losses.

use super::{Input, Work, main_dtype};
use crate::kernel_name::KernelFamily;
use preflop_ops::{Embedding, Listed, ListedKind, Op, OpCall, Pass, Rnn, RnnKind, Rowwise, RowwiseKind};
use preflop_units::dtype::Dtype;
use preflop_units::{Bytes, Flops};

/// Work of an operator along sequences or rows.
pub fn work(name: &str, inputs: &[Input]) -> Option<Work> {
    rnn(name, inputs).or_else(|| rows(name, inputs)).or_else(|| look_up(name, inputs))
}

fn rnn(name: &str, inputs: &[Input]) -> Option<Work> {
    // (input, weights, stride, buffer, hx, cx, [output, grads x 3,] mode, hidden, proj, layers, batch_first,
    // dropout, train, bidirectional, ..)
    let (mode_at, pass) = match name {
        "_cudnn_rnn" => (6, Pass::Fwd),
        "_cudnn_rnn_backward" => (10, Pass::Bwd),
        _ => return None,
    };
    let x = <[u64; 3]>::try_from(inputs.first()?.dims.as_slice()).ok()?;
    let number = |i: usize| inputs.get(mode_at + i).and_then(|v| v.integers().first().copied());
    let flag = |i: usize| inputs.get(mode_at + i).is_some_and(Input::is_true);
    let kind = match number(0)? {
        2 => RnnKind::Lstm,
        3 => RnnKind::Gru,
        _ => RnnKind::Tanh,
    };
    let (batch, seq) = if flag(4) { (x[0], x[1]) } else { (x[1], x[0]) };
    let op =
        Rnn { kind, batch, seq, input: x[2], hidden: number(1)?, layers: number(3)?, bidirectional: flag(7) };
    Some(Work::of(vec![OpCall::new(Op::Rnn(op), pass, main_dtype(inputs)?)], KernelFamily::Rnn))
}

/// Rows and columns when the last `axes` sizes are the row.
fn split(dims: &[u64], axes: usize) -> (u64, u64) {
    let at = dims.len().saturating_sub(axes.max(1));
    (dims[..at].iter().product::<u64>().max(1), dims[at..].iter().product::<u64>().max(1))
}

/// Is a reduction over the first sizes (as bias gradients are) rather than the last?
fn over_first(input: &Input, axes: &Input) -> bool {
    let rank = i64::try_from(input.dims.len()).unwrap_or(0);
    let listed: Vec<i64> = axes
        .value
        .trim_matches(['[', ']', ' '])
        .split(',')
        .filter_map(|n| n.trim().parse::<i64>().ok())
        .map(|n| if n < 0 { n + rank } else { n })
        .collect();
    !listed.is_empty() && !listed.contains(&(rank - 1))
}

fn rows(name: &str, inputs: &[Input]) -> Option<Work> {
    let input = inputs.first()?;
    let dtype = main_dtype(inputs)?;
    if input.dims.is_empty() {
        return None;
    }
    if name == "cumsum" {
        let (rows, cols) = split(&input.dims, 1);
        let op = Listed::new(ListedKind::CumSum, &[rows, cols]);
        return Some(Work::of(vec![OpCall::fwd(Op::Listed(op), dtype)], KernelFamily::Reduction));
    }
    let normalised = |i: usize| inputs.get(i).map_or(1, |s| s.integers().len().max(1));
    let (kind, family, pass, at, axes) = match name {
        "_softmax" | "softmax" => (RowwiseKind::Softmax, KernelFamily::Softmax, Pass::Fwd, 0, 1),
        "_softmax_backward_data" => (RowwiseKind::Softmax, KernelFamily::Softmax, Pass::Bwd, 0, 1),
        "_log_softmax" | "log_softmax" => (RowwiseKind::LogSoftmax, KernelFamily::Softmax, Pass::Fwd, 0, 1),
        "_log_softmax_backward_data" => (RowwiseKind::LogSoftmax, KernelFamily::Softmax, Pass::Bwd, 0, 1),
        "native_layer_norm" => {
            (RowwiseKind::LayerNorm, KernelFamily::Normalisation, Pass::Fwd, 0, normalised(1))
        }
        "native_layer_norm_backward" => {
            (RowwiseKind::LayerNorm, KernelFamily::Normalisation, Pass::Bwd, 1, normalised(2))
        }
        "rms_norm" | "_fused_rms_norm" | "fused_add_rms_norm" => {
            (RowwiseKind::RmsNorm, KernelFamily::Normalisation, Pass::Fwd, 0, 1)
        }
        "sum" | "mean" | "amax" | "max" | "min" | "norm" | "linalg_vector_norm" | "var" | "var_mean"
        | "all" | "any" | "argmax" => {
            let kind = match inputs.get(1) {
                Some(axes) if over_first(input, axes) => RowwiseKind::SumCols,
                _ => RowwiseKind::Sum,
            };
            (kind, KernelFamily::Reduction, Pass::Fwd, 0, 1)
        }
        _ => return None,
    };
    let (rows, cols) = split(&inputs.get(at)?.dims, axes);
    let op = Rowwise { kind, rows, cols };
    Some(Work::of(vec![OpCall::new(Op::Rowwise(op), pass, dtype)], family))
}

fn look_up(name: &str, inputs: &[Input]) -> Option<Work> {
    match name {
        "embedding" => {
            let [vocab, dim] = <[u64; 2]>::try_from(inputs.first()?.dims.as_slice()).ok()?;
            let tokens = inputs.get(1)?.elements() as u64;
            Some(embedding(vocab, dim, tokens, Pass::Fwd, main_dtype(inputs)?))
        }
        "index_select" => {
            let [vocab, dim] = <[u64; 2]>::try_from(inputs.first()?.dims.as_slice()).ok()?;
            let tokens = inputs.get(2)?.elements() as u64;
            Some(embedding(vocab, dim, tokens, Pass::Fwd, main_dtype(inputs)?))
        }
        // (grad, indices, number of embeddings, ..)
        "embedding_dense_backward" => {
            let dim = inputs.first()?.dims.last().copied()?;
            let vocab = inputs.get(2)?.integers().first().copied()?;
            let tokens = inputs.get(1)?.elements() as u64;
            Some(embedding(vocab, dim, tokens, Pass::Bwd, main_dtype(inputs)?))
        }
        "nll_loss_forward"
        | "nll_loss_backward"
        | "gather"
        | "scatter"
        | "index"
        | "index_put"
        | "index_add"
        | "_local_scalar_dense"
        | "topk"
        | "sort"
        | "nonzero" => {
            // How much of the tensor they touch depends on the indices: no model, memory-bound.
            let family = if name.starts_with("nll") { KernelFamily::Softmax } else { KernelFamily::Indexing };
            let bytes = inputs.iter().skip(1).map(|i| i.elements() * i.element_bytes()).sum();
            let work = Work::unknown(family);
            Some(Work { flops: Flops::ZERO, bytes: Bytes(bytes), dtype: main_dtype(inputs), ..work })
        }
        _ => None,
    }
}

fn embedding(vocab: u64, dim: u64, tokens: u64, pass: Pass, dtype: Dtype) -> Work {
    let op = Op::Embedding(Embedding { vocab, dim, tokens });
    Work::of(vec![OpCall::new(op, pass, dtype)], KernelFamily::Indexing)
}

#[cfg(test)]
mod tests {
    use super::super::tests::tensors;
    use super::super::work_of;
    use super::*;

    #[test]
    fn gnmt_layer() {
        let scalars = [(6, "2"), (7, "1024"), (8, "0"), (9, "4"), (10, "False"), (12, "True"), (13, "False")];
        let work = work_of("_cudnn_rnn", &tensors(&[&[50, 64, 1024]], "float", &scalars), false).unwrap();
        let Op::Rnn(r) = work.calls[0].op else { panic!("not recurrent") };
        assert_eq!((r.batch, r.seq, r.hidden, r.layers, r.bidirectional), (64, 50, 1024, 4, false));
        assert_eq!(r.kind, RnnKind::Lstm);
    }

    #[test]
    fn bias_gradient_sums_columns() {
        let work = work_of("sum", &tensors(&[&[64, 1000]], "float", &[(1, "[0]")]), true).unwrap();
        assert!(matches!(work.calls[0].op, Op::Rowwise(r) if r.kind == RowwiseKind::SumCols && r.rows == 64));
        let work = work_of("mean", &tensors(&[&[16, 559, 1024]], "float", &[(1, "[-1]")]), false).unwrap();
        assert!(matches!(work.calls[0].op, Op::Rowwise(r) if r.kind == RowwiseKind::Sum && r.cols == 1024));
    }
}
