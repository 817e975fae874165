//! Compares the zoo's iterations with measured ones: peak memory and parameters of every run in `e2e.csv`, and
//! operator counts of every trace. Needs the folder of measurements: `PREFLOP_SHARED=DIR cargo run --release
//! --example validate_models`.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used)]

use preflop_core::model::{LowerOptions, Mode, Precision, lower, zoo};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Ok(shared) = std::env::var("PREFLOP_SHARED") else {
        eprintln!("error: PREFLOP_SHARED is not set");
        return ExitCode::from(2);
    };
    memory(Path::new(&shared));
    ExitCode::SUCCESS
}

fn memory(shared: &Path) {
    let text = std::fs::read_to_string(shared.join("data/h200/e2e.csv")).unwrap();
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
        let graph = zoo::build(f[0], f[1].parse().ok(), (seq > 0).then_some(seq)).unwrap();
        assert_eq!(graph.parameter_count().to_string(), f[9], "{}", f[0]);
        let precision = Precision::ALL.into_iter().find(|p| p.name() == f[3]).unwrap();
        let mode = if f[4] == "train" { Mode::Train } else { Mode::Infer };
        let it = lower(&graph, &LowerOptions { mode, precision, optimizer: None }).unwrap();
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
