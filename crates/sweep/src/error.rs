//! What can be wrong with a study, one line each: where, what, what it may be.

use preflop_core::names::one_line;
use preflop_table::TableError;
use std::path::PathBuf;

/// Why a study cannot be read or computed.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// Something in the study file.
    #[error("{file}: line {line}: {}", one_line(problem))]
    Line {
        /// The file.
        file: String,
        /// Counted from 1.
        line: usize,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// The study as a whole.
    #[error("{file}: {}", one_line(problem))]
    File {
        /// The file.
        file: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// Parts of another study, or of another version.
    #[error("`{}` holds parts of another study or another version of preflop ({what}); `--restart` throws them away", .folder.display())]
    Other {
        /// The folder.
        folder: PathBuf,
        /// What differs.
        what: String,
    },
    /// A file that cannot be read or written.
    #[error("cannot {verb} `{}`: {error}", .path.display())]
    Io {
        /// `read` or `write`.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// From the table.
    #[error(transparent)]
    Table(#[from] TableError),
}

impl StudyError {
    pub(crate) fn io(verb: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |error| Self::Io { verb, path, error }
    }
}
