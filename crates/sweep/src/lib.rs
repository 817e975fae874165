//! Studies: designs over models, GPUs and their figures, formats, options and plans, or over operators.
//!
//! A [`Study`] is a file that says which rows there are; [`Study::batch`] gives any range of them without the others, so that a study of a
//! billion rows takes no memory. Rows are computed in parts of a fixed size ([`Parts`]): a part is a Parquet file that appears whole or
//! not at all, so that a sweep may be killed at any time and goes on where it was, and parts may be computed on any machine. The file
//! at the end is the parts in their order: the same bytes whoever computed them.

mod axis;
mod design;
mod error;
mod parts;
mod plan;
mod random;
mod read;
mod study;
mod target;

pub use error::StudyError;
pub use parts::{About, Parts};
pub use plan::{Checksum, PART_JOBS, PART_OPERATORS, Plan, Rows, Shard};
pub use study::{Design, Study};
pub use target::Target;
