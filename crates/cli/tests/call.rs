//! The program as a function.

use preflop_cli::call;

#[test]
fn answers_come_back_as_text() {
    let text = call(["gpus", "--json"]).unwrap();
    let gpus: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(gpus.as_array().is_some_and(|a| a.iter().any(|g| g["name"] == "h200")), "{text:.200}");
}

#[test]
fn failures_say_what_the_program_says() {
    let failure = call(["predict", "resnet5000", "--gpu", "h200"]).unwrap_err();
    assert_eq!(failure.status, 2);
    assert!(failure.message.contains("resnet5000"), "{failure}");
    assert_eq!(failure.hint.as_deref(), Some("`preflop models` lists all"));
    let usage = call(["predict", "resnet50", "--gpus", "h200"]).unwrap_err();
    assert!(usage.message.contains("--gpus") && !usage.message.starts_with("error"), "{usage}");
    // The next call is not disturbed by a failed one.
    assert!(call(["models", "--json"]).is_ok());
}
