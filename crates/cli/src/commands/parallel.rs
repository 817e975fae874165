//! `preflop predict --cluster`: one iteration on several GPUs, cut by tensors, layers, sequences, experts and samples.

mod answer;
mod any;

use super::parallel_page;
use crate::cluster_args::{self, ParallelArgs};
use crate::error::InputError;
use crate::input;
use crate::output::{self, Output};
use crate::run_args::{AttentionChoice, Job, RunArgs};
use answer::Answer;
use anyhow::Context as _;
use preflop_cluster::collective::Collectives;
use preflop_cluster::iteration::{Outcome, Setting, ShardCosts};
use preflop_cluster::model::{Attention, Transformer};
use preflop_cluster::rank::CoreTimes;
use preflop_cluster::strategy::{Recompute, Strategy};
use preflop_cluster::timeline::{self, Bar, Durations};
use preflop_cluster::{Cluster, ClusterError};
use preflop_core::model::Mode;
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
    if run.mode == Mode::Infer {
        return Err(InputError::new("`--cluster` predicts training; `--mode infer` is for one GPU")
            .hint("leave out `--mode` or `--cluster`")
            .into());
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
    let bars = bars(strategy, &outcome, &costs, asked.transformer);
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

/// The bars of the timeline: each stage's share of what the prediction says.
fn bars(strategy: &Strategy, outcome: &Outcome, costs: &ShardCosts, model: &Transformer) -> Vec<Bar> {
    let m = strategy.microbatches() as f64;
    let b = outcome.breakdown;
    let slowest = (b.compute + b.recompute + b.tp_exposed + b.cp_exposed + b.ep_exposed + b.host_exposed) / m;
    let layers = model.layers as f64 / strategy.pp as f64;
    let (f, r) = (costs.forward.time, costs.backward.time);
    let again = match strategy.recompute {
        Recompute::Full => f,
        Recompute::Selective => costs.core.time,
        Recompute::None => 0.0,
    };
    let weight = |stage: u64| {
        let first = if stage == 0 { [costs.embedding[0].time, costs.embedding[1].time] } else { [0.0; 2] };
        let last = if stage + 1 == strategy.pp { [costs.head[0].time, costs.head[1].time] } else { [0.0; 2] };
        [layers * f + first[0] + last[0], layers * (r + again) + first[1] + last[1]]
    };
    let most = (0..strategy.pp).map(|s| weight(s).iter().sum::<f64>()).fold(1e-12, f64::max);
    let scale = slowest / most;
    let durations = Durations {
        forward: (0..strategy.pp).map(|s| weight(s)[0] * scale).collect(),
        backward: (0..strategy.pp).map(|s| weight(s)[1] * scale).collect(),
        transfer: b.pp_transfer / (2.0 * (m + strategy.pp as f64 - 1.0)),
        data: b.dp_exposed,
        optimizer: b.optimizer,
    };
    timeline::bars(strategy, &durations)
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
        std::fs::write(path, trace).with_context(|| format!("cannot write `{path}`"))?;
    }
    if let Some(path) = &args.page {
        let page = parallel_page::page(&title, bars, &outcome.breakdown);
        std::fs::write(path, page).with_context(|| format!("cannot write `{path}`"))?;
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
fn suggestions(s: &Strategy, outcome: &Outcome, predict: &dyn Fn(&Strategy) -> Option<Outcome>) -> Vec<Advice> {
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
<<<<<<< HEAD

struct Answer<'a> {
    asked: &'a Asked<'a>,
    strategy: &'a Strategy,
    outcome: &'a Outcome,
    formats: [Dtype; 2],
    suggestions: Vec<Advice>,
    tokens_per_s: f64,
    mfu: f64,
    efficiency: Option<f64>,
    price: Option<(f64, String)>,
}

impl<'a> Answer<'a> {
    fn new(
        asked: &'a Asked<'a>,
        strategy: &'a Strategy,
        outcome: &'a Outcome,
        alone: Option<f64>,
        formats: [Dtype; 2],
        suggestions: Vec<Advice>,
    ) -> Self {
        let tokens = (strategy.global_batch * asked.subject.seq) as f64;
        let peak = asked.cluster.node.gpu.peak(formats[1]).0 * strategy.gpus() as f64;
        let flops = asked.transformer.flops_per_token(asked.subject.seq) * tokens;
        let efficiency = alone.map(|one| one / outcome.time);
        Self {
            asked,
            strategy,
            outcome,
            formats,
            suggestions,
            tokens_per_s: tokens / outcome.time,
            mfu: flops / outcome.time / peak,
            efficiency,
            price: cluster_args::price(asked.cluster),
        }
    }

    fn usd_per_million_tokens(&self) -> Option<f64> {
        self.price.as_ref().map(|(usd, _)| usd / 3600.0 / self.tokens_per_s * 1e6)
    }

    fn json(&self) -> serde_json::Value {
        let (s, o, cluster) = (self.strategy, self.outcome, self.asked.cluster);
        let (low, high) = o.ends();
        let mib = 1_048_576.0;
        let fullest = o.fullest();
        let b = o.breakdown;
        let breakdown: serde_json::Map<String, serde_json::Value> =
            b.parts().iter().map(|(name, t)| ((*name).to_string(), json!(t * 1e3))).collect();
        let collectives: Vec<_> = o
            .uses
            .iter()
            .map(|u| {
                json!({"what": u.kind, "group": u.dimension, "where": if u.group.nodes() > 1 { "outside" } else { "inside" },
                    "gpus": u.group.gpus, "bytes": u.bytes, "count": u.count, "time_us": u.time * 1e6,
                    "exposed_us": u.exposed * 1e6, "bus_gbs": u.bus / 1e9})
            })
            .collect();
        let ranks: Vec<_> = o
            .ranks
            .iter()
            .map(|r| {
                json!({"stage": r.stage, "memory_mib": r.reserved() / mib, "needed_mib": r.total() / mib, "states_mib": r.states() / mib,
                    "activations_mib": r.activations / mib, "gathered_mib": r.gathered / mib,
                    "reserve_mib": r.reserve / mib, "allocated_mib": r.allocated() / mib, "fits": r.fits})
            })
            .collect();
        let samples = s.global_batch as f64 / o.time;
        json!({
            "model": self.asked.transformer.name, "gpu": cluster.node.gpu.name, "cluster": cluster.name,
            "batch": s.global_batch, "seq": self.asked.subject.seq, "precision": self.formats[1], "mode": "train",
            "iteration_ms": o.time * 1e3, "low_ms": low * 1e3, "high_ms": high * 1e3,
            "gpu_busy_ms": (b.compute + b.recompute + b.optimizer) * 1e3, "host_ms": b.host_exposed * 1e3,
            "memory_mib": fullest.map(|r| r.reserved() / mib), "needed_mib": fullest.map(|r| r.total() / mib),
            "gpu_memory_mib": cluster.node.gpu.memory.mib(), "fits": o.fits(),
            "samples_per_s": samples, "bound": self.bound().0,
            "flops": self.asked.transformer.flops_per_token(self.asked.subject.seq) * (s.global_batch * self.asked.subject.seq) as f64,
            "parameters": self.asked.transformer.parameters(),
            "parallel": {"gpus": s.gpus(), "nodes": cluster.count, "dp": s.dp, "tp": s.tp, "pp": s.pp, "cp": s.cp,
                "ep": s.ep, "zero": s.stage(), "fsdp": s.fsdp, "micro_batch": s.micro_batch,
                "microbatches": s.microbatches(), "global_batch": s.global_batch, "interleave": s.interleave,
                "schedule": s.schedule.name(), "sequence_parallel": s.sequence_parallel, "recompute": s.recompute,
                "offload": s.offload, "stack": s.stack, "profile": s.stack, "attention": s.attention},
            "breakdown_ms": breakdown, "collectives": collectives, "ranks": ranks,
            "mfu": self.mfu, "tokens_per_s": self.tokens_per_s,
            "tokens_per_s_per_gpu": self.tokens_per_s / s.gpus() as f64,
            "usd_per_hour": self.price.as_ref().map(|(usd, _)| usd),
            "usd_per_million_tokens": self.usd_per_million_tokens(), "scaling_efficiency": self.efficiency,
            "advice": self.suggestions.iter().map(|a| json!({"change": a.what, "gain": a.gain, "fits": a.fits,
                "needed_mib": a.memory / mib})).collect::<Vec<_>>(),
        })
    }

    /// What limits the iteration, and a sentence about it.
    fn bound(&self) -> (&'static str, String) {
        let (s, o) = (self.strategy, self.outcome);
        let share = |t: f64| 100.0 * t / o.time;
        let mut parts = o.breakdown.parts().to_vec();
        parts.retain(|(name, _)| !matches!(*name, "compute" | "recompute" | "optimizer"));
        let (name, time) = parts.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(("compute", 0.0));
        if share(time) < 10.0 {
            return (
                "compute",
                format!(
                    "compute: {:.0} % of the time the GPUs work on the model",
                    share(o.breakdown.compute)
                ),
            );
        }
        let m = s.microbatches() as f64;
        let text = match name {
            "pp_bubble" => {
                let more = 4.0 * m;
                let steady = o.time - time;
                format!(
                    "pipeline bubble {:.0} %: {more} microbatches would make it {:.0} %",
                    share(time),
                    100.0 * time / (time + steady * 4.0)
                )
            }
            "tp_exposed" => format!("tensor parallel {:.0} %: every layer waits for its sums", share(time)),
            "dp_exposed" => format!(
                "data parallel {:.0} %: gradients or shards travel longer than they hide",
                share(time)
            ),
            "host_exposed" => format!("host {:.0} %: it cannot launch as fast as the GPUs work", share(time)),
            other => format!("{other} {:.0} %", share(time)),
        };
        let bound = match name {
            "pp_bubble" => "bubble",
            "host_exposed" => "host",
            "tp_exposed" | "cp_exposed" if s.tp <= self.asked.cluster.node.gpus => "link",
            _ => "network",
        };
        (bound, text)
    }

    fn print(&self, output: &Output) -> anyhow::Result<()> {
        let (s, o, cluster) = (self.strategy, self.outcome, self.asked.cluster);
        let mut out = output::stdout();
        let title = format!(
            "{} training, {} sequences of {} tokens, {} on {} ({} GPUs)",
            self.asked.transformer.name,
            s.global_batch,
            self.asked.subject.seq,
            self.formats[1],
            cluster.name,
            s.gpus()
        );
        writeln!(out, "{}\n", output.bold(&output::wrapped(&title, output.width, "  ")))?;
        let (low, high) = o.ends();
        let time = |t: f64| output::time(Seconds(t));
        let mut facts = vec![
            (
                "time",
                format!(
                    "{} per iteration (90 % interval {} to {})",
                    output.bold(&time(o.time)),
                    time(low),
                    time(high)
                ),
            ),
            (
                "throughput",
                format!(
                    "{} tokens/s, {} tokens/s per GPU, {:.1} % of peak (MFU)",
                    output::si(self.tokens_per_s, "").trim_end(),
                    output::si(self.tokens_per_s / s.gpus() as f64, "").trim_end(),
                    100.0 * self.mfu
                ),
            ),
        ];
        if let (Some(usd), Some((hour, source))) = (self.usd_per_million_tokens(), &self.price) {
            facts.push((
                "price",
                format!(
                    "{} USD per million tokens ({} USD/h: {source})",
                    three_digits(usd),
                    three_digits(*hour)
                ),
            ));
        }
        facts.push((
            "plan",
            format!(
                "{}, micro batch {} x {}, recompute {}, {} stack{}",
                preflop_cluster::scale::short(s),
                s.micro_batch,
                s.microbatches(),
                s.recompute.name(),
                s.stack.name(),
                if s.sequence_parallel { ", sequence parallel" } else { "" }
            ),
        ));
        facts.push(("where", self.split()));
        facts.push(("bound", self.bound().1));
        facts.push(("memory", self.memory()));
        if let Some(e) = self.efficiency {
            facts.push((
                "scaling",
                format!(
                    "{:.0} % of what as many GPUs would do alone, each with its part of the samples",
                    100.0 * e
                ),
            ));
        }
        for (what, text) in facts {
            let text = output::wrapped(&text, output.width.saturating_sub(14), "              ");
            writeln!(out, "  {what:<11} {text}")?;
        }
        writeln!(out, "\n  {}", self.bar(output.width.saturating_sub(4).min(96)))?;
        for a in &self.suggestions {
            let gain = if a.gain >= 0.0 {
                format!("{:.1} % faster", 100.0 * a.gain)
            } else {
                format!("{:.1} % slower", -100.0 * a.gain)
            };
            let fit = if o.fits() {
                String::new()
            } else {
                format!(", fits with {}", output::memory(Bytes(a.memory)))
            };
            writeln!(out, "  try {}: {gain}{fit}", a.what)?;
        }
        Ok(out.flush()?)
    }

    fn split(&self) -> String {
        let total = self.outcome.time;
        let parts = self.outcome.breakdown.parts();
        let shown = parts.iter().filter(|(_, t)| t / total >= 0.005);
        shown
            .map(|(name, t)| format!("{} {:.0} %", name.replace('_', " "), 100.0 * t / total))
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// One bar over the whole width, a letter for each part.
    fn bar(&self, width: usize) -> String {
        const LETTERS: [char; 11] = ['█', '▓', 't', 'c', 'e', 'd', '░', 'p', 'o', 'h', 's'];
        let total = self.outcome.time.max(1e-12);
        let mut out = String::new();
        for ((_, t), letter) in self.outcome.breakdown.parts().iter().zip(LETTERS) {
            let n = (t / total * width as f64).round() as usize;
            out.extend(std::iter::repeat_n(letter, n));
        }
        out
    }

    fn memory(&self) -> String {
        let room = self.asked.cluster.node.gpu.memory;
        let Some(r) = self.outcome.fullest() else { return String::new() };
        let m = |b: f64| output::memory(Bytes(b));
        let verdict = if self.outcome.fits() {
            "fits".to_string()
        } else {
            format!("DOES NOT FIT by {}", m(r.total() - room.0))
        };
        format!(
            "{} of {} on the fullest rank (stage {}): {verdict}; weights {}, gradients {}, optimizer {}, activations {}{}",
            m(r.total()),
            output::memory(room),
            r.stage,
            m(r.weights),
            m(r.gradients),
            m(r.optimizer),
            m(r.activations),
            if r.gathered > 0.0 { format!(", gathered layers {}", m(r.gathered)) } else { String::new() }
        )
    }
}

/// Any model on every GPU, its gradients reduced or its parameters sharded.
fn replicated(
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
    let job = run.job(&subject.job.graph.name, None, None).or_else(|_| {
        // A file is not found by its model's name: what was read already serves.
        Ok::<Job, anyhow::Error>(Job {
            graph: subject.job.graph.clone(),
            iteration: subject.job.iteration.clone(),
            options: subject.job.options,
            run: subject.job.run,
            notes: subject.job.notes.clone(),
        })
    })?;
    let one = time_model.predict_iteration(&job.iteration, &cluster.node.gpu);
    let sharding = match (strategy.fsdp, strategy.stage()) {
        (Some(how), _) => Sharding::Shards(how),
        (None, 1 | 2) => Sharding::States,
        _ => Sharding::Copies,
    };
    let size = match job.options.precision {
        Precision::Bf16 | Precision::Fp16 | Precision::Fp8 => 2.0,
        _ => 4.0,
    };
    let p = data_parallel::predict(
        &job.iteration,
        &one,
        cluster,
        &Collectives::embedded(),
        sharding,
        size,
        data_parallel::EVEN_IMBALANCE,
    );
    let states =
        job.iteration.memory.weights.0 + job.iteration.memory.gradients.0 + job.iteration.memory.optimizer.0;
    let sharded = match strategy.stage() {
        3 => states,
        2 => job.iteration.memory.gradients.0 + job.iteration.memory.optimizer.0,
        1 => job.iteration.memory.optimizer.0,
        _ => 0.0,
    };
    let peak = fit::prudent_peak(&job.iteration).0 - sharded * (1.0 - 1.0 / cluster.gpus() as f64)
        + if strategy.stage() == 3 { p.bytes / 12.0 } else { 25.0 * 1_048_576.0 };
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
        let text = output::wrapped(&text, output.width.saturating_sub(14), "              ");
        writeln!(out, "  {what:<11} {text}")?;
    }
    Ok(out.flush()?)
}
=======
>>>>>>> cluster
