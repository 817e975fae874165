//! Any text as a file of prices: a catalogue or an error of one line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use preflop_core::cost::Catalogue;

fuzz_target!(|text: &str| {
    if let Err(error) = Catalogue::new(text, "fuzz.csv") {
        assert!(!error.to_string().contains('\n'));
    }
});
