//! Designs of GPUs over whole networks: what a GPU with more of some resources would gain, what it would cost, and which is best under
//! limits of area and power.
//!
//! A [`Design`] scales a base GPU; [`Workload`] predicts whole iterations on it with the time model (unlike `preflop_core::explore`, which
//! is the published DeLTA model of convolutions); `search` evaluates all designs of a space, or lets an optimiser look where they are too many.
//!
//! ```text
//! share = area weights of the design over those of the base          (data/area_weights.toml)
//! area  = area of the base's die * share                             (data/dies.toml)
//! watts = board power of the base * share * clock
//! ```
//!
//! Where clock is a multiple of the base's. Switched capacitance grows with what there is to switch and power with its rate; voltage is taken as given. These
//! are round assumptions, good for comparing designs of one making, not for a data sheet.

mod area;
mod axis;
mod found;
#[cfg(feature = "search")]
mod search;
mod workload;

pub use area::die_mm2;
pub use axis::{Axis, KEYS, Values, axis};
pub use found::{Found, MAX_GRID, front, grid};
#[cfg(feature = "search")]
pub use search::optimise;
pub use workload::{Design, Evaluated, Limits, Network, Objective, Workload};

/// What can be wrong with a search. One line each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DesignError {
    /// A `--vary` that cannot be read.
    #[error("`{text}`: {problem}")]
    Vary {
        /// As given.
        text: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// A limit that cannot be read.
    #[error("`--limit {text}`: {problem}")]
    Limit {
        /// As given.
        text: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// No design keeps to the limits.
    #[error("no design that was tried keeps to the limits ({limits}); the nearest has {nearest}")]
    Nothing {
        /// The limits.
        limits: String,
        /// The design that exceeds them least.
        nearest: String,
    },
    /// Something about the base.
    #[error("{0}")]
    Base(String),
}
