//! Any bytes as a table of layers: layers with finite traffic and time, or an error of one line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use preflop_core::delta::{Fig6, Machine, Readings, evaluate};
use preflop_core::{Dtype, gpu};
use std::sync::LazyLock;

static MACHINE: LazyLock<Machine> =
    LazyLock::new(|| Machine::of(&gpu::catalog::find("titan-xp").expect("a catalogue GPU"), Dtype::Fp32));

fuzz_target!(|bytes: &[u8]| {
    match preflop_import::layer_table::read(bytes) {
        Ok(layers) => {
            for l in layers.iter().take(20) {
                if let Ok(result) = evaluate(&l.named.layer, &MACHINE, &Fig6, Readings::default()) {
                    assert!(result.traffic.dram.0.is_finite() && result.cs.0.is_finite());
                }
            }
        }
        Err(error) => assert!(!error.contains('\n'), "{error}"),
    }
});
