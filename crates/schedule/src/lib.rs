//! From timed operators, streams and the host to the time of an iteration.

pub mod host;
pub mod iteration;
mod power;
pub mod spread;
pub mod timeline;

pub use host::{HostError, HostModel, Probe};
pub use iteration::{IterationPrediction, Known, Schedule, StepPrediction};
