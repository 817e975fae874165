//! Families beside the decoders: encoders, encoder-decoders, images, pairs of both, state spaces.

use super::super::super::error::ModelError;
use super::super::super::graph::Graph;
use super::super::{Sizes, bert, gpt2, mamba, t5, towers, transformer, vit, whisper};
use super::fields::Fields;

/// The model of a family of `OTHERS`.
pub(super) fn build(family: &str, f: &Fields, s: Sizes<'_>) -> Result<Graph, ModelError> {
    match family {
        "gpt2" => gpt2(f, s),
        "t5" | "mt5" => t5::assemble(s, t5_plan(family == "mt5", f)?),
        "whisper" => whisper::assemble(s, whisper_plan(f)?),
        "vit" => images(f, s),
        "clip" | "siglip" => towers::assemble(s, &towers_plan(family, f)?),
        "mamba" | "mamba2" => mamba::assemble(s, mamba_plan(family, f)?),
        _ => bert::assemble(s.name, s.batch, s.seq, &bert_plan(family, f)?),
    }
}

fn unbuilt(class: &str) -> ModelError {
    let problem = format!("the head of `{}` is not built", class.chars().take(64).collect::<String>());
    ModelError::Config { field: "architectures".to_owned(), problem }
}

fn gpt2(f: &Fields, s: Sizes<'_>) -> Result<Graph, ModelError> {
    let class = f.class();
    if !class.is_empty() && !class.ends_with("LMHeadModel") {
        return Err(unbuilt(class));
    }
    let width = f.size(&["n_embd", "hidden_size"], 768)?;
    let (heads, _) = f.heads(width, &["n_head", "num_attention_heads"], 12)?;
    let plan = gpt2::Plan {
        width,
        inner: f.size(&["n_inner", "intermediate_size"], 4 * width)?,
        layers: f.layers(&["n_layer", "num_hidden_layers"], 12)?,
        heads,
        vocabulary: f.size(&["vocab_size"], 50_257)?,
        positions: f.size(&["n_positions", "max_position_embeddings"], 1024)?,
    };
    gpt2::assemble(s, plan)
}

fn bert_plan(family: &str, f: &Fields) -> Result<bert::Plan, ModelError> {
    use bert::{Family, Head};
    // These two begin with BERT's words.
    let words = matches!(family, "camembert" | "data2vec-text");
    let family = match family {
        "roberta" | "xlm-roberta" | "camembert" | "data2vec-text" => Family::Roberta,
        "distilbert" => Family::DistilBert,
        "electra" => Family::Electra,
        _ => Family::Bert,
    };
    let (small, roberta) = (family == Family::Electra, family == Family::Roberta);
    let width = f.size(&["hidden_size", "dim"], if small { 256 } else { 768 })?;
    let (heads, _) = f.heads(width, &["num_attention_heads", "n_heads"], if small { 4 } else { 12 })?;
    let layers = if family == Family::DistilBert { 6 } else { 12 };
    let inner = if small { 1024 } else { 4 * width };
    let class = f.class();
    let head = match class {
        _ if class.ends_with("ForQuestionAnswering") => Head::Answers(f.labels(2)?),
        _ if class.ends_with("ForTokenClassification") => Head::Tokens(f.labels(2)?),
        _ if class.ends_with("ForSequenceClassification") => Head::Labels(f.labels(2)?),
        "ElectraForPreTraining" => Head::Replaced,
        "" | "BertLMHeadModel" => Head::Words,
        _ if class.ends_with("ForMaskedLM") => Head::Words,
        _ if class.ends_with("Model") => Head::States,
        _ => return Err(unbuilt(class)),
    };
    Ok(bert::Plan {
        family,
        width,
        inner: f.size(&["intermediate_size", "hidden_dim"], inner)?,
        layers: f.layers(&["num_hidden_layers", "n_layers"], layers)?,
        heads,
        vocabulary: f.size(&["vocab_size"], if roberta && !words { 50_265 } else { 30_522 })?,
        positions: f.size(&["max_position_embeddings"], 512)?,
        types: if family == Family::DistilBert { 0 } else { f.size(&["type_vocab_size"], 2)? },
        embedding: if small { f.size(&["embedding_size"], 128)? } else { width },
        head,
    })
}

fn t5_plan(many: bool, f: &Fields) -> Result<t5::Plan, ModelError> {
    let class = f.class();
    if !class.is_empty() && !matches!(class, "T5ForConditionalGeneration" | "MT5ForConditionalGeneration") {
        return Err(unbuilt(class));
    }
    let layers = f.layers(&["num_layers"], if many { 8 } else { 6 })?;
    Ok(t5::Plan {
        width: f.size(&["d_model"], 512)?,
        inner: f.size(&["d_ff"], if many { 1024 } else { 2048 })?,
        layers,
        decoder_layers: f.layers(&["num_decoder_layers"], layers as u64)?,
        heads: f.size(&["num_heads"], if many { 6 } else { 8 })?,
        head_dim: f.size(&["d_kv"], 64)?,
        vocabulary: f.size(&["vocab_size"], if many { 250_112 } else { 32_128 })?,
        buckets: f.size(&["relative_attention_num_buckets"], 32)?,
        gated: f.word(&["feed_forward_proj"]).map_or(many, |w| w.starts_with("gated-")),
        tied: f.flag(&["tie_word_embeddings"], true)?,
    })
}

fn whisper_plan(f: &Fields) -> Result<whisper::Plan, ModelError> {
    let class = f.class();
    if !class.is_empty() && class != "WhisperForConditionalGeneration" {
        return Err(unbuilt(class));
    }
    let width = f.size(&["d_model"], 384)?;
    let (heads, _) = f.heads(width, &["encoder_attention_heads"], 6)?;
    Ok(whisper::Plan {
        width,
        inner: f.size(&["encoder_ffn_dim"], 1536)?,
        layers: f.layers(&["encoder_layers"], 4)?,
        decoder_layers: f.layers(&["decoder_layers"], 4)?,
        heads,
        bins: f.size(&["num_mel_bins"], 80)?,
        sources: f.size(&["max_source_positions"], 1500)?,
        positions: f.size(&["max_target_positions"], 448)?,
        vocabulary: f.size(&["vocab_size"], 51_865)?,
    })
}

fn images(f: &Fields, s: Sizes<'_>) -> Result<Graph, ModelError> {
    let class = f.class();
    if !class.is_empty() && class != "ViTForImageClassification" {
        return Err(unbuilt(class));
    }
    let width = f.size(&["hidden_size"], 768)?;
    let side = f.size(&["image_size"], 224)?;
    let patch = f.size(&["patch_size"], 16)?;
    if patch > side {
        let problem = format!("patches of {patch} do not fit into images of {side}");
        return Err(ModelError::Config { field: "patch_size".to_owned(), problem });
    }
    let images = vit::Images {
        side: side - side % patch,
        channels: f.size(&["num_channels"], 3)?,
        patch,
        // A file that names no labels is one of the published ones, which have ImageNet's.
        classes: f.labels(1000)?,
    };
    let (heads, _) = f.heads(width, &["num_attention_heads"], 12)?;
    let inner = f.size(&["intermediate_size"], 4 * width)?;
    let plan = transformer::Plan { width, heads, inner, dropout: false };
    vit::assemble(s.name, s.batch, &images, f.layers(&["num_hidden_layers"], 12)?, plan)
}

fn tower(f: &Fields, width: u64, inner: u64, heads: u64) -> Result<towers::Tower, ModelError> {
    let width = f.size(&["hidden_size"], width)?;
    let (heads, _) = f.heads(width, &["num_attention_heads"], heads)?;
    Ok(towers::Tower {
        width,
        inner: f.size(&["intermediate_size"], inner)?,
        layers: f.layers(&["num_hidden_layers"], 12)?,
        heads,
    })
}

fn towers_plan(family: &str, f: &Fields) -> Result<towers::Plan, ModelError> {
    let class = f.class();
    if !class.is_empty() && !matches!(class, "CLIPModel" | "SiglipModel") {
        return Err(unbuilt(class));
    }
    let clip = family == "clip";
    let (text, vision) = (f.below("text_config"), f.below("vision_config"));
    let words = if clip { tower(&text, 512, 2048, 8)? } else { tower(&text, 768, 3072, 12)? };
    let side = vision.size(&["image_size"], 224)?;
    let patch = vision.size(&["patch_size"], if clip { 32 } else { 16 })?;
    if patch > side {
        let problem = format!("patches of {patch} do not fit into images of {side}");
        return Err(ModelError::Config { field: "vision_config.patch_size".to_owned(), problem });
    }
    Ok(towers::Plan {
        clip,
        words,
        images: tower(&vision, 768, 3072, 12)?,
        vocabulary: text.size(&["vocab_size"], if clip { 49_408 } else { 32_000 })?,
        positions: text.size(&["max_position_embeddings"], if clip { 77 } else { 64 })?,
        side: side - side % patch,
        patch,
        channels: vision.size(&["num_channels"], 3)?,
        joint: if clip {
            f.size(&["projection_dim"], 512)?
        } else {
            text.size(&["projection_size"], words.width)?
        },
    })
}

fn mamba_plan(family: &str, f: &Fields) -> Result<mamba::Plan, ModelError> {
    let class = f.class();
    if !class.is_empty() && !class.ends_with("ForCausalLM") {
        return Err(unbuilt(class));
    }
    let second = family == "mamba2";
    let width = f.size(&["hidden_size"], if second { 4096 } else { 768 })?;
    let inner = f.size(&["intermediate_size"], f.size(&["expand"], 2)? * width)?;
    let rank = match f.word(&["time_step_rank"]) {
        Some(_) => width.div_ceil(16),
        None => f.size(&["time_step_rank"], width.div_ceil(16))?,
    };
    let plan = mamba::Plan {
        second,
        width,
        inner,
        layers: f.layers(&["num_hidden_layers", "n_layer"], if second { 64 } else { 32 })?,
        state: f.size(&["state_size"], if second { 128 } else { 16 })?,
        rank,
        kernel: f.size(&["conv_kernel"], 4)?,
        heads: f.size(&["num_heads"], 128)?,
        groups: f.size(&["n_groups"], 8)?,
        vocabulary: f.size(&["vocab_size"], if second { 32_768 } else { 50_280 })?,
        bias: f.flag(&["use_bias"], false)?,
        conv_bias: f.flag(&["use_conv_bias"], true)?,
        tied: f.flag(&["tie_word_embeddings"], !second)?,
    };
    Ok(plan)
}
