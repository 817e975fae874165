//! What can be wrong with nodes, clusters and plans. Each message is one line: what, where, what to do.

use preflop_core::names::one_line;
use thiserror::Error;

/// Why a question about a cluster has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ClusterError {
    /// No node or cluster of that name.
    #[error(
        "unknown cluster `{}`{hint} (`preflop cluster list` lists all; NODExCOUNT, 8xGPU and a path work too)",
        one_line(name)
    )]
    Unknown {
        /// The name asked for.
        name: String,
        /// Close names, as a clause.
        hint: String,
    },
    /// A file that cannot be read.
    #[error("{file}: {}", one_line(problem))]
    File {
        /// The file.
        file: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// The GPU of a node.
    #[error("{file}: {}", one_line(problem))]
    Gpu {
        /// The file.
        file: String,
        /// What the catalogue said.
        problem: String,
    },
    /// A plan that does not divide, fit or exist.
    #[error("{}", one_line(.0))]
    Plan(String),
    /// A model that cannot be cut this way.
    #[error("{}", one_line(.0))]
    Model(String),
    /// A line of a log that cannot be read.
    #[error("{}", one_line(.0))]
    Log(String),
}
