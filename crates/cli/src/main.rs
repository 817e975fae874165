//! The `preflop` program.

use std::process::ExitCode;

/// A server's threads ask for memory and free each other's for as long as it runs: the system's allocator keeps ever more of it in
/// pieces (`docs/web.md` has the figures of both).
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    ExitCode::from(preflop_cli::run(std::env::args_os()))
}
