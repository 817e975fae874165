//! Operators of the table (`preflop_ops::ListedKind`): sorting, scans, indices, transforms, sampling, losses, solvers.

use super::super::view::{Call, Tensor};
use super::Context;
use preflop_ops::{Listed, ListedKind as K, Op, OpCall, Pass};
use preflop_units::dtype::Dtype;

pub(super) fn kernels(name: &str, call: &Call<'_>, context: &Context) -> Option<Vec<OpCall>> {
    let found = along_a_dimension(name, call, context)
        .or_else(|| by_index(name, call))
        .or_else(|| counted(name, call))
        .or_else(|| transforms(name, call))
        .or_else(|| maps(name, call))
        .or_else(|| others(name, call))?;
    Some(vec![found])
}

fn of(kind: K, sizes: &[u64], pass: Pass, dtype: Dtype) -> OpCall {
    OpCall::new(Op::Listed(Listed::new(kind, sizes)), pass, dtype)
}

/// Elements before, along and after a dimension.
fn around(x: Tensor<'_>, dim: usize) -> [u64; 3] {
    let product = |sizes: &[u64]| sizes.iter().product::<u64>().max(1);
    match x.sizes.get(dim) {
        Some(&along) => [product(&x.sizes[..dim]), along.max(1), product(&x.sizes[dim + 1..])],
        None => [1, x.elements().max(1), 1],
    }
}

fn size(call: &Call<'_>, at: usize) -> Option<u64> {
    call.wholes(at).first().map(|&n| n.max(1) as u64)
}

fn along_a_dimension(name: &str, call: &Call<'_>, context: &Context) -> Option<OpCall> {
    let x = call.tensor(0)?;
    let rank = x.sizes.len();
    let dim = |at: usize| call.dimension(at, rank, -1);
    let rows_of = |dim: usize| {
        let [outer, along, inner] = around(x, dim);
        [outer.saturating_mul(inner), along]
    };
    let forward = |kind, sizes: &[u64]| Some(of(kind, sizes, Pass::Fwd, x.dtype));
    match name {
        // (self, dim, descending) or (self, stable, dim, descending)
        "sort" | "argsort" => forward(K::Sort, &rows_of(dim(if call.wholes(1).is_empty() { 2 } else { 1 }))),
        "topk" => {
            let [rows, cols] = rows_of(dim(2));
            forward(K::TopK, &[rows, cols, size(call, 1)?.min(cols)])
        }
        "kthvalue" => forward(K::KthValue, &rows_of(dim(2))),
        "median" | "nanmedian" | "mode" if call.wholes(1).is_empty() => {
            forward(K::KthValue, &[1, x.elements()])
        }
        "median" | "nanmedian" | "mode" => forward(K::KthValue, &rows_of(dim(1))),
        "cumsum" | "cumprod" => forward(K::CumSum, &around(x, dim(1))),
        "cummax" | "cummin" | "logcumsumexp" | "_cummax_helper" | "_logcumsumexp" => {
            forward(K::CumMax, &rows_of(dim(1)))
        }
        "max" | "min" if call.outputs().len() == 2 => {
            let [outer, along, inner] = around(x, dim(1));
            if inner == 1 {
                forward(K::MaxRows, &[outer, along])
            } else {
                forward(K::MaxInner, &[outer, along, inner])
            }
        }
        "logsumexp" if call.wholes(1).len() == 1 => forward(K::LogSumExp, &rows_of(dim(1))),
        "_softmax" | "_log_softmax" | "_softmax_backward_data" | "_log_softmax_backward_data" => {
            let backward = name.ends_with("_data");
            let sizes = around(x, dim(if backward { 2 } else { 1 }));
            if sizes[2] == 1 {
                return None;
            }
            let pass = if backward { Pass::Bwd } else { Pass::Fwd };
            let output = if backward { call.tensor(1) } else { call.output(0) };
            let in_loss = output.and_then(|y| y.storage).is_some_and(|s| context.in_losses.contains(&s));
            let kind = match (name.starts_with("_log"), in_loss) {
                (false, _) => K::SoftmaxInner,
                (true, false) => K::LogSoftmaxInner,
                (true, true) => K::CrossEntropy2d,
            };
            Some(of(kind, &sizes, pass, x.dtype))
        }
        _ => None,
    }
}

fn by_index(name: &str, call: &Call<'_>) -> Option<OpCall> {
    let table = call.tensor(0)?;
    let rank = table.sizes.len();
    let forward = |kind, sizes: &[u64]| Some(of(kind, sizes, Pass::Fwd, table.dtype));
    // (self, dim, index, ..): so many places along the dimension, and what lies beside them.
    let along = |kind| {
        let [outer, v, inner] = around(table, call.dimension(1, rank, 0));
        let index = call.tensor(2)?;
        forward(kind, &[v, outer.saturating_mul(inner), index.elements()])
    };
    match name {
        "index_select" => along(K::IndexSelect),
        "index_add" | "index_reduce" => along(K::IndexAdd),
        "index_copy" => along(K::IndexPut),
        "scatter_add" | "scatter_reduce" | "scatter" | "gather" => {
            let dim = call.dimension(1, rank, 0);
            let index = call.tensor(2)?;
            let [_, v, inner] = around(table, dim);
            let n = index.sizes.get(dim).copied().unwrap_or(1).max(1);
            let width = (index.elements() / n).max(1);
            match name {
                "gather" if inner == 1 => forward(K::GatherRows, &[width, v, n]),
                "gather" => forward(K::GatherDim, &[v, width, n]),
                "scatter" => forward(K::Scatter, &[v, width, n]),
                "scatter_reduce" => forward(K::ScatterReduce, &[v, width, n]),
                _ => forward(K::ScatterAdd, &[v, width, n]),
            }
        }
        "take" => forward(K::GatherDim, &[table.elements(), 1, call.tensor(1)?.elements()]),
        "index" | "index_put" | "_index_put_impl" | "_unsafe_index" | "_unsafe_index_put" => {
            // (self, indices, values, accumulate)
            let indices = call.list(1);
            let first = indices.first()?;
            if first.dtype == Dtype::Int8 {
                return forward(K::MaskedSelect, &[first.elements()]);
            }
            // `x[:, i]` leaves the first dimension as it is: what is not indexed lies beside each place.
            let v = call.given(1).map(|at| table.sizes.get(at).copied()).product::<Option<u64>>()?.max(1);
            let (width, places) = (table.elements() / v, broadcast(&indices));
            let kind = match (name.contains("put"), call.flag(3)) {
                (false, _) => K::IndexSelect,
                (true, false) => K::IndexPut,
                (true, true) => K::IndexPutAdd,
            };
            forward(kind, &[v, width, places])
        }
        "_embedding_bag" | "_embedding_bag_forward_only" => {
            let [v, d] = <[u64; 2]>::try_from(table.sizes).ok()?;
            let bags = call.output(0)?.sizes.first().copied()?.max(1);
            forward(K::EmbeddingBag, &[v, d, bags, call.tensor(1)?.elements() / bags])
        }
        "_embedding_bag_dense_backward" | "_embedding_bag_backward" => {
            // (grad, indices, .., number of rows, ..); the result is the table.
            let [v, d] = <[u64; 2]>::try_from(call.output(0)?.sizes).ok()?;
            let bags = table.sizes.first().copied()?.max(1);
            let each = call.tensor(1)?.elements() / bags;
            Some(of(K::EmbeddingBag, &[v, d, bags, each], Pass::Bwd, table.dtype))
        }
        _ => None,
    }
}

fn counted(name: &str, call: &Call<'_>) -> Option<OpCall> {
    let x = call.tensor(0);
    let forward = |kind, sizes: &[u64], like: Tensor<'_>| Some(of(kind, sizes, Pass::Fwd, like.dtype));
    match name {
        "nonzero" => forward(K::NonZero, &[x?.elements()], x?),
        "masked_select" => forward(K::MaskedSelect, &[call.tensor(1)?.elements()], x?),
        "_unique2" | "_unique" | "unique_dim" | "unique_consecutive" => {
            forward(K::Unique, &[x?.elements()], x?)
        }
        "bincount" | "histc" | "_histogramdd_bin_edges" => {
            let bins = call.output(0).map_or(1, |y| y.elements());
            forward(K::BinCount, &[x?.elements(), bins], x?)
        }
        // (sorted, values, ..) and (values, boundaries, ..)
        "searchsorted" => forward(K::SearchSorted, &[call.tensor(1)?.elements(), x?.elements()], x?),
        "bucketize" => forward(K::SearchSorted, &[x?.elements(), call.tensor(1)?.elements()], x?),
        "randperm" => {
            let y = call.output(0).filter(Tensor::on_gpu)?;
            forward(K::RandPerm, &[y.elements()], y)
        }
        "multinomial" => {
            let cols = x?.sizes.last().copied()?.max(1);
            forward(K::Multinomial, &[x?.elements() / cols, cols], x?)
        }
        "_foreach_norm" => {
            let list = call.list(0);
            let n = list.iter().map(Tensor::elements).sum();
            let first = *list.first().filter(|t| t.on_gpu())?;
            forward(K::ForeachNorm, &[n, list.len() as u64], first)
        }
        "_foreach_mul" | "_foreach_div" if call.list(1).is_empty() => {
            let list = call.list(0);
            let n = list.iter().map(Tensor::elements).sum();
            let first = *list.first().filter(|t| t.on_gpu())?;
            forward(K::ForeachMul, &[n, list.len() as u64], first)
        }
        _ => None,
    }
}

/// Transforms count the numbers of their parts: a complex value has two.
fn transforms(name: &str, call: &Call<'_>) -> Option<OpCall> {
    let (line, plane) = match name {
        "_fft_c2c" => (K::FftC2c, K::Fft2C2c),
        "_fft_r2c" => (K::FftR2c, K::Fft2R2c),
        "_fft_c2r" => (K::FftC2r, K::Fft2R2c),
        _ => return None,
    };
    // Lengths of real rows: those of the result where that is real.
    let shaped = if name == "_fft_c2r" { call.output(0)? } else { call.tensor(0)? };
    let rank = shaped.sizes.len();
    let dims = call.wholes(1);
    let length = |d: i64| shaped.sizes[super::super::view::wrapped(d, rank)].max(1);
    let (last, first) = dims.split_last().filter(|_| rank > 0)?;
    let (w, h) = (length(*last), first.iter().map(|d| length(*d)).product::<u64>().max(1));
    let rows = shaped.elements() / w.saturating_mul(h).max(1);
    let wide = call.inputs().iter().any(|t| t.dtype == Dtype::Fp64);
    let dtype = if wide { Dtype::Fp64 } else { Dtype::Fp32 };
    Some(if first.is_empty() {
        of(line, &[rows, w], Pass::Fwd, dtype)
    } else {
        of(plane, &[rows, h, w], Pass::Fwd, dtype)
    })
}

/// Elements of what these become beside one another: of sizes that differ, the larger.
fn broadcast(tensors: &[Tensor<'_>]) -> u64 {
    let rank = tensors.iter().map(|t| t.sizes.len()).max().unwrap_or(0);
    (1..=rank)
        .map(|back| {
            tensors.iter().filter_map(|t| Some(t.sizes[t.sizes.len().checked_sub(back)?])).max().unwrap_or(1)
        })
        .fold(1, u64::saturating_mul)
}

/// Images or volumes: maps and places of each.
fn spread(x: Tensor<'_>, spatial: usize) -> Option<[u64; 2]> {
    let at = x.sizes.len().checked_sub(spatial)?;
    let area = x.sizes[at..].iter().product::<u64>().max(1);
    Some([x.sizes[..at].iter().product::<u64>().max(1), area])
}

fn maps(name: &str, call: &Call<'_>) -> Option<OpCall> {
    let (stem, backward) = match name.strip_suffix("_backward") {
        Some(stem) => (stem, true),
        None => (name, false),
    };
    let pass = if backward { Pass::Bwd } else { Pass::Fwd };
    // The gradient comes first in a backward, and some have nothing else.
    let input = call.tensor(usize::from(backward)).or_else(|| call.output(0))?;
    match stem {
        "grid_sampler_2d" | "grid_sampler_3d" | "cudnn_grid_sampler" => {
            // But cuDNN's, where it comes last.
            let late = backward && stem != "cudnn_grid_sampler";
            let (input, grid) = (call.tensor(usize::from(late))?, call.tensor(1 + usize::from(late))?);
            let (b, c) = (*input.sizes.first()?, *input.sizes.get(1)?);
            let area = input.sizes.get(2..)?.iter().product::<u64>();
            let places = grid.elements() / grid.sizes.last().copied()?.max(1) / b.max(1);
            let nearest = call.wholes(2 + usize::from(backward)).first() == Some(&1);
            let kind = if nearest { K::GridSampleNearest } else { K::GridSample };
            Some(of(kind, &[b, c, area, places], pass, input.dtype))
        }
        "upsample_trilinear3d" | "upsample_nearest3d" | "upsample_linear1d" | "upsample_nearest1d" => {
            let spatial = if stem.ends_with("3d") { 3 } else { 1 };
            let (small, large) =
                if backward { (call.output(0)?, call.tensor(0)?) } else { (input, call.output(0)?) };
            let ([rows, area], [_, places]) = (spread(small, spatial)?, spread(large, spatial)?);
            let kind = if stem.contains("nearest") { K::Resize3dNearest } else { K::Resize3d };
            Some(of(kind, &[rows, area, places], pass, small.dtype))
        }
        "upsample_bicubic2d" | "upsample_bilinear2d" | "upsample_nearest2d" => {
            let (small, large) =
                if backward { (call.output(0)?, call.tensor(0)?) } else { (input, call.output(0)?) };
            let last = if backward { large } else { small }.is_channels_last();
            let kind = match stem {
                // A copy.
                _ if small.sizes == large.sizes => return None,
                "upsample_bicubic2d" => K::ResizeBicubic,
                "upsample_bilinear2d" if last => K::ResizeBilinearLast,
                // The forward of these has a model of its own.
                _ if !backward => return None,
                "upsample_bilinear2d" => K::ResizeBilinear,
                _ => K::ResizeNearest,
            };
            let ([_, area], [_, places]) = (spread(small, 2)?, spread(large, 2)?);
            let (b, c) = (*small.sizes.first()?, *small.sizes.get(1)?);
            Some(of(kind, &[b, c, area, places], pass, small.dtype))
        }
        _ if stem.starts_with("reflection_pad") || stem.starts_with("replication_pad") => {
            let spatial = stem.chars().rev().nth(1)?.to_digit(10)? as usize;
            let grown = if backward { call.tensor(0)? } else { call.output(0)? };
            let ([rows, area], [_, places]) = (spread(input, spatial)?, spread(grown, spatial)?);
            Some(of(K::ReflectionPad, &[rows, area, places], pass, input.dtype))
        }
        "max_pool3d_with_indices" | "avg_pool3d" | "_adaptive_avg_pool3d" => {
            let results = if backward { call.tensor(0)? } else { call.output(0)? };
            let ([rows, area], [_, places]) = (spread(input, 3)?, spread(results, 3)?);
            let window = if stem == "_adaptive_avg_pool3d" {
                area.div_ceil(places)
            } else {
                let sides = call.wholes(1 + usize::from(backward));
                let sides: Vec<u64> = sides.iter().map(|&n| n.max(1) as u64).collect();
                if sides.len() == 1 { sides[0].saturating_pow(3) } else { sides.iter().product() }
            };
            let kind = if stem.starts_with("max") { K::MaxPool3d } else { K::AvgPool3d };
            Some(of(kind, &[rows, area, window, places], pass, input.dtype))
        }
        // (self, kernel, dilation, padding, stride): [b, c, h, w] to [b, c k, n]; back with the size first.
        "im2col" | "col2im" => {
            let (maps, columns) =
                if stem == "im2col" { (input, call.output(0)?) } else { (call.output(0)?, input) };
            let [b, c, h, w] = <[u64; 4]>::try_from(maps.sizes).ok()?;
            let [_, each, places] = <[u64; 3]>::try_from(columns.sizes).ok()?;
            let kind = if stem == "im2col" { K::Unfold } else { K::Fold };
            Some(of(kind, &[b, c, h.saturating_mul(w), each / c.max(1), places], pass, maps.dtype))
        }
        "cudnn_batch_norm"
        | "native_batch_norm"
        | "_native_batch_norm_legit"
        | "_batch_norm_with_update"
        | "_native_batch_norm_legit_no_training"
        | "_batch_norm_no_update"
        | "batch_norm" => {
            // Maps have kernels of their own; the backward of cuDNN's has its input first.
            let x = if stem == "cudnn_batch_norm" { call.tensor(0)? } else { input };
            let &[b, c, ref rest @ ..] = x.sizes else { return None };
            if rest.len() > 1 {
                return None;
            }
            let stored = stem.ends_with("no_training")
                || stem.ends_with("no_update")
                || !backward && stem != "_batch_norm_with_update" && !call.flag(5);
            let kind = if stored { K::BatchNormLineEval } else { K::BatchNormLine };
            Some(of(kind, &[b, c, rest.iter().product()], pass, x.dtype))
        }
        "_prelu_kernel" => {
            let (b, c) = (*input.sizes.first()?, input.sizes.get(1).copied().unwrap_or(1));
            Some(of(K::PRelu, &[b, c, input.elements() / b.saturating_mul(c).max(1)], pass, input.dtype))
        }
        _ => None,
    }
}

fn others(name: &str, call: &Call<'_>) -> Option<OpCall> {
    let x = call.tensor(0)?;
    let matrices = |kind, k: Option<u64>| {
        let n = *x.sizes.last()?;
        let rows = x.elements() / n.saturating_mul(*x.sizes.get(x.sizes.len().checked_sub(2)?)?).max(1);
        Some(of(kind, &[rows, n, k.unwrap_or(1)], Pass::Fwd, x.dtype))
    };
    let beside = |at: usize| call.tensor(at).and_then(|t| t.sizes.last().copied());
    match name {
        "_ctc_loss" | "_cudnn_ctc_loss" => ctc(x, call.tensor(1)?, Pass::Fwd),
        "_ctc_loss_backward" => ctc(call.tensor(1)?, call.tensor(2)?, Pass::Bwd),
        "_cdist_forward" | "_euclidean_dist" => {
            let y = call.tensor(1)?;
            let (m, d) = (*x.sizes.get(x.sizes.len().checked_sub(2)?)?, *x.sizes.last()?);
            let n = *y.sizes.get(y.sizes.len().checked_sub(2)?)?;
            Some(of(K::CDist, &[x.elements() / m.saturating_mul(d).max(1), m, n, d], Pass::Fwd, x.dtype))
        }
        "_weight_norm_interface" | "_weight_norm_interface_backward" => {
            let backward = name.ends_with("backward");
            let g = call.tensor(if backward { 2 } else { 1 })?.elements().max(1);
            let pass = if backward { Pass::Bwd } else { Pass::Fwd };
            Some(of(K::WeightNorm, &[g, x.elements() / g], pass, x.dtype))
        }
        // Gates of a step: (input gates, hidden gates, state, ..), or gradients of the state first.
        "_thnn_fused_lstm_cell" | "_thnn_fused_gru_cell" => {
            let state = call.tensor(2)?;
            let kind = if name.contains("lstm") { K::LstmCell } else { K::GruCell };
            let [b, hidden] = <[u64; 2]>::try_from(state.sizes).ok()?;
            Some(of(kind, &[b, hidden], Pass::Fwd, state.dtype))
        }
        "_thnn_fused_lstm_cell_backward_impl" | "_thnn_fused_gru_cell_backward" => {
            let kind = if name.contains("lstm") { K::LstmCell } else { K::GruCell };
            let [b, hidden] = <[u64; 2]>::try_from(x.sizes).ok()?;
            Some(of(kind, &[b, hidden], Pass::Bwd, x.dtype))
        }
        "linalg_cholesky_ex" | "cholesky" | "linalg_ldl_factor_ex" => matrices(K::Cholesky, None),
        "_linalg_solve_ex" | "linalg_solve" => matrices(K::Solve, beside(1)),
        "linalg_lu_factor_ex" | "linalg_lu" | "_linalg_det" | "_linalg_slogdet" => matrices(K::Solve, None),
        "linalg_inv_ex" | "inverse" | "cholesky_inverse" => matrices(K::Inverse, None),
        "linalg_qr" | "geqrf" | "linalg_householder_product" => matrices(K::Qr, None),
        "_linalg_eigh" => matrices(K::Eigh, None),
        "_linalg_svd" | "linalg_eig" => matrices(K::Svd, None),
        "linalg_solve_triangular" | "triangular_solve" | "cholesky_solve" | "linalg_lu_solve" => {
            matrices(K::SolveTriangular, beside(1))
        }
        _ => None,
    }
}

/// Log-probabilities `[s, b, v]` and targets `[b, l]` (or all in one row).
fn ctc(scores: Tensor<'_>, targets: Tensor<'_>, pass: Pass) -> Option<OpCall> {
    let [s, b, v] = <[u64; 3]>::try_from(scores.sizes).ok()?;
    Some(of(K::CtcLoss, &[b, s, v, targets.elements() / b.max(1)], pass, scores.dtype))
}
