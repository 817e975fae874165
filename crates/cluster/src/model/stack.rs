//! Software stacks: what a framework launches for the same mathematics, and what that costs the host.

use preflop_core::Gpu;
use serde::Serialize;

/// Channels of a collective in a switched node.
const NCCL_CHANNELS: f64 = 24.0;

/// A software stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stack {
    /// PyTorch operator by operator.
    Eager,
    /// `torch.compile`: chains of elementwise operators and norms are one kernel each.
    Compiled,
    /// Megatron-LM and Megatron-DeepSpeed: fused norm, bias + activation, bias + dropout + residual, scaled masked softmax;
    /// gradients are reduced after the last microbatch.
    Megatron,
    /// Transformer Engine under Megatron: as `megatron`, with fp8 products and their casts, launches from fewer, larger
    /// modules, gradients reduced during backward.
    Te,
}

/// How attention is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Attention {
    /// One kernel that never writes the scores.
    Fused,
    /// Products, softmax and dropout one by one, with the scores in memory.
    Eager,
}

/// Host time of a stack, in seconds.
///
/// `layer` is one forward of one layer, `backward` the backward of one; recomputation costs another forward. The GPU waits
/// only where the host is slower than the kernels.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Host {
    /// Forward of one layer.
    pub layer: f64,
    /// Backward of one layer.
    pub backward: f64,
    /// A microbatch: schedule, data, loss.
    pub microbatch: f64,
    /// An iteration: optimizer, gradient norm, logging.
    pub iteration: f64,
}

impl Stack {
    /// All.
    pub const ALL: [Self; 4] = [Self::Eager, Self::Compiled, Self::Megatron, Self::Te];

    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Eager => "eager",
            Self::Compiled => "compiled",
            Self::Megatron => "megatron",
            Self::Te => "te",
        }
    }

    /// Does backward already reduce gradients, bucket by bucket?
    pub fn overlaps_gradients(self) -> bool {
        self != Self::Megatron
    }

    /// Are gradients summed in fp32 beside 16-bit ones?
    pub fn fp32_gradients(self) -> bool {
        matches!(self, Self::Megatron | Self::Te)
    }

    /// Is a norm one kernel?
    pub fn fuses_norm(self) -> bool {
        self != Self::Eager
    }

    /// Are bias, dropout and residual (and bias and activation) one kernel?
    pub fn fuses_pointwise(self) -> bool {
        self != Self::Eager
    }

    /// Share by which compute slows down while gathers and scatters of shards run beside it.
    ///
    /// Each channel of a collective holds an SM: NCCL opens 24 in a switched node (it says so at its start), and kernels of Transformer Engine,
    /// which take SMs as they come, lose that share of a GPU. FSDP runs of 2023 on 8 to 128 A100 lose all that gathers take beside
    /// them: their fit ends at this bound, so that hiding gains nothing there. PyTorch's other stacks keep that value, for want of
    /// runs that say otherwise.
    pub fn contention(self, gpu: &Gpu) -> f64 {
        if self == Self::Te { (NCCL_CHANNELS / f64::from(gpu.sm_count.max(1))).min(1.0) } else { 1.0 }
    }

    /// Host time.
    ///
    /// `megatron` was fitted on runs of 2 to 8 A100 with Megatron-DeepSpeed of 2022 (`preflop validate --parallel` fits it
    /// again with each model left out). The others follow from the operators they dispatch on the host that the
    /// core's constants were fitted on: about 60 and 90 operators of a layer at 15 us each in `eager`, a third of
    /// the launches when compiled, and a dozen modules in `te`. They decide small models only.
    pub fn host(self) -> Host {
        match self {
            Self::Eager => Host { layer: 0.9e-3, backward: 1.3e-3, microbatch: 1.0e-3, iteration: 3e-3 },
            Self::Compiled => Host { layer: 0.25e-3, backward: 0.4e-3, microbatch: 1.0e-3, iteration: 3e-3 },
            Self::Megatron => crate::validate::MEGATRON_2022,
            Self::Te => Host { layer: 0.45e-3, backward: 0.6e-3, microbatch: 2.0e-3, iteration: 4e-3 },
        }
    }
}
