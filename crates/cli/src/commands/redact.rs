//! `preflop redact`: a copy of a recording that can be given away.

use crate::destination;
use crate::error::InputError;
use crate::output::{self, Output};
use anyhow::Context as _;
use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use preflop_import::Dropped;
use serde::Serialize;
use std::io::Write as _;
use std::path::PathBuf;

/// Write a copy of a recording that can be given away
///
/// What is known to be harmless is kept: times, sizes, shapes, and the names that libraries give to kernels and operators.
/// Everything else is left out, and words that are not known become numbers.
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop redact step.json.gz -o clean.json.gz
  preflop redact step.json.gz -o clean.json.gz --report")]
pub struct RedactArgs {
    /// Recording
    profile: PathBuf,

    /// The clean copy; packed if it ends in .gz; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Say what was left out, and how often
    #[arg(long)]
    report: bool,
}

#[derive(Serialize)]
struct Done {
    output: String,
    dropped: Vec<String>,
    changed: u64,
    /// How many values were left out, by the place they stood in.
    report: std::collections::BTreeMap<String, u64>,
}

/// Copies, says what was taken out.
pub fn run(args: &RedactArgs, output: &Output) -> anyhow::Result<()> {
    let file = args.output.display().to_string();
    if args.output.extension().is_some_and(|e| e == "zst") {
        let message = format!("cannot write `{file}`: packing to .zst is not supported");
        return Err(InputError::new(message).hint("name it .gz or leave it plain").into());
    }
    let same = args.profile.canonicalize().ok().zip(args.output.canonicalize().ok());
    if same.is_some_and(|(a, b)| a == b) {
        let message = format!("cannot write `{file}`: it is the recording itself");
        return Err(InputError::new(message).hint("choose another name").into());
    }
    let mut dropped = Dropped::default();
    destination::write(&args.output, |out| {
        if args.output.extension().is_some_and(|e| e == "gz") {
            let mut packed = GzEncoder::new(out, Compression::default());
            dropped = preflop_import::redact(&args.profile, &mut packed)?;
            packed.finish().with_context(|| format!("cannot write `{file}`"))?;
        } else {
            dropped = preflop_import::redact(&args.profile, out)?;
        }
        Ok(())
    })?;
    let places: Vec<String> = dropped.places.keys().cloned().collect();
    if output.json {
        let (changed, report) = (dropped.changed, dropped.places);
        return output::print_json(&Done { output: file, dropped: places, changed, report });
    }
    let mut out = output::stdout();
    let values: u64 = dropped.places.values().sum();
    writeln!(out, "{file}: {values} values left out, {} names or values changed", dropped.changed)?;
    if args.report {
        for (place, count) in &dropped.places {
            writeln!(out, "{count:>10}  {place}")?;
        }
    }
    Ok(out.flush()?)
}
