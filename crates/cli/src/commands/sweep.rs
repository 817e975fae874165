//! `preflop sweep`: every row of a study or of a table, in parts that survive the process.

mod ray;

use crate::error::{InputError, RowsFailed};
use crate::input;
use crate::output::{self, Output, three_digits};
use crate::tables;
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use preflop_sweep::{Checksum, Plan, Shard, Target};
use preflop_table::Question;
use preflop_table::format::{self, Format};
use serde::Serialize;
use std::fs::File;
use std::io::{IsTerminal as _, Read as _, Write as _};
use std::path::Path;
use std::time::Instant;

/// Predict every row of a study or of a table of jobs or operators
///
/// A study (.toml) says which models, GPUs and their figures, formats, batches, options and plans: all combinations, a list, or a
/// random or Latin-hypercube design. A table is Parquet, Arrow, CSV or JSON Lines. Finished parts are kept beside the output: a
/// sweep that was ended goes on where it was, with the same bytes in the end. A row that cannot be predicted has its
/// reason in the column `error`, and the exit status is then 1. docs/sweeps.md explains.
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop sweep study.toml -o answers.parquet
  preflop sweep study.toml -o part.parquet --shard 2/8")]
pub struct SweepArgs {
    /// Study (.toml), or a table of jobs (with a column `model`) or operators (with a column `op`)
    study: String,

    /// File to write: .parquet, .arrow, .csv or .jsonl; a folder (`out/`) gets one Parquet file for each part
    #[arg(short, long, value_name = "FILE")]
    output: String,

    /// How it is written [default: by the ending]
    #[arg(long, value_name = "FORMAT", value_parser = tables::format)]
    format: Option<Format>,

    /// GPU of every row, for a table without a column `gpu`
    #[arg(long, value_name = "GPU")]
    gpu: Option<String>,

    /// What computes: threads of this machine, or a Ray cluster
    #[arg(long, value_name = "ENGINE", default_value = "threads")]
    engine: EngineChoice,

    /// Ray cluster to join: `auto`, or as ray.init takes it [default: a Ray of its own on this machine]
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,

    /// Python that has preflop[ray], for `--engine ray`
    #[arg(long, value_name = "PROGRAM", env = "PREFLOP_PYTHON", default_value = if cfg!(windows) { "python" } else { "python3" })]
    python: String,

    /// Compute only every N-th part, beginning with the I-th; a sweep without it then puts all together
    #[arg(long, value_name = "I/N", value_parser = Shard::parse)]
    shard: Option<Shard>,

    /// Rows of a part [default: 131072 operators or 2048 jobs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=16_777_216))]
    part_rows: Option<u64>,

    /// Threads [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    threads: Option<u64>,

    /// Throw away finished parts and begin again
    #[arg(long)]
    restart: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EngineChoice {
    Threads,
    Ray,
}

/// A study is some pages of text; a list of rows may be longer.
const MAX_STUDY: u64 = 64 << 20;

/// What is said at the end.
#[derive(Debug, Serialize)]
struct Summary {
    output: String,
    rows: u64,
    /// Rows with an error; nothing is known of them before all parts are there.
    failed: Option<u64>,
    parts: u64,
    /// Parts that are still to be computed, by other shards.
    missing_parts: u64,
    seconds: f64,
}

/// Reads the study, computes what is missing, puts it together.
pub fn run(args: &SweepArgs, output: &Output) -> anyhow::Result<()> {
    if args.engine == EngineChoice::Ray {
        return ray::run(args, output);
    }
    if args.address.is_some() {
        return Err(InputError::new("`--address` is for `--engine ray`").into());
    }
    let target = Target::of(&args.output, args.format)?;
    let mut plan = plan(args)?;
    let engine = tables::engine()?;
    plan.check(&engine)?;
    let about = plan.about().clone();
    let parts = target.parts(&about, args.restart)?;
    let wanted: Vec<u64> =
        parts.missing().into_iter().filter(|part| args.shard.is_none_or(|s| s.has(*part))).collect();
    let start = Instant::now();
    let bar = progress(about.rows, about.rows.saturating_sub(wanted.len() as u64 * about.part_rows));
    let mut compute = || plan.compute(&wanted, &engine, &parts, |rows| bar.inc(rows));
    match args.threads {
        None => compute()?,
        Some(threads) => rayon::ThreadPoolBuilder::new()
            .num_threads(threads as usize)
            .build()
            .context("cannot start threads")?
            .install(&mut compute)?,
    }
    bar.finish_and_clear();
    let missing = parts.missing().len() as u64;
    let failed = match (args.shard, missing) {
        (None, _) => Some(target.finish(&parts)?),
        (Some(_), _) => None,
    };
    let summary = Summary {
        output: args.output.clone(),
        rows: about.rows,
        failed,
        parts: about.parts(),
        missing_parts: missing,
        seconds: start.elapsed().as_secs_f64(),
    };
    finish(&summary, output)
}

fn plan(args: &SweepArgs) -> anyhow::Result<Plan> {
    if Path::new(&args.study).extension().is_some_and(|e| e.eq_ignore_ascii_case("toml")) {
        if args.gpu.is_some() {
            return Err(
                InputError::new("`--gpu` is for tables; a study names its GPUs (`gpu = \"h200\"`)").into()
            );
        }
        return Ok(Plan::of_study(&study_text(&args.study)?, &args.study, args.part_rows)?);
    }
    let question = Question {
        fixed: args.gpu.iter().map(|gpu| ("gpu".to_string(), gpu.clone())).collect(),
        ..Question::default()
    };
    let sum = question.fixed.iter().fold(checksum(&args.study)?, |sum, (_, gpu)| sum.with(gpu.as_bytes()));
    let rows = format::rows(input::open(&args.study)?, &args.study)?;
    let table = format::open(input::open(&args.study)?, &args.study)?;
    Ok(Plan::of_table(table, rows, sum, question, args.part_rows)?)
}

/// The text of a study file.
fn study_text(path: &str) -> anyhow::Result<String> {
    let bytes = input::read_limited(path, MAX_STUDY, "study")?;
    String::from_utf8(bytes).map_err(|_| InputError::new(format!("{path}: not a text file")).into())
}

fn checksum(path: &str) -> anyhow::Result<Checksum> {
    let mut file: File = input::open(path)?;
    let (mut sum, mut buffer) = (Checksum::default(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer).with_context(|| format!("cannot read `{path}`"))? {
            0 => return Ok(sum),
            read => sum = sum.with(&buffer[..read]),
        }
    }
}

/// A bar with rate and time left, on a terminal.
fn progress(rows: u64, done: u64) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let style =
        ProgressStyle::with_template("{wide_bar} {human_pos}/{human_len} rows, {per_sec}, {eta} left");
    let bar = ProgressBar::with_draw_target(Some(rows), target)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    // What was there already counts for the length, not for the rate.
    bar.set_position(done);
    bar.reset_eta();
    bar
}

fn finish(summary: &Summary, output: &Output) -> anyhow::Result<()> {
    if output.json {
        output::print_json(summary)?;
    } else {
        let mut out = output::stdout();
        match summary.missing_parts {
            0 if summary.failed.is_some() => writeln!(
                out,
                "{}: {} rows in {} s",
                summary.output,
                summary.rows,
                three_digits(summary.seconds)
            )?,
            0 => writeln!(
                out,
                "all {} parts are there; the sweep without `--shard` puts them together",
                summary.parts
            )?,
            missing => writeln!(
                out,
                "{} of {} parts are there; the other shards, or the sweep without `--shard`, compute the rest",
                summary.parts - missing,
                summary.parts
            )?,
        }
        out.flush()?;
    }
    match summary.failed {
        Some(failed) if failed > 0 => Err(RowsFailed {
            failed,
            total: summary.rows,
            first: format!("in the column `error` of `{}`", summary.output),
        }
        .into()),
        _ => Ok(()),
    }
}
