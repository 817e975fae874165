//! Whole iterations: predicted against measured, and the fit of the host's constants.

use crate::score::{Score, score};
use crate::sets::Sets;
use crate::simplex::minimise;
use anyhow::Result;
use preflop_core::gpu::Gpu;
use preflop_core::model::{Iteration, LowerOptions, Mode, Precision, lower, zoo};
use preflop_core::schedule::Schedule as _;
use preflop_core::time::{HostModel, IterationPrediction, TimeModel};
use std::collections::BTreeMap;

/// One measured iteration.
pub struct Run {
    pub model: String,
    pub batch: u64,
    pub precision: String,
    pub mode: String,
    pub iter_ms: f64,
    pub busy_ms: f64,
    pub kernels: f64,
    pub peak_mib: f64,
    pub iteration: Iteration,
}

/// A measured iteration with its prediction.
struct Case<'a> {
    run: &'a Run,
    prediction: IterationPrediction,
}

/// Reads the measured iterations whose model and precision are known.
pub fn runs(sets: &Sets, file: &str) -> Result<Vec<Run>> {
    let mut reader = csv::Reader::from_reader(sets.open(&sets.own(file)?)?);
    let mut out = Vec::new();
    for record in reader.records() {
        let r = record?;
        let Some(precision) = Precision::ALL.into_iter().find(|p| p.name() == &r[3]) else { continue };
        let mode = if &r[4] == "train" { Mode::Train } else { Mode::Infer };
        let seq: u64 = r[2].parse()?;
        let batch: u64 = r[1].parse()?;
        let Ok(graph) = zoo::build(zoo::as_measured(&r[0]), Some(batch), (seq > 0).then_some(seq)) else {
            continue;
        };
        let optimizer = Some(graph.optimizer.as_measured());
        let iteration = lower(&graph, &LowerOptions { mode, precision, optimizer })?;
        out.push(Run {
            model: r[0].to_string(),
            batch,
            precision: r[3].to_string(),
            mode: r[4].to_string(),
            iter_ms: r[5].parse()?,
            busy_ms: r[6].parse()?,
            kernels: r[7].parse()?,
            peak_mib: r[8].parse()?,
            iteration,
        });
    }
    Ok(out)
}

/// Fits the host's constants on iterations, with the GPU time as measured where it is not more than the
/// iteration, so that errors of the operator model stay out. Hosts differ from session to session, so each session
/// (file) counts as much as any other, however many rows it has.
pub fn host(sessions: &[&[Run]]) -> HostModel {
    let start: Vec<f64> = HostModel::START.to_array().map(f64::ln).to_vec();
    let loss = |p: &[f64]| {
        let c: Vec<f64> = p.iter().map(|x| x.exp()).collect();
        let h = HostModel::from_slice(&c).unwrap_or(HostModel::START);
        let session = |runs: &[Run]| {
            let errors = runs.iter().map(|c| {
                // Kernel sums above the iteration say that kernels ran side by side.
                let in_line = if c.busy_ms > c.iter_ms { 0.0 } else { c.kernels };
                let wall = preflop_core::units::Seconds(c.busy_ms.min(c.iter_ms) * 1e-3) + h.pauses(in_line);
                let host = h.time(&c.iteration.host, c.kernels);
                (h.join(wall, host).ms() / c.iter_ms).ln().abs()
            });
            errors.sum::<f64>() / runs.len().max(1) as f64
        };
        let error = sessions.iter().map(|runs| session(runs)).sum::<f64>() / sessions.len() as f64;
        let stray: f64 = p.iter().zip(&start).map(|(a, b)| (a - b) * (a - b)).sum::<f64>() / p.len() as f64;
        error + 0.01 * stray
    };
    let (best, _) = minimise(&loss, &start, 0.3, 4000);
    let c: Vec<f64> = best.iter().map(|x| x.exp()).collect();
    HostModel::from_slice(&c).unwrap_or(HostModel::START)
}

/// Prints the errors of iteration time, GPU time, kernel count and memory by precision, mode and model.
pub fn report(runs: &[Run], model: &TimeModel, gpu: &Gpu, detail: bool) {
    let predicted = |run| Case { run, prediction: model.predict_iteration(&run.iteration, gpu) };
    let cases: Vec<Case> = runs.iter().map(predicted).collect();
    let line = |what: &str, s: Score| println!("  {what:28} {s}");
    line("iteration", score(cases.iter().map(|c| (c.prediction.time.ms(), c.run.iter_ms))));
    line("gpu busy", score(cases.iter().map(|c| (c.prediction.gpu_busy.ms(), c.run.busy_ms))));
    line("kernels", score(cases.iter().map(|c| (c.prediction.launches, c.run.kernels))));
    line("peak memory", score(cases.iter().map(|c| (c.run.iteration.memory.peak.mib(), c.run.peak_mib))));
    let mut groups: BTreeMap<String, Vec<&Case>> = BTreeMap::new();
    for c in &cases {
        groups.entry(format!("{} {}", c.run.precision, c.run.mode)).or_default().push(c);
        groups.entry(c.run.model.clone()).or_default().push(c);
    }
    for (name, group) in groups {
        let busy = score(group.iter().map(|c| (c.prediction.gpu_busy.ms(), c.run.busy_ms)));
        let iter = score(group.iter().map(|c| (c.prediction.time.ms(), c.run.iter_ms)));
        let memory = score(group.iter().map(|c| (c.run.iteration.memory.peak.mib(), c.run.peak_mib)));
        println!(
            "  {name:18} n {:3}  busy {:5.1} % ({:+5.1})  iteration {:5.1} % ({:+5.1})  memory {:5.1} % ({:+5.1})",
            busy.n, busy.mean, busy.bias, iter.mean, iter.bias, memory.mean, memory.bias
        );
    }
    let covered = |what: &str, of: &dyn Fn(&&Case) -> bool, inside: &dyn Fn(&Case) -> bool| {
        let of: Vec<&Case> = cases.iter().filter(of).collect();
        let part = of.iter().filter(|c| inside(c)).count() as f64 / of.len().max(1) as f64;
        println!("  interval of {what:26} n {:6}  covers {:.1} %", of.len(), 100.0 * part);
    };
    let gpu_binds = |c: &&Case| c.prediction.gpu_wall > c.prediction.host;
    let iteration = |c: &Case| (c.prediction.low.ms()..=c.prediction.high.ms()).contains(&c.run.iter_ms);
    let busy = |c: &Case| {
        (c.prediction.gpu_busy_low.ms()..=c.prediction.gpu_busy_high.ms()).contains(&c.run.busy_ms)
    };
    covered("iteration", &|_| true, &iteration);
    covered("iteration, GPU binds", &gpu_binds, &iteration);
    covered("iteration, host binds", &|c| !gpu_binds(c), &iteration);
    covered("gpu busy", &|_| true, &busy);
    if detail {
        for c in &cases {
            println!(
                "{:16} b{:<4} {:4} {:5}  iter {:8.2} / {:8.2}  busy {:8.2} [{:.2}, {:.2}] / {:8.2}  host {:7.2}  kernels {:5.0} / {:5.0}  mem {:6.0} / {:6.0}",
                c.run.model,
                c.run.batch,
                c.run.precision,
                c.run.mode,
                c.prediction.time.ms(),
                c.run.iter_ms,
                c.prediction.gpu_busy.ms(),
                c.prediction.gpu_busy_low.ms(),
                c.prediction.gpu_busy_high.ms(),
                c.run.busy_ms,
                c.prediction.host.ms(),
                c.prediction.launches,
                c.run.kernels,
                c.run.iteration.memory.peak.mib(),
                c.run.peak_mib
            );
        }
    }
}
