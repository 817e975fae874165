//! `preflop calibrate`: measures the GPU of this machine and writes a GPU file.

use crate::destination;
use crate::error::{InputError, Partly};
use crate::grid::Grid;
use crate::input;
use crate::output::{self, Align, Output, three_digits};
use anyhow::Context as _;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use preflop_calibrate::file::{self, Origin, Written};
use preflop_calibrate::protocol::Line;
use preflop_calibrate::report::{Collector, Report};
use preflop_calibrate::{watch, worker};
use serde::Serialize;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Measure the GPU of this machine and write a GPU file for `--gpu`
///
/// Needs an NVIDIA driver and nothing else; takes about half a minute. Where cuBLAS is found, large matrix products are
/// measured too. A figure that does not repeat well is left out of the file, and the exit status is then 1.
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop calibrate -o my-gpu.toml
  preflop calibrate -o my-gpu.toml --quick --device 1")]
pub struct CalibrateArgs {
    /// GPU file to write
    #[arg(short, long, value_name = "FILE.toml", required_unless_present = "worker")]
    output: Option<PathBuf>,

    /// Fewer repeats: about ten seconds
    #[arg(long)]
    quick: bool,

    /// Which GPU, as the driver counts them from 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    device: u32,

    /// Folder or file of the cuBLAS library, where it is not found by itself
    #[arg(long, value_name = "PATH")]
    cublas: Option<PathBuf>,

    /// Accept figures whose samples spread by so many per cent, instead of the usual limits (5, launches and host copies 15)
    #[arg(long, value_name = "PERCENT", value_parser = percent, allow_hyphen_values = true)]
    max_spread: Option<f64>,

    /// Give up when the GPU does not answer for so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,

    /// Measure and print lines for the process that started this one
    #[arg(long, hide = true)]
    worker: bool,
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(p) if (0.1..=1000.0).contains(&p) => Ok(p / 100.0),
        _ => Err("it must be a number from 0.1 to 1000".to_string()),
    }
}

/// Starts the measuring process, listens, judges, writes.
pub fn run(args: &CalibrateArgs, output: &Output) -> anyhow::Result<()> {
    let Some(path) = args.output.as_ref().filter(|_| !args.worker) else { return work(args) };
    input::writable(path)?;
    if let Some(place) = args.cublas.as_ref().filter(|p| !p.exists()) {
        return Err(InputError::new(format!("`--cublas {}`: there is nothing", place.display())).into());
    }
    let report = measure(args)?;
    let origin = Origin { date: input::today().to_string(), version: env!("CARGO_PKG_VERSION").to_string() };
    let written = file::write(&report, &origin)?;
    destination::write_bytes(path, &written.text)?;
    if output.json {
        output::print_json(&Answer::new(path, &report, &written))?;
    } else {
        print(path, &report, &written, output)?;
    }
    let refused = report.refused().count();
    if refused == 0 {
        return Ok(());
    }
    let (key, why) = report.refused().next().unwrap_or_default();
    let others = if refused > 1 { format!(" (and {} more)", refused - 1) } else { String::new() };
    Err(Partly(format!("left out `{key}`: {why}{others}")).into())
}

/// The measuring process.
fn work(args: &CalibrateArgs) -> anyhow::Result<()> {
    let options = worker::Options { device: args.device, quick: args.quick, cublas: args.cublas.clone() };
    let mut out = output::stdout();
    let mut failed = None;
    let done = worker::run(&options, &mut |line| {
        // Each line must leave at once: the other side waits for it.
        if let Err(error) = writeln!(out, "{}", line.to_json()).and_then(|()| out.flush()) {
            failed.get_or_insert(error);
        }
    });
    if let Some(error) = failed {
        return Err(error.into());
    }
    Ok(done?)
}

fn measure(args: &CalibrateArgs) -> anyhow::Result<Report> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    if !program.file_stem().is_some_and(|name| name.to_string_lossy().starts_with("preflop")) {
        // A library inside another program cannot start itself a second time.
        let message = "`calibrate` measures in a second process, which only the `preflop` program can start";
        return Err(InputError::new(message).into());
    }
    let mut command = Command::new(program);
    command.args(["calibrate", "--worker", "--device", &args.device.to_string()]);
    if args.quick {
        command.arg("--quick");
    }
    if let Some(path) = &args.cublas {
        command.arg("--cublas").arg(path);
    }
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}");
    let bar = ProgressBar::new(1).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut collector = Collector::default();
    let mut at = "starting".to_string();
    let watched = watch::run(&mut command, Vec::new(), Duration::from_secs(args.timeout), |text| {
        if let Some(Line::Begin { what, step, steps }) = collector.take(text) {
            bar.set_length(steps as u64);
            bar.set_position(step as u64);
            bar.set_message(what.clone());
            at = what;
        }
    });
    bar.finish_and_clear();
    // What the process said about itself tells more than how it ended.
    match (watched, collector.failure()) {
        (_, Some(why)) => Err(InputError::new(format!("cannot calibrate: {why}")).into()),
        (Err(error), None) => {
            let message = format!("cannot calibrate: the GPU failed at `{at}`: {error}");
            Err(InputError::new(message).into())
        }
        (Ok(()), None) => Ok(collector.finish(args.max_spread)?),
    }
}

#[derive(Serialize)]
struct Answer<'a> {
    output: String,
    gpu: &'a str,
    title: &'a str,
    catalogue: Option<&'a str>,
    driver: Option<&'a str>,
    figures: Vec<Row<'a>>,
    skipped: &'a [preflop_calibrate::report::Skipped],
    notes: &'a [String],
}

#[derive(Serialize)]
struct Row<'a> {
    key: &'static str,
    value: f64,
    spread: f64,
    samples: usize,
    what: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<&'a str>,
}

impl<'a> Answer<'a> {
    fn new(path: &std::path::Path, report: &'a Report, written: &'a Written) -> Self {
        Self {
            output: path.display().to_string(),
            gpu: &written.gpu.name,
            title: &report.facts.name,
            catalogue: written.catalogue.as_deref(),
            driver: report.board.driver.as_deref(),
            figures: report
                .figures
                .iter()
                .map(|f| Row {
                    key: f.quantity.key,
                    value: f.summary.median,
                    spread: f.summary.spread,
                    samples: f.summary.count,
                    what: f.quantity.what,
                    refused: f.refused.as_deref(),
                })
                .collect(),
            skipped: &report.skipped,
            notes: &report.notes,
        }
    }
}

fn print(path: &std::path::Path, report: &Report, written: &Written, output: &Output) -> anyhow::Result<()> {
    let mut out = output::stdout();
    let driver = report.board.driver.as_deref().unwrap_or("of unknown version");
    writeln!(out, "{}, driver {driver}\n", output.bold(&report.facts.name))?;
    let mut table = Grid::new(&[
        ("measured", Align::Keep, 0),
        ("value", Align::Right, 0),
        ("unit", Align::Keep, 1),
        ("spread", Align::Right, 2),
        ("", Align::Left, 0),
    ]);
    for f in &report.figures {
        table.row([
            f.quantity.key.to_string(),
            three_digits(f.summary.median),
            super::gpus::unit(f.quantity.key).to_string(),
            format!("{:.1} %", 100.0 * f.summary.spread),
            if f.refused.is_some() { "refused".to_string() } else { String::new() },
        ]);
    }
    table.write(&mut out, output)?;
    writeln!(out)?;
    for (key, why) in report.refused() {
        writeln!(out, "refused {key}: {why}")?;
    }
    for skipped in &report.skipped {
        writeln!(out, "not measured: {}: {}", skipped.what, skipped.why)?;
    }
    let file = path.display();
    match &written.catalogue {
        Some(name) => writeln!(
            out,
            "wrote {file} beside the datasheet of `{name}`; `preflop gpus diff {name} {file}` compares"
        )?,
        None => writeln!(out, "wrote {file}; `preflop gpus show {file}` tells which figures are defaults")?,
    }
    Ok(out.flush()?)
}
