//! The models, one file per family.
//!
//! To add one: write `zoo/FAMILY.rs` with `pub(super) const MODELS: &[Entry]` and a function from `Sizes` to a graph
//! that reads like the model's `forward`, and name the file's `MODELS` in `FAMILIES`. `parameters` is the published
//! count; a test compares it with what the builder registered.

mod a3c;
mod alexnet;
mod bert;
pub mod config;
mod convnext;
mod dcgan;
pub mod decoder;
mod densenet;
mod efficientnet;
mod experts;
mod faster_rcnn;
mod gnmt;
mod googlenet;
mod gpt2;
mod inception;
mod latent;
mod llama;
mod mamba;
mod mobilenet;
mod opt;
mod resnet;
mod sockeye;
mod swin;
mod t5;
mod towers;
mod transformer;
mod vgg;
mod vit;
mod wgan;
mod whisper;

use super::builder::Built;
use super::error::ModelError;
use super::graph::Graph;
use super::stage::Stage;
use super::{OptimizerChoice, Rule};
use preflop_units::names;
use serde::Serialize;

/// What is known of a model before it is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct ModelInfo {
    /// Name on the command line.
    pub name: &'static str,
    /// One line for people.
    pub title: &'static str,
    /// Family: `cnn`, `transformer`, `rnn`, `gan`, ...
    pub family: &'static str,
    /// What a sample is.
    pub input: &'static str,
    /// Samples of an iteration unless said.
    pub default_batch: u64,
    /// Tokens of a sample unless said; `None` where there is no sequence.
    pub default_seq: Option<u64>,
    /// Longest sequence the model can take, if it has a limit.
    pub max_seq: Option<u64>,
    /// Parameters.
    pub parameters: u64,
    /// Optimizer unless said.
    #[schema(value_type = String)]
    pub optimizer: Rule,
}

/// The sizes a model is built for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes<'n> {
    pub name: &'n str,
    pub batch: u64,
    /// Tokens of a sequence that are computed: 1 in decode.
    pub seq: u64,
    pub stage: Stage,
}

/// A model of the zoo.
pub(super) struct Entry {
    pub info: ModelInfo,
    pub build: fn(Sizes<'_>) -> Built<Graph>,
}

/// All families in the order of `preflop models`.
const FAMILIES: &[&[Entry]] = &[
    alexnet::MODELS,
    vgg::MODELS,
    googlenet::MODELS,
    inception::MODELS,
    resnet::MODELS,
    densenet::MODELS,
    mobilenet::MODELS,
    efficientnet::MODELS,
    convnext::MODELS,
    vit::MODELS,
    swin::MODELS,
    faster_rcnn::MODELS,
    dcgan::MODELS,
    gnmt::MODELS,
    transformer::MODELS,
    bert::MODELS,
    gpt2::MODELS,
    opt::MODELS,
    llama::MODELS,
    t5::MODELS,
    sockeye::MODELS,
    wgan::MODELS,
    a3c::MODELS,
];

/// Largest batch that is accepted.
pub const MAX_BATCH: u64 = 1 << 20;
/// Longest sequence that is accepted where the model itself has no limit.
pub const MAX_SEQ: u64 = 1 << 20;

fn entries() -> impl Iterator<Item = &'static Entry> {
    FAMILIES.iter().flat_map(|f| f.iter())
}

/// Names of all models.
pub fn names() -> Vec<&'static str> {
    entries().map(|e| e.info.name).collect()
}

/// All models.
pub fn list() -> Vec<ModelInfo> {
    entries().map(|e| e.info).collect()
}

fn find(name: &str) -> Result<&'static Entry, ModelError> {
    let wanted = name.to_ascii_lowercase().replace('_', "-");
    entries().find(|e| e.info.name.replace('_', "-") == wanted).ok_or_else(|| ModelError::Unknown {
        name: name.chars().take(64).collect(),
        hint: names::did_you_mean(name, names()),
    })
}

/// The model that a row of the project's own measurements means: what was measured there as `gnmt` is now called `gnmt-wide`.
pub fn as_measured(name: &str) -> &str {
    if name == "gnmt" { "gnmt-wide" } else { name }
}

/// What is known of a model.
pub fn info(name: &str) -> Result<ModelInfo, ModelError> {
    Ok(find(name)?.info)
}

/// Builds a model for `batch` samples of `seq` tokens (the model's defaults where `None`).
pub fn build(name: &str, batch: Option<u64>, seq: Option<u64>) -> Result<Graph, ModelError> {
    build_stage(name, batch, seq, Stage::Full)
}

/// Families whose models generate text: their builders know the stages.
const GENERATING: [&[Entry]; 3] = [gpt2::MODELS, opt::MODELS, llama::MODELS];

/// The plan of a decoder of the zoo; `None` for other models.
pub fn plan(name: &str) -> Option<decoder::Plan> {
    llama::plan(find(name).ok()?.info.name)
}

/// As [`build`], for a step of generation.
pub fn build_stage(
    name: &str,
    batch: Option<u64>,
    seq: Option<u64>,
    stage: Stage,
) -> Result<Graph, ModelError> {
    let entry = find(name)?;
    let generates = || GENERATING.iter().any(|f| f.iter().any(|e| e.info.name == entry.info.name));
    if let Some(step) = stage.name().filter(|_| !generates()) {
        return Err(ModelError::NoGeneration { model: entry.info.name.to_owned(), step });
    }
    let info = &entry.info;
    let batch = batch.unwrap_or(info.default_batch);
    if batch == 0 || batch > MAX_BATCH {
        return Err(ModelError::Size { what: "batch", value: batch, limit: MAX_BATCH });
    }
    let seq = match (info.default_seq, seq) {
        (None, Some(_)) => return Err(ModelError::NoSequence { model: info.name.to_owned() }),
        (None, None) => 0,
        (Some(default), seq) => {
            let seq = seq.unwrap_or(default);
            sequence(seq, stage, info.max_seq.unwrap_or(MAX_SEQ))?
        }
    };
    let mut graph = (entry.build)(Sizes { name: info.name, batch, seq, stage })?;
    graph.optimizer = OptimizerChoice::of(info.optimizer);
    if info.default_seq.is_some() {
        graph.seq = Some(seq);
    }
    Ok(graph)
}

/// Tokens that are computed, where a model takes up to `limit` in all.
fn sequence(seq: u64, stage: Stage, limit: u64) -> Result<u64, ModelError> {
    let (what, value, limit) = match stage {
        Stage::Decode { context, .. } => ("context", context, limit.saturating_sub(1).max(1)),
        _ => ("seq", seq, limit),
    };
    if value == 0 || value > limit {
        return Err(ModelError::Size { what, value, limit });
    }
    Ok(stage.queries(seq))
}

/// An image classifier of torchvision: trained with SGD on 224 x 224 images unless said.
pub(super) const fn classifier(
    name: &'static str,
    title: &'static str,
    batch: u64,
    parameters: u64,
) -> ModelInfo {
    ModelInfo {
        name,
        title,
        family: "cnn",
        input: "3 x 224 x 224 image",
        default_batch: batch,
        default_seq: None,
        max_seq: None,
        parameters,
        optimizer: Rule::Sgd,
    }
}
