//! What can be wrong with nodes, clusters and plans. Each message is one line: what, where, what to do.

use thiserror::Error;

/// Why a question about a cluster has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ClusterError {
    /// No node or cluster of that name.
    #[error(
        "unknown cluster `{name}`{hint} (`preflop cluster list` lists all; NODExCOUNT, 8xGPU and a path work too)"
    )]
    Unknown {
        /// The name asked for.
        name: String,
        /// Close names, as a clause.
        hint: String,
    },
    /// A file that cannot be read.
    #[error("{file}: {problem}")]
    File {
        /// The file.
        file: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// The GPU of a node.
    #[error("{file}: {problem}")]
    Gpu {
        /// The file.
        file: String,
        /// What the catalogue said.
        problem: String,
    },
    /// A plan that does not divide, fit or exist.
    #[error("{0}")]
    Plan(String),
    /// A model that cannot be cut this way.
    #[error("{0}")]
    Model(String),
    /// A line of a log that cannot be read.
    #[error("{0}")]
    Log(String),
}
