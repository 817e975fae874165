use super::*;
use crate::zoo;

fn graph(json: &str) -> Result<Graph, ModelError> {
    let config: HubConfig = serde_json::from_str(json).unwrap();
    let seq = (config.model_type != "vit").then_some(16);
    config.build("config", Some(1), seq)
}

#[test]
fn the_zoo_with_the_sizes_of_the_file() {
    let llama = graph(r#"{"model_type": "llama", "max_position_embeddings": 4096}"#).unwrap();
    assert_eq!(llama.parameter_count(), zoo::info("llama-2-7b").unwrap().parameters);
}

#[test]
fn bad_fields_are_refused_by_name() {
    for (json, field) in [
        (r#"{"model_type": "retnet"}"#, "model_type"),
        (r#"{"model_type": "llama", "hidden_size": 0}"#, "hidden_size"),
        (r#"{"model_type": "llama", "hidden_size": "wide"}"#, "hidden_size"),
        (r#"{"model_type": "llama", "hidden_size": 100, "num_attention_heads": 3}"#, "num_attention_heads"),
        (
            r#"{"model_type": "llama", "num_attention_heads": 32, "num_key_value_heads": 5}"#,
            "num_key_value_heads",
        ),
        (r#"{"model_type": "gpt2", "n_layer": 1000000}"#, "n_layer"),
        (r#"{"model_type": "clip", "vision_config": {"patch_size": 400}}"#, "vision_config.patch_size"),
        (r#"{"model_type": "bert", "architectures": ["BertForNextSentencePrediction"]}"#, "architectures"),
        (r#"{"model_type": "opt", "word_embed_proj_dim": 512}"#, "word_embed_proj_dim"),
        (r#"{"model_type": "mixtral", "num_local_experts": 100000}"#, "num_local_experts"),
        (r#"{"model_type": "llama", "tie_word_embeddings": 1}"#, "tie_word_embeddings"),
    ] {
        match graph(json) {
            Err(ModelError::Config { field: named, .. }) => assert_eq!(named, field, "{json}"),
            other => panic!("{json}: {other:?}"),
        }
    }
}

#[test]
fn only_models_that_write_have_steps() {
    let config: HubConfig = serde_json::from_str(r#"{"model_type": "bert"}"#).unwrap();
    let error = config.build_stage("bert", None, None, Stage::Prefill).unwrap_err();
    assert!(matches!(error, ModelError::NoGeneration { .. }));
}

/// Structures of published files, cut in depth where the count stays as telling, with the number of parameters that `transformers` 5.22 counts on its meta device.
#[test]
fn parameters_as_transformers_counts_them() {
    let mut wrong = Vec::new();
    for (json, count) in COUNTS {
        match graph(json) {
            Ok(g) if g.parameter_count() == *count => {}
            Ok(g) => wrong.push(format!("{json}: {} instead of {count}", g.parameter_count())),
            Err(e) => wrong.push(format!("{json}: {e}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const COUNTS: &[(&str, u64)] = include!("counts.in");
