//! The program as its users start it.

// A helper that fails should fail the test that called it.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::process::{Command, Output};

pub fn run(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_preflop")).args(words).output().unwrap()
}

/// Its answer for scripts.
pub fn said(words: &[&str]) -> Value {
    let output = run(&[words, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

pub fn number(answer: &Value, field: &str) -> f64 {
    answer[field].as_f64().unwrap()
}
