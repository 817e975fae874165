//! Any text as an operator row (`op phase dtype shape`): a call or an error, and a call can be predicted.
#![no_main]

use libfuzzer_sys::fuzz_target;
use preflop_core::{Gpu, gpu, ops::row, time::TimeModel};
use std::sync::LazyLock;

static MODEL: LazyLock<TimeModel> = LazyLock::new(TimeModel::embedded);
static H200: LazyLock<Gpu> = LazyLock::new(|| gpu::catalog::find("h200").expect("a catalogue GPU"));

fuzz_target!(|text: &str| {
    let mut parts = text.splitn(4, ' ');
    let mut next = || parts.next().unwrap_or_default();
    if let Ok(call) = row::parse(next(), next(), next(), next()) {
        let p = MODEL.predict(&call, &H200);
        assert!(p.time.0.is_finite() && p.time.0 > 0.0);
    }
});
