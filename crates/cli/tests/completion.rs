//! Completion in a real shell.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

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
