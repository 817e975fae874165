//! The time-based and the hierarchical Roofline, as data and as geometry.
//!
//! ```text
//! AI = F/B    MB = P/W    t_F = sum over pipes of F_p/P_p    t_B = B/W    t_0 = N t0
//! bound = max(t_F, t_B, t_0)        slowdown = t / max(t_F, t_B)
//! ```
//!
//! Where `F` are FLOPs, `B` bytes at a memory level, `N` kernel launches and `t` the time of a piece of work;
//! `P` is a peak rate, `W` a bandwidth and `t0` the overhead of one launch of a machine. Source: Wang et al.,
//! "Time-Based Roofline for Deep Learning Performance Analysis", arXiv 2009.04598; for the levels: Yang et al.,
//! "Hierarchical Roofline Analysis for GPUs", arXiv 2009.02449.
//!
//! The data flows `machine` + `work` -> `bounds` -> `rows` (grouped, exported) -> `plane` (what a chart draws).
//!
//! Architecture invariant: a chart never computes a bound of its own; all of them come from [`Work::bounds`].

mod bounds;
mod conclusions;
mod counters;
mod export;
mod machine;
mod plane;
mod profile;
mod rows;
mod study;

pub use bounds::{Bounds, Class, INEFFICIENT, Resource, Work};
pub use conclusions::{Group, conclusions};
pub use counters::work_of_counters;
pub use export::{COLUMNS, MachineData, RowData};
pub use machine::{Level, Machine, Pipe, Roof};
pub use plane::{Plane, Point, decades};
pub use profile::{Part as SourcePart, Sources, entries_of_profile};
pub use rows::{By, Entry, Row, Rows, Summary, ZeroFlop, entries_of_iteration};
pub use study::{StudyKernel, StudyRow, machine as study_machine};
