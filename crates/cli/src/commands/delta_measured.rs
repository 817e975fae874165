//! `preflop delta --measured`: measured layers beside the model, with the paper's figures of error.

use super::delta::{DeltaArgs, Equations};
use super::layers;
use crate::error::InputError;
use crate::grid::Grid;
use crate::input;
use crate::output::{self, Align, Output, three_digits};
use preflop_core::delta::measured::Errors;
use preflop_core::delta::{Bottleneck, Fig6, Machine, TilePolicy, evaluate};
use preflop_core::kernels::conv::Task;
use preflop_core::ops::Conv;
use preflop_core::{Dtype, Gpu, Pass, traffic};
use preflop_import::measured_layers::{self, Measured};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write as _;

/// What is compared, in the order of the columns.
const FIGURES: [&str; 4] = ["l1", "l2", "dram", "time"];

#[derive(Serialize)]
struct Report {
    equations: &'static str,
    layers: Vec<Row>,
    errors: Vec<Group>,
    left_out: usize,
}

#[derive(Serialize)]
struct Row {
    name: String,
    network: String,
    gpu: String,
    cta_tile: [u64; 3],
    time_ms: f64,
    measured_ms: Option<f64>,
    cycles: f64,
    bottleneck: Bottleneck,
    /// Predicted over measured.
    l1: Option<f64>,
    l2: Option<f64>,
    dram: Option<f64>,
    time: Option<f64>,
}

impl Row {
    fn ratios(&self) -> [Option<f64>; 4] {
        [self.l1, self.l2, self.dram, self.time]
    }
}

#[derive(Serialize)]
struct Group {
    network: String,
    gpu: String,
    #[serde(flatten)]
    errors: BTreeMap<&'static str, Errors>,
}

/// Reads, evaluates and prints.
pub fn run(args: &DeltaArgs, output: &Output) -> anyhow::Result<()> {
    let path = args.measured.as_deref().unwrap_or_default();
    let bytes = input::read_limited(path, layers::MAX_FILE, "table of measured layers")?;
    let measured = measured_layers::read(&bytes)
        .map_err(|e| InputError::new(format!("{path}{e}")).hint(measured_layers::COLUMNS))?;
    let all = measured.len();
    let chosen: Vec<Measured> = measured.into_iter().filter(|m| wanted(m, args)).collect();
    if chosen.is_empty() {
        let message = format!("none of the {all} layers of `{path}` is asked for");
        return Err(InputError::new(message).hint("see --dtype, --algorithm and --at-least-ms").into());
    }
    let mut gpus: BTreeMap<String, Gpu> = BTreeMap::new();
    let mut rows = Vec::with_capacity(chosen.len());
    for m in &chosen {
        let name = m.gpu.as_deref().unwrap_or(&args.gpu);
        if !gpus.contains_key(name) {
            gpus.insert(name.to_string(), input::gpu(name)?);
        }
        rows.push(row(m, &gpus[name], args)?);
    }
    let report = Report {
        equations: if args.equations == Equations::Today { "today" } else { "published" },
        errors: groups(&rows),
        layers: rows,
        left_out: all - chosen.len(),
    };
    args.draw_layers(|| {
        let line = |(i, name): (usize, &&str)| preflop_plot::Line {
            name: figure_name(name),
            points: (1..)
                .zip(&report.layers)
                .filter_map(|(x, r)| Some((f64::from(x), r.ratios()[i]?)))
                .collect(),
            second_axis: false,
        };
        preflop_plot::LineChart {
            title: format!("{}: predicted over measured, layer by layer", args.gpu),
            x_label: "layer, in the order of the file".to_string(),
            y_label: "predicted over measured".to_string(),
            second_label: String::new(),
            lines: FIGURES.iter().enumerate().map(line).filter(|l| !l.points.is_empty()).collect(),
        }
        .draw()
    })?;
    args.draw(|| {
        let mut gpus: Vec<&str> = report.layers.iter().map(|r| r.gpu.as_str()).collect();
        gpus.sort_unstable();
        gpus.dedup();
        // Several GPUs stand side by side by their times (Fig. 15a), one by its levels and its time.
        let figures: Vec<(String, Vec<f64>)> = if gpus.len() > 1 {
            let times =
                |gpu: &str| report.layers.iter().filter(|r| r.gpu == gpu).filter_map(|r| r.time).collect();
            gpus.iter().map(|gpu| ((*gpu).to_string(), times(gpu))).collect()
        } else {
            let ratios = |i: usize| report.layers.iter().filter_map(|r| r.ratios()[i]).collect();
            FIGURES.iter().enumerate().map(|(i, name)| (figure_name(name), ratios(i))).collect()
        };
        let title = format!("{}: predicted over measured", args.gpu);
        preflop_plot::distribution(&title, "predicted over measured", &figures)
    })?;
    if output.json { output::print_json(&report) } else { print(&report, output) }
}

fn wanted(m: &Measured, args: &DeltaArgs) -> bool {
    m.dtype.as_deref().is_none_or(|d| short(d).eq_ignore_ascii_case(args.dtype.name()))
        && args.algorithm.as_deref().is_none_or(|a| m.algorithm.as_deref() == Some(a))
        && m.time_ms.is_none_or(|ms| ms >= args.at_least_ms)
}

/// For plots.
fn figure_name(figure: &str) -> String {
    if figure == "time" { figure.to_string() } else { figure.to_uppercase() }
}

/// PyTorch's names of formats in ours.
fn short(dtype: &str) -> &str {
    match dtype {
        "float32" => "fp32",
        "float16" => "fp16",
        "bfloat16" => "bf16",
        other => other,
    }
}

fn row(m: &Measured, gpu: &Gpu, args: &DeltaArgs) -> anyhow::Result<Row> {
    let machine: Machine = args.machine(gpu);
    let mut layer = m.listed.named.layer;
    layer.element_bytes = args.dtype.size();
    let fixed = args.fixed_tile(&m.listed);
    let policy: &dyn TilePolicy = match &fixed {
        Some(tile) => tile,
        None => &Fig6,
    };
    let report = evaluate(&layer, &machine, policy, args.readings())
        .map_err(|e| InputError::new(e.in_layer(&m.listed.named.name).to_string()))?;
    let bytes = if args.equations == Equations::Today {
        let conv = Conv {
            batch: layer.batch,
            ci: layer.ci,
            h: layer.h,
            w: layer.w,
            co: layer.co,
            r: layer.r,
            s: layer.s,
            stride: layer.stride,
            pad: layer.pad,
            dilation: layer.dilation,
            groups: layer.groups,
            // Tensor cores read channels last; fp32 kernels read the maps as they lie.
            channels_last: args.dtype != Dtype::Fp32,
            transposed: false,
        };
        let tile = fixed.map(|f| [f.0.blk_m, f.0.blk_n, f.0.blk_k]);
        let task = Task::new(&conv, Pass::Fwd, args.dtype);
        let levels = traffic::conv::by_tile(&task, gpu, tile);
        // DeLTA speaks of loads, so of DRAM only the reads count.
        [levels.l1, levels.l2, traffic::conv::read(&task)]
    } else {
        [report.traffic.l1.0, report.traffic.l2.0, report.traffic.dram.0]
    };
    let over = |i: usize| m.bytes[i].map(|measured| bytes[i] / measured);
    let tile = report.tile;
    Ok(Row {
        name: m.listed.named.name.clone(),
        network: m.network.clone(),
        gpu: gpu.name.clone(),
        cta_tile: [tile.blk_m as u64, tile.blk_n as u64, tile.blk_k as u64],
        time_ms: report.time.ms(),
        measured_ms: m.time_ms,
        cycles: report.time.0 * machine.clock_hz,
        bottleneck: report.bottleneck,
        l1: over(0),
        l2: over(1),
        dram: over(2),
        time: m.time_ms.map(|ms| report.time.ms() / ms),
    })
}

/// By network and GPU, then all of them where there are several.
fn groups(rows: &[Row]) -> Vec<Group> {
    let mut keys: Vec<(&str, &str)> = rows.iter().map(|r| (r.network.as_str(), r.gpu.as_str())).collect();
    keys.sort_unstable();
    keys.dedup();
    let of = |network: &str, gpu: &str, chosen: &dyn Fn(&Row) -> bool| {
        let errors = FIGURES.iter().enumerate().filter_map(|(i, name)| {
            let ratios: Vec<f64> = rows.iter().filter(|r| chosen(r)).filter_map(|r| r.ratios()[i]).collect();
            Some((*name, Errors::of(&ratios)?))
        });
        Group { network: network.to_string(), gpu: gpu.to_string(), errors: errors.collect() }
    };
    let mut groups: Vec<Group> = keys
        .iter()
        .map(|(network, gpu)| of(network, gpu, &|r| r.network == *network && r.gpu == *gpu))
        .collect();
    if keys.len() > 1 {
        groups.push(of("all", "all", &|_| true));
    }
    groups
}

fn print(report: &Report, output: &Output) -> anyhow::Result<()> {
    let mut out = output::stdout();
    let ratio = |r: Option<f64>| r.map_or_else(|| "-".to_string(), |r| format!("{r:.2}"));
    let mut table = Grid::new(&[
        ("layer", Align::Keep, 0),
        ("tile", Align::Right, 3),
        ("L1", Align::Right, 2),
        ("L2", Align::Right, 2),
        ("DRAM", Align::Right, 1),
        ("time", Align::Right, 0),
        ("predicted", Align::Right, 0),
        ("Mcycles", Align::Right, 4),
        ("bound by", Align::Keep, 1),
    ]);
    for r in &report.layers {
        let [m, n, k] = r.cta_tile;
        let mut cells = vec![r.name.clone(), format!("{m}x{n}x{k}")];
        cells.extend(r.ratios().map(ratio));
        cells.extend([
            format!("{} ms", three_digits(r.time_ms)),
            three_digits(r.cycles / 1e6),
            r.bottleneck.name().to_string(),
        ]);
        table.row(cells);
    }
    table.write(&mut out, output)?;
    writeln!(out)?;
    let mut table = Grid::new(&[
        ("network", Align::Keep, 0),
        ("GPU", Align::Keep, 0),
        ("L1", Align::Right, 2),
        ("L2", Align::Right, 2),
        ("DRAM", Align::Right, 1),
        ("time", Align::Right, 0),
        ("layers", Align::Right, 1),
    ]);
    for g in &report.errors {
        let mut cells = vec![g.network.clone(), g.gpu.clone()];
        cells.extend(FIGURES.map(|name| {
            g.errors.get(name).map_or_else(
                || "-".to_string(),
                |e| format!("{:.1} % ({:.1} %)", 100.0 * e.gmae, 100.0 * e.standard_deviation),
            )
        }));
        cells.push(g.errors.values().map(|e| e.rows).max().unwrap_or(0).to_string());
        table.row(cells);
    }
    table.write(&mut out, output)?;
    let note = format!(
        "Ratios are predicted over measured; errors are GMAE, the geometric mean of the absolute errors, with the \
         standard deviation of the ratios, as the paper gives them. Traffic by the {} equations; {} rows left out.",
        report.equations, report.left_out
    );
    writeln!(out, "{}", output.dim(&output::wrapped(&note, output.width, "")))?;
    Ok(out.flush()?)
}
