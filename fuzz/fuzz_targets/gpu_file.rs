//! Any text as a GPU file: a GPU or an error, and a GPU can be predicted on.
#![no_main]

use libfuzzer_sys::fuzz_target;
use preflop_core::{gpu, ops::row, time::TimeModel};
use std::sync::LazyLock;

static MODEL: LazyLock<TimeModel> = LazyLock::new(TimeModel::embedded);

fuzz_target!(|text: &str| {
    if let Ok(gpu) = gpu::parse(text, "fuzz.toml") {
        let call = row::parse("mm", "fwd", "bf16", r#"{"m":1000,"n":1000,"k":1000}"#).expect("a valid row");
        let p = MODEL.predict(&call, &gpu);
        assert!(p.time.0.is_finite() && p.time.0 > 0.0);
    }
});
