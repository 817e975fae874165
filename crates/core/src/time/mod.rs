//! From operators to time.

pub mod choice;
pub mod fitted;
pub mod operator;
pub mod trees;

pub use operator::{Bound, OpPrediction, predict};
