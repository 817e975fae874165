//! Any text as a question: an answer in JSON without infinities, or an error in JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;
use preflop_api::Engine;
use std::sync::LazyLock;

static ENGINE: LazyLock<Engine> = LazyLock::new(|| Engine::new(None).expect("the data that ship"));

fuzz_target!(|text: &str| {
    let answer = ENGINE.ask(text);
    let value: serde_json::Value = serde_json::from_str(&answer).expect("an answer is JSON");
    assert!(!value.is_null());
});
