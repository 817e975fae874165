//! `preflop explore --objective`, as users run it: designs over whole networks, their files and pictures, bad input.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn run(args: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_preflop")).args(args).current_dir(folder).output().unwrap()
}

/// Two small networks under limits, with what else is asked.
fn explored(more: &[&str], folder: &Path) -> Output {
    let common = ["explore", "resnet18,gpt2", "--base", "h200", "--batch", "4", "--mode", "infer"];
    run(&[&common[..], &["--precision", "bf16", "--limit", "watts=700,area=814"], more].concat(), folder)
}

fn answer(out: &Output) -> Value {
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

/// The designs, each with its area and gain, and whether it is on the front.
fn designs(answer: &Value) -> Vec<(f64, f64, bool, bool)> {
    let design = |d: &Value| {
        let number = |key: &str| d[key].as_f64().unwrap();
        let flag = |key: &str| d[key].as_bool().unwrap();
        (number("area_mm2"), number("speedup"), flag("on_front"), flag("within_limits"))
    };
    answer["designs"].as_array().unwrap().iter().map(design).collect()
}

const GRID: [&str; 8] = [
    "--objective",
    "time",
    "--vary",
    "sm_count=0.5,1,1.5",
    "--vary",
    "dram_bw=0.5,1,2",
    "--vary",
    "clock=0.9,1",
];

#[test]
fn a_grid_gives_every_design_and_the_front_as_parquet_and_picture() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["-o", "designs.parquet", "--plot-front", "front.svg", "--json"];
    let grid = answer(&explored(&[&GRID[..], &files].concat(), folder.path()));
    assert_eq!((grid["method"].as_str(), grid["objective"].as_str()), (Some("grid"), Some("time")));
    let all = designs(&grid);
    assert_eq!(all.len(), 3 * 3 * 2);
    let first = &grid["designs"][0];
    assert_eq!(first["scales"]["sm_count"].as_f64(), Some(0.5));
    assert_eq!(first["network_ms"].as_array().map(Vec::len), Some(2));
    assert_eq!(first["bottlenecks"].as_object().unwrap().values().filter_map(Value::as_u64).sum::<u64>(), 2);
    // The front by its definition: within the limits, and no other such design is as small and faster, or smaller and as fast.
    for (area, gain, on_front, within) in &all {
        assert_eq!(*within, *area <= 814.0 + 1e-6, "the base has 814 mm2 and 700 W");
        let beaten = all.iter().any(|(a, g, _, w)| *w && a <= area && g >= gain && (a < area || g > gain));
        assert_eq!(*on_front, *within && !beaten, "{area} mm2, {gain}x");
    }
    let table = std::fs::read(folder.path().join("designs.parquet")).unwrap();
    assert!(table.starts_with(b"PAR1") && table.ends_with(b"PAR1"));
    let picture = std::fs::read_to_string(folder.path().join("front.svg")).unwrap();
    assert!(picture.starts_with("<svg") && picture.contains("resnet18"), "{}", &picture[..200]);
    // The front alone, as a table that a reader of text can check.
    let front = explored(&[&GRID[..], &["--front", "-o", "front.csv"]].concat(), folder.path());
    assert!(front.status.success());
    let rows = std::fs::read_to_string(folder.path().join("front.csv")).unwrap();
    assert_eq!(rows.lines().count() - 1, all.iter().filter(|(_, _, on_front, _)| *on_front).count());
}

#[test]
fn a_search_keeps_to_the_limits_and_is_no_worse_than_a_grid() {
    let folder = tempfile::tempdir().unwrap();
    let ranges =
        ["--vary", "sm_count=0.5..1.5", "--vary", "dram_bw=0.5..2", "--vary", "clock=0.9..1", "--json"];
    for objective in ["time", "cost", "energy"] {
        let mut by_grid = GRID;
        by_grid[1] = objective;
        let grid = answer(&explored(&[&by_grid[..], &["--json"]].concat(), folder.path()));
        let search = answer(&explored(&[&["--objective", objective], &ranges[..]].concat(), folder.path()));
        assert_eq!(search["method"].as_str(), Some("search"));
        let best = |found: &Value| -> f64 {
            let name = &found["best"];
            let design = found["designs"].as_array().unwrap().iter().find(|d| d["name"] == *name).unwrap();
            assert_eq!(design["within_limits"].as_bool(), Some(true));
            match objective {
                "time" => design["time_ms"].as_f64().unwrap(),
                "cost" => design["usd_per_million_samples"].as_f64().unwrap(),
                _ => design["joules_per_sample"].as_f64().unwrap(),
            }
        };
        assert!(best(&search) < 1.02 * best(&grid), "{objective}: {} {}", best(&search), best(&grid));
        let front = designs(&search).iter().filter(|(_, _, on_front, _)| *on_front).count();
        // The cheapest and the thriftiest may be the smallest, too: then nothing else is on the front.
        let least = if objective == "time" { 4 } else { 1 };
        assert!(front >= least, "{objective}: {front} designs on the front");
    }
}

#[test]
fn what_cannot_be_searched_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    for (more, part) in [
        (&["--objective", "time"][..], "nothing varies"),
        (&["--objective", "timex", "--vary", "clock=1,2"], "time"),
        (&["--objective", "time", "--vary", "clok=1,2"], "did you mean `clock`"),
        (&["--objective", "time", "--vary", "clock=1,2", "--vary", "clock=3"], "twice"),
        (&["--objective", "time", "--vary", "sm_count=2,3"], "no design"),
        (&["--objective", "time", "--vary", "clock=1", "-o", "x.xlsx"], "x.xlsx"),
        (&["--objective", "time", "--vary", "clock=1", "--plot", "x.svg"], "--plot-front"),
    ] {
        let out = explored(more, folder.path());
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{more:?}: {said}");
        assert!(said.contains(part), "{more:?}: {said}");
        assert!(said.lines().all(|l| l.starts_with("error: ") || l.starts_with("hint: ")), "{said}");
    }
    let area = run(
        &[
            "explore",
            "resnet18",
            "--base",
            "mi300x",
            "--objective",
            "time",
            "--limit",
            "area=800",
            "--vary",
            "clock=1",
        ],
        folder.path(),
    );
    assert!(String::from_utf8_lossy(&area.stderr).contains("--base-area"));
}
