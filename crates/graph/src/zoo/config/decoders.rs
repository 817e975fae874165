//! Decoders: what each family's configuration says about its [`Plan`].

use super::super::super::error::ModelError;
use super::super::super::graph::Unary;
use super::super::decoder::{Head, HeadNorm, Latent, Norm, Placement, Plan, Positions};
use super::super::experts::Experts;
use super::fields::Fields;
use super::more;

/// Experts beyond which a file is damaged.
const MAX_EXPERTS: u64 = 1024;

/// The plan of a family of `DECODERS`.
pub(super) fn plan(family: &str, f: &Fields) -> Result<Plan, ModelError> {
    let mut plan = usual(family, f)?;
    match family {
        "qwen2" | "qwen2_moe" => plan.qkv_bias = f.flag(&["qkv_bias"], true)?,
        "qwen3" | "qwen3_moe" => plan.head_norm = HeadNorm::Each,
        "gemma" | "gemma2" | "gemma3_text" => {
            plan.scaled = true;
            plan.function = Unary::Gelu;
            if family != "gemma" {
                plan.placement = Placement::Around;
            }
            if family == "gemma3_text" {
                plan.head_norm = HeadNorm::Each;
            }
        }
        "phi" => {
            plan = plain(plan, Placement::Parallel);
            (plan.head_bias, plan.qkv_bias, plan.out_bias) = (true, true, true);
            if f.flag(&["qk_layernorm"], false)? {
                return Err(unbuilt("qk_layernorm", "layer norms of heads are not built"));
            }
        }
        "phi3" => (plan.joined_qkv, plan.joined_gate) = (true, true),
        "gpt_neox" => {
            let parallel = f.flag(&["use_parallel_residual"], true)?;
            plan = plain(plan, if parallel { Placement::ParallelOwn } else { Placement::Before });
            let bias = f.flag(&["attention_bias"], true)?;
            (plan.joined_qkv, plan.qkv_bias, plan.out_bias) = (true, bias, bias);
        }
        "bloom" => {
            plan = plain(plan, Placement::Before);
            (plan.joined_qkv, plan.qkv_bias, plan.out_bias) = (true, true, true);
            (plan.embedding_norm, plan.positions) = (true, Positions::None);
            plan.inner = 4 * plan.width;
        }
        "falcon" => falcon(&mut plan, f)?,
        "starcoder2" => {
            let bias = f.flag(&["use_bias"], true)?;
            plan = plain(plan, Placement::Before);
            (plan.qkv_bias, plan.out_bias, plan.inner_bias) = (bias, bias, bias);
        }
        "stablelm" => {
            plan.norm = Norm::Layer;
            plan.qkv_bias = f.flag(&["use_qkv_bias"], false)?;
            if f.flag(&["use_parallel_residual"], false)? {
                plan.placement = Placement::Parallel;
            }
            if f.flag(&["qk_layernorm"], false)? {
                return Err(unbuilt("qk_layernorm", "layer norms of heads are not built"));
            }
        }
        "olmo2" | "olmo3" => (plan.placement, plan.head_norm) = (Placement::After, HeadNorm::All),
        "cohere2" => (plan.placement, plan.norm) = (Placement::Parallel, Norm::LayerWithoutBias),
        "cohere" => {
            (plan.placement, plan.norm) = (Placement::Parallel, Norm::LayerWithoutBias);
            if f.flag(&["use_qk_norm"], false)? {
                return Err(unbuilt("use_qk_norm", "layer norms of heads are not built"));
            }
        }
        "opt" => opt(&mut plan, f)?,
        _ => more::refine(family, f, &mut plan)?,
    }
    if family == "gpt_oss" {
        plan.sinks = true;
    }
    plan.experts = experts(family, f, &plan)?;
    if family == "gpt_oss" || family == "mixtral" {
        plan.joined_gate = family == "gpt_oss";
    }
    if matches!(family, "deepseek_v2" | "deepseek_v3") {
        plan.latent = Some(latent(f)?);
    }
    plan.head = head(f)?;
    Ok(plan)
}

pub(super) fn unbuilt(field: &str, problem: &str) -> ModelError {
    ModelError::Config { field: field.to_owned(), problem: problem.to_owned() }
}

/// Layer norms and a feed-forward layer without a gate, with biases.
pub(super) fn plain(plan: Plan, placement: Placement) -> Plan {
    Plan { norm: Norm::Layer, gated: false, inner_bias: true, function: Unary::Gelu, placement, ..plan }
}

/// Width, inner width, layers, heads, key and value heads (0: as many as heads) and vocabulary that a family's configuration defaults to.
fn defaults(family: &str) -> [u64; 6] {
    match family {
        "mistral" | "ministral" | "mixtral" => [4096, 14_336, 32, 32, 8, 32_000],
        "qwen2" | "qwen3" => [4096, 22_016, 32, 32, 0, 151_936],
        "qwen2_moe" => [2048, 5632, 24, 16, 0, 151_936],
        "qwen3_moe" => [2048, 6144, 24, 32, 4, 151_936],
        "gemma" => [3072, 24_576, 28, 16, 0, 256_000],
        "gemma2" => [2304, 9216, 26, 8, 4, 256_000],
        "gemma3_text" => [2304, 9216, 26, 8, 4, 262_208],
        "phi" => [2048, 8192, 24, 32, 0, 51_200],
        "phi3" => [3072, 8192, 32, 32, 0, 32_064],
        "deepseek_v2" => [4096, 11_008, 32, 32, 0, 102_400],
        "deepseek_v3" => [7168, 18_432, 61, 128, 0, 129_280],
        "gpt_oss" => [2880, 2880, 36, 64, 8, 201_088],
        "gpt_neox" => [6144, 24_576, 44, 64, 0, 50_432],
        "falcon" => [4544, 0, 32, 71, 0, 65_024],
        "bloom" => [64, 0, 2, 8, 0, 250_880],
        "starcoder2" => [3072, 12_288, 30, 24, 2, 49_152],
        "olmo2" => [4096, 11_008, 32, 32, 0, 50_304],
        "cohere" => [8192, 22_528, 40, 64, 0, 256_000],
        "stablelm" => [2560, 6912, 32, 32, 0, 50_304],
        _ if more::defaults(family).is_some() => more::defaults(family).unwrap_or_default(),
        "llama4_text" => [5120, 8192, 48, 40, 8, 202_048],
        "opt" => [768, 3072, 12, 12, 0, 50_272],
        _ => [4096, 11_008, 32, 32, 0, 32_000],
    }
}

/// The fields that most families have.
fn usual(family: &str, f: &Fields) -> Result<Plan, ModelError> {
    let [width, inner, layers, heads, kv, words] = defaults(family);
    let width = f.size(&["hidden_size", "n_embd", "d_model"], width)?;
    let names = ["num_attention_heads", "n_head", "n_heads", "num_heads"];
    // Latent heads have sizes of their own.
    let latent = matches!(family, "deepseek_v2" | "deepseek_v3");
    let given = f.size_of(&["head_dim"])?.is_some();
    let (heads, mut head_dim) = if latent {
        (f.size(&names, heads)?, 1)
    } else if !given && more::HEADS_OF_128.contains(&family) {
        (f.size(&names, heads)?, 128)
    } else {
        f.heads(width, &names, heads)?
    };
    if !given && matches!(family, "gemma" | "gemma2" | "gemma3_text" | "vaultgemma") {
        head_dim = 256;
    } else if !given && family == "gpt_oss" {
        head_dim = 64;
    } else if !given && matches!(family, "qwen3" | "llama4_text") {
        head_dim = 128;
    }
    let tied = matches!(
        family,
        "gemma" | "gemma2" | "gemma3_text" | "bloom" | "falcon" | "starcoder2" | "cohere" | "opt"
    ) || more::TIED.contains(&family);
    let bias = matches!(family, "gpt_oss" | "seed_oss");
    let bias = f.flag(&["attention_bias"], bias)?;
    Ok(Plan {
        width,
        inner: f.size(&["intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"], inner.max(1))?,
        layers: f.layers(&["num_hidden_layers", "n_layer", "n_layers", "num_layers"], layers)?,
        heads,
        kv_heads: f.kv_heads(heads, if kv == 0 { heads } else { kv })?,
        head_dim,
        vocabulary: f.size(&["vocab_size"], words)?,
        qkv_bias: bias,
        out_bias: bias,
        inner_bias: f.flag(&["mlp_bias"], false)?,
        tied: f.flag(&["tie_word_embeddings"], tied)?,
        ..Plan::LLAMA_2_7B
    })
}

fn falcon(plan: &mut Plan, f: &Fields) -> Result<(), ModelError> {
    let new = f.flag(&["new_decoder_architecture"], false)?;
    let parallel = f.flag(&["parallel_attn"], true)?;
    let two = new && f.number(&["num_ln_in_parallel_attn"])?.unwrap_or(2) == 2;
    *plan = plain(
        *plan,
        if two {
            Placement::ParallelOwn
        } else if parallel || new {
            Placement::Parallel
        } else {
            Placement::Before
        },
    );
    let bias = f.flag(&["bias"], false)?;
    (plan.joined_qkv, plan.qkv_bias, plan.out_bias, plan.inner_bias) = (true, bias, bias, bias);
    plan.inner = f.size(&["ffn_hidden_size"], 4 * plan.width)?;
    let heads = plan.heads;
    plan.kv_heads = if new {
        f.size(&["num_kv_heads", "n_head_kv"], heads)?
    } else if f.flag(&["multi_query"], true)? {
        1
    } else {
        heads
    };
    if !heads.is_multiple_of(plan.kv_heads) {
        let problem = format!("{heads} heads cannot share {} key and value heads", plan.kv_heads);
        return Err(ModelError::Config { field: "num_kv_heads".to_owned(), problem });
    }
    if f.flag(&["alibi"], false)? {
        plan.positions = Positions::None;
    }
    Ok(())
}

fn opt(plan: &mut Plan, f: &Fields) -> Result<(), ModelError> {
    /// Places before the first position in its table.
    const OFFSET: u64 = 2;
    let bias = f.flag(&["enable_bias"], true)?;
    *plan = Plan { function: Unary::Relu, ..plain(*plan, Placement::Before) };
    (plan.qkv_bias, plan.out_bias, plan.inner_bias) = (bias, bias, bias);
    plan.positions = Positions::Table(f.size(&["max_position_embeddings"], 2048)? + OFFSET);
    let projected = f.size(&["word_embed_proj_dim"], plan.width)?;
    if projected != plan.width {
        return Err(unbuilt(
            "word_embed_proj_dim",
            "embeddings of another width than the layers are not built",
        ));
    }
    if !f.flag(&["do_layer_norm_before"], true)? {
        return Err(unbuilt("do_layer_norm_before", "layers with their norm at the end are not built"));
    }
    Ok(())
}

fn latent(f: &Fields) -> Result<Latent, ModelError> {
    // A null rank means that queries are made directly; a file without the field has the default.
    let direct = f.is_null("q_lora_rank");
    Ok(Latent {
        queries: if direct { None } else { Some(f.size(&["q_lora_rank"], 1536)?) },
        keys: f.size(&["kv_lora_rank"], 512)?,
        rotary: f.size(&["qk_rope_head_dim"], 64)?,
        plain: f.size(&["qk_nope_head_dim"], 128)?,
        value: f.size(&["v_head_dim"], 128)?,
    })
}

fn experts(family: &str, f: &Fields, plan: &Plan) -> Result<Option<Experts>, ModelError> {
    // Experts, taken, inner width, inner width of the shared one.
    let [count, taken, inner, shared] = match family {
        "mixtral" | "granitemoe" => [8, 2, plan.inner, 0],
        "qwen2_moe" => [60, 4, 1408, 5632],
        "qwen3_moe" => [128, 8, 768, 0],
        "gpt_oss" => [128, 4, plan.inner, 0],
        "phimoe" => [16, 2, plan.inner, 0],
        "dots1" => [128, 6, 1408, 2],
        "glm4_moe" => [128, 8, 1408, 1],
        "olmoe" => [64, 8, plan.inner, 0],
        "deepseek_v2" => [64, 2, 1407, 2],
        "deepseek_v3" => [256, 8, 2048, 1],
        "llama4_text" => [16, 1, plan.inner, plan.inner],
        _ => return Ok(None),
    };
    let names = ["num_local_experts", "num_experts", "n_routed_experts"];
    let count = f.size(&names, count)?;
    if count > MAX_EXPERTS {
        let problem = format!("must be at most {MAX_EXPERTS}, not {count}");
        return Err(ModelError::Config { field: names[0].to_owned(), problem });
    }
    let deepseek = matches!(family, "deepseek_v2" | "deepseek_v3" | "dots1" | "glm4_moe");
    let inner = f.size(&["moe_intermediate_size"], inner)?;
    let shared = match family {
        _ if deepseek => f.number(&["n_shared_experts"])?.unwrap_or(shared) * inner,
        "qwen2_moe" => f.size(&["shared_expert_intermediate_size"], shared)?,
        _ => shared,
    };
    if f.list("mlp_only_layers").is_some_and(|l| !l.is_empty()) {
        return Err(unbuilt("mlp_only_layers", "single layers without experts are not built"));
    }
    let dense_first = match family {
        "deepseek_v2" | "dots1" => f.number(&["first_k_dense_replace"])?.unwrap_or(0),
        "glm4_moe" => f.number(&["first_k_dense_replace"])?.unwrap_or(1),
        "deepseek_v3" => f.number(&["first_k_dense_replace"])?.unwrap_or(3),
        _ => 0,
    };
    let every = f.size(&["decoder_sparse_step", "interleave_moe_layer_step"], 1)?;
    let dense = if family == "llama4_text" { 16_384 } else { plan.inner };
    let dense_inner = f.size(&["intermediate_size_mlp"], dense)?;
    Ok(Some(Experts {
        count,
        taken: f.size(&["num_experts_per_tok"], taken)?.min(count),
        inner,
        shared,
        shared_gate: family == "qwen2_moe",
        bias: family == "gpt_oss",
        dense_first,
        every,
        dense_inner,
    }))
}

fn head(f: &Fields) -> Result<Head, ModelError> {
    let class = f.class();
    Ok(match class {
        _ if class.ends_with("ForSequenceClassification") => Head::Labels(f.labels(2)?),
        _ if class.is_empty() || class.ends_with("ForCausalLM") || class.ends_with("LMHeadModel") => {
            Head::Words
        }
        _ if class.ends_with("Model") => Head::States,
        _ => {
            let problem =
                format!("the head of `{}` is not built", class.chars().take(64).collect::<String>());
            return Err(ModelError::Config { field: "architectures".to_owned(), problem });
        }
    })
}
