//! Families of convolution kernels: what a chooser tells apart.

/// The kernel families seen in cuDNN and PyTorch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConvFamily {
    /// FFT tiles and complex products.
    Fft,
    /// Non-fused Winograd.
    Winograd,
    /// Hopper tensor-core implicit GEMM.
    Xmma90,
    /// fp32 FMA implicit GEMM.
    Ffma,
    /// Ampere tensor-core implicit GEMM.
    Xmma80,
    /// CUTLASS implicit GEMM.
    Cutlass,
    /// cuDNN's depthwise kernels.
    Depthwise,
    /// PyTorch's depthwise kernels.
    TorchDepthwise,
    /// Direct grouped convolution.
    GroupedDirect,
    /// fp32 data-gradient engine.
    DgradEngine,
    /// fp32 data gradient, algorithm 1.
    Dgrad1,
    /// fp32 weight gradient, algorithm 0.
    Wgrad0,
    /// fp32 weight gradient, algorithm 1.
    Wgrad1,
    /// fp32 fallback for 16-bit NHWC.
    CommonEngine,
    /// Implicit SGEMM.
    Sgemm,
    /// Plain GEMM for 1x1.
    Gemm,
    /// cuDNN's depthwise kernels for one filter size and stride.
    DepthwiseSpecial,
    /// cuDNN's kernels that keep tiles in shared memory.
    DepthwiseShared,
    /// cuDNN's Hopper depthwise kernels.
    DepthwiseTiled,
}

impl ConvFamily {
    /// All families.
    pub const ALL: [Self; 19] = [
        Self::Fft,
        Self::Winograd,
        Self::Xmma90,
        Self::Ffma,
        Self::Xmma80,
        Self::Cutlass,
        Self::Depthwise,
        Self::TorchDepthwise,
        Self::GroupedDirect,
        Self::DgradEngine,
        Self::Dgrad1,
        Self::Wgrad0,
        Self::Wgrad1,
        Self::CommonEngine,
        Self::Sgemm,
        Self::Gemm,
        Self::DepthwiseSpecial,
        Self::DepthwiseShared,
        Self::DepthwiseTiled,
    ];

    /// Short name, for files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fft => "fft",
            Self::Winograd => "winograd",
            Self::Xmma90 => "xmma90",
            Self::Ffma => "ffma",
            Self::Xmma80 => "xmma80",
            Self::Cutlass => "cutlass",
            Self::Depthwise => "depthwise",
            Self::TorchDepthwise => "torch-depthwise",
            Self::GroupedDirect => "grouped-direct",
            Self::DgradEngine => "dgrad-engine",
            Self::Dgrad1 => "dgrad1",
            Self::Wgrad0 => "wgrad0",
            Self::Wgrad1 => "wgrad1",
            Self::CommonEngine => "common-engine",
            Self::Sgemm => "sgemm",
            Self::Gemm => "gemm",
            Self::DepthwiseSpecial => "depthwise-special",
            Self::DepthwiseShared => "depthwise-shared",
            Self::DepthwiseTiled => "depthwise-tiled",
        }
    }

    /// The family of a call from the names of the kernels it launched; the first pattern that matches wins.
    pub fn of_kernels(names: &str) -> Option<Self> {
        let has = |s: &str| names.contains(s);
        Some(if has("fft2d") || has("fft") {
            Self::Fft
        } else if has("winograd") {
            Self::Winograd
        } else if has("xmma_depthwise") {
            Self::DepthwiseTiled
        } else if has("sm90_xmma") && (has("fprop") || has("dgrad") || has("wgrad")) {
            Self::Xmma90
        } else if has("sm80_xmma") && has("f32f32_f32f32_f32") {
            Self::Ffma
        } else if has("sm80_xmma") && (has("fprop") || has("dgrad") || has("wgrad")) {
            Self::Xmma80
        } else if (has("cutlass") && (has("fprop") || has("dgrad") || has("wgrad")))
            || has("ImplicitGemmConvolution")
        {
            Self::Cutlass
        } else if has("shmem_tiling") {
            Self::DepthwiseShared
        } else if has("_c1_k1") {
            if has("specialized") { Self::DepthwiseSpecial } else { Self::Depthwise }
        } else if has("conv_depthwise") {
            Self::TorchDepthwise
        } else if has("grouped_direct") {
            Self::GroupedDirect
        } else if has("dgrad_engine") {
            Self::DgradEngine
        } else if has("dgrad2d_alg1") {
            Self::Dgrad1
        } else if has("wgrad_alg0") {
            Self::Wgrad0
        } else if has("wgrad_alg1") {
            Self::Wgrad1
        } else if has("convolve_common_engine") {
            Self::CommonEngine
        } else if has("convolve_sgemm") {
            Self::Sgemm
        } else if has("gemm") || has("nvjet") || has("cublas") || has("cutlass") {
            Self::Gemm
        } else {
            return None;
        })
    }

    /// Is the kernel launched once per group?
    pub fn loops(self) -> bool {
        matches!(
            self,
            Self::Fft
                | Self::Winograd
                | Self::Ffma
                | Self::Cutlass
                | Self::DgradEngine
                | Self::Dgrad1
                | Self::Wgrad0
                | Self::Wgrad1
                | Self::CommonEngine
                | Self::Sgemm
        )
    }

    /// The family with this number in [`ConvFamily::ALL`].
    pub fn from_index(index: u8) -> Option<Self> {
        Self::ALL.get(usize::from(index)).copied()
    }

    /// Do its kernels come in tiles that their names tell?
    pub fn tiled(self) -> bool {
        matches!(
            self,
            Self::Xmma90
                | Self::Xmma80
                | Self::Cutlass
                | Self::Ffma
                | Self::DgradEngine
                | Self::Wgrad0
                | Self::Wgrad1
                | Self::CommonEngine
                | Self::Sgemm
                | Self::Fft
        )
    }

    /// Does it want NHWC tensors with padded channels?
    pub fn converts(self) -> bool {
        matches!(self, Self::Xmma90 | Self::Xmma80 | Self::Cutlass)
    }

    /// Is it bound by memory, without a product form?
    pub fn streams(self) -> bool {
        matches!(
            self,
            Self::Depthwise
                | Self::TorchDepthwise
                | Self::DepthwiseSpecial
                | Self::DepthwiseShared
                | Self::DepthwiseTiled
        )
    }
}
