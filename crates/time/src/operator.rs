//! What is said about one operator call: time, interval, bound, traffic.

use preflop_units::{Bytes, Flops, Seconds};
use serde::{Deserialize, Serialize};

/// The resource that binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Arithmetic.
    Compute,
    /// DRAM bandwidth.
    Dram,
    /// L2 bandwidth.
    L2,
    /// Latency, launch cost, too little parallel work.
    Latency,
    /// The host cannot launch fast enough (whole iterations only).
    Host,
}

impl Bound {
    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Dram => "dram",
            Self::L2 => "l2",
            Self::Latency => "latency",
            Self::Host => "host",
        }
    }
}

/// What we say about one call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OpPrediction {
    /// GPU time.
    pub time: Seconds,
    /// Lower end of the 90 % interval.
    pub low: Seconds,
    /// Upper end of the 90 % interval.
    pub high: Seconds,
    /// What binds.
    pub bound: Bound,
    /// Useful FLOPs.
    pub flops: Flops,
    /// Bytes to and from DRAM.
    pub dram: Bytes,
    /// Bytes between L2 and the SMs.
    pub l2: Bytes,
    /// Bytes through the L1s.
    pub l1: Bytes,
    /// Kernels launched.
    pub launches: f64,
    /// Seconds of all kernels, each alone, over `time`: above 1 where they run on several streams.
    pub abreast: f64,
}
