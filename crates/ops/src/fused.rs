//! A kernel that a compiler fused from many operators.
//!
//! What it computes is not known here, only how it runs: over how many places, how many values it loads and stores at each, what it
//! reduces, and how many bytes it touches. That is what Inductor's listing says about a Triton kernel.

use super::Traffic;
use preflop_units::Bytes;
use serde::{Deserialize, Serialize};

/// How a fused kernel walks its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FusedForm {
    /// Element by element in one order.
    Pointwise,
    /// Element by element in two orders: it transposes.
    Tiled,
    /// A reduction whose rows fit into a block.
    Persistent,
    /// A reduction along neighbours, in a loop.
    LoopedInner,
    /// A reduction across neighbours, in a loop.
    LoopedOuter,
    /// A kernel written from a template, or by hand: only its bytes are known.
    Template,
}

impl FusedForm {
    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pointwise => "fused pointwise",
            Self::Tiled => "fused transpose",
            Self::Persistent => "fused row reduction",
            Self::LoopedInner => "fused looped reduction",
            Self::LoopedOuter => "fused column reduction",
            Self::Template => "fused template",
        }
    }
}

/// What makes a place of a fused kernel dearer than its loads and stores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FusedTraits {
    /// Functions with much arithmetic (exp, tanh, erf), at most two.
    pub functions: u8,
    /// Random numbers are drawn.
    pub random: bool,
    /// Results are added to memory one by one.
    pub atomics: bool,
    /// The gradient of max pooling: every place looks at all windows that hold it.
    pub pooling_gradient: bool,
    /// Maximum and sum of exponentials in one pass.
    pub online_softmax: bool,
    /// A transpose whose rows are a few values wide (images with three channels).
    pub narrow: bool,
}

/// One launch of a fused kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fused {
    /// How it walks.
    pub form: FusedForm,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// Places of the result.
    pub elements: u64,
    /// Values reduced for each of them; 1 without a reduction.
    pub reduced: u64,
    /// Values loaded at each place.
    pub loads: u32,
    /// Values stored.
    pub stores: u32,
    /// What is dear about it.
    #[serde(default)]
    pub traits: FusedTraits,
}

impl Fused {
    /// Places that it walks over.
    pub fn places(&self) -> f64 {
        self.elements as f64 * self.reduced as f64
    }

    /// As listed.
    pub fn traffic(&self) -> Traffic {
        Traffic { read: Bytes(self.read as f64), written: Bytes(self.written as f64) }
    }
}
