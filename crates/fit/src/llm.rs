//! Prefill and decode steps of language models on the project's own GPU against predictions (`llm.csv`): time, kernels, memory, and what the host is taken to do.

use crate::sets::Sets;
use anyhow::{Context as _, Result};
use preflop_core::model::{CacheKind, LowerOptions, Mode, Precision, Run, Stage, launched, lower, zoo};
use preflop_core::schedule::Schedule as _;
use preflop_core::time::TimeModel;

/// Names of the file and of the zoo.
const NAMES: [(&str, &str); 2] = [("llama-1b", "llama-1b"), ("llama-8b", "llama-3-8b")];

/// Prints every row and the mean errors by kind of step.
pub fn report(sets: &Sets) -> Result<()> {
    let mut reader = csv::Reader::from_reader(sets.open(&sets.own("llm.csv")?)?);
    let (model, gpu) = (TimeModel::embedded(), &sets.gpus[sets.own_gpu()?]);
    let mut groups: Vec<(String, Vec<[f64; 3]>)> = Vec::new();
    println!(
        "{:<10} {:>5} {:>7} {:<21} {:>9} {:>9} {:>7} {:>7} {:>7} {:>11} {:>9} {:>7}",
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
    for record in reader.records() {
        let r = record?;
        let number =
            |i: usize| -> Result<f64> { r[i].parse().with_context(|| format!("`{}` is no number", &r[i])) };
        let Some((_, name)) = NAMES.iter().find(|(n, _)| *n == &r[0]) else { continue };
        let (batch, context) = (number(1)? as u64, number(2)? as u64);
        let run = if &r[4] == "graph" { Run::Graph } else { Run::Eager };
        let stage = match &r[3] {
            "prefill" => Stage::Prefill,
            _ => Stage::Decode { context, cache: CacheKind::Static },
        };
        let graph = zoo::build_stage(name, Some(batch), Some(context), stage)?;
        let options = LowerOptions { mode: Mode::Infer, precision: Precision::Bf16, optimizer: None };
        let iteration = launched(lower(&graph, &options)?, run);
        let p = model.predict_iteration(&iteration, gpu);
        let off = |predicted: f64, measured: f64| 100.0 * (predicted / measured - 1.0);
        let errors = [
            off(p.time.ms(), number(5)?),
            off(p.gpu_busy.ms(), number(6)?),
            off(iteration.memory.peak.mib(), number(8)?),
        ];
        let host = p.host > p.gpu_wall;
        let kind = format!("{} {}{}", &r[3], &r[4], if host { ", host" } else { "" });
        println!(
            "{:<10} {batch:>5} {context:>7} {kind:<21} {:>9} {:>9.3} {:>6.1}% {:>6.1}% {:>6.1}% {:>5}/{:>5.0} {:>9} {:>7}",
            &r[0],
            &r[5],
            p.time.ms(),
            errors[0],
            errors[1],
            errors[2],
            &r[7],
            p.launches,
            iteration.host.forward_ops,
            iteration.host.module_calls
        );
        match groups.iter_mut().find(|(k, _)| *k == kind) {
            Some((_, list)) => list.push(errors),
            None => groups.push((kind, vec![errors])),
        }
    }
    // Prefill and decode are asked about as wholes too, whoever bounds a row.
    let whole = |step: &str| {
        let of = groups.iter().filter(|(kind, _)| kind.starts_with(step));
        (format!("{step}, all rows"), of.flat_map(|(_, list)| list.iter().copied()).collect::<Vec<_>>())
    };
    let wholes = ["prefill", "decode eager"].map(whole);
    for (kind, list) in groups.iter().chain(&wholes) {
        let mean = |i: usize| list.iter().map(|e| e[i].abs()).sum::<f64>() / list.len() as f64;
        let most = |i: usize| list.iter().map(|e| e[i].abs()).fold(0.0, f64::max);
        println!(
            "{kind}: {} rows, time {:.1} % (most {:.1}), busy {:.1} ({:.1}), memory {:.1} ({:.1})",
            list.len(),
            mean(0),
            most(0),
            mean(1),
            most(1),
            mean(2),
            most(2)
        );
    }
    Ok(())
}
