//! A simple hardware cost: weighted multiples of the base chip's resources.

use super::Scales;
use serde::Deserialize;

/// The weights that ship with the tool.
pub const AREA_WEIGHTS: &str = include_str!("../../data/area_weights.toml");

/// What can be wrong with a file of weights.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AreaError {
    /// Not TOML, or a key missing or unknown.
    #[error("{file}: {detail}")]
    Syntax {
        /// The file.
        file: String,
        /// What the parser said, on one line.
        detail: String,
    },
    /// A weight below zero, or all zero.
    #[error("{file}: `{key}` is {value}; weights are 0 or more and not all 0")]
    Value {
        /// The file.
        file: String,
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
    },
}

/// Shares of the base chip that grow with one resource each.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AreaWeights {
    per_sm: PerSm,
    chip: Chip,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct PerSm {
    fixed: f64,
    mac: f64,
    reg: f64,
    smem_size: f64,
    smem_bw: f64,
    l1_bw: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Chip {
    l2_bw: f64,
    dram_bw: f64,
    rest: f64,
}

impl AreaWeights {
    /// Reads a file as data/area_weights.toml.
    pub fn parse(text: &str, file: &str) -> Result<Self, AreaError> {
        let weights: Self = toml::from_str(text).map_err(|e| AreaError::Syntax {
            file: file.to_string(),
            detail: e.message().split_whitespace().collect::<Vec<_>>().join(" "),
        })?;
        for (key, value) in weights.all() {
            if !(value.is_finite() && value >= 0.0) {
                return Err(AreaError::Value { file: file.to_string(), key, value: value.to_string() });
            }
        }
        if weights.cost(&Scales::default()) <= 0.0 {
            return Err(AreaError::Value { file: file.to_string(), key: "the sum", value: "0".to_string() });
        }
        Ok(weights)
    }

    fn all(&self) -> [(&'static str, f64); 9] {
        let (s, c) = (&self.per_sm, &self.chip);
        [
            ("per_sm.fixed", s.fixed),
            ("per_sm.mac", s.mac),
            ("per_sm.reg", s.reg),
            ("per_sm.smem_size", s.smem_size),
            ("per_sm.smem_bw", s.smem_bw),
            ("per_sm.l1_bw", s.l1_bw),
            ("chip.l2_bw", c.l2_bw),
            ("chip.dram_bw", c.dram_bw),
            ("chip.rest", c.rest),
        ]
    }

    /// cost = sm_count·(fixed + Σ weight·scale per SM) + l2 + dram + rest; the formula in the file.
    pub fn cost(&self, s: &Scales) -> f64 {
        let sm = &self.per_sm;
        let per_sm = sm.fixed
            + sm.mac * s.mac_per_sm
            + sm.reg * s.reg
            + sm.smem_size * s.smem_size
            + sm.smem_bw * s.smem_bw
            + sm.l1_bw * s.l1_bw;
        s.sm_count * per_sm + self.chip.l2_bw * s.l2_bw + self.chip.dram_bw * s.dram_bw + self.chip.rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_costs_one() {
        let w = AreaWeights::parse(AREA_WEIGHTS, "area_weights.toml").unwrap();
        assert!((w.cost(&Scales::default()) - 1.0).abs() < 1e-12);
        // Option 2: 4*0.5 + 2*0.15 + 2*0.25 + 0.1 = 2.9; option 5: 0.12 + 4*0.16 + 2*0.12 + 2*0.04 + 2*0.03
        // + 1.5*0.03 + 1.5*0.15 + 1.5*0.25 + 0.1 = 1.885: the paper's point, the same speed for far less.
        let options = super::super::paper_options();
        assert!((w.cost(&options[1].scales) - 2.9).abs() < 1e-12);
        assert!((w.cost(&options[4].scales) - 1.885).abs() < 1e-12);
    }

    #[test]
    fn refuses_odd_files() {
        let odd = |text: &str| AreaWeights::parse(text, "w.toml").unwrap_err().to_string();
        assert!(odd("per_sm = 3").starts_with("w.toml: "));
        assert!(odd(&AREA_WEIGHTS.replace("mac = 0.16", "mac = -1")).contains("`per_sm.mac` is -1"));
        assert!(odd(&AREA_WEIGHTS.replace("mac = 0.16", "mac = nan")).contains("per_sm.mac"));
        assert!(odd(&AREA_WEIGHTS.replace("mac = 0.16", "")).contains("mac"));
    }
}
