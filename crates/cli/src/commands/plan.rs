//! `preflop plan`: the best way to cut a model over a cluster, and why not another.

use super::parallel::{asked_cluster, attention, refuse_of_one_gpu, subject};
use crate::cluster_args::{self, stack};
use crate::error::InputError;
use crate::grid::Grid;
use crate::input;
use crate::output::{self, Align, Output, three_digits};
use crate::run_args::RunArgs;
use clap::Args;
use preflop_api::cluster::exposed;
use preflop_api::cluster::plan::{Answer, Search};
use preflop_cluster::collective::Collectives;
use preflop_cluster::iteration::Setting;
use preflop_cluster::model::Stack;
use preflop_cluster::plan::{Fixed, Objective, Planned, Space, search};
use preflop_cluster::rank::CoreTimes;
use preflop_cluster::scale::short;
use preflop_core::time::TimeModel;
use preflop_core::units::{Bytes, Seconds};
use std::io::Write as _;

/// Find the best parallel plan for a model on a cluster: the whole space, exact within the model
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop plan llama-2-7b --cluster dgx-h100x4 --global-batch 256
  preflop plan llama-2-7b --cluster dgx-h100x4 --global-batch 256 --objective cost --top 3")]
pub struct PlanArgs {
    /// Model name (see `preflop models`) or a file: Hugging Face config.json, captured graph
    model: String,

    /// Cluster: a node (see `preflop cluster list`), NODExCOUNT, 8xGPU, or the path of a cluster or node file
    #[arg(long, value_name = "CLUSTER")]
    cluster: String,

    /// Another GPU in the same nodes
    #[arg(long, value_name = "GPU")]
    gpu: Option<String>,

    /// Sequences of an iteration over all GPUs
    #[arg(long, value_name = "N", value_parser = cluster_args::size)]
    global_batch: u64,

    /// Use at most so many GPUs: smaller clusters are tried too
    #[arg(long, value_name = "N", value_parser = cluster_args::size)]
    max_gpus: Option<u64>,

    /// What is best: time, cost, energy
    #[arg(long, default_value = "time", value_parser = objective)]
    objective: Objective,

    /// Plans to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,

    /// Show only plans that no other beats in time, energy and memory at once
    #[arg(long)]
    pareto: bool,

    /// A size that is fixed, as `tp=8`; may be given several times
    #[arg(long, value_name = "SIZE=N")]
    fixed: Vec<String>,

    /// Software: eager, compiled, megatron, te
    #[arg(long, visible_alias = "profile", value_name = "STACK", default_value = "compiled", value_parser = stack)]
    stack: Stack,

    #[command(flatten)]
    run: RunArgs,
}

fn objective(text: &str) -> Result<Objective, String> {
    input::one_of(
        text,
        &[("time", Objective::Time), ("cost", Objective::Cost), ("energy", Objective::Energy)],
    )
}

/// Runs the search.
pub fn run(args: &PlanArgs, output: &Output) -> anyhow::Result<()> {
    let cluster = asked_cluster(&args.cluster, args.gpu.as_deref(), None)?;
    refuse_of_one_gpu(&args.run)?;
    let subject = subject(&args.model, &args.run, &cluster.node.gpu)?;
    let model = subject.transformer.clone()?;
    let mut fixed = Fixed::default();
    for text in &args.fixed {
        fixed.set(text)?;
    }
    let time_model = TimeModel::embedded();
    let times = CoreTimes { model: &time_model, gpu: &cluster.node.gpu };
    let collectives = Collectives::embedded();
    let formats = cluster_args::formats(args.run.precision, &cluster.node.gpu);
    let space = Space {
        global_batch: args.global_batch,
        fixed,
        stack: args.stack,
        attention: attention(&args.run),
        objective: args.objective,
    };
    let mut sizes = vec![cluster.gpus()];
    if let Some(most) = args.max_gpus {
        sizes = preflop_cluster::scale::sizes(1, most.min(cluster.gpus()), cluster.node.gpus);
    }
    let mut all = preflop_cluster::plan::Plans::default();
    for gpus in sizes {
        let part = cluster.clone().with_gpus(gpus)?;
        let setting = Setting {
            model: &model,
            seq: subject.seq,
            dtype: formats[0],
            product: formats[1],
            cluster: &part,
            collectives: &collectives,
            contention: None,
            host: args.stack.host(),
        };
        let found = search(&setting, &space, &times);
        let better = all.plans.is_empty() || args.max_gpus.is_none();
        all = if better { found.merged(all, args.objective) } else { all.merged(found, args.objective) };
    }
    if all.plans.is_empty() {
        if all.nearest.is_none() {
            fixed.check(&model, subject.seq, &cluster)?;
        }
        return Err(none_fits(&all, args, &model, &cluster).into());
    }
    let usd = cluster_args::price(&cluster).map(|(usd, _)| usd / cluster.gpus() as f64);
    let shown: Vec<Planned> = if args.pareto { all.pareto() } else { all.plans.clone() };
    let tokens = (args.global_batch * subject.seq) as f64;
    if output.json {
        return output::print_json(&Answer::of(&Search {
            model: &model.name,
            seq: subject.seq,
            cluster: &cluster,
            global_batch: args.global_batch,
            usd_per_gpu_hour: usd,
            found: &all,
            shown: &shown,
            top: args.top.max(1),
        }));
    }
    let mut out = output::stdout();
    let title = format!(
        "{} on {}: {} plans tried, {} of them too large",
        model.name, cluster.name, all.considered, all.too_large
    );
    writeln!(out, "{}\n", output.bold(&output::wrapped(&title, output.width, "  ")))?;
    let rows = || shown.iter().take(args.top.max(1));
    let share = |t: f64, p: &Planned| format!("{:.0} %", 100.0 * t / p.time);
    let mut grid = Grid::default();
    grid.add("plan", Align::Keep, 0, rows().map(|p| short(&p.strategy)));
    let micro = |p: &Planned| format!("{} x {}", p.strategy.micro_batch, p.strategy.microbatches());
    grid.add("micro batch", Align::Right, 4, rows().map(micro));
    grid.add("recompute", Align::Keep, 5, rows().map(|p| p.strategy.recompute.name().to_string()));
    grid.add("time", Align::Right, 0, rows().map(|p| output::time(Seconds(p.time))));
    let rate = |p: &Planned| output::si(tokens / p.time / p.gpus as f64, "").trim_end().to_string();
    grid.add("tokens/s/GPU", Align::Right, 2, rows().map(rate));
    grid.add("bubble", Align::Right, 6, rows().map(|p| share(p.breakdown.pp_bubble, p)));
    grid.add("exposed", Align::Right, 6, rows().map(|p| share(exposed(&p.breakdown), p)));
    grid.add("memory", Align::Right, 1, rows().map(|p| output::memory(Bytes(p.memory))));
    let dollars = |p: &Planned| {
        let of = |u: f64| three_digits(u * p.gpus as f64 * p.time / 3600.0 / tokens * 1e6);
        usd.map_or_else(|| "-".to_string(), of)
    };
    grid.add("USD/M tokens", Align::Right, 3, rows().map(dollars));
    grid.write(&mut out, output)?;
    let why = all.why_not(&cluster);
    if !why.is_empty() {
        writeln!(out, "\n{}", output.bold("Why not"))?;
        for w in why {
            let line = format!("{}: {}", w.what, w.why);
            writeln!(out, "{}", output::hanging("  ", &line, output.width))?;
        }
    }
    Ok(out.flush()?)
}

fn none_fits(
    all: &preflop_cluster::plan::Plans,
    args: &PlanArgs,
    model: &preflop_cluster::model::Transformer,
    cluster: &preflop_cluster::Cluster,
) -> InputError {
    let Some(p) = all.nearest else {
        let message = format!(
            "no plan divides `{}` ({} heads, {} layers) and a global batch of {} over {} GPUs",
            model.name,
            model.heads,
            model.layers,
            args.global_batch,
            cluster.gpus()
        );
        let next = args.global_batch.next_multiple_of(cluster.gpus());
        let hint = if next == args.global_batch {
            "fix fewer sizes".to_string()
        } else {
            format!("a global batch of {next} divides; or fix fewer sizes")
        };
        return InputError::new(message).hint(hint);
    };
    let room = cluster.node.gpu.memory;
    let message = format!(
        "no plan of `{}` fits on {}: the smallest of {} needs {} of {} ({})",
        model.name,
        cluster.name,
        all.considered,
        output::memory(Bytes(p.memory)),
        output::memory(room),
        short(&p.strategy)
    );
    let nodes = (cluster.count as f64 * p.memory / room.0).ceil() as u64;
    let larger = format!("{}x{}", cluster.node.name, nodes.next_power_of_two());
    InputError::new(message).hint(format!("take `{larger}` or a GPU with more memory"))
}
