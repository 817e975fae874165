//! Any text as area weights: weights with a finite cost, or an error of one line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use preflop_core::explore::{AreaWeights, Scales};

fuzz_target!(|text: &str| {
    match AreaWeights::parse(text, "fuzz.toml") {
        Ok(weights) => assert!(weights.cost(&Scales::default()).is_finite()),
        Err(error) => assert!(!error.to_string().contains('\n')),
    }
});
