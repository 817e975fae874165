//! Shapes of experts for which SGLang 0.5.10 ships a tuned configuration of its grouped products in bf16 (files named `E=..,N=..,device_name=..`), by the generation of the
//! device. Read off the published rows: with more tokens than experts a default configuration takes a third longer at once.

use preflop_core::gpu::Architecture;

/// Generation, experts, and widths inside an expert.
const TUNED: [(Architecture, u64, &[u64]); 9] = [
    (Architecture::Ampere, 8, &[1792, 2048, 3584, 4096, 7168]),
    (Architecture::Ada, 8, &[448, 3584]),
    (Architecture::Ada, 128, &[928, 1856]),
    (Architecture::Hopper, 8, &[1792, 2048, 3584, 4096, 7168]),
    (Architecture::Hopper, 128, &[192, 384, 464, 768, 928, 1856]),
    (Architecture::Hopper, 512, &[64, 128, 336, 672, 1344, 2688]),
    (Architecture::Blackwell, 128, &[464, 928, 1856]),
    (Architecture::Blackwell, 256, &[256, 512]),
    (Architecture::Blackwell, 512, &[128, 256, 336, 672, 1344, 2688]),
];

/// Does the server ship a tuned configuration?
pub fn tuned(generation: Architecture, count: f64, inner: f64) -> bool {
    let same = |known: u64, asked: f64| (known as f64 - asked).abs() < 0.5;
    TUNED.iter().any(|(g, experts, widths)| {
        *g == generation && same(*experts, count) && widths.iter().any(|w| same(*w, inner))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_known_by_generation() {
        assert!(tuned(Architecture::Hopper, 128.0, 768.0));
        assert!(!tuned(Architecture::Ampere, 128.0, 768.0) && !tuned(Architecture::Hopper, 127.0, 768.0));
    }
}
