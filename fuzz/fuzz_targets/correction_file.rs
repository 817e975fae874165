//! Any text as a correction: one that predicts finite times, or an error of one line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use preflop_core::time::Correction;

fuzz_target!(|text: &str| {
    if let Err(error) = Correction::parse(text, "fuzz.json") {
        assert!(!error.to_string().contains('\n'));
    }
});
