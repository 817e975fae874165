//! Completion in real shells. One that is not installed is named, and `cargo xtask test` counts it as not run.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

use std::io::Write as _;
use std::process::Command;

/// What bash offers where the cursor stands behind these words, in a folder with two files.
fn offered(words: &[&str]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    for name in ["trace one.json", "mine.onnx"] {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    let program = env!("CARGO_BIN_EXE_preflop");
    let script = r#"
        source <("$1" completions bash) || exit 3
        complete -p preflop >/dev/null || exit 4
        program="$1"; shift
        COMP_WORDS=("$program" "$@"); COMP_CWORD=$#
        _preflop "$program" "${@: -1}" ""
        [[ ${#COMPREPLY[@]} == 0 ]] || printf '%s\n' "${COMPREPLY[@]}""#;
    let mut bash = Command::new("bash");
    bash.args(["--norc", "--noprofile", "-c", script, "bash", program])
        .args(words)
        .current_dir(folder.path());
    let out = bash.output().unwrap();
    assert!(out.status.success(), "{out:?}");
    let mut lines: Vec<String> = String::from_utf8(out.stdout).unwrap().lines().map(str::to_string).collect();
    lines.sort();
    lines
}

#[test]
fn bash_completes_commands_models_gpus_and_files() {
    assert_eq!(offered(&["predi"]), ["predict"]);
    assert_eq!(offered(&["predict", "resnet5"]), ["resnet50"]);
    assert_eq!(offered(&["predict", "mi"]), ["mine.onnx"]);
    assert_eq!(offered(&["predict", "resnet50", "--gpu", "b30"]), ["b300"]);
    assert_eq!(
        offered(&["predict", "resnet50", "--gpu", "=", "b30"]),
        ["b300"],
        "as bash takes --gpu=b30 apart"
    );
    assert_eq!(offered(&["compare", "resnet50", "--gpus", "h200,mi325"]), ["h200,mi325x"]);
    assert_eq!(offered(&["explain", "tra"]), ["trace one.json"], "a name with a space stays one");
    assert_eq!(offered(&["predict", "resnet50", "--run", "compile-"]), ["compile-graph"]);
    assert_eq!(offered(&["predict", "resnet50", "--batch", "6"]), [""; 0]);
    assert!(offered(&["predict", ""]).contains(&"mine.onnx".to_string()));
}

/// Is this shell here? Where it is not, that is said past the test harness, which keeps what passing tests print.
fn is_installed(shell: &str) -> bool {
    let found = Command::new(shell).arg("--version").output().is_ok_and(|out| out.status.success());
    if !found {
        let _ = writeln!(std::io::stderr(), "NOT RUN: completion in {shell}, which is not installed");
    }
    found
}

/// What a shell prints that runs this script, with the program's folder in its path and two files around it.
fn said(shell: &str, args: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    for name in ["trace one.json", "mine.onnx"] {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_preflop"));
    let path = std::env::var("PATH").unwrap_or_default();
    let out = Command::new(shell)
        .args(args)
        .current_dir(folder.path())
        .env("PATH", format!("{}:{path}", program.parent().unwrap().display()))
        .env("HOME", folder.path())
        .output()
        .unwrap();
    assert!(out.status.success(), "{out:?}");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn fish_completes_commands_models_gpus_and_files() {
    if !is_installed("fish") {
        return;
    }
    let offered = |line: &str| {
        let script = format!("source (preflop completions fish | psub); complete -C '{line}'");
        let said = said("fish", &["--no-config", "-c", &script]);
        said.lines().map(|l| l.split('\t').next().unwrap_or_default().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(offered("preflop predi"), ["predict"]);
    assert_eq!(offered("preflop predict resnet5"), ["resnet50"]);
    assert_eq!(offered("preflop predict resnet50 --gpu b30"), ["b300"]);
    assert_eq!(offered("preflop explain min"), ["mine.onnx"]);
}

#[test]
fn zsh_completes_commands_models_gpus_and_files() {
    if !is_installed("zsh") {
        return;
    }
    // An interactive shell in a terminal of its own: after a Tab the line reads as expected.
    let script = r#"
        zmodload zsh/zpty || exit 3
        zpty z env TERM=dumb zsh -f -i
        zpty -w z 'PS1=; autoload -Uz compinit; compinit -u -D; source <(preflop completions zsh); echo READY'
        zpty -r -m z said '*READY*READY*' || exit 4
        zpty -w -n z "$1"$'\t'
        all=
        for turn in {1..200}; do
            while zpty -r -t z said; do all+=$said; done
            [[ ${all//$'\a'/} == *"$2"* ]] && break
            sleep 0.1
        done
        print -r -- "${all//$'\a'/}"
        zpty -d z"#;
    for (typed, expected) in [
        ("preflop predi", "preflop predict "),
        ("preflop predict resnet5", "preflop predict resnet50 "),
        ("preflop predict resnet50 --gpu b30", "resnet50 --gpu b300 "),
        ("preflop explain min", "preflop explain mine.onnx "),
    ] {
        let said = said("zsh", &["-f", "-c", script, "zsh", typed, expected]);
        assert!(said.contains(expected), "{typed}: {said:?}");
    }
}
