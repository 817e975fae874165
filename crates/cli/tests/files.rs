//! Files that commands write, and what files may not do to a terminal.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_preflop")).args(args).output().unwrap()
}

#[test]
fn a_dash_is_standard_output_and_the_talk_goes_beside_it() {
    let out = run(&["prices", "import", "--help"]);
    assert!(out.status.success());
    let out = run(&["explore", "vgg16", "--base", "titan-xp", "-o", "-"]);
    let (said, talk) = (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap());
    assert!(out.status.success() && said.starts_with("name,"), "{said}");
    assert!(said.lines().all(|l| l.contains(',')) && talk.contains("vgg16"), "{talk}");
    let both = run(&["explore", "vgg16", "--base", "titan-xp", "-o", "-", "--json"]);
    assert_eq!(both.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&both.stderr).contains("both want standard output"));
}

#[test]
fn a_pipe_is_written_to_and_a_full_disk_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe.csv");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = Command::new("cat").arg(&pipe).stdout(Stdio::piped()).spawn().unwrap();
    let out = run(&["explore", "vgg16", "--base", "titan-xp", "-o", pipe.to_str().unwrap()]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let read = reader.wait_with_output().unwrap();
    assert!(read.stdout.starts_with(b"name,"));
    assert!(!std::fs::metadata(&pipe).unwrap().is_file(), "the pipe was replaced");
    let full = folder.path().join("full.csv");
    std::os::unix::fs::symlink("/dev/full", &full).unwrap();
    let out = run(&["explore", "vgg16", "--base", "titan-xp", "-o", full.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(2));
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(
        said.starts_with("error: ") && said.contains("cannot write") && said.lines().count() == 1,
        "{said}"
    );
}

#[test]
fn operators_are_read_from_a_pipe_once() {
    let folder = tempfile::tempdir().unwrap();
    let (pipe, file) = (folder.path().join("rows"), folder.path().join("rows.jsonl"));
    let rows = r#"{"op": "conv2d", "phase": "fwd", "dtype": "fp32", "shape": {"b": 64, "ci": 64, "hw": 56, "co": 64, "k": 3, "pad": 1}}"#;
    std::fs::write(&file, rows).unwrap();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut writer = Command::new("cp").args([&file, &pipe]).spawn().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_preflop"))
        .args(["ops", pipe.to_str().unwrap(), "--gpu", "h200"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // A second open would wait for another writer for ever.
    let start = std::time::Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed().as_secs() > 60 {
            child.kill().unwrap();
            writer.kill().unwrap();
            panic!("it still reads");
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    writer.wait().unwrap();
    let piped = child.wait_with_output().unwrap();
    assert_eq!(piped.stdout, run(&["ops", file.to_str().unwrap(), "--gpu", "h200"]).stdout);
    assert!(piped.status.success() && piped.stdout.starts_with(b"{"));
}

#[test]
fn names_of_a_recording_do_nothing_to_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.json");
    let name = r"k\u001b[31m\u0007\u009b2J";
    let text = format!(
        r#"{{"deviceProperties": [{{"id": 0, "name": "NVIDIA H200", "numSms": 132}}], "traceEvents": [
        {{"ph": "X", "cat": "cpu_op", "name": "aten::mm{name}", "pid": 1, "tid": 1, "ts": 1, "dur": 40}},
        {{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 10, "dur": 6, "args": {{"correlation": 7}}}},
        {{"ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": 7, "ts": 20, "dur": 190, "args": {{"device": 0, "correlation": 7}}}}]}}"#
    );
    std::fs::write(&trace, text).unwrap();
    let trace = trace.to_str().unwrap();
    for command in [
        &["explain", trace][..],
        &["explain", trace, "--md"],
        &["transfer", trace, "--to", "a100", "--operators"],
        &["roofline", trace],
        &["roofline", trace, "--by", "layer"],
        &["diff", trace, trace],
        &["advise", trace, "--gpu", "h200"],
    ] {
        let out = run(command);
        assert!(out.status.success(), "{command:?} {}", String::from_utf8_lossy(&out.stderr));
        let said = String::from_utf8(out.stdout).unwrap();
        assert!(!said.chars().any(|c| c.is_control() && c != '\n'), "{command:?} {said:?}");
    }
}

#[test]
fn a_key_that_an_operator_lacks_is_told_for_its_row() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_preflop"))
        .args(["ops", "-", "--gpu", "h200"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let rows = br#"{"op": "conv2d", "phase": "fwd", "dtype": "fp32", "shape": {"b": 64, "ci": 64, "hw": 56, "co": 64, "k": 3, "padding": 1}}
"#;
    child.stdin.take().unwrap().write_all(rows).unwrap();
    let out = child.wait_with_output().unwrap();
    let said = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("did you mean `pad`?"), "{said}");
}

#[test]
fn control_characters_of_a_file_do_not_reach_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json");
    // A kernel of an operator with that name, on a GPU of that name.
    let evil = r#""<img src=x>\u001b]0;evil\u0007\u001b[2J\u009b1m""#;
    let trace = format!(
        r#"{{"deviceProperties": [{{"id": 0, "name": {evil}}}], "traceEvents": [
        {{"ph": "X", "cat": "cpu_op", "name": {evil}, "pid": 1, "tid": 1, "ts": 0, "dur": 40}},
        {{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 10, "dur": 6, "args": {{"correlation": 7}}}},
        {{"ph": "X", "cat": "kernel", "name": {evil}, "pid": 0, "tid": 7, "ts": 20, "dur": 190, "args": {{"device": 0, "correlation": 7}}}}]}}"#
    );
    std::fs::write(&path, trace).unwrap();
    for args in [&["explain"][..], &["explain", "--md"], &["explain", "--color", "always"]] {
        let out = run(&[args, &[path.to_str().unwrap()]].concat());
        let said = String::from_utf8(out.stdout).unwrap();
        assert!(out.status.success() && said.contains("img"), "{said}");
        assert!(
            !said.contains("\u{1b}]") && !said.contains("\u{1b}[2J") && !said.contains('\u{7}'),
            "{said:?}"
        );
        assert!(args.contains(&"--md") != said.contains("<img"), "{said}");
    }
}
