//! One file per command: its arguments with their help, and what it does.

pub mod completions;
pub mod delta;
pub mod explore;
pub mod gpus;
mod layers;
pub mod models;
pub mod ops;
pub mod predict;
pub mod report;
pub mod roofline;
pub mod sensitivity;
mod tabular;
pub mod validate;
