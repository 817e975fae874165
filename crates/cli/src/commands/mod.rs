//! One file per command: its arguments with their help, and what it does.

pub mod advise;
pub mod calibrate;
pub mod compare;
pub mod completions;
pub mod delta;
pub mod diff;
pub mod explain;
pub mod explore;
pub mod fit;
pub mod gpus;
mod layers;
pub mod measure;
pub mod models;
pub mod ops;
pub mod predict;
pub mod prices;
mod profile;
pub mod redact;
pub mod report;
pub mod roofline;
pub mod sensitivity;
pub mod serve;
pub mod study;
mod tabular;
pub mod transfer;
pub mod validate;
