//! `preflop man`: the manual pages, one per command.

use crate::destination;
use crate::output;
use clap::Args;
use clap_mangen::Man;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Print the manual page, or write one per command into a folder
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop man | man -l -
  preflop man -o ~/.local/share/man/man1")]
pub struct ManArgs {
    /// Folder for a page per command [default: the page of the program on standard output]
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,
}

/// Prints or writes.
pub fn run(args: &ManArgs, command: clap::Command) -> anyhow::Result<()> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let Some(folder) = &args.output else {
        let mut page = Vec::new();
        Man::new(command).render(&mut page)?;
        let mut out = output::stdout();
        out.write_all(&page)?;
        return Ok(out.flush()?);
    };
    std::fs::create_dir_all(folder)
        .map_err(|e| anyhow::anyhow!("cannot make the folder `{}`: {e}", folder.display()))?;
    write(&command, folder)
}

/// The page of a command and of those below it.
fn write(command: &clap::Command, folder: &Path) -> anyhow::Result<()> {
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    man.render(&mut page)?;
    destination::write_bytes(folder.join(man.get_filename()), page)?;
    command.get_subcommands().filter(|c| !c.is_hide_set()).try_for_each(|below| write(below, folder))
}
