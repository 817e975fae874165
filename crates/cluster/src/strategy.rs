//! A strategy: how a model is cut over the GPUs of a cluster, and whether it can be.

use crate::model::{Attention, Shard, Stack, Transformer};
use crate::{Cluster, ClusterError};
use preflop_core::Dtype;
use serde::Serialize;

/// What is computed again in backward instead of kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Recompute {
    /// Nothing.
    None,
    /// The attention core, and what is cheap to compute again.
    Selective,
    /// Whole layers.
    Full,
}

impl Recompute {
    /// All, cheapest in time first.
    pub const ALL: [Self; 3] = [Self::None, Self::Selective, Self::Full];

    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Selective => "selective",
            Self::Full => "full",
        }
    }
}

/// How FSDP shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fsdp {
    /// Parameters, gradients and states over all ranks.
    Full,
    /// Parameters stay gathered between forward and backward.
    GradOp,
    /// Shards inside a node, copies across nodes.
    Hybrid,
}

impl Fsdp {
    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::GradOp => "grad-op",
            Self::Hybrid => "hybrid",
        }
    }
}

/// Order in which a pipeline runs its microbatches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// All forwards, then all backwards.
    Gpipe,
    /// One forward, one backward.
    OneFOneB,
    /// Weight gradients fill the bubble (Qi et al., arXiv 2401.10241).
    ZeroBubble,
}

impl Schedule {
    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gpipe => "gpipe",
            Self::OneFOneB => "1f1b",
            Self::ZeroBubble => "zero-bubble",
        }
    }
}

/// What is kept in the host's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Offload {
    /// Nothing.
    None,
    /// Optimizer states; the host's cores run Adam.
    Optimizer,
    /// Saved activations.
    Activations,
}

impl Offload {
    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Optimizer => "optimizer",
            Self::Activations => "activations",
        }
    }
}

/// A strategy. `tp * cp * pp * dp` GPUs; `ep` divides `dp * cp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Strategy {
    /// Tensor parallel.
    pub tp: u64,
    /// Context parallel.
    pub cp: u64,
    /// Pipeline parallel.
    pub pp: u64,
    /// Data parallel.
    pub dp: u64,
    /// Expert parallel.
    pub ep: u64,
    /// Model chunks of a pipeline rank.
    pub interleave: u64,
    /// Sequences of a microbatch.
    pub micro_batch: u64,
    /// Sequences of an iteration.
    pub global_batch: u64,
    /// Sequence parallel beside tensor parallel?
    pub sequence_parallel: bool,
    /// ZeRO stage.
    pub zero: u8,
    /// FSDP, which is ZeRO 3 with prefetch.
    pub fsdp: Option<Fsdp>,
    /// Recomputation.
    pub recompute: Recompute,
    /// Pipeline schedule.
    pub schedule: Schedule,
    /// Offload.
    pub offload: Offload,
    /// Software stack.
    pub stack: Stack,
    /// Attention.
    pub attention: Attention,
}

impl Default for Strategy {
    fn default() -> Self {
        Self {
            tp: 1,
            cp: 1,
            pp: 1,
            dp: 1,
            ep: 1,
            interleave: 1,
            micro_batch: 1,
            global_batch: 1,
            sequence_parallel: false,
            zero: 0,
            fsdp: None,
            recompute: Recompute::None,
            schedule: Schedule::OneFOneB,
            offload: Offload::None,
            stack: Stack::Compiled,
            attention: Attention::Fused,
        }
    }
}

/// The divisors of `n` that lie nearest to `wanted`, below and above.
pub fn nearest_divisors(n: u64, wanted: u64) -> Vec<u64> {
    let divisors: Vec<u64> = (1..=n.min(1 << 20)).filter(|d| n.is_multiple_of(*d)).collect();
    let below = divisors.iter().rev().find(|d| **d <= wanted).copied();
    let above = divisors.iter().find(|d| **d > wanted).copied();
    below.into_iter().chain(above).collect()
}

/// Tokens of a microbatch beyond which sizes of operators would no longer be exact.
const MAX_TOKENS: u64 = 1 << 31;

fn listed(numbers: &[u64]) -> String {
    let texts: Vec<String> = numbers.iter().map(u64::to_string).collect();
    texts.join(" or ")
}

impl Strategy {
    /// GPUs it needs.
    pub fn gpus(&self) -> u64 {
        [self.tp, self.cp, self.pp, self.dp].iter().fold(1_u64, |n, x| n.saturating_mul(*x))
    }

    /// Microbatches of one pipeline in an iteration.
    pub fn microbatches(&self) -> u64 {
        (self.global_batch / (self.micro_batch * self.dp).max(1)).max(1)
    }

    /// ZeRO stage, FSDP included.
    pub fn stage(&self) -> u8 {
        if self.fsdp.is_some() { 3 } else { self.zero }
    }

    /// Parts of it that were checked against no measurement, or against too few: their interval is wide, and answers name them.
    pub fn unmeasured(&self) -> Vec<&'static str> {
        let parts = [
            ("context parallel", self.cp > 1),
            ("expert parallel", self.ep > 1),
            ("zero-bubble schedule", self.schedule == Schedule::ZeroBubble && self.pp > 1),
            ("offload", self.offload != Offload::None),
        ];
        parts.into_iter().filter(|(_, is)| *is).map(|(name, _)| name).collect()
    }

    /// How a layer is cut.
    pub fn shard(&self, seq: u64, dtype: Dtype, product: Dtype) -> Shard {
        Shard {
            micro_batch: self.micro_batch,
            seq,
            tp: self.tp,
            cp: self.cp,
            ep: self.ep,
            sequence_parallel: self.sequence_parallel && self.tp > 1,
            stack: self.stack,
            attention: self.attention,
            dtype,
            product,
        }
    }

    /// Can this model be cut so on this cluster? One line with the nearest thing that works where it cannot.
    pub fn check(&self, model: &Transformer, seq: u64, cluster: &Cluster) -> Result<(), ClusterError> {
        let wrong = |text: String| Err(ClusterError::Plan(text));
        let sizes = [
            ("tp", self.tp),
            ("cp", self.cp),
            ("pp", self.pp),
            ("dp", self.dp),
            ("ep", self.ep),
            ("interleave", self.interleave),
            ("micro-batch", self.micro_batch),
            ("global-batch", self.global_batch),
        ];
        if let Some((name, _)) = sizes.iter().find(|(_, v)| *v == 0) {
            return wrong(format!("`--{name} 0`: sizes start at 1"));
        }
        let tokens = self.micro_batch.saturating_mul(seq.max(1));
        if tokens > MAX_TOKENS {
            return wrong(format!(
                "a micro batch of {} sequences of {seq} tokens is more than any GPU holds: take at most {}",
                self.micro_batch,
                (MAX_TOKENS / seq.max(1)).max(1)
            ));
        }
        for (what, n) in [("heads", model.heads), ("key and value heads", model.kv_heads.max(self.tp))] {
            if !n.is_multiple_of(self.tp) {
                let near = nearest_divisors(model.heads, self.tp);
                return wrong(format!("tp {} does not divide {n} {what}: take {}", self.tp, listed(&near)));
            }
        }
        if self.tp > model.heads {
            return wrong(format!("tp {} exceeds {} heads: take {}", self.tp, model.heads, model.heads));
        }
        if !model.inner.is_multiple_of(self.tp) {
            let near = nearest_divisors(model.inner, self.tp);
            return wrong(format!(
                "tp {} does not divide the inner width {}: take {}",
                self.tp,
                model.inner,
                listed(&near)
            ));
        }
        self.check_count(cluster)?;
        let chunks = self.pp.saturating_mul(self.interleave);
        if !model.layers.is_multiple_of(chunks) {
            let near = nearest_divisors(model.layers, chunks);
            return wrong(format!(
                "{} layers do not divide into pp {} x interleave {}: take a product of {}",
                model.layers,
                self.pp,
                self.interleave,
                listed(&near)
            ));
        }
        if self.interleave > 1 && self.pp < 2 {
            return wrong("`--interleave` needs a pipeline: take `--pp 2` or more, or leave it out".into());
        }
        if !seq.is_multiple_of(self.cp) {
            return wrong(format!(
                "cp {} does not divide {seq} tokens: take {}",
                self.cp,
                listed(&nearest_divisors(seq, self.cp))
            ));
        }
        if self.sequence_parallel && !(seq / self.cp).is_multiple_of(self.tp) {
            return wrong(format!(
                "sequence parallel over tp {} does not divide {} tokens",
                self.tp,
                seq / self.cp
            ));
        }
        let samples = self.micro_batch.saturating_mul(self.dp);
        if !self.global_batch.is_multiple_of(samples) {
            let down = (self.global_batch / samples).max(1) * samples;
            return wrong(format!(
                "global batch {} does not divide into dp {} x micro batch {}: take {down} or {}",
                self.global_batch,
                self.dp,
                self.micro_batch,
                down + samples
            ));
        }
        if self.interleave > 1 && !self.microbatches().is_multiple_of(self.pp) {
            return wrong(format!(
                "interleaving needs microbatches in multiples of pp {}: {} are not; take a global batch of {}",
                self.pp,
                self.microbatches(),
                self.microbatches().next_multiple_of(self.pp) * samples
            ));
        }
        self.check_experts(model)?;
        if self.zero > 3 {
            return wrong(format!("`--zero {}`: stages are 0 to 3", self.zero));
        }
        if self.stage() == 3 && self.pp > 1 && self.fsdp.is_none() {
            return wrong("ZeRO 3 gathers every layer for every microbatch and does not go with a pipeline: take `--zero 1` or `--pp 1`".into());
        }
        Ok(())
    }

    fn check_experts(&self, model: &Transformer) -> Result<(), ClusterError> {
        let wrong = |text: String| Err(ClusterError::Plan(text));
        match model.experts {
            None if self.ep > 1 => wrong(format!("`{}` has no experts: leave `--ep` out", model.name)),
            Some(e) if !e.count.is_multiple_of(self.ep) => {
                let near = nearest_divisors(e.count, self.ep);
                wrong(format!("ep {} does not divide {} experts: take {}", self.ep, e.count, listed(&near)))
            }
            _ if !self.dp.saturating_mul(self.cp).is_multiple_of(self.ep) => {
                let near = nearest_divisors(self.dp * self.cp, self.ep);
                wrong(format!(
                    "ep {} does not divide dp x cp = {}: take {}",
                    self.ep,
                    self.dp * self.cp,
                    listed(&near)
                ))
            }
            _ => Ok(()),
        }
    }

    /// Does it use the GPUs there are?
    pub fn check_count(&self, cluster: &Cluster) -> Result<(), ClusterError> {
        let (needed, there) = (self.gpus(), cluster.gpus());
        if needed == there {
            return Ok(());
        }
        let rest = self.tp.saturating_mul(self.cp).saturating_mul(self.pp).max(1);
        let advice = if there.is_multiple_of(rest) {
            format!("`--dp {}` uses all of them", there / rest)
        } else {
            let near = nearest_divisors(there, rest);
            format!("tp x cp x pp must divide {there}: take {}", listed(&near))
        };
        Err(ClusterError::Plan(format!(
            "tp {} x cp {} x pp {} x dp {} = {needed} GPUs, and {} has {there}: {advice}",
            self.tp, self.cp, self.pp, self.dp, cluster.name
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn llama() -> Transformer {
        Transformer::llama("llama-3-8b", [32, 4096, 32, 8, 128, 14_336], 128_256)
    }

    fn said(strategy: Strategy) -> String {
        let cluster = Cluster::named("dgx-h100x4").unwrap();
        strategy.check(&llama(), 8192, &cluster).unwrap_err().to_string()
    }

    #[test]
    fn what_does_not_divide_gets_the_nearest_that_does() {
        let base = Strategy { tp: 1, dp: 32, global_batch: 32, ..Strategy::default() };
        assert!(said(Strategy { tp: 3, dp: 8, ..base }).contains("take 2 or 4"));
        let cluster = Cluster::named("3xh100").unwrap();
        let three = Strategy { tp: 3, dp: 1, global_batch: 3, ..base };
        let error = three.check(&llama(), 8192, &cluster).unwrap_err().to_string();
        assert!(error.contains("tp 3 does not divide 32 heads: take 2 or 4"), "{error}");
        assert!(said(Strategy { dp: 16, ..base }).contains("`--dp 32`"));
        assert!(said(Strategy { global_batch: 40, ..base }).contains("32 or 64"));
        assert!(said(Strategy { ep: 2, ..base }).contains("no experts"));
        let huge = Strategy { micro_batch: 1 << 24, global_batch: 1 << 29, ..base };
        assert!(said(huge).contains("more than any GPU holds"));
        assert!(said(Strategy { micro_batch: 0, ..base }).contains("start at 1"));
        assert!(said(Strategy { interleave: 2, ..base }).contains("needs a pipeline"));
    }

    #[test]
    fn a_plan_that_fits_is_taken() {
        let cluster = Cluster::named("dgx-h100x4").unwrap();
        let plan = Strategy { tp: 2, pp: 2, dp: 8, global_batch: 256, ..Strategy::default() };
        assert_eq!(plan.microbatches(), 32);
        plan.check(&llama(), 8192, &cluster).unwrap();
    }
}
