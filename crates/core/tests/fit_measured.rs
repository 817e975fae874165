//! Predicted memory with its reserve against measured peaks: what is said to fit must fit.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use preflop_core::cost::Reserve;
use preflop_core::cost::fit::prudent_peak;
use preflop_core::model::{LowerOptions, Mode, Precision, lower, zoo};
use preflop_core::units::Bytes;

const MEASURED: [&str; 2] = [
    include_str!("../../../data/measured/h200/e2e.csv"),
    include_str!("../../../data/measured/h200/e2e_extra.csv"),
];

/// Every measured iteration of a zoo model: name, measured and prudent peak in MiB.
fn runs() -> Vec<(String, f64, f64)> {
    let mut out = Vec::new();
    for text in MEASURED {
        let header: Vec<&str> = text.lines().next().unwrap().split(',').collect();
        let column = |name: &str| header.iter().position(|h| *h == name).unwrap();
        for line in text.lines().skip(1) {
            let f: Vec<&str> = line.split(',').collect();
            let at = |name: &str| f[column(name)];
            let precision = Precision::ALL.into_iter().find(|p| p.name() == at("precision"));
            let (Ok(_), Some(precision)) = (zoo::info(at("model")), precision) else { continue };
            let mode = if at("mode") == "train" { Mode::Train } else { Mode::Infer };
            let seq: u64 = at("seq").parse().unwrap();
            let graph =
                zoo::build(zoo::as_measured(at("model")), at("batch").parse().ok(), (seq > 0).then_some(seq))
                    .unwrap();
            let optimizer = Some(graph.optimizer.as_measured());
            let iteration = lower(&graph, &LowerOptions { mode, precision, optimizer }).unwrap();
            let name = format!("{} {} {} {}", at("model"), at("batch"), at("precision"), at("mode"));
            out.push((name, at("peak_mem_mib").parse().unwrap(), prudent_peak(&iteration).mib()));
        }
    }
    out
}

#[test]
fn the_reserve_covers_every_measured_peak() {
    let runs = runs();
    assert!(runs.len() >= 60, "{}", runs.len());
    let reserve = Reserve::default();
    let mut lacking = Vec::new();
    let mut tightest = (f64::INFINITY, "");
    for (name, measured, prudent) in &runs {
        // The context is the driver's: it does not count among what PyTorch allocates.
        let allowed = (reserve.needed(Bytes::from_mib(*prudent)) - reserve.context).mib();
        if allowed < *measured {
            lacking.push(format!("{name}: {measured} MiB measured, {allowed:.0} MiB allowed"));
        }
        if allowed / measured < tightest.0 {
            tightest = (allowed / measured, name);
        }
    }
    let mean = runs.iter().map(|(_, m, p)| p / m - 1.0).sum::<f64>() / runs.len() as f64;
    println!(
        "{} runs; tightest {} at {:.3}; prudent peaks {:+.1} % on average",
        runs.len(),
        tightest.1,
        tightest.0,
        100.0 * mean
    );
    assert!(lacking.is_empty(), "{lacking:#?}");
}
