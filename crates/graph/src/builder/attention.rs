//! Attention and what Hugging Face's decoders put around it: rotary positions and the cache of keys and values.

use super::super::graph::{GraphOp, Unary};
use super::{Builder, Built, Tensor};

impl Builder {
    /// `LlamaRotaryEmbedding`: cosine and sine `[1, seq, head_dim]` in fp32 of the positions 0..seq.
    pub fn rotary_table(&mut self, seq: u64, head_dim: u64) -> Built<[Tensor; 2]> {
        self.count_module();
        self.scope("rotary_emb", |b| {
            // Frequencies are kept twice: as they are and as they were before any scaling.
            b.buffer(head_dim);
            let positions = b.arange(seq)?;
            b.unary(positions, Unary::AddScalar)?;
            let positions = b.create("positions", &[1, 1, seq])?;
            let positions = b.expand(positions, &[1, head_dim / 2, seq])?;
            let angles = b.unary(positions, Unary::MulScalar)?;
            let angles = b.transpose(angles, 1, 2)?;
            let angles = b.cat(&[angles, angles], 2)?;
            let mut table = [angles; 2];
            for t in &mut table {
                let wave = b.unary(angles, Unary::Sine)?;
                *t = b.unary(wave, Unary::MulScalar)?;
            }
            Ok(table)
        })
    }

    /// `apply_rotary_pos_emb` on q or k `[b, h, s, d]`: x cos + rotate_half(x) sin.
    pub fn rotary(&mut self, x: Tensor, table: [Tensor; 2]) -> Built {
        let half = self.dim(x, 3) / 2;
        let [cos, sin] = table;
        self.scope("rotary", |b| {
            let direct = b.mul(x, cos)?;
            let first = b.slice(x, 3, half)?;
            let second = b.slice(x, 3, half)?;
            let negative = b.unary(second, Unary::Neg)?;
            let turned = b.cat(&[negative, first], 3)?;
            let turned = b.mul(turned, sin)?;
            b.add(direct, turned)
        })
    }

    /// `DynamicCache.update`: x is concatenated to an empty cache of the format of `like` and kept.
    pub fn cache(&mut self, x: Tensor, like: Tensor) -> Built {
        let shape = self.shape(x);
        let y = self.call("cache", GraphOp::Append, &[x, like], &[], &shape)?;
        self.keep(y);
        Ok(y)
    }

    /// Causal attention of q, k and v `[b, h, s, d]` with keys and values kept, back in `shape` `[b, s, width]`. The cache starts
    /// empty and is concatenated to: a copy each.
    pub fn cached_attention(&mut self, [q, k, v]: [Tensor; 3], shape: &[u64], dropout: bool) -> Built {
        let k = self.cat(&[k], 2)?;
        let v = self.cat(&[v], 2)?;
        self.keep(k);
        self.keep(v);
        let a = self.attention(&[q, k, v], true, dropout)?;
        let a = self.transpose(a, 1, 2)?;
        self.view(a, shape)
    }

    /// `F.scaled_dot_product_attention` of q `[b, h, s, d]` with k and v `[b, kv heads, s', d]`.
    pub fn sdpa(&mut self, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Built {
        self.attention(&[q, k, v], causal, false)
    }

    /// As [`Builder::sdpa`] without a mask, with dropout of the weights in training.
    pub fn sdpa_dropout(&mut self, q: Tensor, k: Tensor, v: Tensor) -> Built {
        self.attention(&[q, k, v], false, true)
    }

    /// Attention with an additive mask or bias as fourth tensor, and dropout of the weights in training.
    pub fn sdpa_masked_dropout(&mut self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Built {
        self.attention(&[q, k, v, mask], false, true)
    }

    fn attention(&mut self, inputs: &[Tensor], causal: bool, dropout: bool) -> Built {
        let (q, k, v) = (self.shape(inputs[0]), self.shape(inputs[1]), self.shape(inputs[2]));
        if q.len() != 4
            || k.len() != 4
            || k != v
            || q[0] != k[0]
            || q[3] != k[3]
            || !q[1].is_multiple_of(k[1])
        {
            return self.error("attention", format!("q {q}, k {k} and v {v} do not fit together"));
        }
        self.call("attention", GraphOp::Attention { causal, dropout, eager: false }, inputs, &[], &q)
    }
}
