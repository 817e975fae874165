//! `preflop report`: one page about one iteration, predicted or recorded.

use super::page::alone;
use super::profile::analyse;
use super::roofline::job::{JobArgs, describe};
use super::roofline::page::{self, PageView};
use super::roofline::recording::{self, RecordingArgs};
use crate::destination;
use crate::error::{InputError, Partly};
use crate::input;
use crate::output::{self, Output};
use crate::price_args::{PriceArgs, own_quote};
use crate::room;
use anyhow::Context as _;
use clap::Args;
use preflop_core::Gpu;
use preflop_core::cost::Quote;
use preflop_core::gpu::catalog;
use preflop_core::model::zoo;
use preflop_core::profile::{Profile, explain};
use preflop_core::report::{Question, Recorded, Report, changes, markdown, report, report_of_recording};
use preflop_core::roofline::{By, Machine, MachineData, Rows, entries_of_iteration, entries_of_profile};
use preflop_core::schedule::Schedule as _;
use preflop_core::time::TimeModel;
use preflop_core::transfer::{self, Host, Options};
use std::io::Write as _;

/// Report on one iteration: time, memory, cost, what binds, what would help, charts, layers
///
/// Writes one HTML file that works offline with -o, or Markdown with --md. Parts, layers and advice are of the
/// first GPU; all GPUs are compared. Of a recording they are of the GPU it ran on, and the others are predicted from it.
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop report resnet50 --gpu h200,a100 --precision amp -o report.html
  preflop report trace.json.gz -o report.html        # a recording
  preflop report gpt2 --gpu h100 --md")]
pub struct ReportArgs {
    /// Model name (see `preflop models`), a captured graph in JSON, or a recording (PyTorch profiler JSON, Nsight
    /// Systems SQLite, Nsight Compute CSV; plain, .gz or .zst)
    #[arg(value_name = "MODEL|PROFILE")]
    model: String,

    #[command(flatten)]
    job: JobArgs,

    /// Price of an hour of every GPU, instead of the catalogue's
    #[arg(long, value_name = "USD", value_parser = price, allow_hyphen_values = true)]
    usd_per_hour: Option<f64>,

    #[command(flatten)]
    prices: PriceArgs,

    #[command(flatten)]
    recording: RecordingArgs,

    /// The host that the job will run on: fast, usual, slow, a factor such as 1.5x, or a file from `preflop host`
    #[arg(long, value_name = "HOST", conflicts_with = "live")]
    host: Option<String>,

    /// Write the whole application with its core inside, opened at this job: every option can be changed in the browser
    #[arg(long, conflicts_with = "md")]
    live: bool,

    /// Write Markdown instead of a page
    #[arg(long)]
    md: bool,

    /// End with status 1 where it does not fit into the first GPU's memory
    #[arg(long, conflicts_with = "live")]
    fail_if_not_fit: bool,

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
const MAX_MARKS: usize = 1000;

/// Reads or predicts, tries changes, writes.
pub fn run(args: &ReportArgs, output: &Output) -> anyhow::Result<()> {
    if args.output.is_none() && !args.md && !output.json {
        return Err(InputError::new("no file given")
            .hint("add -o report.html, or --md for Markdown on standard output")
            .into());
    }
    if args.live {
        return live(args, output);
    }
    match recording::read(&args.model)? {
        Some(profile) => recorded(args, &profile, output),
        None => predicted(args, output),
    }
}

/// The application, opened at this job. Its questions name models and GPUs, so files cannot be asked about there.
fn live(args: &ReportArgs, output: &Output) -> anyhow::Result<()> {
    let Some(path) = &args.output else {
        return Err(InputError::new("no file given").hint("add -o report.html").into());
    };
    let gpus = args.job.gpus()?;
    let job = args.job.run.job(&args.model, None, None)?;
    let named = zoo::info(&args.model).is_ok() && gpus.iter().all(|g| catalog::find(&g.name).is_ok());
    let plain = args.job.run.is_plain() && job.run.name() == "eager";
    if !named || !plain {
        let message = "`--live` is for models and GPUs known by name, run eagerly";
        return Err(InputError::new(message).hint("leave out --live: the report is a page too").into());
    }
    let mut state = vec![
        ("model", job.graph.name.clone()),
        ("gpu", gpus[0].name.clone()),
        ("batch", job.graph.samples.to_string()),
    ];
    state.extend(job.graph.seq.map(|seq| ("seq", seq.to_string())));
    state.push(("precision", job.options.precision.name().to_string()));
    state.push(("mode", job.options.mode.name().to_string()));
    state.extend(args.job.run.optimizer.map(|o| ("optimizer", o.to_string())));
    // Names of the catalogues are letters, digits and dashes: nothing to escape in an address.
    let state: Vec<String> = state.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    let page = alone(&format!("/predict?{}", state.join("&")))?;
    destination::write_bytes(path, &page)?;
    if output.json {
        return output::print_json(&serde_json::json!({ "file": path, "bytes": page.len() }));
    }
    let mut out = output::stdout();
    writeln!(out, "live report written to {path} ({} kB)", page.len().div_ceil(1000))?;
    Ok(out.flush()?)
}

fn predicted(args: &ReportArgs, output: &Output) -> anyhow::Result<()> {
    let gpus = args.job.gpus()?;
    let job = args.job.run.job(&args.model, None, None)?;
    gpus.iter().try_for_each(|gpu| job.check_on(gpu))?;
    let model = input::on_host(TimeModel::embedded(), args.host.as_deref())?;
    let predictions: Vec<_> = gpus.iter().map(|g| model.predict_iteration(&job.iteration, g)).collect();
    let answers: Vec<_> = gpus.iter().zip(&predictions).collect();
    let title = describe(&job);
    let command = command(args, Some((job.graph.samples, job.graph.seq)));
    let quotes = quotes(args, &gpus)?;
    let question =
        Question { title: &title, command: &command, version: env!("CARGO_PKG_VERSION"), quotes: &quotes };
    let helps = changes(&model, &job.graph, &job.options, job.form, &job.iteration, &gpus[0]);
    let mut report = report(&question, &job.iteration, &answers, helps).context("no GPU to report on")?;
    if report.gpus.first().is_some_and(|first| first.fits == Some(false)) {
        let asked = (args.model.as_str(), &args.job.run);
        let largest = room::largest_batch(asked, &job, &gpus[0]);
        report.to_fit = room::changes(asked, &job, &gpus[0], &model, largest);
    }
    let views: Vec<PageView> = answers
        .iter()
        .map(|(gpu, prediction)| {
            let machine = Machine::of(gpu);
            let entries = entries_of_iteration(&job.iteration, prediction, gpu);
            let rows = Rows::new(&entries, By::Operator, &machine);
            PageView::new("", MachineData::from(&machine), &rows, None, MAX_MARKS)
        })
        .collect();
    write(args, output, &title, &report, &views)
}

fn recorded(args: &ReportArgs, profile: &Profile, output: &Output) -> anyhow::Result<()> {
    input::no_host(args.host.as_deref())?;
    let asked = args.job.gpus_if_any()?;
    let analysis = analyse(profile, &args.recording.window)?;
    let gpu = recording::origin(&analysis, &args.recording, &asked)?;
    let targets: Vec<Gpu> = asked.into_iter().filter(|g| g.name != gpu.name).collect();
    let model = TimeModel::embedded();
    let explanation = explain::explain(&analysis, &model, Some(&gpu));
    let (entries, sources) = entries_of_profile(&analysis, &model, &gpu);
    // Beside a measured iteration, which holds the profiler's own time, the others keep it too.
    let options = Options { host: Host::Factor(1.0), ..Options::default() };
    let transfer = transfer::transfer(&analysis, &model, &gpu, &targets, &options);
    let title = recording::title(&analysis);
    let command = command(args, None);
    let all: Vec<Gpu> = std::iter::once(gpu.clone()).chain(targets.iter().cloned()).collect();
    let quotes = quotes(args, &all)?;
    let question =
        Question { title: &title, command: &command, version: env!("CARGO_PKG_VERSION"), quotes: &quotes };
    let report = report_of_recording(
        &question,
        &Recorded {
            analysis: &analysis,
            explanation: &explanation,
            entries: &entries,
            sources: &sources,
            gpu: &gpu,
            samples: args.job.run.batch,
            transfer: &transfer,
            targets: &targets,
        },
    );
    let machine = Machine::of(&gpu);
    let rows = Rows::new(&entries, By::Operator, &machine);
    let view = PageView::new("", MachineData::from(&machine), &rows, Some(&sources), MAX_MARKS);
    write(args, output, &title, &report, &[view])
}

/// The price of each GPU: the user's for all, or as the catalogue has it.
fn quotes(args: &ReportArgs, gpus: &[Gpu]) -> anyhow::Result<Vec<Option<Quote>>> {
    if let Some(usd) = args.usd_per_hour {
        return Ok(gpus.iter().map(|_| Some(own_quote(usd, None))).collect());
    }
    let prices = args.prices.catalogue()?;
    Ok(gpus.iter().map(|g| prices.quote(&g.name, args.prices.pricing)).collect())
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
            page::page(title, views, true, page::CLASSIC, Some(report), &markdown(report))?
        };
        destination::write_bytes(path, &text)?;
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
    if output.json {
        output::print_json(report)?;
    }
    match report.gpus.first() {
        Some(first) if args.fail_if_not_fit && first.fits == Some(false) => {
            Err(Partly(report.headline.clone()).into())
        }
        _ => Ok(()),
    }
}

/// The command with every choice spelt out; for a model, defaults included.
fn command(args: &ReportArgs, sizes: Option<(u64, Option<u64>)>) -> String {
    let job = &args.job;
    let mut words = vec!["preflop report".to_string(), quoted(&args.model)];
    let mut add = |flag: &str, value: &str| words.push(format!("{flag} {}", quoted(value)));
    if !job.gpu.is_empty() {
        add("--gpu", &job.gpu.join(","));
    }
    if let Some((batch, seq)) = sizes {
        add("--batch", &batch.to_string());
        if let Some(seq) = seq {
            add("--seq", &seq.to_string());
        }
        add("--precision", job.run.precision().name());
        add("--mode", job.run.mode.name());
        if let Some(optimizer) = job.run.optimizer {
            add("--optimizer", &optimizer.to_string());
        }
        for (flag, rank) in [("--lora", job.run.lora), ("--qlora", job.run.qlora)] {
            if let Some(rank) = rank {
                add(flag, &rank.to_string());
            }
        }
    } else {
        if let Some(batch) = job.run.batch {
            add("--batch", &batch.to_string());
        }
        for [flag, value] in args.recording.words() {
            add(&flag, &value);
        }
    }
    if let Some(host) = &args.host {
        add("--host", host);
    }
    match args.usd_per_hour {
        Some(usd) => add("--usd-per-hour", &usd.to_string()),
        None => {
            for [flag, value] in args.prices.words() {
                add(&flag, &value);
            }
        }
    }
    if args.recording.window.attributed_only() && sizes.is_none() {
        words.push("--attributed-only".to_string());
    }
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
