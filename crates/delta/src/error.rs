//! What can be wrong with a layer, a machine, a tile or a network name.

/// Each message is one line: what, where, what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeltaError {
    /// A size of a layer that cannot be.
    #[error("layer `{layer}`: {problem}")]
    Layer {
        /// Name of the layer, or its shape.
        layer: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// A figure of a machine that cannot be.
    #[error("design: {figure} is {value}; it must be {needed}")]
    Machine {
        /// Which figure.
        figure: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        needed: &'static str,
    },
    /// A tile that no kernel could have.
    #[error("tile `{tile}`: {problem}")]
    Tile {
        /// As given.
        tile: String,
        /// What is wrong and what would be right.
        problem: &'static str,
    },
    /// No such network.
    #[error("unknown network `{name}`{hint} (known: {known}; a .csv file of layers works too)")]
    Network {
        /// As given.
        name: String,
        /// Close names, as a clause.
        hint: String,
        /// All names.
        known: String,
    },
}

impl DeltaError {
    /// The same error, naming the layer by `name`.
    #[must_use]
    pub fn in_layer(self, name: &str) -> Self {
        match self {
            Self::Layer { problem, .. } => Self::Layer { layer: name.to_string(), problem },
            other => other,
        }
    }
}
