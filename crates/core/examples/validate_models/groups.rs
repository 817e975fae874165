//! Groups in which traced ATen operators and our steps are counted alike.

use preflop_core::model::Step;
use preflop_core::ops::{
    ElementwiseKind as E, MovementKind, Op, OptimizerKind, Pass, RowwiseKind, SpatialKind,
};
use std::collections::BTreeMap;

/// The group of a traced operator.
pub fn traced(name: &str) -> &'static str {
    match name {
        "cudnn_convolution" | "cudnn_convolution_transpose" => "conv",
        "convolution_backward" => "conv backward",
        "mm" | "addmm" | "bmm" => "gemm",
        "copy_" => "copy, cast",
        "fill_" | "arange" => "fill",
        "cat" => "cat",
        "sum" | "mean" => "reduce",
        "native_layer_norm" | "native_layer_norm_backward" => "layer norm",
        "native_dropout" | "native_dropout_backward" => "dropout",
        "cudnn_batch_norm" | "native_batch_norm" => "batch norm",
        "cudnn_batch_norm_backward" | "native_batch_norm_backward" => "batch norm backward",
        "gather" | "index_select" => "embedding",
        "embedding_dense_backward" => "embedding backward",
        "_log_softmax"
        | "nll_loss_forward"
        | "nll_loss_backward"
        | "_log_softmax_backward_data"
        | "binary_cross_entropy"
        | "binary_cross_entropy_backward" => "loss",
        "_softmax" | "_softmax_backward_data" => "softmax",
        "max_pool2d_with_indices" | "avg_pool2d" => "pool",
        "max_pool2d_with_indices_backward" | "avg_pool2d_backward" => "pool backward",
        "_cudnn_rnn" | "_cudnn_rnn_backward" => "rnn",
        n if n.contains("attention") => "attention",
        n if n.starts_with("_foreach") => "foreach",
        _ => "elementwise",
    }
}

/// Our counts by group.
pub fn ours(steps: &[Step]) -> BTreeMap<&'static str, u32> {
    let mut counts = BTreeMap::new();
    for s in steps {
        let mut add = |group, n: u32| *counts.entry(group).or_default() += n * s.count;
        match (&s.call.op, s.call.pass) {
            (Op::Gemm(_), _) => add("gemm", 1),
            (Op::Conv(_), Pass::Fwd) => add("conv", 1),
            (Op::Conv(_), Pass::Wgrad) => add("conv backward", 1),
            // Both gradients are one call; the first layer needs no data gradient.
            (Op::Conv(_), Pass::Dgrad) => {}
            (Op::Attention(_), _) => add("attention", 1),
            (Op::Rnn(_), _) => add("rnn", 1),
            (Op::Elementwise(e), _) => match e.kind {
                E::Cast | E::Copy => add("copy, cast", 1),
                E::Fill => add("fill", 1),
                E::Dropout | E::DropoutBwd => add("dropout", 1),
                _ => add("elementwise", 1),
            },
            (Op::Movement(m), _) if m.kind == MovementKind::Cat => add("cat", 1),
            (Op::Movement(_), _) => add("copy, cast", 1),
            (Op::Rowwise(r), _) => match r.kind {
                RowwiseKind::LayerNorm | RowwiseKind::RmsNorm => add("layer norm", 1),
                RowwiseKind::Softmax => add("softmax", 1),
                _ => add("reduce", 1),
            },
            (Op::Spatial(p), pass) => match (p.kind, pass) {
                (SpatialKind::GlobalAvgPool, _) => add("reduce", 1),
                (SpatialKind::MaxPool | SpatialKind::AvgPool, Pass::Fwd) => add("pool", 1),
                (SpatialKind::MaxPool, _) => {
                    add("pool backward", 1);
                    add("fill", 1);
                }
                (SpatialKind::AvgPool, _) => add("pool backward", 1),
                (_, Pass::Fwd) => add("batch norm", 1),
                _ => add("batch norm backward", 1),
            },
            (Op::Embedding(_), Pass::Fwd) => add("embedding", 1),
            (Op::Embedding(e), _) => {
                add("embedding backward", 1);
                // Zeros, and a list of positions where the rows are sorted.
                add("fill", if e.tokens > SORTED_FROM { 2 } else { 1 });
            }
            (Op::CrossEntropy(_), Pass::Fwd) => add("loss", 2),
            (Op::CrossEntropy(_), _) => {
                add("loss", 2);
                add("fill", 1);
            }
            (Op::Optimizer(o), _) => match o.kind {
                OptimizerKind::AdamSingle => add("elementwise", 7),
                _ => add("foreach", 3),
            },
            _ => add("other", 1),
        }
    }
    counts
}

/// PyTorch sorts the indices of an embedding gradient above this many (`embedding_dense_backward_cuda`).
const SORTED_FROM: u64 = 3072;
