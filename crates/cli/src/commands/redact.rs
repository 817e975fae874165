//! `preflop redact`: a copy of a recording that can be given away.

use crate::output::{self, Output};
use clap::Args;
use serde::Serialize;
use std::io::Write as _;
use std::path::PathBuf;

/// Write a copy of a recording without metadata, secrets, folders and machine names
#[derive(Debug, Args)]
pub struct RedactArgs {
    /// Recording
    profile: PathBuf,

    /// The clean copy; packed if it ends in .gz
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

#[derive(Serialize)]
struct Done {
    output: String,
    dropped: Vec<String>,
    changed: u64,
}

/// Copies, says what was taken out.
pub fn run(args: &RedactArgs, output: &Output) -> anyhow::Result<()> {
    let redacted = preflop_import::redact(&args.profile, &args.output)?;
    let file = args.output.display().to_string();
    if output.json {
        return output::print_json(&Done {
            output: file,
            dropped: redacted.dropped,
            changed: redacted.changed,
        });
    }
    let mut out = output::stdout();
    let dropped =
        if redacted.dropped.is_empty() { "nothing".to_string() } else { redacted.dropped.join(", ") };
    writeln!(out, "{file}: left out {dropped}; {} values changed", redacted.changed)?;
    Ok(out.flush()?)
}
