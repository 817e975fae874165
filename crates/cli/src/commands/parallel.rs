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
use preflop_cluster::collective::Collectives;
use preflop_cluster::iteration::{Outcome, Setting, ShardCosts};
use preflop_cluster::model::{Attention, Transformer};
use preflop_cluster::rank::CoreTimes;
use preflop_cluster::strategy::{Recompute, Strategy};
use preflop_cluster::timeline::{self, Bar};
use preflop_cluster::{Cluster, ClusterError};
use preflop_core::time::TimeModel;
use preflop_core::{Dtype, model::Precision};

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
    let times = CoreTimes { model: time_model, gpu: &cluster.node.gpu };
    let collectives = Collectives::embedded();
    let formats = cluster_args::formats(asked.run.precision, &cluster.node.gpu);
    let seq = asked.subject.seq;
    let setting = Setting {
        model: asked.transformer,
        seq,
        dtype: formats[0],
        product: formats[1],
        cluster,
        collectives: &collectives,
        contention: preflop_cluster::iteration::CONTENTION,
        host: strategy.stack.host(),
    };
    let predict = |s: &Strategy| -> Result<(Outcome, ShardCosts), ClusterError> {
        s.check(asked.transformer, seq, cluster)?;
        let costs = ShardCosts::new(asked.transformer, s.shard(seq, formats[0], formats[1]), &times);
        Ok((setting.predict(s, &costs, &times)?, costs))
    };
    let (outcome, costs) = predict(strategy)?;
    let bars = timeline::of_outcome(strategy, &outcome, &costs, asked.transformer);
    write_views(asked.args, &bars, &outcome, &asked.transformer.name, cluster)?;
    let alone = one_gpu(asked, strategy, &times, formats).ok();
    let suggestions = suggestions(strategy, &outcome, &|s| predict(s).ok().map(|(o, _)| o));
    let answer = Answer::new(asked, strategy, &outcome, alone, formats, suggestions);
    if output.json {
        return output::print_json(&answer.json());
    }
    answer.print(output)
}

/// Seconds that one GPU alone would need for its part of the samples, whether it would fit or not.
fn one_gpu(
    asked: &Asked<'_>,
    strategy: &Strategy,
    times: &CoreTimes<'_>,
    formats: [Dtype; 2],
) -> Result<f64, ClusterError> {
    let cluster = Cluster::of(asked.cluster.node.clone(), 1).with_gpus(1)?;
    let one = Strategy {
        stack: strategy.stack,
        attention: strategy.attention,
        micro_batch: strategy.micro_batch,
        global_batch: strategy.micro_batch
            * (strategy.global_batch / (strategy.micro_batch * strategy.gpus())).max(1),
        recompute: strategy.recompute,
        ..Strategy::default()
    };
    let collectives = Collectives::embedded();
    let setting = Setting {
        model: asked.transformer,
        seq: asked.subject.seq,
        dtype: formats[0],
        product: formats[1],
        cluster: &cluster,
        collectives: &collectives,
        contention: preflop_cluster::iteration::CONTENTION,
        host: strategy.stack.host(),
    };
    let costs =
        ShardCosts::new(asked.transformer, one.shard(asked.subject.seq, formats[0], formats[1]), times);
    let samples = strategy.global_batch as f64 / strategy.gpus() as f64;
    Ok(setting.predict(&one, &costs, times)?.time * samples / one.global_batch as f64)
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

/// A change that would be faster, or would fit.
pub struct Advice {
    what: String,
    gain: f64,
    fits: bool,
    memory: f64,
}

/// Neighbours of a strategy that are faster or fit where it does not, best first.
fn suggestions(
    s: &Strategy,
    outcome: &Outcome,
    predict: &dyn Fn(&Strategy) -> Option<Outcome>,
) -> Vec<Advice> {
    let mut tries: Vec<(String, Strategy)> = Vec::new();
    let mut add = |what: String, to: Strategy| tries.push((what, to));
    add(format!("micro batch {}", s.micro_batch * 2), Strategy { micro_batch: s.micro_batch * 2, ..*s });
    if s.micro_batch > 1 {
        add(format!("micro batch {}", s.micro_batch / 2), Strategy { micro_batch: s.micro_batch / 2, ..*s });
    }
    for recompute in Recompute::ALL.into_iter().filter(|r| *r != s.recompute) {
        add(format!("--recompute {}", recompute.name()), Strategy { recompute, ..*s });
    }
    if s.tp > 1 && !s.sequence_parallel {
        add("--sequence-parallel".into(), Strategy { sequence_parallel: true, ..*s });
    }
    if s.tp > 1 {
        add(format!("tp {} and dp {}", s.tp / 2, s.dp * 2), Strategy { tp: s.tp / 2, dp: s.dp * 2, ..*s });
    }
    if s.dp > 1 {
        add(format!("tp {} and dp {}", s.tp * 2, s.dp / 2), Strategy { tp: s.tp * 2, dp: s.dp / 2, ..*s });
        add(format!("pp {} and dp {}", s.pp * 2, s.dp / 2), Strategy { pp: s.pp * 2, dp: s.dp / 2, ..*s });
        if s.stage() == 0 {
            add("--zero 1".into(), Strategy { zero: 1, ..*s });
        }
        if s.stage() < 3 && s.pp == 1 {
            let fsdp = Some(preflop_cluster::strategy::Fsdp::Full);
            add("--fsdp full".into(), Strategy { fsdp, ..*s });
        }
    }
    if s.pp > 1 {
        add(format!("pp {} and dp {}", s.pp / 2, s.dp * 2), Strategy { pp: s.pp / 2, dp: s.dp * 2, ..*s });
        add(format!("--interleave {}", s.interleave * 2), Strategy { interleave: s.interleave * 2, ..*s });
    }
    let needs_room = !outcome.fits();
    let mut found: Vec<Advice> = tries
        .into_iter()
        .filter_map(|(what, to)| {
            let other = predict(&to)?;
            let gain = 1.0 - other.time / outcome.time;
            let memory = other.fullest().map_or(0.0, preflop_cluster::memory::RankMemory::total);
            let useful = if needs_room { other.fits() } else { other.fits() && gain > 0.005 };
            useful.then_some(Advice { what, gain, fits: other.fits(), memory })
        })
        .collect();
    found.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    found.truncate(3);
    found
}
