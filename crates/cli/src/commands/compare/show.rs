//! The comparison as a table, a file or a chart.

use super::args::Question;
use super::row::Row;
use super::{price_kind, unpriced};
use crate::commands::tabular::{self, Column, Columns};
use crate::destination;
use crate::output::{self, Align, Output, three_digits};
use comfy_table::{Cell, Color};
use preflop_core::cost::{Limits, RankBy};
use preflop_core::units::{Bytes, Seconds};
use preflop_plot::{Plane, PlanePoint};
use std::io::Write as _;

/// `2.10 usd`, three digits.
pub fn usd(amount: f64) -> String {
    format!("{} usd", three_digits(amount))
}

/// Hours in the unit that reads best.
pub fn hours(hours: f64) -> String {
    match hours {
        h if h < 1.0 => format!("{} min", three_digits(h * 60.0)),
        h if h < 48.0 => format!("{} h", three_digits(h)),
        h => format!("{} d", three_digits(h / 24.0)),
    }
}

/// The limits as the end of a sentence.
pub fn limits(limits: &Limits) -> String {
    let mut parts = Vec::new();
    if let Some(deadline) = limits.deadline {
        parts.push(format!("within {}", hours(deadline.0 / 3600.0)));
    }
    if let Some(budget) = limits.budget_usd {
        parts.push(format!("for {}", usd(budget)));
    }
    parts.join(" ")
}

/// Full advice is printed for at most this many GPUs; the JSON has all.
const ADVISED: usize = 3;

/// The page for people.
pub fn print(question: &Question, rows: &[Row], output: &Output) -> anyhow::Result<()> {
    let mut out = output::stdout();
    writeln!(out, "{}\n", output.bold(&format!("{}, by {}", title(question), order(question.rank))))?;
    let several = question.setups.len() > 1;
    let mut header = vec![("gpu", Align::Keep)];
    if several {
        header.extend([("batch", Align::Right), ("format", Align::Keep)]);
    }
    header.extend([("time", Align::Right), ("samples/s", Align::Right)]);
    let baseline =
        question.baseline.as_ref().filter(|_| rows.iter().any(|r| r.speed_over_baseline.is_some()));
    let over = baseline.map(|b| format!("x {b}"));
    if let Some(over) = &over {
        header.push((over, Align::Right));
    }
    header.extend([("memory", Align::Right), ("fits", Align::Keep), ("max batch", Align::Right)]);
    header.extend([
        ("usd/h", Align::Right),
        ("priced", Align::Keep),
        ("usd/M", Align::Right),
        ("J", Align::Right),
    ]);
    if question.plan.is_some() {
        header.extend([("run", Align::Right), ("run usd", Align::Right)]);
    }
    header.push(("front", Align::Keep));
    let mut table = output.table(&header);
    let or_dash = |x: Option<f64>| x.map_or_else(|| "-".to_string(), three_digits);
    for r in rows {
        let name = if r.chosen { format!("{} <-", r.gpu) } else { r.gpu.clone() };
        let mut cells = vec![Cell::new(name)];
        if several {
            cells.extend([Cell::new(r.batch), Cell::new(r.precision)]);
        }
        cells.push(Cell::new(output::time(Seconds(r.iteration_ms / 1e3))));
        cells.push(Cell::new(three_digits(r.samples_per_s)));
        if over.is_some() {
            cells.push(Cell::new(or_dash(r.speed_over_baseline)));
        }
        cells.push(Cell::new(output::memory(Bytes::from_mib(r.memory_mib))));
        cells.push(if r.fits { Cell::new("yes") } else { output.tinted("NO", Color::Red) });
        cells.push(Cell::new(r.largest_batch.map_or_else(String::new, |b| b.to_string())));
        cells.push(Cell::new(or_dash(r.usd_per_hour)));
        cells.push(Cell::new(r.price_date.map_or_else(|| "-".to_string(), |d| d.to_string())));
        cells.push(Cell::new(or_dash(r.usd_per_million_samples)));
        cells.push(Cell::new(three_digits(r.joules_per_sample)));
        if question.plan.is_some() {
            cells.push(Cell::new(r.run_hours.map_or_else(|| "-".to_string(), hours)));
            cells.push(Cell::new(or_dash(r.run_usd)));
        }
        cells.push(Cell::new(if r.pareto { "*" } else { "" }));
        table.add_row(cells);
    }
    output::write_table(&mut out, &table)?;
    writeln!(out)?;
    for line in answer(question, rows).into_iter().chain(advice(rows)) {
        writeln!(out, "{}", output::wrapped(&line, output.width, "  "))?;
    }
    if let Some(first) = question.lacking.first() {
        let line = match question.lacking.len() {
            1 => format!("Left out: {first}."),
            n => format!("Left out: {n} GPUs that lack the format, such as {first}."),
        };
        writeln!(out, "{}", output::wrapped(&line, output.width, "  "))?;
    }
    writeln!(out, "{}", output.dim(&output::wrapped(&legend(question), output.width, "")))?;
    out.flush()?;
    note_unpriced(question, rows);
    Ok(())
}

/// What is compared: `resnet50 train, batch 64, fp32`.
fn title(question: &Question) -> String {
    let (model, mode) = (question.model.name(), question.mode.name());
    match question.setups.as_slice() {
        [one] => format!("{model} {mode}, batch {}, {}", one.batch, one.precision.name()),
        _ => format!("{model} {mode}, the best batch and format of each GPU"),
    }
}

fn order(by: RankBy) -> &'static str {
    match by {
        RankBy::Time => "time",
        RankBy::Cost => "cost",
        RankBy::Energy => "energy",
    }
}

/// The answer to a question with a deadline or a budget.
fn answer(question: &Question, rows: &[Row]) -> Vec<String> {
    let Some(r) = rows.iter().find(|r| r.chosen) else { return Vec::new() };
    let what = if question.limits.deadline.is_some() { "Cheapest" } else { "Fastest" };
    let time = r.run_hours.map_or_else(String::new, hours);
    let money = r.run_usd.map_or_else(String::new, usd);
    let date = r.price_date.map_or_else(String::new, |d| format!(" (price of {d})"));
    let source = r.price_source.as_deref().unwrap_or("-");
    vec![format!("{what} {}: {} with {time} and {money}{date}, {source}.", limits(&question.limits), r.gpu)]
}

fn advice(rows: &[Row]) -> Vec<String> {
    let lacking: Vec<&Row> = rows.iter().filter(|r| !r.fits).collect();
    let mut lines = Vec::new();
    for r in lacking.iter().take(ADVISED) {
        let needs = format!(
            "{} lacks memory: {} with reserve, it has {}.",
            r.gpu,
            output::memory(Bytes::from_mib(r.needed_mib)),
            output::memory(Bytes::from_mib(r.gpu_memory_mib))
        );
        let helps: Vec<String> = r
            .changes
            .iter()
            .map(|c| {
                let verdict = if c.fits { "fits" } else { "still too large" };
                format!(
                    "{}: {}, {verdict}, {} times the time per sample",
                    c.change,
                    output::memory(Bytes::from_mib(c.memory_mib)),
                    three_digits(c.time_ratio)
                )
            })
            .collect();
        let help = if helps.is_empty() { "Nothing simple helps.".to_string() } else { helps.join("; ") };
        lines.push(format!("{needs} {help}"));
    }
    if lacking.len() > ADVISED {
        lines.push(format!("{} more do not fit; --json says what would help.", lacking.len() - ADVISED));
    }
    lines
}

fn legend(question: &Question) -> String {
    let r = &question.reserve;
    let measured = question.measured.as_ref().map_or_else(String::new, |(gpu, t)| {
        format!(" Times scaled to the measured {} on {gpu}.", output::time(*t))
    });
    format!(
        "usd: {}; usd/M: per million samples; J: joules per sample, an estimate from utilisation; front: nothing else is both as fast and as cheap. fits: peak and fp32 convolution workspace plus {:.0} % plus {:.0} MiB.{measured}",
        price_kind(question.pricing),
        100.0 * r.share,
        r.context.mib()
    )
}

/// Says which GPUs have no price, where one was wanted.
#[allow(clippy::print_stderr)]
fn note_unpriced(question: &Question, rows: &[Row]) {
    if question.rank != RankBy::Cost && question.limits.goal().is_none() {
        return;
    }
    let lacking = unpriced(question, rows.iter().map(|r| r.gpu.as_str()));
    if !lacking.is_empty() {
        eprintln!("note: no {} price for {}", question.pricing.name(), lacking.join(", "));
    }
}

fn maybe(x: Option<f64>) -> String {
    x.map_or_else(String::new, |x| x.to_string())
}

/// CSV or JSON.
pub fn write_file(path: &str, rows: &[Row]) -> anyhow::Result<()> {
    let format = tabular::Format::of_path(path)?;
    let number = |value: fn(&Row) -> f64| Column::Number(rows.iter().map(value).collect());
    let text = |value: fn(&Row) -> String| Column::Text(rows.iter().map(value).collect());
    let columns: Columns = vec![
        ("gpu".into(), text(|r| r.gpu.clone())),
        ("batch".into(), Column::Count(rows.iter().map(|r| r.batch).collect())),
        ("precision".into(), text(|r| r.precision.to_string())),
        ("iteration_ms".into(), number(|r| r.iteration_ms)),
        ("low_ms".into(), number(|r| r.low_ms)),
        ("high_ms".into(), number(|r| r.high_ms)),
        ("samples_per_s".into(), number(|r| r.samples_per_s)),
        ("memory_mib".into(), number(|r| r.memory_mib)),
        ("fits".into(), Column::Flag(rows.iter().map(|r| r.fits).collect())),
        ("largest_batch".into(), text(|r| r.largest_batch.map_or_else(String::new, |b| b.to_string()))),
        ("usd_per_hour".into(), text(|r| maybe(r.usd_per_hour))),
        ("price_date".into(), text(|r| r.price_date.map_or_else(String::new, |d| d.to_string()))),
        ("price_source".into(), text(|r| r.price_source.clone().unwrap_or_default())),
        ("usd_per_million_samples".into(), text(|r| maybe(r.usd_per_million_samples))),
        ("joules_per_sample".into(), number(|r| r.joules_per_sample)),
        ("run_hours".into(), text(|r| maybe(r.run_hours))),
        ("run_usd".into(), text(|r| maybe(r.run_usd))),
        ("bound".into(), text(|r| r.bound.name().to_string())),
        ("pareto".into(), Column::Flag(rows.iter().map(|r| r.pareto).collect())),
        ("evidence".into(), text(|r| r.evidence.to_string())),
    ];
    tabular::write(path, format, &columns, &rows)
}

/// Time against cost of a million samples, the front as a line.
pub fn plot(path: &str, question: &Question, rows: &[Row]) -> anyhow::Result<()> {
    let format = output::chart_format(path)?;
    let points = rows
        .iter()
        .filter(|r| r.fits)
        .filter_map(|r| {
            Some(PlanePoint {
                name: r.gpu.clone(),
                x: 1e6 / r.samples_per_s / 3600.0,
                y: r.usd_per_million_samples?,
                on_front: r.pareto,
            })
        })
        .collect();
    let mut dates: Vec<_> = rows.iter().filter(|r| r.fits).filter_map(|r| r.price_date).collect();
    dates.sort_unstable();
    let dates = match (dates.first(), dates.last()) {
        (Some(first), Some(last)) if first < last => format!(" of {first} to {last}"),
        (Some(only), _) => format!(" of {only}"),
        _ => String::new(),
    };
    let plane = Plane {
        title: title(question),
        x_label: "hours per million samples".into(),
        y_label: format!("usd per million samples ({} prices{dates})", question.pricing.name()),
        points,
    };
    let bytes = plane.draw()?.render(format)?;
    destination::write_bytes(path, bytes)
}
