//! Attention and what Hugging Face's decoders put around it: rotary positions and the cache of keys and values.

use super::super::graph::{GraphOp, Unary};
use super::super::stage::{CacheKind, Stage};
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

    /// Keys and values `[b, h, s, d]` with those of earlier tokens, kept for later ones: concatenated to an empty cache of the format
    /// of the keys (`DynamicCache.update`) or to that of the context, or written into a static one (`StaticLayer.update`, which counts
    /// its place on the device).
    pub fn cache(&mut self, k: Tensor, v: Tensor) -> Built<[Tensor; 2]> {
        if matches!(self.stage(), Stage::Decode { cache: CacheKind::Static, .. }) {
            let place = self.arange(1)?;
            let place = self.unary(place, Unary::AddScalar)?;
            self.unary(place, Unary::AddScalar)?;
        }
        Ok([self.cache_one(k, k)?, self.cache_one(v, k)?])
    }

    fn cache_one(&mut self, x: Tensor, like: Tensor) -> Built {
        let shape = self.shape(x);
        if shape.len() != 4 {
            return self
                .error("cache", format!("keys and values are [batch, heads, tokens, size], not {shape}"));
        }
        let each = shape[1].saturating_mul(shape[3]);
        self.graph.cache_elements_per_token = self.graph.cache_elements_per_token.saturating_add(each);
        let y = match self.stage() {
            Stage::Full | Stage::Prefill => self.call("cache", GraphOp::Append, &[x, like], &[], &shape)?,
            Stage::Decode { context, cache: CacheKind::Growing } => {
                let before = self.call("cache", GraphOp::Cache, &[], &[], &shape.with(2, context.max(1)))?;
                let after = shape.with(2, context.max(1).saturating_add(shape[2]));
                self.call("cache", GraphOp::Append, &[x, like, before], &[], &after)?
            }
            Stage::Decode { context, cache: CacheKind::Static } => {
                let whole = shape.with(2, Stage::capacity(context));
                let before = self.call("cache", GraphOp::Cache, &[], &[], &whole)?;
                self.call("cache", GraphOp::Store, &[before, x], &[], &whole)?
            }
        };
        self.keep(y);
        Ok(y)
    }

    /// Causal attention of q over keys and values that came out of [`Builder::cache`], as Hugging Face's `sdpa_attention_forward` runs it: a
    /// static cache needs a mask, and with a mask the heads of a group are copied first.
    pub fn attend_cache(&mut self, q: Tensor, k: Tensor, v: Tensor, dropout: bool) -> Built {
        self.mask_under_capture();
        match self.stage() {
            Stage::Full | Stage::Prefill => self.attention(&[q, k, v], true, dropout),
            Stage::Decode { cache: CacheKind::Growing, .. } => self.attention(&[q, k, v], false, dropout),
            Stage::Decode { cache: CacheKind::Static, .. } => self.attend_masked(q, k, v),
        }
    }

    /// Attention behind a mask: heads of a group are copied first, since no fused kernel takes both.
    pub fn attend_masked(&mut self, q: Tensor, k: Tensor, v: Tensor) -> Built {
        let mask = self.causal_mask(q, k)?;
        let [k, v] = [self.repeat_heads(k, q)?, self.repeat_heads(v, q)?];
        self.attention(&[q, k, v, mask], false, false)
    }

    /// As many key or value heads as the queries have.
    fn repeat_heads(&mut self, x: Tensor, q: Tensor) -> Built {
        let (shape, heads) = (self.shape(x), self.dim(q, 1));
        if shape[1] == heads {
            return Ok(x);
        }
        if !heads.is_multiple_of(shape[1]) {
            return self.error("attention", format!("{heads} heads cannot share {}", shape[1]));
        }
        self.call("repeat_kv", GraphOp::RepeatHeads, &[x], &[], &shape.with(1, heads))
    }

    /// `create_causal_mask`, once for all layers of one length: positions of queries and keys made on the device and compared.
    fn causal_mask(&mut self, q: Tensor, k: Tensor) -> Built {
        let [batch, queries, keys] = [self.dim(q, 0), self.dim(q, 2), self.dim(k, 2)];
        let shape = [batch, 1, queries, keys];
        if let Some(mask) = self.mask.filter(|&m| *self.shape(m) == shape) {
            return Ok(mask);
        }
        let mask = self.scope("mask", |b| {
            for n in [batch, queries, queries] {
                b.arange(n)?;
            }
            let places = b.arange(keys)?;
            let places = b.unary(places, Unary::AddScalar)?;
            b.unary(places, Unary::AddScalar)?;
            b.create("mask", &shape)
        })?;
        self.mask = Some(mask);
        self.keep(mask);
        Ok(mask)
    }

    /// Causal attention of q, k and v `[b, h, s, d]` with keys and values kept, back in `shape` `[b, s, width]`.
    pub fn cached_attention(&mut self, [q, k, v]: [Tensor; 3], shape: &[u64], dropout: bool) -> Built {
        let (k, v) = if self.stage() == Stage::Full {
            // The cache starts empty and is concatenated to: a copy each.
            let (k, v) = (self.cat(&[k], 2)?, self.cat(&[v], 2)?);
            self.keep(k);
            self.keep(v);
            (k, v)
        } else {
            self.cache(k, v)?.into()
        };
        let a = self.attend_cache(q, k, v, dropout)?;
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
