//! `preflop predict --cluster`: one iteration on several GPUs, cut by tensors, layers, sequences, experts and samples.

mod answer;
mod any;

use super::parallel_page;
use crate::cluster_args::{self, ParallelArgs};
use crate::destination;
use crate::error::{InputError, Partly};
use crate::input;
use crate::output::{self, Output};
use crate::run_args::{Algorithms, AttentionChoice, FormArgs, Job, Layout, ModeChoice, RunArgs};
use answer::Answer;
use preflop_api::cluster::parallel::Case;
use preflop_cluster::iteration::Outcome;
use preflop_cluster::model::{Attention, Transformer};
use preflop_cluster::rank::CoreTimes;
use preflop_cluster::run::{Part, Way};
use preflop_cluster::strategy::Strategy;
use preflop_cluster::timeline::{self, Bar};
use preflop_cluster::{Cluster, ClusterError};
use preflop_core::Gpu;
use preflop_core::cost::search;
use preflop_core::model::{Checkpoint, Precision};
use preflop_core::units::Bytes;
use preflop_language::words;

/// A model as a cluster sees it.
pub struct Subject {
    /// The model as read.
    pub job: Job,
    /// Its roles, or why they are not known.
    pub transformer: Result<Transformer, ClusterError>,
    /// Tokens of a sequence.
    pub seq: u64,
}

/// Reads a model and recognises its roles, in formats that this GPU has.
pub fn subject(model: &str, run: &RunArgs, gpu: &Gpu) -> anyhow::Result<Subject> {
    if let Some(lacks) = run.precision.and_then(|precision| search::lacks(gpu, precision)) {
        return Err(InputError::new(lacks).into());
    }
    let precision = Some(run.precision.unwrap_or(Precision::Bf16));
    // Roles are those of the model as it is: how it is run is the plan's.
    let form = FormArgs { launching: None, checkpoint: Checkpoint::None, ..run.form };
    let plain = RunArgs {
        attention: AttentionChoice::Fused,
        precision,
        optimizer: None,
        lora: None,
        qlora: None,
        form,
        ..run.clone()
    };
    let job = plain.job(model, None, None)?;
    let transformer = Transformer::recognise(&job.graph.name, &job.iteration);
    let seq = job.graph.seq.unwrap_or(0);
    Ok(Subject { job, transformer, seq })
}

/// Refuses what a search over plans chooses itself, and what no plan has a word for.
pub fn refuse_of_one_gpu(run: &RunArgs) -> anyhow::Result<()> {
    let form = &run.form;
    for (option, given, instead) in [
        ("--batch", run.batch.is_some(), "`--global-batch` says the sequences of an iteration"),
        ("--optimizer", run.optimizer.is_some(), "plans train with Adam"),
        ("--lora", run.lora.is_some(), "plans train the whole model"),
        ("--qlora", run.qlora.is_some(), "plans train the whole model"),
        ("--run", form.launching.is_some(), "`--stack` says the software"),
        ("--layout", form.layout != Layout::Nchw, "it is for convolutions on one GPU"),
        (
            "--checkpoint",
            !form.checkpoint.is_none(),
            "plans choose what is computed again: `--fixed recompute=full` fixes it",
        ),
        ("--algorithms", form.algorithms != Algorithms::Heuristic, "it is for convolutions on one GPU"),
        ("--mode", run.mode != ModeChoice::Train, "plans are for training"),
    ] {
        if given {
            let message = format!("`{option}` says how one GPU runs a model");
            return Err(InputError::new(message).hint(instead).into());
        }
    }
    Ok(())
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
    wanted: &Wanted<'_>,
    output: &Output,
) -> anyhow::Result<()> {
    if run.mode != ModeChoice::Train {
        let message = format!("`--cluster` predicts training; `--mode {}` is for one GPU", run.mode.name());
        return Err(InputError::new(message).hint("leave out `--mode` or `--cluster`").into());
    }
    let cluster = asked_cluster(cluster, gpu, args.gpus)?;
    let time_model = input::time_model(wanted.correction, [&cluster.node.gpu])?;
    let subject = subject(model, run, &cluster.node.gpu)?;
    let part = Part {
        batch: run.batch,
        options: run.options(),
        form: run.form.form(),
        adapters: run.lora.or(run.qlora).is_some(),
        recorded: subject.job.graph.fixed.is_some(),
    };
    let times = CoreTimes { model: &time_model, gpu: &cluster.node.gpu };
    let asked = Asked { run, args, wanted, cluster: &cluster, subject: &subject, times: &times };
    let misfit = match (
        args.asked().way(&part, &subject.transformer, &cluster, attention(run))?,
        &subject.transformer,
    ) {
        (Way::Cut(strategy), Ok(transformer)) => sharded(&asked, transformer, &strategy, output)?,
        (Way::Cut(strategy) | Way::Copied(strategy), _) => any::replicated(model, &asked, &strategy, output)?,
    };
    match misfit.filter(|_| wanted.fit) {
        Some(misfit) => Err(Partly(misfit).into()),
        None => Ok(()),
    }
}

/// What is wanted beside the iteration.
pub struct Wanted<'a> {
    /// The user's own correction.
    pub correction: Option<&'a str>,
    /// Must it fit?
    pub fit: bool,
    /// Tokens to read in all.
    pub tokens: Option<u64>,
}

struct Asked<'a> {
    run: &'a RunArgs,
    args: &'a ParallelArgs,
    wanted: &'a Wanted<'a>,
    cluster: &'a Cluster,
    subject: &'a Subject,
    times: &'a CoreTimes<'a>,
}

/// Says what a model takes that is cut by its roles; where it does not fit, that.
fn sharded(
    asked: &Asked<'_>,
    transformer: &Transformer,
    strategy: &Strategy,
    output: &Output,
) -> anyhow::Result<Option<String>> {
    let cluster = asked.cluster;
    let formats = cluster_args::formats(asked.run.precision, &cluster.node.gpu);
    let case =
        Case { model: transformer, seq: asked.subject.seq, dtypes: formats, cluster, times: asked.times };
    let (outcome, costs) = case.predict(strategy)?;
    if asked.args.trace.is_some() || asked.args.page.is_some() {
        let bars = timeline::of_outcome(strategy, &outcome, &costs, transformer);
        write_views(asked.args, &bars, &outcome, &transformer.name, cluster)?;
    }
    let price = cluster_args::price(cluster);
    let mut said = case.answer(strategy, &outcome, &costs, price.as_ref().map(|(usd, _)| *usd));
    said.tokens_hours = asked.wanted.tokens.map(|n| words::hours_of(n, said.tokens_per_s));
    let room = cluster.node.gpu.memory;
    let misfit = outcome.fullest().filter(|_| !outcome.fits()).map(|r| misfit(Bytes(r.total()), room));
    if output.json {
        output::print_json(&said)?;
    } else {
        Answer { asked, transformer, strategy, outcome: &outcome, formats, said, price }.print(output)?;
    }
    Ok(misfit)
}

/// What is said where there is no room.
fn misfit(needed: Bytes, room: Bytes) -> String {
    format!("does not fit: a GPU needs {}, it has {}", output::memory(needed), output::memory(room))
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
