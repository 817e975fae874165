//! What one rank of a sharded model runs: the model's sizes, how a framework fuses, the operators of a layer's shard.

mod layer;
mod recognise;
mod stack;

pub use layer::{Shard, Work};
pub use stack::{Attention, Host, Stack};

use serde::Serialize;

/// Which norm stands before attention and the inner layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Norm {
    /// Mean and variance.
    Layer,
    /// Root of the mean square.
    Rms,
}

/// Experts of a sparse inner layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Experts {
    /// How many there are.
    pub count: u64,
    /// How many each token takes.
    pub taken: u64,
}

/// The sizes of a transformer whose layers are alike: all that sharding needs to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Transformer {
    /// For people.
    pub name: String,
    /// Layers.
    pub layers: u64,
    /// Width of the residual stream.
    pub width: u64,
    /// Query heads.
    pub heads: u64,
    /// Key and value heads.
    pub kv_heads: u64,
    /// Size of a head.
    pub head_dim: u64,
    /// Width of the inner layer (of one expert).
    pub inner: u64,
    /// Two products up, one gating the other?
    pub gated: bool,
    /// Rows of the token table.
    pub vocabulary: u64,
    /// Rows of a learned table of positions; 0 where positions are rotary.
    pub positions: u64,
    /// Is the output layer the token table?
    pub tied: bool,
    /// Norm.
    pub norm: Norm,
    /// Biases in the products?
    pub bias: bool,
    /// Dropout in training?
    pub dropout: bool,
    /// Does a token see only earlier ones?
    pub causal: bool,
    /// Experts, where the inner layer is sparse.
    pub experts: Option<Experts>,
}

impl Transformer {
    /// A GPT of these sizes: layer norm, biases, dropout, learned positions, tied output layer.
    pub fn gpt(name: &str, layers: u64, width: u64, heads: u64, vocabulary: u64, positions: u64) -> Self {
        Self {
            name: name.to_string(),
            layers,
            width,
            heads,
            kv_heads: heads,
            head_dim: width / heads.max(1),
            inner: 4 * width,
            gated: false,
            vocabulary,
            positions,
            tied: true,
            norm: Norm::Layer,
            bias: true,
            dropout: true,
            causal: true,
            experts: None,
        }
    }

    /// A Llama of these sizes: RMS norm, rotary positions, gated inner layer, no biases, no dropout.
    pub fn llama(name: &str, sizes: [u64; 6], vocabulary: u64) -> Self {
        let [layers, width, heads, kv_heads, head_dim, inner] = sizes;
        Self {
            name: name.to_string(),
            layers,
            width,
            heads,
            kv_heads,
            head_dim,
            inner,
            gated: true,
            vocabulary,
            positions: 0,
            tied: false,
            norm: Norm::Rms,
            bias: false,
            dropout: false,
            causal: true,
            experts: None,
        }
    }

    /// Columns of the query, key and value product.
    pub fn qkv(&self) -> u64 {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    /// Parameters of one layer's attention, with its norm.
    pub fn attention_parameters(&self) -> u64 {
        let out = self.heads * self.head_dim;
        let biases = if self.bias { self.qkv() + self.width } else { 0 };
        self.width * (self.qkv() + out) + biases + self.norm_parameters()
    }

    /// Parameters of the inner layer of one expert (or the only one).
    pub fn inner_parameters(&self) -> u64 {
        let up = if self.gated { 2 } else { 1 };
        let biases = if self.bias { up * self.inner + self.width } else { 0 };
        self.width * self.inner * (up + 1) + biases
    }

    fn norm_parameters(&self) -> u64 {
        if self.norm == Norm::Layer { 2 * self.width } else { self.width }
    }

    /// Parameters of one layer.
    pub fn layer_parameters(&self) -> u64 {
        let (copies, router) = self.experts.map_or((1, 0), |e| (e.count, e.count * self.width));
        self.attention_parameters() + copies * self.inner_parameters() + router + self.norm_parameters()
    }

    /// Parameters of token and position tables.
    pub fn embedding_parameters(&self) -> u64 {
        (self.vocabulary + self.positions) * self.width
    }

    /// Parameters of the last norm and of an output layer of its own.
    pub fn head_parameters(&self) -> u64 {
        self.norm_parameters() + if self.tied { 0 } else { self.vocabulary * self.width }
    }

    /// All parameters.
    pub fn parameters(&self) -> u64 {
        self.layers * self.layer_parameters() + self.embedding_parameters() + self.head_parameters()
    }

    /// FLOPs that one token of a sequence of `seq` costs in forward and backward, without recomputation: six for each
    /// parameter that works on it and twelve for each score and head element (half of them under a causal mask).
    pub fn flops_per_token(&self, seq: u64) -> f64 {
        let idle = self.experts.map_or(0, |e| (e.count - e.taken.min(e.count)) * self.inner_parameters());
        let working = self.layers * (self.layer_parameters() - idle) + self.vocabulary * self.width;
        let scores = 12.0 * (self.layers * self.heads * self.head_dim) as f64 * seq as f64;
        6.0 * working as f64 + scores * if self.causal { 0.5 } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_parameter_counts() {
        let gpt2 = Transformer::gpt("gpt2", 12, 768, 12, 50_257, 1024);
        assert_eq!(gpt2.parameters(), 124_439_808);
        let llama = Transformer::llama("llama-3-8b", [32, 4096, 32, 8, 128, 14_336], 128_256);
        assert_eq!(llama.parameters(), 8_030_261_248);
        let gpt3 = Transformer::gpt("175b", 96, 12_288, 96, 51_200, 2048);
        assert!((gpt3.parameters() as f64 / 175e9 - 1.0).abs() < 0.01);
    }
}
