//! Compares the zoo's iterations with measured ones: peak memory and parameters of every run in `e2e.csv` and `e2e_extra.csv`,
//! operator counts and FLOPs of every trace, and says how long a lowering takes. Needs the folder of measurements:
//! `PREFLOP_SHARED=DIR cargo run --release -p preflop-core --example validate_models`. With `MODEL BATCH PRECISION MODE` it
//! prints the operators of that run by kind instead.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used)]

mod groups;
mod trace;

use preflop_core::model::{LowerOptions, Mode, Precision, lower, zoo};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [model, batch, precision, mode] = &arguments[..] {
        steps(model, batch, precision, mode);
        return ExitCode::SUCCESS;
    }
    let Ok(shared) = std::env::var("PREFLOP_SHARED") else {
        eprintln!("error: PREFLOP_SHARED is not set");
        return ExitCode::from(2);
    };
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/measured/h200");
    for csv in [Path::new(&shared).join("data/h200/e2e.csv"), repository.join("e2e_extra.csv")] {
        memory(&csv);
    }
    traces(Path::new(&shared));
    speed();
    ExitCode::SUCCESS
}

fn memory(csv: &Path) {
    let text = std::fs::read_to_string(csv).unwrap();
    let names = zoo::names();
    let (mut sum, mut n) = (0.0, 0);
    println!(
        "{:16} {:>5} {:>5} {:>5} | {:>8} {:>8} {:>7} | kernels steps",
        "model", "batch", "prec", "mode", "measured", "MiB", "error"
    );
    for line in text.lines().skip(1) {
        let f: Vec<&str> = line.split(',').collect();
        if !names.contains(&f[0]) {
            continue;
        }
        let seq: u64 = f[2].parse().unwrap();
        let graph = zoo::build(zoo::as_measured(f[0]), f[1].parse().ok(), (seq > 0).then_some(seq)).unwrap();
        assert_eq!(graph.parameter_count().to_string(), f[9], "{}", f[0]);
        // Channels-last runs (`amp_cl`) are not what the zoo builds.
        let Some(precision) = Precision::ALL.into_iter().find(|p| p.name() == f[3]) else { continue };
        let mode = if f[4] == "train" { Mode::Train } else { Mode::Infer };
        let it =
            lower(&graph, &LowerOptions { mode, precision, optimizer: Some(graph.optimizer.as_measured()) })
                .unwrap();
        let ours = it.memory.peak.0 / f64::from(1 << 20);
        let measured: f64 = f[8].parse().unwrap();
        let error = ours / measured - 1.0;
        sum += error.abs();
        n += 1;
        let steps: u32 = it.steps.iter().map(|s| s.count).sum();
        println!(
            "{:16} {:>5} {:>5} {:>5} | {measured:8.0} {ours:8.0} {:6.1}% | {:>5} {steps:>5} ws {:.0} fwd {} bwd {} mod {}",
            f[0],
            f[1],
            f[3],
            f[4],
            100.0 * error,
            f[7],
            it.memory.workspace.0 / f64::from(1 << 20),
            it.host.forward_ops,
            it.host.backward_ops,
            it.host.module_calls
        );
    }
    println!("mean absolute error of peak memory: {:.2} % over {n} runs", 100.0 * sum / f64::from(n));
}

fn traces(shared: &Path) {
    let mut paths: Vec<_> =
        std::fs::read_dir(shared.join("data/h200/traces")).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        let stem = file.trim_end_matches(".json.gz");
        // NAME-bBATCH-PRECISION-MODE
        let parts: Vec<&str> = stem.rsplitn(4, '-').collect();
        let (model, batch, precision) = (zoo::as_measured(parts[3]), &parts[2][1..], parts[1]);
        if !zoo::names().contains(&model) {
            continue;
        }
        let graph = zoo::build(model, batch.parse().ok(), None).unwrap();
        let precision = Precision::ALL.into_iter().find(|p| p.name() == precision).unwrap();
        let it = lower(
            &graph,
            &LowerOptions { mode: Mode::Train, precision, optimizer: Some(graph.optimizer.as_measured()) },
        )
        .unwrap();
        let counts = trace::read(&path);
        let mut table: std::collections::BTreeMap<&str, (u32, u32)> = std::collections::BTreeMap::new();
        for (name, n) in &counts.operators {
            table.entry(groups::traced(name)).or_default().0 += n;
        }
        for (group, n) in groups::ours(&it.steps) {
            table.entry(group).or_default().1 += n;
        }
        println!("\n{stem}: {} launches in the trace", counts.launches);
        let products: f64 = it
            .steps
            .iter()
            .filter(|s| matches!(s.call.op, preflop_core::Op::Gemm(_)))
            .map(|s| s.call.flops().0 * f64::from(s.count))
            .sum();
        println!("  matrix products: {:.4e} FLOPs traced, {products:.4e} ours", counts.gemm_flops);
        println!("  {:22} {:>6} {:>6}", "operators with kernels", "traced", "ours");
        for (group, (traced, ours)) in table {
            let mark = if traced == ours { "" } else { "  differs" };
            println!("  {group:22} {traced:>6} {ours:>6}{mark}");
        }
    }
}

/// Counts of one run by operator, pass and format, to lay beside a list of kernels.
fn steps(model: &str, batch: &str, precision: &str, mode: &str) {
    let graph = zoo::build(model, batch.parse().ok(), None).unwrap();
    let precision = Precision::ALL.into_iter().find(|p| p.name() == precision).unwrap();
    let mode = if mode == "train" { Mode::Train } else { Mode::Infer };
    let it = lower(&graph, &LowerOptions { mode, precision, optimizer: Some(graph.optimizer.as_measured()) })
        .unwrap();
    let mut counts: std::collections::BTreeMap<String, u32> = std::collections::BTreeMap::new();
    for s in &it.steps {
        let op = match &s.call.op {
            preflop_core::Op::Elementwise(e) => format!("elementwise {}", e.kind.name()),
            preflop_core::Op::Rowwise(r) => format!("rowwise {:?}", r.kind),
            preflop_core::Op::Movement(m) => format!("movement {:?}", m.kind),
            other => format!("{other:?}").split(['(', ' ']).next().unwrap().to_owned(),
        };
        *counts.entry(format!("{:?} {op} {:?} {:?}", s.phase, s.call.pass, s.call.dtype)).or_default() +=
            s.count;
    }
    for (what, n) in counts {
        println!("{n:6} {what}");
    }
    println!("{:6.0} MiB at the peak", it.memory.peak.0 / f64::from(1 << 20));
}

fn speed() {
    let options = LowerOptions { mode: Mode::Train, precision: Precision::Amp, optimizer: None };
    for model in ["resnet152", "bert-large"] {
        let start = std::time::Instant::now();
        let runs = 20;
        let mut steps = 0;
        for _ in 0..runs {
            let graph = zoo::build(model, None, None).unwrap();
            steps = lower(&graph, &options).unwrap().steps.len();
        }
        let ms = start.elapsed().as_secs_f64() * 1e3 / f64::from(runs);
        println!("\n{model}: {ms:.2} ms to build and lower a training iteration of {steps} steps");
    }
}
