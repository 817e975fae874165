//! Runs the real binary on bad input: one `error:` line, exit status 2 (1 for rows), never a panic.
// A helper that fails should fail the test that called it.
#![allow(clippy::unwrap_used)]

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

fn preflop(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_preflop"));
    // CI sets it; it must not add noise.
    command.args(args).env("RUST_BACKTRACE", "1").env_remove("NO_COLOR");
    command
}

fn run(args: &[&str]) -> Output {
    preflop(args).stdin(Stdio::null()).output().unwrap()
}

fn with_input(args: &[&str], input: &[u8]) -> Output {
    let mut child =
        preflop(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The program may refuse the input before all of it is written.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// Bad input: nothing on stdout, one error line and perhaps a hint on stderr, exit status 2.
#[track_caller]
fn refuses(output: &Output, words: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(!stderr.contains("panicked") && !stderr.contains("backtrace"), "{stderr}");
    let lines: Vec<&str> = stderr.lines().collect();
    assert!(lines.first().is_some_and(|l| l.starts_with("error: ")), "{stderr}");
    assert!(lines.iter().skip(1).all(|l| l.starts_with("hint: ")), "{stderr}");
    for word in words {
        assert!(stderr.contains(word), "`{word}` is not in: {stderr}");
    }
}

fn file(name: &str, content: &[u8]) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    let path = path.to_string_lossy().into_owned();
    (folder, path)
}

const HEADER: &str = "op,phase,dtype,shape\n";

#[test]
fn unknown_gpus_get_close_names() {
    refuses(&run(&["gpus", "show", "h2000"]), &["`h2000`", "`h200`"]);
    refuses(&run(&["gpus", "diff", "h200", "a1000"]), &["`a1000`", "`a100"]);
    refuses(&with_input(&["ops", "-", "--gpu", "v10"], HEADER.as_bytes()), &["v100"]);
    refuses(&run(&["gpus", "show", ""]), &["unknown GPU"]);
    refuses(&run(&["gpus", "show", "\u{1b}[31mred"]), &["[31mred"]);
}

#[test]
fn aliases_are_resolved_and_shown() {
    let out = run(&["gpus", "show", "a100", "--json"]);
    assert!(out.status.success());
    let gpu: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(gpu["name"], "a100-sxm-80gb");
}

#[test]
fn gpu_files_are_checked() {
    let small = "[chip_limits]\nsm_count = 10\nboost_mhz = 1000\n[memory]\ndram_gbs = 100\n[peak.plain]\nfp32_tflops = 2.56\n";
    let (_f, good) = file("my.toml", small.as_bytes());
    assert!(run(&["gpus", "show", &good]).status.success());
    for (from, to, word) in [
        ("sm_count = 10", "sm_count = nan", "sm_count"),
        ("sm_count = 10", "sm_count = -3", "from 1 to"),
        ("sm_count = 10", "sm_count = 0", "from 1 to"),
        ("dram_gbs = 100", "dram_gbs = 1e300", "dram_gbs"),
        ("dram_gbs = 100", "dram_gbs = inf", "dram_gbs"),
        ("dram_gbs = 100", "dram_gb = 100", "did you mean `memory.dram_gbs`"),
        ("dram_gbs = 100", "", "`memory.dram_gbs` is missing"),
        ("[memory]", "[memory", "line 4"),
    ] {
        let (_f, path) = file("my.toml", small.replace(from, to).as_bytes());
        refuses(&run(&["gpus", "show", &path]), &[word, "my.toml"]);
    }
    let (_f, huge) = file("huge.toml", "# padding\n".repeat(200_000).as_bytes());
    refuses(&run(&["gpus", "show", &huge]), &["larger than 1024 KiB"]);
    let (_f, binary) = file("binary.toml", &[0xff, 0xfe, 0x00]);
    refuses(&run(&["gpus", "show", &binary]), &["not a text file"]);
    refuses(&run(&["gpus", "show", "./no-such-file.toml"]), &["no-such-file.toml"]);
    let folder = tempfile::tempdir().unwrap();
    refuses(&run(&["gpus", "show", &format!("{}/", folder.path().display())]), &["folder"]);
}

#[test]
fn operator_files_are_checked() {
    let (_f, missing) = file("ops.csv", b"op,phase,dtyp,shape\n");
    refuses(&run(&["ops", &missing, "--gpu", "h200"]), &["line 1", "`dtype`", "`dtyp`"]);
    let (_f, empty) = file("ops.csv", b"");
    refuses(&run(&["ops", &empty, "--gpu", "h200"]), &["empty"]);
    let (_f, array) = file("ops.json", b"[{\"op\": \"mm\"}]");
    refuses(&run(&["ops", &array, "--gpu", "h200"]), &["one object per line"]);
    let (_f, gz) = file("ops.csv.gz", b"\x1f\x8b\x08\x00garbage that is no gzip stream");
    refuses(&run(&["ops", &gz, "--gpu", "h200"]), &["ops.csv.gz"]);
    let (_f, endless) = file("ops.csv", format!("{HEADER}\"{}", "x".repeat(3 << 20)).as_bytes());
    refuses(&run(&["ops", &endless, "--gpu", "h200"]), &["line 2", "1 MiB"]);
    refuses(&run(&["ops", "no-such.csv", "--gpu", "h200"]), &["no-such.csv"]);
    refuses(&run(&["ops"]), &["--gpu"]);
    let many = format!("{HEADER}{}", "relu,fwd,fp32,\"{\"\"n\"\":8}\"\n".repeat(1001));
    refuses(
        &with_input(&["ops", "-", "--gpu", "h200", "--human"], many.as_bytes()),
        &["1000 rows", "--human"],
    );
}

#[test]
fn bad_rows_do_not_stop_the_others() {
    let rows = [
        ("mm,fwd,fp32,\"{\"\"m\"\":8,\"\"n\"\":8,\"\"k\"\":8}\"", None),
        ("mm,fwd,fp32,\"{\"\"m\"\":8,\"\"n\"\":8}\"", Some("`k`")),
        ("mm,fwd,fp32,\"{\"\"m\"\":0,\"\"n\"\":8,\"\"k\"\":8}\"", Some("`m` is 0")),
        ("mm,fwd,fp32,\"{\"\"m\"\":-4,\"\"n\"\":8,\"\"k\"\":8}\"", Some("-4")),
        ("mm,fwd,fp32,\"{\"\"m\"\":NaN,\"\"n\"\":8,\"\"k\"\":8}\"", Some("shape")),
        ("mm,fwd,fp32,\"{\"\"m\"\":1e300,\"\"n\"\":8,\"\"k\"\":8}\"", Some("shape")),
        (
            "mm,fwd,fp32,\"{\"\"m\"\":1099511627776,\"\"n\"\":1099511627776,\"\"k\"\":1099511627776}\"",
            Some("too large"),
        ),
        ("mm,fwd,fp32,\"{\"\"m\"\":18446744073709551615,\"\"n\"\":8,\"\"k\"\":8}\"", Some("2^40")),
        ("conv2,fwd,fp32,{}", Some("`conv2d`")),
        ("mm,backward,fp32,\"{\"\"m\"\":8,\"\"n\"\":8,\"\"k\"\":8}\"", Some("phase")),
        ("mm,fwd,fp33,\"{\"\"m\"\":8,\"\"n\"\":8,\"\"k\"\":8}\"", Some("fp33")),
        ("mm,fwd", Some("`dtype`")),
        ("relu,fwd,bf16,\"{\"\"n\"\":8}\"", None),
    ];
    let text = rows.iter().map(|(row, _)| *row).collect::<Vec<_>>().join("\n");
    let out = with_input(&["ops", "-", "--gpu", "h200"], format!("{HEADER}{text}").as_bytes());
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.starts_with("error: 11 of 13 rows could not be predicted\nhint: the first is line 3: "),
        "{stderr}"
    );
    let stdout = String::from_utf8(out.stdout).unwrap();
    let lines: Vec<serde_json::Value> = stdout.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines.len(), rows.len());
    for (i, ((row, wrong), line)) in rows.iter().zip(&lines).enumerate() {
        match wrong {
            None => assert!(line["time_us"].as_f64().unwrap() > 0.0, "{row}"),
            Some(word) => {
                let error = line["error"].as_str().unwrap();
                assert!(
                    error.contains(word) && error.starts_with(&format!("line {}: ", i + 2)),
                    "{row}: {error}"
                );
            }
        }
    }
}

#[test]
fn unknown_models_get_close_names() {
    refuses(&run(&["predict", "rensnet50", "--gpu", "h200"]), &["`rensnet50`", "`resnet50`"]);
    refuses(&run(&["models", "show", "vgg61"]), &["`vgg61`", "`vgg16`"]);
    refuses(&run(&["predict", "resnet50", "--gpu", "h2000"]), &["`h200`"]);
    refuses(&run(&["predict", "resnet50"]), &["--gpu"]);
}

#[test]
fn sizes_of_a_prediction_are_checked() {
    for bad in
        ["0", "-1", "1e18", "1000000000000000000", "NaN", "inf", "1.5", "", "99999999999999999999999999"]
    {
        refuses(
            &run(&["predict", "resnet50", "--gpu", "h200", "--batch", bad]),
            &["--batch", "whole number from 1"],
        );
        refuses(&run(&["predict", "gpt2", "--gpu", "h200", "--seq", bad]), &["--seq", "whole number from 1"]);
    }
    refuses(&run(&["predict", "resnet50", "--gpu", "h200", "--seq", "128"]), &["resnet50", "sequence"]);
    refuses(&run(&["predict", "gpt2", "--gpu", "h200", "--seq", "100000"]), &["seq", "1024"]);
    refuses(&run(&["predict", "resnet50", "--gpu", "h200", "--precision", "fp5"]), &["fp5", "amp"]);
    refuses(&run(&["predict", "resnet50", "--gpu", "h200", "--mode", "trains"]), &["trains", "train"]);
    refuses(&run(&["predict", "resnet50", "--gpu", "h200", "--optimizer", "adm"]), &["adm", "adam"]);
    let fast = run(&["predict", "resnet50", "--gpu", "h200", "--optimizer", "adam:fast"]);
    refuses(&fast, &["adam:fast", ":single", ":foreach", ":fused"]);
}

#[test]
fn the_largest_batch_is_predicted_not_overflown() {
    for model in ["resnet50", "gpt2", "gnmt"] {
        let out = run(&["predict", model, "--gpu", "p4", "--batch", "1048576", "--json"]);
        let stderr = String::from_utf8_lossy(&out.stderr);
        if out.status.success() {
            let answer: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
            assert!(answer["iteration_ms"].as_f64().unwrap().is_finite());
            assert_eq!(answer["fits"], false);
        } else {
            // Too large is an answer too, as long as it says so.
            refuses(&out, &[]);
        }
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
}

#[test]
fn model_files_are_checked() {
    let (_f, empty) = file("model.json", b"{}");
    refuses(&run(&["predict", &empty, "--gpu", "h200"]), &["model.json", "captured graph"]);
    let (_f, binary) = file("model.onnx", &[0xff, 0x00, 0x12]);
    refuses(&run(&["predict", &binary, "--gpu", "h200"]), &["model.onnx", "ONNX model"]);
    refuses(&run(&["predict", "./no-such.json", "--gpu", "h200"]), &["no-such.json"]);

    let graph = preflop_core::model::zoo::build("alexnet", Some(2), None).unwrap();
    let text = serde_json::to_string(&graph).unwrap();
    let (_f, whole) = file("alexnet.json", text.as_bytes());
    refuses(&run(&["predict", &whole, "--gpu", "h200", "--batch", "4"]), &["--batch"]);
    let from_file = run(&["predict", &whole, "--gpu", "h200", "--json"]);
    let from_zoo = run(&["predict", "alexnet", "--gpu", "h200", "--batch", "2", "--json"]);
    assert!(from_file.status.success(), "{}", String::from_utf8_lossy(&from_file.stderr));
    assert_eq!(from_file.stdout, from_zoo.stdout);
    let (_f, half) = file("alexnet.json", &text.as_bytes()[..text.len() / 2]);
    refuses(&run(&["predict", &half, "--gpu", "h200"]), &["alexnet.json", "EOF"]);
}

#[test]
fn arguments_are_checked() {
    refuses(&run(&["gpu"]), &["gpu", "gpus"]);
    refuses(&run(&["gpus", "--jsn"]), &["--jsn", "--json"]);
    refuses(&run(&["gpus", "--color", "blue"]), &["blue", "never"]);
    refuses(&run(&["completions", "dos"]), &["dos", "bash"]);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let mut child =
        preflop(&["completions", "bash"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success());
    assert!(out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));

    let rows = format!("{HEADER}{}", "relu,fwd,fp32,\"{\"\"n\"\":8}\"\n".repeat(20_000));
    let (_f, path) = file("ops.csv", rows.as_bytes());
    let mut child = preflop(&["ops", &path, "--gpu", "h200"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success() && out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
}
