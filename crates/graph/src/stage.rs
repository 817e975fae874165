//! What a call of a language model is for: the whole sequence with its loss, or a step of generation.

use serde::{Deserialize, Serialize};

/// How keys and values of earlier tokens are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheKind {
    /// One tensor of fixed length that is written into; what a CUDA graph needs.
    #[default]
    Static,
    /// Concatenated to at every step.
    Growing,
}

impl CacheKind {
    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Growing => "growing",
        }
    }
}

/// What is computed of a language model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Every position's logits, and a loss in training.
    #[default]
    Full,
    /// A prompt is read: keys and values are kept, and only the last position has logits.
    Prefill,
    /// One more token for every sequence.
    Decode {
        /// Tokens before it.
        context: u64,
        /// How they are kept.
        cache: CacheKind,
    },
}

/// A static cache is allocated in steps of so many tokens: kernels want rows of 16 bytes.
const CACHE_STEP: u64 = 8;

impl Stage {
    /// The name used on the command line, where it is a step of generation.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Full => None,
            Self::Prefill => Some("prefill"),
            Self::Decode { .. } => Some("decode"),
        }
    }

    /// Tokens that a static cache has room for: those before, the new one, and what rounding adds.
    pub fn capacity(context: u64) -> u64 {
        context.saturating_add(1).next_multiple_of(CACHE_STEP)
    }

    /// New tokens of each sequence, where `seq` is what was asked for.
    pub fn queries(self, seq: u64) -> u64 {
        if matches!(self, Self::Decode { .. }) { 1 } else { seq }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_static_cache_has_room_for_the_new_token() {
        assert_eq!(Stage::capacity(2048), 2056);
        assert_eq!(Stage::capacity(2047), 2048);
    }
}
