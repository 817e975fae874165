//! An inference server: its own kernels for attention, quantised products and experts, fused elementwise kernels, decode steps as CUDA graphs.
//!
//! `forms` has the closed forms, `constants` reads `data/fitted/served.toml` and the trees beside it, `operator` asks them for single operators,
//! `stack` puts the steps of a model together.

pub mod constants;
pub mod forms;
pub mod operator;
pub mod stack;

pub use constants::Constants;
pub use stack::{Formats, Served, WeightFormat};
