//! Any bytes as a recording to be redacted: a copy that reads as one and holds no planted word, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;

/// Stands in the seeds where people's words stand.
const PLANTED: &str = "janedoesecret";

fuzz_target!(|bytes: &[u8]| {
    let mut copy = Vec::new();
    if preflop_import::redact_bytes(bytes, "fuzz", &mut copy).is_ok() {
        let text = String::from_utf8_lossy(&copy);
        assert!(!text.contains(PLANTED), "{text}");
        if preflop_import::import_bytes(bytes, "fuzz").is_ok() {
            // What cannot be read as a profile afterwards was no profile of use before.
            let _ = preflop_import::import_bytes(&copy, "fuzz");
        }
    }
});
