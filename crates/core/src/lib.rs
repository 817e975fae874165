//! Preflop's core: how long deep-learning work takes on a GPU, and why.
//!
//! This crate only gathers the parts, in the order in which data flows; each is a crate of its own, so that the compiler
//! keeps "no step looks back". A network is a graph ([`model`]), lowering gives the operators ([`ops`]) of one iteration, a library
//! runs each as [`kernels`], kernels take [`time`], and a [`schedule`] puts them beside the host.
//!
//! Architecture invariant: none of these crates does I/O or has a clock, threads, globals or randomness, so
//! that they give the same answer in a terminal, inside Python, in a server and in a browser.

pub use preflop_cost as cost;
pub use preflop_delta as delta;
pub use preflop_delta::explore;
pub use preflop_gpu as gpu;
pub use preflop_kernels as kernels;
pub use preflop_kernels::traffic;
pub use preflop_learned as learned;
pub use preflop_lower::capture;
pub use preflop_ops as ops;
pub use preflop_profile as profile;
pub use preflop_profile::transfer;
pub use preflop_report as report;
pub use preflop_roofline as roofline;
pub use preflop_schedule as schedule;
pub use preflop_units as units;
pub use preflop_units::{dtype, names};

pub use gpu::Gpu;
pub use ops::{Op, OpCall, Pass};
pub use units::Dtype;

/// Networks as graphs, and the operators of one iteration.
pub mod model {
    pub use preflop_graph::*;
    pub use preflop_lower::{Form, launched, lower};
}

/// The time of operators and of iterations.
pub mod time {
    pub use preflop_learned::{choice, trees};
    pub use preflop_schedule::{
        HostError, HostModel, IterationPrediction, Probe, Schedule, StepPrediction, iteration,
    };
    pub use preflop_time::*;
}
