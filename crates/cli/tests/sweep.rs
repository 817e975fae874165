//! `preflop sweep` and tables of `preflop ops`, as users run them.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn run(args: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_preflop")).args(args).current_dir(folder).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// 20,000 operators in 40 parts: seconds of work in a debug build, so that a kill lands in the middle.
const STUDY: &str = "op = \"mm\"\ndtype = [\"bf16\", \"fp16\"]\ngpu = [\"h200\", \"a100\"]\n\
    shape.m = { from = 1, to = 50, step = 1 }\nshape.n = { from = 1, to = 100, step = 1 }\nshape.k = 64\n";

#[test]
fn a_sweep_that_is_killed_and_started_again_has_the_bytes_of_one_that_was_not() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("s.toml"), STUDY).unwrap();
    let args = |out: &'static str| ["sweep", "s.toml", "-o", out, "--part-rows", "500"];
    let whole = run(&args("whole.parquet"), folder.path());
    assert!(whole.status.success(), "{}", said(&whole));
    let parts = folder.path().join("killed.parquet.parts");
    let kept = || {
        std::fs::read_dir(&parts).map_or(0, |d| {
            d.flatten().filter(|e| e.path().extension().is_some_and(|x| x == "parquet")).count()
        })
    };
    let mut kills = 0;
    for goal in [3, 12, 25] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_preflop"))
            .args(args("killed.parquet"))
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while kept() < goal && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        // SIGKILL.
        child.kill().unwrap();
        child.wait().unwrap();
        kills += usize::from(parts.is_dir() && kept() >= goal && kept() < 40);
    }
    assert!(kills > 0, "every run had ended before it was killed");
    assert!(!folder.path().join("killed.parquet").exists());
    let rest = run(&args("killed.parquet"), folder.path());
    assert!(rest.status.success(), "{}", said(&rest));
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    assert_eq!(read("killed.parquet"), read("whole.parquet"));
    assert!(!parts.exists());
}

#[test]
fn a_wrong_study_is_one_line_and_status_2() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("s.toml"),
        "model = \"resnet50\"\ngpu = \"h200\"\nprecizion = \"amp\"\n",
    )
    .unwrap();
    let out = run(&["sweep", "s.toml", "-o", "x.parquet"], folder.path());
    assert_eq!(out.status.code(), Some(2));
    let error = said(&out);
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(
        error.starts_with("error: s.toml: line 3: unknown key `precizion`; did you mean `precision`?"),
        "{error}"
    );
    for (args, part) in [
        (["sweep", "s.toml", "-o", "x.xlsx"], "cannot tell the format"),
        (["sweep", "none.toml", "-o", "x.csv"], "cannot open"),
        (["sweep", "s.toml", "-o", "none/x.csv"], "does not exist"),
    ] {
        let out = run(&args, folder.path());
        assert_eq!(out.status.code(), Some(2));
        assert!(said(&out).contains(part), "{}", said(&out));
    }
}

#[test]
fn jobs_of_a_table_and_of_a_study_get_the_same_answers() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("s.toml"),
        "model = [\"resnet18\", \"gpt2\"]\ngpu = [\"h200\", \"p4\"]\nmode = \"infer\"\nprecision = \"bf16\"\nbatch = 2\n",
    )
    .unwrap();
    let out = run(&["sweep", "s.toml", "-o", "a.csv", "--json"], folder.path());
    // A P4 has no bf16.
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    assert!(said(&out).contains("2 of 4 rows could not be predicted"));
    let summary: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((summary["rows"].as_u64(), summary["failed"].as_u64()), (Some(4), Some(2)));
    let jobs = "model,gpu,mode,precision,batch\nresnet18,h200,infer,bf16,2\nresnet18,p4,infer,bf16,2\n\
                gpt2,h200,infer,bf16,2\ngpt2,p4,infer,bf16,2\n";
    std::fs::write(folder.path().join("jobs.csv"), jobs).unwrap();
    for (input, output) in [("jobs.csv", "b.parquet"), ("b2.jsonl", "c.csv")] {
        if input == "b2.jsonl" {
            let line = |m: &str, g: &str| {
                format!(
                    "{{\"model\":\"{m}\",\"gpu\":\"{g}\",\"mode\":\"infer\",\"precision\":\"bf16\",\"batch\":2}}\n"
                )
            };
            let text =
                [line("resnet18", "h200"), line("resnet18", "p4"), line("gpt2", "h200"), line("gpt2", "p4")]
                    .concat();
            std::fs::write(folder.path().join(input), text).unwrap();
        }
        let out = run(&["sweep", input, "-o", output], folder.path());
        assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    }
    let times = |name: &str| -> Vec<String> {
        let text = std::fs::read_to_string(folder.path().join(name)).unwrap();
        let head: Vec<&str> = text.lines().next().unwrap().split(',').collect();
        let place = head.iter().position(|h| *h == "iteration_ms").unwrap();
        text.lines().skip(1).map(|l| l.split(',').nth(place).unwrap().to_string()).collect()
    };
    assert_eq!(times("a.csv"), times("c.csv"));
    assert_eq!(times("a.csv").len(), 4);
    assert!(times("a.csv")[1].is_empty() && !times("a.csv")[0].is_empty());
}

#[test]
fn operators_come_from_and_go_to_any_table() {
    let folder = tempfile::tempdir().unwrap();
    let csv = "op,phase,dtype,shape,time_us\nmm,fwd,bf16,\"{\"\"m\"\":64,\"\"n\"\":64,\"\"k\"\":64}\",1\n\
               relu,fwd,fp32,\"{\"\"n\"\":1000}\",2\nmm,fwd,bf16,\"{\"\"m\"\":0}\",3\n";
    std::fs::write(folder.path().join("ops.csv"), csv).unwrap();
    let plain = run(&["ops", "ops.csv", "--gpu", "h200"], folder.path());
    assert_eq!(plain.status.code(), Some(1));
    for name in ["t.parquet", "t.arrow", "t.arrows"] {
        let made = run(&["ops", "ops.csv", "--gpu", "h200", "-o", name], folder.path());
        assert_eq!(made.status.code(), Some(1), "{}", said(&made));
        // A table has the columns of the question, so that it can be asked again.
        let again = run(&["ops", name, "--gpu", "h200"], folder.path());
        let lines = |o: &Output| -> Vec<String> {
            String::from_utf8_lossy(&o.stdout).lines().take(2).map(str::to_string).collect()
        };
        assert_eq!(lines(&again), lines(&plain), "{name}");
        assert!(
            String::from_utf8_lossy(&again.stdout)
                .lines()
                .nth(2)
                .unwrap()
                .starts_with("{\"error\":\"row 3: ")
        );
    }
    let out = run(&["ops", "t.parquet", "--gpu", "h200", "--format", "csv"], folder.path());
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(text.starts_with("op,phase,dtype,shape,time_us,low_us,high_us,bound"), "{text}");
    assert_eq!(text.lines().count(), 4);
}

#[test]
fn ray_that_is_not_there_is_one_clear_line() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("s.toml"), STUDY).unwrap();
    // `-S -E`: a Python without anything installed. A script, since the program takes one word.
    let python = folder.path().join("python");
    std::fs::write(&python, "#!/bin/sh\nexec python3 -S -E \"$@\"\n").unwrap();
    std::fs::set_permissions(&python, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for python in ["./python", "no-such-python"] {
        let args = ["sweep", "s.toml", "-o", "x.parquet", "--engine", "ray", "--python", python];
        let out = run(&args, folder.path());
        assert_eq!(out.status.code(), Some(2));
        let error = said(&out);
        assert!(
            error.starts_with("error: ") && error.contains("\nhint: ") && error.lines().count() == 2,
            "{error}"
        );
    }
}
