//! `preflop compare --gpus 8xh100,4xa100`: setups with several GPUs, ranked, with prices. Every GPU runs the same batch, its
//! gradients reduced during backward (DDP).

use super::args::{Batch, CompareArgs};
use crate::error::InputError;
use crate::grid::Grid;
use crate::input;
use crate::output::{self, Align, Output, three_digits};
use preflop_cluster::Cluster;
use preflop_cluster::collective::Collectives;
use preflop_cluster::data_parallel::{self, Sharding};
use preflop_core::cost::{Power, RankBy, Reserve, fit};
use preflop_core::model::{LowerOptions, Mode, lower};
use preflop_core::schedule::Schedule as _;
use preflop_core::time::TimeModel;
use preflop_core::units::{Bytes, Seconds};
use serde::Serialize;
use std::io::Write as _;

/// Is this a setup such as `8xh100`, rather than the name or file of one GPU?
pub fn is_several(name: &str) -> bool {
    name.split_once('x').is_some_and(|(count, gpu)| !gpu.is_empty() && count.parse::<u64>().is_ok())
}

/// One setup.
#[derive(Debug, Serialize)]
struct Row {
    gpu: String,
    gpus: u64,
    batch: u64,
    precision: &'static str,
    iteration_ms: f64,
    low_ms: f64,
    high_ms: f64,
    samples_per_s: f64,
    scaling_efficiency: f64,
    memory_mib: f64,
    fits: bool,
    usd_per_hour: Option<f64>,
    price_date: Option<String>,
    usd_per_million_samples: Option<f64>,
    joules_per_sample: f64,
}

/// Ranks them.
pub fn run(args: &CompareArgs, output: &Output) -> anyhow::Result<()> {
    refuse(args)?;
    let precision = args.precision.first().copied().unwrap_or_default();
    let batch = match args.batch.as_slice() {
        [] => None,
        [Batch::Fixed(n)] => Some(*n),
        _ => {
            return Err(InputError::new(
                "setups with several GPUs are compared at one `--batch`, that of each GPU",
            )
            .into());
        }
    };
    let graph = input::model(&args.model, batch, args.seq)?;
    let options = graph.settled(LowerOptions { mode: args.mode, precision, optimizer: args.optimizer });
    let iteration = lower(&graph, &options)?;
    let model = TimeModel::embedded();
    let collectives = Collectives::embedded();
    let prices = args.prices.catalogue()?;
    let mut rows = Vec::new();
    for name in &args.gpus {
        let cluster = if is_several(name) {
            Cluster::named(name)?
        } else {
            Cluster::of(preflop_cluster::Node::usual(input::gpu(name)?, 1), 1)
        };
        let gpu = &cluster.node.gpu;
        let one = model.predict_iteration(&iteration, gpu);
        let size = options.precision.weight_bytes();
        let p = data_parallel::predict(
            &iteration,
            &one,
            &cluster,
            &collectives,
            Sharding::Copies,
            size,
            data_parallel::EVEN_IMBALANCE,
        );
        let (low, high) = p.interval.around(p.time);
        let peak = fit::prudent_peak(&iteration);
        let samples = graph.samples * cluster.gpus();
        let rate = samples as f64 / p.time;
        let quote = prices.quote(&gpu.name, args.prices.pricing);
        let usd = quote.as_ref().map(|q| q.usd_per_hour * cluster.gpus() as f64);
        let power = Power::of(&iteration, &one, gpu).watts;
        rows.push(Row {
            gpu: format!("{}x{}", cluster.gpus(), gpu.name),
            gpus: cluster.gpus(),
            batch: samples,
            precision: options.precision.name(),
            iteration_ms: p.time * 1e3,
            low_ms: low * 1e3,
            high_ms: high * 1e3,
            samples_per_s: rate,
            scaling_efficiency: p.efficiency,
            memory_mib: peak.mib(),
            fits: Reserve::default().fits(peak, gpu),
            usd_per_hour: usd,
            price_date: quote.map(|q| q.date.to_string()),
            usd_per_million_samples: usd.map(|u| u / 3600.0 / rate * 1e6),
            joules_per_sample: power * cluster.gpus() as f64 / rate,
        });
    }
    let key = |r: &Row| match args.rank {
        RankBy::Time => 1.0 / r.samples_per_s,
        RankBy::Cost => r.usd_per_million_samples.unwrap_or(f64::INFINITY),
        RankBy::Energy => r.joules_per_sample,
    };
    rows.sort_by(|a, b| b.fits.cmp(&a.fits).then(key(a).total_cmp(&key(b))));
    if output.json {
        return output::print_json(&rows);
    }
    print(&rows, &graph.name, output)
}

fn refuse(args: &CompareArgs) -> anyhow::Result<()> {
    let given = [
        ("--measured", args.measured.is_some()),
        ("--correction", args.correction.is_some()),
        ("--host", args.host.is_some()),
        ("--baseline", args.baseline.is_some()),
        ("--epochs", args.epochs.is_some()),
        ("--dataset-size", args.dataset_size.is_some()),
        ("--deadline", args.deadline.is_some()),
        ("--budget", args.budget.is_some()),
        ("--grams-per-kwh", args.grams_per_kwh.is_some()),
        ("--output", args.output.is_some()),
        ("--plot", args.plot.is_some()),
        ("--mode infer", args.mode == Mode::Infer),
        ("--run, --layout, --checkpoint and --algorithms", !args.form.form().is_plain()),
    ];
    match given.iter().find(|(_, is)| *is) {
        None => Ok(()),
        Some((flag, _)) => {
            Err(InputError::new(format!("`{flag}` is not known for setups with several GPUs"))
                .hint("leave it out, or name single GPUs")
                .into())
        }
    }
}

fn print(rows: &[Row], model: &str, output: &Output) -> anyhow::Result<()> {
    let mut out = output::stdout();
    let title = rows.first().map_or_else(String::new, |r| {
        format!("{model} training, {} samples on each GPU, {}", r.batch / r.gpus.max(1), r.precision)
    });
    writeln!(out, "{}\n", output.bold(&output::wrapped(&title, output.width, "  ")))?;
    let mut table = Grid::new(&[
        ("setup", Align::Keep, 0),
        ("time", Align::Right, 0),
        ("samples/s", Align::Right, 1),
        ("scaling", Align::Right, 2),
        ("memory", Align::Right, 1),
        ("USD/h", Align::Right, 4),
        ("USD/M samples", Align::Right, 3),
        ("J/sample", Align::Right, 5),
    ]);
    let number = |x: Option<f64>| x.map_or_else(|| "-".to_string(), three_digits);
    for r in rows {
        table.row([
            r.gpu.clone(),
            output::time(Seconds(r.iteration_ms / 1e3)),
            three_digits(r.samples_per_s),
            format!("{:.1} %", 100.0 * r.scaling_efficiency),
            if r.fits { output::memory(Bytes::from_mib(r.memory_mib)) } else { "does not fit".to_string() },
            number(r.usd_per_hour),
            number(r.usd_per_million_samples),
            three_digits(r.joules_per_sample),
        ]);
    }
    table.write(&mut out, output)?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setups_are_told_from_gpus() {
        assert!(is_several("8xh100") && is_several("4xrtx-4090"));
        assert!(!is_several("h100") && !is_several("rtx-4090") && !is_several("all") && !is_several("8x"));
    }
}
