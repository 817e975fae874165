//! Preflop's core: how long deep-learning work takes on a GPU, and why.
//!
//! The modules stand in the order in which data flows: a model is a list of operators ([`ops`]), a library
//! runs each as kernels, kernels move bytes through the memory levels and take time, and a report says so.
//!
//! Architecture invariant: this crate does no I/O, has no clock, no threads, no globals and no randomness, so
//! that it gives the same answer in a terminal, inside Python, in a server and in a browser.

pub mod capture;
pub mod cost;
pub mod delta;
pub mod dtype;
pub mod explore;
pub mod gpu;
pub mod kernels;
pub mod model;
pub mod names;
pub mod ops;
pub mod profile;
pub mod report;
pub mod roofline;
pub mod time;
pub mod traffic;
pub mod transfer;
pub mod units;

pub use dtype::Dtype;
pub use gpu::Gpu;
pub use ops::{Op, OpCall, Pass};
