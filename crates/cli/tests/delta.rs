//! Runs the real binary: `delta`, `explore` and `sensitivity`, their JSON, their files and bad input.

// The helpers of a test file are test code too.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_preflop")).args(args).env("RUST_BACKTRACE", "1").output().unwrap()
}

#[track_caller]
fn json(args: &[&str]) -> Value {
    let out = run(args);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

/// Nothing on stdout, one error line and perhaps a hint on stderr, exit status 2.
#[track_caller]
fn refuses(args: &[&str], words: &[&str]) {
    let out = run(args);
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{stderr}");
    assert!(out.stdout.is_empty(), "{}", String::from_utf8_lossy(&out.stdout));
    let lines: Vec<&str> = stderr.lines().collect();
    assert!(lines.first().is_some_and(|l| l.starts_with("error: ")), "{stderr}");
    assert!(lines.iter().skip(1).all(|l| l.starts_with("hint: ")), "{stderr}");
    for word in words {
        assert!(stderr.contains(word), "`{word}` is not in: {stderr}");
    }
}

fn csv(content: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("layers.csv");
    std::fs::write(&path, content).unwrap();
    let path = path.to_string_lossy().into_owned();
    (folder, path)
}

const HEADER: &str = "name,b,ci,h,w,co,r,s,stride,pad";

#[test]
fn delta_json_has_the_promised_fields() {
    let report = json(&["delta", "alexnet-original", "--gpu", "titan-xp", "--json"]);
    assert_eq!(report["gpu"], "titan-xp");
    let layers = report["layers"].as_array().unwrap();
    assert_eq!(layers.len(), 5);
    let conv1 = &layers[0];
    assert_eq!(conv1["name"], "conv1");
    assert_eq!(conv1["bottleneck"], "L1_BW");
    assert_eq!(conv1["next_bottleneck"], "MAC");
    assert_eq!(conv1["cta_tile"], serde_json::json!([128, 32, 4]));
    assert_eq!(conv1["num_cta"], 18_150);
    assert_eq!(conv1["l1_bytes"], 19_185_566_400.0);
    for (key, value) in [("l2_bytes", 1.48685e9), ("dram_bytes", 4.7503e8), ("time_ms", 7.0787)] {
        let got = conv1[key].as_f64().unwrap();
        assert!((got / value - 1.0).abs() < 1e-3, "{key}: {got}");
    }
    assert_eq!(
        json(&["delta", "resnet152", "--gpu", "v100", "--json"])["layers"].as_array().unwrap().len(),
        155
    );
}

#[test]
fn delta_compares_with_the_prior_model() {
    let report = json(&["delta", "alexnet-original", "--gpu", "titan-xp", "--compare-prior", "--json"]);
    let ratio = report["layers"][0]["prior"]["over_prediction"].as_f64().unwrap();
    assert!((ratio - 6.02).abs() < 0.01, "{ratio}");
    let out = run(&["delta", "alexnet-original", "--compare-prior", "--gpu", "titan-xp"]);
    assert!(String::from_utf8_lossy(&out.stdout).contains("6.02x"));
}

#[test]
fn delta_reads_layers_from_a_file() {
    let rows = "conv,2,6,8,9,10,3,1,2x1,1x0,2,1,128x64\nfc,64,512,1,1,1000,1,1,1,0,,,\n";
    let (_folder, path) = csv(&format!("{HEADER},groups,dilation,tile\n{rows}"));
    let report = json(&["delta", &path, "--gpu", "h200", "--dtype", "fp16", "--json"]);
    let conv = &report["layers"][0];
    // 4x9 outputs of 2 images are one row of CTAs, 5 channels one column, in each of 2 groups.
    assert_eq!((&conv["num_cta"], &conv["cta_tile"]), (&2.into(), &serde_json::json!([128, 64, 4])));
    let fc = &report["layers"][1];
    // (64 x 512 x 8 columns + 512 x 1000) fp16 elements
    assert_eq!(fc["dram_bytes"], 2.0 * (64.0 * 512.0 * 8.0 + 512_000.0));
}

#[test]
fn what_the_equations_leave_out_is_asked_for() {
    let file =
        "name,b,ci,h,w,co,r,s,stride,pad\nsmall,16,512,7,7,512,1,1,1,0\nlarge,256,512,7,7,512,1,1,1,0\n";
    let (_folder, path) = csv(file);
    let times = |options: &[&str]| {
        let report = json(&[&["delta", &path, "--gpu", "titan-xp", "--json"], options].concat());
        [0, 1].map(|i| report["layers"][i]["time_ms"].as_f64().unwrap())
    };
    let [small, large] = times(&["--instructions", "all"]);
    let [small_alone, large_alone] = times(&["--instructions", "all", "--lone-cta", "exposed"]);
    // 28 CTAs on 30 SMs: 64 main loops of 71 ns more. 98 x 4 CTAs are 14 on the fullest SM, in seven rounds of two.
    assert!((small_alone - small - 64.0 * 70.886e-6).abs() < 1e-5, "{small} {small_alone}");
    assert!((large - large_alone).abs() < 1e-9, "{large} {large_alone}");
    refuses(&["delta", &path, "--gpu", "titan-xp", "--lone-cta", "some"], &["some", "exposed"]);
}

#[test]
fn bad_layers_are_refused() {
    let (_a, missing) = csv("name,b,ci,h,w,co,r,stride,pad\n");
    refuses(&["delta", &missing, "--gpu", "titan-xp"], &["column `s` is missing", "layers.csv"]);
    refuses(&["explore", &missing, "--base", "titan-xp"], &["column `s` is missing"]);
    let (_b, large) = csv(&format!("{HEADER}\nbig,1,3,5,5,8,7,7,1,0\n"));
    refuses(&["delta", &large, "--gpu", "titan-xp"], &["line 2", "`big`", "reaches over 7x7", "5x5"]);
    let (_c, text) = csv(&format!("{HEADER}\nx,1,three,5,5,8,3,3,1,0\n"));
    refuses(&["delta", &text, "--gpu", "titan-xp"], &["line 2", "`ci` is `three`"]);
    let (_d, empty) = csv(&format!("{HEADER}\n"));
    refuses(&["delta", &empty, "--gpu", "titan-xp"], &["no layer"]);
    let (_e, short) = csv(&format!("{HEADER}\nx,1,3\n"));
    refuses(&["delta", &short, "--gpu", "titan-xp"], &["`h` is empty"]);
    let (_f, zero) = csv(&format!("{HEADER}\nx,1,3,5,5,8,3,3,0,0\n"));
    refuses(&["delta", &zero, "--gpu", "titan-xp"], &["stride is 0"]);
    let (_g, tile) = csv(&format!("{HEADER},tile\nx,1,3,5,5,8,3,3,1,0,100x3\n"));
    refuses(&["delta", &tile, "--gpu", "titan-xp"], &["powers of two"]);
    refuses(&["delta", "no/such.csv", "--gpu", "titan-xp"], &["no/such.csv"]);
    refuses(&["delta", "resnet51", "--gpu", "titan-xp"], &["`resnet51`", "`resnet50`"]);
    refuses(&["delta", "vgg16", "--gpu", "titan-xq"], &["`titan-xq`", "`titan-xp`"]);
    refuses(&["delta", "vgg16", "--gpu", "titan-xp", "--batch", "0"], &["--batch"]);
    refuses(&["delta", "vgg16", "--gpu", "titan-xp", "--compare-prior", "2"], &["miss rate"]);
}

#[test]
fn the_papers_options() {
    let report = json(&["explore", "resnet152", "--base", "titan-xp", "--options", "delta-paper", "--json"]);
    let designs = report["designs"].as_array().unwrap();
    assert_eq!((designs.len(), report["base"].as_str()), (9, Some("titan-xp")));
    let speedup = |i: usize| designs[i - 1]["speedup"].as_f64().unwrap();
    assert!((speedup(1) / 1.9 - 1.0).abs() < 0.05 && (speedup(2) / 3.4 - 1.0).abs() < 0.05);
    assert!(speedup(9) > speedup(8));
    for design in designs {
        let layers: u64 =
            design["bottlenecks"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
        assert_eq!(layers, 155);
        assert!(design["scales"]["sm_count"].is_number() && design["time_ms"].is_number());
    }
}

#[test]
fn sweeps_write_files_and_plots() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (table, bars, front) = (path("d.csv"), path("bars.svg"), path("front.png"));
    let mut args = vec!["explore", "alexnet-original", "--base", "titan-xp", "--json"];
    args.extend(["--vary", "sm_count=1,2,4", "--vary", "dram_bw=1:4:0.25", "--vary", "tile=128,256"]);
    args.extend(["-o", &table, "--plot", &bars, "--plot-front", &front]);
    let report = json(&args);
    assert_eq!(report["designs"].as_array().unwrap().len(), 3 * 13 * 2);
    assert_eq!(report["designs"][0]["speedup"], 1.0);
    assert_eq!(std::fs::read_to_string(&table).unwrap().lines().count(), 1 + 78);
    assert!(std::fs::read_to_string(&bars).unwrap().contains("sm_count/dram_bw/tile"));
    assert!(std::fs::read(&front).unwrap().starts_with(b"\x89PNG"));
}

#[test]
fn bad_sweeps_are_refused() {
    let vary = |text: &str, words: &[&str]| {
        refuses(&["explore", "vgg16", "--base", "titan-xp", "--vary", text], words);
    };
    vary("sm_count=0", &["zero SMs"]);
    vary("sm_count=0.001", &["number of SMs is 0"]);
    vary("sms=1", &["unknown key `sms`"]);
    vary("dram_bw=1:2", &["FROM:TO:STEP"]);
    vary("dram_bw=1:1e6:1e-3", &["too many"]);
    refuses(&["explore", "vgg16", "--base", "titan-xp", "-o", "x.xlsx"], &["x.xlsx", ".csv"]);
    refuses(&["explore", "vgg16", "--base", "titan-xp", "--plot", "x.pdf"], &["x.pdf", ".svg"]);
    refuses(&["explore", "vgg16", "--base", "titan-xp", "--area-weights", "no.toml"], &["no.toml"]);
    refuses(&["explore", "vgg16", "--base", "titan-xp", "--options", "mine"], &["mine", "delta-paper"]);
}

#[test]
fn sensitivity_writes_four_plots() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("new").to_string_lossy().into_owned();
    let report = json(&["sensitivity", "--gpu", "titan-xp", "-o", &target, "--json"]);
    let files: Vec<&str> = report["files"].as_array().unwrap().iter().map(|f| f.as_str().unwrap()).collect();
    assert_eq!(
        files.iter().filter(|f| std::path::Path::new(f).extension().is_some_and(|e| e == "svg")).count(),
        4
    );
    for file in files {
        assert!(std::fs::metadata(file).unwrap().len() > 1000, "{file}");
    }
    // 32 values on three axes, 61 feature sizes
    assert_eq!(report["points"].as_array().unwrap().len(), 3 * 32 + 61);
    let taken = folder.path().join("file");
    std::fs::write(&taken, "").unwrap();
    refuses(
        &["sensitivity", "--gpu", "titan-xp", "-o", &taken.to_string_lossy()],
        &["cannot make the folder"],
    );
}

/// The counters of 46 layers on an H200, in this repository.
fn counters() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/measured/h200/conv_counters.csv").to_string()
}

#[test]
fn measured_layers_stand_beside_the_model() {
    let path = counters();
    let today = |dtype: &str| {
        json(&[
            "delta",
            "--measured",
            &path,
            "--gpu",
            "h200",
            "--dtype",
            dtype,
            "--equations",
            "today",
            "--json",
        ])
    };
    for (dtype, levels) in [
        ("fp32", &[("l1", 0.15), ("l2", 0.10), ("dram", 0.10)][..]),
        ("fp16", &[("l2", 0.10), ("dram", 0.10)]),
    ] {
        let report = today(dtype);
        assert_eq!(report["layers"].as_array().unwrap().len(), 23);
        let all =
            report["errors"].as_array().unwrap().iter().find(|g| g["network"] == "all").unwrap().clone();
        for (level, most) in levels {
            let gmae = all[level]["gmae"].as_f64().unwrap();
            assert!(gmae < *most, "{dtype} {level}: {gmae}");
        }
    }
    let networks: Vec<String> = today("fp32")["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|g| g["network"].as_str().unwrap().into())
        .collect();
    assert_eq!(networks, ["AlexNet", "ResNet152", "all"]);
}

#[test]
fn measured_layers_are_drawn_and_bad_ones_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (boxes, lines) = (at("boxes.svg"), at("layers.png"));
    let path = counters();
    let out =
        run(&["delta", "--measured", &path, "--gpu", "h200", "--plot", &boxes, "--plot-layers", &lines]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(String::from_utf8_lossy(&out.stdout).contains("GMAE"));
    assert!(std::fs::read_to_string(&boxes).unwrap().contains("<svg"));
    assert!(std::fs::read(&lines).unwrap().starts_with(b"\x89PNG"));
    refuses(
        &["delta", "--measured", &path, "--gpu", "h200", "--algorithm", "FFT"],
        &["none of the 46 layers"],
    );
    refuses(&["delta", "--measured", &at("no.csv"), "--gpu", "h200"], &["no.csv"]);
    refuses(&["delta", "--gpu", "h200"], &["NETWORK"]);
}

#[test]
fn miss_rates_sweep_and_cycles_stand_beside_milliseconds() {
    let report = json(&[
        "delta",
        "alexnet-original",
        "--gpu",
        "titan-xp",
        "--compare-prior",
        "0.25,0.5,1",
        "--fc",
        "--json",
    ]);
    let layers = report["layers"].as_array().unwrap();
    assert_eq!(layers.len(), 8, "five convolutions and three fully connected layers");
    for layer in layers {
        let times: Vec<f64> =
            layer["priors"].as_array().unwrap().iter().map(|p| p["time_ms"].as_f64().unwrap()).collect();
        assert!(times.len() == 3 && times.windows(2).all(|w| w[0] <= w[1]), "{times:?}");
        // 1.58 GHz
        let cycles = layer["cycles"].as_f64().unwrap();
        assert!((cycles / layer["time_ms"].as_f64().unwrap() / 1.58e6 - 1.0).abs() < 1e-9);
    }
}

#[test]
fn arithmetic_outgrows_bandwidth() {
    let years = json(&["gpus", "history", "--json"]);
    let last = years.as_array().unwrap().last().unwrap();
    assert!(last["arithmetic_growth"].as_f64() > last["dram_growth"].as_f64(), "{last}");
    assert!(years[0]["year"].as_u64() < last["year"].as_u64());
}
