//! Predicted memory with its reserve against measured peaks: what is said to fit must fit.
#![allow(clippy::print_stdout)]

use preflop_core::cost::Reserve;
use preflop_core::model::{LowerOptions, Mode, Precision, lower, zoo};
use preflop_core::units::Bytes;

const MEASURED: [&str; 2] = [
    include_str!("../../../data/measured/h200/e2e.csv"),
    include_str!("../../../data/measured/h200/e2e_extra.csv"),
];

/// Every measured iteration of a zoo model: name, measured and predicted peak in MiB.
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
            let graph = zoo::build(at("model"), at("batch").parse().ok(), (seq > 0).then_some(seq)).unwrap();
            let iteration = lower(&graph, &LowerOptions { mode, precision, optimizer: None }).unwrap();
            let name = format!("{} {} {} {}", at("model"), at("batch"), at("precision"), at("mode"));
            out.push((name, at("peak_mem_mib").parse().unwrap(), iteration.memory.peak.mib()));
        }
    }
    out
}

#[test]
fn the_reserve_covers_the_measured_peaks() {
    let runs = runs();
    assert!(runs.len() >= 60, "{}", runs.len());
    let reserve = Reserve::default();
    let mut short = 0;
    for (name, measured, predicted) in &runs {
        let needed = reserve.needed(Bytes::from_mib(*predicted)).mib();
        if measured / predicted > 1.05 {
            println!(
                "{name}: measured {measured:.0} predicted {predicted:.0} ({:.3}), needed {needed:.0} MiB",
                measured / predicted
            );
        }
        short += usize::from(measured / predicted > 1.0 + reserve.share);
        assert!(needed >= *measured, "{name}: {measured} MiB measured, {needed} MiB said to be needed");
    }
    println!("{short} of {} runs need more than the share of the reserve", runs.len());
    // The share alone covers nineteen of twenty.
    assert!(20 * short <= runs.len(), "{short} of {}", runs.len());
}
