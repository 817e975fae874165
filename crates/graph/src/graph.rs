//! A network as a list of nodes in the order in which PyTorch would call them.
//!
//! A node is what a user writes: a module call or a `torch.nn.functional` call. That is also the level at
//! which autocast and autograd act, so precision, backward and memory are not part of the graph: `lower`
//! derives them. The same graph serves training and inference; nodes that run in only one of them say so.

use super::Mode;
use super::checkpoint::Checkpoint;
use super::dims::Dims;
use super::stage::Stage;
use super::{Fixed, LowerOptions};
use preflop_ops::{Conv, Resize, RnnKind};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What a tensor holds, before a precision is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Content {
    /// Floating-point numbers in the precision of the run.
    Float,
    /// 64-bit integers: tokens, targets, positions.
    Int,
}

/// A tensor of the graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorInfo {
    /// Its shape.
    pub shape: Dims,
    /// What it holds.
    pub content: Content,
}

/// A parameter tensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameter {
    /// Path, such as `layer1.0.conv2.weight`.
    pub name: String,
    /// Shape.
    pub shape: Dims,
    /// Is it left as it is in training?
    #[serde(default)]
    pub frozen: bool,
    /// Is it kept in 4 bits and widened before every product (NF4)?
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub packed: bool,
}

/// When a node runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// In training and inference.
    #[default]
    Always,
    /// In training only: loss, auxiliary heads.
    Train,
    /// In inference only.
    Infer,
    /// In inference without autocast only: the fast paths of `nn.Transformer`.
    InferWithoutAutocast,
    /// In training, and in inference under autocast.
    TrainOrAutocast,
}

impl When {
    /// Does the node run?
    pub fn holds(self, mode: Mode, autocast: bool) -> bool {
        match self {
            Self::Always => true,
            Self::Train => mode == Mode::Train,
            Self::Infer => mode == Mode::Infer,
            Self::InferWithoutAutocast => mode == Mode::Infer && !autocast,
            Self::TrainOrAutocast => mode == Mode::Train || autocast,
        }
    }
}

/// A function of one tensor, element by element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unary {
    /// Rectifier.
    Relu,
    /// Rectifier with a slope below zero.
    LeakyRelu,
    /// `relu6`, as `hardtanh`.
    Relu6,
    /// Gaussian error linear unit, fused.
    Gelu,
    /// Hyperbolic tangent.
    Tanh,
    /// Logistic function.
    Sigmoid,
    /// `x * sigmoid(x)`.
    Silu,
    /// `x * relu6(x + 3) / 6`.
    Hardswish,
    /// `relu6(x + 3) / 6`.
    Hardsigmoid,
    /// Elu.
    Elu,
    /// `x + c`.
    AddScalar,
    /// `x * c` or `x / c`.
    MulScalar,
    /// `x ^ c`; autocast computes it in fp32.
    Pow,
    /// `1 / sqrt(x)`; autocast computes it in fp32.
    Rsqrt,
    /// `exp`; autocast computes it in fp32.
    Exp,
    /// Sine or cosine.
    Sine,
    /// `-x`.
    Neg,
}

/// A function of two tensors, element by element, with broadcasting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Binary {
    /// `a + b`.
    Add,
    /// `a - b`.
    Sub,
    /// `a * b`.
    Mul,
}

/// Geometry of a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ConvGeometry {
    /// Stride, height and width.
    pub stride: [u64; 2],
    /// Padding on each side.
    pub pad: [u64; 2],
    /// Dilation.
    pub dilation: [u64; 2],
    /// Channel groups.
    pub groups: u64,
    /// Transposed?
    pub transposed: bool,
}

impl ConvGeometry {
    /// The operator of a call with these shapes of input and filter, and so many output channels.
    pub fn of(&self, x: Dims, w: Dims, co: u64) -> Conv {
        Conv {
            batch: x[0],
            ci: x[1],
            h: x[2],
            w: x[3],
            co,
            r: w[2],
            s: w[3],
            stride: self.stride,
            pad: self.pad,
            dilation: self.dilation,
            groups: self.groups,
            channels_last: false,
            transposed: self.transposed,
        }
    }
}

/// Geometry of a pooling window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Window {
    /// Side of the window.
    pub size: u64,
    /// Stride.
    pub stride: u64,
    /// Padding on each side.
    pub pad: u64,
    /// Round the output size up?
    pub ceil: bool,
}

/// One call. Comments give the inputs and parameters in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GraphOp {
    /// A tensor given from outside: a batch of images, tokens, targets.
    Input,
    /// A parameter used as a tensor (class token, position table). Parameters: itself.
    UseParameter,
    /// Convolution: x; weight, bias?.
    Conv(ConvGeometry),
    /// Batch norm: x; weight, bias.
    BatchNorm,
    /// Group norm: x; weight, bias.
    GroupNorm {
        /// Groups of channels.
        groups: u64,
    },
    /// Layer norm over the last dimensions: x; weight?, bias?.
    LayerNorm {
        /// Elements of a normalised row.
        cols: u64,
    },
    /// Fused RMS norm over the last dimension: x; weight.
    RmsNorm,
    /// `x W^T + b`: x; weight, bias?.
    Linear,
    /// `b + x W` with a weight stored `[in, out]` over the flattened rows of x, as Hugging Face's `Conv1D`: x; weight, bias.
    Addmm,
    /// Look-up: indices; table.
    Embedding,
    /// Elementwise function of one tensor.
    Unary {
        /// Which.
        kind: Unary,
        /// Written over its input?
        inplace: bool,
    },
    /// Elementwise function of two tensors.
    Binary {
        /// Which.
        kind: Binary,
        /// Written over its first input?
        inplace: bool,
    },
    /// Concatenation of all inputs.
    Cat {
        /// Dimension.
        dim: usize,
    },
    /// `split`/`chunk` into views; backward concatenates.
    Split {
        /// Dimension.
        dim: usize,
    },
    /// A piece along one dimension as a view; backward fills zeros and copies. `select` when `squeeze`.
    Slice {
        /// Dimension.
        dim: usize,
        /// Drop the dimension (`select`)?
        squeeze: bool,
    },
    /// `view`/`reshape`/`flatten` to the output's shape: copies only if it must.
    View,
    /// `permute`/`transpose`: a view.
    Permute {
        /// Output dimension i is input dimension `order[i]`.
        order: Vec<usize>,
    },
    /// `expand` to the output's shape: a view.
    Expand,
    /// `contiguous()`: a copy unless it already is.
    Contiguous,
    /// `roll`, indexed reordering and other copies that move every element.
    Reorder,
    /// Max pooling.
    MaxPool(Window),
    /// Average pooling.
    AvgPool(Window),
    /// Adaptive average pooling to the output's height and width.
    AdaptiveAvgPool,
    /// Dropout (nothing in inference).
    Dropout,
    /// Product with Bernoulli noise drawn by a kernel of its own: stochastic depth, dropout in place (nothing in inference).
    Noise {
        /// One number per sample (stochastic depth), else one per element?
        per_sample: bool,
    },
    /// Softmax over the last dimension; autocast computes it in fp32.
    Softmax,
    /// Batched product of two tensors of equal leading dimensions: `[.., m, k] [.., k, n]`.
    Matmul,
    /// Scaled-dot-product attention of q, k, v `[b, h, s, d]` and perhaps an additive mask.
    Attention {
        /// Causal mask?
        causal: bool,
        /// Dropout of the weights in training? Fused kernels do it inside; plain products need a kernel.
        #[serde(default)]
        dropout: bool,
        /// Plain products with the scores as a tensor instead of a fused kernel?
        #[serde(default)]
        eager: bool,
    },
    /// Recurrent layers over `[s, b, f]` (or `[b, s, f]`): x; for each layer and direction w_ih, w_hh, b_ih, b_hh.
    Rnn {
        /// Cell.
        kind: RnnKind,
        /// State size.
        hidden: u64,
        /// Layers.
        layers: u64,
        /// Both directions?
        bidirectional: bool,
        /// Is the input batch-first?
        batch_first: bool,
    },
    /// Mean over dimensions.
    Mean {
        /// Dimensions averaged, ascending.
        dims: Vec<usize>,
    },
    /// Sum over dimensions.
    Sum {
        /// Dimensions summed, ascending.
        dims: Vec<usize>,
    },
    /// Resizing to the output's height and width.
    Interpolate {
        /// What is taken between places.
        how: Resize,
    },
    /// Region alignment of features: x, regions.
    RoiAlign {
        /// Sampling points per output and direction.
        sampling: u64,
    },
    /// Non-maximum suppression of boxes.
    Nms,
    /// `.float()`: to fp32.
    ToFloat,
    /// Back to the model's format where `.to(input_dtype)` does it: x, like.
    ToLike,
    /// Concatenation to a cache that has the format of `like`, empty unless it is given: x, like, cache?.
    Append,
    /// Keys or values `[b, h, s, d]` of earlier tokens, kept from one step to the next.
    Cache,
    /// New keys or values written into their places of a cache: cache, x.
    Store,
    /// Key or value heads copied until there are as many as the output has.
    RepeatHeads,
    /// A tensor made on the device by a small kernel (arange, zeros, mask).
    Create,
    /// Cross-entropy of logits `[n, classes]` (dimension 1 holds the classes): logits, targets.
    CrossEntropy,
    /// Binary cross-entropy: probabilities, targets.
    BinaryCrossEntropy,
    /// Mean squared error: a, b.
    MseLoss,
    /// The first of its inputs that was computed in this mode.
    Either,
    /// The fused `nn.TransformerEncoderLayer` of inference: x; in_proj w, b, out_proj w, b, norm1 w, b, norm2 w, b, lin1 w, b, lin2 w, b.
    FastEncoderLayer {
        /// Heads.
        heads: u64,
    },
    /// The fused self-attention of `nn.MultiheadAttention` in inference: x; in_proj w, b, out_proj w, b.
    FastSelfAttention {
        /// Heads.
        heads: u64,
    },
    /// A call that no operator models: its bytes are all its inputs and outputs.
    Unmodelled {
        /// Name.
        name: String,
    },
}

/// A call with its operands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Layer path.
    pub name: String,
    /// The call.
    pub op: GraphOp,
    /// Input tensors.
    #[serde(default)]
    pub inputs: Vec<u32>,
    /// Parameters.
    #[serde(default)]
    pub parameters: Vec<u32>,
    /// Output tensors.
    pub outputs: Vec<u32>,
    /// When it runs.
    #[serde(default)]
    pub when: When,
    /// Module calls that begin here.
    #[serde(default)]
    pub modules: u32,
}

/// When attention gets a mask as a tensor, where a flag would do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Masks {
    /// Never.
    #[default]
    Never,
    /// While the code is compiled or captured, as Hugging Face's code does: it cannot look at the data then to see that nothing is masked.
    UnderCapture,
    /// Now.
    Always,
}

/// A network with its batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// Name of the model.
    pub name: String,
    /// Samples of one iteration.
    pub samples: u64,
    /// Tokens per sample, where the model reads sequences.
    #[serde(default)]
    pub seq: Option<u64>,
    /// Tensors.
    pub tensors: Vec<TensorInfo>,
    /// Parameters.
    pub parameters: Vec<Parameter>,
    /// Do feature maps lie channels-last (NHWC) in memory?
    #[serde(default)]
    pub channels_last: bool,
    /// Which activations are computed again in backward.
    #[serde(default, skip_serializing_if = "Checkpoint::is_none")]
    pub checkpoint: Checkpoint,
    /// When attention gets a mask as a tensor.
    #[serde(default)]
    pub masks: Masks,
    /// Elements of buffers (running statistics, tables), 4 bytes each.
    #[serde(default)]
    pub buffer_elements: u64,
    /// Calls in order.
    pub nodes: Vec<Node>,
    /// Tensors that live until the forward ends: outputs and caches.
    #[serde(default)]
    pub kept: Vec<u32>,
    /// Tensor and index of the node during which a caller still holds it.
    #[serde(default)]
    pub held: Vec<(u32, u32)>,
    /// The loss, the start of backward.
    #[serde(default)]
    pub loss: Option<u32>,
    /// The optimizer that the reference runs use.
    pub optimizer: super::OptimizerChoice,
    /// What is computed of a language model.
    #[serde(default)]
    pub stage: Stage,
    /// Elements of keys and values that one token of one sequence keeps over all layers; 0 where nothing is kept.
    #[serde(default)]
    pub cache_elements_per_token: u64,
    /// Format of the checkpoint's weights, where it is none that the model computes in.
    #[serde(skip)]
    pub stored: Option<super::zoo::config::Stored>,
    /// A recorded iteration, which takes the place of everything above but name and sizes.
    #[serde(skip)]
    pub fixed: Option<Arc<Fixed>>,
}

impl Graph {
    /// Ranges of nodes that keep only what goes in and are computed again in backward.
    pub fn segments(&self) -> Vec<std::ops::Range<usize>> {
        self.segments_of(self.checkpoint)
    }

    /// As [`Graph::segments`], with other checkpoints.
    pub fn segments_of(&self, checkpoint: Checkpoint) -> Vec<std::ops::Range<usize>> {
        if checkpoint.is_none() {
            return Vec::new();
        }
        let layers: Vec<&str> = self.nodes.iter().map(|n| n.name.as_str()).collect();
        super::checkpoint::segments(&layers, checkpoint)
    }

    /// The same model with attention as plain products, as before fused kernels or with
    /// `attn_implementation="eager"`.
    #[must_use]
    pub fn with_eager_attention(self) -> Self {
        self.with_attention(true)
    }

    /// The same model with fused kernels of attention.
    #[must_use]
    pub fn with_fused_attention(self) -> Self {
        self.with_attention(false)
    }

    fn with_attention(mut self, as_products: bool) -> Self {
        for node in &mut self.nodes {
            if let GraphOp::Attention { eager, .. } = &mut node.op {
                *eager = as_products;
            }
        }
        self
    }

    /// Is attention done as plain products somewhere?
    pub fn has_eager_attention(&self) -> bool {
        self.nodes.iter().any(|n| matches!(n.op, GraphOp::Attention { eager: true, .. }))
    }

    /// The options under which the graph is run: a recorded iteration has its own.
    #[must_use]
    pub fn settled(&self, options: LowerOptions) -> LowerOptions {
        match &self.fixed {
            Some(fixed) => LowerOptions { mode: fixed.mode, precision: fixed.precision, optimizer: None },
            None => options,
        }
    }

    /// The optimizer of an iteration; none in inference and in a recorded one, whose operators say what it was.
    pub fn steps_with(&self, options: &LowerOptions) -> Option<super::OptimizerChoice> {
        let trains = options.mode == super::Mode::Train && self.fixed.is_none();
        trains.then(|| options.optimizer.unwrap_or(self.optimizer))
    }

    /// Elements of all parameters.
    pub fn parameter_count(&self) -> u64 {
        self.parameters.iter().fold(0, |n, p| n.saturating_add(p.shape.numel()))
    }
}
