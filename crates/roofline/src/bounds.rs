//! The three bounds of a piece of work, what binds it, and whether it claims more than the machine can do.

use super::machine::{Level, Machine, Pipe};
use preflop_units::{Bytes, Flops, Seconds};
use serde::Serialize;

/// A piece of work with its time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Work {
    /// FLOPs by pipe, each pipe once.
    pub flops: Vec<(Pipe, Flops)>,
    /// Bytes by [`Level`]; `None` where not known.
    pub bytes: [Option<Bytes>; 3],
    /// Kernel launches.
    pub launches: f64,
    /// Time, measured or predicted.
    pub time: Seconds,
}

/// What a Roofline says binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// `t_F` is the largest.
    Compute,
    /// `t_B` at DRAM is the largest.
    Memory,
    /// `t_0` is the largest.
    Overhead,
}

impl Class {
    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Memory => "memory",
            Self::Overhead => "overhead",
        }
    }
}

/// The resource that takes the longest when each is taken alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Resource {
    /// Arithmetic.
    Compute,
    /// DRAM bandwidth.
    Dram,
    /// L2 bandwidth.
    L2,
    /// L1 bandwidth.
    L1,
    /// Launches.
    Launch,
}

impl Resource {
    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Dram => "dram",
            Self::L2 => "l2",
            Self::L1 => "l1",
            Self::Launch => "launch",
        }
    }

    fn of_level(level: Level) -> Self {
        match level {
            Level::Dram => Self::Dram,
            Level::L2 => Self::L2,
            Level::L1 => Self::L1,
        }
    }
}

/// The times that each resource alone would take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// `t_F`: all FLOPs at the peaks of their pipes, one after the other.
    pub compute: Seconds,
    /// `t_B` by [`Level`].
    pub bytes: [Option<Seconds>; 3],
    /// `t_0` on the device.
    pub launch: Seconds,
    /// `t_0` on the host.
    pub host_launch: Seconds,
}

/// Work that takes this many times its largest term is called inefficient: what binds it by the terms does not explain it.
pub const INEFFICIENT: f64 = 3.0;

/// Relative difference that is rounding, not a point above a roof.
const ROUNDING: f64 = 1e-6;

impl Work {
    /// All FLOPs.
    pub fn total_flops(&self) -> Flops {
        self.flops.iter().map(|f| f.1).sum()
    }

    /// Is nothing known but its time: neither FLOPs nor bytes?
    pub fn is_unknown(&self) -> bool {
        self.flops.is_empty() && self.bytes.iter().all(Option::is_none)
    }

    /// Bytes at a level, if known.
    pub fn bytes(&self, level: Level) -> Option<Bytes> {
        self.bytes[level as usize]
    }

    /// Arithmetic intensity `AI = F/B`, in FLOP per byte.
    pub fn intensity(&self, level: Level) -> Option<f64> {
        let bytes = self.bytes(level)?.0;
        (bytes > 0.0).then(|| self.total_flops().0 / bytes)
    }

    /// Adds another piece of work that runs before or after. A level that one of them does not know stays unknown.
    pub fn add(&mut self, other: &Self) {
        for &(pipe, flops) in &other.flops {
            match self.flops.iter_mut().find(|f| f.0 == pipe) {
                Some(own) => own.1 += flops,
                None => self.flops.push((pipe, flops)),
            }
        }
        for (own, others) in self.bytes.iter_mut().zip(other.bytes) {
            *own = own.zip(others).map(|(a, b)| a + b);
        }
        self.launches += other.launches;
        self.time += other.time;
    }

    /// The same work so many times.
    #[must_use]
    pub fn times(&self, count: f64) -> Self {
        Self {
            flops: self.flops.iter().map(|&(pipe, f)| (pipe, f * count)).collect(),
            bytes: self.bytes.map(|b| b.map(|b| b * count)),
            launches: self.launches * count,
            time: self.time * count,
        }
    }

    /// The bounds on a machine: `t_F = sum F_p/P_p`, `t_B = B/W`, `t_0 = N t0`.
    pub fn bounds(&self, machine: &Machine) -> Bounds {
        let at = |level: Level| Some(self.bytes(level)? / machine.bandwidth(level)?);
        Bounds {
            compute: self.flops.iter().map(|&(pipe, f)| f / machine.peak(pipe)).sum(),
            bytes: Level::ALL.map(at),
            launch: machine.device_overhead * self.launches,
            host_launch: machine.host_overhead * self.launches,
        }
    }
}

impl Bounds {
    /// `t_B` at a level.
    pub fn level(&self, level: Level) -> Option<Seconds> {
        self.bytes[level as usize]
    }

    fn memory(&self) -> Seconds {
        self.level(Level::Dram).unwrap_or(Seconds::ZERO)
    }

    /// Bounds of work that runs before or after.
    pub(super) fn add(&mut self, other: &Self) {
        self.compute += other.compute;
        for (own, others) in self.bytes.iter_mut().zip(other.bytes) {
            *own = own.zip(others).map(|(a, b)| a + b);
        }
        self.launch += other.launch;
        self.host_launch += other.host_launch;
    }

    /// `max(t_F, t_B, t_0)`.
    pub fn largest(&self) -> Seconds {
        self.compute.max(self.memory()).max(self.launch)
    }

    /// Which of the three is the largest; the earlier of the list on a tie.
    pub fn class(&self) -> Class {
        let largest = self.largest();
        if self.compute >= largest {
            Class::Compute
        } else if self.memory() >= largest {
            Class::Memory
        } else {
            Class::Overhead
        }
    }

    /// The slowest of all resources, the inner memory levels included.
    pub fn binding(&self) -> Resource {
        let levels = Level::ALL.map(|l| (self.level(l).unwrap_or(Seconds::ZERO), Resource::of_level(l)));
        let start = (self.compute, Resource::Compute);
        levels
            .into_iter()
            .chain([(self.launch, Resource::Launch)])
            .fold(start, |a, b| if b.0 > a.0 { b } else { a })
            .1
    }

    /// How far above its largest term work of this time is, where that is far: `t / max` over all resources.
    pub fn inefficient(&self, time: Seconds) -> Option<f64> {
        let levels = self.bytes.iter().flatten().copied().fold(Seconds::ZERO, Seconds::max);
        let largest = self.compute.max(levels).max(self.launch);
        let factor = if largest > Seconds::ZERO { time / largest } else { 1.0 };
        (factor >= INEFFICIENT).then_some(factor)
    }

    /// `t / max(t_F, t_B)`; `None` for work without FLOPs and bytes, or whose bytes are not known.
    pub fn slowdown(&self, time: Seconds) -> Option<f64> {
        let roof = self.compute.max(self.level(Level::Dram)?);
        (roof > Seconds::ZERO).then(|| time / roof)
    }

    /// The roofs that work of this time would have passed: the data contradict the machine, or part of the work
    /// was not done where it is counted (bytes served by a cache, products saved by an algorithm).
    pub fn passed(&self, time: Seconds) -> Vec<Resource> {
        let mut passed = Vec::new();
        let above = |bound: Seconds| time.0 < bound.0 * (1.0 - ROUNDING);
        if above(self.compute) {
            passed.push(Resource::Compute);
        }
        for level in Level::ALL {
            if self.level(level).is_some_and(above) {
                passed.push(Resource::of_level(level));
            }
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::{FP32, TENSOR, machine};
    use preflop_units::dtype::Dtype;

    fn close(got: f64, expected: f64, tolerance: f64) {
        let error = (got / expected - 1.0).abs();
        assert!(error < tolerance, "expected {expected}, got {got}, error {error:.2e}");
    }

    /// PyTorch FP32 9x9 stride 2 batch 16 forward of the V100 study.
    fn conv(pipe: Pipe) -> Work {
        Work {
            flops: vec![(pipe, Flops(28.72e9))],
            bytes: [Some(Bytes(81.95e6)), None, None],
            launches: 3.0,
            time: Seconds::from_us(2652.0),
        }
    }

    #[test]
    fn the_studys_convolution() {
        let m = machine();
        let work = conv(TENSOR);
        // 28.72e9 / 81.95e6 = 350.4; / 106.49e12 = 269.7 us; 81.95e6 / 828.8e9 = 98.9 us; 2652 / 269.7 = 9.83
        close(work.intensity(Level::Dram).unwrap(), 350.4, 2e-4);
        let b = work.bounds(&m);
        close(b.compute.us(), 269.7, 2e-4);
        close(b.level(Level::Dram).unwrap().us(), 98.9, 3e-4);
        close(b.launch.us(), 12.6, 1e-9);
        assert_eq!(b.class(), Class::Compute);
        close(b.slowdown(work.time).unwrap(), 9.83, 5e-4);
        // the largest term is arithmetic's, and the kernel is far above it
        close(b.inefficient(work.time).unwrap(), 9.83, 5e-4);
        // against the fp32 roof: 28.72e9 / 15.158e12 = 1894.7 us; 2652 / 1894.7 = 1.40
        close(conv(FP32).bounds(&m).slowdown(work.time).unwrap(), 1.40, 1e-3);
        assert_eq!(b.passed(work.time), []);
    }

    #[test]
    fn the_studys_lstm_is_overhead_bound() {
        let work = Work {
            flops: vec![(TENSOR, Flops(5.957_41e6))],
            bytes: [Some(Bytes(0.799_424e6)), None, None],
            launches: 277.0,
            time: Seconds::from_us(1060.0),
        };
        let b = work.bounds(&machine());
        // 277 x 4.2 us = 1163.4 us, above the 1060 us measured
        close(b.launch.us(), 1163.4, 1e-9);
        assert_eq!((b.class(), b.binding()), (Class::Overhead, Resource::Launch));
        assert!(work.time < b.launch);
        // An overhead is an estimate, not a roof: nothing is flagged.
        assert_eq!(b.passed(work.time), []);
    }

    #[test]
    fn times_of_pipes_add_up() {
        let mut work = conv(TENSOR);
        work.add(&conv(FP32));
        let alone = conv(TENSOR).bounds(&machine()).compute + conv(FP32).bounds(&machine()).compute;
        close(work.bounds(&machine()).compute.0, alone.0, 1e-12);
        close(work.launches, 6.0, 1e-12);
        assert_eq!(work.flops.len(), 2);
    }

    #[test]
    fn a_point_above_a_roof_is_flagged() {
        let mut work = conv(FP32);
        work.time = Seconds::from_us(1000.0);
        assert_eq!(work.bounds(&machine()).passed(work.time), [Resource::Compute]);
        work.time = Seconds::from_us(50.0);
        assert_eq!(work.bounds(&machine()).passed(work.time), [Resource::Compute, Resource::Dram]);
    }

    #[test]
    fn an_unknown_pipe_meets_the_lowest_roof() {
        let fp8 = Pipe { dtype: Dtype::Fp8, tensor: true };
        assert_eq!(machine().peak(fp8), machine().peak(FP32));
    }
}
