//! From a network to the operators of one iteration.
//!
//! `eager` runs a graph without data, as eager PyTorch would; `capture` reads an iteration that Python recorded. Both give
//! operators in order, the host's work and the memory at its peak.

pub mod capture;
mod eager;

pub use eager::lower;
