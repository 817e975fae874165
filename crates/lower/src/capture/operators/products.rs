//! Matrix products, convolutions, attention and recurrent layers.

use super::super::view::{Call, Tensor};
use super::{Context, elementwise, pointwise};
use crate::eager::Extent;
use preflop_graph::Phase;
use preflop_ops::{
    Attention, Conv, ElementwiseKind as E, Gemm, GemmKind, Layout, Listed, ListedKind, Op, OpCall, Pass, Rnn,
    RnnKind, Rowwise, RowwiseKind,
};
use preflop_units::dtype::Dtype;

pub(super) fn kernels(name: &str, call: &Call<'_>, context: &Context) -> Option<Vec<OpCall>> {
    match name {
        "mm" | "addmm" | "_addmm_activation" | "_scaled_mm" => matrix(name, call, context),
        "bmm" | "baddbmm" => batched(name, call, context),
        "_grouped_mm" => grouped(call, context),
        "addmv" | "mv" | "dot" => vector(name, call, context),
        "convolution" | "convolution_backward" => {
            let planar = convolutions(name, call, context)?;
            Some(planar.into_iter().map(|one| over_volumes(name, call, one)).collect())
        }
        "_cudnn_rnn" | "_cudnn_rnn_backward" => recurrent(name, call, context),
        n if n.contains("attention") => attention(n, call, context),
        _ => None,
    }
}

/// The kernels of a convolution, over volumes as if they were maps.
pub(super) fn convolutions(name: &str, call: &Call<'_>, context: &Context) -> Option<Vec<OpCall>> {
    if name == "convolution" { convolution(call, context) } else { convolution_backward(call, context) }
}

/// Input and extent of a convolution over volumes; nothing for one over lines or maps.
fn over_volume<'a>(name: &str, call: &Call<'a>) -> Option<(Tensor<'a>, Extent)> {
    let backward = name == "convolution_backward";
    let x = call.tensor(usize::from(backward))?;
    let y = if backward { call.tensor(0) } else { call.output(0) }?;
    let w = call.tensor(1 + usize::from(backward))?;
    let [batch, ci, ..] = *x.sizes else { return None };
    let places = |t: Tensor<'_>| t.sizes.get(2..).map_or(1, |s| s.iter().product::<u64>());
    let co = *y.sizes.get(1)?;
    (x.sizes.len() == 5).then(|| (x, Extent { batch, ci, co, x: places(x), y: places(y), w: places(w) }))
}

/// The extent of a convolution over volumes.
pub(super) fn volume(name: &str, call: &Call<'_>) -> Option<Extent> {
    over_volume(name, call).map(|(_, extent)| extent)
}

/// A convolution over volumes in its own kernels; others as they are.
fn over_volumes(name: &str, call: &Call<'_>, one: OpCall) -> OpCall {
    let Op::Conv(conv) = &one.op else { return one };
    let Some((x, of)) = over_volume(name, call) else { return one };
    let kind = match (conv.transposed, x.is_contiguous()) {
        (true, _) => ListedKind::ConvTranspose3d,
        (false, true) => ListedKind::Conv3d,
        (false, false) => ListedKind::Conv3dLast,
    };
    let sizes = [of.batch, of.ci, conv.co, of.x, of.y, of.w, conv.groups];
    OpCall { op: Op::Listed(Listed::new(kind, &sizes)), ..one }
}

fn sizes<const N: usize>(tensor: Option<Tensor<'_>>) -> Option<[u64; N]> {
    tensor?.sizes.try_into().ok()
}

/// Products of groups of rows, as routers of experts make them: one kernel in 16 bit, else one product after the other. Groups are taken as alike.
fn grouped(call: &Call<'_>, context: &Context) -> Option<Vec<OpCall>> {
    let (a, b) = (call.tensor(0)?, call.tensor(1)?);
    let (kind, [groups, m, n, k]) = match (a.sizes, b.sizes) {
        ([m, k], [g, _, n]) => (ListedKind::GroupedMm, [*g, *m, *n, *k]),
        ([g, m, k], [_, n]) => (ListedKind::GroupedMm, [*g, *n, *m, *k]),
        ([m, k], [_, n]) => (ListedKind::GroupedSums, [*call.output(0)?.sizes.first()?, *m, *n, *k]),
        ([g, m, k], [_, _, n]) => {
            let one = Gemm { kind: GemmKind::Bmm, batch: *g, ..Gemm::mm(*m, *n, *k, Layout::Nn) };
            return Some(vec![OpCall::fwd(Op::Gemm(one), context.product(a.dtype))]);
        }
        _ => return None,
    };
    if a.dtype.is_half() {
        let op = Listed::new(kind, &[groups, m, n, k]);
        return Some(vec![OpCall::fwd(Op::Listed(op), a.dtype)]);
    }
    let one = match kind {
        ListedKind::GroupedMm => Gemm::mm(m.div_ceil(groups.max(1)), n, k, Layout::Nn),
        _ => Gemm::mm(m, n, k.div_ceil(groups.max(1)), Layout::Tn),
    };
    let one = OpCall::fwd(Op::Gemm(one), context.product(a.dtype));
    (groups <= MOST_GROUPS).then(|| vec![one; groups as usize])
}

/// Groups that are counted one by one; no router has so many, and what has more stays a name with its bytes.
const MOST_GROUPS: u64 = 4096;

fn matrix(name: &str, call: &Call<'_>, context: &Context) -> Option<Vec<OpCall>> {
    let bias = name == "addmm" || name == "_addmm_activation";
    let first = usize::from(bias);
    let (a, b) = (call.tensor(first)?, call.tensor(first + 1)?);
    let ([m, k], [_, n]) = (sizes(Some(a))?, sizes(Some(b))?);
    let gemm = if a.is_transposed() && !b.is_transposed() {
        Gemm::mm(m, n, k, Layout::Tn)
    } else if b.is_transposed() && (bias || context.phase == Phase::Forward) {
        Gemm::linear(m, n, k, false)
    } else {
        Gemm::mm(m, n, k, if b.is_transposed() { Layout::Linear } else { Layout::Nn })
    };
    let call = OpCall::fwd(Op::Gemm(Gemm { bias, ..gemm }), context.product(a.dtype));
    Some(vec![call])
}

fn vector(name: &str, call: &Call<'_>, context: &Context) -> Option<Vec<OpCall>> {
    let a = call.tensor(usize::from(name == "addmv"))?;
    let (m, k) = match *a.sizes {
        [m, k] => (m, k),
        [k] => (1, k),
        _ => return None,
    };
    Some(vec![OpCall::fwd(Op::Gemm(Gemm::mm(m, 1, k, Layout::Nn)), context.product(a.dtype))])
}

fn batched(name: &str, call: &Call<'_>, context: &Context) -> Option<Vec<OpCall>> {
    let first = usize::from(name == "baddbmm");
    let a = call.tensor(first)?;
    let second = call.tensor(first + 1)?;
    let ([b, m, k], [_, _, n]) = (sizes(Some(a))?, sizes(Some(second))?);
    if b > 1 && second.strides.first() == Some(&0) {
        // One weight for the whole batch: one product with all its rows.
        let op = Op::Gemm(Gemm::linear(b.saturating_mul(m), n, k, false));
        return Some(vec![OpCall::fwd(op, context.product(a.dtype))]);
    }
    Some(vec![OpCall::fwd(Op::Gemm(Gemm::bmm(b, m, n, k)), context.product(a.dtype))])
}

/// A convolution over lines, maps or volumes as one over maps. A line is a map of height 1; the filter planes of a
/// volume are taken as channels and its output planes as images, which keeps the arithmetic.
fn geometry(call: &Call<'_>, x: Tensor<'_>, w: Tensor<'_>, y: Tensor<'_>, at: usize) -> Option<Conv> {
    let transposed = call.flag(at + 3);
    let groups = call.wholes(at + 5).first().map_or(1, |&g| g.max(1) as u64);
    let line = x.sizes.len() == 3;
    let tail = |t: Tensor<'_>| -> Option<[u64; 2]> {
        match *t.sizes {
            [_, _, l] => Some([1, l]),
            [.., h, w] if t.sizes.len() >= 4 => Some([h, w]),
            _ => None,
        }
    };
    let pair = |i: usize, default: u64| {
        let [h, w] = call.pair(i, default);
        if line { [default, w] } else { [h, w] }
    };
    let ([h, width], [r, s]) = (tail(x)?, tail(w)?);
    let (mut batch, mut ci) = (*x.sizes.first()?, *x.sizes.get(1)?);
    if x.sizes.len() == 5 {
        batch = batch.saturating_mul(*y.sizes.get(2)?);
        ci = ci.saturating_mul(*w.sizes.get(2)?);
    }
    let co = if transposed { w.sizes[1].saturating_mul(groups) } else { w.sizes[0] };
    let conv = Conv {
        batch,
        ci,
        h,
        w: width,
        co,
        r,
        s,
        stride: pair(at, 1).map(|n| n.max(1)),
        pad: pair(at + 1, 0),
        dilation: pair(at + 2, 1).map(|n| n.max(1)),
        groups,
        channels_last: x.is_channels_last(),
        transposed,
    };
    let fits = |size: u64, pad: u64, filter: u64, dilation: u64| {
        let reach = dilation.saturating_mul(filter.saturating_sub(1)).saturating_add(1);
        filter > 0 && size.saturating_add(pad.saturating_mul(2)) >= reach && pad <= (1 << 20)
    };
    let sound = conv.transposed
        || (fits(h, conv.pad[0], r, conv.dilation[0]) && fits(width, conv.pad[1], s, conv.dilation[1]));
    (sound && conv.oh() > 0 && conv.ow() > 0 && ci > 0 && co > 0).then_some(conv)
}

/// Feature maps brought to row-major order, or to channels-last where the others lie so.
fn brought_to(channels_last: bool, x: Tensor<'_>) -> Option<OpCall> {
    let lies = if channels_last { x.is_channels_last() || x.is_contiguous() } else { x.is_contiguous() };
    (!lies).then(|| pointwise::movement(x))
}

/// A filter brought to the layout of channels-last maps: a copy, unless one layout is both.
fn filter_copy(w: Tensor<'_>) -> Option<OpCall> {
    let places: u64 = w.sizes.get(2..).map_or(1, |s| s.iter().product());
    let copied = !w.is_channels_last() && w.sizes.get(1).is_some_and(|&c| c > 1) && places > 1;
    copied.then(|| pointwise::transposed_copy(w))
}

fn convolution(call: &Call<'_>, context: &Context) -> Option<Vec<OpCall>> {
    // (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    let (x, w, y) = (call.tensor(0)?, call.tensor(1)?, call.output(0)?);
    let conv = geometry(call, x, w, y, 3)?;
    let mut calls: Vec<OpCall> = brought_to(conv.channels_last, x).into_iter().collect();
    if conv.channels_last {
        calls.extend(filter_copy(w));
    }
    calls.push(OpCall::fwd(Op::Conv(conv), context.convolution(x.dtype)));
    if call.tensor(2).is_some() {
        let kind = if conv.channels_last { E::AddBias } else { E::AddChannel };
        calls.push(elementwise(kind, y.elements(), y.dtype));
    }
    Some(calls)
}

fn convolution_backward(call: &Call<'_>, context: &Context) -> Option<Vec<OpCall>> {
    // (grad, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask)
    let (grad, x, w) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    let conv = geometry(call, x, w, grad, 4)?;
    let mut calls: Vec<OpCall> = brought_to(conv.channels_last, grad).into_iter().collect();
    let wanted = call.flags(10);
    for (i, pass) in [(0, Pass::Dgrad), (1, Pass::Wgrad)] {
        if wanted.get(i).copied().unwrap_or(true) {
            calls.push(OpCall::new(Op::Conv(conv), pass, context.convolution(grad.dtype)));
            if conv.channels_last {
                calls.extend(filter_copy(w));
            }
        }
    }
    if wanted.get(2).copied().unwrap_or(false) {
        let (rows, cols) = (grad.elements() / conv.co.max(1), conv.co);
        let kind = if conv.channels_last { RowwiseKind::SumCols } else { RowwiseKind::SumChannels };
        calls.push(OpCall::fwd(Op::Rowwise(Rowwise { kind, rows, cols }), grad.dtype));
    }
    Some(calls)
}

fn attention(name: &str, call: &Call<'_>, context: &Context) -> Option<Vec<OpCall>> {
    let backward = name.ends_with("_backward");
    // The share of dropped weights stands before the flag, but for one.
    let causal_at = match name {
        "_scaled_dot_product_flash_attention" => 4,
        "_scaled_dot_product_efficient_attention" | "_scaled_dot_product_cudnn_attention" => 6,
        "_scaled_dot_product_cudnn_attention_backward" => 14,
        "_scaled_dot_product_flash_attention_backward"
        | "_scaled_dot_product_efficient_attention_backward" => 11,
        _ => return None,
    };
    let first = usize::from(backward);
    let (q, k) = (call.tensor(first)?, call.tensor(first + 1)?);
    let ([batch, heads, q_len, head_dim], [_, kv_heads, kv_len, _]) = (sizes(Some(q))?, sizes(Some(k))?);
    let causal = call.flag(causal_at);
    let dropout_at = if name.ends_with("efficient_attention_backward") { 9 } else { causal_at - 1 };
    let dropout = call.number(dropout_at).is_some_and(|p| p > 0.0);
    let op = Attention { batch, heads, kv_heads, q_len, kv_len, head_dim, causal, dropout };
    let mut calls = Vec::new();
    if backward && name.contains("efficient") {
        // The gradient seen as [b, s, h, d], copied if it does not lie so; then delta = rowsum(grad * out), transposed.
        let grad = call.tensor(0)?;
        let [b, h, s, d] = sizes(Some(grad))?;
        let stride: [u64; 4] = grad.strides.try_into().ok()?;
        let (shape, lies) = ([b, s, h, d], [stride[0], stride[2], stride[1], stride[3]]);
        let rows = Tensor { sizes: &shape, strides: &lies, ..grad };
        if !rows.is_contiguous() {
            calls.push(pointwise::movement(rows));
        }
        let count = b.saturating_mul(s).saturating_mul(h);
        calls.push(elementwise(E::Mul, grad.elements(), grad.dtype));
        let sum = Rowwise { kind: RowwiseKind::Sum, rows: count, cols: d };
        calls.push(OpCall::fwd(Op::Rowwise(sum), grad.dtype));
        calls.push(elementwise(E::Copy, count, grad.dtype));
    }
    let pass = if backward { Pass::Bwd } else { Pass::Fwd };
    let one = OpCall::new(Op::Attention(op), pass, context.product(q.dtype));
    calls.push(beside_the_square(name, call, one));
    Some(calls)
}

/// Attention to other keys than its own, or with a mask: kernels run it with other shares of waste.
fn beside_the_square(name: &str, call: &Call<'_>, one: OpCall) -> OpCall {
    let Op::Attention(a) = &one.op else { return one };
    let mask_at = match name {
        n if n.starts_with("_scaled_dot_product_flash") => return one,
        "_scaled_dot_product_cudnn_attention_backward" => 8,
        "_scaled_dot_product_efficient_attention_backward" => 4,
        _ => 3,
    };
    if a.causal || a.dropout || a.kv_heads != a.heads || a.q_len == 1 {
        return one;
    }
    let sizes = [a.batch, a.heads, a.q_len, a.kv_len, a.head_dim];
    let listed = match call.tensor(mask_at) {
        Some(mask) => {
            // Matrices of the mask that exist: repeated ones have a stride of 0.
            let beside = mask.sizes.iter().zip(mask.strides).rev().skip(2);
            let matrices = beside.filter(|(_, stride)| **stride > 0).map(|(size, _)| *size).product();
            // Only the memory-efficient kernel gives the mask a gradient; in 16 bit it runs for that alone.
            let learned = name.contains("efficient") && one.dtype.is_half();
            let kind = if learned { ListedKind::SdpaBias } else { ListedKind::SdpaMask };
            Listed::new(kind, &[&sizes[..], &[matrices]].concat())
        }
        None if a.q_len != a.kv_len => Listed::new(ListedKind::SdpaCross, &sizes),
        None => return one,
    };
    OpCall { op: Op::Listed(listed), dtype: if one.dtype.is_half() { one.dtype } else { Dtype::Fp32 }, ..one }
}

fn recurrent(name: &str, call: &Call<'_>, context: &Context) -> Option<Vec<OpCall>> {
    // (input, weights, stride, buffer, hx, cx, [output, grads x 3,] mode, hidden, proj, layers, batch_first,
    // dropout, train, bidirectional)
    let backward = name.ends_with("_backward");
    let mode_at = if backward { 10 } else { 6 };
    let x = call.tensor(0)?;
    let [a, b, input] = sizes(Some(x))?;
    let number = |i: usize| call.wholes(mode_at + i).first().map(|&n| n.max(0) as u64);
    let kind = match number(0)? {
        2 => RnnKind::Lstm,
        3 => RnnKind::Gru,
        _ => RnnKind::Tanh,
    };
    let (batch, seq) = if call.flag(mode_at + 4) { (a, b) } else { (b, a) };
    let (hidden, layers) = (number(1)?, number(3)?);
    let sound = hidden > 0 && layers > 0 && layers <= 1024 && hidden <= (1 << 24);
    let op = Rnn { kind, batch, seq, input, hidden, layers, bidirectional: call.flag(mode_at + 7) };
    let mut calls = Vec::new();
    if backward {
        // States whose gradient nobody asked for get zeros. The gradients of all weights lie in one buffer, which is
        // cleared first.
        let state = call.tensor(4)?.elements();
        let states = if kind == RnnKind::Lstm { 2 } else { 1 };
        for _ in (8..8 + states).filter(|&i| call.tensor(i).is_none()) {
            calls.push(elementwise(E::Fill, state, x.dtype));
        }
        let flat = call.outputs().last()?.elements();
        calls.push(elementwise(E::Fill, flat, x.dtype));
    }
    let pass = if backward { Pass::Bwd } else { Pass::Fwd };
    calls.push(OpCall::new(Op::Rnn(op), pass, context.convolution(x.dtype)));
    sound.then_some(calls)
}
