//! `preflop delta`: the published model, layer by layer.

use super::layers::{self, Listed};
use crate::error::InputError;
use crate::grid::Grid;
use crate::input;
use crate::output::{self, Align, Output, three_digits};
use clap::Args;
use preflop_core::Dtype;
use preflop_core::delta::prior::{self, PriorReport};
use preflop_core::delta::{
    Bottleneck, Fig6, FixedTile, Instructions, LayerReport, LoneCta, Machine, Readings, Tile, TilePolicy,
    evaluate,
};
use preflop_core::units::{Bytes, Seconds};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write as _;

/// Traffic, time and bottleneck of convolution layers by the DeLTA model, as published
///
/// Networks: alexnet-original, vgg16, googlenet, resnet50, resnet152, and delta-paper for the paper's four. A CSV file of layers has the columns
/// name,b,ci,h,w,co,r,s,stride,pad and may have groups, dilation and tile (such as 128x64); stride, pad and
/// dilation are one number or HEIGHTxWIDTH. A fully connected layer is a 1x1 filter on a 1x1 map.
///
/// With `--measured FILE.csv` the layers are the file's, and what it measured (time_ms or time_us, l1_bytes, l2_bytes,
/// dram_bytes; gpu, dtype, kernel, algorithm and network are optional) stands beside the model, with the errors by network
/// and GPU.
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop delta resnet152 --gpu titan-xp
  preflop delta layers.csv --gpu v100 --batch 128 --json")]
pub struct DeltaArgs {
    /// Network, or CSV file of layers
    #[arg(required_unless_present = "measured")]
    network: Option<String>,

    /// GPU name or the path of a GPU file
    #[arg(long)]
    pub(super) gpu: String,

    /// Images [default: 256, or the file's]
    #[arg(long, value_parser = input::batch)]
    batch: Option<u64>,

    /// Number format of the tensors; others than fp32 multiply on tensor cores where there are some
    #[arg(long, default_value = "fp32", value_parser = layers::dtype)]
    pub(super) dtype: Dtype,

    /// Add the network's fully connected layers
    #[arg(long, conflicts_with = "measured")]
    fc: bool,

    /// Show each distinct shape once, with how often it occurs
    #[arg(long)]
    unique: bool,

    /// Take this CTA tile for all layers instead of the paper's table
    #[arg(long, value_name = "HxW", value_parser = layers::tile)]
    tile: Option<Tile>,

    /// Use the catalogue's figures also for the GPUs that the paper's Table I prints
    #[arg(long)]
    catalogue: bool,

    /// DRAM latency in cycles instead of the GPU's, such as one under load (`preflop calibrate` measures the curve)
    #[arg(long, value_name = "CYCLES", value_parser = cycles)]
    dram_latency: Option<f64>,

    /// Add the models before DeLTA, with these miss rates in both caches
    #[arg(long, value_name = "MISS_RATE,..", num_args = 0..=1, default_missing_value = "1.0", value_delimiter = ',', value_parser = miss_rate)]
    compare_prior: Vec<f64>,

    /// What the compute stream issues: multiplications alone, as Eq. 13 has it, or all instructions that take an issue slot
    #[arg(long, value_enum, default_value = "multiplications")]
    pub(super) instructions: Issued,

    /// Whether a CTA that has an SM to itself shows its way through shared memory, which no case of the paper covers
    #[arg(long, value_enum, default_value = "hidden")]
    pub(super) lone_cta: Lone,

    /// Draw it: with --compare-prior the times of those models over DeLTA's, with --measured the model over the
    /// measurement (.svg or .png)
    #[arg(long, value_name = "FILE")]
    plot: Option<String>,

    /// Draw the model over the measurement layer by layer, as the paper's Figs. 11 to 14 (.svg or .png)
    #[arg(long, value_name = "FILE", requires = "measured")]
    plot_layers: Option<String>,

    /// Measured layers (CSV) to hold the model against
    #[arg(long, value_name = "FILE", conflicts_with = "network")]
    pub(super) measured: Option<String>,

    /// Of the measured layers only those of this algorithm, such as IMPLICIT_PRECOMP_GEMM
    #[arg(long, value_name = "NAME", requires = "measured")]
    pub(super) algorithm: Option<String>,

    /// Of the measured layers only those that took at least so many milliseconds
    #[arg(long, value_name = "MS", requires = "measured", default_value = "0")]
    pub(super) at_least_ms: f64,

    /// Whose traffic: the published model's, or that of today's kernels by the tile in the kernel's name (today)
    #[arg(long, value_enum, default_value = "published", requires = "measured")]
    pub(super) equations: Equations,
}

/// What the compute stream issues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Issued {
    /// Eq. 13
    Multiplications,
    /// Those that fill the tiles as well
    All,
}

/// What a CTA shows that has an SM to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Lone {
    /// Nothing: its arithmetic fills the SM (Eq. 16)
    Hidden,
    /// Storing a tile, waiting for all warps and loading the first operands
    Exposed,
}

/// Which equations give the traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Equations {
    /// Eq. 2 to 10
    Published,
    /// Sectors and tiles as counters show them on Hopper
    Today,
}

fn write_chart(
    path: Option<&str>,
    chart: impl FnOnce() -> Result<preflop_plot::Chart, preflop_plot::PlotError>,
) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let format = preflop_plot::Format::of_path(path)?;
    crate::destination::write_bytes(path, chart()?.render(format)?)
}

fn cycles(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if (1.0..=1e5).contains(&x) => Ok(x),
        _ => Err("a latency is a number of cycles from 1 to 100000".to_string()),
    }
}

impl DeltaArgs {
    /// The machine that is asked for.
    pub(super) fn machine(&self, gpu: &preflop_core::Gpu) -> Machine {
        let machine = if self.catalogue {
            Machine::from_catalogue(gpu, self.dtype)
        } else {
            Machine::of(gpu, self.dtype)
        };
        self.dram_latency.map_or(machine, |cycles| machine.with_dram_latency(cycles))
    }

    /// The readings that are asked for.
    pub(super) fn readings(&self) -> Readings {
        let instructions = match self.instructions {
            Issued::Multiplications => Instructions::Multiplications,
            Issued::All => Instructions::All,
        };
        let lone_cta = match self.lone_cta {
            Lone::Hidden => LoneCta::Hidden,
            Lone::Exposed => LoneCta::Exposed,
        };
        Readings { instructions, lone_cta, ..Readings::default() }
    }

    /// The tile policy of a layer: the command line's tile, the layer's own, or the paper's table.
    pub(super) fn fixed_tile(&self, listed: &Listed) -> Option<FixedTile> {
        self.tile.or(listed.tile).map(FixedTile)
    }

    /// Writes a chart where one is asked for.
    pub(super) fn draw(
        &self,
        chart: impl FnOnce() -> Result<preflop_plot::Chart, preflop_plot::PlotError>,
    ) -> anyhow::Result<()> {
        write_chart(self.plot.as_deref(), chart)
    }

    /// Writes the chart of single layers where one is asked for.
    pub(super) fn draw_layers(
        &self,
        chart: impl FnOnce() -> Result<preflop_plot::Chart, preflop_plot::PlotError>,
    ) -> anyhow::Result<()> {
        write_chart(self.plot_layers.as_deref(), chart)
    }
}

fn miss_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.0..=1.0).contains(&rate) => Ok(rate),
        _ => Err("a miss rate is a number from 0 to 1".to_string()),
    }
}

#[derive(Serialize)]
struct Report<'a> {
    gpu: &'a str,
    figures: &'static str,
    dtype: Dtype,
    layers: Vec<LayerRow<'a>>,
    total_ms: f64,
    bottlenecks: BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
struct LayerRow<'a> {
    name: &'a str,
    count: u64,
    l1_bytes: f64,
    l2_bytes: f64,
    dram_bytes: f64,
    l1_miss_rate: f64,
    l2_miss_rate: f64,
    time_ms: f64,
    cycles: f64,
    bottleneck: Bottleneck,
    next_bottleneck: Bottleneck,
    headroom: f64,
    bounds_ms: BTreeMap<&'static str, f64>,
    cta_tile: [u64; 3],
    num_cta: u64,
    active_ctas_per_sm: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    prior: Option<PriorRow>,
    /// All of them, where several miss rates were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    priors: Vec<PriorRow>,
}

#[derive(Clone, Serialize)]
struct PriorRow {
    miss_rate: f64,
    l2_bytes: f64,
    dram_bytes: f64,
    time_ms: f64,
    bottleneck: Bottleneck,
    over_prediction: f64,
}

/// One layer with what the models say.
struct Evaluated {
    listed: Listed,
    count: u64,
    report: LayerReport,
    priors: Vec<PriorReport>,
}

/// Evaluates and prints.
pub fn run(args: &DeltaArgs, output: &Output) -> anyhow::Result<()> {
    if args.measured.is_some() {
        return super::delta_measured::run(args, output);
    }
    let gpu = input::gpu(&args.gpu)?;
    let machine = args.machine(&gpu);
    let network = args.network.as_deref().unwrap_or_default();
    let layers = layers::read(network, args.batch, args.dtype, args.fc)?;
    let evaluated: Vec<Evaluated> = counted(layers, args.unique)
        .into_iter()
        .map(|(listed, count)| {
            let fixed = args.fixed_tile(&listed);
            let policy: &dyn TilePolicy = match &fixed {
                Some(tile) => tile,
                None => &Fig6,
            };
            let report = evaluate(&listed.named.layer, &machine, policy, args.readings())
                .map_err(|e| InputError::new(e.in_layer(&listed.named.name).to_string()))?;
            let priors =
                args.compare_prior.iter().map(|rate| prior::report(&report, &machine, *rate)).collect();
            Ok(Evaluated { listed, count, report, priors })
        })
        .collect::<anyhow::Result<_>>()?;
    let figures = if gpu.delta.is_some() && !args.catalogue { "paper" } else { "catalogue" };
    let report = Report {
        gpu: &gpu.name,
        figures,
        dtype: args.dtype,
        layers: evaluated.iter().map(|e| layer_row(e, &args.compare_prior, &machine)).collect(),
        total_ms: total(&evaluated).ms(),
        bottlenecks: bottlenecks(&evaluated),
    };
    args.draw(|| {
        let times: Vec<(String, Vec<f64>)> = args
            .compare_prior
            .iter()
            .enumerate()
            .map(|(i, rate)| {
                let over = evaluated.iter().map(|e| e.priors[i].time / e.report.time).collect();
                (format!("miss rate {rate}"), over)
            })
            .collect();
        let title = format!("{network} on {}: models with a fixed miss rate", gpu.title);
        preflop_plot::distribution(&title, "time over DeLTA's", &times)
    })?;
    if output.json { output::print_json(&report) } else { print(&report, &evaluated, args, output) }
}

fn counted(layers: Vec<Listed>, unique: bool) -> Vec<(Listed, u64)> {
    if !unique {
        return layers.into_iter().map(|l| (l, 1)).collect();
    }
    let mut out: Vec<(Listed, u64)> = Vec::new();
    for l in layers {
        match out.iter_mut().find(|(seen, _)| seen.named.layer == l.named.layer && seen.tile == l.tile) {
            Some((_, count)) => *count += 1,
            None => out.push((l, 1)),
        }
    }
    out
}

fn total(evaluated: &[Evaluated]) -> Seconds {
    evaluated.iter().map(|e| e.report.time * e.count as f64).sum()
}

fn bottlenecks(evaluated: &[Evaluated]) -> BTreeMap<&'static str, u64> {
    let mut out = BTreeMap::new();
    for e in evaluated {
        *out.entry(e.report.bottleneck.name()).or_insert(0) += e.count;
    }
    out
}

fn layer_row<'a>(e: &'a Evaluated, miss_rates: &[f64], machine: &Machine) -> LayerRow<'a> {
    let r = &e.report;
    let priors: Vec<PriorRow> = e
        .priors
        .iter()
        .zip(miss_rates)
        .map(|(p, miss_rate)| PriorRow {
            miss_rate: *miss_rate,
            l2_bytes: p.traffic.l2.0,
            dram_bytes: p.traffic.dram.0,
            time_ms: p.time.ms(),
            bottleneck: p.bottleneck,
            over_prediction: p.time / r.time,
        })
        .collect();
    LayerRow {
        name: &e.listed.named.name,
        count: e.count,
        l1_bytes: r.traffic.l1.0,
        l2_bytes: r.traffic.l2.0,
        dram_bytes: r.traffic.dram.0,
        l1_miss_rate: r.traffic.l1_miss_rate(),
        l2_miss_rate: r.traffic.l2_miss_rate(),
        time_ms: r.time.ms(),
        cycles: r.time.0 * machine.clock_hz,
        bottleneck: r.bottleneck,
        next_bottleneck: r.next,
        headroom: r.headroom(),
        bounds_ms: Bottleneck::ALL.iter().map(|b| (b.name(), r.bound(*b).ms())).collect(),
        cta_tile: [r.tile.blk_m as u64, r.tile.blk_n as u64, r.tile.blk_k as u64],
        num_cta: r.num_cta as u64,
        active_ctas_per_sm: r.active_ctas as u64,
        prior: priors.first().cloned(),
        priors: if priors.len() > 1 { priors } else { Vec::new() },
    }
}

fn print(report: &Report, evaluated: &[Evaluated], args: &DeltaArgs, output: &Output) -> anyhow::Result<()> {
    let of = |cell: &dyn Fn(&LayerRow) -> String| report.layers.iter().map(cell).collect::<Vec<_>>();
    let mut grid = Grid::default();
    grid.add("layer", Align::Keep, 0, of(&|r| r.name.to_string()));
    if args.unique {
        grid.add("x", Align::Right, 2, of(&|r| r.count.to_string()));
    }
    grid.add("tile", Align::Right, 5, of(&|r| r.cta_tile.map(|n| n.to_string()).join("x")));
    grid.add("L1", Align::Right, 3, of(&|r| output::traffic(Bytes(r.l1_bytes))));
    grid.add("L2", Align::Right, 3, of(&|r| output::traffic(Bytes(r.l2_bytes))));
    grid.add("DRAM", Align::Right, 2, of(&|r| output::traffic(Bytes(r.dram_bytes))));
    grid.add("L1 miss", Align::Right, 6, of(&|r| format!("{:.0} %", 100.0 * r.l1_miss_rate)));
    grid.add("L2 miss", Align::Right, 6, of(&|r| format!("{:.0} %", 100.0 * r.l2_miss_rate)));
    grid.add("time", Align::Right, 0, evaluated.iter().map(|e| output::time(e.report.time)));
    grid.add("Mcycles", Align::Right, 7, of(&|r| three_digits(r.cycles / 1e6)));
    grid.add("bound by", Align::Keep, 0, of(&|r| r.bottleneck.name().to_string()));
    let then = |r: &LayerRow| format!("{} at {}x", r.next_bottleneck.name(), three_digits(r.headroom));
    grid.add("then", Align::Keep, 4, of(&then));
    if !args.compare_prior.is_empty() {
        let prior = |r: &LayerRow| r.prior.as_ref().map(|p| format!("{}x", three_digits(p.over_prediction)));
        grid.add("prior", Align::Right, 1, of(&|r| prior(r).unwrap_or_default()));
    }
    let mut out = output::stdout();
    grid.write(&mut out, output)?;
    writeln!(out)?;
    let bound: Vec<String> = report.bottlenecks.iter().map(|(name, n)| format!("{name} {n}")).collect();
    let layers: u64 = evaluated.iter().map(|e| e.count).sum();
    let all = format!(
        "{} on {}: {} in {layers} {}; bound by {}",
        output.bold(args.network.as_deref().unwrap_or_default()),
        report.gpu,
        output::milliseconds(report.total_ms),
        if layers == 1 { "layer" } else { "layers" },
        bound.join(", ")
    );
    writeln!(out, "{}", output::wrapped(&all, output.width, "  "))?;
    for (i, rate) in args.compare_prior.iter().enumerate() {
        let ratios: Vec<f64> = evaluated.iter().map(|e| e.priors[i].time / e.report.time).collect();
        let mean = ratios.iter().sum::<f64>() / ratios.len().max(1) as f64;
        let most = ratios.iter().copied().fold(0.0, f64::max);
        let line = format!(
            "a miss rate of {rate} gives {}x the time on average, {}x at most",
            three_digits(mean),
            three_digits(most)
        );
        writeln!(out, "{}", output::wrapped(&line, output.width, "  "))?;
    }
    let source = if report.figures == "paper" { "the paper's Table I" } else { "the catalogue" };
    let note = format!(
        "GPU figures from {source}. \"then\": what binds, and the speed-up, once the bottleneck is gone. \
         The model is of cuDNN 7's implicit-GEMM kernels; docs/delta.md says where it holds."
    );
    writeln!(out, "{}", output.dim(&output::wrapped(&note, output.width, "")))?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_core::delta::networks;

    #[test]
    fn the_help_names_every_network() {
        use clap::Args as _;
        let mut command = DeltaArgs::augment_args(clap::Command::new("delta"));
        let help = command.render_long_help().to_string();
        for name in networks::NAMES {
            assert!(help.contains(name), "{name}");
        }
    }

    #[test]
    fn miss_rates_are_shares() {
        assert_eq!(miss_rate("0.5"), Ok(0.5));
        for bad in ["1.1", "-0.1", "NaN", "x"] {
            assert!(miss_rate(bad).is_err(), "{bad}");
        }
    }
}
