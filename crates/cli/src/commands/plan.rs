//! `preflop plan`: the best way to cut a model over a cluster, and why not another.

use super::parallel::{asked_cluster, attention, subject};
use crate::cluster_args::{self, stack};
use crate::error::InputError;
use crate::input;
use crate::output::{self, Align, Output, three_digits};
use crate::run_args::RunArgs;
use clap::Args;
use preflop_cluster::collective::Collectives;
use preflop_cluster::iteration::Setting;
use preflop_cluster::model::Stack;
use preflop_cluster::plan::{Fixed, Objective, Planned, Space, search};
use preflop_cluster::rank::CoreTimes;
use preflop_cluster::scale::short;
use preflop_core::time::TimeModel;
use preflop_core::units::{Bytes, Seconds};
use serde_json::json;
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
    let subject = subject(&args.model, &args.run)?;
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
    let mut whole = cluster.clone();
    for gpus in sizes {
        let part = cluster.clone().with_gpus(gpus)?;
        let setting = Setting {
            model: &model,
            seq: subject.seq,
            dtype: formats[0],
            product: formats[1],
            cluster: &part,
            collectives: &collectives,
            contention: preflop_cluster::iteration::CONTENTION,
            host: args.stack.host(),
        };
        let found = search(&setting, &space, &times);
        let better = all.plans.is_empty() || args.max_gpus.is_none();
        all = if better { found.merged(all, args.objective) } else { all.merged(found, args.objective) };
        whole = part;
    }
    if all.plans.is_empty() {
        return Err(none_fits(&all, args, &model, &cluster).into());
    }
    let usd = cluster_args::price(&cluster).map(|(usd, _)| usd / cluster.gpus() as f64);
    let shown: Vec<Planned> = if args.pareto { all.pareto() } else { all.plans.clone() };
    let tokens = (args.global_batch * subject.seq) as f64;
    if output.json {
        let plans: Vec<_> = shown.iter().take(args.top.max(1)).map(|p| row(p, usd, tokens)).collect();
        let why: Vec<_> = all
            .why_not(&whole)
            .iter()
            .map(|w| json!({"change": w.what, "ratio": w.ratio, "why": w.why}))
            .collect();
        return output::print_json(&json!({
            "model": model.name, "cluster": cluster.name, "gpus": cluster.gpus(), "global_batch": args.global_batch,
            "seq": subject.seq, "considered": all.considered, "too_large": all.too_large, "plans": plans, "why_not": why,
        }));
    }
    let mut out = output::stdout();
    let title = format!(
        "{} on {}: {} plans tried, {} of them too large",
        model.name, cluster.name, all.considered, all.too_large
    );
    writeln!(out, "{}\n", output.bold(&output::wrapped(&title, output.width, "  ")))?;
    let mut table = output.table(&[
        ("plan", Align::Keep),
        ("micro batch", Align::Right),
        ("recompute", Align::Keep),
        ("time", Align::Right),
        ("tokens/s/GPU", Align::Right),
        ("bubble", Align::Right),
        ("exposed", Align::Right),
        ("memory", Align::Right),
        ("USD/M tokens", Align::Right),
    ]);
    for p in shown.iter().take(args.top.max(1)) {
        let b = p.breakdown;
        let links = b.tp_exposed + b.cp_exposed + b.ep_exposed + b.dp_exposed + b.pp_transfer;
        table.add_row([
            short(&p.strategy),
            format!("{} x {}", p.strategy.micro_batch, p.strategy.microbatches()),
            p.strategy.recompute.name().to_string(),
            output::time(Seconds(p.time)),
            output::si(tokens / p.time / p.gpus as f64, "").trim_end().to_string(),
            format!("{:.0} %", 100.0 * b.pp_bubble / p.time),
            format!("{:.0} %", 100.0 * links / p.time),
            output::memory(Bytes(p.memory)),
            usd.map_or_else(
                || "-".to_string(),
                |u| three_digits(u * p.gpus as f64 * p.time / 3600.0 / tokens * 1e6),
            ),
        ]);
    }
    output::write_table(&mut out, &table)?;
    let why = all.why_not(&whole);
    if !why.is_empty() {
        writeln!(out, "\n{}", output.bold("Why not"))?;
        for w in why {
            writeln!(out, "  {}: {}", w.what, w.why)?;
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
        return InputError::new(message)
            .hint(format!("a global batch of {next} divides; or fix fewer sizes"));
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

fn row(p: &Planned, usd: Option<f64>, tokens: f64) -> serde_json::Value {
    let s = p.strategy;
    let breakdown: serde_json::Map<String, serde_json::Value> =
        p.breakdown.parts().iter().map(|(name, t)| ((*name).to_string(), json!(t * 1e3))).collect();
    json!({
        "gpus": p.gpus, "tp": s.tp, "cp": s.cp, "pp": s.pp, "dp": s.dp, "ep": s.ep, "interleave": s.interleave,
        "micro_batch": s.micro_batch, "microbatches": s.microbatches(), "zero": s.stage(), "recompute": s.recompute,
        "sequence_parallel": s.sequence_parallel, "stack": s.stack, "iteration_ms": p.time * 1e3,
        "memory_mib": p.memory / 1_048_576.0, "tokens_per_s": tokens / p.time,
        "tokens_per_s_per_gpu": tokens / p.time / p.gpus as f64,
        "usd_per_hour": usd.map(|u| u * p.gpus as f64),
        "usd_per_million_tokens": usd.map(|u| u * p.gpus as f64 * p.time / 3600.0 / tokens * 1e6),
        "joules_per_iteration": p.joules, "breakdown_ms": breakdown,
    })
}
