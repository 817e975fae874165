//! Quantities with units, number formats of tensors, numbers as people read them, and close names: the words that every crate speaks.

pub mod dtype;
pub mod format;
pub mod math;
pub mod names;
mod quantities;
pub mod text;

pub use dtype::Dtype;
pub use quantities::*;
