//! Any model on several GPUs: every one runs it on its own samples; gradients are reduced, or parameters sharded.

use super::answer::tokens;
use super::{Asked, misfit};
use crate::cluster_args;
use crate::error::InputError;
use crate::output::{self, Output, three_digits};
use crate::run_args::{Job, RunArgs};
use preflop_cluster::Cluster;
use preflop_cluster::collective::Collectives;
use preflop_cluster::run::Copies;
use preflop_cluster::strategy::Strategy;
use preflop_core::cost::Reserve;
use preflop_core::model::Precision;
use preflop_core::units::{Bytes, Seconds};
use preflop_language::words;
use serde_json::json;
use std::io::Write as _;

/// Any model on every GPU, its gradients reduced or its parameters sharded; where it does not fit, that.
pub(super) fn replicated(
    model: &str,
    asked: &Asked<'_>,
    strategy: &Strategy,
    output: &Output,
) -> anyhow::Result<Option<String>> {
    for (flag, given) in [("--trace", asked.args.trace.is_some()), ("--page", asked.args.page.is_some())] {
        if given {
            let message = format!("`{flag}` shows stages of a plan; here every GPU runs the whole model");
            return Err(InputError::new(message).into());
        }
    }
    let cluster = asked.cluster;
    // A transformer is trained in the same formats whichever way it goes.
    let precision = asked.run.precision.or(asked.subject.transformer.is_ok().then_some(Precision::Bf16));
    let job = RunArgs { precision, ..asked.run.clone() }.job(model, None, None)?;
    let size = job.options.precision.weight_bytes();
    let collectives = Collectives::embedded();
    let copies = Copies::predict(&job.iteration, asked.times, cluster, &collectives, strategy, size);
    let rate = (job.graph.samples * cluster.gpus()) as f64 / copies.data.time;
    let hours = match (asked.wanted.tokens, job.graph.seq) {
        (Some(n), Some(seq)) => Some((n, words::hours_of(n, rate * seq as f64))),
        (Some(n), None) => {
            let message =
                format!("`--tokens {n}` is for models that read tokens; `{}` does not", job.graph.name);
            return Err(InputError::new(message).into());
        }
        (None, _) => None,
    };
    let needed = Reserve::default().needed(copies.peak);
    print_replicated(&copies, needed, (&job, rate, hours), cluster, strategy, output)?;
    Ok((!copies.fits).then(|| misfit(needed, cluster.node.gpu.memory)))
}

fn print_replicated(
    copies: &Copies,
    needed: Bytes,
    (job, rate, hours): (&Job, f64, Option<(u64, f64)>),
    cluster: &Cluster,
    strategy: &Strategy,
    output: &Output,
) -> anyhow::Result<()> {
    let Copies { data: p, peak, fits } = copies;
    let (low, high) = p.interval.around(p.time);
    let samples = job.graph.samples * cluster.gpus();
    let price = cluster_args::price(cluster);
    if output.json {
        let mut said = json!({
            "model": job.graph.name, "gpu": cluster.node.gpu.name, "cluster": cluster.name, "batch": samples,
            "seq": job.graph.seq, "precision": job.options.precision, "mode": job.options.mode,
            "iteration_ms": p.time * 1e3, "low_ms": low * 1e3, "high_ms": high * 1e3,
            "memory_mib": peak.mib(), "needed_mib": needed.mib(), "fits": fits, "samples_per_s": rate,
            "parallel": {"gpus": cluster.gpus(), "nodes": cluster.count, "dp": cluster.gpus(), "tp": 1, "pp": 1, "cp": 1,
                "ep": 1, "zero": strategy.stage(), "micro_batch": job.graph.samples, "microbatches": 1, "interleave": 1},
            "breakdown_ms": {"compute": p.alone * 1e3, "dp_exposed": p.exposed * 1e3, "straggler": p.waiting * 1e3},
            "links_ms": p.links * 1e3, "scaling_efficiency": p.efficiency,
            "usd_per_hour": price.as_ref().map(|(usd, _)| usd),
            "usd_per_million_samples": price.as_ref().map(|(usd, _)| usd / 3600.0 / rate * 1e6),
        });
        if let Some((_, hours)) = hours {
            said["tokens_hours"] = json!(hours);
        }
        return output::print_json(&said);
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
    let mut facts = vec![
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
                output::memory(*peak),
                output::memory(cluster.node.gpu.memory),
                if *fits { "fits" } else { "DOES NOT FIT" }
            ),
        ),
    ];
    facts.extend(hours.map(|(n, hours)| ("tokens", tokens(n, hours))));
    facts.extend(job.notes.iter().map(|note| ("note", note.clone())));
    for (what, text) in facts {
        writeln!(out, "{}", output::hanging(&format!("  {what:<11} "), &text, output.width))?;
    }
    Ok(out.flush()?)
}
