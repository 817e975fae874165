//! What can be wrong with a model.

use preflop_units::names::one_line;
use thiserror::Error;

/// One line that says what is wrong and where.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ModelError {
    /// No model of that name.
    #[error("unknown model `{}`{hint}", one_line(name))]
    Unknown {
        /// The name asked for.
        name: String,
        /// Close names, or nothing.
        hint: String,
    },
    /// A layer cannot take its input.
    #[error("layer `{}`: {}", one_line(layer), one_line(problem))]
    Layer {
        /// Layer path.
        layer: String,
        /// What does not fit.
        problem: String,
    },
    /// A size given by the user is out of range.
    #[error("`{what}` must be between 1 and {limit}, not {value}")]
    Size {
        /// `batch` or `seq`.
        what: &'static str,
        /// The value given.
        value: u64,
        /// The largest possible.
        limit: u64,
    },
    /// The form that is asked for is none of this model.
    #[error("{problem}")]
    Form {
        /// What does not go, and what does.
        problem: String,
    },
    /// The option does not apply to the model.
    #[error("model `{model}` takes no sequence length")]
    NoSequence {
        /// Model name.
        model: String,
    },
    /// A step of generation was asked of a model that does not generate text.
    #[error("model `{model}` does not generate text, so it has no mode `{step}`")]
    NoGeneration {
        /// Model name.
        model: String,
        /// The step asked for.
        step: &'static str,
    },
    /// A field of a configuration cannot be used.
    #[error("`{field}`: {problem}")]
    Config {
        /// Name of the field.
        field: String,
        /// What is wrong.
        problem: String,
    },
    /// A graph from outside contradicts itself.
    #[error("node {node} (`{name}`): {problem}")]
    Graph {
        /// Index of the node.
        node: usize,
        /// Its name.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// Training was asked of a graph without a loss.
    #[error("model `{model}` has no loss, so it can only be run with mode `infer`")]
    NoLoss {
        /// Model name.
        model: String,
    },
}
