//! The host that a job will run on, as the user says it is.

// A helper that fails should fail the test that called it.
#![allow(clippy::unwrap_used)]

mod common;

use common::{number, run, said};
use serde_json::Value;

/// A job that waits for its host.
const JOB: [&str; 7] = ["mobilenet_v2", "--gpu", "h200", "--batch", "8", "--precision", "amp"];

fn predicted(more: &[&str]) -> Value {
    said(&[&["predict"], &JOB[..], more].concat())
}

/// Width of the interval over its middle.
fn width(answer: &Value) -> f64 {
    (number(answer, "high_ms") - number(answer, "low_ms")) / number(answer, "iteration_ms")
}

#[test]
fn a_host_that_is_said_scales_the_hosts_time_and_is_surer() {
    let unsaid = predicted(&[]);
    assert_eq!(unsaid["bound"], "host");
    assert!(unsaid.get("host_factor").is_none());
    let [fast, usual, slow, factor] =
        ["fast", "usual", "slow", "1.5x"].map(|host| predicted(&["--host", host]));
    assert!(number(&fast, "iteration_ms") < number(&usual, "iteration_ms"));
    assert!((number(&usual, "iteration_ms") - number(&unsaid, "iteration_ms")).abs() < 1e-12);
    assert!((number(&factor, "host_ms") / number(&unsaid, "host_ms") - 1.5).abs() < 1e-9);
    assert!((number(&factor, "host_factor") - 1.5).abs() < 1e-12);
    for answer in [&fast, &usual, &slow, &factor] {
        assert!(width(answer) < width(&unsaid), "{} {}", width(answer), width(&unsaid));
        assert!((number(answer, "gpu_busy_ms") - number(&unsaid, "gpu_busy_ms")).abs() < 1e-12);
    }
}

#[test]
fn a_probe_is_as_sure_as_a_factor() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my.host.json");
    let probe = r#"{"version":1,"operator_us":4.26,"module_call_us":1.365,"python_us":0.1,"unrest":1.0,"torch":"2.11","python":"3.12"}"#;
    std::fs::write(&path, probe).unwrap();
    let [probed, factor] = [path.to_str().unwrap(), "1.5x"].map(|host| predicted(&["--host", host]));
    for field in ["host_factor", "iteration_ms", "low_ms", "high_ms"] {
        assert!((number(&probed, field) / number(&factor, field) - 1.0).abs() < 1e-9, "{field}");
    }
}

#[test]
fn every_command_about_a_models_time_takes_a_host() {
    let first = |host: &[&str], words: &[&str], pointer: &str| {
        let answer = said(&[words, host].concat());
        answer.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer}: {answer}"))
    };
    let compare = ["compare", "mobilenet_v2", "--batch", "8", "--gpus", "h200"];
    let advise = [&["advise"], &JOB[..]].concat();
    let report = [&["report"], &JOB[..]].concat();
    for (words, pointer) in
        [(&compare[..], "/0/iteration_ms"), (&advise, "/base_ms"), (&report, "/gpus/0/iteration_ms")]
    {
        let [usual, slow] = ["usual", "slow"].map(|host| first(&["--host", host], words, pointer));
        assert!(slow > 1.3 * usual, "{words:?}: {usual} {slow}");
    }
}

#[test]
fn a_host_that_is_none_is_refused_in_one_line() {
    for junk in ["quick", "1.5", "-2x", "0x", "99x", "NaNx", "", "no.host.json"] {
        for command in ["predict", "compare", "report", "advise"] {
            let gpu = if command == "compare" { "--gpus" } else { "--gpu" };
            let host = format!("--host={junk}");
            let output = run(&[command, "resnet18", gpu, "h200", "--json", &host]);
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{command} {junk}: {stderr}");
            assert!(output.stdout.is_empty(), "{command} {junk}");
            assert_eq!(stderr.lines().filter(|line| line.starts_with("error: ")).count(), 1, "{stderr}");
            let file = junk.contains(".json");
            assert!(stderr.contains(if file { "cannot open" } else { "fast, usual, slow" }), "{stderr}");
        }
    }
}

#[test]
fn a_recording_has_its_own_host() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/step.json.gz");
    for words in [["advise", trace], ["compare", trace], ["report", trace]] {
        let output = run(&[&words[..], &["--json", "--host", "fast"]].concat());
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {stderr}");
        assert!(stderr.contains("a recording has its own host"), "{stderr}");
    }
}

#[test]
fn what_people_read_says_the_host() {
    let output = run(&[&["predict"], &JOB[..], &["--host", "fast"]].concat());
    let text: String =
        String::from_utf8(output.stdout).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("a host that takes 0.75 times as long as usual"), "{text}");
}
