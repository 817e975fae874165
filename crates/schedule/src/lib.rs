//! From timed operators, streams and the host to the time of an iteration.

pub mod iteration;
mod power;
pub mod timeline;

pub use iteration::{HostModel, IterationPrediction, Schedule, StepPrediction, phase_time};
