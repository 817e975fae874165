//! Areas of dies.

use serde::Deserialize;
use std::collections::BTreeMap;

const DIES: &str = include_str!("../data/dies.toml");

#[derive(Debug, Deserialize)]
struct Die {
    mm2: f64,
    #[serde(rename = "source")]
    _source: String,
}

/// The area of a chip's die in square millimetres, where its maker says it.
pub fn die_mm2(chip: &str) -> Option<f64> {
    let dies: BTreeMap<String, Die> = toml::from_str(DIES).ok()?;
    dies.get(chip).map(|die| die.mm2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_core::gpu::catalog;

    #[test]
    fn every_die_is_that_of_a_gpu_in_the_catalogue() {
        let dies: BTreeMap<String, Die> = toml::from_str(DIES).unwrap();
        let chips: Vec<String> = catalog::all().unwrap().into_iter().map(|g| g.chip).collect();
        for (chip, die) in &dies {
            assert!(chips.contains(chip), "{chip}");
            assert!((100.0..1000.0).contains(&die.mm2), "{chip}");
        }
        assert_eq!(die_mm2("GH100"), Some(814.0));
        assert_eq!(die_mm2("nothing"), None);
    }
}
