//! Describes the GPU of this machine by measuring it.
//!
//! In the order in which the data flows: `worker` measures through `driver` and `ptx` in a process of its own and says
//! lines of `protocol`; `watch` starts such a process, listens, and ends it when it hangs; `stats` sums up the samples;
//! `report` decides which figures count; `file` writes them into a GPU file.
//!
//! Only `driver` and `worker` need a GPU. The rest is pure and tested without one.

pub mod driver;
pub mod file;
pub mod protocol;
pub mod ptx;
pub mod quantity;
pub mod report;
pub mod stats;
pub mod watch;
pub mod worker;

/// The program with which `preflop measure` times operators in PyTorch.
pub const MEASURE_SCRIPT: &str = include_str!("measure.py");
