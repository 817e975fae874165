//! Decoders that few fields tell from the usual ones.

use super::super::super::error::ModelError;
use super::super::super::graph::Unary;
use super::super::decoder::{HeadNorm, Norm, Placement, Plan, Positions};
use super::decoders::{plain, unbuilt};
use super::fields::Fields;

/// Families whose heads have 128 numbers unless the file says otherwise.
pub(super) const HEADS_OF_128: [&str; 9] =
    ["ministral3", "glm", "glm4", "seed_oss", "helium", "ernie4_5", "cwm", "internlm3", "nemotron"];
/// Families whose output layer is the embedding unless the file says otherwise.
pub(super) const TIED: [&str; 7] =
    ["smollm3", "ernie4_5", "cohere2", "gpt_bigcode", "gpt_neo", "mpt", "vaultgemma"];

/// As `defaults` of the usual families.
pub(super) fn defaults(family: &str) -> Option<[u64; 6]> {
    Some(match family {
        "ministral3" => [4096, 14_336, 34, 32, 8, 131_072],
        "smollm3" => [2048, 11_008, 36, 16, 4, 128_256],
        "helium" => [2560, 7040, 24, 20, 20, 48_000],
        "seed_oss" => [4096, 27_648, 64, 80, 8, 155_136],
        "ernie4_5" => [1024, 3072, 18, 16, 2, 103_424],
        "hunyuan_v1_dense" => [4096, 11_008, 32, 32, 0, 290_943],
        "exaone4" => [4096, 16_384, 32, 32, 32, 102_400],
        "olmo" | "olmo3" => [4096, 11_008, 32, 32, 0, 50_304],
        "olmoe" => [2048, 2048, 16, 16, 0, 50_304],
        "cohere2" => [8192, 22_528, 40, 64, 0, 256_000],
        "glm" | "glm4" => [4096, 13_696, 40, 32, 2, 151_552],
        "arcee" => [2560, 18_432, 32, 32, 0, 32_000],
        "nemotron" => [6144, 24_576, 32, 48, 0, 256_000],
        "gptj" | "codegen" => [4096, 0, 28, 16, 0, 50_400],
        "gpt_bigcode" => [768, 0, 12, 12, 0, 50_257],
        "gpt_neo" => [2048, 0, 24, 16, 0, 50_257],
        "mpt" => [2048, 0, 24, 16, 0, 50_368],
        "granitemoe" => [4096, 11_008, 32, 32, 0, 32_000],
        "cwm" => [6144, 21_504, 64, 48, 8, 128_256],
        "internlm3" => [4096, 10_240, 48, 32, 2, 128_512],
        "vaultgemma" => [2304, 9216, 26, 8, 4, 256_000],
        "phimoe" => [4096, 6400, 32, 32, 8, 32_064],
        "dots1" => [4608, 10_944, 62, 32, 32, 152_064],
        "glm4_moe" => [4096, 10_944, 46, 96, 8, 151_552],
        _ => return None,
    })
}

/// What one of these families changes in a plan; other families stay.
pub(super) fn refine(family: &str, f: &Fields, plan: &mut Plan) -> Result<(), ModelError> {
    match family {
        "seed_oss" => plan.out_bias = f.flag(&["attention_out_bias"], false)?,
        "glm" | "glm4" => {
            plan.joined_gate = true;
            plan.qkv_bias = f.flag(&["attention_bias"], true)?;
            plan.out_bias = false;
            if family == "glm4" {
                plan.placement = Placement::Around;
            }
        }
        "ernie4_5" => {
            let bias = f.flag(&["use_bias"], false)?;
            (plan.qkv_bias, plan.out_bias, plan.inner_bias) = (bias, bias, bias);
        }
        "hunyuan_v1_dense" => plan.head_norm = HeadNorm::Each,
        "exaone4" => (plan.placement, plan.head_norm) = (Placement::After, HeadNorm::Each),
        "olmo" => plan.norm = Norm::LayerWithoutWeight,
        "olmoe" => plan.head_norm = HeadNorm::All,
        "granitemoe" => plan.joined_gate = true,
        "vaultgemma" => (plan.scaled, plan.function) = (true, Unary::Gelu),
        "phimoe" => {
            plan.norm = Norm::Layer;
            plan.head_bias = f.flag(&["lm_head_bias"], false)?;
        }
        "dots1" => {
            plan.head_norm = HeadNorm::Each;
            plan.out_bias = false;
        }
        "glm4_moe" => {
            plan.out_bias = false;
            if f.flag(&["use_qk_norm"], false)? {
                plan.head_norm = HeadNorm::Each;
            }
        }
        "arcee" => {
            (plan.gated, plan.function, plan.squared) = (false, Unary::Relu, true);
            plan.inner_bias = f.flag(&["mlp_bias"], false)?;
        }
        "nemotron" => {
            let (attention, inner) = (f.flag(&["attention_bias"], false)?, f.flag(&["mlp_bias"], false)?);
            *plan = Plan { function: Unary::Relu, squared: true, ..plain(*plan, Placement::Before) };
            (plan.qkv_bias, plan.out_bias, plan.inner_bias) = (attention, attention, inner);
        }
        "gptj" | "codegen" => {
            *plan = plain(*plan, Placement::Parallel);
            (plan.joined_qkv, plan.head_bias) = (family == "codegen", true);
            plan.inner = four_times(f, plan)?;
        }
        "gpt_bigcode" => {
            *plan = plain(*plan, Placement::Before);
            (plan.joined_qkv, plan.qkv_bias, plan.out_bias) = (true, true, true);
            plan.kv_heads = if f.flag(&["multi_query"], true)? { 1 } else { plan.heads };
            plan.positions = Positions::Table(f.size(&["n_positions"], 1024)?);
            plan.inner = four_times(f, plan)?;
        }
        "gpt_neo" => {
            *plan = plain(*plan, Placement::Before);
            plan.out_bias = true;
            plan.positions = Positions::Table(f.size(&["max_position_embeddings"], 2048)?);
            plan.inner = four_times(f, plan)?;
        }
        "mpt" => {
            *plan = Plan { norm: Norm::LayerWithoutBias, ..plain(*plan, Placement::Before) };
            (plan.joined_qkv, plan.inner_bias, plan.positions) = (true, false, Positions::None);
            plan.inner = f.size(&["expansion_ratio"], 4)? * plan.width;
            if !f.flag(&["no_bias"], true)? {
                return Err(unbuilt("no_bias", "layers with biases are not built"));
            }
        }
        _ => {}
    }
    Ok(())
}

/// The inner width, four times the width where the file leaves it out.
fn four_times(f: &Fields, plan: &Plan) -> Result<u64, ModelError> {
    f.size(&["n_inner", "intermediate_size"], 4 * plan.width)
}
