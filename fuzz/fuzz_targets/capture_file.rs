//! A recorded iteration: whatever is accepted gives operators with finite work and memory.
#![no_main]

use libfuzzer_sys::fuzz_target;
use preflop_core::capture::Capture;

fuzz_target!(|bytes: &[u8]| {
    let Ok(capture) = Capture::parse(bytes) else { return };
    let fixed = capture.fixed();
    assert!(fixed.iteration.memory.peak.0.is_finite());
    for step in &fixed.iteration.steps {
        assert!(step.call.flops().0.is_finite() && step.call.traffic().total().0.is_finite());
    }
});
