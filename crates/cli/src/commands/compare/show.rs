//! The comparison as a table, a file or a chart.

use super::args::Question;
use super::row::Row;
use super::{price_kind, unpriced};
use crate::commands::tabular::{self, Column, Columns};
use crate::destination;
use crate::grid::Grid;
use crate::output::{self, Align, Color, Output, three_digits};
use crate::report::{mode_words, optimizer_words};
use crate::room;
use preflop_core::cost::{Limits, RankBy};
use preflop_core::model::{OptimizerChoice, Precision};
use preflop_core::units::{Bytes, Seconds};
use preflop_plot::{Plane, PlanePoint};
use std::io::Write;

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

/// The page for people: `rows` as shown, `sentences` the answer at its end.
pub fn print(
    question: &Question,
    rows: &[Row],
    sentences: Vec<String>,
    output: &Output,
) -> anyhow::Result<()> {
    let mut out = output::stdout();
    let title = format!("{}, by {}", title(question), order(question.rank));
    writeln!(out, "{}\n", output.bold(&output::wrapped(&title, output.width, "  ")))?;
    let left_out = columns(question, rows).write(&mut out, output)?;
    writeln!(out)?;
    for line in answer(question, rows).into_iter().chain(sentences) {
        writeln!(out, "{}", output::wrapped(&line, output.width, "  "))?;
    }
    write_misfits(rows, &mut out, output)?;
    if let Some(first) = question.lacking.first() {
        let line = match question.lacking.len() {
            1 => format!("Left out: {first}."),
            n => format!("Left out: {n} GPUs that lack the format ({first})."),
        };
        writeln!(out, "{}", output::wrapped(&line, output.width, "  "))?;
    }
    writeln!(out, "{}", output.dim(&output::wrapped(&legend(question, &left_out), output.width, "")))?;
    out.flush()?;
    note_unpriced(question, rows);
    Ok(())
}

/// The table, column by column, with the rank by which each is left out of a narrow one.
fn columns(question: &Question, rows: &[Row]) -> Grid<'static> {
    let of = |cell: &dyn Fn(&Row) -> String| rows.iter().map(cell).collect::<Vec<_>>();
    let or_dash = |x: Option<f64>| x.map_or_else(|| "-".to_string(), three_digits);
    let ms = |x: f64| output::time(Seconds(x / 1e3));
    let mut columns = Grid::default();
    columns.add(
        "gpu",
        Align::Keep,
        0,
        of(&|r| if r.chosen { format!("{} <-", r.gpu) } else { r.gpu.clone() }),
    );
    if question.setups.len() > 1 {
        columns.add("batch", Align::Right, 1, of(&|r| r.batch.to_string()));
        columns.add("format", Align::Keep, 1, of(&|r| r.precision.to_string()));
    }
    columns.add("time", Align::Right, 0, of(&|r| ms(r.iteration_ms)));
    columns.add("90 % interval", Align::Right, 4, of(&|r| format!("{} to {}", ms(r.low_ms), ms(r.high_ms))));
    columns.add("samples/s", Align::Right, 3, of(&|r| three_digits(r.samples_per_s)));
    if rows.iter().any(|r| r.speed_over_baseline.is_some()) {
        columns.add("speed", Align::Right, 1, of(&|r| or_dash(r.speed_over_baseline)));
    }
    columns.add("memory", Align::Right, 5, of(&|r| output::memory(Bytes::from_mib(r.memory_mib))));
    if rows.iter().any(|r| !r.fits) {
        columns.add("fits", Align::Keep, 0, of(&|r| if r.fits { "yes" } else { "NO" }.to_string()));
        columns.tint(|text| (text == "NO").then_some(Color::Red));
    }
    columns.add(
        "max batch",
        Align::Right,
        7,
        of(&|r| r.largest_batch.map_or_else(String::new, |b| b.to_string())),
    );
    columns.add("usd/h", Align::Right, 4, of(&|r| or_dash(r.usd_per_hour)));
    columns.add(
        "priced",
        Align::Keep,
        9,
        of(&|r| r.price_date.map_or_else(|| "-".to_string(), |d| d.to_string())),
    );
    columns.add("usd/M", Align::Right, 2, of(&|r| or_dash(r.usd_per_million_samples)));
    columns.add("J", Align::Right, 8, of(&|r| three_digits(r.joules_per_sample)));
    if question.plan.is_some() {
        columns.add("run", Align::Right, 1, of(&|r| r.run_hours.map_or_else(|| "-".to_string(), hours)));
        columns.add("run usd", Align::Right, 1, of(&|r| or_dash(r.run_usd)));
    }
    columns.add("front", Align::Keep, 6, of(&|r| if r.pareto { "*" } else { "" }.to_string()));
    columns.add("evidence", Align::Keep, 3, of(&|r| short(r.evidence).to_string()));
    columns
}

/// What a time rests on, in a word.
fn short(evidence: &str) -> &str {
    match evidence {
        "generation measured" => "generation",
        "never measured" => "none",
        other => other,
    }
}

/// What is compared: `resnet50 training, batch 64, fp32, sgd (foreach)`.
fn title(question: &Question) -> String {
    let (model, mode) = (question.model.name(), mode_words(question.mode.name()));
    let step = question.setups.first().and_then(|setup| {
        let graph = question.graph(setup).ok()?;
        graph.steps_with(&question.options(setup))
    });
    let optimizer =
        optimizer_words(step.map(|o| o.rule.name()), step.and_then(OptimizerChoice::implementation_name));
    match question.setups.as_slice() {
        [one] => {
            let formats = match one.precision {
                Precision::Pytorch => "PyTorch's default formats (TF32 convolutions where the GPU has it)",
                named => named.name(),
            };
            format!("{model} {mode}, batch {}, {formats}{optimizer}", one.batch)
        }
        _ => format!("{model} {mode}, the best batch and format of each GPU{optimizer}"),
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

/// What would make those fit that do not, in full for a few.
fn write_misfits(rows: &[Row], out: &mut impl Write, output: &Output) -> std::io::Result<()> {
    let lacking: Vec<&Row> = rows.iter().filter(|r| !r.fits).collect();
    for r in lacking.iter().take(ADVISED) {
        let needs = format!(
            "{} lacks memory: it needs {} with reserve and has {}",
            r.gpu,
            output::memory(Bytes::from_mib(r.needed_mib)),
            output::memory(Bytes::from_mib(r.gpu_memory_mib))
        );
        writeln!(out, "{}", output.red(&output::wrapped(&needs, output.width, "  ")))?;
        room::write(&r.changes, out, output)?;
        writeln!(out)?;
    }
    if lacking.len() > ADVISED {
        let more = lacking.len() - ADVISED;
        let verb = if more == 1 { "does" } else { "do" };
        let line = format!("{more} more {verb} not fit; --json says what would help.");
        writeln!(out, "{}", output::wrapped(&line, output.width, "  "))?;
    }
    Ok(())
}

fn legend(question: &Question, left_out: &[&str]) -> String {
    let r = &question.reserve;
    let narrow = if left_out.is_empty() {
        String::new()
    } else {
        format!(" Left out for want of width: {}.", left_out.join(", "))
    };
    // What was left out needs no explanation.
    let mut columns = vec![
        ("usd/M", format!("usd: {}", price_kind(question.pricing))),
        ("usd/M", "usd/M: per million samples".to_string()),
        ("J", "J: joules per sample, an estimate from utilisation".to_string()),
    ];
    columns.extend(question.baseline.as_ref().map(|b| ("speed", format!("speed: over {b}"))));
    columns.push(("front", "front: nothing else is both as fast and as cheap".to_string()));
    columns.push((
        "evidence",
        "evidence: was this GPU measured, another of its generation, or none".to_string(),
    ));
    let shown: Vec<String> =
        columns.into_iter().filter(|(title, _)| !left_out.contains(title)).map(|(_, text)| text).collect();
    let measured = question.measured.as_ref().map_or_else(String::new, |(gpu, t)| {
        format!(" Times scaled to the measured {} on {gpu}.", output::time(*t))
    });
    format!(
        "{}. fits: peak and fp32 convolution workspace plus {:.0} % plus {:.0} MiB.{measured}{narrow}",
        shown.join("; "),
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
