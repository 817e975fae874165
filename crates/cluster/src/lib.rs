//! Training on several GPUs and nodes: what a collective costs, what a sharded model runs on each rank, how long an
//! iteration takes under tensor, pipeline, data, context and expert parallelism, which plan is best, how it scales.
//!
//! The modules stand in the order in which data flows: a [`Node`] holds GPUs and links, a [`Cluster`] holds nodes, a
//! collective ([`collective`]) is a launch on a link, a [`model::Transformer`] is sharded into operators of one rank,
//! [`iteration`] joins compute and links, [`plan`] and [`scale`] ask it many times. What is needed of the core's time
//! model is one trait, [`rank::OperatorTimes`].
//!
//! Architecture invariant: as the core, this crate does no I/O and has no clock, threads, globals or randomness.

pub mod asked;
pub mod cluster;
pub mod collective;
pub mod data_parallel;
pub mod error;
pub mod interval;
pub mod iteration;
pub mod link;
pub mod memory;
pub mod model;
pub mod node;
pub mod plan;
pub mod rank;
pub mod room;
pub mod run;
pub mod scale;
pub mod strategy;
pub mod timeline;
pub mod validate;

pub use cluster::Cluster;
pub use error::ClusterError;
pub use node::Node;
pub use strategy::Strategy;
