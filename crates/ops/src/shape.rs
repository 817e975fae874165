//! An operator's shape in a few characters, for tables and pages.

use super::{Op, OpCall};

/// The shape as people write it: `64x256x56x56, 64 of 1x1`.
pub fn describe(call: &OpCall) -> String {
    match &call.op {
        Op::Gemm(g) if g.batch > 1 => format!("{} of {}x{}x{}", g.batch, g.m, g.n, g.k),
        Op::Gemm(g) => format!("{}x{}x{}", g.m, g.n, g.k),
        Op::Conv(c) => {
            let stride = if c.stride == [1, 1] { String::new() } else { format!(" /{}", pair(c.stride)) };
            let dilation =
                if c.dilation == [1, 1] { String::new() } else { format!(" dilated {}", pair(c.dilation)) };
            let groups = if c.groups == 1 { String::new() } else { format!(", {} groups", c.groups) };
            let input = [c.batch, c.ci, c.h, c.w].map(|n| n.to_string()).join("x");
            format!("{input}, {} of {}x{}{stride}{dilation}{groups}", c.co, c.r, c.s)
        }
        Op::Attention(a) => {
            let queries = if a.q_len == a.kv_len { String::new() } else { format!("{} on ", a.q_len) };
            format!("{}x{} heads, {queries}{} x {}", a.batch, a.heads, a.kv_len, a.head_dim)
        }
        Op::Rnn(r) => format!("{}x{}, {} to {}, {} layers", r.batch, r.seq, r.input, r.hidden, r.layers),
        Op::Rowwise(r) => format!("{}x{}", r.rows, r.cols),
        Op::Spatial(s) => format!("{}x{}x{}x{}", s.batch, s.channels, s.h, s.w),
        Op::Elementwise(e) => e.n.to_string(),
        Op::Embedding(e) => format!("{} of {}x{}", e.tokens, e.vocab, e.dim),
        Op::CrossEntropy(c) => format!("{}x{}", c.rows, c.classes),
        Op::Optimizer(o) => format!("{} in {} tensors", o.params, o.tensors),
        Op::Movement(m) => format!("{}x{}", m.rows, m.cols),
        Op::Interpolate(i) => format!("{}x{}x{}x{} to {}x{}", i.batch, i.channels, i.h, i.w, i.oh, i.ow),
        Op::RoiAlign(r) => format!("{}x{}x{}x{}", r.rois, r.channels, r.size, r.size),
        Op::Nms(n) => n.boxes.to_string(),
        Op::Fused(f) if f.reduced > 1 => format!("{} of {}", f.elements, f.reduced),
        Op::Fused(f) => f.elements.to_string(),
        Op::Listed(o) => o.describe(),
        Op::Unmodelled { bytes, .. } => format!("{bytes} bytes"),
    }
}

fn pair([h, w]: [u64; 2]) -> String {
    if h == w { h.to_string() } else { format!("{h}x{w}") }
}
