//! Hugging Face `config.json` files: the zoo's own builders with the sizes of the file.
//!
//! `fields` reads numbers by the names that families give them, `decoders` and `others` turn them into plans. What a file leaves out is what the family's own
//! configuration class defaults to.

mod decoders;
mod fields;
mod more;
mod others;
mod stored;

use super::super::OptimizerChoice;
use super::super::error::ModelError;
use super::super::graph::Graph;
use super::decoder::{self, Plan};
use super::{MAX_BATCH, MAX_SEQ, Sizes, Stage, sequence};
use fields::Fields;
use serde::Deserialize;
pub use stored::Stored;

/// A configuration, read field by field as its family needs them.
#[derive(Debug, Clone, Deserialize)]
pub struct HubConfig {
    /// Family, such as `llama`.
    pub model_type: String,
    #[serde(flatten)]
    fields: Fields,
}

/// Families that generate text, and those that do not.
pub const DECODERS: [&str; 53] = [
    "llama",
    "mistral",
    "ministral",
    "mixtral",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_moe",
    "gemma",
    "gemma2",
    "gemma3_text",
    "phi",
    "phi3",
    "deepseek_v2",
    "deepseek_v3",
    "gpt_oss",
    "gpt_neox",
    "falcon",
    "bloom",
    "starcoder2",
    "olmo2",
    "cohere",
    "stablelm",
    "granite",
    "llama4_text",
    "opt",
    "ministral3",
    "smollm3",
    "helium",
    "seed_oss",
    "ernie4_5",
    "hunyuan_v1_dense",
    "exaone4",
    "olmo",
    "olmo3",
    "cohere2",
    "glm",
    "glm4",
    "arcee",
    "nemotron",
    "gptj",
    "codegen",
    "gpt_bigcode",
    "gpt_neo",
    "mpt",
    "granitemoe",
    "olmoe",
    "cwm",
    "internlm3",
    "vaultgemma",
    "phimoe",
    "dots1",
    "glm4_moe",
];
/// See [`DECODERS`].
pub const OTHERS: [&str; 17] = [
    "gpt2",
    "bert",
    "roberta",
    "distilbert",
    "electra",
    "t5",
    "whisper",
    "vit",
    "clip",
    "siglip",
    "mamba",
    "mamba2",
    "xlm-roberta",
    "camembert",
    "data2vec-text",
    "ernie",
    "mt5",
];

/// Tokens of a sample unless said, where the model allows as many.
const DEFAULT_SEQ: u64 = 2048;

impl HubConfig {
    /// The model for `batch` samples of `seq` tokens.
    pub fn build(&self, name: &str, batch: Option<u64>, seq: Option<u64>) -> Result<Graph, ModelError> {
        self.build_stage(name, batch, seq, Stage::Full)
    }

    /// The plan of a decoder; `None` for families that are none.
    pub fn plan(&self) -> Result<Option<Plan>, ModelError> {
        let family = self.model_type.as_str();
        if !DECODERS.contains(&family) {
            return Ok(None);
        }
        decoders::plan(family, &self.fields).map(Some)
    }

    /// The format in which the checkpoint keeps its weights; `None` where they are as the model computes.
    pub fn stored(&self) -> Result<Option<Stored>, ModelError> {
        Stored::read(&self.fields)
    }

    /// As [`HubConfig::build`], for a step of generation.
    pub fn build_stage(
        &self,
        name: &str,
        batch: Option<u64>,
        seq: Option<u64>,
        stage: Stage,
    ) -> Result<Graph, ModelError> {
        let family = self.model_type.as_str();
        let plan = self.plan()?;
        if plan.is_none() && !OTHERS.contains(&family) {
            return Err(self.unknown());
        }
        let batch = batch.unwrap_or(1);
        if batch == 0 || batch > MAX_BATCH {
            return Err(ModelError::Size { what: "batch", value: batch, limit: MAX_BATCH });
        }
        if let Some(step) = stage.name().filter(|_| plan.is_none() && family != "gpt2") {
            return Err(ModelError::NoGeneration { model: name.to_owned(), step });
        }
        let limit = match self.longest()? {
            Some(limit) => limit.clamp(1, MAX_SEQ),
            None if seq.is_some() => return Err(ModelError::NoSequence { model: name.to_owned() }),
            None => 1,
        };
        let seq = sequence(seq.unwrap_or(DEFAULT_SEQ.min(limit)), stage, limit)?;
        let sizes = Sizes { name, batch, seq, stage };
        let mut graph = match plan {
            Some(plan) => decoder::assemble(sizes, plan),
            None => others::build(family, &self.fields, sizes),
        }?;
        graph.optimizer = OptimizerChoice::ADAM;
        graph.seq = self.longest()?.map(|_| seq);
        graph.stored = self.stored()?;
        Ok(graph)
    }

    /// The longest sequence that the model takes; `None` where it takes none.
    fn longest(&self) -> Result<Option<u64>, ModelError> {
        let default = match self.model_type.as_str() {
            "vit" => return Ok(None),
            "bert" | "distilbert" | "electra" | "ernie" => 512,
            "roberta" | "xlm-roberta" | "camembert" | "data2vec-text" => {
                return Ok(Some(
                    self.fields.size(&["max_position_embeddings"], 514)?.saturating_sub(2).max(1),
                ));
            }
            "clip" => {
                return Ok(Some(self.fields.below("text_config").size(&["max_position_embeddings"], 77)?));
            }
            "siglip" => {
                return Ok(Some(self.fields.below("text_config").size(&["max_position_embeddings"], 64)?));
            }
            "whisper" => return Ok(Some(self.fields.size(&["max_target_positions"], 448)?)),
            "gpt2" => 1024,
            "opt" => 2048,
            _ => MAX_SEQ,
        };
        self.fields.size(&["max_position_embeddings", "n_positions"], default).map(Some)
    }

    fn unknown(&self) -> ModelError {
        let family: String = self.model_type.chars().take(64).collect();
        let near = preflop_units::names::did_you_mean(&family, DECODERS.into_iter().chain(OTHERS));
        ModelError::Config {
            field: "model_type".to_owned(),
            problem: format!(
                "`{family}` is not known{near}; known: {}, {}",
                DECODERS.join(", "),
                OTHERS.join(", ")
            ),
        }
    }
}

#[cfg(test)]
mod tests;
