//! `preflop predict --cluster`: one iteration on several GPUs, cut by tensors, layers, sequences, experts and samples.

mod answer;
mod any;

use super::parallel_page;
use crate::cluster_args::{self, ParallelArgs};
use crate::destination;
use crate::error::InputError;
use crate::input;
use crate::output::{self, Output};
use crate::run_args::{AttentionChoice, Job, ModeChoice, RunArgs};
use answer::Answer;
use preflop_api::cluster::parallel::Case;
use preflop_cluster::iteration::Outcome;
use preflop_cluster::model::{Attention, Transformer};
use preflop_cluster::rank::CoreTimes;
use preflop_cluster::strategy::Strategy;
use preflop_cluster::timeline::{self, Bar};
use preflop_cluster::{Cluster, ClusterError};
use preflop_core::model::Precision;
use preflop_core::time::TimeModel;

/// A model as a cluster sees it.
pub struct Subject {
    /// The model as read.
    pub job: Job,
    /// Its roles, or why they are not known.
    pub transformer: Result<Transformer, ClusterError>,
    /// Tokens of a sequence.
    pub seq: u64,
}

/// Reads a model and recognises its roles.
pub fn subject(model: &str, run: &RunArgs) -> anyhow::Result<Subject> {
    let precision = Some(run.precision.unwrap_or(Precision::Bf16));
    let plain = RunArgs { attention: AttentionChoice::Fused, precision, ..run.clone() };
    let job = plain.job(model, None, None)?;
    let transformer = Transformer::recognise(&job.graph.name, &job.iteration);
    let seq = job.graph.seq.unwrap_or(0);
    Ok(Subject { job, transformer, seq })
}

/// Attention as the run says.
pub fn attention(run: &RunArgs) -> Attention {
    if run.attention == AttentionChoice::Eager { Attention::Eager } else { Attention::Fused }
}

/// The cluster of a question, cut down where it says so.
pub fn asked_cluster(name: &str, gpu: Option<&str>, gpus: Option<u64>) -> anyhow::Result<Cluster> {
    let cluster = cluster_args::cluster(name, gpu)?;
    let cluster = match gpus {
        Some(gpus) => cluster.with_gpus(gpus)?,
        None => cluster,
    };
    if cluster.count > 1 && cluster.node.network.0 <= 0.0 {
        let message = format!("`{}` has {} nodes and no network between them", cluster.name, cluster.count);
        return Err(InputError::new(message)
            .hint("name a node of `preflop cluster list`, or give a file with `[outside]`")
            .into());
    }
    Ok(cluster)
}

/// Runs the prediction.
pub fn run(
    model: &str,
    cluster: &str,
    gpu: Option<&str>,
    run: &RunArgs,
    args: &ParallelArgs,
    correction: Option<&str>,
    output: &Output,
) -> anyhow::Result<()> {
    if run.mode != ModeChoice::Train {
        let message = format!("`--cluster` predicts training; `--mode {}` is for one GPU", run.mode.name());
        return Err(InputError::new(message).hint("leave out `--mode` or `--cluster`").into());
    }
    let cluster = asked_cluster(cluster, gpu, args.gpus)?;
    let time_model = input::time_model(correction, [&cluster.node.gpu])?;
    let subject = subject(model, run)?;
    let strategy = args.strategy(&cluster, attention(run));
    let cuts =
        [strategy.tp, strategy.cp, strategy.pp, strategy.ep, strategy.interleave].iter().any(|n| *n > 1);
    match &subject.transformer {
        Ok(transformer) if subject.job.graph.fixed.is_none() || cuts => sharded(
            &Asked { run, args, cluster: &cluster, subject: &subject, transformer },
            &strategy,
            &time_model,
            output,
        ),
        Err(error) if cuts => Err(error.clone().into()),
        _ => any::replicated(model, run, args, &cluster, &subject, &strategy, &time_model, output),
    }
}

struct Asked<'a> {
    run: &'a RunArgs,
    args: &'a ParallelArgs,
    cluster: &'a Cluster,
    subject: &'a Subject,
    transformer: &'a Transformer,
}

fn sharded(
    asked: &Asked<'_>,
    strategy: &Strategy,
    time_model: &TimeModel,
    output: &Output,
) -> anyhow::Result<()> {
    let cluster = asked.cluster;
    let formats = cluster_args::formats(asked.run.precision, &cluster.node.gpu);
    let case = Case {
        model: asked.transformer,
        seq: asked.subject.seq,
        dtypes: formats,
        cluster,
        times: &CoreTimes { model: time_model, gpu: &cluster.node.gpu },
    };
    let (outcome, costs) = case.predict(strategy)?;
    if asked.args.trace.is_some() || asked.args.page.is_some() {
        let bars = timeline::of_outcome(strategy, &outcome, &costs, asked.transformer);
        write_views(asked.args, &bars, &outcome, &asked.transformer.name, cluster)?;
    }
    let price = cluster_args::price(cluster);
    let said = case.answer(strategy, &outcome, &costs, price.as_ref().map(|(usd, _)| *usd));
    if output.json {
        return output::print_json(&said);
    }
    Answer { asked, strategy, outcome: &outcome, formats, said, price }.print(output)
}

fn write_views(
    args: &ParallelArgs,
    bars: &[Bar],
    outcome: &Outcome,
    model: &str,
    cluster: &Cluster,
) -> anyhow::Result<()> {
    let title = format!("{model} on {}", cluster.name);
    if let Some(path) = &args.trace {
        let trace = serde_json::to_vec(&timeline::chrome_trace(bars, &title))?;
        destination::write_bytes(path, trace)?;
    }
    if let Some(path) = &args.page {
        let page = parallel_page::page(&title, bars, &outcome.breakdown);
        destination::write_bytes(path, page)?;
    }
    Ok(())
}
