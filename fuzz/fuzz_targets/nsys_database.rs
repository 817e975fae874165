//! A database of Nsight Systems with bytes changed: a profile or an error of one line.
//!
//! The input is a list of edits on a small export: three bytes each, a place and what stands there.
#![no_main]

use libfuzzer_sys::fuzz_target;
use preflop_core::profile::{Analysis, window::Choice};

const EXPORT: &[u8] = include_bytes!("../seeds/small.nsys.sqlite");

fuzz_target!(|edits: &[u8]| {
    let mut bytes = EXPORT.to_vec();
    for edit in edits.chunks_exact(3).take(32) {
        let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % bytes.len();
        bytes[at] = edit[2];
    }
    match preflop_import::import_bytes(&bytes, "fuzz") {
        Ok(profile) => {
            if let Ok(analysis) = Analysis::new(&profile, &Choice::default()) {
                assert!(analysis.measured().0.is_finite());
            }
        }
        Err(error) => assert!(!error.to_string().contains('\n')),
    }
});
