//! Any bytes as a recording: a profile or an error, and a profile can be analysed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use preflop_core::profile::{Analysis, window::Choice};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(profile) = preflop_import::import_bytes(bytes, "fuzz") {
        if let Ok(analysis) = Analysis::new(&profile, &Choice::default()) {
            assert!(analysis.measured().0.is_finite() && analysis.gpu_busy().0.is_finite());
        }
    }
});
