//! `preflop collective`: how long a collective takes on a cluster, by size; and what a log of nccl-tests says about one.

use crate::cluster_args::{self, byte_list};
use crate::destination;
use crate::error::InputError;
use crate::grid::Grid;
use crate::input;
use crate::output::{self, Align, Output, three_digits};
use anyhow::Context as _;
use clap::Args;
use preflop_cluster::collective::{Collectives, Group, Kind, log};
use preflop_core::units::{Bytes, Seconds};
use preflop_plot::{Format, Line, LineChart};
use serde_json::json;
use std::io::Write as _;

/// Predict a collective on a cluster by message size, or compare a log of nccl-tests with what it should be
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop collective all-reduce --cluster dgx-h100x4
  preflop collective all-gather --cluster 8xa100 --bytes 1M..1G --plot gather.svg")]
pub struct CollectiveArgs {
    /// all-reduce, all-gather, reduce-scatter, all-to-all, send-recv or broadcast
    #[arg(value_parser = kind)]
    kind: Kind,

    /// Cluster: a node (see `preflop cluster list`), NODExCOUNT, 8xGPU, or the path of a cluster or node file
    #[arg(long, value_name = "CLUSTER")]
    cluster: String,

    /// GPUs that take part [default: all]
    #[arg(long, value_name = "N", value_parser = cluster_args::size)]
    gpus: Option<u64>,

    /// Another GPU in the same nodes
    #[arg(long, value_name = "GPU")]
    gpu: Option<String>,

    /// Message sizes as nccl-tests counts them: `512,4096,1K..8G`
    #[arg(long, value_name = "SIZES", default_value = "1K..8G", allow_hyphen_values = true)]
    bytes: String,

    /// A log of nccl-tests to compare with
    #[arg(long, value_name = "LOG")]
    compare: Option<String>,

    /// Draw bus bandwidth by size: .svg or .png
    #[arg(long, value_name = "FILE")]
    plot: Option<String>,
}

fn kind(text: &str) -> Result<Kind, String> {
    Kind::from_name(text).ok_or_else(|| {
        let names: Vec<&str> = Kind::ALL.iter().map(|k| k.name()).collect();
        format!("it must be one of {}", names.join(", "))
    })
}

/// A log of nccl-tests has a line for each size.
const MAX_LOG: u64 = 16 << 20;

/// Runs the command.
pub fn run(args: &CollectiveArgs, output: &Output) -> anyhow::Result<()> {
    let mut cluster = cluster_args::cluster(&args.cluster, args.gpu.as_deref())?;
    if let Some(gpus) = args.gpus {
        cluster = cluster.with_gpus(gpus)?;
    }
    if cluster.gpus() < 2 {
        return Err(InputError::new(format!(
            "`{}` has one GPU: a collective needs two or more",
            cluster.name
        ))
        .into());
    }
    if cluster.count > 1 && cluster.node.network.0 <= 0.0 {
        let message = format!("`{}` has {} nodes and no network between them", cluster.name, cluster.count);
        return Err(InputError::new(message)
            .hint("name a node of `preflop cluster list`, or a file with `[outside]`")
            .into());
    }
    let group = match args.kind {
        Kind::SendRecv => Group { gpus: 2, per_node: if cluster.count > 1 { 1 } else { 2 } },
        _ => Group { gpus: cluster.gpus(), per_node: cluster.node.gpus },
    };
    let collectives = Collectives::embedded();
    if let Some(path) = &args.compare {
        let text =
            String::from_utf8_lossy(&input::read_limited(path, MAX_LOG, "log of nccl-tests")?).into_owned();
        let rows = log::read(&text).with_context(|| path.clone())?;
        let verdict = log::compare(&rows, args.kind, group, &cluster, &collectives);
        return if output.json { output::print_json(&verdict) } else { print_verdict(&verdict, output) };
    }
    let sizes = byte_list(&args.bytes)?;
    let rows: Vec<_> =
        sizes.iter().map(|b| (*b, collectives.predict(args.kind, group, *b, &cluster))).collect();
    if let Some(path) = &args.plot {
        let points = rows.iter().map(|(b, p)| (b.log2(), p.bus / 1e9)).collect();
        let line = Line { name: args.kind.name().to_string(), points, second_axis: false };
        let chart = LineChart {
            title: format!("{} on {}", args.kind.name(), cluster.name),
            x_label: "log2 of bytes".to_string(),
            y_label: "bus GB/s".to_string(),
            second_label: String::new(),
            lines: vec![line],
        };
        destination::write_bytes(path, chart.draw()?.render(Format::of_path(path)?)?)?;
    }
    if output.json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(bytes, p)| {
                let (low, high) = p.interval.around(p.time * 1e6);
                json!({"bytes": bytes, "time_us": p.time * 1e6, "low_us": low, "high_us": high,
                    "bus_gbs": p.bus / 1e9, "bound": p.bound})
            })
            .collect();
        return output::print_json(&rows);
    }
    let mut out = output::stdout();
    let title = format!("{} of {} GPUs on {}", args.kind.name(), group.gpus, cluster.name);
    writeln!(out, "{}\n", output.bold(&output::wrapped(&title, output.width, "  ")))?;
    let mut table = Grid::new(&[
        ("bytes", Align::Right, 0),
        ("time", Align::Right, 0),
        ("90 % interval", Align::Right, 1),
        ("bus", Align::Right, 0),
        ("", Align::Keep, 3),
        ("bound", Align::Keep, 2),
    ]);
    let most = rows.iter().map(|(_, p)| p.bus).fold(1.0, f64::max);
    for (bytes, p) in &rows {
        let (low, high) = p.interval.around(p.time);
        table.row([
            if *bytes < 1_048_576.0 {
                format!("{} KiB", three_digits(bytes / 1024.0))
            } else {
                output::memory(Bytes(*bytes))
            },
            output::time(Seconds(p.time)),
            format!("{} to {}", output::time(Seconds(low)), output::time(Seconds(high))),
            format!("{} GB/s", three_digits(p.bus / 1e9)),
            output::bar(p.bus / most, 16),
            p.bound.name().to_string(),
        ]);
    }
    table.write(&mut out, output)?;
    Ok(out.flush()?)
}

fn print_verdict(verdict: &log::Verdict, output: &Output) -> anyhow::Result<()> {
    let mut out = output::stdout();
    let mut table = Grid::new(&[
        ("bytes", Align::Right, 0),
        ("measured", Align::Right, 0),
        ("expected", Align::Right, 0),
        ("ratio", Align::Right, 1),
        ("", Align::Keep, 3),
    ]);
    for row in &verdict.rows {
        table.row([
            format!("{}", row.bytes),
            output::time(Seconds(row.measured_us * 1e-6)),
            output::time(Seconds(row.time_us * 1e-6)),
            format!("{} x", three_digits(row.ratio)),
            if row.below { "slower than it should be".to_string() } else { String::new() },
        ]);
    }
    table.write(&mut out, output)?;
    let (bus, expected) = (three_digits(verdict.bus_gbs), three_digits(verdict.expected_gbs));
    writeln!(out, "\nLargest messages: {bus} GB/s of bus bandwidth, {expected} expected.")?;
    let reason = verdict.reason.clone().unwrap_or_else(|| "Nothing is slower than it should be.".to_string());
    writeln!(out, "{}", output::wrapped(&reason, output.width, ""))?;
    Ok(out.flush()?)
}
