//! All 264 rows of the V100 time-based Roofline study, in the folder that `PREFLOP_SHARED` names.
//!
//! `PREFLOP_SHARED=... cargo test -p preflop-core --features shared-data --test shared_roofline -- --nocapture`

// The helpers of a test file are test code too.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use preflop_core::roofline::{Class, Level, StudyRow, study_machine};
use preflop_core::units::{Flops, Seconds};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

type Table = Vec<HashMap<String, String>>;

fn table(name: &str) -> Table {
    let root = std::env::var_os("PREFLOP_SHARED").expect("set PREFLOP_SHARED to the folder of shared data");
    let path = PathBuf::from(root).join("data/v100_time_roofline").join(name);
    let mut reader = csv::Reader::from_path(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    reader.deserialize().map(|row| row.expect("a CSV row")).collect()
}

fn number(row: &HashMap<String, String>, key: &str) -> f64 {
    row[key].parse().unwrap_or_else(|_| panic!("{key} = {}", row[key]))
}

const SETS: [&str; 6] =
    ["conv2d-pt", "conv2d-tf1-noxla", "conv2d-tf2-noxla", "rnn1d-pt", "rnn1d-tf1-noxla", "rnn1d-tf2-noxla"];

/// Six digits are printed in `derived.csv`, and the raw tables print seven.
const PRINTED: f64 = 2e-5;

#[test]
fn all_rows_classify_as_the_formulas_say() {
    let machine = study_machine();
    let derived = table("derived.csv");
    assert_eq!(derived.len(), 264);
    let mut counts: BTreeMap<(String, &str), usize> = BTreeMap::new();
    let mut worst = 0.0f64;
    let mut seen = 0;
    for set in SETS {
        let raw = table(&format!("{set}.csv"));
        let expected: Vec<_> = derived.iter().filter(|r| r["set"] == set).collect();
        assert_eq!(raw.len(), expected.len(), "{set}");
        for (row, expected) in raw.iter().zip(expected) {
            // The study's own row, by our formulas ...
            let work = StudyRow {
                flops: Flops(number(row, "FLOPs")),
                dram_intensity: number(row, "DRAM AI"),
                time: Seconds(number(row, "CUDA Time")),
                launches: number(row, "Invocations"),
            }
            .work();
            let bounds = work.bounds(&machine);
            let got = [bounds.compute.us(), bounds.level(Level::Dram).unwrap().us(), bounds.launch.us()];
            // ... against the times derived with the authors' constants.
            let times = ["t_compute_TC_us", "t_hbm_us", "t_launch_us"].map(|key| number(expected, key));
            for (got, expected) in got.iter().zip(times) {
                worst = worst.max((got / expected - 1.0).abs());
            }
            let ratio = bounds.largest().us() / work.time.us();
            worst = worst.max((ratio / number(expected, "max_model_over_measured") - 1.0).abs());
            let class = match times {
                [f, b, n] if f >= b && f >= n => Class::Compute,
                [_, b, n] if b >= n => Class::Memory,
                _ => Class::Overhead,
            };
            assert_eq!(bounds.class(), class, "{set}: {row:?}");
            assert_eq!(bounds.passed(work.time), [], "{set}: {row:?}");
            *counts.entry((set.to_string(), class.name())).or_default() += 1;
            seen += 1;
        }
    }
    assert_eq!(seen, 264);
    for ((set, class), n) in &counts {
        println!("{set:18} {class:10} {n}");
    }
    println!("264 rows; largest deviation of a bound {worst:.1e}");
    assert!(worst < PRINTED, "{worst}");
}
