//! `preflop report`: one page about one iteration.

use super::roofline::job::{JobArgs, describe};
use super::roofline::page::{self, PageView};
use crate::error::InputError;
use crate::output::{self, Output};
use anyhow::Context as _;
use clap::Args;
use preflop_core::report::{Question, Report, changes, markdown, report};
use preflop_core::roofline::{By, Machine, MachineData, Rows, entries_of_iteration};
use preflop_core::time::TimeModel;
use std::io::Write as _;

/// Report on one iteration: time, memory, what binds, what would help, charts, layers
///
/// Writes one HTML file that works offline with -o, or Markdown with --md. Parts, layers and advice are of the
/// first GPU; all GPUs are compared.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Model name (see `preflop models`), or a file with a captured graph in JSON
    model: String,

    #[command(flatten)]
    job: JobArgs,

    /// Price of an hour, for the cost of a million samples
    #[arg(long, value_name = "USD", value_parser = price, allow_hyphen_values = true)]
    usd_per_hour: Option<f64>,

    /// Write Markdown instead of a page
    #[arg(long)]
    md: bool,

    /// File to write [default: standard output for --md and --json]
    #[arg(short, long, value_name = "FILE")]
    output: Option<String>,
}

fn price(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(usd) if usd.is_finite() && usd >= 0.0 => Ok(usd),
        _ => Err("a price is a number from 0".to_string()),
    }
}

/// Rows of a chart that a page shows one by one.
const MAX_MARKS: usize = 2000;

/// Predicts, tries changes, writes.
pub fn run(args: &ReportArgs, output: &Output) -> anyhow::Result<()> {
    if args.output.is_none() && !args.md && !output.json {
        return Err(InputError::new("no file given")
            .hint("add -o report.html, or --md for Markdown on standard output")
            .into());
    }
    let gpus = args.job.gpus()?;
    let job = args.job.run.job(&args.model, None, None)?;
    let model = TimeModel::embedded();
    let predictions: Vec<_> = gpus.iter().map(|g| model.predict_iteration(&job.iteration, g)).collect();
    let answers: Vec<_> = gpus.iter().zip(&predictions).collect();
    let options = args.job.run.options();
    let title = describe(&job, &args.job.run);
    let command = command(args, job.graph.samples, job.graph.seq);
    let question = Question {
        title: &title,
        command: &command,
        version: env!("CARGO_PKG_VERSION"),
        usd_per_hour: args.usd_per_hour,
    };
    let helps = changes(&model, &job.graph, &options, &job.iteration, &gpus[0]);
    let report = report(&question, &job.iteration, &answers, helps).context("no GPU to report on")?;
    let views: Vec<PageView> = answers
        .iter()
        .map(|(gpu, prediction)| {
            let machine = Machine::of(gpu);
            let entries = entries_of_iteration(&job.iteration, prediction, gpu);
            let rows = Rows::new(&entries, By::Operator, &machine);
            PageView::new("", MachineData::from(&machine), &rows, MAX_MARKS)
        })
        .collect();
    write(args, output, &title, &report, &views)
}

fn write(
    args: &ReportArgs,
    output: &Output,
    title: &str,
    report: &Report,
    views: &[PageView],
) -> anyhow::Result<()> {
    if let Some(path) = &args.output {
        let text = if args.md {
            markdown(report)
        } else {
            page::page(title, views, true, Some(report), &markdown(report))?
        };
        std::fs::write(path, &text).with_context(|| format!("cannot write `{path}`"))?;
        if !output.json {
            let mut out = output::stdout();
            writeln!(out, "{}", output::wrapped(&report.headline, output.width, ""))?;
            writeln!(
                out,
                "{}",
                output.dim(&format!("report written to {path} ({} kB)", text.len().div_ceil(1000)))
            )?;
            out.flush()?;
        }
    } else if args.md {
        let mut out = output::stdout();
        write!(out, "{}", markdown(report))?;
        out.flush()?;
    }
    if output.json { output::print_json(report) } else { Ok(()) }
}

/// The command with every choice spelt out, defaults included.
fn command(args: &ReportArgs, batch: u64, seq: Option<u64>) -> String {
    let job = &args.job;
    let mut words = vec![
        format!("preflop report {}", quoted(&args.model)),
        format!("--gpu {}", quoted(&job.gpu.join(","))),
        format!("--batch {batch}"),
    ];
    words.extend(seq.map(|s| format!("--seq {s}")));
    words.push(format!("--precision {}", job.run.precision.name()));
    words.push(format!("--mode {}", job.run.mode.name()));
    if let Some(optimizer) = job.run.optimizer {
        words.push(format!("--optimizer {}", format!("{optimizer:?}").to_lowercase()));
    }
    words.extend(args.usd_per_hour.map(|usd| format!("--usd-per-hour {usd}")));
    if args.md {
        words.push("--md".to_string());
    }
    words.extend(args.output.as_ref().map(|path| format!("-o {}", quoted(path))));
    words.join(" ")
}

/// For a POSIX shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,=:".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_string()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_needs_it() {
        assert_eq!(quoted("h200,a100"), "h200,a100");
        assert_eq!(quoted("my file"), "'my file'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }
}
