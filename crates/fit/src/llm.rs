//! Prefill and decode steps of language models on the project's own GPU against predictions: time, kernels, memory, and what the host is taken to do.
//!
//! `llm.csv` are the two models that constants were chosen on, `llm_more.csv` thirteen of other sizes and families, from their configuration.

use crate::sets::Sets;
use anyhow::{Context as _, Result};
use preflop_core::model::zoo::config::HubConfig;
use preflop_core::model::{
    CacheKind, Iteration, LowerOptions, Mode, Precision, Run, Stage, launched, lower, zoo,
};
use preflop_core::schedule::Schedule as _;
use preflop_core::time::TimeModel;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;

/// Names of `llm.csv` and of the zoo.
const NAMES: [(&str, &str); 2] = [("llama-1b", "llama-1b"), ("llama-8b", "llama-3-8b")];
/// What cuBLAS keeps for each stream on which a graph was captured, and for how many of them.
const GRAPH_WORKSPACE_MIB: f64 = 32.0;
const KEPT_WORKSPACES: f64 = 32.0;

/// A measured step.
#[derive(Deserialize)]
pub struct Row {
    pub model: String,
    pub batch: u64,
    pub context: u64,
    pub phase: String,
    pub run: String,
    pub iter_ms: f64,
    pub gpu_busy_ms: f64,
    kernels: u64,
    peak_mem_mib: f64,
    /// Graphs that the process captured before.
    #[serde(default)]
    before: f64,
    /// Which of several runs of the script.
    #[serde(default)]
    pub pass: u64,
}

impl Row {
    fn stage(&self) -> Stage {
        match self.phase.as_str() {
            "prefill" => Stage::Prefill,
            _ => Stage::Decode { context: self.context, cache: CacheKind::Static },
        }
    }

    fn run(&self) -> Run {
        if self.run == "graph" { Run::Graph } else { Run::Eager }
    }
}

/// One row and its prediction.
struct Scored {
    row: Row,
    host: bool,
    /// Predicted over measured: time, GPU time, memory.
    ratios: [f64; 3],
    inside: bool,
    busy_inside: bool,
}

#[derive(Deserialize)]
struct Configured {
    name: String,
    config: HubConfig,
}

/// Were constants chosen by looking at this model?
pub fn chosen_on(model: &str) -> bool {
    NAMES.iter().any(|(name, _)| *name == model)
}

/// A measured step and what it launches.
pub struct Step {
    pub row: Row,
    pub iteration: Iteration,
}

/// Steps of `llm.csv` or `llm_more.csv` of which models are known.
pub fn steps(sets: &Sets, file: &str) -> Result<Vec<Step>> {
    let configs = if file == "llm_more.csv" { configurations(sets)? } else { BTreeMap::new() };
    let mut reader = csv::Reader::from_reader(sets.open(&sets.own(file)?)?);
    let mut out = Vec::new();
    for row in reader.deserialize() {
        let row: Row = row.with_context(|| format!("in `{file}`"))?;
        let (batch, context) = (Some(row.batch), Some(row.context));
        let graph = if file == "llm_more.csv" {
            let config =
                configs.get(&row.model).with_context(|| format!("`{}` has no configuration", row.model))?;
            config.build_stage(&row.model, batch, context, row.stage())?
        } else {
            let Some((_, name)) = NAMES.iter().find(|(n, _)| *n == row.model) else { continue };
            zoo::build_stage(name, batch, context, row.stage())?
        };
        let options = LowerOptions { mode: Mode::Infer, precision: Precision::Bf16, optimizer: None };
        let iteration = launched(lower(&graph, &options)?, row.run());
        out.push(Step { row, iteration });
    }
    Ok(out)
}

fn configurations(sets: &Sets) -> Result<BTreeMap<String, HubConfig>> {
    let mut text = String::new();
    sets.open(&sets.own("llm_more_configs.jsonl")?)?.read_to_string(&mut text)?;
    let named = text.lines().map(|line| {
        let Configured { name, config } = serde_json::from_str(line)?;
        Ok((name, config))
    });
    named.collect()
}

/// Prints every row and the mean errors by kind of step, of either file.
pub fn report(sets: &Sets) -> Result<()> {
    let scored = score(sets, "llm.csv")?;
    println!("llm.csv, two models that constants were chosen on");
    summary(&scored);
    let (known, other): (Vec<_>, Vec<_>) = score(sets, "llm_more.csv")?
        .into_iter()
        .filter(|s| s.row.pass < 2)
        .partition(|s| chosen_on(&s.row.model));
    println!("\nllm_more.csv, the same two models on another day");
    summary(&known);
    let models: BTreeSet<&str> = other.iter().map(|s| s.row.model.as_str()).collect();
    println!("\nllm_more.csv, {} other models", models.len());
    summary(&other);
    host_level(&other);
    Ok(())
}

fn score(sets: &Sets, file: &str) -> Result<Vec<Scored>> {
    let (model, gpu) = (TimeModel::embedded(), &sets.gpus[sets.own_gpu()?]);
    println!(
        "{:<13} {:>5} {:>7} {:<21} {:>9} {:>9} {:>7} {:>7} {:>7} {:>11} {:>9} {:>7}",
        "model",
        "batch",
        "context",
        "step",
        "ms",
        "predicted",
        "error",
        "busy",
        "memory",
        "kernels",
        "operators",
        "modules"
    );
    let mut out = Vec::new();
    for Step { row, iteration } in steps(sets, file)? {
        let p = model.predict_iteration(&iteration, gpu);
        let left = GRAPH_WORKSPACE_MIB * row.before.min(KEPT_WORKSPACES);
        let ratios = [
            p.time.ms() / row.iter_ms,
            p.gpu_busy.ms() / row.gpu_busy_ms,
            iteration.memory.peak.mib() / (row.peak_mem_mib - left),
        ];
        let host = p.host > p.gpu_wall;
        let off = |i: usize| 100.0 * (ratios[i] - 1.0);
        println!(
            "{:<13} {:>5} {:>7} {:<21} {:>9} {:>9.3} {:>6.1}% {:>6.1}% {:>6.1}% {:>5}/{:>5.0} {:>9} {:>7}",
            row.model,
            row.batch,
            row.context,
            format!("{} {}{}", row.phase, row.run, if host { ", host" } else { "" }),
            row.iter_ms,
            p.time.ms(),
            off(0),
            off(1),
            off(2),
            row.kernels,
            p.launches,
            iteration.host.forward_ops,
            iteration.host.module_calls
        );
        let inside = (p.low.ms()..=p.high.ms()).contains(&row.iter_ms);
        let busy_inside = (p.gpu_busy_low.ms()..=p.gpu_busy_high.ms()).contains(&row.gpu_busy_ms);
        out.push(Scored { row, host, ratios, inside, busy_inside });
    }
    Ok(out)
}

/// Mean errors by kind of step, and of prefill and decode as wholes, whoever bounds a row.
fn summary(scored: &[Scored]) {
    let kinds: [(&str, &str, &str, Option<bool>); 6] = [
        ("decode graph", "decode", "graph", None),
        ("decode eager", "decode", "eager", None),
        ("prefill", "prefill", "eager", None),
        ("prefill, GPU-bound", "prefill", "eager", Some(false)),
        ("prefill, host-bound", "prefill", "eager", Some(true)),
        ("all", "", "", None),
    ];
    for (name, phase, run, host) in kinds {
        let of: Vec<&Scored> = scored
            .iter()
            .filter(|s| s.row.phase.starts_with(phase) && s.row.run.starts_with(run))
            .filter(|s| host.is_none_or(|h| s.host == h))
            .collect();
        if of.is_empty() {
            continue;
        }
        let n = of.len() as f64;
        let mean = |i: usize| of.iter().map(|s| 100.0 * (s.ratios[i] - 1.0).abs()).sum::<f64>() / n;
        let most = |i: usize| of.iter().map(|s| 100.0 * (s.ratios[i] - 1.0).abs()).fold(0.0, f64::max);
        let bias = of.iter().map(|s| 100.0 * (s.ratios[0] - 1.0)).sum::<f64>() / n;
        println!(
            "{name}: {} rows, time {:.1} % (most {:.1}, bias {bias:+.1}), busy {:.1} ({:.1}), memory {:.1} ({:.1}), in the interval {:.0} %, busy {:.0} %",
            of.len(),
            mean(0),
            most(0),
            mean(1),
            most(1),
            mean(2),
            most(2),
            100.0 * of.iter().filter(|s| s.inside).count() as f64 / n,
            100.0 * of.iter().filter(|s| s.busy_inside).count() as f64 / n
        );
    }
}

/// How fast the host of these rows is beside the one that constants were fitted on, and what eager decode is off with that known.
fn host_level(scored: &[Scored]) {
    let of = scored.iter().filter(|s| s.row.phase == "decode" && s.row.run == "eager");
    let mut ratios: Vec<f64> = of.map(|s| s.ratios[0]).collect();
    ratios.sort_by(f64::total_cmp);
    let Some(&middle) = ratios.get(ratios.len() / 2) else { return };
    let off = ratios.iter().map(|r| 100.0 * (r / middle - 1.0).abs()).sum::<f64>() / ratios.len() as f64;
    println!(
        "decode eager: this host takes {:.2} of what is predicted in the median; with that known rows are {off:.1} % off",
        1.0 / middle
    );
}
