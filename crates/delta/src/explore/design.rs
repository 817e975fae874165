//! A design: a base machine with scaled resources.

use super::BASE_EDGE;
use crate::{DeltaError, Machine};
use serde::Serialize;

/// How much of each resource, as a multiple of the base machine; the tile edge is a size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, utoipa::ToSchema)]
pub struct Scales {
    /// N_SM.
    pub sm_count: f64,
    /// MAC_BW per SM.
    pub mac_per_sm: f64,
    /// REGS_SIZE per SM.
    pub reg: f64,
    /// SMEM_SIZE per SM.
    pub smem_size: f64,
    /// SMEM_BW per SM.
    pub smem_bw: f64,
    /// L1_BW per SM.
    pub l1_bw: f64,
    /// L2_BW of the chip.
    pub l2_bw: f64,
    /// DRAM_BW of the chip.
    pub dram_bw: f64,
    /// CTA tile height and width of the widest layers.
    pub tile: u32,
}

/// The keys of a sweep, in the order of the paper's table.
pub const KEYS: [&str; 9] =
    ["sm_count", "mac_per_sm", "reg", "smem_size", "smem_bw", "l1_bw", "l2_bw", "dram_bw", "tile"];

impl Default for Scales {
    fn default() -> Self {
        Self {
            sm_count: 1.0,
            mac_per_sm: 1.0,
            reg: 1.0,
            smem_size: 1.0,
            smem_bw: 1.0,
            l1_bw: 1.0,
            l2_bw: 1.0,
            dram_bw: 1.0,
            tile: BASE_EDGE,
        }
    }
}

impl Scales {
    /// Sets one of [`KEYS`]; `None` for another key.
    #[must_use]
    pub fn with(mut self, key: &str, value: f64) -> Option<Self> {
        match key {
            "sm_count" => self.sm_count = value,
            "mac_per_sm" => self.mac_per_sm = value,
            "reg" => self.reg = value,
            "smem_size" => self.smem_size = value,
            "smem_bw" => self.smem_bw = value,
            "l1_bw" => self.l1_bw = value,
            "l2_bw" => self.l2_bw = value,
            "dram_bw" => self.dram_bw = value,
            "tile" => self.tile = value as u32,
            _ => return None,
        }
        Some(self)
    }

    /// The values in the order of [`KEYS`].
    pub fn values(&self) -> [f64; 9] {
        [
            self.sm_count,
            self.mac_per_sm,
            self.reg,
            self.smem_size,
            self.smem_bw,
            self.l1_bw,
            self.l2_bw,
            self.dram_bw,
            f64::from(self.tile),
        ]
    }

    /// The base machine with these resources. SMs are whole: their number is rounded.
    pub fn machine(&self, base: &Machine) -> Result<Machine, DeltaError> {
        let machine = Machine {
            num_sm: (f64::from(base.num_sm) * self.sm_count).round() as u32,
            mac_per_s_per_sm: base.mac_per_s_per_sm * self.mac_per_sm,
            registers_per_sm: base.registers_per_sm * self.reg,
            smem_per_sm: base.smem_per_sm * self.smem_size,
            smem_store: base.smem_store * self.smem_bw,
            smem_load: base.smem_load * self.smem_bw,
            l1_per_sm: base.l1_per_sm * self.l1_bw,
            l2: base.l2 * self.l2_bw,
            dram: base.dram * self.dram_bw,
            ..*base
        };
        machine.check()?;
        Ok(machine)
    }
}

/// A named set of scales.
#[derive(Debug, Clone, PartialEq)]
pub struct Design {
    /// Name.
    pub name: String,
    /// Resources.
    pub scales: Scales,
}

/// The paper's nine options (Fig. 16a), named `1` to `9`.
pub fn paper_options() -> Vec<Design> {
    // Columns of Fig. 16a in the order of KEYS.
    const OPTIONS: [[f64; 9]; 9] = [
        [2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.5, 1.5, 128.0],
        [4.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 128.0],
        [1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 128.0],
        [1.0, 4.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 128.0],
        [1.0, 4.0, 2.0, 2.0, 2.0, 1.5, 1.5, 1.5, 128.0],
        [1.0, 6.0, 2.0, 2.0, 2.0, 2.0, 1.5, 2.0, 128.0],
        [1.0, 8.0, 3.0, 3.0, 3.0, 2.0, 2.0, 2.0, 256.0],
        [2.0, 4.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 256.0],
        [1.0, 8.0, 3.0, 3.0, 3.0, 2.0, 2.0, 3.0, 256.0],
    ];
    let scaled = |values: &[f64; 9]| {
        KEYS.iter()
            .zip(values)
            .fold(Scales::default(), |scales, (key, value)| scales.with(key, *value).unwrap_or(scales))
    };
    (1..).zip(&OPTIONS).map(|(i, values)| Design { name: i.to_string(), scales: scaled(values) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_agree() {
        for (i, key) in KEYS.iter().enumerate() {
            let set = Scales::default().with(key, 64.0).unwrap();
            for (j, value) in set.values().iter().enumerate() {
                let expected = if i == j { 64.0 } else { Scales::default().values()[j] };
                assert_eq!(*value, expected, "{key}");
            }
        }
        assert!(Scales::default().with("sms", 1.0).is_none());
    }
}
