//! Quantities with units, number formats of tensors, and close names: the words that every crate speaks.

pub mod dtype;
pub mod math;
pub mod names;
mod quantities;

pub use dtype::Dtype;
pub use quantities::*;
