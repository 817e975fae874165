//! What a run costs: whether it fits, dollars, joules, and which GPU is the best choice.
//!
//! Takes predictions ([`preflop_time`]) and peak memory ([`preflop_graph`]) as given. `fit` says whether a run fits,
//! `room` what would make it fit, `price` holds the dated catalogue, `energy` turns utilisation into power, `rank`
//! orders candidates and marks the Pareto front, `search` finds each GPU's best batch and formats, `plan` answers
//! questions about a whole run under a deadline or a budget, `study` repeats the analysis of seven GPUs.

pub mod date;
pub mod energy;
pub mod fit;
pub mod listing;
pub mod plan;
pub mod price;
pub mod quantity;
pub mod rank;
pub mod room;
pub mod search;
pub mod study;

pub use date::Date;
pub use energy::{Energy, Power};
pub use fit::Reserve;
pub use plan::{Limits, Plan};
pub use price::{Catalogue, Ownership, Pricing, Quote};
pub use rank::{Candidate, RankBy};
pub use search::Search;

/// What can be wrong with prices, budgets and quantities. Each message is one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CostError {
    /// Not a calendar date.
    #[error("`{text}` is not a date; write it as 2026-08-22")]
    Date {
        /// As given.
        text: String,
    },
    /// A line of a price file that cannot be read.
    #[error("{file}, line {line}: {problem}")]
    Line {
        /// The file.
        file: String,
        /// Counted from 1.
        line: usize,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// An amount that cannot be read.
    #[error("`{text}` is not {what}")]
    Quantity {
        /// As given.
        text: String,
        /// What was expected, with an example.
        what: &'static str,
    },
    /// An amount in a currency without a known rate.
    #[error("unknown currency `{currency}` in `{text}`; amounts are in usd, as in `100usd`")]
    Currency {
        /// As given.
        text: String,
        /// The unit found.
        currency: String,
    },
    /// No price for a GPU under the chosen pricing.
    #[error("no {pricing} price for {gpus}; give one as `--price {first}=USD` or choose another `--pricing`")]
    NoPrice {
        /// Kind of price asked for.
        pricing: &'static str,
        /// The GPUs without one.
        gpus: String,
        /// The first of them.
        first: String,
    },
    /// A question that contradicts itself or lacks a part.
    #[error("{problem}")]
    Plan {
        /// What contradicts what.
        problem: String,
    },
}
