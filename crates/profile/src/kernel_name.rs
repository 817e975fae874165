//! What a kernel's name tells: the family of work, the number format, and whether tensor cores do it.

use preflop_units::dtype::Dtype;
use serde::{Deserialize, Serialize};

macro_rules! families {
    ($($(#[$doc:meta])* $variant:ident $name:literal;)*) => {
        /// Families of GPU work by which a profile's time is split.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum KernelFamily {
            $($(#[$doc])* $variant,)*
        }

        impl KernelFamily {
            /// All families.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name used in reports.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

families! {
    /// Convolutions and what cuDNN runs around them, except layout conversions.
    Conv "conv";
    /// Matrix products.
    Gemm "gemm";
    /// Fused attention.
    Attention "attention";
    /// Recurrent layers.
    Rnn "rnn";
    /// Batch, layer, group and RMS norms.
    Normalisation "normalisation";
    /// Softmax and losses.
    Softmax "softmax";
    /// Pooling and resizing.
    Pooling "pooling";
    /// Sums, means, maxima.
    Reduction "reduction";
    /// Elementwise arithmetic.
    Elementwise "elementwise";
    /// Casts, copies, concatenation.
    Copy "copy";
    /// Conversions between NCHW and NHWC.
    Layout "layout";
    /// Look-ups by index.
    Indexing "indexing";
    /// Optimizer steps.
    Optimizer "optimizer";
    /// Collectives.
    Communication "communication";
    /// Memory set to a value by the copy engine.
    Memset "memset";
    /// Copies by the copy engine.
    Memcpy "memcpy";
    /// Anything else.
    Other "other";
}

impl KernelFamily {
    /// Do libraries pick other kernels for this family on another GPU?
    pub fn kernels_vary(self) -> bool {
        matches!(self, Self::Conv | Self::Gemm | Self::Attention | Self::Rnn)
    }
}

/// What the name tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelClass {
    /// Family.
    pub family: KernelFamily,
    /// Number format, where the name has it.
    pub dtype: Option<Dtype>,
    /// Does it run on tensor (matrix) cores?
    pub tensor_core: bool,
}

/// Words of kernel names, first match wins. Lower case.
const FAMILY_WORDS: &[(KernelFamily, &[&str])] = &[
    (
        KernelFamily::Communication,
        &["nccl", "rccl", "allreduce", "all_reduce", "allgather", "all_gather", "reducescatter", "multimem"],
    ),
    (
        KernelFamily::Layout,
        &["nchwtonhwc", "nhwctonchw", "nchw_to_nhwc", "nhwc_to_nchw", "batched_transpose_"],
    ),
    (
        KernelFamily::Attention,
        &[
            "flash_fwd",
            "flash_bwd",
            "fmha",
            "attention",
            "attn",
            "flash::",
            "flash_attn",
            "sdpa",
            "pagedattn",
        ],
    ),
    (KernelFamily::Rnn, &["lstm", "gru_", "rnn_", "_rnn", "persist_rnn", "elemwise_bp"]),
    (
        KernelFamily::Conv,
        &[
            "fprop",
            "dgrad",
            "wgrad",
            "convolve",
            "conv2d",
            "conv_",
            "_conv",
            "scudnn",
            "winograd",
            "fft",
            "im2col",
            "miopensp3",
            "igemm_",
            "scalepackedtensor",
            "pointwise_mult_and_sum",
            "depthwise",
        ],
    ),
    (
        KernelFamily::Gemm,
        &["gemm", "gemv", "cijk_", "nvjet", "splitk", "split_k", "cutlass", "dot_kernel", "matmul", "bmm_"],
    ),
    (
        KernelFamily::Normalisation,
        &[
            "batch_norm",
            "batchnorm",
            "bn_fw",
            "bn_bw",
            "layer_norm",
            "layernorm",
            "rms_norm",
            "rmsnorm",
            "group_norm",
            "groupnorm",
            "gammabeta",
        ],
    ),
    (KernelFamily::Softmax, &["softmax", "nll_loss", "cross_entropy"]),
    (KernelFamily::Pooling, &["pool", "upsample", "interpolate"]),
    (KernelFamily::Optimizer, &["multi_tensor_apply", "fusedadam", "fusedoptimizer"]),
    (
        KernelFamily::Copy,
        &[
            "catarray",
            "copy_kernel",
            "copy_device_to_device",
            "bfloat16_copy",
            "_copy_",
            "loadwithcast",
            "copybuffer",
        ],
    ),
    (KernelFamily::Reduction, &["reduce_kernel", "reduce", "triton_red", "triton_per", "cumsum", "scan"]),
    (
        KernelFamily::Indexing,
        &["embedding", "index", "gather", "scatter", "sort", "radix", "topk", "top_k", "compute_grad_weight"],
    ),
    (
        KernelFamily::Elementwise,
        &["elementwise", "vectorized", "triton_poi", "dropout", "distribution", "fillbuffer", "_quant"],
    ),
];

/// Words that mark tensor-core kernels: instruction shapes in cuBLAS, cuDNN and CUTLASS names, the Hopper
/// library's prefix, AMD's matrix instructions.
const TENSOR_WORDS: &[&str] = &[
    "tensorop",
    "hmma",
    "imma",
    "gmma",
    "s1688",
    "s16816",
    "h1688",
    "h16816",
    "s884",
    "h884",
    "16816",
    "1688gemm",
    "tf32",
    "nvjet",
    "tensor16x8",
    "_mi16x16",
    "_mi32x32",
    "mfma",
    "bf16bf16",
    "f16f16",
];

/// Words for number formats, first match wins.
const DTYPE_WORDS: &[(Dtype, &[&str])] = &[
    (Dtype::Fp8, &["e4m3", "e5m2", "float8", "fp8"]),
    (Dtype::Tf32, &["tf32"]),
    (Dtype::Bf16, &["bf16", "bfloat16", "_bbs_", "_bss_"]),
    (Dtype::Fp16, &["f16", "half", "_hhs_", "_hss_", "_hhh_", "h884", "h1688", "h16816"]),
    (Dtype::Fp64, &["double", "f64", "dgemm", "_ddd_"]),
    (Dtype::Int8, &["int8", "imma", "i8816"]),
    (Dtype::Fp32, &["float", "f32", "sgemm", "scudnn", "_sss_", "cgemm"]),
];

fn find<T: Copy>(name: &str, table: &[(T, &[&str])]) -> Option<T> {
    table.iter().find(|(_, words)| words.iter().any(|w| name.contains(w))).map(|(value, _)| *value)
}

/// Reads a kernel's name.
pub fn classify(name: &str) -> KernelClass {
    let lower = name.to_ascii_lowercase();
    // PyTorch's own kernels carry lambdas of other functions in their template arguments; the operator
    // stands in the first of them, before the argument list.
    let head = lower.find(">(").map_or(lower.as_str(), |end| &lower[..end]);
    let family = find(head, FAMILY_WORDS).unwrap_or(KernelFamily::Other);
    let dtype = find(&lower, DTYPE_WORDS);
    let half = matches!(dtype, Some(Dtype::Bf16 | Dtype::Fp16));
    let tensor_core = family.kernels_vary()
        && !lower.contains("simt")
        && (TENSOR_WORDS.iter().any(|w| lower.contains(w))
            || (half && (family == KernelFamily::Attention || lower.starts_with("cijk_"))));
    KernelClass { family, dtype, tensor_core }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_real_libraries() {
        let cases = [
            ("nvjet_tst_128x256_64x4_2x1_v_bz_TNT", KernelFamily::Gemm, None, true),
            ("ampere_sgemm_128x64_tn", KernelFamily::Gemm, Some(Dtype::Fp32), false),
            (
                "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn",
                KernelFamily::Gemm,
                Some(Dtype::Bf16),
                true,
            ),
            ("volta_scudnn_128x64_relu_interior_nn_v1", KernelFamily::Conv, Some(Dtype::Fp32), false),
            (
                "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16",
                KernelFamily::Conv,
                Some(Dtype::Tf32),
                true,
            ),
            (
                "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816dgrad_optimized_bf16_64x64_32x10>",
                KernelFamily::Conv,
                Some(Dtype::Bf16),
                true,
            ),
            (
                "void cudnn::ops::nchwToNhwcKernel<__nv_bfloat16>",
                KernelFamily::Layout,
                Some(Dtype::Bf16),
                false,
            ),
            (
                "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x224x64_MI16x16x1",
                KernelFamily::Gemm,
                Some(Dtype::Bf16),
                true,
            ),
            (
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
                KernelFamily::Communication,
                Some(Dtype::Fp32),
                false,
            ),
            (
                "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)",
                KernelFamily::Elementwise,
                Some(Dtype::Fp32),
                false,
            ),
            (
                "void pytorch_flash::flash_fwd_kernel<cutlass::bfloat16_t>",
                KernelFamily::Attention,
                Some(Dtype::Bf16),
                true,
            ),
            ("triton_poi_fused_add_cos_sin_0", KernelFamily::Elementwise, None, false),
        ];
        for (name, family, dtype, tensor_core) in cases {
            assert_eq!(classify(name), KernelClass { family, dtype, tensor_core }, "{name}");
        }
    }
}
