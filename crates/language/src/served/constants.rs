//! The constants of a server's kernels by generation, as `data/fitted/served.toml` has them.

use super::forms::{EXPERT_START, PROMPT_START, TOKEN_START};
use preflop_core::gpu::{Architecture, Gpu};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The file, embedded.
const FILE: &str = include_str!("../../data/fitted/served.toml");

/// Constants of one kind of kernel.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kind {
    /// Fitted on all GPUs: for generations that were not measured.
    #[serde(default)]
    pooled: Vec<f64>,
    /// By generation.
    #[serde(default)]
    generation: BTreeMap<String, Vec<f64>>,
}

/// All of them.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constants {
    prompt: Kind,
    token: Kind,
    experts: BTreeMap<String, Kind>,
}

impl Kind {
    fn on<'a>(&'a self, generation: Architecture, start: &'a [f64]) -> (&'a [f64], bool) {
        let (list, seen) = match self.generation.get(generation.name()) {
            Some(own) => (own, true),
            None => (&self.pooled, false),
        };
        let usable = list.len() == start.len() && list.iter().all(|x| x.is_finite() && *x > 0.0);
        if usable { (list, seen) } else { (start, false) }
    }
}

impl Constants {
    /// Those that ship with the tool; a damaged file gives the starting points.
    pub fn embedded() -> Self {
        toml::from_str(FILE).unwrap_or_default()
    }

    /// Of attention over prompts, and whether the generation was measured.
    pub fn prompt(&self, gpu: &Gpu) -> (&[f64], bool) {
        self.prompt.on(gpu.architecture, &PROMPT_START)
    }

    /// Of attention of new tokens.
    pub fn token(&self, gpu: &Gpu) -> (&[f64], bool) {
        self.token.on(gpu.architecture, &TOKEN_START)
    }

    /// Of experts in a format: `bf16`, `fp8`, `int4`, `nvfp4`.
    pub fn experts(&self, format: &str, gpu: &Gpu) -> (&[f64], bool) {
        match self.experts.get(format) {
            Some(kind) => kind.on(gpu.architecture, &EXPERT_START),
            None => (&EXPERT_START, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_core::gpu::catalog;

    #[test]
    fn the_embedded_file_is_whole() {
        let all: Constants = toml::from_str(FILE).unwrap();
        for gpu in ["a100", "l40s", "h100-sxm"] {
            let gpu = catalog::find(gpu).unwrap();
            assert!(all.prompt(&gpu).1 && all.token(&gpu).1 && all.experts("bf16", &gpu).1, "{}", gpu.name);
        }
        // Nothing of a server was measured on a V100.
        assert!(!all.token(&catalog::find("v100").unwrap()).1);
    }
}
