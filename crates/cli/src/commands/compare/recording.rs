//! A recording instead of a model: the recorded iteration on other GPUs, ranked.

use super::args::{Batch, CompareArgs};
use super::price_kind;
use crate::commands::profile;
use crate::commands::roofline::recording::{self, RecordingArgs};
use crate::destination;
use crate::error::InputError;
use crate::grid::Grid;
use crate::input;
use crate::output::{self, Align, Output, three_digits};
use preflop_core::Gpu;
use preflop_core::cost::rank::usd_per_million_samples;
use preflop_core::cost::{Candidate, Catalogue, Date, RankBy};
use preflop_core::gpu::catalog;
use preflop_core::profile::{Analysis, Profile};
use preflop_core::report::power_of_recording;
use preflop_core::time::TimeModel;
use preflop_core::transfer::change::{self, Change};
use preflop_core::transfer::{self, Options, Side, Target};
use serde::Serialize;
use std::io::Write as _;

/// One GPU, with the names of `compare` where they mean the same.
#[derive(Debug, Serialize)]
struct Row {
    gpu: String,
    iteration_ms: f64,
    low_ms: f64,
    high_ms: f64,
    gpu_busy_ms: f64,
    host_ms: f64,
    bound: Side,
    speedup: f64,
    batch: Option<u64>,
    samples_per_s: Option<f64>,
    usd_per_hour: Option<f64>,
    price_date: Option<Date>,
    price_source: Option<String>,
    usd_per_million_samples: Option<f64>,
    usd_per_million_iterations: Option<f64>,
    watts: f64,
    joules_per_iteration: f64,
    joules_per_sample: Option<f64>,
}

/// Ranks the GPUs for a recording.
pub fn run(recorded: &Profile, args: &CompareArgs, output: &Output) -> anyhow::Result<()> {
    input::no_host(args.host.as_deref())?;
    let chosen: &RecordingArgs = &args.recording;
    let analysis = profile::analyse(recorded, &chosen.window)?;
    let gpus: Vec<Gpu> = if args.gpus == ["all"] {
        catalog::all()?
    } else {
        args.gpus.iter().map(|name| input::gpu(name)).collect::<anyhow::Result<_>>()?
    };
    let origin = recording::origin(&analysis, chosen, &[])?;
    let here = change::recorded_batch(&analysis);
    let there = match args.batch.as_slice() {
        [] => here,
        [Batch::Fixed(n)] => Some(*n),
        _ => return Err(InputError::new("a recording is carried to one `--batch`").into()),
    };
    let factor = match (here, there) {
        (Some(here), Some(there)) => (here != there).then(|| there as f64 / here as f64),
        (None, Some(_)) => {
            let message =
                "the recording does not tell how many samples it has, so `--batch` cannot be reached";
            return Err(InputError::new(message).hint("`preflop transfer --recorded-batch` takes it").into());
        }
        _ => None,
    };
    let options = Options { change: Change { batch: factor, ..Change::default() }, ..Options::default() };
    let result = transfer::transfer(&analysis, &TimeModel::embedded(), &origin, &gpus, &options);
    let prices = args.prices.catalogue()?;
    let mut rows: Vec<Row> = result
        .targets
        .iter()
        .zip(&gpus)
        .map(|(t, gpu)| row(&analysis, t, gpu, there, &prices, args))
        .collect();
    rows.sort_by(|a, b| candidate(a).compare(&candidate(b), args.rank));
    if let Some(path) = &args.output {
        let text = serde_json::to_vec_pretty(&rows)?;
        destination::write_bytes(path, text)?;
    }
    if output.json { output::print_json(&rows) } else { print(&rows, &result, args, output) }
}

fn row(
    analysis: &Analysis,
    t: &Target,
    gpu: &Gpu,
    batch: Option<u64>,
    prices: &Catalogue,
    args: &CompareArgs,
) -> Row {
    let quote = prices.quote(&gpu.name, args.prices.pricing);
    let seconds = t.iteration_ms / 1e3;
    let samples_per_s = batch.map(|b| b as f64 / seconds);
    let usd = |per_s: f64| quote.as_ref().map(|q| usd_per_million_samples(q.usd_per_hour, per_s));
    let watts = power_of_recording(analysis, t, gpu).watts;
    Row {
        gpu: t.gpu.clone(),
        iteration_ms: t.iteration_ms,
        low_ms: t.low_ms,
        high_ms: t.high_ms,
        gpu_busy_ms: t.gpu_busy_ms,
        host_ms: t.host_ms,
        bound: t.bound,
        speedup: t.speedup,
        batch,
        samples_per_s,
        usd_per_hour: quote.as_ref().map(|q| q.usd_per_hour),
        price_date: quote.as_ref().map(|q| q.date),
        usd_per_million_samples: samples_per_s.and_then(usd),
        usd_per_million_iterations: usd(1.0 / seconds),
        price_source: quote.as_ref().map(|q| q.source.clone()),
        watts,
        joules_per_iteration: watts * seconds,
        joules_per_sample: batch.map(|b| watts * seconds / b as f64),
    }
}

fn candidate(row: &Row) -> Candidate {
    Candidate {
        fits: true,
        seconds_per_sample: row.iteration_ms,
        usd_per_sample: row.usd_per_million_iterations,
        joules_per_sample: row.joules_per_iteration,
    }
}

fn print(
    rows: &[Row],
    result: &transfer::Transfer,
    args: &CompareArgs,
    output: &Output,
) -> anyhow::Result<()> {
    let mut out = output::stdout();
    let by = match args.rank {
        RankBy::Time => "time",
        RankBy::Cost => "cost",
        RankBy::Energy => "energy",
    };
    let title = format!("recorded on {}: {} ms, by {by}", result.origin, three_digits(result.measured_ms));
    writeln!(out, "{}\n", output.bold(&output::wrapped(&title, output.width, "  ")))?;
    let mut table = Grid::new(&[
        ("gpu", Align::Keep, 0),
        ("time", Align::Right, 0),
        ("90 % interval", Align::Right, 1),
        ("bound", Align::Keep, 3),
        ("samples/s", Align::Right, 4),
        ("usd/h", Align::Right, 2),
        ("priced", Align::Keep, 6),
        ("usd/M iterations", Align::Right, 2),
        ("J/iteration", Align::Right, 5),
    ]);
    let or_dash = |x: Option<f64>| x.map_or_else(|| "-".to_string(), three_digits);
    for r in rows {
        table.row(vec![
            r.gpu.clone(),
            format!("{} ms", three_digits(r.iteration_ms)),
            format!("{} - {} ms", three_digits(r.low_ms), three_digits(r.high_ms)),
            r.bound.name().to_string(),
            or_dash(r.samples_per_s),
            or_dash(r.usd_per_hour),
            r.price_date.map_or_else(|| "-".to_string(), |d| d.to_string()),
            or_dash(r.usd_per_million_iterations),
            three_digits(r.joules_per_iteration),
        ]);
    }
    table.write(&mut out, output)?;
    let lacking: Vec<&str> =
        rows.iter().filter(|r| r.usd_per_hour.is_none()).map(|r| r.gpu.as_str()).collect();
    let mut notes = result.notes.clone();
    notes.push(format!("Prices: {}. Energy is an estimate.", price_kind(args.prices.pricing)));
    if !lacking.is_empty() {
        notes.push(format!("No price is known for {}.", lacking.join(", ")));
    }
    for note in notes {
        writeln!(out, "{}", output.dim(&output::wrapped(&note, output.width, "")))?;
    }
    Ok(out.flush()?)
}
