//! Any model on several GPUs: every one runs it on its own samples; gradients are reduced, or parameters sharded.

use super::Subject;
use crate::cluster_args::{self, ParallelArgs};
use crate::error::InputError;
use crate::output::{self, Output, three_digits};
use crate::run_args::{Job, RunArgs};
use preflop_cluster::Cluster;
use preflop_cluster::collective::Collectives;
use preflop_cluster::data_parallel::{self, DataParallel, Sharding};
use preflop_cluster::strategy::Strategy;
use preflop_core::cost::{Reserve, fit};
use preflop_core::schedule::Schedule as _;
use preflop_core::time::TimeModel;
use preflop_core::units::{Bytes, Seconds};
use serde_json::json;
use std::io::Write as _;

/// Any model on every GPU, its gradients reduced or its parameters sharded.
#[allow(clippy::too_many_arguments)]
pub(super) fn replicated(
    model: &str,
    run: &RunArgs,
    args: &ParallelArgs,
    cluster: &Cluster,
    subject: &Subject,
    strategy: &Strategy,
    time_model: &TimeModel,
    output: &Output,
) -> anyhow::Result<()> {
    strategy.check_count(cluster)?;
    for (flag, given) in [
        ("--recompute", args.recompute.is_some()),
        ("--offload", args.offload.is_some()),
        ("--schedule", args.schedule.is_some()),
        ("--sequence-parallel", args.sequence_parallel),
        ("--micro-batch", args.micro_batch.is_some()),
        ("--global-batch", args.global_batch.is_some()),
        ("--trace", args.trace.is_some()),
        ("--page", args.page.is_some()),
        ("--stack", args.stack.is_some()),
    ] {
        if given {
            let why = match &subject.transformer {
                Err(error) => error.to_string(),
                Ok(_) => "a recorded step keeps what it ran".to_string(),
            };
            return Err(InputError::new(format!("`{flag}` is not known for this model: {why}"))
                .hint("say the samples of one GPU with `--batch`")
                .into());
        }
    }
    let job = run.job(model, None, None)?;
    let one = time_model.predict_iteration(&job.iteration, &cluster.node.gpu);
    let sharding = match (strategy.fsdp, strategy.stage()) {
        (Some(how), _) => Sharding::Shards(how),
        (None, 1 | 2) => Sharding::States,
        _ => Sharding::Copies,
    };
    let size = job.options.precision.weight_bytes();
    let p = data_parallel::predict(
        &job.iteration,
        &one,
        cluster,
        &Collectives::embedded(),
        sharding,
        size,
        data_parallel::EVEN_IMBALANCE,
    );
    let peak = data_parallel::peak(
        &job.iteration,
        fit::prudent_peak(&job.iteration),
        cluster,
        strategy.stage(),
        p.bytes,
    );
    let fits = Reserve::default().fits(Bytes(peak), &cluster.node.gpu);
    print_replicated(&p, &job, cluster, strategy, peak, fits, output)
}

fn print_replicated(
    p: &DataParallel,
    job: &Job,
    cluster: &Cluster,
    strategy: &Strategy,
    peak: f64,
    fits: bool,
    output: &Output,
) -> anyhow::Result<()> {
    let (low, high) = p.interval.around(p.time);
    let samples = job.graph.samples * cluster.gpus();
    let rate = samples as f64 / p.time;
    let price = cluster_args::price(cluster);
    if output.json {
        return output::print_json(&json!({
            "model": job.graph.name, "gpu": cluster.node.gpu.name, "cluster": cluster.name, "batch": samples,
            "seq": job.graph.seq, "precision": job.options.precision, "mode": job.options.mode,
            "iteration_ms": p.time * 1e3, "low_ms": low * 1e3, "high_ms": high * 1e3,
            "memory_mib": Bytes(peak).mib(), "fits": fits, "samples_per_s": rate,
            "parallel": {"gpus": cluster.gpus(), "nodes": cluster.count, "dp": cluster.gpus(), "tp": 1, "pp": 1, "cp": 1,
                "ep": 1, "zero": strategy.stage(), "micro_batch": job.graph.samples, "microbatches": 1, "interleave": 1},
            "breakdown_ms": {"compute": p.alone * 1e3, "dp_exposed": p.exposed * 1e3, "straggler": p.waiting * 1e3},
            "links_ms": p.links * 1e3, "scaling_efficiency": p.efficiency,
            "usd_per_hour": price.as_ref().map(|(usd, _)| usd),
            "usd_per_million_samples": price.as_ref().map(|(usd, _)| usd / 3600.0 / rate * 1e6),
        }));
    }
    let time = |t: f64| output::time(Seconds(t));
    let mut out = output::stdout();
    let title = format!(
        "{} training, {} samples on each of {} GPUs, {} on {}",
        job.graph.name,
        job.graph.samples,
        cluster.gpus(),
        job.options.precision.name(),
        cluster.name
    );
    writeln!(out, "{}\n", output.bold(&output::wrapped(&title, output.width, "  ")))?;
    let facts = [
        (
            "time",
            format!(
                "{} per iteration (90 % interval {} to {})",
                output.bold(&time(p.time)),
                time(low),
                time(high)
            ),
        ),
        ("throughput", format!("{} samples/s", three_digits(rate))),
        (
            "scaling",
            format!("{:.1} % of perfect: one GPU alone takes {}", 100.0 * p.efficiency, time(p.alone)),
        ),
        (
            "links",
            format!(
                "{} of reductions, {} of them not hidden; {} of waiting for the slowest rank",
                time(p.links),
                time(p.exposed),
                time(p.waiting)
            ),
        ),
        (
            "memory",
            format!(
                "{} of {}: {}",
                output::memory(Bytes(peak)),
                output::memory(cluster.node.gpu.memory),
                if fits { "fits" } else { "DOES NOT FIT" }
            ),
        ),
    ];
    for (what, text) in facts {
        writeln!(out, "{}", output::hanging(&format!("  {what:<11} "), &text, output.width))?;
    }
    Ok(out.flush()?)
}
