//! Runs the real binary: the Roofline as table, JSON, CSV and chart, and the report.

// The helpers of a test file are test code too.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_preflop")).args(args).env("NO_COLOR", "1").output().unwrap()
}

fn text(args: &[&str]) -> String {
    let out = run(args);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

const JOB: [&str; 8] = ["roofline", "resnet18", "--gpu", "h200", "--batch", "8", "--precision", "amp"];

fn with(more: &[&str]) -> Vec<String> {
    JOB.iter().chain(more).map(ToString::to_string).collect()
}

fn job(more: &[&str]) -> String {
    let args = with(more);
    text(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn json_has_bounds_bytes_and_launches_of_every_row() {
    let data: serde_json::Value = serde_json::from_str(&job(&["--json"])).unwrap();
    let rows = data["views"][0]["rows"].as_array().unwrap();
    assert!(rows.len() > 20);
    for row in rows {
        let get = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key} in {row}"));
        let largest = get("compute_bound_us").max(get("dram_bound_us")).max(get("launch_bound_us"));
        let class = match row["class"].as_str().unwrap() {
            "compute" => get("compute_bound_us"),
            "memory" => get("dram_bound_us"),
            _ => get("launch_bound_us"),
        };
        assert_eq!(class, largest, "{row}");
        assert!(
            get("l1_bytes") > 0.0 && get("l2_bytes") > 0.0 && get("launches") >= 1.0 && get("time_us") > 0.0
        );
        let by_pipe: f64 =
            row["flops_by_pipe"].as_object().unwrap().values().filter_map(serde_json::Value::as_f64).sum();
        assert!((by_pipe - get("flops")).abs() <= 1e-6 * get("flops"));
    }
}

#[test]
fn csv_has_a_header_and_as_many_rows() {
    let csv = job(&["--csv", "--by", "layer"]);
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let header = reader.headers().unwrap().clone();
    assert!(header.iter().any(|h| h == "l2_bound_us") && header.iter().any(|h| h == "above_roof"));
    assert!(reader.records().all(|r| r.is_ok_and(|r| r.len() == header.len())));
}

#[test]
fn charts_are_written_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, file, magic) in [
        ("plane", "a.svg", "<svg"),
        ("roofline", "b.svg", "<svg"),
        ("hierarchical", "c.png", "PNG"),
        ("plane", "d.html", "<!doctype html>"),
    ] {
        let path = folder.path().join(file);
        job(&["--chart", kind, "-o", path.to_str().unwrap()]);
        let bytes = std::fs::read(&path).unwrap();
        assert!(String::from_utf8_lossy(&bytes[..400.min(bytes.len())]).contains(magic), "{file}");
    }
    let sweep = folder.path().join("sweep.svg");
    let said = text(&[
        "roofline",
        "resnet18",
        "--gpu",
        "h200,a100",
        "--sweep",
        "batch=1,2",
        "-o",
        sweep.to_str().unwrap(),
    ]);
    assert!(said.contains("batch 2"));
}

#[test]
fn the_study_is_redrawn_from_its_table() {
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("t.csv");
    // The check row of the study: 28.72 G / 350.445, 2652 us, 3 launches.
    std::fs::write(
        &table,
        "Precision,Kernel Shape,Stride Size,Batch Size,Pass,CUDA Time,Invocations,FLOPs,DRAM AI,Framework\n\
         FP32,9x9x64x64,2,16,forward,0.002652,3,2.8719e10,350.445,PT\n",
    )
    .unwrap();
    let chart = folder.path().join("t.svg");
    let args =
        ["roofline", "--study", "conv2d", table.to_str().unwrap(), "--json", "-o", chart.to_str().unwrap()];
    let data: serde_json::Value = serde_json::from_str(&text(&args)).unwrap();
    let row = &data["views"][0]["rows"][0];
    assert_eq!(row["class"], "compute");
    assert!((row["slowdown"].as_f64().unwrap() - 9.83).abs() < 0.005, "{row}");
    assert!(std::fs::read_to_string(&chart).unwrap().contains("PT FP32 forward"));
}

#[test]
fn the_report_names_its_command_and_stays_small() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.html");
    text(&["report", "resnet152", "--gpu", "h200", "-o", path.to_str().unwrap()]);
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(page.len() < 2_000_000, "{}", page.len());
    assert!(page.contains("preflop report resnet152 --gpu h200 --batch"));
    let md = text(&["report", "resnet18", "--gpu", "h200,v100", "--md"]);
    assert!(md.contains("## What would help") && md.contains("V100"));
}

#[test]
fn bad_input_ends_with_one_error_and_a_hint() {
    for (args, said) in [
        (&["roofline", "resnet18"][..], "no GPU"),
        (&["roofline", "resnet18", "--gpu", "h200", "-o", "x.pdf"][..], "x.pdf"),
        (&["roofline", "resnet18", "--gpu", "h200", "--roof", "fp3", "-o", "x.svg"][..], "fp3"),
        (&["roofline", "resnet18", "--gpu", "h200", "--sweep", "batch=0"][..], "sweep"),
        (&["roofline", "--study", "gru", "none.csv"][..], "gru"),
        (&["report", "resnet18", "--gpu", "h200"][..], "no file"),
        (&["report", "resnet18", "--gpu", "h200", "--usd-per-hour", "-1", "--md"][..], "usd-per-hour"),
    ] {
        let out = run(args);
        let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.starts_with("error: ") && stderr.contains(said), "{args:?}: {stderr}");
    }
}
