//! A GPU as the models see it: figures from a catalogue or user file, gaps filled by stated defaults.

pub mod catalog;
mod changed;
mod fields;
mod file;
mod resolve;
mod resource;

pub use changed::{CHANGEABLE, changeable};
pub use fields::{FIELDS, Field};
pub use file::{Fact, GpuFile, parse};
pub use resolve::Assumption;
pub use resource::Resource;

use preflop_units::dtype::Dtype;
use preflop_units::names::one_line;
use preflop_units::{Bytes, BytesPerSecond, FlopsPerSecond, Hertz, Seconds};
use serde::{Deserialize, Serialize};

/// What can go wrong with a GPU name or file. Each message is one line: what, where, what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// No GPU of that name in the catalogue.
    #[error(
        "unknown GPU `{}`{hint} (`preflop gpus` lists all; a path to a GPU file works too)",
        one_line(name)
    )]
    Unknown {
        /// The name asked for.
        name: String,
        /// Close names, as a clause.
        hint: String,
    },
    /// The file is not TOML.
    #[error("{file}: not valid TOML: {detail}")]
    Syntax {
        /// The file.
        file: String,
        /// What the parser said, on one line.
        detail: String,
    },
    /// A key that the schema does not know.
    #[error("{file}: unknown key `{}`{hint}; docs/gpu-file.md lists the keys", one_line(key))]
    Key {
        /// The file.
        file: String,
        /// Section and key.
        key: String,
        /// Close names, as a clause.
        hint: String,
    },
    /// A value of the wrong type or outside its range.
    #[error("{file}: `{}` {}", one_line(key), one_line(problem))]
    Value {
        /// The file.
        file: String,
        /// Section and key.
        key: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// A figure without which nothing can be predicted.
    #[error("{file}: `{key}` is missing; {why}")]
    Missing {
        /// The file.
        file: String,
        /// Section and key.
        key: String,
        /// Why it is needed.
        why: String,
    },
}

/// Who makes the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Vendor {
    /// NVIDIA.
    Nvidia,
    /// AMD.
    Amd,
    /// Anyone else, or a design on paper.
    Other,
}

/// The generation of the chip: decides which library kernels exist and how close to peak they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Architecture {
    Pascal,
    Volta,
    Turing,
    Ampere,
    Ada,
    Hopper,
    Blackwell,
    Vega,
    Cdna1,
    Cdna2,
    Cdna3,
    Other,
    // Last, so that the others keep their places in what was learned.
    Kepler,
    Maxwell,
}

impl Architecture {
    /// All, oldest first.
    pub const ALL: [Self; 14] = [
        Self::Kepler,
        Self::Maxwell,
        Self::Pascal,
        Self::Volta,
        Self::Turing,
        Self::Ampere,
        Self::Ada,
        Self::Hopper,
        Self::Blackwell,
        Self::Vega,
        Self::Cdna1,
        Self::Cdna2,
        Self::Cdna3,
        Self::Other,
    ];

    /// The name used in GPU files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kepler => "kepler",
            Self::Maxwell => "maxwell",
            Self::Pascal => "pascal",
            Self::Volta => "volta",
            Self::Turing => "turing",
            Self::Ampere => "ampere",
            Self::Ada => "ada",
            Self::Hopper => "hopper",
            Self::Blackwell => "blackwell",
            Self::Vega => "vega",
            Self::Cdna1 => "cdna1",
            Self::Cdna2 => "cdna2",
            Self::Cdna3 => "cdna3",
            Self::Other => "other",
        }
    }
}

/// One rate per number format; `None` where the pipe does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Peaks {
    rates: [Option<FlopsPerSecond>; 9],
}

impl Peaks {
    /// The rate in this format, if the pipe exists.
    pub fn get(&self, dtype: Dtype) -> Option<FlopsPerSecond> {
        self.rates[dtype as usize]
    }

    /// Sets the rate of one format.
    pub fn set(&mut self, dtype: Dtype, rate: FlopsPerSecond) {
        self.rates[dtype as usize] = Some(rate);
    }
}

/// Latency of one dependent access, in core clock cycles.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Latencies {
    /// L1 hit.
    pub l1_cycles: f64,
    /// Shared memory.
    pub shared_cycles: f64,
    /// L2 hit.
    pub l2_cycles: f64,
    /// DRAM.
    pub dram_cycles: f64,
}

/// The figures of a GPU as printed in the DeLTA paper's Table I, for the reproduction of its numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeltaFigures {
    /// Streaming multiprocessors.
    pub num_sm: u32,
    /// Core clock.
    pub clock: Hertz,
    /// DRAM bandwidth of the whole chip.
    pub dram: BytesPerSecond,
    /// L2 bandwidth of the whole chip.
    pub l2: BytesPerSecond,
    /// L1 bandwidth of one SM.
    pub l1_per_sm: BytesPerSecond,
    /// Latencies used with the paper's equations.
    pub latency: Latencies,
}

/// A GPU, complete: every field has a value, and `assumptions` says which ones were not in the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Gpu {
    /// Lower-case name with dashes.
    pub name: String,
    /// Name for people.
    pub title: String,
    /// Maker.
    pub vendor: Vendor,
    /// Generation.
    pub architecture: Architecture,
    /// Die, such as `GH100`.
    pub chip: String,
    /// CUDA compute capability or AMD gfx name.
    pub compute_capability: String,
    /// Board form: sxm, pcie, module, ...
    pub form: String,
    /// Year it came out.
    pub release_year: Option<u32>,
    /// Streaming multiprocessors (compute units on AMD).
    pub sm_count: u32,
    /// Guaranteed clock.
    pub base_clock: Hertz,
    /// Highest ordinary clock; datasheet peaks hold at it.
    pub boost_clock: Hertz,
    /// Clock at which such boards are usually seen to run: above the datasheet's on GeForce boards.
    pub usual_clock: Hertz,
    /// fp32 multiply-add lanes of one SM.
    pub fp32_lanes_per_sm: u32,
    /// 32-bit registers of one SM.
    pub registers_per_sm: u32,
    /// Shared memory of one SM.
    pub shared_per_sm: Bytes,
    /// Most shared memory one block may use.
    pub shared_per_block: Bytes,
    /// L1 (with shared memory where unified) of one SM.
    pub l1_per_sm: Bytes,
    /// Resident threads of one SM.
    pub threads_per_sm: u32,
    /// Resident blocks of one SM.
    pub blocks_per_sm: u32,
    /// Threads that run in lock step.
    pub warp_size: u32,
    /// Device memory.
    pub memory: Bytes,
    /// Kind of memory, such as HBM3e.
    pub dram_kind: String,
    /// DRAM bandwidth of the datasheet.
    pub dram: BytesPerSecond,
    /// DRAM bandwidth that a good kernel holds.
    pub dram_sustained: BytesPerSecond,
    /// L2 capacity.
    pub l2_size: Bytes,
    /// L2 bandwidth.
    pub l2: BytesPerSecond,
    /// L1 bytes per clock of one SM.
    pub l1_bytes_per_clock: f64,
    /// Shared-memory bytes per clock of one SM.
    pub shared_bytes_per_clock: f64,
    /// Host interface, such as `PCIe 5.0 x16`.
    pub host_interface: String,
    /// Host bandwidth, one direction.
    pub host: BytesPerSecond,
    /// What joins it to other GPUs, such as `nvlink4`, and its bandwidth in one direction; none where only the host
    /// interface does.
    pub link: Option<(String, BytesPerSecond)>,
    /// May another GPU on the same host bus read and write its memory? Drivers refuse that on boards for desks.
    pub peer_access: bool,
    /// Latencies.
    pub latency: Latencies,
    /// Datasheet rates of the plain pipes.
    pub plain: Peaks,
    /// Datasheet rates of the tensor (matrix) pipes, dense.
    pub tensor: Peaks,
    /// Rates that large matrix products hold.
    pub sustained: Peaks,
    /// fp32 rate on plain pipes that datasheet and power limit allow, whatever was measured.
    pub plain_limit: FlopsPerSecond,
    /// fp32 rate on plain pipes of calls that are too short for the power limit to bind.
    pub plain_burst: FlopsPerSecond,
    /// Board power limit in watts.
    pub tdp_w: f64,
    /// Power at rest in watts.
    pub idle_w: f64,
    /// Device time of an empty kernel in a row of kernels.
    pub kernel_floor: Seconds,
    /// Host time of one launch.
    pub host_launch: Seconds,
    /// DeLTA's Table I figures, where the paper has this GPU.
    pub delta: Option<DeltaFigures>,
    /// Every figure of the file with its source.
    pub facts: Vec<Fact>,
    /// Every default that was taken, and why.
    pub assumptions: Vec<Assumption>,
}

impl Gpu {
    /// Datasheet rate at which matrix products of this format run: tensor pipe if there is one.
    ///
    /// A format the chip lacks runs as its wider stand-in, as the libraries do it:
    /// tf32 -> fp32, bf16 and fp16 -> each other's pipe or fp32, fp8 -> 16 bit, fp4 -> fp8.
    pub fn peak(&self, dtype: Dtype) -> FlopsPerSecond {
        // Without matrix units, libraries multiply 16-bit numbers on the fp32 pipe where that is faster.
        let plain = |d: Dtype| match (self.plain.get(d), self.plain.get(Dtype::Fp32)) {
            (Some(own), Some(fp32)) if d.is_half() => Some(own.max(fp32)),
            (own, _) => own,
        };
        Self::rate(dtype, |d| self.tensor.get(d).or_else(|| plain(d)))
    }

    /// What no kernel exceeds: the peak at the clock that such boards are seen to run at.
    pub fn roof(&self, dtype: Dtype) -> FlopsPerSecond {
        self.peak(dtype) * (self.usual_clock.0 / self.boost_clock.0).max(1.0)
    }

    /// Rate that large matrix products of this format hold.
    pub fn sustained_peak(&self, dtype: Dtype) -> FlopsPerSecond {
        Self::rate(dtype, |d| self.sustained.get(d))
    }

    /// Rate of the plain (non-tensor) pipe for pointwise work in this format.
    pub fn plain_peak(&self, dtype: Dtype) -> FlopsPerSecond {
        self.plain.get(dtype).or_else(|| self.plain.get(Dtype::Fp32)).unwrap_or(FlopsPerSecond(1e12))
    }

    fn rate(dtype: Dtype, get: impl Fn(Dtype) -> Option<FlopsPerSecond>) -> FlopsPerSecond {
        let mut d = dtype;
        loop {
            if let Some(rate) = get(d) {
                return rate;
            }
            d = match d {
                Dtype::Fp4 => Dtype::Fp8,
                Dtype::Fp8 | Dtype::Int8 => Dtype::Fp16,
                Dtype::Fp16 | Dtype::Bf16 | Dtype::Tf32 | Dtype::Fp64 | Dtype::Int64 => Dtype::Fp32,
                Dtype::Fp32 => return FlopsPerSecond(1e12),
            };
        }
    }

    /// Does the chip have pipes for a format?
    pub fn has(&self, dtype: Dtype) -> bool {
        self.tensor.get(dtype).is_some() || self.plain.get(dtype).is_some()
    }

    /// The 16-bit format that autocast takes on this GPU: bf16 where the chip has it, else fp16.
    pub fn autocast(&self) -> Dtype {
        if self.has(Dtype::Bf16) { Dtype::Bf16 } else { Dtype::Fp16 }
    }

    /// What a framework takes on this GPU where a format is allowed but not there: fp16 for bf16, fp32 for TF32.
    pub fn runs_in(&self, dtype: Dtype) -> Dtype {
        match dtype {
            Dtype::Bf16 => self.autocast(),
            Dtype::Tf32 if !self.has(Dtype::Tf32) => Dtype::Fp32,
            other => other,
        }
    }

    /// Are both formats there that [`Gpu::runs_in`] would replace?
    pub fn runs_all(&self) -> bool {
        self.has(Dtype::Bf16) && self.has(Dtype::Tf32)
    }

    /// Do two descriptions have the same figures, whatever they are called?
    pub fn same_figures(&self, other: &Self) -> bool {
        self.sm_count == other.sm_count
            && self.boost_clock == other.boost_clock
            && self.dram == other.dram
            && self.dram_sustained == other.dram_sustained
            && self.l2 == other.l2
            && self.l2_size == other.l2_size
            && self.kernel_floor == other.kernel_floor
            && self.plain_limit == other.plain_limit
            && self.plain_burst == other.plain_burst
            && self.sustained == other.sustained
            && self.tensor == other.tensor
            && self.plain == other.plain
            && self.architecture == other.architecture
            && self.compute_capability == other.compute_capability
    }

    /// Does the chip have matrix units for this format?
    pub fn has_tensor(&self, dtype: Dtype) -> bool {
        self.tensor.get(dtype).is_some()
    }
}
