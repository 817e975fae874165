//! An operator's shape in a few characters, for tables.

pub use preflop_core::ops::shape::describe;

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
