//! The `preflop` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(preflop_cli::run(std::env::args_os()))
}
