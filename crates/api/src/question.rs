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
    #[schema(value_type = String)]
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
    /// Add the layers in the order in which they run.
    #[serde(default)]
    pub layers: bool,
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
