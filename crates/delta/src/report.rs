//! What the model says about a layer.

use super::Tile;
use preflop_units::{Bytes, Seconds};
use serde::{Deserialize, Serialize};

/// The resource that sets the time of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Bottleneck {
    /// Arithmetic (Eq. 16, cases 1 and 3).
    Mac,
    /// Shared-memory bandwidth (Eq. 16).
    Smem,
    /// L1 bandwidth (Eq. 18, case 4).
    #[serde(rename = "L1_BW")]
    L1Bw,
    /// L2 bandwidth (Eq. 18).
    #[serde(rename = "L2_BW")]
    L2Bw,
    /// DRAM bandwidth (Eq. 18).
    DramBw,
    /// DRAM latency: too few CTAs to hide it (Eq. 17, case 2).
    DramLat,
}

impl Bottleneck {
    /// All, in the order of [`LayerReport::bounds`].
    pub const ALL: [Self; 6] = [Self::Mac, Self::Smem, Self::L1Bw, Self::L2Bw, Self::DramBw, Self::DramLat];

    /// The name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mac => "MAC",
            Self::Smem => "SMEM",
            Self::L1Bw => "L1_BW",
            Self::L2Bw => "L2_BW",
            Self::DramBw => "DRAM_BW",
            Self::DramLat => "DRAM_LAT",
        }
    }
}

/// Loads at each level of the memory hierarchy; the output is not in them (it is in the epilogue's time).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Traffic {
    /// T_L1.
    pub l1: Bytes,
    /// T_L2.
    pub l2: Bytes,
    /// T_DRAM.
    pub dram: Bytes,
}

impl Traffic {
    /// Share of the L1 loads that go on to L2.
    pub fn l1_miss_rate(&self) -> f64 {
        self.l2 / self.l1
    }

    /// Share of the L2 loads that go on to DRAM.
    pub fn l2_miss_rate(&self) -> f64 {
        self.dram / self.l2
    }
}

/// Traffic, time and bottleneck of one layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerReport {
    /// CTA tile.
    pub tile: Tile,
    /// CTAs of the layer.
    pub num_cta: f64,
    /// CTAs that an SM interleaves.
    pub active_ctas: f64,
    /// Bytes at each level.
    pub traffic: Traffic,
    /// t_CS of one main-loop iteration (Eq. 13).
    pub cs: Seconds,
    /// t_SAS of one main-loop iteration (Eq. 12).
    pub sas: Seconds,
    /// t_GLS of one main-loop iteration (Eq. 11).
    pub gls: Seconds,
    /// Time of the layer if each resource were the one that binds, in the order of [`Bottleneck::ALL`].
    pub bounds: [Seconds; 6],
    /// Time of the layer: the largest of `bounds`.
    pub time: Seconds,
    /// The resource of that bound.
    pub bottleneck: Bottleneck,
    /// What binds once the bottleneck is gone: the second largest of `bounds`.
    pub next: Bottleneck,
}

impl LayerReport {
    /// The time if this resource bound.
    pub fn bound(&self, bottleneck: Bottleneck) -> Seconds {
        self.bounds[bottleneck as usize]
    }

    /// How much faster the layer gets at most when only its bottleneck is removed.
    pub fn headroom(&self) -> f64 {
        self.time / self.bound(self.next)
    }
}
