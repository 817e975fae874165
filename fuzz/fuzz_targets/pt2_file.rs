//! Any text as the description in a `.pt2` archive: a program that becomes a graph, or an error.
//!
//! The archive around it is made here, as its checksum would stop every change.
#![no_main]

use libfuzzer_sys::fuzz_target;
use preflop_import::exported::{Bindings, read_pt2_description};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(program) = read_pt2_description(bytes, "fuzz.pt2", "fuzz", &Bindings::default()) {
        drop(program.into_graph());
    }
});
