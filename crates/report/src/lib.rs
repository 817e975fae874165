//! The report: what one iteration costs on some GPUs, what binds it and what would help.
//!
//! Everything is data; `markdown` writes it as text, and a page shows the same fields.

mod accuracy;
mod advice;
pub mod advise;
mod markdown;
mod recording;
mod summary;

pub use accuracy::FamilyError;
pub use advice::{Change, changes};
pub use markdown::markdown;
pub use recording::{Recorded, power_of_recording, report_of_recording};
pub use summary::GpuSummary;

use preflop_cost::Quote;
use preflop_gpu::Gpu;
use preflop_graph::Iteration;
use preflop_ops::{Family, Op};
use preflop_roofline::{By, Entry, Machine, Row, RowData, Rows, entries_of_iteration};
use preflop_schedule::IterationPrediction;
use preflop_time::{Bound, Nearness, TimeModel};
use preflop_units::Seconds;
use preflop_units::format::{milliseconds as ms, three_digits as three};
use serde::Serialize;
use std::collections::BTreeMap;

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// `resnet50, batch 64, amp, train`.
    pub title: &'a str,
    /// The command that makes this report.
    pub command: &'a str,
    /// Version of the tool.
    pub version: &'a str,
    /// Price of an hour of each GPU, where it is known.
    pub quotes: &'a [Option<Quote>],
}

impl Question<'_> {
    fn quote(&self, place: usize) -> Option<&Quote> {
        self.quotes.get(place).and_then(Option::as_ref)
    }
}

/// A part of the time.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Part {
    pub name: String,
    pub time_ms: f64,
    pub share: f64,
    pub class: &'static str,
    pub slowdown: Option<f64>,
}

/// An operator that has no model.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Unmodelled {
    pub name: String,
    pub calls: f64,
    pub share: f64,
}

/// A report. Parts, layers and advice are of the first GPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Report {
    pub headline: String,
    pub command: String,
    pub version: String,
    /// Times are of a recording, not predicted.
    pub measured: bool,
    pub gpus: Vec<GpuSummary>,
    pub binds: Vec<String>,
    /// What would make it fit the first GPU, where it does not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub to_fit: Vec<preflop_cost::room::Change>,
    pub helps: Vec<Change>,
    pub families: Vec<Part>,
    pub modules: Vec<Part>,
    pub phases: Vec<Part>,
    /// What a row of `layers` is: `layer`, or `operator` where no layers were recorded.
    pub rows_by: &'static str,
    pub layers: Vec<RowData>,
    pub unmodelled: Vec<Unmodelled>,
    pub assumptions: Vec<String>,
    pub accuracy: Vec<String>,
    /// Errors of the fit by family, the largest share of the time first.
    pub family_errors: Vec<FamilyError>,
}

/// Modules shown; the rest is one more part.
const MODULES: usize = 14;
/// A module with more of the time than this is looked into.
const DOMINANT: f64 = 0.4;

/// Builds a report from one iteration, its predictions on some GPUs and the changes that were tried on the first.
/// `None` if there is no GPU.
pub fn report(
    question: &Question,
    iteration: &Iteration,
    answers: &[(&Gpu, &IterationPrediction)],
    helps: Vec<Change>,
) -> Option<Report> {
    let &(gpu, prediction) = answers.first()?;
    let machine = Machine::of(gpu);
    let entries = entries_of_iteration(iteration, prediction, gpu);
    let families = Rows::new(&entries, By::Family, &machine);
    let gpus: Vec<GpuSummary> = answers
        .iter()
        .enumerate()
        .map(|(i, (g, p))| GpuSummary::new(iteration, p, g, question.quote(i)))
        .collect();
    Some(Report {
        headline: headline(question, &gpus[0]),
        command: question.command.to_string(),
        version: question.version.to_string(),
        measured: false,
        binds: binds(prediction, &families),
        to_fit: Vec::new(),
        helps,
        families: families.rows.iter().map(part).collect(),
        modules: modules(&entries, &machine),
        phases: phases(&entries, &machine),
        rows_by: "layer",
        layers: Rows::new(&entries, By::Layer, &machine)
            .rows
            .iter()
            .map(|r| RowData::from(r).rounded())
            .collect(),
        unmodelled: unmodelled(iteration, prediction),
        assumptions: assumptions(gpu),
        accuracy: accuracy_lines(prediction, gpu),
        family_errors: accuracy::family_errors(&entries, gpu),
        gpus,
    })
}

fn headline(question: &Question, gpu: &GpuSummary) -> String {
    format!(
        "{} takes {} per iteration on {} ({} to {} with 90 % certainty), {} samples per second, and {}.",
        question.title,
        ms(gpu.iteration_ms),
        gpu.title,
        ms(gpu.low_ms),
        ms(gpu.high_ms),
        gpu.samples_per_s.map_or_else(String::new, three),
        if gpu.fits == Some(true) {
            let gib = three(gpu.memory_mib.unwrap_or(0.0) / 1024.0);
            format!("fits: {gib} of {} GiB", three(gpu.gpu_memory_mib / 1024.0))
        } else {
            format!(
                "does not fit: {} GiB are needed with reserve and there are {}",
                three(gpu.needed_mib.unwrap_or(0.0) / 1024.0),
                three(gpu.gpu_memory_mib / 1024.0)
            )
        }
    )
}

fn part(row: &Row) -> Part {
    Part {
        name: row.name.clone(),
        time_ms: row.work.time.ms(),
        share: row.share,
        class: row.class_name(),
        slowdown: row.bounds.slowdown(row.work.time),
    }
}

fn modules(entries: &[Entry], machine: &Machine) -> Vec<Part> {
    let mut rows = Rows::new(entries, By::Module, machine).rows;
    if rows.first().is_some_and(|r| r.share > DOMINANT) {
        // `transformer.h` says little where nearly all layers lie in it: one name deeper.
        let deeper = |e: &Entry| Entry {
            layer: e.layer.split('.').take(3).collect::<Vec<_>>().join("."),
            ..e.clone()
        };
        rows = Rows::new(&entries.iter().map(deeper).collect::<Vec<_>>(), By::Layer, machine).rows;
    }
    let mut parts: Vec<Part> = rows.iter().take(MODULES).map(part).collect();
    let rest = &rows[parts.len()..];
    if !rest.is_empty() {
        let time: Seconds = rest.iter().map(|r| r.work.time).sum();
        parts.push(Part {
            name: format!("{} more", rest.len()),
            time_ms: time.ms(),
            share: rest.iter().map(|r| r.share).sum(),
            class: "mixed",
            slowdown: None,
        });
    }
    parts
}

fn phases(entries: &[Entry], machine: &Machine) -> Vec<Part> {
    let by_phase: Vec<Entry> =
        entries.iter().map(|e| Entry { family: e.phase.clone(), ..e.clone() }).collect();
    Rows::new(&by_phase, By::Family, machine).rows.iter().map(part).collect()
}

fn binds(prediction: &IterationPrediction, families: &Rows) -> Vec<String> {
    let mut lines = Vec::new();
    let (gpu, host) = (prediction.gpu_wall, prediction.host);
    lines.push(if prediction.bound == Bound::Host {
        format!(
            "The host: it needs {} to launch {:.0} kernels, while the GPU works only {}.",
            ms(host.ms()),
            prediction.launches,
            ms(gpu.ms())
        )
    } else {
        format!(
            "The GPU: it works {}, while the host needs {} to launch {:.0} kernels.",
            ms(gpu.ms()),
            ms(host.ms()),
            prediction.launches
        )
    });
    lines.extend(binds_lines(families));
    lines
}

/// What the bounds of the operators say, whether times are predicted or measured.
fn binds_lines(families: &Rows) -> Vec<String> {
    let mut lines = Vec::new();
    let [compute, memory, overhead] = families.summary.class_shares.map(|s| 100.0 * s);
    lines.push(format!(
        "On the GPU, by the largest of the three bounds of each operator: compute {compute:.0} %, memory {memory:.0} %, \
         launch overhead {overhead:.0} % of the time."
    ));
    if let Some(largest) = families.rows.first() {
        // Of a recording, part of a family's work may be unknown.
        let slowdown = largest.bounds.slowdown(largest.work.time);
        let roof =
            slowdown.map_or_else(String::new, |s| format!("; it takes {}x the time at its roof", three(s)));
        lines.push(format!(
            "The largest family is {} with {:.0} % of the GPU's time{roof}.",
            largest.name,
            100.0 * largest.share
        ));
    }
    let zero = families.summary.zero_flop;
    if zero.launch_share > 0.0 {
        lines.push(format!(
            "Work without FLOPs (casts, copies, look-ups) is {:.0} % of the launches and {:.0} % of the time.",
            100.0 * zero.launch_share,
            100.0 * zero.time_share
        ));
    }
    lines
}

fn unmodelled(iteration: &Iteration, prediction: &IterationPrediction) -> Vec<Unmodelled> {
    let mut found: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for p in &prediction.steps {
        let Some(step) = iteration.steps.get(p.step) else { continue };
        if step.call.family() == Family::Unmodelled {
            let name = match &step.call.op {
                Op::Unmodelled { name, .. } => name.as_str(),
                _ => step.call.name(),
            };
            let sums = found.entry(name).or_default();
            sums.0 += p.count;
            sums.1 += p.one.time.0 * p.count;
        }
    }
    let total = prediction.gpu_wall.0.max(f64::MIN_POSITIVE);
    found
        .into_iter()
        .map(|(name, (calls, time))| Unmodelled { name: name.to_string(), calls, share: time / total })
        .collect()
}

fn assumptions(gpu: &Gpu) -> Vec<String> {
    let mut lines = vec![
        "One eager PyTorch iteration in a loop, inputs already on the GPU; no data loading, no compilation.".to_string(),
        "DRAM bytes are compulsory traffic: every input read once, every output written once. An operator whose data \
         stay in the L2 can so lie above the DRAM roof; it is flagged."
            .to_string(),
        "Memory is what PyTorch's allocator would show at its peak. A run fits if the card has 12 % and 640 MiB more \
         (fragmentation, errors, the CUDA context), and room for the workspace of fp32 convolutions."
            .to_string(),
        "The host is the one whose constants ship with the tool; a slower CPU makes host-bound work slower.".to_string(),
    ];
    lines.extend(
        gpu.assumptions.iter().take(12).map(|a| format!("{}: {} was assumed: {}", gpu.name, a.key, a.why)),
    );
    lines
}

fn accuracy_lines(prediction: &IterationPrediction, gpu: &Gpu) -> Vec<String> {
    let relative = |t: Seconds| 100.0 * (t / prediction.time - 1.0);
    let mut lines = vec![format!(
        "The interval of the whole is {:+.0} % to {:+.0} %: errors of one family are taken as partly common, those of \
         different families as independent.",
        relative(prediction.low),
        relative(prediction.high)
    )];
    let model = TimeModel::embedded();
    let measured = model.evidence(gpu);
    if measured.nearness != Nearness::Here {
        lines.push(format!(
            "Most measurements are of {}. {} was not measured for this project ({}): expect more than the errors \
             below; the interval is wider for it.",
            measured.reference.title,
            gpu.name,
            measured.nearness.name()
        ));
    }
    lines.push("`preflop validate` compares predictions with measurements.".to_string());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_cost::Date;
    use preflop_gpu::catalog;
    use preflop_graph::{LowerOptions, Mode, Precision, zoo};
    use preflop_lower::lower;
    use preflop_schedule::Schedule as _;
    use preflop_time::TimeModel;

    fn example() -> Report {
        let model = TimeModel::embedded();
        let graph = zoo::build("resnet50", Some(32), None).unwrap();
        let options = LowerOptions { mode: Mode::Train, precision: Precision::Fp32, optimizer: None };
        let iteration = lower(&graph, &options).unwrap();
        let gpus = ["v100", "h200"].map(|n| catalog::find(n).unwrap());
        let predictions = gpus.each_ref().map(|g| model.predict_iteration(&iteration, g));
        let quote = Quote {
            usd_per_hour: 3.6,
            date: Date::parse("2026-08-22").unwrap(),
            source: "a test".to_string(),
            host_included: true,
        };
        let quotes = [Some(quote), None];
        let question = Question {
            title: "resnet50, batch 32",
            command: "preflop report",
            version: "1",
            quotes: &quotes,
        };
        let answers: Vec<_> = gpus.iter().zip(&predictions).collect();
        let helps = changes(&model, &graph, &options, preflop_graph::Run::Eager, &iteration, &gpus[0]);
        report(&question, &iteration, &answers, helps).unwrap()
    }

    #[test]
    fn everything_is_there_and_adds_up() {
        let r = example();
        assert_eq!(r.gpus.len(), 2);
        for parts in [&r.families, &r.modules, &r.phases] {
            let share: f64 = parts.iter().map(|p| p.share).sum();
            assert!((share - 1.0).abs() < 1e-6, "{share}");
        }
        // 3.6 $/h = 0.001 $/s; over samples/s, times 1e6
        let expected = 1000.0 / r.gpus[0].samples_per_s.unwrap();
        assert!((r.gpus[0].usd_per_million_samples.unwrap() / expected - 1.0).abs() < 1e-9);
        // Never a price without its date, never dollars without a price.
        assert_eq!(r.gpus[0].price_date.unwrap().to_string(), "2026-08-22");
        assert_eq!((r.gpus[1].usd_per_hour, r.gpus[1].usd_per_million_samples), (None, None));
        // The families that take the time have their errors.
        assert_eq!(r.family_errors[0].family, "plain/conv");
        assert!(r.family_errors.iter().map(|f| f.share).sum::<f64>() > 0.9);
        assert!(r.family_errors.iter().all(|f| f.rows > 100 && f.mean_percent > 0.0));
        assert!(r.layers.len() > 100 && r.unmodelled.is_empty());
        let text = markdown(&r);
        for heading in
            ["# ", "## What binds", "## What would help", "## Time by family", "## Layers", "## Reproduce"]
        {
            assert!(text.contains(heading), "{heading}");
        }
    }

    #[test]
    fn a_v100_gains_from_tensor_cores_or_bandwidth() {
        let r = example();
        assert!(!r.helps.is_empty());
        assert!(r.helps.iter().all(|h| h.iteration_ms > 0.0 && h.speedup > 0.0));
        assert!(r.helps.windows(2).all(|w| w[0].speedup >= w[1].speedup));
    }
}
