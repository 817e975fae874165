//! `preflop explore --objective`: designs over whole networks, with the time model, under limits.

use super::explore::{self, ExploreArgs};
use super::tabular::{self, Column, Columns};
use crate::error::InputError;
use crate::grid::Grid;
use crate::input;
use crate::output::{self, Align, Output, three_digits};
use crate::run_args;
use clap::Args;
use preflop_api::design::Row;
use preflop_core::cost::{Catalogue, Pricing, search as formats};
use preflop_core::model::{LowerOptions, Mode, Precision, lower};
use preflop_core::time::TimeModel;
use preflop_design::{
    Axis, DesignError, Evaluated, Found, KEYS, Limits, Network, Objective, Workload, axis, front, grid,
    optimise,
};
use preflop_plot::DesignPoint;
use rayon::prelude::*;
use serde::Serialize;
use std::io::Write as _;

/// What the search over whole networks takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Whole networks, with the time model")]
pub struct SearchArgs {
    /// Search designs for whole networks (several with commas) instead of convolution layers: smallest time, cost or energy
    #[arg(long, value_name = "WHAT", value_parser = objective, conflicts_with_all = ["options", "dtype"])]
    objective: Option<Objective>,

    /// What a design may not exceed, as `watts=700,area=814` (board power; square millimetres of the die)
    #[arg(long, value_name = "LIMITS", requires = "objective", value_parser = |text: &str| Limits::parse(text).map_err(|e| problem(&e)))]
    limit: Option<Limits>,

    /// Tokens of one sample [default: as the model has it]
    #[arg(long, value_name = "N", value_parser = input::seq, requires = "objective")]
    seq: Option<u64>,

    /// Number formats [default: fp32]
    #[arg(long, value_name = "FORMAT", value_parser = run_args::precision(), requires = "objective")]
    precision: Option<Precision>,

    /// Training or inference [default: train]
    #[arg(long, value_name = "MODE", value_parser = run_args::mode(), requires = "objective")]
    mode: Option<Mode>,

    /// Area of the base's die in square millimetres, where the catalogue does not have it
    #[arg(long, value_name = "MM2", value_parser = input::above_zero, requires = "objective")]
    base_area: Option<f64>,

    /// Price of the base for an hour; a design costs in proportion to its area [default: on demand, from the catalogue]
    #[arg(long, value_name = "USD", value_parser = input::above_zero, requires = "objective")]
    usd_per_hour: Option<f64>,
}

impl SearchArgs {
    /// Is a search asked for?
    pub fn is_asked(&self) -> bool {
        self.objective.is_some()
    }

    fn options(&self) -> LowerOptions {
        LowerOptions {
            mode: self.mode.unwrap_or(Mode::Train),
            precision: self.precision.unwrap_or_default(),
            optimizer: None,
        }
    }
}

fn objective(text: &str) -> Result<Objective, String> {
    input::one_of(text, &Objective::ALL)
}

/// Without the name of the flag, which the argument parser says itself.
fn problem(error: &DesignError) -> String {
    match error {
        DesignError::Limit { problem, .. } => problem.clone(),
        other => other.to_string(),
    }
}

/// Most rows of the table; files and JSON have all.
const MAX_TABLE_ROWS: usize = 40;

#[derive(Serialize)]
struct Report<'a> {
    base: &'a str,
    networks: Vec<&'a str>,
    objective: &'static str,
    /// `grid` where all designs were tried, `search` where an optimiser looked.
    method: &'static str,
    best: String,
    designs: Vec<Row>,
}

/// Tries or searches the designs, prints and writes them.
pub fn run(args: &ExploreArgs, output: &Output) -> anyhow::Result<()> {
    let asked = &args.search;
    let objective = asked.objective.unwrap_or(Objective::Time);
    let limits = asked.limit.unwrap_or_default();
    let gpu = input::gpu(&args.base)?;
    if args.plot.is_some() {
        return Err(InputError::new("`--plot` shows bottlenecks of layers, which are DeLTA's")
            .hint("leave out `--objective`, or draw the front with `--plot-front`")
            .into());
    }
    let format = args.output.as_deref().map(tabular::Format::of_path).transpose()?;
    if let Some(path) = &args.plot_front {
        output::chart_format(path)?;
    }
    if let Some(lacks) = formats::lacks(&gpu, asked.options().precision) {
        anyhow::bail!("{lacks}");
    }
    let axes: Vec<Axis> = args.vary.iter().map(|text| axis(text)).collect::<Result<_, _>>()?;
    if axes.is_empty() {
        return Err(InputError::new("nothing varies")
            .hint(format!(
                "say what, as `--vary sm_count=0.5..2 --vary dram_bw=1,2`; keys: {}",
                KEYS.join(", ")
            ))
            .into());
    }
    if let Some(i) = (1..axes.len()).find(|i| axes[..*i].iter().any(|a| a.key == axes[*i].key)) {
        let message = format!("`{}` is varied twice; put all its values into one list", KEYS[axes[i].key]);
        return Err(InputError::new(message).into());
    }
    let networks = networks(args)?;
    let model = TimeModel::embedded();
    let listed = || Catalogue::embedded().ok()?.quote(&gpu.name, Pricing::OnDemand).map(|q| q.usd_per_hour);
    let usd = asked.usd_per_hour.or_else(listed);
    let weights = explore::weights(args.area_weights.as_deref())?;
    let workload = Workload::new(&model, &gpu, &networks, weights, usd, asked.base_area);
    workload.check(objective, &limits)?;
    let (found, method) = match grid(&axes) {
        Some(designs) => {
            let all: Vec<Evaluated> = designs.into_par_iter().map(|d| workload.evaluate(d)).collect();
            (Found::of(all, objective, &limits)?, "grid")
        }
        None => (optimise(&workload, &axes, objective, &limits)?, "search"),
    };
    let (rows, best) = rows(&found, objective, &limits, args.front);
    let report = Report {
        base: &gpu.name,
        networks: networks.iter().map(|n| n.name.as_str()).collect(),
        objective: Objective::ALL.iter().find(|(_, o)| *o == objective).map_or("", |(name, _)| name),
        method,
        best,
        designs: rows,
    };
    if let Some((path, format)) = args.output.as_deref().zip(format) {
        tabular::write(path, format, &columns(&report), &report)?;
    }
    if let Some(path) = &args.plot_front {
        let base = workload.evaluate(preflop_design::Design::BASE).objective(objective);
        let dots: Vec<DesignPoint> = found
            .all
            .iter()
            .zip(front(&found.all, objective, &limits))
            .map(|(e, on_front)| DesignPoint {
                cost: e.share,
                speedup: base / e.objective(objective),
                on_front,
            })
            .collect();
        let gain = match objective {
            Objective::Time => "speed",
            Objective::Cost => "samples per dollar",
            Objective::Energy => "samples per joule",
        };
        let title = format!("{} on designs from {}: {gain}", report.networks.join(", "), report.base);
        explore::draw(path, &preflop_plot::pareto(&title, &dots)?)?;
    }
    if output.json { output::print_json(&report) } else { print(&report, output) }
}

fn networks(args: &ExploreArgs) -> anyhow::Result<Vec<Network>> {
    let asked = &args.search;
    let one = |name: &str| -> anyhow::Result<Network> {
        let graph = input::model(name, args.batch, asked.seq)?;
        let options = graph.settled(asked.options());
        Ok(Network { name: graph.name.clone(), iteration: lower(&graph, &options)? })
    };
    args.network.split(',').map(|name| one(name.trim())).collect()
}

fn rows(found: &Found, objective: Objective, limits: &Limits, only_front: bool) -> (Vec<Row>, String) {
    let on_front = front(&found.all, objective, limits);
    let best = found.all[found.best].design.name();
    let all = found.all.iter().zip(on_front).filter(|(_, front)| *front || !only_front);
    (all.map(|(e, front)| Row::of(e, limits, front)).collect(), best)
}

fn columns(report: &Report<'_>) -> Columns {
    let rows = &report.designs;
    let numbers = |get: &dyn Fn(&Row) -> f64| Column::Number(rows.iter().map(get).collect());
    let mut out: Columns = vec![("name".into(), Column::Text(rows.iter().map(|r| r.name.clone()).collect()))];
    for key in KEYS {
        out.push((key.to_string(), numbers(&|r| r.scales[key])));
    }
    out.push(("time_ms".into(), numbers(&|r| r.time_ms)));
    for (i, network) in report.networks.iter().enumerate() {
        out.push((format!("{network}_ms"), numbers(&|r| r.network_ms[i])));
    }
    out.push(("speedup".into(), numbers(&|r| r.speedup)));
    out.push(("joules_per_sample".into(), numbers(&|r| r.joules_per_sample)));
    if rows.iter().all(|r| r.usd_per_million_samples.is_some()) {
        out.push(("usd_per_million_samples".into(), numbers(&|r| r.usd_per_million_samples.unwrap_or(0.0))));
    }
    if rows.iter().all(|r| r.area_mm2.is_some()) {
        out.push(("area_mm2".into(), numbers(&|r| r.area_mm2.unwrap_or(0.0))));
    }
    out.push(("area_share".into(), numbers(&|r| r.area_share)));
    out.push(("watts".into(), numbers(&|r| r.watts)));
    out.push(("within_limits".into(), Column::Flag(rows.iter().map(|r| r.within_limits).collect())));
    out.push(("on_front".into(), Column::Flag(rows.iter().map(|r| r.on_front).collect())));
    out
}

fn print(report: &Report<'_>, output: &Output) -> anyhow::Result<()> {
    let mut out = output::stdout();
    let how = if report.method == "grid" { "tried" } else { "tried by a search" };
    let title = format!(
        "{} on designs from {}: {} {how}, smallest {}: {}",
        output.bold(&report.networks.join(", ")),
        report.base,
        output::counted(report.designs.len(), "design", "designs"),
        report.objective,
        output.bold(&report.best)
    );
    writeln!(out, "{}\n", output::wrapped(&title, output.width, "  "))?;
    let mut table = Grid::new(&[
        ("design", Align::Left, 0),
        ("speed-up", Align::Right, 0),
        ("energy", Align::Right, 2),
        ("cost", Align::Right, 3),
        ("area", Align::Right, 1),
        ("power", Align::Right, 1),
        ("front", Align::Keep, 1),
    ]);
    let mut rows: Vec<&Row> = report.designs.iter().collect();
    rows.sort_by(|a, b| {
        let rank = |r: &Row| (r.name != report.best, !r.on_front, !r.within_limits);
        rank(a).cmp(&rank(b)).then(a.area_share.total_cmp(&b.area_share))
    });
    for row in rows.iter().take(MAX_TABLE_ROWS) {
        table.row([
            row.name.clone(),
            format!("{}x", three_digits(row.speedup)),
            format!("{} J/sample", three_digits(row.joules_per_sample)),
            row.usd_per_million_samples.map_or("-".into(), |usd| format!("{} usd/M", three_digits(usd))),
            row.area_mm2
                .map_or_else(|| format!("{}x", three_digits(row.area_share)), |mm2| format!("{mm2:.0} mm2")),
            format!("{:.0} W", row.watts),
            match (row.on_front, row.within_limits) {
                (true, _) => "yes",
                (false, true) => "",
                (false, false) => "over",
            }
            .to_string(),
        ]);
    }
    table.write(&mut out, output)?;
    let note = "Area and power follow data/area_weights.toml and data/dies.toml, round assumptions: good for comparing designs. front: no other \
                design within the limits is both better and smaller.";
    writeln!(out, "\n{}", output.dim(&output::wrapped(note, output.width, "")))?;
    Ok(out.flush()?)
}
