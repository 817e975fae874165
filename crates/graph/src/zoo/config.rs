//! Hugging Face `config.json` files: the zoo's own builders with the sizes of the file.

use super::super::OptimizerChoice;
use super::super::error::ModelError;
use super::super::graph::Graph;
use super::{MAX_BATCH, MAX_SEQ, Sizes, Stage, sequence, bert, gpt2, llama, transformer, vit};
use serde::Deserialize;

/// What is read of a configuration; families name the same thing differently.
#[derive(Debug, Clone, Deserialize)]
pub struct HubConfig {
    /// Family, such as `llama`.
    pub model_type: String,
    #[serde(alias = "n_embd")]
    hidden_size: Option<u64>,
    #[serde(alias = "n_inner")]
    intermediate_size: Option<u64>,
    #[serde(alias = "n_layer")]
    num_hidden_layers: Option<u64>,
    #[serde(alias = "n_head")]
    num_attention_heads: Option<u64>,
    num_key_value_heads: Option<u64>,
    head_dim: Option<u64>,
    vocab_size: Option<u64>,
    #[serde(alias = "n_positions")]
    max_position_embeddings: Option<u64>,
    type_vocab_size: Option<u64>,
    tie_word_embeddings: Option<bool>,
    attention_bias: Option<bool>,
    #[serde(alias = "num_experts")]
    num_local_experts: Option<u64>,
    num_experts_per_tok: Option<u64>,
    image_size: Option<u64>,
    patch_size: Option<u64>,
    num_channels: Option<u64>,
    num_labels: Option<u64>,
    id2label: Option<serde_json::Map<String, serde_json::Value>>,
}

/// Families that can be built.
pub const FAMILIES: [&str; 8] = ["llama", "mistral", "qwen2", "qwen3", "mixtral", "gpt2", "bert", "vit"];

/// Tokens of a sample unless said, where the model allows as many.
const DEFAULT_SEQ: u64 = 2048;
/// Layers beyond which a file is damaged rather than deep.
const MAX_LAYERS: u64 = 4096;

impl HubConfig {
    /// The model for `batch` samples of `seq` tokens.
    pub fn build(&self, name: &str, batch: Option<u64>, seq: Option<u64>) -> Result<Graph, ModelError> {
        self.build_stage(name, batch, seq, Stage::Full)
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
        if !FAMILIES.contains(&family) {
            return Err(ModelError::Layer {
                layer: name.to_owned(),
                problem: format!("model type `{family}` is not known; known: {}", FAMILIES.join(", ")),
            });
        }
        let batch = batch.unwrap_or(1);
        if batch == 0 || batch > MAX_BATCH {
            return Err(ModelError::Size { what: "batch", value: batch, limit: MAX_BATCH });
        }
        if family == "vit" {
            if seq.is_some() {
                return Err(ModelError::NoSequence { model: name.to_owned() });
            }
            let mut graph = self.vision(name, batch)?;
            graph.optimizer = OptimizerChoice::Adam;
            return Ok(graph);
        }
        let defaults = if family == "bert" {
            512
        } else if family == "gpt2" {
            1024
        } else {
            MAX_SEQ
        };
        let limit = self.max_position_embeddings.unwrap_or(defaults).clamp(1, MAX_SEQ);
        let seq = seq.unwrap_or(DEFAULT_SEQ.min(limit));
        let seq = sequence(seq, stage, limit)?;
        let sizes = Sizes { name, batch, seq, stage };
        let mut graph = match family {
            "gpt2" => self.gpt2(sizes),
            "bert" => self.bert(name, batch, seq),
            _ => self.decoder(sizes),
        }?;
        graph.optimizer = OptimizerChoice::Adam;
        graph.seq = Some(seq);
        Ok(graph)
    }

    fn layers(&self, default: u64) -> Result<usize, ModelError> {
        let value = self.num_hidden_layers.unwrap_or(default);
        if value == 0 || value > MAX_LAYERS {
            return Err(ModelError::Size { what: "num_hidden_layers", value, limit: MAX_LAYERS });
        }
        Ok(value as usize)
    }

    /// Width and heads that divide it.
    fn heads(&self, width: u64, default: u64) -> Result<u64, ModelError> {
        let heads = size("num_attention_heads", self.num_attention_heads, default)?;
        if self.head_dim.is_none() && !width.is_multiple_of(heads) {
            return Err(ModelError::Layer {
                layer: "attention".to_owned(),
                problem: format!("hidden_size {width} does not divide into {heads} heads"),
            });
        }
        Ok(heads)
    }

    fn decoder(&self, sizes: Sizes<'_>) -> Result<Graph, ModelError> {
        let family = self.model_type.as_str();
        let base = llama::Plan::LLAMA_2_7B;
        let width = size("hidden_size", self.hidden_size, base.width)?;
        let heads = self.heads(width, base.heads)?;
        let kv_heads = size("num_key_value_heads", self.num_key_value_heads, heads)?;
        if !heads.is_multiple_of(kv_heads) {
            return Err(ModelError::Layer {
                layer: "attention".to_owned(),
                problem: format!("{heads} heads cannot share {kv_heads} key and value heads"),
            });
        }
        let experts = match (family, self.num_local_experts) {
            ("mixtral", experts) => {
                let experts = size("num_local_experts", experts, 8)?.min(1024);
                let taken = size("num_experts_per_tok", self.num_experts_per_tok, 2)?;
                Some((experts, taken.min(experts)))
            }
            _ => None,
        };
        let inner = if family == "mixtral" { 14_336 } else { base.inner };
        let plan = llama::Plan {
            width,
            inner: size("intermediate_size", self.intermediate_size, inner)?,
            layers: self.layers(32)?,
            heads,
            kv_heads,
            head_dim: size("head_dim", self.head_dim, (width / heads).max(1))?,
            vocabulary: size("vocab_size", self.vocab_size, base.vocabulary)?,
            qkv_bias: self.attention_bias.unwrap_or(family == "qwen2"),
            qk_norm: family == "qwen3",
            tied: self.tie_word_embeddings.unwrap_or(false),
            experts,
        };
        llama::assemble(sizes, plan)
    }

    fn gpt2(&self, sizes: Sizes<'_>) -> Result<Graph, ModelError> {
        let width = size("n_embd", self.hidden_size, 768)?;
        let plan = gpt2::Plan {
            width,
            inner: size("n_inner", self.intermediate_size, 4 * width)?,
            layers: self.layers(12)?,
            heads: self.heads(width, 12)?,
            vocabulary: size("vocab_size", self.vocab_size, 50_257)?,
            positions: size("n_positions", self.max_position_embeddings, 1024)?,
        };
        gpt2::assemble(sizes, plan)
    }

    fn bert(&self, name: &str, batch: u64, seq: u64) -> Result<Graph, ModelError> {
        let width = size("hidden_size", self.hidden_size, 768)?;
        let plan = bert::Plan {
            width,
            inner: size("intermediate_size", self.intermediate_size, 4 * width)?,
            layers: self.layers(12)?,
            heads: self.heads(width, 12)?,
            vocabulary: size("vocab_size", self.vocab_size, 30_522)?,
            positions: size("max_position_embeddings", self.max_position_embeddings, 512)?,
            types: size("type_vocab_size", self.type_vocab_size, 2)?,
        };
        bert::assemble(name, batch, seq, &plan)
    }

    fn vision(&self, name: &str, batch: u64) -> Result<Graph, ModelError> {
        let width = size("hidden_size", self.hidden_size, 768)?;
        let side = size("image_size", self.image_size, 224)?;
        let patch = size("patch_size", self.patch_size, 16)?;
        if patch > side {
            return Err(ModelError::Size { what: "patch_size", value: patch, limit: side });
        }
        let labels = self.num_labels.or(self.id2label.as_ref().map(|l| l.len() as u64));
        let images = vit::Images {
            side: side - side % patch,
            channels: size("num_channels", self.num_channels, 3)?,
            patch,
            classes: size("num_labels", labels, 1000)?,
        };
        let plan = transformer::Plan {
            width,
            heads: self.heads(width, 12)?,
            inner: size("intermediate_size", self.intermediate_size, 4 * width)?,
            dropout: false,
        };
        vit::assemble(name, batch, &images, self.layers(12)?, plan)
    }
}

/// A size of the file, or what the family's own configuration defaults to.
fn size(what: &'static str, value: Option<u64>, default: u64) -> Result<u64, ModelError> {
    let value = value.unwrap_or(default);
    let limit = 1 << 24;
    if value == 0 || value > limit {
        return Err(ModelError::Size { what, value, limit });
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zoo;

    fn graph(json: &str) -> Result<Graph, ModelError> {
        serde_json::from_str::<HubConfig>(json).unwrap().build("config", Some(1), None)
    }

    #[test]
    fn the_zoo_with_the_sizes_of_the_file() {
        let llama = graph(r#"{"model_type": "llama", "max_position_embeddings": 4096}"#).unwrap();
        assert_eq!(llama.parameter_count(), zoo::info("llama-2-7b").unwrap().parameters);
        let gpt2 = graph(r#"{"model_type": "gpt2"}"#).unwrap();
        assert_eq!(gpt2.parameter_count(), 124_439_808);
        let bert = graph(r#"{"model_type": "bert"}"#).unwrap();
        assert_eq!(bert.parameter_count(), 109_514_298);
        let vit = graph(r#"{"model_type": "vit"}"#).unwrap();
        assert_eq!(vit.parameter_count(), 86_567_656);
    }

    #[test]
    fn published_parameter_counts() {
        // Mistral 7B v0.1: 7.24 G; Qwen2.5 7B: 7.62 G; Qwen3 8B: 8.19 G; Mixtral 8x7B: 46.7 G.
        let mistral = r#"{"model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000}"#;
        assert_eq!(graph(mistral).unwrap().parameter_count(), 7_241_732_096);
        let qwen2 = r#"{"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944,
            "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064}"#;
        assert_eq!(graph(qwen2).unwrap().parameter_count(), 7_615_616_512);
        let qwen3 = r#"{"model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288, "head_dim": 128,
            "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 151936}"#;
        assert_eq!(graph(qwen3).unwrap().parameter_count(), 8_190_735_360);
        let mixtral = r#"{"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
            "num_local_experts": 8, "num_experts_per_tok": 2}"#;
        assert_eq!(graph(mixtral).unwrap().parameter_count(), 46_702_792_704);
    }

    #[test]
    fn bad_sizes_are_refused() {
        for json in [
            r#"{"model_type": "mamba"}"#,
            r#"{"model_type": "llama", "hidden_size": 0}"#,
            r#"{"model_type": "llama", "hidden_size": 100, "num_attention_heads": 3}"#,
            r#"{"model_type": "llama", "num_attention_heads": 32, "num_key_value_heads": 5}"#,
            r#"{"model_type": "gpt2", "n_layer": 1000000}"#,
            r#"{"model_type": "vit", "patch_size": 400}"#,
        ] {
            assert!(graph(json).is_err(), "{json}");
        }
    }
}
