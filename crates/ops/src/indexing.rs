//! Look-ups and the loss over classes.

use super::{Pass, Traffic};
use preflop_units::{Bytes, Flops};
use serde::{Deserialize, Serialize};

/// Embedding: `tokens` rows of width `dim` picked from a table of `vocab` rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Embedding {
    /// Rows of the table.
    pub vocab: u64,
    /// Width of a row.
    pub dim: u64,
    /// Rows picked.
    pub tokens: u64,
}

impl Embedding {
    /// Only the backward adds.
    pub fn flops(&self, pass: Pass) -> Flops {
        if pass == Pass::Fwd { Flops::ZERO } else { Flops(self.tokens as f64 * self.dim as f64) }
    }

    /// Picked rows and 8-byte indices read, output written; backward writes the whole gradient table.
    pub fn traffic(&self, pass: Pass, e: f64) -> Traffic {
        let picked = self.tokens as f64 * self.dim as f64 * e;
        let index = self.tokens as f64 * 8.0;
        let table = self.vocab as f64 * self.dim as f64 * e;
        if pass == Pass::Fwd {
            Traffic { read: Bytes(picked.min(table) + index), written: Bytes(picked) }
        } else {
            Traffic { read: Bytes(picked + index), written: Bytes(table + picked) }
        }
    }
}

/// Cross-entropy of `rows` logit rows over `classes`: log-softmax and negative log-likelihood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CrossEntropy {
    /// Samples or tokens.
    pub rows: u64,
    /// Classes or vocabulary.
    pub classes: u64,
}

impl CrossEntropy {
    /// As log-softmax.
    pub fn flops(&self) -> Flops {
        Flops(5.0 * self.rows as f64 * self.classes as f64)
    }

    /// Log-softmax reads and writes the logits; backward reads it and writes nll and logit gradients.
    pub fn traffic(&self, pass: Pass, e: f64) -> Traffic {
        let n = self.rows as f64 * self.classes as f64;
        if pass == Pass::Fwd { Traffic::elements(n, n, e) } else { Traffic::elements(2.0 * n, 2.0 * n, e) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hand_computed() {
        let x = Embedding { vocab: 1000, dim: 64, tokens: 10 };
        // 10*64*4 read + 80 index + 2560 written
        assert_eq!(x.traffic(Pass::Fwd, 4.0).total().0, 5200.0);
        let c = CrossEntropy { rows: 8, classes: 1000 };
        assert_eq!(c.traffic(Pass::Fwd, 4.0).total().0, 64_000.0);
    }
}
