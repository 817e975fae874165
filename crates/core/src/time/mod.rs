//! From operators to time.

pub mod operator;

pub use operator::{Bound, OpPrediction, predict};
