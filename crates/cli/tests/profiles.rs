//! Runs the real binary on recordings of our own making.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};

const TRACE: &str = r#"{"deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "numSms": 132, "warpSize": 32}],
  "metadata": {"token": "none-of-yours"},
  "traceEvents": [
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 40, "args": {"Input Dims": [[4096, 4096], [4096, 4096]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 10, "dur": 6, "args": {"correlation": 7}},
    {"ph": "X", "cat": "kernel", "name": "nvjet_tst_128x256_64x4_2x1_v_bz_TNT", "pid": 0, "tid": 7, "ts": 20, "dur": 190, "args": {"device": 0, "correlation": 7, "registers per thread": 168, "shared memory": 200000, "grid": [132, 1, 1], "block": [384, 1, 1]}},
    {"ph": "X", "cat": "kernel", "name": "void at::native::vectorized_elementwise_kernel<4>", "pid": 0, "tid": 7, "ts": 220, "dur": 80, "args": {"device": 0, "correlation": 99, "registers per thread": 32, "shared memory": 0, "grid": [16384, 1, 1], "block": [128, 1, 1]}}
  ]}"#;

fn write(name: &str, text: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_preflop")).args(args).output().unwrap()
}

#[track_caller]
fn json(args: &[&str]) -> Value {
    let out = run(args);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

#[test]
fn transfer_has_the_names_that_scripts_rely_on() {
    let (_folder, path) = write("t.json", TRACE.as_bytes());
    let path = path.to_str().unwrap();
    let all = json(&["transfer", path, "--json"]);
    assert_eq!(all["origin"], "h200");
    // Of all GPUs, those that have the recorded format.
    assert_eq!(all["targets"].as_array().unwrap().len(), 54);
    for method in ["wave", "ratio", "mixed"] {
        let t = json(&["transfer", path, "--to", "h200,a100", "--method", method, "--host", "1", "--json"]);
        // 0 to 300 us; one of two kernels has no operator.
        assert_eq!(t["measured_ms"], 0.3);
        assert!((t["gpu_busy_ms"].as_f64().unwrap() - 0.27).abs() < 1e-9);
        assert!((t["unattributed_ms"].as_f64().unwrap() - 0.08).abs() < 1e-9);
        let home = &t["targets"][0];
        assert!((home["iteration_ms"].as_f64().unwrap() / 0.3 - 1.0).abs() < 0.001);
        let there = &t["targets"][1];
        assert_eq!(there["gpu"], "a100-sxm-80gb");
        let [time, low, high, busy] =
            ["iteration_ms", "low_ms", "high_ms", "gpu_busy_ms"].map(|k| there[k].as_f64().unwrap());
        assert!(low < time && time < high && busy > 0.27, "{there}");
    }
}

#[test]
fn a_samplers_summary_of_the_host_is_explained_and_nothing_else_takes_it() {
    let csv = "Hierarchy Level,Metric Name,Metric Value\n0,Elapsed Time,10\n1,CPU Time,10.5\n2,Spin Time,0.25\n1,Logical CPU Count,16\n";
    let (_folder, path) = write("vtune.csv", csv.as_bytes());
    let path = path.to_str().unwrap();
    let host = json(&["explain", path, "--json"]);
    assert_eq!((&host["cpus_busy"], &host["logical_cpus"]), (&Value::from(1.05), &Value::from(16.0)));
    let out = run(&["explain", path]);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(text.contains("1.05 CPUs busy on the mean of 16.0 (6.6 %)"), "{text}");
    let refused = run(&["transfer", path, "--to", "a100"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("holds no kernels"));
}

#[test]
fn the_profilers_own_time_is_taken_out() {
    let (_folder, path) = write("t.json", TRACE.as_bytes());
    let path = path.to_str().unwrap();
    let of = |more: &[&str]| json(&[&["transfer", path, "--to", "h200", "--json"], more].concat());
    let (kept, out) = (of(&["--host", "1"]), of(&[]));
    let host = |t: &serde_json::Value| t["targets"][0]["host_ms"].as_f64().unwrap();
    assert!((host(&out) / host(&kept) - 0.75).abs() < 1e-9);
    assert!((host(&of(&["--host-ms", "12.5"])) - 12.5).abs() < 1e-9);
    assert_eq!(of(&["--host-ms", "50"])["targets"][0]["bound"], "host");
    // Nobody is faster than the host that launches.
    let slow = json(&["transfer", path, "--to", "h200,a100,t4", "--host-ms", "50", "--json"]);
    assert!(slow["notes"][0].as_str().unwrap().contains("host limits every GPU"), "{slow}");
    assert!(!run(&["transfer", path, "--host", "1", "--host-ms", "3"]).status.success());
}

#[test]
fn another_batch_and_another_format_are_carried() {
    let (_folder, path) = write("t.json", TRACE.as_bytes());
    let path = path.to_str().unwrap();
    let busy = |more: &[&str]| {
        let t = json(&[&["transfer", path, "--to", "h200", "--json"], more].concat());
        t["targets"][0]["gpu_busy_ms"].as_f64().unwrap()
    };
    let twice = busy(&["--batch", "128", "--recorded-batch", "64"]);
    assert!(twice > 1.5 * busy(&[]) && twice < 2.5 * busy(&[]), "{twice}");
    assert!((busy(&["--batch", "64", "--recorded-batch", "64"]) / busy(&[]) - 1.0).abs() < 1e-9);
    assert!(busy(&["--precision", "fp32"]) > busy(&[]), "a bf16 product takes longer in fp32");
    let out = run(&["transfer", path, "--to", "h200", "--batch", "8"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("--recorded-batch"), "{out:?}");
}

#[test]
fn a_recording_of_the_same_job_checks_a_transfer() {
    let (_folder, path) = write("t.json", TRACE.as_bytes());
    let path = path.to_str().unwrap();
    let t = json(&["transfer", path, "--check", path, "--json"]);
    assert_eq!(t["check"]["gpu"], "h200");
    assert!(t["check"]["error"].as_f64().unwrap().abs() < 1e-9 && t["check"]["in_interval"] == true, "{t}");
    let out = run(&["transfer", path, "--check", path]);
    assert!(String::from_utf8_lossy(&out.stdout).contains("recorded on h200"));
}

#[test]
fn recordings_rank_by_time_cost_and_energy() {
    let (_folder, path) = write("t.json", TRACE.as_bytes());
    let path = path.to_str().unwrap();
    let rows = |rank: &str| {
        let rows = json(&["compare", path, "--gpus", "h200,a100,t4,titan-xp", "--rank", rank, "--json"]);
        rows.as_array().unwrap().clone()
    };
    for (rank, key) in
        [("time", "iteration_ms"), ("cost", "usd_per_million_iterations"), ("energy", "joules_per_iteration")]
    {
        let values: Vec<f64> = rows(rank).iter().filter_map(|r| r[key].as_f64()).collect();
        assert!(values.len() > 2 && values.windows(2).all(|w| w[0] <= w[1]), "{rank}: {values:?}");
    }
    // A GPU that nobody rents out is listed, without dollars.
    let cost = rows("cost");
    let titan = cost.iter().find(|r| r["gpu"] == "titan-xp").unwrap();
    assert!(titan["usd_per_hour"].is_null() && titan["iteration_ms"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_slower_host_shows() {
    let (_folder, path) = write("t.json", TRACE.as_bytes());
    let path = path.to_str().unwrap();
    let at = |host: &str| {
        let t = json(&["transfer", path, "--to", "h200", "--host", host, "--json"]);
        t["targets"][0]["iteration_ms"].as_f64().unwrap()
    };
    assert!(at("4") > 2.0 * at("1"));
}

#[test]
fn explain_in_three_forms() {
    let (_folder, path) = write("t.json", TRACE.as_bytes());
    let path = path.to_str().unwrap();
    let e = json(&["explain", path, "--json"]);
    assert_eq!(e["gpu"], "h200");
    assert!(e["occupancy"]["large_shared_lowest"].as_f64().unwrap() > 0.0);
    assert!((e["unattributed"]["kernel_share"].as_f64().unwrap() - 80.0 / 270.0).abs() < 1e-9);
    let text = String::from_utf8(run(&["explain", path]).stdout).unwrap();
    assert!(
        text.contains("aten::mm") && text.contains("What would help") && text.contains("not kept: metadata")
    );
    let markdown = String::from_utf8(run(&["explain", path, "--md"]).stdout).unwrap();
    assert!(markdown.starts_with("# t.json") && markdown.contains("| aten::mm |"));
}

#[test]
fn diff_of_a_recording_with_itself_is_nothing() {
    let (_folder, path) = write("t.json", TRACE.as_bytes());
    let path = path.to_str().unwrap();
    let d = json(&["diff", path, path, "--json"]);
    assert!(d["operators"].as_array().unwrap().iter().all(|o| o["change_ms"] == 0.0));
}

#[test]
fn redact_leaves_a_readable_copy() {
    let (folder, path) = write("t.json", TRACE.as_bytes());
    let copy = folder.path().join("clean.json");
    let out = run(&["redact", path.to_str().unwrap(), "-o", copy.to_str().unwrap()]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(!std::fs::read_to_string(&copy).unwrap().contains("none-of-yours"));
    assert_eq!(json(&["explain", copy.to_str().unwrap(), "--json"])["gpu"], "h200");
}

#[test]
fn bad_recordings_are_one_line_and_status_2() {
    for (content, words) in [
        (&b""[..], "is empty"),
        (&TRACE.as_bytes()[..600], "is cut off"),
        (b"{\"traceEvents\": [{]}", "malformed"),
        (b"\xff\xfe\xfd", "no profile we know"),
        (b"op,phase\nmm,fwd\n", "no profile we know"),
        (b"{\"traceEvents\": [{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"a\", \"ts\": 1, \"dur\": 1}]}", "holds no GPU kernel times"),
        (b"{\"traceEvents\": [{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"a\", \"ts\": 1, \"dur\": 1}]}", "does not say which GPU"),
    ] {
        let (_folder, path) = write("t.json", content);
        let out = run(&["transfer", path.to_str().unwrap(), "--to", "h200"]);
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{stderr}");
        assert!(out.stdout.is_empty());
        assert!(stderr.starts_with("error: ") && stderr.contains(words), "{stderr}");
        assert!(stderr.lines().skip(1).all(|l| l.starts_with("hint: ")), "{stderr}");
    }
    let out = run(&["explain", "/nonexistent.json"]);
    assert_eq!(out.status.code(), Some(2));
}

/// A recording of PyTorch on an H200, which README.md starts with.
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/step.json.gz");

#[test]
fn the_example_is_a_real_recording_of_pytorchs_defaults() {
    let explained = json(&["explain", EXAMPLE, "--json"]).to_string();
    for word in ["h200", "aten::cudnn_convolution", "tf32"] {
        assert!(explained.contains(word), "`{word}` is not in the answer");
    }
    let carried = json(&["transfer", EXAMPLE, "--to", "a100,l4", "--json"]);
    let measured = carried["measured_ms"].as_f64().unwrap();
    for target in carried["targets"].as_array().unwrap() {
        assert!(target["iteration_ms"].as_f64().unwrap() > measured, "{target}");
    }
}

#[test]
fn nothing_is_left_to_take_out_of_the_example() {
    let folder = tempfile::tempdir().unwrap();
    let clean = folder.path().join("clean.json.gz");
    let taken = json(&["redact", EXAMPLE, "-o", clean.to_str().unwrap(), "--json"]);
    assert_eq!(taken["report"], serde_json::json!({}));
}
