//! The questions, field by field. Unknown fields are refused: a misspelt option must not be ignored.

use crate::schema;
use preflop_core::Dtype;
use preflop_core::model::{Checkpoint, Form, Mode, OptimizerChoice, Precision, Run as Launching};
use serde::Deserialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Most designs of one question.
pub const MAX_DESIGNS: usize = 4096;
/// Most GPUs of one question.
pub const MAX_GPUS: usize = 64;

/// A model with its sizes and formats.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
pub struct Run {
    /// Model of the zoo.
    #[schema(schema_with = schema::model)]
    pub model: String,
    /// Samples of one iteration; as the model has it if left out.
    #[schema(minimum = 1, maximum = 1_048_576)]
    pub batch: Option<u64>,
    /// Tokens of one sample, for language models; as the model has it if left out.
    #[schema(minimum = 1, maximum = 1_048_576)]
    pub seq: Option<u64>,
    /// Number formats: PyTorch's default is TF32 in convolutions and fp32 products, `fp32` is without TF32, `amp` is autocast over
    /// fp32 weights.
    #[serde(default)]
    #[schema(schema_with = schema::precision)]
    pub precision: Precision,
    /// Training or inference.
    #[serde(default = "train")]
    #[schema(schema_with = schema::mode)]
    pub mode: Mode,
    /// Optimizer of a training step; as the model is usually trained if left out.
    #[schema(schema_with = schema::optimizer)]
    pub optimizer: Option<OptimizerChoice>,
    /// How it is launched.
    #[serde(default)]
    #[schema(schema_with = schema::launching)]
    pub run: Launching,
    /// How feature maps lie in memory.
    #[serde(default)]
    #[schema(schema_with = schema::layout)]
    pub layout: Layout,
    /// Activation checkpointing: `none`, `full`, or `every=K` with K blocks for each kept input.
    #[serde(default)]
    #[schema(schema_with = schema::checkpoint)]
    pub checkpoint: Checkpoint,
    /// How algorithms of convolutions are chosen.
    #[serde(default)]
    #[schema(schema_with = schema::algorithms)]
    pub algorithms: Algorithms,
}

impl Run {
    /// In which form the model is run.
    pub fn form(&self) -> Form {
        Form {
            run: Some(self.run),
            channels_last: self.layout == Layout::ChannelsLast,
            checkpoint: self.checkpoint,
            autotuned: self.algorithms == Algorithms::Autotuned,
        }
    }
}

/// How feature maps lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Layout {
    #[default]
    Nchw,
    ChannelsLast,
}

/// Who chooses algorithms of convolutions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Algorithms {
    #[default]
    Heuristic,
    Autotuned,
}

fn train() -> Mode {
    Mode::Train
}

/// How long one iteration takes on a GPU, and why.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
pub struct Predict {
    /// What runs.
    #[serde(flatten)]
    pub run: Run,
    /// GPU by name or alias.
    #[schema(schema_with = schema::gpu)]
    pub gpu: String,
    /// How fast the host is, in a word or as a factor on the usual one's time, such as `1.5x`; not known if left out, and the interval is wider.
    #[schema(schema_with = schema::host)]
    pub host: Option<String>,
    /// Add the layers in the order in which they run.
    #[serde(default)]
    pub layers: bool,
    /// Where it does not fit, add what would make it. Every change is lowered and predicted: that takes many times as long as the answer.
    #[serde(default)]
    pub changes: bool,
}

/// Ways to run an iteration faster on a GPU, the best first.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
pub struct Advise {
    /// What runs.
    #[serde(flatten)]
    pub run: Run,
    /// GPU by name or alias.
    #[schema(schema_with = schema::gpu)]
    pub gpu: String,
}

/// The operators of one layer, with the kernels behind them.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
pub struct Layer {
    /// What runs.
    #[serde(flatten)]
    pub run: Run,
    /// GPU by name or alias.
    #[schema(schema_with = schema::gpu)]
    pub gpu: String,
    /// The layer as `predict` names it.
    pub name: String,
}

/// One model on many GPUs: time, memory, dollars and energy.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
pub struct Compare {
    /// What runs.
    #[serde(flatten)]
    pub run: Run,
    /// Several number formats: of those that a GPU has the best is taken.
    #[serde(default)]
    #[schema(schema_with = schema::precisions)]
    pub precisions: Vec<Precision>,
    /// Try the usual batches from 1 to 2048 and take the best that fits on each GPU.
    #[serde(default)]
    pub auto_batch: bool,
    /// GPUs by name; all if left out.
    #[schema(schema_with = schema::gpus)]
    pub gpus: Option<Vec<String>>,
    /// What the list is ordered by.
    #[serde(default)]
    #[schema(schema_with = schema::rank)]
    pub rank: Rank,
    /// Which price counts.
    #[serde(default)]
    #[schema(schema_with = schema::pricing)]
    pub pricing: PricingChoice,
    /// How fast the host is, in a word or as a factor on the usual one's time, such as `1.5x`; not known if left out, and the interval is wider.
    #[schema(schema_with = schema::host)]
    pub host: Option<String>,
    /// Your own prices in US dollars per GPU-hour, by GPU; they win.
    #[serde(default)]
    #[schema(schema_with = schema::prices)]
    pub prices: BTreeMap<String, f64>,
    /// Samples of a whole run, for its time and cost.
    #[schema(minimum = 1, maximum = 1_000_000_000_000_u64)]
    pub samples: Option<u64>,
    /// Most dollars of that run: the fastest GPU that keeps to it is marked.
    #[schema(minimum = 0)]
    pub budget_usd: Option<f64>,
}

/// A language model that writes: time to the first token and per token, throughput, keys and values.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Generate {
    /// Language model.
    #[schema(schema_with = schema::model)]
    pub model: String,
    /// GPU by name or alias.
    #[schema(schema_with = schema::gpu)]
    pub gpu: String,
    /// Tokens of a prompt.
    #[serde(default = "prompt")]
    #[schema(minimum = 1, maximum = 1_048_576)]
    pub prompt: u64,
    /// Tokens of an answer.
    #[serde(default = "output")]
    #[schema(minimum = 1, maximum = 1_048_576)]
    pub output: u64,
    /// Sequences at once, each answered by itself.
    #[serde(default = "batches")]
    #[schema(schema_with = schema::batches)]
    pub batches: Vec<u64>,
    /// What runs it: `pytorch` as Hugging Face writes it, or `served`, an inference server with its own kernels.
    #[serde(default = "pytorch")]
    #[schema(schema_with = schema::token_stack)]
    pub stack: String,
    /// Number formats of weights and activations in PyTorch.
    #[serde(default = "crate::generate::default_precision")]
    #[schema(schema_with = schema::precision)]
    pub precision: Precision,
    /// With the stack `served`: format of the layers' weights (bf16, fp8, fp8_block, int8, int4, nvfp4, mxfp4); as a configuration's `quantization_config` says unless given.
    #[schema(schema_with = schema::weights)]
    pub weights: Option<String>,
    /// With the stack `served`: format of keys and values (bf16, fp8, int8, fp4).
    #[schema(schema_with = schema::kv)]
    pub kv: Option<String>,
    /// How decode steps are launched: eager, graph, compile, compile-graph.
    #[serde(default = "graph")]
    #[schema(schema_with = schema::launching)]
    pub run: String,
    /// Keys and values in a tensor of fixed length (`static`), or concatenated at every step (`growing`).
    #[serde(default = "static_cache")]
    #[schema(schema_with = schema::cache)]
    pub cache: String,
    /// Requests a second that arrive: simulates a server with continuous batching.
    #[schema(minimum = 0.000_001, maximum = 1_000_000)]
    pub rate_per_s: Option<f64>,
    /// With a rate: how long requests arrive.
    #[serde(default = "ten_minutes")]
    #[schema(minimum = 1, maximum = 86_400)]
    pub seconds: f64,
    /// With a rate: prompt tokens that one step reads at most.
    #[serde(default = "chunk")]
    #[schema(minimum = 1, maximum = 1_048_576)]
    pub chunk: u64,
    /// Longest time to the first token that is good enough.
    #[schema(exclusive_minimum = 0)]
    pub ttft_ms: Option<f64>,
    /// Longest time per token that is good enough.
    #[schema(exclusive_minimum = 0)]
    pub tpot_ms: Option<f64>,
    /// Which price counts.
    #[serde(default)]
    #[schema(schema_with = schema::pricing)]
    pub pricing: PricingChoice,
}

fn prompt() -> u64 {
    1024
}

fn output() -> u64 {
    256
}

fn batches() -> Vec<u64> {
    vec![1, 2, 4, 8, 16, 32, 64, 128, 256]
}

fn pytorch() -> String {
    "pytorch".to_string()
}

fn graph() -> String {
    "graph".to_string()
}

fn static_cache() -> String {
    "static".to_string()
}

fn ten_minutes() -> f64 {
    600.0
}

fn chunk() -> u64 {
    2048
}

/// A model that is trained on several GPUs.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
pub struct ClusterRun {
    /// Language model: its layers are recognised.
    #[schema(schema_with = schema::model)]
    pub model: String,
    /// Tokens of a sequence; as the model has it if left out.
    #[schema(minimum = 1, maximum = 1_048_576)]
    pub seq: Option<u64>,
    /// Number formats; 16 bits if left out.
    #[schema(schema_with = schema::precision)]
    pub precision: Option<Precision>,
}

/// One iteration of training, cut over the GPUs of a cluster.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
pub struct Parallel {
    /// What is trained.
    #[serde(flatten)]
    pub run: ClusterRun,
    /// A node, `NODExCOUNT` or `8xGPU`.
    #[schema(schema_with = schema::cluster)]
    pub cluster: String,
    /// Another GPU in the same nodes.
    #[schema(schema_with = schema::gpu)]
    pub gpu: Option<String>,
    /// So many of its GPUs; all if left out.
    #[schema(minimum = 1, maximum = 16_777_216)]
    pub gpus: Option<u64>,
    /// Tensor parallel.
    #[schema(minimum = 1, maximum = 16_777_216)]
    pub tp: Option<u64>,
    /// Data parallel; what is left if left out.
    #[schema(minimum = 1, maximum = 16_777_216)]
    pub dp: Option<u64>,
    /// Pipeline parallel.
    #[schema(minimum = 1, maximum = 16_777_216)]
    pub pp: Option<u64>,
    /// Context parallel.
    #[schema(minimum = 1, maximum = 16_777_216)]
    pub cp: Option<u64>,
    /// Expert parallel.
    #[schema(minimum = 1, maximum = 16_777_216)]
    pub ep: Option<u64>,
    /// Model chunks of a pipeline rank.
    #[schema(minimum = 1, maximum = 16_777_216)]
    pub interleave: Option<u64>,
    /// Sequences of a microbatch.
    #[schema(minimum = 1, maximum = 16_777_216)]
    pub micro_batch: Option<u64>,
    /// Sequences of an iteration over all GPUs.
    #[schema(minimum = 1, maximum = 16_777_216)]
    pub global_batch: Option<u64>,
    /// What is computed again in backward: none, selective, full.
    #[schema(schema_with = schema::recompute)]
    pub recompute: Option<String>,
    /// Cut the rows of norms and residuals too, beside tensor parallel.
    #[serde(default)]
    pub sequence_parallel: bool,
    /// `ZeRO` stage, 0 to 3.
    #[schema(minimum = 0, maximum = 3)]
    pub zero: Option<u8>,
    /// Fully sharded data parallel: full, grad-op, hybrid.
    #[schema(schema_with = schema::fsdp)]
    pub fsdp: Option<String>,
    /// Order of a pipeline: gpipe, 1f1b, zero-bubble.
    #[schema(schema_with = schema::schedule)]
    pub schedule: Option<String>,
    /// What the host's memory holds: none, optimizer, activations.
    #[schema(schema_with = schema::offload)]
    pub offload: Option<String>,
    /// Attention in one kernel or several: fused, eager.
    #[schema(schema_with = schema::attention)]
    pub attention: Option<String>,
    /// Software: eager, compiled, megatron, te.
    #[schema(schema_with = schema::software)]
    pub stack: Option<String>,
}

/// The best way to cut a model over a cluster, and why not another.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
pub struct Plan {
    /// What is trained.
    #[serde(flatten)]
    pub run: ClusterRun,
    /// A node, `NODExCOUNT` or `8xGPU`.
    #[schema(schema_with = schema::cluster)]
    pub cluster: String,
    /// Another GPU in the same nodes.
    #[schema(schema_with = schema::gpu)]
    pub gpu: Option<String>,
    /// Sequences of an iteration over all GPUs.
    #[schema(minimum = 1, maximum = 16_777_216)]
    pub global_batch: u64,
    /// What the best is best in.
    #[serde(default)]
    #[schema(schema_with = schema::rank)]
    pub objective: Rank,
    /// Plans to show.
    #[serde(default = "ten")]
    #[schema(minimum = 1, maximum = 100)]
    pub top: u64,
    /// Sizes that are fixed, as `tp=8`.
    #[serde(default)]
    pub fixed: Vec<String>,
    /// Software: eager, compiled, megatron, te.
    #[serde(default = "compiled")]
    #[schema(schema_with = schema::software)]
    pub stack: String,
}

/// The best plan at every size of a cluster.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
pub struct Scale {
    /// What is trained.
    #[serde(flatten)]
    pub run: ClusterRun,
    /// The node that is repeated.
    #[schema(schema_with = schema::cluster)]
    pub node: String,
    /// Another GPU in the same nodes.
    #[schema(schema_with = schema::gpu)]
    pub gpu: Option<String>,
    /// Fewest GPUs.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 131_072)]
    pub least_gpus: u64,
    /// Most GPUs.
    #[serde(default = "thousand")]
    #[schema(minimum = 1, maximum = 131_072)]
    pub most_gpus: u64,
    /// `weak`: the batch grows with the GPUs; `strong`: it stays.
    #[serde(default = "weak")]
    #[schema(schema_with = schema::growth)]
    pub growth: String,
    /// Sequences of an iteration: of all GPUs with strong scaling, of one GPU else.
    #[schema(minimum = 1, maximum = 16_777_216)]
    pub global_batch: Option<u64>,
    /// Sizes that are fixed, as `tp=8`.
    #[serde(default)]
    pub fixed: Vec<String>,
    /// Software: eager, compiled, megatron, te.
    #[serde(default = "compiled")]
    #[schema(schema_with = schema::software)]
    pub stack: String,
}

fn ten() -> u64 {
    10
}

fn one() -> u64 {
    1
}

fn thousand() -> u64 {
    1024
}

fn weak() -> String {
    "weak".to_string()
}

fn compiled() -> String {
    "compiled".to_string()
}

/// Order of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Rank {
    #[default]
    Time,
    Cost,
    Energy,
}

/// Kind of price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum PricingChoice {
    #[default]
    OnDemand,
    Cheapest,
    Spot,
    Purchase,
}

/// Bounds of every operator of an iteration: the data of Roofline charts.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
pub struct Roofline {
    /// What runs.
    #[serde(flatten)]
    pub run: Run,
    /// GPUs by name.
    #[schema(schema_with = schema::gpus)]
    pub gpus: Vec<String>,
}

/// What a network gains from changed designs of a GPU, by the DeLTA model.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Explore {
    /// Network of the DeLTA paper.
    #[schema(schema_with = schema::network)]
    pub network: String,
    /// GPU that the designs scale.
    #[schema(schema_with = schema::gpu)]
    pub base: String,
    /// Images.
    #[serde(default = "delta_batch")]
    #[schema(minimum = 1, maximum = 1_048_576)]
    pub batch: u64,
    /// Number format of the tensors.
    #[serde(default = "delta_dtype")]
    #[schema(schema_with = schema::dtype)]
    pub dtype: Dtype,
    /// The designs; the paper's nine options if left out.
    #[schema(max_items = 4096)]
    pub designs: Option<Vec<DesignQuestion>>,
}

/// What a whole network gains from changed designs of a GPU, by the time model.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
pub struct Designs {
    /// What runs.
    #[serde(flatten)]
    pub run: Run,
    /// GPU that the designs scale.
    #[schema(schema_with = schema::gpu)]
    pub base: String,
    /// The designs; every resource twice if left out.
    #[schema(max_items = 256)]
    pub designs: Option<Vec<ChangedGpu>>,
}

/// A GPU with more or less of some resources.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangedGpu {
    /// A name for the answer; what changes if left out.
    #[serde(default)]
    pub name: String,
    /// Multiples of the base GPU's resources. What is left out stays.
    #[serde(default)]
    #[schema(schema_with = schema::changes)]
    pub scales: BTreeMap<String, f64>,
}

/// One changed design.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DesignQuestion {
    /// A name for the answer.
    #[serde(default)]
    pub name: String,
    /// Multiples of the base GPU's resources; `tile` is the edge of the CTA tile. What is left out stays.
    #[serde(default)]
    #[schema(schema_with = schema::scales)]
    pub scales: BTreeMap<String, f64>,
}

/// Traffic, time and bottleneck of convolution layers by the DeLTA model, as published.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Delta {
    /// Network of the DeLTA paper.
    #[schema(schema_with = schema::network)]
    pub network: String,
    /// GPU by name or alias.
    #[schema(schema_with = schema::gpu)]
    pub gpu: String,
    /// Images.
    #[serde(default = "delta_batch")]
    #[schema(minimum = 1, maximum = 1_048_576)]
    pub batch: u64,
    /// Number format of the tensors.
    #[serde(default = "delta_dtype")]
    #[schema(schema_with = schema::dtype)]
    pub dtype: Dtype,
}

/// The paper's batch.
fn delta_batch() -> u64 {
    256
}

fn delta_dtype() -> Dtype {
    Dtype::Fp32
}

/// Every figure of one GPU with its source.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GpuQuestion {
    /// GPU by name or alias.
    #[schema(schema_with = schema::gpu)]
    pub gpu: String,
}

/// A question without fields.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}
