//! The sizes of a call, one by one: what grows when a job does.

use super::{GemmKind, Op, OpCall};

/// A size and whether kernels care how it is aligned.
struct Size<'a> {
    name: &'static str,
    inner: bool,
    values: Vec<&'a mut u64>,
}

/// Inner sizes that are multiples of this are aligned for every kernel.
const ALIGNED: u64 = 64;

/// The sizes that can grow without making another kind of call: filters, strides, groups and head sizes stay.
fn sizes(op: &mut Op) -> Vec<Size<'_>> {
    fn outer<'a>(name: &'static str, value: &'a mut u64) -> Size<'a> {
        Size { name, inner: false, values: vec![value] }
    }
    fn inner<'a>(name: &'static str, value: &'a mut u64) -> Size<'a> {
        Size { name, inner: true, values: vec![value] }
    }
    match op {
        Op::Gemm(g) => {
            let mut all = vec![inner("m", &mut g.m), inner("n", &mut g.n), inner("k", &mut g.k)];
            if g.kind == GemmKind::Bmm {
                all.push(outer("batch", &mut g.batch));
            }
            all
        }
        Op::Conv(c) => {
            let mut all = vec![outer("batch", &mut c.batch)];
            if c.groups == 1 {
                all.extend([inner("ci", &mut c.ci), inner("co", &mut c.co)]);
                all.push(Size { name: "area", inner: true, values: vec![&mut c.h, &mut c.w] });
            }
            all
        }
        Op::Attention(a) => vec![
            outer("batch", &mut a.batch),
            Size { name: "heads", inner: false, values: vec![&mut a.heads, &mut a.kv_heads] },
            Size { name: "sequence", inner: true, values: vec![&mut a.q_len, &mut a.kv_len] },
        ],
        Op::Rnn(r) => vec![
            inner("batch", &mut r.batch),
            outer("sequence", &mut r.seq),
            inner("input", &mut r.input),
            inner("hidden", &mut r.hidden),
        ],
        Op::Rowwise(r) => vec![outer("rows", &mut r.rows), inner("cols", &mut r.cols)],
        Op::Spatial(s) => vec![outer("batch", &mut s.batch), inner("channels", &mut s.channels)],
        Op::Elementwise(e) => vec![inner("n", &mut e.n)],
        Op::Embedding(e) => vec![outer("tokens", &mut e.tokens), inner("dim", &mut e.dim)],
        Op::CrossEntropy(c) => vec![outer("rows", &mut c.rows), inner("classes", &mut c.classes)],
        Op::Optimizer(o) => vec![inner("params", &mut o.params)],
        Op::Movement(m) => vec![outer("rows", &mut m.rows), inner("cols", &mut m.cols)],
        Op::Interpolate(i) => vec![outer("batch", &mut i.batch), outer("channels", &mut i.channels)],
        Op::RoiAlign(r) => vec![outer("rois", &mut r.rois), inner("channels", &mut r.channels)],
        Op::Nms(n) => vec![outer("boxes", &mut n.boxes)],
        Op::Listed(o) => o.kind.keys().iter().zip(&mut o.sizes).map(|(key, size)| inner(key, size)).collect(),
        Op::Unmodelled { bytes, .. } => vec![inner("bytes", bytes)],
        // A compiler would fuse another size otherwise.
        Op::Fused(_) => Vec::new(),
    }
}

impl OpCall {
    /// The calls with one size changed by `change`, and the names of the sizes; sizes whose change is `None` are left out.
    fn along(&self, change: impl Fn(bool, u64) -> Option<u64>) -> Vec<(&'static str, Self)> {
        let mut out = Vec::new();
        for i in 0.. {
            let mut call = self.clone();
            let Some(Size { name, inner, values }) = sizes(&mut call.op).into_iter().nth(i) else { break };
            let mut whole = true;
            for value in values {
                match change(inner, *value) {
                    Some(new) => *value = new,
                    None => whole = false,
                }
            }
            if whole {
                out.push((name, call));
            }
        }
        out
    }

    /// The calls of which one size is doubled, where that leaves alignment as it is.
    pub fn doubled(&self) -> Vec<(&'static str, Self)> {
        self.along(|inner, size| (!inner || size.is_multiple_of(ALIGNED)).then(|| size.saturating_mul(2)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Gemm, Layout};
    use preflop_units::Dtype;

    #[test]
    fn inner_sizes_double_where_they_are_aligned() {
        let call = OpCall::fwd(Op::Gemm(Gemm::mm(256, 100, 128, Layout::Nn)), Dtype::Bf16);
        // 100 columns are no multiple of 64
        assert_eq!(call.doubled().iter().map(|(n, _)| *n).collect::<Vec<_>>(), ["m", "k"]);
        assert_eq!(call.doubled()[0].1.op, Op::Gemm(Gemm::mm(512, 100, 128, Layout::Nn)));
    }
}
