//! The NVIDIA driver and its libraries, loaded at run time. Nothing of CUDA is needed to build.
//!
//! This is the only place of the project with `unsafe`: calls of C functions whose signatures we state here. What
//! leaves this module is safe: sizes are checked before a copy, argument counts before a launch, and memory and
//! handles are freed by their owners.
#![allow(unsafe_code)]

mod blas;
mod cuda;
mod library;
mod memory;
mod nvml;
mod stream;

pub use blas::{Blas, BlasLt, Format};
pub use cuda::{Cuda, DeviceFacts};
pub use memory::{Buffer, Pinned};
pub use nvml::{Board, board};
pub use stream::{Arg, Event, Function, Graph, Module, Stream};

/// What went wrong below us.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// No driver on this machine.
    #[error("no NVIDIA driver found ({0})")]
    NoDriver(String),
    /// A driver, but no GPU.
    #[error("the NVIDIA driver sees no GPU")]
    NoDevice,
    /// No device of that number.
    #[error("no GPU {asked}: the driver sees {count}, counted from 0")]
    Ordinal {
        /// What was asked for.
        asked: u32,
        /// How many there are.
        count: u32,
    },
    /// The driver lacks a function.
    #[error("{library} has no `{symbol}`: too old")]
    Symbol {
        /// Library.
        library: String,
        /// Function.
        symbol: String,
    },
    /// A call failed.
    #[error("{call} failed: {reason}")]
    Call {
        /// Function of the driver.
        call: &'static str,
        /// What the driver says.
        reason: String,
    },
    /// The device has too little free memory.
    #[error("the GPU has no {mib} MiB of memory free; other programs may be using it")]
    Memory {
        /// What was asked for.
        mib: u64,
    },
    /// We asked for something that makes no sense.
    #[error("internal: {0}")]
    Misuse(&'static str),
}
