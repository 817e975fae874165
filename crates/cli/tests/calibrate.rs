//! Calibration, measuring and fitting without a GPU: refusals, broken drivers, and corrections on measured rows.
// A helper that fails should fail the test that called it.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output, Stdio};

fn preflop(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_preflop"));
    command.args(args).env("RUST_BACKTRACE", "1").stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    preflop(args).output().unwrap()
}

/// Exit status 2, nothing on stdout, one error line and perhaps a hint.
#[track_caller]
fn refuses(output: &Output, words: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(!stderr.contains("panicked"), "{stderr}");
    let lines: Vec<&str> = stderr.lines().collect();
    assert!(lines.first().is_some_and(|l| l.starts_with("error: ")), "{stderr}");
    assert!(lines.iter().skip(1).all(|l| l.starts_with("hint: ")), "{stderr}");
    for word in words {
        assert!(stderr.contains(word), "`{word}` is not in: {stderr}");
    }
}

fn data(file: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data").join(file).to_string_lossy().into_owned()
}

#[test]
fn wrong_arguments_are_refused_before_anything_is_measured() {
    refuses(&run(&["calibrate"]), &["--output"]);
    refuses(&run(&["calibrate", "-o", "/no/such/folder/x.toml"]), &["folder does not exist"]);
    refuses(&run(&["calibrate", "-o", "x.toml", "--timeout", "0"]), &["timeout"]);
    refuses(&run(&["calibrate", "-o", "x.toml", "--max-spread", "-1"]), &["max-spread"]);
    refuses(&run(&["calibrate", "-o", "x.toml", "--cublas", "/no/such"]), &["there is nothing"]);
    refuses(&run(&["measure", "-o", "/no/such/folder/x.csv"]), &["folder does not exist"]);
    refuses(&run(&["fit", "/no/such.csv", "--gpu", "h200", "-o", "x.json"]), &["cannot open"]);
}

/// Drivers that are broken in every way, made with the C compiler that Rust links with.
#[cfg(target_os = "linux")]
mod broken_driver {
    use super::*;
    use std::fmt::Write as _;
    use std::time::{Duration, Instant};

    const SOURCE: &str = include_str!("../../calibrate/src/driver/cuda.rs");

    /// A folder with a `libcuda.so.1` all of whose functions return 999, but for `cuInit`.
    fn driver(init: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let mut c = String::from("#include <unistd.h>\n#include <stdlib.h>\n");
        for symbol in SOURCE.split('"').filter(|s| s.starts_with("cu") && !s.contains(' ')) {
            // Names in messages stand there too, without the endings of the functions: all are defined once.
            if symbol != "cuInit" && !c.contains(&format!(" {symbol}(")) {
                writeln!(c, "int {symbol}() {{ return 999; }}").unwrap();
            }
        }
        writeln!(c, "int cuInit(unsigned flags) {{ {init} }}").unwrap();
        let source = folder.path().join("driver.c");
        std::fs::write(&source, c).unwrap();
        let library = folder.path().join("libcuda.so.1");
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-w", "-o"])
            .args([&library, &source])
            .status()
            .unwrap();
        assert!(status.success());
        folder
    }

    fn calibrate(folder: &Path) -> Output {
        let out = folder.join("gpu.toml").to_string_lossy().into_owned();
        let mut command = preflop(&["calibrate", "-o", &out, "--timeout", "1"]);
        let output = command.env("LD_LIBRARY_PATH", folder).output().unwrap();
        assert!(!Path::new(&out).exists());
        output
    }

    #[test]
    fn a_file_that_is_no_driver() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["libcuda.so.1", "libcuda.so"] {
            std::fs::write(folder.path().join(name), "not a library").unwrap();
        }
        let output = calibrate(folder.path());
        refuses(&output, &["no NVIDIA driver found", "libcuda.so.1"]);
        assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1);
    }

    #[test]
    fn a_driver_without_a_gpu() {
        let output = calibrate(driver("return 100;").path());
        refuses(&output, &["sees no GPU"]);
        assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1);
    }

    #[test]
    fn a_driver_that_fails() {
        refuses(&calibrate(driver("return 999;").path()), &["cuInit failed: error 999"]);
        refuses(&calibrate(driver("return 0;").path()), &["cuDeviceGetCount failed"]);
    }

    #[test]
    fn a_driver_that_crashes() {
        refuses(&calibrate(driver("abort();").path()), &["the GPU failed at `starting`", "signal"]);
    }

    #[test]
    fn a_driver_that_hangs() {
        let start = Instant::now();
        refuses(&calibrate(driver("for (;;) sleep(1);").path()), &["no answer for 1 s"]);
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}

/// Stand-ins for Python: shell scripts that say what a test needs.
#[cfg(unix)]
mod python {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn measure(script: &str, timeout: &str) -> (Output, String) {
        let folder = tempfile::tempdir().unwrap();
        let python = folder.path().join("python");
        std::fs::write(&python, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
        let list = folder.path().join("ops.csv");
        let rows = "op,phase,dtype,shape\nmm,fwd,bf16,\"{\"\"m\"\":64,\"\"n\"\":64,\"\"k\"\":64}\"\nmm,fwd,bf16,{}\nadd,fwd,fp32,\"{\"\"n\"\":4096}\"\n";
        std::fs::write(&list, rows).unwrap();
        let out = folder.path().join("out.csv");
        let texts = [&list, &out, &python].map(|p| p.to_string_lossy().into_owned());
        let output =
            run(&["measure", &texts[0], "-o", &texts[1], "--python", &texts[2], "--timeout", timeout]);
        (output, std::fs::read_to_string(out).unwrap_or_default())
    }

    const HELLO: &str = r#"echo '{"device":"GPU","torch":"2"}'"#;

    #[test]
    fn what_was_measured_is_written_and_the_rest_is_told() {
        let script = format!(
            "{HELLO}; cat > /dev/null; echo noise; echo '{}'; echo '{}'; echo '{}'",
            r#"{"i":0,"gpu_us":3.25,"spread":0.01,"copies":8}"#,
            r#"{"i":2,"gpu_us":2.5,"spread":0.9,"copies":8}"#,
            r#"{"end":true}"#
        );
        let (output, csv) = measure(&script, "20");
        assert_eq!(output.status.code(), Some(1));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            stderr.contains("2 of 3 rows could not be measured; the first is line 3: op `mm` needs"),
            "{stderr}"
        );
        assert_eq!(csv.lines().count(), 2);
        assert!(csv.ends_with(",3.250,0.0100,8,GPU,2\n"), "{csv}");
    }

    #[test]
    fn a_python_that_is_no_use_is_named() {
        let (output, csv) = measure(r#"echo '{"failed":"this Python has no PyTorch"}'"#, "20");
        refuses(&output, &["has no PyTorch", "--python"]);
        assert!(csv.is_empty());
        refuses(&measure("echo oops >&2; exit 3", "20").0, &["oops"]);
        refuses(&measure("exec sleep 600", "1").0, &["no answer for 1 s"]);
        refuses(&measure(&format!("{HELLO}; exit 0"), "20").0, &["no operator could be measured"]);
        refuses(&run(&["measure", "-o", "x.csv", "--python", "/no/such/python"]), &["cannot start"]);
    }

    #[test]
    fn what_came_before_a_hang_is_kept() {
        let script =
            format!("{HELLO}; echo '{}'; exec sleep 600", r#"{"i":0,"gpu_us":3,"spread":0,"copies":8}"#);
        let (output, csv) = measure(&script, "1");
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(csv.lines().count(), 2);
    }
}

/// A GPU file that is wrong about an H200: half of the DRAM rate, 0.7 of the products.
fn wrong_h200(folder: &Path) -> String {
    let text = std::fs::read_to_string(data("gpus/h200.toml")).unwrap();
    let text = text
        .replace("name = \"h200\"", "name = \"wrong\"")
        .replace("dram_gbs = { value = 4300", "dram_gbs = { value = 2150")
        .replace("bf16_tflops = { value = 790", "bf16_tflops = { value = 553")
        .replace("fp16_tflops = { value = 795", "fp16_tflops = { value = 556");
    let path = folder.join("wrong.toml");
    std::fs::write(&path, text).unwrap();
    path.to_string_lossy().into_owned()
}

fn error_of(gpu: &str, correction: Option<&str>, measured: &str) -> f64 {
    let mut args = vec!["ops", measured, "--gpu", gpu];
    args.extend(correction.iter().flat_map(|c| ["--correction", c]));
    let output = run(&args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let predicted: Vec<f64> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap()["time_us"].as_f64().unwrap())
        .collect();
    let mut reader =
        csv::Reader::from_reader(flate2::read::GzDecoder::new(std::fs::File::open(measured).unwrap()));
    let measured: Vec<f64> = reader.records().map(|r| r.unwrap()[4].parse().unwrap()).collect();
    assert_eq!(predicted.len(), measured.len());
    let sum: f64 = predicted.iter().zip(&measured).map(|(p, m)| (p / m - 1.0).abs()).sum();
    100.0 * sum / measured.len() as f64
}

/// The user's story: a GPU file that is off, measured operators, a correction, better predictions.
#[test]
fn a_correction_mends_a_wrong_gpu_file() {
    let folder = tempfile::tempdir().unwrap();
    let gpu = wrong_h200(folder.path());
    let measured = data("measured/h200/ops.csv.gz");
    let out = folder.path().join("my.correction.json").to_string_lossy().into_owned();
    let output = run(&["fit", &measured, "--gpu", &gpu, "-o", &out, "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = &answer["held_out"][0];
    let (before, after) = (all["before_mean_pct"].as_f64().unwrap(), all["after_mean_pct"].as_f64().unwrap());
    let (plain, mended) = (error_of(&gpu, None, &measured), error_of(&gpu, Some(&out), &measured));
    println!("held out: before {before:.1} %, after {after:.1} %; all rows: {plain:.1} %, {mended:.1} %");
    assert!((before - plain).abs() < 0.1, "the same rows: {before} {plain}");
    assert!(after < 0.6 * before, "before {before} after {after}");
    assert!(
        (mended / after - 1.0).abs() < 0.05,
        "seen rows are no better than unseen ones: {mended} {after}"
    );

    // The correction holds for its GPU alone.
    refuses(
        &run(&["predict", "resnet50", "--gpu", "h200", "--correction", &out]),
        &["a correction for `wrong`"],
    );
    let time = |correction: &[&str]| {
        let mut args = vec!["predict", "resnet50", "--gpu", &gpu, "--precision", "amp", "--json"];
        args.extend(correction);
        let output = run(&args);
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["gpu_busy_ms"].as_f64().unwrap()
    };
    assert!(time(&["--correction", &out]) < time(&[]), "an H200 is faster than the wrong file says");
    let gpus = format!("{gpu},h200");
    let compared = |correction: &[&str]| {
        let mut args = vec!["compare", "resnet50", "--gpus", &gpus, "--json"];
        args.extend(correction);
        let output = run(&args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let of = |name: &str| {
            rows.as_array().unwrap().iter().find(|r| r["gpu"] == name).unwrap()["iteration_ms"]
                .as_f64()
                .unwrap()
        };
        (of("wrong"), of("h200"))
    };
    let (own, other) = (compared(&[]), compared(&["--correction", &out]));
    assert!(other.0 < own.0);
    assert_eq!(other.1, own.1);
}

#[test]
fn files_that_are_no_measurements_or_corrections_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_string_lossy().into_owned()
    };
    let out = folder.path().join("out.json").to_string_lossy().into_owned();
    let fit = |file: &str| run(&["fit", file, "--gpu", "h200", "-o", &out]);
    refuses(&fit(&write("a.csv", "op,phase,dtype,shape\n")), &["no column `gpu_us`"]);
    refuses(&fit(&write("b.csv", "")), &["no column `op`"]);
    let few = "op,phase,dtype,shape,gpu_us\nadd,fwd,fp32,\"{\"\"n\"\":4096}\",2.5\nadd,fwd,fp32,x,-1\n";
    refuses(&fit(&write("c.csv", few)), &["1 measured rows are too few", "24"]);
    let predict = |file: &str| run(&["predict", "resnet50", "--gpu", "h200", "--correction", file]);
    refuses(&predict(&write("d.json", "{}")), &["not a correction file"]);
    refuses(&predict("/no/such.json"), &["cannot open"]);
    refuses(&predict(&write("e.json", "\u{0}\u{1}")), &["not a correction file"]);
}

#[test]
fn two_files_of_one_gpu_can_be_held_against_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(data("gpus/h200.toml")).unwrap();
    let head = text.split("\n[measured]").next().unwrap();
    let write = |name: &str, gbs: f64| {
        let path = folder.path().join(name);
        // The host's launch differs by a tenth, which is within its own limit.
        let launch = 3.0 * (gbs / 4000.0).powi(4);
        let own = format!("[measured]\ndram_copy_gbs = {gbs}\nhost_launch_us = {launch}\n");
        std::fs::write(&path, format!("{head}\n{own}")).unwrap();
        path.to_string_lossy().into_owned()
    };
    let (a, b) = (write("a.toml", 4000.0), write("b.toml", 4100.0));
    let output = run(&["gpus", "diff", &a, &b, "--within", "3"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("b.toml"));
    let output = run(&["gpus", "diff", &a, &b, "--within", "2"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&output.stderr)
            .contains("apart: measured.dram_copy_gbs by +2.5 % (limit 2 %)\n")
    );
}
