//! The `preflop` program.

use mimalloc::MiMalloc;
use std::process::ExitCode;

/// A start makes some 100,000 small pieces of memory and a server's threads make them at once: the system's allocator takes a fifth of the instructions of
/// both.
#[global_allocator]
static MEMORY: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    ExitCode::from(preflop_cli::run(std::env::args_os()))
}
