//! `preflop sensitivity`: how traffic answers to each size of a layer, as four plots.

use super::tabular::{self, Column, Columns};
use crate::destination;
use crate::input;
use crate::output::{self, Output};
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use preflop_core::Dtype;
use preflop_core::delta::sensitivity::{Axis, Point, study};
use preflop_core::delta::{Fig6, Machine, Readings};
use preflop_plot::{Line, LineChart};
use serde::Serialize;
use std::io::Write as _;
use std::path::Path;

/// Draw how L1, L2 and DRAM traffic answer to channels, feature size and batch (DeLTA's appendix, Fig. 17)
///
/// The layer is the appendix's: 256 input channels, 13x13 map, 128 output channels, 3x3 filter, batch 256.
/// Writes four plots and a CSV file with all points.
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop sensitivity --gpu titan-xp -o sensitivity")]
pub struct SensitivityArgs {
    /// GPU name or the path of a GPU file
    #[arg(long)]
    gpu: String,

    /// Folder for the files; made if it does not exist
    #[arg(short, long, value_name = "DIR")]
    output: String,

    /// Format of the plots
    #[arg(long, default_value = "svg")]
    format: PlotFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PlotFormat {
    Svg,
    Png,
}

impl PlotFormat {
    fn ending(self) -> &'static str {
        match self {
            Self::Svg => "svg",
            Self::Png => "png",
        }
    }
}

#[derive(Serialize)]
struct Report<'a> {
    gpu: &'a str,
    files: Vec<String>,
    points: Vec<PointRow>,
}

#[derive(Serialize)]
struct PointRow {
    axis: &'static str,
    value: u64,
    cta_tile: [u64; 3],
    l1_bytes: f64,
    l2_bytes: f64,
    dram_bytes: f64,
    l1_relative: f64,
    l2_relative: f64,
    dram_relative: f64,
}

/// Evaluates, draws and writes.
pub fn run(args: &SensitivityArgs, output: &Output) -> anyhow::Result<()> {
    let gpu = input::gpu(&args.gpu)?;
    let machine = Machine::of(&gpu, Dtype::Fp32);
    let folder = Path::new(&args.output);
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder `{}`", args.output))?;
    let mut report = Report { gpu: &gpu.name, files: Vec::new(), points: Vec::new() };
    for axis in Axis::ALL {
        let points = study(axis, &machine, &Fig6, Readings::default())?;
        let path = folder.join(format!("sensitivity-{}.{}", axis.name(), args.format.ending()));
        let path = path.to_string_lossy().into_owned();
        let bytes = chart(axis, &points, &gpu.title).draw()?.render(preflop_plot::Format::of_path(&path)?)?;
        destination::write_bytes(&path, bytes)?;
        report.files.push(path);
        report.points.extend(points.iter().map(|p| row(axis, p)));
    }
    let path = folder.join("sensitivity.csv").to_string_lossy().into_owned();
    tabular::write(&path, tabular::Format::Csv, &columns(&report.points), &report.points)?;
    report.files.push(path);
    if output.json {
        return output::print_json(&report);
    }
    let mut out = output::stdout();
    for file in &report.files {
        writeln!(out, "{file}")?;
    }
    Ok(out.flush()?)
}

fn row(axis: Axis, p: &Point) -> PointRow {
    PointRow {
        axis: axis.name(),
        value: p.value,
        cta_tile: [p.tile.blk_m as u64, p.tile.blk_n as u64, p.tile.blk_k as u64],
        l1_bytes: p.traffic.l1.0,
        l2_bytes: p.traffic.l2.0,
        dram_bytes: p.traffic.dram.0,
        l1_relative: p.relative[0],
        l2_relative: p.relative[1],
        dram_relative: p.relative[2],
    }
}

fn chart(axis: Axis, points: &[Point], gpu: &str) -> LineChart {
    let mut lines: Vec<Line> = ["L1", "L2", "DRAM"]
        .iter()
        .enumerate()
        .map(|(level, name)| Line {
            name: (*name).to_string(),
            points: points.iter().map(|p| (p.value as f64, p.relative[level])).collect(),
            second_axis: false,
        })
        .collect();
    // Only the output channels change the tile.
    if axis == Axis::OutputChannels {
        lines.push(Line {
            name: "CTA tile width".to_string(),
            points: points.iter().map(|p| (p.value as f64, p.tile.blk_n)).collect(),
            second_axis: true,
        });
    }
    LineChart {
        title: format!("{gpu}: predicted traffic per multiply-add"),
        x_label: axis.title().to_string(),
        y_label: "bytes per multiply-add, base layer = 1".to_string(),
        second_label: "CTA tile width".to_string(),
        lines,
    }
}

fn columns(rows: &[PointRow]) -> Columns {
    let numbers = |get: fn(&PointRow) -> f64| Column::Number(rows.iter().map(get).collect());
    let counts = |get: fn(&PointRow) -> u64| Column::Count(rows.iter().map(get).collect());
    vec![
        ("axis".into(), Column::Text(rows.iter().map(|r| r.axis.to_string()).collect())),
        ("value".into(), counts(|r| r.value)),
        ("blk_n".into(), counts(|r| r.cta_tile[1])),
        ("l1_bytes".into(), numbers(|r| r.l1_bytes)),
        ("l2_bytes".into(), numbers(|r| r.l2_bytes)),
        ("dram_bytes".into(), numbers(|r| r.dram_bytes)),
        ("l1_relative".into(), numbers(|r| r.l1_relative)),
        ("l2_relative".into(), numbers(|r| r.l2_relative)),
        ("dram_relative".into(), numbers(|r| r.dram_relative)),
    ]
}
