//! `preflop completions`: a completion script for a shell.

use clap::Args;
use clap_complete::Shell;
use std::io::Write as _;

/// Print a completion script for your shell
///
/// For example: `preflop completions bash > ~/.local/share/bash-completion/completions/preflop`
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop completions bash > ~/.local/share/bash-completion/completions/preflop
  preflop completions zsh")]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Prints the script.
pub fn run(args: &CompletionsArgs, command: &mut clap::Command) -> anyhow::Result<()> {
    // The generator panics when it cannot write, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "preflop", &mut script);
    crate::output::stdout().write_all(&script)?;
    Ok(())
}
