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

fn json(args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&text(args)).unwrap()
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
    // fp32 against the fp32 roof, and with the study's own reading against that of the tensor cores.
    for (more, pipe, slowdown) in [(&[][..], "fp32", 1.40), (&["--roof", "tensor"][..], "fp16 tensor", 9.83)]
    {
        let data = json(&[&args[..], more].concat());
        let row = &data["views"][0]["rows"][0];
        assert_eq!(row["class"], "compute");
        assert!((row["slowdown"].as_f64().unwrap() - slowdown).abs() < 0.005, "{row}");
        assert!(row["flops_by_pipe"][pipe].as_f64().is_some(), "{row}");
        assert!(data["conclusions"][0].as_str().unwrap().contains("1 compute-bound"), "{data}");
    }
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

/// A PyTorch profiler trace: a product with shapes, a kernel that nobody asked for, and a copy.
fn trace(folder: &std::path::Path, product_us: f64) -> String {
    let path = folder.join("trace.json");
    let text = format!(
        r#"{{"deviceProperties":[{{"id":0,"name":"NVIDIA H200","totalGlobalMem":150754820096,"computeMajor":9,"computeMinor":0,"numSms":132}}],
"traceEvents":[
{{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":0,"dur":50,"args":{{"External id":1,"Input Dims":[[4096,4096],[4096,4096]],"Input type":["c10::BFloat16","c10::BFloat16"]}}}},
{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":10,"dur":5,"args":{{"correlation":1}}}},
{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":60,"dur":5,"args":{{"correlation":2}}}},
{{"ph":"X","cat":"kernel","name":"nvjet_hsh_128x256","pid":0,"tid":7,"ts":20,"dur":{product_us},"args":{{"device":0,"stream":7,"correlation":1,"grid":[132,1,1],"block":[128,1,1]}}}},
{{"ph":"X","cat":"kernel","name":"mystery","pid":0,"tid":7,"ts":900,"dur":100,"args":{{"device":0,"stream":7,"correlation":2,"grid":[132,1,1],"block":[128,1,1]}}}},
{{"ph":"X","cat":"gpu_memcpy","name":"Memcpy DtoD","pid":0,"tid":7,"ts":1000,"dur":100,"args":{{"device":0,"stream":7,"correlation":3,"bytes":100000000}}}}
]}}"#
    );
    std::fs::write(&path, text).unwrap();
    path.to_string_lossy().into_owned()
}

#[test]
fn a_recording_has_measured_times_and_says_where_its_work_comes_from() {
    let folder = tempfile::tempdir().unwrap();
    let path = trace(folder.path(), 200.0);
    let out = json(&["roofline", &path, "--json"]);
    let view = &out["views"][0];
    assert_eq!(view["gpu"], "h200");
    let rows = view["rows"].as_array().unwrap();
    let row = |op: &str| rows.iter().find(|r| r["op"] == op).unwrap();
    // 2 x 4096^3 FLOPs in 200 us
    let mm = row("aten::mm");
    assert_eq!(mm["flops"], 2.0 * 4096f64.powi(3));
    assert_eq!(mm["time_us"], 200.0);
    assert_eq!(mm["class"], "compute");
    assert!(mm["above_roof"].as_array().unwrap().is_empty());
    assert_eq!(row("mystery")["class"], "unknown");
    assert_eq!(row("Memcpy DtoD")["dram_bytes"], 2e8);
    // 200, 100 and 100 us
    let share = |part: &str| view["sources"][part]["time_share"].as_f64().unwrap();
    assert!((share("modelled") - 0.5).abs() < 1e-9 && (share("unknown") - 0.25).abs() < 1e-9);
    assert!((view["summary"]["unknown_share"].as_f64().unwrap() - 0.25).abs() < 1e-9);
    // Charts of all kinds are drawn.
    for chart in ["plane", "roofline", "hierarchical"] {
        let svg = folder.path().join(format!("{chart}.svg")).to_string_lossy().into_owned();
        json(&["roofline", &path, "--chart", chart, "-o", &svg, "--json"]);
        assert!(std::fs::read_to_string(svg).unwrap().contains("gemm"));
    }
}

#[test]
fn a_recorded_time_above_a_roof_is_flagged() {
    let folder = tempfile::tempdir().unwrap();
    // 137 GFLOP in 50 us are 2.7 PFLOP/s; the H200 has 0.99.
    let path = trace(folder.path(), 50.0);
    let out = json(&["roofline", &path, "--json"]);
    let view = &out["views"][0];
    assert_eq!(view["summary"]["above_roof"], 1);
    let mm = view["rows"].as_array().unwrap().iter().find(|r| r["op"] == "aten::mm").unwrap();
    assert_eq!(mm["above_roof"][0], "compute");
}

#[test]
fn counters_give_bytes_at_every_level() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernels.csv").to_string_lossy().into_owned();
    let text = "\"ID\",\"Kernel Name\",\"Block Size\",\"Grid Size\",\"Device\",\"CC\",\"gpu__time_duration.sum\",\"dram__bytes.sum\",\
                \"lts__t_bytes.sum\",\"l1tex__t_bytes.sum\",\"sm__sass_thread_inst_executed_op_ffma_pred_on.sum\"\n\
                \"\",\"\",\"\",\"\",\"\",\"\",\"ns\",\"byte\",\"byte\",\"byte\",\"inst\"\n\
                \"0\",\"sgemm\",\"(128, 1, 1)\",\"(80, 1, 1)\",\"0\",\"7.0\",\"1000\",\"100000\",\"200000\",\"400000\",\"1000000\"\n";
    std::fs::write(&path, text).unwrap();
    let out = json(&["roofline", &path, "--gpu", "v100", "--json"]);
    let row = &out["views"][0]["rows"][0];
    assert_eq!((&row["flops"], &row["dram_bytes"]), (&2e6.into(), &1e5.into()));
    assert_eq!((&row["l2_bytes"], &row["l1_bytes"]), (&2e5.into(), &4e5.into()));
    assert_eq!(out["views"][0]["sources"]["counted"]["time_share"], 1.0);
}

#[test]
fn a_report_of_a_recording_compares_gpus_and_has_dated_prices() {
    let folder = tempfile::tempdir().unwrap();
    let path = trace(folder.path(), 200.0);
    let report = json(&["report", &path, "--gpu", "h200,a100", "--batch", "8", "--json"]);
    assert_eq!(report["measured"], true);
    let gpus = report["gpus"].as_array().unwrap();
    assert_eq!(gpus.len(), 2);
    assert!(gpus[1]["iteration_ms"].as_f64() > gpus[0]["iteration_ms"].as_f64());
    for gpu in gpus {
        assert_eq!(gpu["usd_per_hour"].is_null(), gpu["price_date"].is_null());
        assert!(gpu["samples_per_s"].as_f64().unwrap() > 0.0 && gpu["memory_mib"].is_null());
    }
    assert_eq!(report["unmodelled"][0]["name"], "mystery");
    assert!(report["command"].as_str().unwrap().contains("--batch 8"));
    let md = run(&["report", &path, "--md"]);
    assert!(String::from_utf8_lossy(&md.stdout).contains("## What binds"));
}

#[test]
fn a_report_of_a_model_has_prices_and_errors_by_family() {
    let report = json(&["report", "resnet50", "--gpu", "h200,titan-xp", "--json"]);
    let gpus = report["gpus"].as_array().unwrap();
    assert!(gpus[0]["price_date"].is_string() && gpus[0]["usd_per_million_samples"].as_f64().unwrap() > 0.0);
    // No cloud rents that one: no dollars.
    assert!(gpus[1]["usd_per_hour"].is_null() && gpus[1]["usd_per_million_samples"].is_null());
    let errors = report["family_errors"].as_array().unwrap();
    assert_eq!(errors[0]["family"], "conv/tf32");
    assert!(errors.iter().all(|e| e["rows"].as_u64().unwrap() > 100));
    let own = json(&["report", "resnet50", "--gpu", "h200", "--usd-per-hour", "3.6", "--json"]);
    assert_eq!(own["gpus"][0]["usd_per_hour"], 3.6);
    assert!(own["gpus"][0]["price_date"].is_string());
    // What does not fit is not said to fit.
    let large = json(&["report", "resnet50", "--gpu", "p4", "--batch", "512", "--json"]);
    assert_eq!(large["gpus"][0]["fits"], false);
}

#[test]
fn bad_questions_about_recordings_get_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = trace(folder.path(), 200.0);
    let refused = |args: &[&str], word: &str| {
        let output = run(args);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert_eq!(stderr.lines().filter(|l| l.starts_with("error: ")).count(), 1, "{stderr}");
        assert!(stderr.contains(word), "{word}: {stderr}");
    };
    refused(&["roofline", &path, "--gpu", "a100"], "was recorded on h200");
    refused(&["roofline", &path, "--sweep", "batch=1,2"], "cannot be swept");
    refused(&["roofline", &path, "--step", "7"], "7");
    let other = folder.path().join("other.json");
    std::fs::write(&other, "{}").unwrap();
    refused(&["roofline", &other.to_string_lossy()], "other.json");
}

#[test]
fn autotuned_algorithms_are_never_slower_than_the_heuristics() {
    let report = json(&["roofline", "resnet18", "--gpu", "h200", "--autotuning", "--json"]);
    assert!(report["autotuned_over_heuristic"].as_f64().unwrap() <= 1.0, "{report}");
    let layers = report["layers"].as_array().unwrap();
    assert!(layers.len() > 20, "{}", layers.len());
    for l in layers {
        assert!(l["autotuned_us"].as_f64() <= l["heuristic_us"].as_f64(), "{l}");
    }
    let out = run(&["roofline", "resnet18", "--gpu", "titan-xp", "--autotuning"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("no choice of a library"), "{out:?}");
}

#[test]
fn a_page_says_which_chart_it_opens_with() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.html");
    job(&["--level", "l2", "-o", path.to_str().unwrap()]);
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(page.contains("\"chart\":\"roofline\",\"level\":\"l2\""));
}
