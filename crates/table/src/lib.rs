//! Tables in, tables out: operators or whole jobs as Arrow record batches, predicted on all cores, block by block.
//!
//! [`Engine::predict`] turns one batch into its answers; [`Predicted`] does so for a stream of batches and never holds more than a
//! block of rows. A row that cannot be predicted has its reason in the column `error`, and the others are not disturbed. Rows do not
//! depend on each other, so answers are the same to the last bit however the rows are cut into batches, threads or machines.
//!
//! `columns` reads cells whatever type a tool gave them, `operators` and `jobs` say what their columns mean, `answer` what comes
//! out, `format` reads and writes the files that tables lie in.

mod answer;
mod cache;
mod choices;
mod columns;
mod engine;
mod error;
pub mod format;
mod jobs;
mod operators;
mod plan;
mod shape;
mod stream;

pub use answer::{JOB_ANSWERS, OPERATOR_ANSWERS};
pub use choices::choices;
pub use columns::{Columns, Fixed};
pub use engine::{Built, Engine, Keep, Question, Source};
pub use error::TableError;
pub use jobs::COLUMNS as JOB_COLUMNS;
pub use operators::COLUMNS as OPERATOR_COLUMNS;
pub use stream::{BLOCK_ROWS, Predicted};

/// What the rows of a table are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One call of one operator.
    Operators,
    /// One iteration of a model.
    Jobs,
}

/// Batches of one schema as one.
pub fn joined(
    schema: &arrow_schema::SchemaRef,
    batches: &[arrow_array::RecordBatch],
) -> Result<arrow_array::RecordBatch, TableError> {
    Ok(arrow_select::concat::concat_batches(schema, batches)?)
}
