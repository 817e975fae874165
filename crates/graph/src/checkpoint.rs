//! Activation checkpointing: which blocks keep only what goes in and compute the rest again in backward.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// How activations are kept for backward.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Checkpoint {
    /// All of them.
    #[default]
    None,
    /// Each block of a list of blocks keeps its input, as Hugging Face's `gradient_checkpointing_enable` does.
    Full,
    /// As many blocks together keep one input.
    Every(u32),
}

impl Checkpoint {
    /// Is everything kept?
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }

    /// Blocks that are computed again together.
    fn together(self) -> usize {
        match self {
            Self::None => 0,
            Self::Full => 1,
            Self::Every(blocks) => blocks as usize,
        }
    }
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Full => f.write_str("full"),
            Self::Every(blocks) => write!(f, "every={blocks}"),
        }
    }
}

impl From<Checkpoint> for String {
    fn from(checkpoint: Checkpoint) -> Self {
        checkpoint.to_string()
    }
}

impl TryFrom<String> for Checkpoint {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Checkpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "full" => Ok(Self::Full),
            _ => text
                .strip_prefix("every=")
                .and_then(|blocks| blocks.parse().ok())
                .filter(|&blocks| blocks > 0)
                .map(Self::Every)
                .ok_or_else(|| {
                    format!("`{text}` is none of `none`, `full` and `every=K` with K blocks from 1")
                }),
        }
    }
}

/// The list and the block in it that a layer belongs to: `h.3.mlp.act` to (`h`, `h.3`), `features.1.2.block.0` to (`features.1`, `features.1.2`). Where no part is a
/// number, the deepest module with one at its end is the block: `denseblock1.denselayer2.conv1` to `denseblock1.denselayer2`.
fn block(layer: &str) -> Option<(&str, &str)> {
    let number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let mut ends = Vec::new();
    let mut at = 0;
    for part in layer.split('.') {
        ends.push((at, at + part.len()));
        at += part.len() + 1;
    }
    let named = |i: usize| &layer[ends[i].0..ends[i].1];
    let last = match (0..ends.len()).find(|&i| number(named(i))) {
        Some(first) => (first..ends.len()).take_while(|&i| number(named(i))).last()?,
        None => (0..ends.len().saturating_sub(1))
            .rev()
            .find(|&i| named(i).ends_with(|c: char| c.is_ascii_digit()))?,
    };
    let before = if last == 0 { 0 } else { ends[last - 1].1 };
    Some((&layer[..before], &layer[..ends[last].1]))
}

/// Nodes that are computed again together, from the layers' names in order.
pub(crate) fn segments(layers: &[&str], checkpoint: Checkpoint) -> Vec<Range<usize>> {
    let together = checkpoint.together();
    if together == 0 {
        return Vec::new();
    }
    let mut blocks: Vec<(&str, &str, Range<usize>)> = Vec::new();
    for (i, layer) in layers.iter().enumerate() {
        let Some((list, name)) = block(layer) else {
            // A function that is called between the modules of a list belongs to the one before it.
            if let Some((list, _, nodes)) = blocks.last_mut()
                && nodes.end == i
                && layer.strip_prefix(*list).is_some_and(|rest| rest.starts_with('.'))
            {
                nodes.end = i + 1;
            }
            continue;
        };
        match blocks.last_mut() {
            Some((_, same, nodes)) if *same == name && nodes.end == i => nodes.end = i + 1,
            _ => blocks.push((list, name, i..i + 1)),
        }
    }
    let mut out: Vec<(&str, usize, Range<usize>)> = Vec::new();
    for (list, _, nodes) in blocks {
        match out.last_mut() {
            Some((same, count, all)) if *same == list && *count < together && all.end == nodes.start => {
                *count += 1;
                all.end = nodes.end;
            }
            _ => out.push((list, 1, nodes)),
        }
    }
    out.into_iter().map(|(_, _, nodes)| nodes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_the_number_in_a_list_of_modules() {
        assert_eq!(block("transformer.h.3.mlp.act"), Some(("transformer.h", "transformer.h.3")));
        assert_eq!(block("features.1.2.block.0"), Some(("features.1", "features.1.2")));
        assert_eq!(block("layer1.0.downsample.0"), Some(("layer1", "layer1.0")));
        let dense = "features.denseblock1.denselayer2";
        assert_eq!(block("features.denseblock1.denselayer2.conv1"), Some(("features.denseblock1", dense)));
        assert_eq!((block("conv1"), block("lm_head")), (None, None));
    }

    #[test]
    fn blocks_of_one_list_are_taken_together() {
        let layers = ["embed", "h.0.a", "h.0.b", "h.1.a", "h.2.a", "g.0.a", "head"];
        assert_eq!(segments(&layers, Checkpoint::None), vec![]);
        assert_eq!(segments(&layers, Checkpoint::Full), vec![1..3, 3..4, 4..5, 5..6]);
        assert_eq!(segments(&layers, Checkpoint::Every(2)), vec![1..4, 4..5, 5..6]);
        let layers = ["features.0", "features.relu", "features.2", "classifier"];
        assert_eq!(segments(&layers, Checkpoint::Every(2)), vec![0..3]);
    }

    #[test]
    fn it_is_read_as_it_is_written() {
        for text in ["none", "full", "every=4"] {
            assert_eq!(text.parse::<Checkpoint>().unwrap().to_string(), text);
        }
        for wrong in ["", "every", "every=0", "every=-1", "every=x", "all"] {
            assert!(wrong.parse::<Checkpoint>().unwrap_err().contains("every=K"), "{wrong}");
        }
    }
}
