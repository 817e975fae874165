//! Software that ran a measurement, as far as times depend on it.
//!
//! A published row says which stack it ran on, and a fit does not mix them: launch costs of 2017 are not carried to a library of today,
//! a framework that chooses a layout by itself is not taken for one that keeps it.

use preflop_gpu::Architecture;

/// A framework with its libraries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stack {
    /// A name to ask for it.
    pub name: &'static str,
    /// Framework and its generation.
    pub framework: &'static str,
    /// Generation of the GPU libraries.
    pub library: &'static str,
    /// Do products come from an inference server instead of the framework's library?
    pub server: bool,
    /// Were algorithms of convolutions chosen by trial (`cudnn.benchmark`, `cudnnFind`) instead of by the library's heuristic?
    pub autotuned: bool,
    /// Generations on which 16-bit graphs are laid out NHWC by the framework itself.
    pub nhwc_half: &'static [Architecture],
    /// Seconds that timing one call adds to its kernels.
    pub call_s: f64,
    /// Are steps of recurrent layers launched as slowly as by cuDNN 6 and 7?
    pub slow_steps: bool,
    /// What recurrent layers take longer at batch 32 on Pascal, forward and backward: cuDNN 6 has a poor kernel there.
    pub pascal_batch_32: [f64; 2],
    /// Do products on Pascal run in tiles of 128 x 128? Libraries of its time had such kernels; those of CUDA 12 take smaller ones ([`preflop_kernels::row_reads`]).
    pub wide_pascal: bool,
}

impl Stack {
    /// What the project measures with, and what predictions are for.
    pub const CURRENT: Self = Self {
        name: "current",
        framework: "PyTorch 2.11, eager",
        library: "CUDA 13.0, cuDNN 9.19",
        server: false,
        autotuned: false,
        nhwc_half: &[],
        call_s: 0.0,
        slow_steps: false,
        pascal_batch_32: [1.0; 2],
        wide_pascal: false,
    };

    /// Library calls of DeepBench: mean over calls that the host launches.
    pub const DEEPBENCH: Self = Self {
        name: "deepbench",
        framework: "none: library calls",
        library: "CUDA 8 to 10, cuDNN 6 and 7",
        autotuned: true,
        call_s: 8e-6,
        slow_steps: true,
        pascal_batch_32: [1.64, 2.25],
        wide_pascal: true,
        ..Self::CURRENT
    };

    /// Operators of NeuSight: wall time of eager calls.
    pub const NEUSIGHT: Self = Self {
        name: "neusight",
        framework: "PyTorch 2.1, eager",
        library: "CUDA 12, cuDNN 8.9",
        autotuned: true,
        call_s: 15e-6,
        ..Self::CURRENT
    };

    /// Linear layers of NeuSight's test half on a P4, whose kernels are those of a library before it.
    pub const NEUSIGHT_OLDER: Self = Self {
        name: "neusight-older",
        library: "CUDA 12 with products of an older cuBLAS, cuDNN 8.9",
        wide_pascal: true,
        ..Self::NEUSIGHT
    };

    /// Products and attention of inference servers, replayed as CUDA graphs.
    pub const SERVED: Self = Self {
        name: "served",
        framework: "inference servers",
        library: "CUDA 12",
        server: true,
        ..Self::CURRENT
    };

    /// Whole networks of an image library on an RTX 3090.
    pub const IMAGE_LIBRARY: Self = Self {
        name: "pytorch-2022",
        framework: "PyTorch 1.12 to 2.4, eager",
        library: "CUDA 11 and 12, cuDNN 8 and 9",
        autotuned: true,
        ..Self::CURRENT
    };

    /// Whole networks at batch 12, and training throughput of single GPUs.
    pub const PYTORCH_2019: Self = Self {
        name: "pytorch-2019",
        framework: "PyTorch 0.4 to 1.9, eager",
        library: "CUDA 9 to 11, cuDNN 7 and 8",
        autotuned: true,
        ..Self::CURRENT
    };

    /// Whole networks in graph mode. TensorFlow lays 16-bit graphs out by itself: runs on a V100 fit NHWC better, those on Turing NCHW (read
    /// off the same runs).
    pub const TENSORFLOW: Self = Self {
        name: "tensorflow",
        framework: "TensorFlow 1.15 and 2, graphs",
        library: "CUDA 10 and 11, cuDNN 7 and 8",
        autotuned: true,
        nhwc_half: &[Architecture::Volta],
        ..Self::CURRENT
    };

    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::CURRENT,
        Self::DEEPBENCH,
        Self::NEUSIGHT,
        Self::NEUSIGHT_OLDER,
        Self::SERVED,
        Self::IMAGE_LIBRARY,
        Self::PYTORCH_2019,
        Self::TENSORFLOW,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_told_apart_by_name() {
        let mut names: Vec<_> = Stack::ALL.iter().map(|s| s.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Stack::ALL.len());
    }
}
