//! `preflop roofline`: how far from the roofs each operator is, as a table, as data and as charts.

mod autotuning;
mod charts;
pub mod job;
pub mod page;
pub mod recording;
mod study;
pub mod view;

use crate::error::InputError;
use crate::grid::Grid;
use crate::output::{self, Align, Output, three_digits};
use clap::Args;
use job::JobArgs;
use preflop_core::roofline::{By, COLUMNS, Level, MachineData, Row, RowData, Sources};
use preflop_core::units::{Bytes, Flops, Seconds};
use recording::RecordingArgs;
use serde::Serialize;
use std::io::Write as _;
use view::{Sweep, View};

/// Time-based and hierarchical Roofline of a model or a recording: FLOPs, bytes at every level, launches, bounds, slowdown
///
/// Charts: `-o FILE.svg`, `.png` (classic Roofline by default, see --chart) or `.html` (interactive, one file).
/// docs/roofline.md explains how to read them.
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop roofline resnet50 --gpu h200
  preflop roofline resnet50 --gpu h200 -o roofline.svg
  preflop roofline step.json.gz -o page.html             # a recording")]
pub struct RooflineArgs {
    /// Model name (see `preflop models`), a captured graph in JSON, or a recording (PyTorch profiler JSON, Nsight
    /// Systems SQLite, Nsight Compute CSV; plain, .gz or .zst)
    #[arg(required_unless_present = "study", value_name = "MODEL|PROFILE")]
    model: Option<String>,

    #[command(flatten)]
    job: JobArgs,

    #[command(flatten)]
    recording: RecordingArgs,

    /// One row per call, operator, layer, module, family or model [default: operator; model with --sweep]
    #[arg(long, value_name = "WHAT", value_parser = by)]
    by: Option<By>,

    /// Values of a parameter, drawn as a trajectory: batch=1,2,4 or seq=128,256
    #[arg(long, value_name = "KEY=LIST", value_parser = view::sweep)]
    sweep: Option<Sweep>,

    /// Chart to draw first: roofline (classic), plane (time plane) or hierarchical (all memory levels); pages switch
    #[arg(long, value_name = "KIND", default_value = "roofline", value_parser = ["plane", "roofline", "hierarchical"])]
    chart: String,

    /// Memory level of the chart: dram, l2 or l1
    #[arg(long, value_name = "LEVEL", default_value = "dram", value_parser = level)]
    level: Level,

    /// Roof of the time plane, such as fp32 or "bf16 tensor" [default: the pipe with most FLOPs]; with --study `tensor` holds
    /// all FLOPs against the tensor cores, as the study did
    #[arg(long, value_name = "PIPE")]
    roof: Option<String>,

    /// Redraw the V100 study (arXiv 2009.04598) from one of its tables: conv2d or lstm
    #[arg(long, value_names = ["KIND", "FILE"], num_args = 2, conflicts_with_all = ["model", "sweep"])]
    study: Option<Vec<String>>,

    /// Compare, for each convolution, the algorithm of the library's heuristic with the fastest that an autotuner would find
    #[arg(long, conflicts_with_all = ["study", "sweep", "output", "csv"])]
    autotuning: bool,

    /// Rows to print; 0 prints all
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,

    /// Print CSV with all columns
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Chart file: .svg, .png or .html
    #[arg(short, long, value_name = "FILE")]
    output: Option<String>,
}

fn by(text: &str) -> Result<By, String> {
    By::ALL
        .into_iter()
        .find(|b| b.name() == text)
        .ok_or_else(|| "it must be call, operator, layer, module, family or model".to_string())
}

fn level(text: &str) -> Result<Level, String> {
    match text {
        "dram" => Ok(Level::Dram),
        "l2" => Ok(Level::L2),
        "l1" => Ok(Level::L1),
        _ => Err("it must be dram, l2 or l1".to_string()),
    }
}

#[derive(Serialize)]
struct Export<'a> {
    title: &'a str,
    by: &'static str,
    views: Vec<ViewExport<'a>>,
    /// Of a study's table: what it says.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conclusions: Vec<String>,
}

#[derive(Serialize)]
struct ViewExport<'a> {
    label: &'a str,
    gpu: &'a str,
    machine: MachineData,
    #[serde(skip_serializing_if = "Option::is_none")]
    iteration_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_ms: Option<f64>,
    gpu_busy_ms: f64,
    summary: SummaryExport,
    /// Of a recording: where FLOPs and bytes come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    sources: Option<Sources>,
    rows: Vec<RowData>,
}

#[derive(Serialize)]
struct SummaryExport {
    entries: usize,
    flops: f64,
    launches: f64,
    compute_share: f64,
    memory_share: f64,
    overhead_share: f64,
    unknown_share: f64,
    zero_flop_launch_share: f64,
    zero_flop_time_share: f64,
    above_roof: usize,
}

impl SummaryExport {
    fn of(view: &View) -> Self {
        let s = &view.rows.summary;
        Self {
            entries: view.rows.entries,
            flops: s.work.total_flops().0,
            launches: s.work.launches,
            compute_share: s.class_shares[0],
            memory_share: s.class_shares[1],
            overhead_share: s.class_shares[2],
            unknown_share: s.unknown_share,
            zero_flop_launch_share: s.zero_flop.launch_share,
            zero_flop_time_share: s.zero_flop.time_share,
            above_roof: s.above_roof,
        }
    }
}

/// Collects, draws if asked, prints.
pub fn run(args: &RooflineArgs, output: &Output) -> anyhow::Result<()> {
    if let Some(model) = args.model.as_deref().filter(|_| args.autotuning) {
        return autotuning::run(model, &args.job, output);
    }
    let by = args.by.unwrap_or(if args.sweep.is_some() { By::Model } else { By::Operator });
    let (title, views) = match (&args.study, &args.model) {
        // The study held all FLOPs against the tensor cores: `--roof tensor`.
        (Some(study), _) => study::read(study, args.roof.as_deref() == Some("tensor"))?,
        (None, Some(model)) => match recording::read(model)? {
            Some(_) if args.sweep.is_some() => {
                return Err(InputError::new("a recording cannot be swept: its sizes are as recorded").into());
            }
            Some(profile) => recording::collect(&profile, &args.recording, &args.job.gpus_if_any()?, by)?,
            None => view::collect(model, &args.job, args.sweep.as_ref(), by)?,
        },
        (None, None) => return Err(InputError::new("no model given").into()),
    };
    if let Some(path) = &args.output {
        let wanted = charts::Wanted {
            kind: &args.chart,
            level: args.level,
            roof: args.roof.as_deref().filter(|roof| args.study.is_none() || *roof != "tensor"),
            per_call: matches!(by, By::Call | By::Operator) && args.study.is_none(),
            by_view: args.sweep.is_some() || args.study.is_some() || views.len() > 1,
            swept: args.sweep.is_some(),
        };
        charts::write(path, &title, &views, &wanted)?;
        if !output.json && !args.csv {
            let mut out = output::stdout();
            writeln!(out, "{}", output.dim(&format!("chart written to {path}")))?;
            out.flush()?;
        }
    }
    let conclusions = if args.study.is_some() { study::sentences(&views) } else { Vec::new() };
    if output.json {
        let views = views.iter().map(view_export).collect();
        let export = Export { title: &title, by: by.name(), views, conclusions };
        output::print_json(&export)
    } else if args.csv {
        print_csv(&views)
    } else {
        views.iter().try_for_each(|view| print(&title, view, args, output))?;
        let mut out = output::stdout();
        for line in conclusions {
            writeln!(out, "{}", output::wrapped(&line, output.width, "  "))?;
        }
        Ok(out.flush()?)
    }
}

fn view_export(view: &View) -> ViewExport<'_> {
    ViewExport {
        label: &view.label,
        gpu: &view.machine.name,
        machine: MachineData::from(&view.machine),
        iteration_ms: view.iteration.map(Seconds::ms),
        host_ms: view.host.map(Seconds::ms),
        gpu_busy_ms: view.rows.summary.work.time.ms(),
        summary: SummaryExport::of(view),
        sources: view.sources,
        rows: view.rows.rows.iter().map(RowData::from).collect(),
    }
}

fn print_csv(views: &[View]) -> anyhow::Result<()> {
    let mut out = csv::Writer::from_writer(output::stdout());
    let several = views.len() > 1;
    let lead = if several { vec!["gpu", "label"] } else { vec![] };
    out.write_record(lead.into_iter().chain(COLUMNS))?;
    for view in views {
        for row in &view.rows.rows {
            let lead = if several { vec![view.machine.name.clone(), view.label.clone()] } else { vec![] };
            out.write_record(lead.into_iter().chain(RowData::from(row).cells()))?;
        }
    }
    Ok(out.flush()?)
}

/// The table of operators. Names of filters say all there is to know of a study's kernel, so they are kept long.
fn operators(rows: &[Row], long: bool) -> Grid<'static> {
    let data: Vec<RowData> = rows.iter().map(RowData::from).collect();
    let of = |cell: &dyn Fn(&RowData) -> String| data.iter().map(cell).collect::<Vec<_>>();
    let dash = || "-".to_string();
    let us = |x: f64| output::time(Seconds::from_us(x));
    let mut grid = Grid::default();
    grid.add("name", Align::Keep, 0, of(&|d| shortened(&d.name, if long { 34 } else { 20 })));
    grid.add("operator", Align::Keep, 5, of(&|d| shortened(&d.op, 18)));
    grid.add("calls", Align::Right, 6, of(&|d| output::count(d.count)));
    grid.add("time", Align::Right, 0, of(&|d| us(d.time_us)));
    grid.add("share", Align::Right, 2, of(&|d| output::percent(d.share)));
    let work = |d: &RowData| output::flops(Flops(d.flops)).replace("FLOP", "").trim().to_string();
    grid.add("FLOPs", Align::Right, 7, of(&work));
    grid.add("DRAM", Align::Right, 7, of(&|d| d.dram_bytes.map_or_else(dash, |b| output::traffic(Bytes(b)))));
    grid.add("AI", Align::Right, 7, of(&|d| d.intensity.map_or_else(dash, three_digits)));
    let compute = |d: &RowData| if d.class == "unknown" { dash() } else { us(d.compute_bound_us) };
    grid.add("t_F", Align::Right, 4, of(&compute));
    grid.add("t_B", Align::Right, 4, of(&|d| d.dram_bound_us.map_or_else(dash, us)));
    grid.add("t_0", Align::Right, 4, of(&|d| us(d.launch_bound_us)));
    let slowdown = |d: &RowData| d.slowdown.map_or_else(dash, |s| format!("{}x", three_digits(s)));
    grid.add("slowdown", Align::Right, 1, of(&slowdown));
    let binds = |d: &RowData| {
        let flag = if d.above_roof.is_empty() { "" } else { " !" };
        match d.inefficient {
            Some(factor) => format!("{}, {}x above{flag}", d.binding, three_digits(factor)),
            None => format!("{}{flag}", d.binding),
        }
    };
    grid.add("binds", Align::Left, 0, of(&binds));
    grid
}

fn print(title: &str, view: &View, args: &RooflineArgs, output: &Output) -> anyhow::Result<()> {
    let mut out = output::stdout();
    let label = if view.label.is_empty() { String::new() } else { format!(" ({})", view.label) };
    let title = format!("{}{label} on {}", output.bold(title), view.machine.title);
    writeln!(out, "{}", output::wrapped(&title, output.width, "  "))?;
    let rows = &view.rows.rows;
    let top = args.top;
    let shown = if top == 0 { rows.len() } else { top.min(rows.len()) };
    operators(&rows[..shown], output.width >= WIDE || args.study.is_some()).write(&mut out, output)?;
    if shown < rows.len() {
        let rest: f64 = rows[shown..].iter().map(|r| r.share).sum();
        let note = format!(
            "{} more rows with {:.1} % of the time; --top 0 shows them",
            rows.len() - shown,
            100.0 * rest
        );
        writeln!(out, "{}", output.dim(&note))?;
    }
    writeln!(out)?;
    for line in summary_lines(view) {
        writeln!(out, "{}", output::wrapped(&line, output.width, "  "))?;
    }
    writeln!(out)?;
    Ok(out.flush()?)
}

/// Columns from which FLOPs, bytes and intensity are shown too; `--csv` has everything.
const WIDE: usize = 130;

/// The end of a long name says more than its beginning.
fn shortened(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.to_string();
    }
    let end: String = text.chars().skip(length + 2 - most).collect();
    format!("..{end}")
}

fn summary_lines(view: &View) -> Vec<String> {
    let s = &view.rows.summary;
    let percent = |x: f64| format!("{:.0} %", 100.0 * x);
    let [compute, memory, overhead] = s.class_shares.map(percent);
    let mut lines = vec![format!(
        "GPU {} in {} launches; by the largest bound: compute {compute}, memory {memory}, overhead {overhead} of the time",
        output::time(s.work.time),
        output::count(s.work.launches),
    )];
    if let (Some(iteration), Some(host)) = (view.iteration, view.host) {
        lines.push(format!("iteration {}, host {}", output::time(iteration), output::time(host)));
    }
    if let Some(sources) = &view.sources {
        lines.push(sources.sentence());
    }
    if s.zero_flop.rows > 0 {
        lines.push(format!(
            "without FLOPs (casts, copies, look-ups): {} of the launches, {} of the time",
            percent(s.zero_flop.launch_share),
            percent(s.zero_flop.time_share)
        ));
    }
    if s.above_roof > 0 {
        lines.push(format!(
            "! {} rows lie above a roof: their bytes come from a cache or their products are saved by an algorithm, \
             or the data are wrong",
            s.above_roof
        ));
    }
    lines
}
