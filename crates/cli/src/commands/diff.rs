//! `preflop diff`: two recordings, operator by operator.

use super::profile::{self, WindowArgs};
use crate::output::{self, Output};
use clap::Args;
use preflop_core::profile::compare;
use preflop_core::profile::render::{self, Style};
use std::io::Write as _;
use std::path::PathBuf;

/// Compare two recordings: what got faster or slower, by operator
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop diff before.json.gz after.json.gz
  preflop diff before.json.gz after.json.gz --md > comment.md")]
pub struct DiffArgs {
    /// First recording
    before: PathBuf,

    /// Second recording
    after: PathBuf,

    /// Print Markdown
    #[arg(long, visible_alias = "markdown", conflicts_with = "json")]
    md: bool,

    #[command(flatten)]
    window: WindowArgs,
}

/// Reads both, compares, prints.
pub fn run(args: &DiffArgs, output: &Output) -> anyhow::Result<()> {
    let (before, after) = (profile::read(&args.before)?, profile::read(&args.after)?);
    let comparison =
        compare::compare(&profile::analyse(&before, &args.window)?, &profile::analyse(&after, &args.window)?);
    if output.json {
        return output::print_json(&comparison);
    }
    let style = if args.md { Style::Markdown } else { Style::Text { width: output.width } };
    let mut out = output::stdout();
    out.write_all(render::comparison(&comparison, style).as_bytes())?;
    Ok(out.flush()?)
}
