//! Networks exported by other tools: `torch.export` archives and ONNX files, read without their tools.

mod bounded_json;
mod expression;
mod onnx;
mod onnx_check;
mod onnx_file;
mod onnx_nodes;
mod onnx_shapes;
mod protobuf;
mod pt2;

pub use onnx::read_onnx;
pub use pt2::{read_pt2, read_pt2_description};

use std::collections::BTreeMap;

/// Sizes that the user gave for dimensions that a file leaves open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bindings {
    /// By name of the dimension.
    pub dims: BTreeMap<String, u64>,
    /// For the first dimension of the first input.
    pub batch: Option<u64>,
    /// For the second dimension of a first input of tokens.
    pub seq: Option<u64>,
}

/// Why an exported file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ExportedError {
    /// The file cannot be read at all.
    #[error("{file}: not {what}: {detail}")]
    NotThat {
        /// File.
        file: String,
        /// What it should be.
        what: &'static str,
        /// What is wrong.
        detail: String,
    },
    /// A dimension has no size.
    #[error("{file}: dimension `{dim}` is open; give its size with `--dim {dim}=N`")]
    Open {
        /// File.
        file: String,
        /// Its name.
        dim: String,
    },
    /// A size was given for something that has one.
    #[error("{file}: its {what} is fixed at {fixed}; export it again with an open dimension to change it")]
    Fixed {
        /// File.
        file: String,
        /// `batch` or `sequence`.
        what: &'static str,
        /// The size.
        fixed: u64,
    },
    /// A name that no dimension has.
    #[error("{file}: no dimension is called `{dim}`; its open dimensions: {open}")]
    NoSuchDim {
        /// File.
        file: String,
        /// The name given.
        dim: String,
        /// Those there are.
        open: String,
    },
    /// A call's result has no known shape.
    #[error(
        "{file}: the shape of `{value}`, made by `{op}`, is not known; run the exporter's shape inference first"
    )]
    Shape {
        /// File.
        file: String,
        /// The tensor.
        value: String,
        /// The operator.
        op: String,
    },
    /// A call that no library could run.
    #[error("{file}: `{op}` node `{node}`: {what}")]
    Impossible {
        /// File.
        file: String,
        /// The operator.
        op: String,
        /// The node's name, or that of its result.
        node: String,
        /// What is impossible.
        what: String,
    },
}

/// Elements of a shape; saturates instead of overflowing.
fn elements(shape: &[u64]) -> u64 {
    shape.iter().fold(1, |n, &s| n.saturating_mul(s))
}

/// A size as a whole number of a file.
fn whole(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

/// The dimensions of a tensor of that rank.
fn axes(rank: usize) -> std::ops::Range<i64> {
    0..i64::try_from(rank).unwrap_or(0)
}
