//! What can be wrong with a table as a whole; what is wrong with a row stands in its `error` column.

use arrow_schema::ArrowError;
use parquet::errors::ParquetError;
use preflop_core::names::one_line;

/// Why a table cannot be predicted, read or written. One line each: what, where, what to do.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// Neither operators nor jobs.
    #[error("the table has neither a column `model` (jobs) nor `op` (operators){}", one_line(.0))]
    Kind(String),
    /// A column that is needed.
    #[error("the table has no column `{}`{}", one_line(column), one_line(hint))]
    Missing {
        /// The column.
        column: String,
        /// What to do.
        hint: String,
    },
    /// A column whose values cannot be what it means.
    #[error("column `{}`: {}", one_line(column), one_line(problem))]
    Column {
        /// The column.
        column: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// A value that holds for the whole table.
    #[error("{}", one_line(.0))]
    Value(String),
    /// A file that is not what its name or content says.
    #[error("{file}: {}", one_line(problem))]
    File {
        /// The file.
        file: String,
        /// What is wrong.
        problem: String,
    },
    /// From the Arrow libraries.
    #[error("{}", one_line(&.0.to_string()))]
    Arrow(#[from] ArrowError),
    /// From the Parquet library.
    #[error("{}", one_line(&.0.to_string()))]
    Parquet(#[from] ParquetError),
    /// From the system.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl From<TableError> for ArrowError {
    fn from(error: TableError) -> Self {
        match error {
            TableError::Arrow(e) => e,
            other => Self::ExternalError(Box::new(other)),
        }
    }
}
