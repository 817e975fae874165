//! Which catalogue GPU a recorded device is.

use super::Device;
use preflop_gpu::{Gpu, Vendor, catalog};
use preflop_units::math::Elementary as _;

/// Lower case, letters and digits only, as words.
fn words(name: &str) -> Vec<String> {
    name.to_lowercase()
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|w| !w.is_empty())
        .map(str::to_string)
        .collect()
}

/// Words that name a board form or say nothing about the model.
const PLAIN_WORDS: &[&str] =
    &["nvidia", "amd", "tesla", "geforce", "instinct", "graphics", "hbm3", "hbm2e", "hbm2", "vf"];

/// The word that names the model in a catalogue name: `h100` of `h100-sxm`, `4090` of `rtx-4090`.
fn model(name: &str) -> &str {
    name.split('-').find(|w| w.chars().any(|c| c.is_ascii_digit()) && !w.ends_with("gb")).unwrap_or(name)
}

/// The catalogue GPU that fits a recorded device best, or `None` if none fits.
///
/// The model named by the recording must appear in the catalogue name; multiprocessors, memory size and board
/// form choose among its variants. A device without a name is found by its multiprocessors, warp size and
/// memory alone.
pub fn find(device: &Device) -> Option<Gpu> {
    let said = words(&device.name);
    let telling: Vec<&str> = said.iter().map(String::as_str).filter(|w| !PLAIN_WORDS.contains(w)).collect();
    let mut best: Option<(f64, Gpu)> = None;
    for name in catalog::names() {
        let named = telling.iter().any(|w| *w == model(name));
        if !telling.is_empty() && !named {
            continue;
        }
        let Ok(gpu) = catalog::find(name) else { continue };
        let Some(score) = distance(device, &gpu, &said, telling.is_empty()) else { continue };
        if best.as_ref().is_none_or(|(s, _)| score < *s) {
            best = Some((score, gpu));
        }
    }
    best.map(|(_, gpu)| gpu)
}

/// How badly a GPU fits; `None` if it cannot be it.
fn distance(device: &Device, gpu: &Gpu, said: &[String], nameless: bool) -> Option<f64> {
    let mut score = 0.0;
    match device.sm_count {
        Some(count) if nameless && count != gpu.sm_count => return None,
        Some(count) => score += (f64::from(count) / f64::from(gpu.sm_count)).natural_log().abs(),
        None if nameless => return None,
        None => {}
    }
    if let Some(bytes) = device.memory_bytes {
        let ratio = (bytes as f64 / gpu.memory.0).natural_log().abs();
        if nameless && ratio > 0.1 {
            return None;
        }
        score += ratio;
    }
    if nameless && device.warp_size.is_some_and(|w| w != gpu.warp_size) {
        return None;
    }
    let capability = device.capability.map(|(major, minor)| format!("{major}.{minor}"));
    if nameless && gpu.vendor == Vendor::Nvidia && capability.is_some_and(|c| c != gpu.compute_capability) {
        return None;
    }
    // Of boards that look alike, one of a data centre: those are where profilers run without a name.
    if nameless && ["rtx", "gtx", "titan", "quadro"].iter().any(|word| gpu.name.starts_with(word)) {
        score += 0.01;
    }
    let says = |word: &str| said.iter().any(|w| w.starts_with(word));
    for form in ["sxm", "pcie", "nvl"] {
        if says(form) != (gpu.form == form) && says(form) {
            score += 1.0;
        }
    }
    // NVIDIA writes no form for SXM boards of the H100: "H100 80GB HBM3"; the PCIe board says so.
    if !said.is_empty() && !says("pcie") && gpu.form == "pcie" {
        score += 0.05;
    }
    Some(score)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, sm_count: u32, memory_bytes: u64, warp_size: u32) -> Device {
        Device {
            id: 0,
            name: name.into(),
            sm_count: Some(sm_count),
            memory_bytes: Some(memory_bytes),
            capability: None,
            warp_size: Some(warp_size),
        }
    }

    #[test]
    fn recorded_names() {
        for (d, expected) in [
            (device("NVIDIA H200", 132, 150_109_880_320, 32), "h200"),
            (device("NVIDIA H100 80GB HBM3", 132, 85_018_279_936, 32), "h100-sxm"),
            (device("NVIDIA H100 PCIe", 114, 85_018_279_936, 32), "h100-pcie"),
            (device("NVIDIA A100-PG509-200", 108, 42_505_273_344, 32), "a100-sxm-40gb"),
            (device("NVIDIA A100-SXM4-80GB", 108, 85_000_000_000, 32), "a100-sxm-80gb"),
            (device("Tesla V100-SXM2-32GB", 80, 34_079_637_504, 32), "v100-sxm2-32gb"),
            (device("Tesla T4", 40, 15_828_320_256, 32), "t4"),
            (device("NVIDIA B200", 148, 191_000_000_000, 32), "b200"),
            (device("AMD Instinct MI300X VF", 304, 205_571_227_648, 64), "mi300x"),
            (device("", 304, 206_141_652_992, 64), "mi300x"),
            (device("NVIDIA GeForce RTX 2080 Ti", 68, 11_000_000_000, 32), "rtx-2080-ti"),
        ] {
            assert_eq!(find(&d).map(|g| g.name), Some(expected.to_string()), "{}", d.name);
        }
        assert_eq!(find(&device("Some Accelerator 9000", 10, 1, 32)), None);
        assert_eq!(find(&Device::default()), None);
    }
}
