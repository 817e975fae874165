//! `preflop advise`: which options make a run faster, ranked.

use super::profile::{self, WindowArgs};
use crate::error::InputError;
use crate::input;
use crate::output::{self, Output};
use crate::run_args::RunArgs;
use clap::Args;
use preflop_core::Gpu;
use preflop_core::profile::{Profile, explain};
use preflop_core::report::advise::{self, Advice};
use preflop_core::time::TimeModel;
use preflop_core::units::Bytes;
use serde::Serialize;
use std::io::Write as _;

/// Rank the options that make a run faster: compile, CUDA graphs, layout, number formats, optimizer, attention, checkpoints, batch
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop advise resnet50 --gpu a100
  preflop advise step.json --gpu h200 --json    # a recorded step
  preflop advise trace.json.gz                  # a profiler's recording, on the GPU it was made on")]
pub struct AdviseArgs {
    /// Model name (see `preflop models`), or a file: captured graph, .onnx, .pt2, Hugging Face config.json, or a recording (a profiler's trace)
    model: String,

    /// GPU name (see `preflop gpus`) or the path of a GPU file; a recording says itself where it ran
    #[arg(long, value_name = "GPU")]
    gpu: Option<String>,

    #[command(flatten)]
    run: RunArgs,

    /// The host that the job will run on: fast, usual, slow, a factor such as 1.5x, or a file from `preflop host`
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
}

/// Ways shown to people.
const SHOWN: usize = 12;

/// The model as asked for, then every option that applies.
pub fn run(args: &AdviseArgs, output: &Output) -> anyhow::Result<()> {
    let asked = args.gpu.as_deref().map(input::gpu).transpose()?;
    if let Some(recorded) = super::roofline::recording::read(&args.model)? {
        input::no_host(args.host.as_deref())?;
        return of_recording(&recorded, asked, output);
    }
    let gpu = asked.ok_or_else(no_gpu)?;
    let job = args.run.job(&args.model, None, None)?;
    job.check_on(&gpu)?;
    let model = input::on_host(TimeModel::embedded(), args.host.as_deref())?;
    let ranking = advise::rank(&model, &job.graph, job.options, job.form, &gpu);
    if output.json {
        return output::print_json(&ranking);
    }
    let mut out = output::stdout();
    let already = if ranking.already.is_empty() {
        String::new()
    } else {
        format!(" with {}", ranking.already.join(" "))
    };
    writeln!(
        out,
        "{}{already} on {}: {}\n",
        job.graph.name,
        gpu.name,
        output::milliseconds(ranking.base_ms)
    )?;
    for way in ranking.options.iter().take(SHOWN) {
        line(&mut out, way, output.width)?;
    }
    let left = ranking.options.len().saturating_sub(SHOWN);
    if left > 0 {
        writeln!(out, "\n{left} more ways with --json")?;
    }
    if let Some(other) = &ranking.cheaper {
        let text = format!(
            "As fast for less: {} takes {} at {:.2} USD an hour, {} costs {:.2}",
            other.gpu,
            output::milliseconds(other.iteration_ms),
            other.usd_per_hour,
            gpu.name,
            other.instead_of_usd_per_hour
        );
        writeln!(out, "\n{}", output::wrapped(&text, output.width, "  "))?;
    }
    for note in &ranking.notes {
        writeln!(out, "\n{}", output::wrapped(&format!("Note: {note}"), output.width, "  "))?;
    }
    Ok(out.flush()?)
}

fn no_gpu() -> InputError {
    InputError::new("no GPU given").hint("add --gpu, such as --gpu h200")
}

/// What the kernels of a recording leave to gain, largest first, as `explain` has it.
#[derive(Debug, Serialize)]
struct Recorded {
    source: String,
    gpu: String,
    base_ms: f64,
    options: Vec<preflop_core::profile::advice::Advice>,
    notes: Vec<String>,
}

/// A recording is advised by what it shows, on the GPU that it was made on.
fn of_recording(profile: &Profile, asked: Option<Gpu>, output: &Output) -> anyhow::Result<()> {
    let analysis = profile::analyse(profile, &WindowArgs::default())?;
    let made_on = profile::origin(profile, Some(analysis.window.device), None)?;
    let mut notes = Vec::new();
    if let (Some(own), Some(asked)) = (&made_on, asked.as_ref())
        && own.name != asked.name
    {
        notes.push(format!(
            "the recording was made on {}, and these gains are its own; `preflop transfer` predicts {}",
            own.name, asked.name
        ));
    }
    let gpu = made_on.or(asked).ok_or_else(no_gpu)?;
    let said = explain::explain(&analysis, &TimeModel::embedded(), Some(&gpu));
    let mut options = said.advice;
    options.sort_by(|a, b| b.share.total_cmp(&a.share));
    notes.extend(said.notes);
    let ranking = Recorded { source: said.source, gpu: gpu.name, base_ms: said.iteration_ms, options, notes };
    if output.json {
        return output::print_json(&ranking);
    }
    let mut out = output::stdout();
    let base = output::milliseconds(ranking.base_ms);
    writeln!(out, "{} on {}: {base}\n", ranking.source, ranking.gpu)?;
    for way in &ranking.options {
        let text = format!(
            "{:+5.0} %  at most {}: {}",
            -100.0 * way.share,
            output::milliseconds(way.saves_ms),
            way.text
        );
        writeln!(out, "{}", output::wrapped(&text, output.width, INDENT))?;
    }
    if ranking.options.is_empty() {
        writeln!(out, "The recording shows nothing that would help.")?;
    }
    for note in &ranking.notes {
        writeln!(out, "\n{}", output::wrapped(&format!("Note: {note}"), output.width, "  "))?;
    }
    Ok(out.flush()?)
}

fn line(out: &mut impl std::io::Write, way: &Advice, width: usize) -> std::io::Result<()> {
    let fits = if way.fits { "" } else { ", DOES NOT FIT" };
    let first = format!(
        "{:+5.0} %  {} ({} to {})  {}{fits}  {}",
        -100.0 * way.gain,
        output::milliseconds(way.iteration_ms),
        output::milliseconds(way.low_ms),
        output::milliseconds(way.high_ms),
        output::memory(Bytes::from_mib(way.memory_mib)),
        way.options.join(" ")
    );
    writeln!(out, "{}", output::wrapped(&first, width, INDENT))?;
    for (how, cost) in way.how.iter().zip(&way.cost) {
        let cost = if cost.is_empty() { String::new() } else { format!("  ({cost})") };
        writeln!(out, "{}", output::hanging(INDENT, &format!("{how}{cost}"), width))?;
    }
    Ok(())
}

/// Below the gain stands what to write.
const INDENT: &str = "         ";
