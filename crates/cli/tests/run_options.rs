//! In which form a model is run, and what that changes.

// A helper that fails should fail the test that called it.
#![allow(clippy::unwrap_used)]

mod common;

use common::{number, run, said};
use serde_json::Value;

fn refused(words: &[&str]) -> String {
    let output = run(words);
    assert_eq!(output.status.code(), Some(2), "{words:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn checkpoints_take_time_and_save_memory() {
    let gpt2 = ["predict", "gpt2", "--gpu", "h200", "--precision", "amp"];
    let [plain, full] = ["none", "full"].map(|how| said(&[&gpt2[..], &["--checkpoint", how]].concat()));
    assert_eq!((plain["checkpoint"].as_str(), full["checkpoint"].as_str()), (Some("none"), Some("full")));
    assert!(number(&full, "gpu_busy_ms") > 1.1 * number(&plain, "gpu_busy_ms"));
    assert!(number(&full, "memory_mib") < 0.6 * number(&plain, "memory_mib"));
}

#[test]
fn what_cannot_be_checkpointed_is_refused_in_one_line() {
    let words = |more: &[&'static str]| [&["predict", "gpt2", "--gpu", "h200"], more].concat();
    assert!(refused(&words(&["--checkpoint", "every=0"])).contains("every=K"));
    assert!(refused(&words(&["--checkpoint", "full", "--mode", "infer"])).contains("--mode train"));
    assert!(
        refused(&["compare", "gpt2", "--gpus", "8xh100", "--checkpoint", "full"]).contains("--checkpoint")
    );
}

#[test]
fn a_recording_is_advised_by_what_it_shows() {
    let step = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/step.json.gz");
    let ranking = said(&["advise", step, "--gpu", "a100"]);
    let options = ranking["options"].as_array().unwrap();
    assert!(options.len() >= 2 && options[0]["share"].as_f64() >= options[1]["share"].as_f64(), "{ranking}");
    assert_eq!(ranking["gpu"], "h200");
    assert!(ranking["notes"][0].as_str().unwrap().contains("preflop transfer"), "{ranking}");
}

#[test]
fn trials_of_algorithms_are_never_slower_and_say_what_they_rest_on() {
    for precision in ["amp", "fp32"] {
        let resnet = ["predict", "resnet18", "--gpu", "h200", "--precision", precision];
        let [heuristic, tried] =
            ["heuristic", "autotuned"].map(|how| said(&[&resnet[..], &["--algorithms", how]].concat()));
        assert!(number(&tried, "gpu_busy_ms") <= number(&heuristic, "gpu_busy_ms"));
        assert!(number(&tried, "low_ms") <= number(&heuristic, "low_ms"));
        assert!(tried["notes"][0].as_str().unwrap().contains("cudnn.benchmark"), "{}", tried["notes"]);
    }
}

#[test]
fn a_comparison_takes_the_form_too() {
    let small = ["compare", "resnet18", "--gpus", "h200", "--batch", "1", "--mode", "infer"];
    let [eager, graph] = ["eager", "graph"].map(|how| said(&[&small[..], &["--run", how]].concat()));
    let time = |answer: &Value| {
        let rows = answer.as_array().cloned().unwrap_or_else(|| answer["gpus"].as_array().cloned().unwrap());
        number(&rows[0], "iteration_ms")
    };
    assert!(time(&graph) < 0.5 * time(&eager), "{} {}", time(&graph), time(&eager));
}

#[test]
fn advice_has_its_interval_and_names_what_saves_memory() {
    let ranking = said(&["advise", "gpt2", "--gpu", "h100", "--precision", "amp"]);
    let options = ranking["options"].as_array().unwrap();
    for option in options {
        let [low, gain, high] = ["gain_low", "gain", "gain_high"].map(|f| number(option, f));
        assert!(low <= gain && gain <= high, "{option}");
    }
    let alone = |name: &str| options.iter().find(|o| o["options"] == serde_json::json!([name])).unwrap();
    assert!(number(alone("--checkpoint full"), "memory_mib") < number(alone("--run graph"), "memory_mib"));
    assert!(number(alone("accumulate x2"), "gain") > 0.0);
}
