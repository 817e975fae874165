//! What is taken where nothing is said: what PyTorch does where nothing is said.

// A helper that fails should fail the test that called it.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::process::{Command, Output};

fn run(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_preflop")).args(words).output().unwrap()
}

fn predict(words: &[&str]) -> Value {
    let output = run(&[&["predict"], words, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn ms(answer: &Value) -> f64 {
    answer["iteration_ms"].as_f64().unwrap()
}

fn formats(answer: &Value, op: &str) -> Vec<String> {
    let ops = answer["ops"].as_array().unwrap().iter().filter(|line| line["op"] == op);
    let mut found: Vec<String> = ops.map(|line| line["dtype"].as_str().unwrap().to_owned()).collect();
    found.sort();
    found.dedup();
    found
}

#[test]
fn convolutions_run_in_tf32_and_products_in_fp32() {
    let resnet = ["resnet50", "--gpu", "h200"];
    let said = |precision| predict(&[&resnet[..], &["--precision", precision]].concat());
    let (unsaid, fp32, tf32) = (predict(&resnet), said("fp32"), said("tf32"));
    assert_eq!(unsaid["precision"], "pytorch");
    assert_eq!(formats(&unsaid, "conv2d"), ["tf32"]);
    assert_eq!(formats(&unsaid, "linear"), ["fp32"]);
    assert!(
        ms(&tf32) <= ms(&unsaid) && ms(&unsaid) < ms(&fp32),
        "{} {} {}",
        ms(&tf32),
        ms(&unsaid),
        ms(&fp32)
    );
    assert_eq!(unsaid, said("pytorch"));
    assert_eq!(unsaid, said("default"));
}

#[test]
fn recurrent_layers_follow_the_flag_of_convolutions() {
    let unsaid = predict(&["gnmt", "--gpu", "h200"]);
    assert_eq!(formats(&unsaid, "lstm"), ["tf32"]);
    assert_eq!(formats(&unsaid, "linear"), ["fp32"]);
}

#[test]
fn without_tf32_the_default_is_fp32() {
    for model in ["resnet50", "gnmt"] {
        for gpu in ["v100", "t4", "p100-pcie"] {
            let unsaid = predict(&[model, "--gpu", gpu]);
            let fp32 = predict(&[model, "--gpu", gpu, "--precision", "fp32"]);
            assert_eq!(ms(&unsaid).to_bits(), ms(&fp32).to_bits(), "{model} on {gpu}");
            assert_eq!(unsaid["ops"], fp32["ops"], "{model} on {gpu}");
        }
    }
}

#[test]
fn the_header_says_what_is_taken() {
    let said = |gpu| {
        let output = run(&["predict", "resnet50", "--gpu", gpu]);
        String::from_utf8(output.stdout).unwrap().replace("\n  ", " ")
    };
    assert!(said("h200").contains("PyTorch's default (TF32 convolutions, fp32 products), sgd (foreach)"));
    assert!(said("v100").contains("PyTorch's default (fp32: no TF32 here), sgd (foreach)"));
}

#[test]
fn optimizers_run_over_lists_unless_said() {
    let gpt2 = ["gpt2", "--gpu", "a100", "--precision", "amp"];
    let said = |optimizer: &str| predict(&[&gpt2[..], &["--optimizer", optimizer]].concat());
    let unsaid = predict(&gpt2);
    assert_eq!(
        (&unsaid["optimizer"], &unsaid["optimizer_implementation"]),
        (&"adam".into(), &"foreach".into())
    );
    assert_eq!(unsaid, said("adam"));
    for rule in ["sgd", "adam", "adamw"] {
        let kernels = |how| said(&format!("{rule}:{how}"))["kernels"].as_f64().unwrap();
        let [single, foreach, fused] = ["single", "foreach", "fused"].map(kernels);
        assert!(single > foreach && foreach > fused, "{rule}: {single} {foreach} {fused}");
    }
    // Decay is one walk more.
    let moved = |optimizer| said(optimizer)["dram_bytes"].as_f64().unwrap();
    assert!(moved("adamw:foreach") > moved("adam:foreach"));
    assert!(said("none").get("optimizer_implementation").is_none());
}

#[test]
fn an_implementation_that_is_not_there_is_refused() {
    for wrong in ["adam:fast", "none:fused", "adam:"] {
        let output = run(&["predict", "gpt2", "--gpu", "a100", "--optimizer", wrong]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.starts_with("error: ") && said.contains(wrong), "{said}");
    }
}
