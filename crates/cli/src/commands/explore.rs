//! `preflop explore`: what a network gains from designs that do not exist yet.

use super::explore_time::{self, SearchArgs};
use super::layers;
use super::tabular::{self, Column, Columns};
use crate::destination;
use crate::error::InputError;
use crate::grid::Grid;
use crate::input;
use crate::output::{self, Align, Output, three_digits};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use preflop_core::Dtype;
use preflop_core::delta::networks::NamedLayer;
use preflop_core::delta::{Bottleneck, Machine, Readings};
use preflop_core::explore::{
    AREA_WEIGHTS, AreaWeights, Design, DesignResult, KEYS, Scales, Sweep, Workload, paper_options, pareto,
};
use preflop_plot::{Chart, DesignBar, DesignPoint};
use rayon::prelude::*;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Sweep a GPU's resources and see what a network gains, and what binds it then (DeLTA model; whole networks with `--objective`)
///
/// Networks as in `preflop delta`. Every value of `--vary` is a multiple of the base GPU, except tile, which is
/// the CTA tile's edge. Keys: sm_count, mac_per_sm, reg, smem_size, smem_bw, l1_bw, l2_bw, dram_bw, tile. With `--objective` the
/// networks are whole models (several with commas), the time model predicts them, and keys are sm_count, clock, mac_per_sm, l2, dram_bw;
/// `KEY=0.5..2` lets an optimiser choose.
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop explore resnet152 --base titan-xp --options delta-paper
  preflop explore vgg16 --base v100 --vary sm_count=1,2,4 --vary dram_bw=1,2")]
pub struct ExploreArgs {
    /// Network, or CSV file of layers
    pub(super) network: String,

    /// GPU that the designs scale: a name or the path of a GPU file
    #[arg(long, visible_alias = "gpu", value_name = "GPU")]
    pub(super) base: String,

    /// A named set of designs: delta-paper, the nine options of the DeLTA paper (the default)
    #[arg(long, value_name = "SET", value_parser = ["delta-paper"], conflicts_with = "vary")]
    options: Option<String>,

    /// Values of a resource: KEY=1,2,4 or KEY=FROM:TO:STEP; several keys give all combinations
    #[arg(long, value_name = "KEY=LIST")]
    pub(super) vary: Vec<String>,

    /// Images [default: 256, or the file's]
    #[arg(long, value_parser = input::batch)]
    pub(super) batch: Option<u64>,

    /// Number format of the tensors
    #[arg(long, default_value = "fp32", value_parser = layers::dtype)]
    dtype: Dtype,

    /// Weights of the hardware cost; data/area_weights.toml is the built-in file
    #[arg(long, value_name = "FILE")]
    pub(super) area_weights: Option<String>,

    /// Keep only the designs that no other beats in both speed and cost
    #[arg(long)]
    pub(super) front: bool,

    /// Write all results to a .csv, .json or .parquet file
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<String>,

    /// Draw speed-ups with the share of layers per bottleneck (.svg or .png)
    #[arg(long, value_name = "FILE")]
    pub(super) plot: Option<String>,

    /// Draw speed-up against cost with the Pareto front (.svg or .png)
    #[arg(long, value_name = "FILE")]
    pub(super) plot_front: Option<String>,

    #[command(flatten)]
    pub(super) search: SearchArgs,
}

/// Most rows of the table; files and JSON have all.
const MAX_TABLE_ROWS: usize = 40;
/// Most bars that one can still read.
const MAX_BARS: usize = 48;
/// Designs between two looks at the clock.
const CHUNK: usize = 4096;
/// A weights file is a few lines.
const MAX_WEIGHTS_FILE: u64 = 1 << 16;

#[derive(Serialize)]
struct Report<'a> {
    base: &'a str,
    network: &'a str,
    base_time_ms: f64,
    layers: usize,
    designs: Vec<DesignRow<'a>>,
}

#[derive(Serialize)]
struct DesignRow<'a> {
    name: &'a str,
    scales: Scales,
    time_ms: f64,
    speedup: f64,
    bottlenecks: BTreeMap<&'static str, u64>,
    cost: f64,
    on_front: bool,
}

/// Evaluates the designs, prints and writes them.
pub fn run(args: &ExploreArgs, output: &Output) -> anyhow::Result<()> {
    if args.search.is_asked() {
        return explore_time::run(args, output);
    }
    let gpu = input::gpu(&args.base)?;
    let weights = weights(args.area_weights.as_deref())?;
    let file_format = args.output.as_deref().map(tabular::Format::of_path).transpose()?;
    for path in [&args.plot, &args.plot_front].into_iter().flatten() {
        output::chart_format(path)?;
    }
    let listed = layers::read(&args.network, args.batch, args.dtype, false)?;
    if listed.iter().any(|l| l.tile.is_some()) {
        return Err(InputError::new(format!("{}: `explore` chooses tiles itself", args.network))
            .hint("leave out the column `tile`")
            .into());
    }
    let layers: Vec<NamedLayer> = listed.into_iter().map(|l| l.named).collect();
    let designs = designs(args)?;
    let machine = Machine::of(&gpu, args.dtype);
    let edges: std::collections::BTreeSet<u32> = designs.iter().map(|d| d.scales.tile).collect();
    let workload = Workload::new(&layers, &machine, edges, Readings::default())?;

    let results = evaluate(&workload, &designs)?;
    let costs: Vec<f64> = results.iter().map(|r| weights.cost(&r.design.scales)).collect();
    let points: Vec<(f64, f64)> = results.iter().zip(&costs).map(|(r, cost)| (r.speedup, *cost)).collect();
    let on_front = pareto(&points);
    let rows: Vec<DesignRow> = results
        .iter()
        .zip(costs.iter().zip(&on_front))
        .filter(|(_, (_, on_front))| !args.front || **on_front)
        .map(|(r, (cost, on_front))| DesignRow {
            name: &r.design.name,
            scales: r.design.scales,
            time_ms: r.time.ms(),
            speedup: r.speedup,
            bottlenecks: Bottleneck::ALL
                .iter()
                .map(|b| (b.name(), r.layers(*b)))
                .filter(|(_, n)| *n > 0)
                .collect(),
            cost: *cost,
            on_front: *on_front,
        })
        .collect();
    let report = Report {
        base: &gpu.name,
        network: &args.network,
        base_time_ms: workload.base_time().ms(),
        layers: layers.len(),
        designs: rows,
    };

    if let Some((path, format)) = args.output.as_deref().zip(file_format) {
        tabular::write(path, format, &columns(&report), &report)?;
    }
    if let Some(path) = &args.plot {
        draw(path, &bars(&report, &workload)?)?;
    }
    if let Some(path) = &args.plot_front {
        let dots: Vec<DesignPoint> = points
            .iter()
            .zip(&on_front)
            .map(|(&(speedup, cost), &on_front)| DesignPoint { cost, speedup, on_front })
            .collect();
        let title = format!("{} on designs from {}", report.network, report.base);
        draw(path, &preflop_plot::pareto(&title, &dots)?)?;
    }
    if output.json { output::print_json(&report) } else { print(&report, args, output) }
}

pub(super) fn weights(path: Option<&str>) -> anyhow::Result<AreaWeights> {
    let Some(path) = path else { return Ok(AreaWeights::parse(AREA_WEIGHTS, "data/area_weights.toml")?) };
    let bytes = input::read_limited(path, MAX_WEIGHTS_FILE, "file of area weights")?;
    let text = String::from_utf8(bytes).map_err(|_| InputError::new(format!("{path}: not a text file")))?;
    Ok(AreaWeights::parse(&text, path)?)
}

fn designs(args: &ExploreArgs) -> anyhow::Result<Vec<Design>> {
    if args.vary.is_empty() {
        return Ok(paper_options());
    }
    let mut sweep = Sweep::default();
    for text in &args.vary {
        sweep.vary(text)?;
    }
    Ok(sweep.designs()?)
}

/// All designs on all cores; a bar appears on a terminal when it takes longer than a second.
fn evaluate(workload: &Workload, designs: &[Design]) -> anyhow::Result<Vec<DesignResult>> {
    let start = Instant::now();
    let bar = ProgressBar::with_draw_target(Some(designs.len() as u64), ProgressDrawTarget::hidden());
    bar.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} designs, {eta} left")?);
    let mut results = Vec::with_capacity(designs.len());
    for chunk in designs.chunks(CHUNK) {
        let done: Result<Vec<_>, _> = chunk.par_iter().map(|d| workload.evaluate(d)).collect();
        results.extend(done?);
        if bar.is_hidden() && start.elapsed() > Duration::from_secs(1) && std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        bar.set_position(results.len() as u64);
    }
    bar.finish_and_clear();
    Ok(results)
}

fn columns(report: &Report) -> Columns {
    let rows = &report.designs;
    let numbers = |get: &dyn Fn(&DesignRow) -> f64| Column::Number(rows.iter().map(get).collect());
    let mut out: Columns =
        vec![("name".into(), Column::Text(rows.iter().map(|r| r.name.to_string()).collect()))];
    for (i, key) in KEYS.iter().enumerate() {
        out.push(((*key).to_string(), numbers(&|r| r.scales.values()[i])));
    }
    out.push(("time_ms".into(), numbers(&|r| r.time_ms)));
    out.push(("speedup".into(), numbers(&|r| r.speedup)));
    out.push(("cost".into(), numbers(&|r| r.cost)));
    out.push(("on_front".into(), Column::Flag(rows.iter().map(|r| r.on_front).collect())));
    for bottleneck in Bottleneck::ALL {
        let count = |r: &DesignRow| r.bottlenecks.get(bottleneck.name()).copied().unwrap_or(0);
        let name = format!("layers_{}", bottleneck.name().to_lowercase());
        out.push((name, Column::Count(rows.iter().map(count).collect())));
    }
    out
}

/// Bars of the base and of the designs; where these are too many, of the front, thinned evenly.
fn bars(report: &Report, workload: &Workload) -> anyhow::Result<Chart> {
    let base = workload.evaluate(&Design { name: "base".to_string(), scales: Scales::default() })?;
    let shares = |counts: [u64; 6]| counts.map(|n| n as f64 / report.layers.max(1) as f64);
    // The base has a bar of its own.
    let mut chosen: Vec<&DesignRow> =
        report.designs.iter().filter(|r| r.scales != Scales::default()).collect();
    let mut which = "designs";
    if chosen.len() > MAX_BARS {
        chosen.retain(|r| r.on_front);
        chosen.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        which = "designs on the Pareto front, cheapest first";
        let step = chosen.len().div_ceil(MAX_BARS);
        chosen = chosen.into_iter().step_by(step.max(1)).collect();
    }
    let mut bars = vec![DesignBar { name: "base".into(), speedup: 1.0, shares: shares(base.bottlenecks) }];
    bars.extend(chosen.iter().map(|r| DesignBar {
        name: label(r.name, |(_, value)| value),
        speedup: r.speedup,
        shares: shares(Bottleneck::ALL.map(|b| r.bottlenecks.get(b.name()).copied().unwrap_or(0))),
    }));
    let title = format!("{}: speed-up over {}", report.network, report.base);
    let keys = report.designs.first().map(|r| label(r.name, |(key, _)| key)).filter(|keys| !keys.is_empty());
    let x_label = keys.map_or_else(|| which.to_string(), |keys| format!("{which}: {keys}"));
    Ok(preflop_plot::speedups(&title, &x_label, &bars)?)
}

/// One side of each `key=value` in a sweep's name; a name without them as it is (its keys are none).
fn label<'a>(name: &'a str, side: impl Fn((&'a str, &'a str)) -> &'a str) -> String {
    let parts: Vec<&str> =
        name.split(' ').map(|part| part.split_once('=').unwrap_or(("", part))).map(side).collect();
    parts.join("/")
}

pub(super) fn draw(path: &str, chart: &Chart) -> anyhow::Result<()> {
    let bytes = chart.render(output::chart_format(path)?)?;
    destination::write_bytes(path, bytes)
}

fn print(report: &Report, args: &ExploreArgs, output: &Output) -> anyhow::Result<()> {
    let mut out = output::stdout();
    let title = format!(
        "{} on {}: {} in {}; {}",
        output.bold(report.network),
        report.base,
        output::milliseconds(report.base_time_ms),
        output::counted(report.layers, "layer", "layers"),
        output::counted(report.designs.len(), "design", "designs")
    );
    writeln!(out, "{}\n", output::wrapped(&title, output.width, "  "))?;
    let mut table = Grid::new(&[
        ("design", Align::Left, 0),
        ("time", Align::Right, 1),
        ("speed-up", Align::Right, 0),
        ("cost", Align::Right, 2),
        ("front", Align::Keep, 3),
        ("layers bound by", Align::Left, 1),
    ]);
    let mut rows: Vec<&DesignRow> = report.designs.iter().collect();
    let long = rows.len() > MAX_TABLE_ROWS;
    if long {
        rows.sort_by(|a, b| b.on_front.cmp(&a.on_front).then(b.speedup.total_cmp(&a.speedup)));
        rows.truncate(MAX_TABLE_ROWS);
    }
    for row in rows {
        let bound: Vec<String> = row.bottlenecks.iter().map(|(name, n)| format!("{name} {n}")).collect();
        table.row([
            described(row),
            output::si(row.time_ms / 1e3, "s"),
            format!("{}x", three_digits(row.speedup)),
            format!("{}x", three_digits(row.cost)),
            if row.on_front { "yes" } else { "" }.to_string(),
            bound.join(", "),
        ]);
    }
    table.write(&mut out, output)?;
    writeln!(out)?;
    if long {
        let text = format!(
            "{MAX_TABLE_ROWS} of {} designs, the front first; --json and -o give all.",
            report.designs.len()
        );
        writeln!(out, "{text}")?;
    }
    let weights = args.area_weights.as_deref().unwrap_or("data/area_weights.toml");
    let note = format!(
        "Cost: multiple of the base by the weights of {weights}. front: no other design is both faster and cheaper."
    );
    writeln!(out, "{}", output.dim(&output::wrapped(&note, output.width, "")))?;
    Ok(out.flush()?)
}

/// A sweep's name says what it is; a named option needs its changes said.
fn described(row: &DesignRow) -> String {
    if row.name.contains('=') {
        return row.name.to_string();
    }
    let base = Scales::default().values();
    let changes: Vec<String> = KEYS
        .iter()
        .zip(row.scales.values().iter().zip(base))
        .filter(|(_, (value, base))| **value != *base)
        .map(|(key, (value, _))| format!("{key}={value}"))
        .collect();
    format!("{}: {}", row.name, changes.join(" "))
}
