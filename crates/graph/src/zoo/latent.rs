//! Latent attention as in Hugging Face's `DeepseekV3Attention`: keys and values are spread out to all heads before they are kept.

use super::super::builder::{Builder, Built, Tensor};
use super::decoder::{Latent, Plan};

pub(super) fn attention(
    b: &mut Builder,
    y: Tensor,
    table: Option<[Tensor; 2]>,
    plan: Plan,
    sizes: Latent,
) -> Built {
    let shape = b.shape(y);
    let [batch, seq, heads] = [shape[0], shape[1], plan.heads];
    let (key, value) = (sizes.plain + sizes.rotary, sizes.value);
    let q = match sizes.queries {
        Some(rank) => {
            let narrow = b.linear("q_a_proj", y, rank, plan.qkv_bias)?;
            let narrow = b.hf_rms_norm("q_a_layernorm", narrow)?;
            b.linear("q_b_proj", narrow, heads * key, false)?
        }
        None => b.linear("q_proj", y, heads * key, false)?,
    };
    let q = b.view(q, &[batch, seq, heads, key])?;
    let q = b.transpose(q, 1, 2)?;
    let parts = b.split(q, &[sizes.plain, sizes.rotary], 3)?;
    let (q_plain, q_turned) = (parts[0], turned(b, parts[1], table)?);
    let q = b.cat(&[q_plain, q_turned], 3)?;
    let narrow = b.linear("kv_a_proj_with_mqa", y, sizes.keys + sizes.rotary, plan.qkv_bias)?;
    let parts = b.split(narrow, &[sizes.keys, sizes.rotary], 2)?;
    let wide = b.hf_rms_norm("kv_a_layernorm", parts[0])?;
    let wide = b.linear("kv_b_proj", wide, heads * (sizes.plain + value), false)?;
    let wide = b.view(wide, &[batch, seq, heads, sizes.plain + value])?;
    let wide = b.transpose(wide, 1, 2)?;
    let shared = b.view(parts[1], &[batch, 1, seq, sizes.rotary])?;
    let shared = turned(b, shared, table)?;
    let parts = b.split(wide, &[sizes.plain, value], 3)?;
    let shared = b.expand(shared, &[batch, heads, seq, sizes.rotary])?;
    let k = b.cat(&[parts[0], shared], 3)?;
    let [k, v] = b.cache(k, parts[1])?;
    // Kernels take keys and values of one size: values are padded and the result is cut.
    let a = if value < key {
        let rest = b.shape(v).with(3, key - value);
        let zeros = b.create("zeros", &rest)?;
        let padded = b.cat(&[v, zeros], 3)?;
        let a = b.attend_cache(q, k, padded, false)?;
        b.slice(a, 3, value)?
    } else {
        b.attend_cache(q, k, v, false)?
    };
    let a = b.transpose(a, 1, 2)?;
    let a = b.contiguous(a)?;
    let a = b.view(a, &[batch, seq, heads * value])?;
    b.linear("o_proj", a, plan.width, plan.out_bias)
}

fn turned(b: &mut Builder, x: Tensor, table: Option<[Tensor; 2]>) -> Built {
    match table {
        Some(table) => b.rotary(x, table),
        None => Ok(x),
    }
}
