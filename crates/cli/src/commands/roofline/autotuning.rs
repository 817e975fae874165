//! The heuristic's algorithm against the autotuned one, for each convolution.

use super::job::{JobArgs, describe};
use crate::error::InputError;
use crate::grid::Grid;
use crate::output::{self, Align, Output, three_digits};
use preflop_core::time::TimeModel;
use preflop_core::units::Seconds;
use serde::Serialize;
use std::io::Write as _;

#[derive(Serialize)]
struct Report {
    gpu: String,
    heuristic_ms: f64,
    autotuned_ms: f64,
    autotuned_over_heuristic: f64,
    layers: Vec<Layer>,
}

#[derive(Serialize)]
struct Layer {
    name: String,
    phase: &'static str,
    count: u32,
    heuristic: String,
    heuristic_us: f64,
    autotuned: String,
    autotuned_us: f64,
}

/// Compares and prints.
pub fn run(model: &str, args: &JobArgs, output: &Output) -> anyhow::Result<()> {
    let job = args.run.job(model, None, None)?;
    let time_model = TimeModel::embedded();
    let mut reports = Vec::new();
    for gpu in args.gpus()? {
        let mut layers = Vec::new();
        for step in &job.iteration.steps {
            let call = step.call.in_format(gpu.runs_in(step.call.dtype));
            let ways = time_model.algorithms(&call, &gpu);
            let best = ways.iter().min_by(|a, b| a.time.0.total_cmp(&b.time.0));
            let (Some(first), Some(best)) = (ways.first(), best) else { continue };
            layers.push(Layer {
                name: step.name.clone(),
                phase: step.call.pass.name(),
                count: step.count,
                heuristic: first.name.clone(),
                heuristic_us: first.time.us(),
                autotuned: best.name.clone(),
                autotuned_us: best.time.us(),
            });
        }
        let sum =
            |get: fn(&Layer) -> f64| layers.iter().map(|l| get(l) * f64::from(l.count)).sum::<f64>() / 1e3;
        let (heuristic_ms, autotuned_ms) = (sum(|l| l.heuristic_us), sum(|l| l.autotuned_us));
        if layers.is_empty() {
            let message =
                format!("no choice of a library was learned for the convolutions of {model} on {}", gpu.name);
            return Err(InputError::new(message)
                .hint("before Hopper the fastest algorithm is predicted already; `--gpu h200` has a choice")
                .into());
        }
        layers
            .sort_by(|a, b| (b.heuristic_us - b.autotuned_us).total_cmp(&(a.heuristic_us - a.autotuned_us)));
        let autotuned_over_heuristic = autotuned_ms / heuristic_ms;
        reports.push(Report { gpu: gpu.name, heuristic_ms, autotuned_ms, autotuned_over_heuristic, layers });
    }
    if output.json {
        return match reports.as_slice() {
            [one] => output::print_json(one),
            several => output::print_json(&several),
        };
    }
    for report in &reports {
        print(&describe(&job), report, output)?;
    }
    Ok(())
}

/// Layers that are printed; `--json` has all.
const SHOWN: usize = 20;

fn print(title: &str, report: &Report, output: &Output) -> anyhow::Result<()> {
    let mut out = output::stdout();
    let title = format!(
        "{} on {}: convolutions by the heuristic's algorithm and by the fastest",
        output.bold(title),
        report.gpu
    );
    writeln!(out, "{}\n", output::wrapped(&title, output.width, "  "))?;
    let mut table = Grid::new(&[
        ("layer", Align::Keep, 0),
        ("pass", Align::Keep, 0),
        ("heuristic", Align::Keep, 2),
        ("time", Align::Right, 1),
        ("autotuned", Align::Keep, 2),
        ("time", Align::Right, 1),
        ("gain", Align::Right, 0),
    ]);
    for l in report.layers.iter().take(SHOWN) {
        table.row(vec![
            l.name.clone(),
            l.phase.to_string(),
            l.heuristic.clone(),
            output::time(Seconds::from_us(l.heuristic_us)),
            l.autotuned.clone(),
            output::time(Seconds::from_us(l.autotuned_us)),
            format!("{}x", three_digits(l.heuristic_us / l.autotuned_us)),
        ]);
    }
    table.write(&mut out, output)?;
    let all = format!(
        "all convolutions: {} ms by the heuristic, {} ms autotuned ({}x)",
        three_digits(report.heuristic_ms),
        three_digits(report.autotuned_ms),
        three_digits(report.heuristic_ms / report.autotuned_ms)
    );
    writeln!(out, "\n{}", output::wrapped(&all, output.width, "  "))?;
    let note = "Times are those of the closed forms of up to four kernels that the library is likely to run.";
    writeln!(out, "{}", output.dim(&output::wrapped(note, output.width, "")))?;
    Ok(out.flush()?)
}
