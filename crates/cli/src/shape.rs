//! An operator's shape in a few characters, for tables.

use preflop_core::ops::{Op, OpCall};

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
        Op::Unmodelled { bytes, .. } => format!("{bytes} bytes"),
    }
}

fn pair([h, w]: [u64; 2]) -> String {
    if h == w { h.to_string() } else { format!("{h}x{w}") }
}

/// One name for several layers: parts in which they differ become `*`.
pub fn common_name(names: &[&str]) -> String {
    let Some((first, others)) = names.split_first() else { return String::new() };
    let mut parts: Vec<&str> = first.split('.').collect();
    for other in others {
        let other: Vec<&str> = other.split('.').collect();
        if other.len() != parts.len() {
            return format!("{first}, ..");
        }
        for (part, theirs) in parts.iter_mut().zip(other) {
            if *part != theirs {
                *part = "*";
            }
        }
    }
    if parts.iter().all(|p| *p == "*") { format!("{first}, ..") } else { parts.join(".") }
}

/// A layer path that fits: leading parts, which say least, give way to `..`.
pub fn shortened(name: &str, width: usize) -> String {
    let mut rest = name;
    let mut cut = false;
    while rest.chars().count() + if cut { 2 } else { 0 } > width {
        let Some((_, tail)) =
            rest.split_once('.').filter(|(_, tail)| !tail.trim_matches(['.', ' ', ',']).is_empty())
        else {
            break;
        };
        (rest, cut) = (tail, true);
    }
    let kept = width.saturating_sub(if cut { 2 } else { 0 });
    let rest: String =
        if rest.chars().count() > kept { rest.chars().take(kept).collect() } else { rest.to_string() };
    if cut { format!("..{rest}") } else { rest }
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_core::ops::row;

    #[test]
    fn shapes_are_short() {
        let say = |op: &str, shape: &str| describe(&row::parse(op, "fwd", "fp32", shape).unwrap());
        assert_eq!(
            say("conv2d", r#"{"b":64,"ci":3,"hw":224,"co":64,"k":7,"stride":2,"pad":3}"#),
            "64x3x224x224, 64 of 7x7 /2"
        );
        assert_eq!(say("bmm", r#"{"b":12,"m":2,"n":3,"k":4}"#), "12 of 2x3x4");
        assert_eq!(say("sdpa", r#"{"b":2,"h":8,"s":1,"d":64,"kv_len":99}"#), "2x8 heads, 1 on 99 x 64");
    }

    #[test]
    fn names_of_like_layers_are_merged() {
        assert_eq!(common_name(&["layer1.0.conv2"]), "layer1.0.conv2");
        assert_eq!(common_name(&["layer1.0.conv2", "layer1.1.conv2"]), "layer1.*.conv2");
        assert_eq!(common_name(&["conv1", "layer1.0.conv2"]), "conv1, ..");
        assert_eq!(common_name(&["a", "b"]), "a, ..");
    }

    #[test]
    fn long_names_lose_their_front() {
        assert_eq!(shortened("layer1.0.conv2", 20), "layer1.0.conv2");
        assert_eq!(shortened("bert.encoder.layer.*.output.dense", 16), "..*.output.dense");
        assert_eq!(shortened("loss.cross_entropy", 8), "..cross_");
    }
}
