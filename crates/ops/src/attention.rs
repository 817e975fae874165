//! Fused scaled-dot-product attention: prefill, causal, grouped heads, decode with a cache.

use super::{Pass, Traffic};
use preflop_units::Flops;
use serde::{Deserialize, Serialize};

/// Attention of `q_len` queries over `kv_len` keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Attention {
    /// Sequences.
    pub batch: u64,
    /// Query heads.
    pub heads: u64,
    /// Key and value heads (equal to `heads`, or fewer when grouped).
    pub kv_heads: u64,
    /// Queries per sequence; 1 in decode.
    pub q_len: u64,
    /// Keys per sequence.
    pub kv_len: u64,
    /// Size of one head.
    pub head_dim: u64,
    /// Does a query see only earlier keys?
    pub causal: bool,
    /// Are some of the weights dropped?
    #[serde(default)]
    pub dropout: bool,
}

impl Attention {
    /// Share of the score matrix that the mask leaves.
    fn live_share(&self) -> f64 {
        if !self.causal || self.q_len == 0 || self.kv_len == 0 {
            return 1.0;
        }
        // Aligned at the top left, as PyTorch masks: query i sees keys 0..=i.
        let (q, kv) = (self.q_len as f64, self.kv_len as f64);
        if q <= kv { (q + 1.0) / (2.0 * kv) } else { (kv * (kv + 1.0) / 2.0 + (q - kv) * kv) / (q * kv) }
    }

    /// Scores that the mask leaves, in tiles of 64 by 64 as kernels compute them.
    pub fn scores(&self) -> f64 {
        let tiles = |n: u64| n.div_ceil(64) as f64 * 64.0;
        self.batch as f64 * self.heads as f64 * tiles(self.q_len) * tiles(self.kv_len) * self.live_share()
    }

    /// Two products of q_len x kv_len x head_dim per head; backward has five.
    pub fn flops(&self, pass: Pass) -> Flops {
        let product = 2.0
            * self.batch as f64
            * self.heads as f64
            * self.q_len as f64
            * self.kv_len as f64
            * self.head_dim as f64
            * self.live_share();
        Flops(if pass == Pass::Fwd { 2.0 * product } else { 5.0 * product })
    }

    /// q, k, v read and the output written; backward reads them with output and its gradient, writes three gradients.
    pub fn traffic(&self, pass: Pass, e: f64) -> Traffic {
        let row = self.batch as f64 * self.head_dim as f64;
        let q = row * self.heads as f64 * self.q_len as f64;
        let kv = row * self.kv_heads as f64 * self.kv_len as f64;
        if pass == Pass::Fwd {
            Traffic::elements(q + 2.0 * kv, q, e)
        } else {
            Traffic::elements(3.0 * q + 2.0 * kv, q + 2.0 * kv, e)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hand_computed() {
        let a = Attention {
            batch: 2,
            heads: 4,
            kv_heads: 4,
            q_len: 8,
            kv_len: 8,
            head_dim: 16,
            causal: false,
            dropout: false,
        };
        // 4 * 2*4*8*8*16 = 32,768
        assert_eq!(a.flops(Pass::Fwd).0, 32_768.0);
        // causal: 36 of 64 scores
        // 2 sequences of 4 heads, one tile of 64 by 64 each
        assert_eq!(a.scores(), 8.0 * 4096.0);
        let c = Attention { causal: true, ..a };
        assert_eq!(c.flops(Pass::Fwd).0, 32_768.0 * 36.0 / 64.0);
        // q = k = v = o = 2*4*8*16 = 1024 elements
        assert_eq!(a.traffic(Pass::Fwd, 2.0).total().0, 8192.0);
    }
}
