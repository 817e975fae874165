//! One file per command: its arguments with their help, and what it does.

pub mod completions;
pub mod gpus;
pub mod ops;
