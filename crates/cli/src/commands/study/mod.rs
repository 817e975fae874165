//! `preflop study`: five applications on seven GPUs, then on today's, as a page with plots.

mod charts;
mod page;

use crate::destination;
use crate::error::InputError;
use crate::grid::Grid;
use crate::output::{self, Align, Output, three_digits};
use anyhow::Context as _;
use clap::Args;
use preflop_core::cost::study::{self, Cell, Finding, GPUS, TODAY, WORKLOADS, Workload};
use preflop_core::cost::{Catalogue, Pricing};
use preflop_core::model::Precision;
use preflop_core::names;
use preflop_core::time::TimeModel;
use serde::Serialize;
use std::io::Write as _;
use std::path::Path;

/// Repeat the study of five applications on seven GPUs, and on today's, and write a page with plots
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop study -o study")]
pub struct StudyArgs {
    /// Folder for index.html, the plots and study.json
    #[arg(short, long, value_name = "DIR")]
    output: Option<String>,

    /// Only these of the study's models, separated by commas
    #[arg(long, value_name = "MODEL,..", value_delimiter = ',')]
    models: Vec<String>,
}

/// Everything the study says.
#[derive(Debug, Serialize)]
pub struct Study {
    /// The models.
    pub workloads: Vec<Workload>,
    /// The study's GPUs: fp32, bought.
    pub then: Vec<Cell>,
    /// Today's GPUs: amp, rented.
    pub today: Vec<Cell>,
    /// The study's findings.
    pub findings: Vec<Finding>,
}

/// Runs the command.
pub fn run(args: &StudyArgs, output: &Output) -> anyhow::Result<()> {
    let workloads = workloads(&args.models)?;
    let model = TimeModel::embedded();
    let prices = Catalogue::embedded()?;
    let then = study::run(&model, &workloads, &GPUS, Precision::Fp32, (&prices, Pricing::Purchase))?;
    let today = study::run(&model, &workloads, &TODAY, Precision::Amp, (&prices, Pricing::OnDemand))?;
    let findings = study::findings(&then);
    let study = Study { workloads, then, today, findings };
    if let Some(folder) = &args.output {
        write(&study, Path::new(folder))?;
    }
    if output.json {
        return output::print_json(&study);
    }
    print(&study, args.output.as_deref(), output)
}

fn workloads(wanted: &[String]) -> anyhow::Result<Vec<Workload>> {
    if wanted.is_empty() {
        return Ok(WORKLOADS.to_vec());
    }
    let mut out = Vec::new();
    for name in wanted {
        let same = |w: &&Workload| w.model.replace('_', "-") == name.to_lowercase().replace('_', "-");
        let Some(w) = WORKLOADS.iter().find(same) else {
            let hint = names::did_you_mean(name, WORKLOADS.iter().map(|w| w.model));
            let known: Vec<&str> = WORKLOADS.iter().map(|w| w.model).collect();
            return Err(InputError::new(format!("`{name}` is not a model of the study{hint}"))
                .hint(format!("its models: {}", known.join(", ")))
                .into());
        };
        out.push(*w);
    }
    Ok(out)
}

fn write(study: &Study, folder: &Path) -> anyhow::Result<()> {
    let failed = |what: &Path| format!("cannot write `{}`", what.display());
    std::fs::create_dir_all(folder).with_context(|| failed(folder))?;
    let charts = charts::all(study)?;
    for (name, svg) in &charts {
        let path = folder.join(format!("{name}.svg"));
        destination::write_bytes(&path, svg)?;
    }
    let path = folder.join("index.html");
    destination::write_bytes(&path, page::html(study, &charts)?)?;
    let path = folder.join("study.json");
    destination::write_bytes(&path, serde_json::to_string_pretty(study)?)
}

fn print(study: &Study, folder: Option<&str>, output: &Output) -> anyhow::Result<()> {
    let mut out = output::stdout();
    writeln!(out, "{}\n", output.bold("Samples per second in training, fp32, one host for all"))?;
    let mut grid = Grid::default();
    grid.add("model", Align::Keep, 0, study.workloads.iter().map(|w| w.model.to_string()));
    // Where seven GPUs have no room, the best of each kind stay: a data centre's, a gamer's, a workstation's.
    for (gpu, rank) in GPUS.into_iter().zip([1, 5, 4, 2, 3, 0, 6]) {
        let cells = study.workloads.iter().map(|w| {
            let found = study.then.iter().find(|c| c.model == w.model && c.gpu == gpu);
            found.map_or_else(String::new, |c| {
                three_digits(c.samples_per_s) + if c.fits { "" } else { " (no room)" }
            })
        });
        grid.add(gpu, Align::Right, rank, cells);
    }
    grid.write(&mut out, output)?;
    writeln!(out)?;
    for f in &study.findings {
        let verdict = if f.holds { "holds" } else { "DOES NOT HOLD" };
        let line = format!("{verdict}: {}. {}.", f.statement, f.figures);
        writeln!(out, "{}", output::wrapped(&line, output.width, "  "))?;
    }
    if let Some(folder) = folder {
        writeln!(out, "\nPage: {}", Path::new(folder).join("index.html").display())?;
    }
    Ok(out.flush()?)
}
