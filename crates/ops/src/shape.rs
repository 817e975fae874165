//! An operator's shape in a few characters, for tables and pages.

use super::{Op, OpCall};

/// The shape as people write it: `64x256x56x56, 64 of 1x1`.
pub fn describe(call: &OpCall) -> String {
    match &call.op {
        Op::Gemm(g) if g.batch > 1 => format!("{} of {}x{}x{}", g.batch, g.m, g.n, g.k),
        Op::Gemm(g) => sizes(&[g.m, g.n, g.k]),
        Op::Conv(c) => {
            let mut out = sizes(&[c.batch, c.ci, c.h, c.w]);
            out.push_str(", ");
            push(&mut out, c.co);
            out.push_str(" of ");
            push(&mut out, c.r);
            out.push('x');
            push(&mut out, c.s);
            if c.stride != [1, 1] {
                out.push_str(" /");
                out.push_str(&pair(c.stride));
            }
            if c.dilation != [1, 1] {
                out.push_str(" dilated ");
                out.push_str(&pair(c.dilation));
            }
            if c.groups != 1 {
                out.push_str(", ");
                push(&mut out, c.groups);
                out.push_str(" groups");
            }
            out
        }
        Op::Attention(a) => {
            let queries = if a.q_len == a.kv_len { String::new() } else { format!("{} on ", a.q_len) };
            format!("{}x{} heads, {queries}{} x {}", a.batch, a.heads, a.kv_len, a.head_dim)
        }
        Op::Rnn(r) => format!("{}x{}, {} to {}, {} layers", r.batch, r.seq, r.input, r.hidden, r.layers),
        Op::Rowwise(r) => sizes(&[r.rows, r.cols]),
        Op::Spatial(s) => sizes(&[s.batch, s.channels, s.h, s.w]),
        Op::Elementwise(e) => sizes(&[e.n]),
        Op::Embedding(e) => format!("{} of {}x{}", e.tokens, e.vocab, e.dim),
        Op::CrossEntropy(c) => format!("{}x{}", c.rows, c.classes),
        Op::Optimizer(o) => format!("{} in {} tensors", o.params, o.tensors),
        Op::Movement(m) => sizes(&[m.rows, m.cols]),
        Op::Interpolate(i) => format!("{}x{}x{}x{} to {}x{}", i.batch, i.channels, i.h, i.w, i.oh, i.ow),
        Op::RoiAlign(r) => format!("{}x{}x{}x{}", r.rois, r.channels, r.size, r.size),
        Op::Nms(n) => n.boxes.to_string(),
        Op::Fused(f) if f.reduced > 1 => format!("{} of {}", f.elements, f.reduced),
        Op::Fused(f) => f.elements.to_string(),
        Op::Listed(o) => o.describe(),
        Op::Unmodelled { bytes, .. } => format!("{bytes} bytes"),
    }
}

/// `64x256x56x56`, as answers have it by the thousand.
fn sizes(all: &[u64]) -> String {
    let mut out = String::with_capacity(ROOM);
    for (i, n) in all.iter().enumerate() {
        if i > 0 {
            out.push('x');
        }
        push(&mut out, *n);
    }
    out
}

/// Room for most shapes.
const ROOM: usize = 40;

fn push(out: &mut String, n: u64) {
    out.push_str(itoa::Buffer::new().format(n));
}

fn pair([h, w]: [u64; 2]) -> String {
    if h == w { h.to_string() } else { format!("{h}x{w}") }
}
