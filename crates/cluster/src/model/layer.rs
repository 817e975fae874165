//! The operators of one rank's shard of a layer, of the embedding and of the head, as each stack launches them.
//!
//! Tensor parallel: query, key, value and up products are cut by columns, out and down products by rows, heads and vocabulary
//! evenly; norms, residuals and dropout are not cut, unless sequence parallel cuts their rows. Context parallel cuts
//! the rows of everything; attention then works on as many causal squares as there are parts. Experts are cut by
//! expert parallel.

use super::{Attention, Norm, Stack, Transformer};
use preflop_core::model::{Phase, Step};
use preflop_core::ops::{
    Attention as Fused, CrossEntropy, Elementwise, ElementwiseKind, Embedding, Gemm, Layout, Movement,
    MovementKind, Optimizer, OptimizerKind, Rowwise, RowwiseKind,
};
use preflop_core::{Dtype, Op, OpCall, Pass};

/// How a layer is cut and run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shard {
    /// Sequences of a microbatch.
    pub micro_batch: u64,
    /// Tokens of a whole sequence.
    pub seq: u64,
    /// Tensor parallel.
    pub tp: u64,
    /// Context parallel.
    pub cp: u64,
    /// Expert parallel.
    pub ep: u64,
    /// Are the rows of norms and residuals cut too?
    pub sequence_parallel: bool,
    /// Stack.
    pub stack: Stack,
    /// Attention.
    pub attention: Attention,
    /// Number format of tensors.
    pub dtype: Dtype,
    /// Number format of products, where it is a narrower one.
    pub product: Dtype,
}

/// Operators of one part, forward and backward, and what forward keeps for backward.
#[derive(Debug, Clone, Default)]
pub struct Work {
    /// Forward.
    pub forward: Vec<Step>,
    /// Backward.
    pub backward: Vec<Step>,
    /// The part of forward that selective recomputation repeats.
    pub core: Vec<Step>,
    /// Bytes that forward keeps for backward.
    pub saved: f64,
    /// Of those, what selective recomputation does not keep.
    pub saved_core: f64,
    /// Bytes of the part's input: all that full recomputation keeps.
    pub input: f64,
    /// Largest tensors that live only during its backward.
    pub temporary: f64,
}

impl Work {
    fn push(&mut self, phase: Phase, name: &str, op: Op, pass: Pass, dtype: Dtype, count: u64) {
        let step = Step {
            name: name.to_string(),
            phase,
            call: OpCall::new(op, pass, dtype),
            count: count.min(u64::from(u32::MAX)) as u32,
        };
        match phase {
            Phase::Forward => self.forward.push(step),
            _ => self.backward.push(step),
        }
    }
}

impl Shard {
    /// Tokens of a rank.
    pub fn tokens(&self) -> u64 {
        self.micro_batch * (self.seq / self.cp.max(1)).max(1)
    }

    /// Rows of norms and residuals.
    pub fn rows(&self) -> u64 {
        if self.sequence_parallel { (self.tokens() / self.tp).max(1) } else { self.tokens() }
    }

    fn size(&self) -> f64 {
        self.dtype.size()
    }

    /// `y = x W` of `m` rows, forward and both gradients, `count` times.
    fn product(&self, work: &mut Work, name: &str, [m, n, k]: [u64; 3], bias: bool, count: u64) {
        let (n, k) = (n.max(1), k.max(1));
        if self.product.size() < 2.0 {
            // fp8: the input is cast before the product and its gradient before theirs, each once as it lies and once transposed for the
            // weight's gradient: two bytes read and two written, as a copy.
            self.pointwise(work, Phase::Forward, name, ElementwiseKind::Copy, m * k * count);
            self.pointwise(work, Phase::Backward, name, ElementwiseKind::Copy, m * n * count);
        }
        let gemm = Op::Gemm(Gemm::linear(m, n, k, bias));
        work.push(Phase::Forward, name, gemm, Pass::Fwd, self.product, count);
        let backward = Phase::Backward;
        work.push(backward, name, Op::Gemm(Gemm::mm(m, k, n, Layout::Nn)), Pass::Fwd, self.product, count);
        work.push(backward, name, Op::Gemm(Gemm::mm(n, k, m, Layout::Tn)), Pass::Fwd, self.product, count);
        if bias {
            let sum = Rowwise { kind: RowwiseKind::SumCols, rows: m, cols: n };
            work.push(backward, name, Op::Rowwise(sum), Pass::Fwd, self.dtype, count);
        }
    }

    fn pointwise(&self, work: &mut Work, phase: Phase, name: &str, kind: ElementwiseKind, n: u64) {
        let op = Op::Elementwise(Elementwise { kind, n: n.max(1) });
        work.push(phase, name, op, Pass::Fwd, self.dtype, 1);
    }

    fn norm(&self, work: &mut Work, name: &str, model: &Transformer) {
        let (rows, cols) = (self.rows(), model.width);
        let kind = if model.norm == Norm::Layer { RowwiseKind::LayerNorm } else { RowwiseKind::RmsNorm };
        let n = rows * cols;
        if model.norm == Norm::Rms && !self.stack.fuses_norm() {
            // Hugging Face's RMS norm: to fp32, square, mean, rsqrt, product, back, product with the weight.
            for kind in
                [ElementwiseKind::Cast, ElementwiseKind::Pow, ElementwiseKind::Mul, ElementwiseKind::Cast]
            {
                self.pointwise(work, Phase::Forward, name, kind, n);
            }
            let mean = Op::Rowwise(Rowwise { kind: RowwiseKind::Sum, rows, cols });
            work.push(Phase::Forward, name, mean, Pass::Fwd, Dtype::Fp32, 1);
            self.pointwise(work, Phase::Forward, name, ElementwiseKind::MulVector, n);
            for _ in 0..6 {
                self.pointwise(work, Phase::Backward, name, ElementwiseKind::Mul, n);
            }
            work.saved += 2.0 * n as f64 * 4.0 + n as f64 * self.size();
            return;
        }
        let op = Op::Rowwise(Rowwise { kind, rows, cols });
        work.push(Phase::Forward, name, op.clone(), Pass::Fwd, self.dtype, 1);
        work.push(Phase::Backward, name, op, Pass::Bwd, self.dtype, 1);
        work.saved += n as f64 * self.size();
    }

    /// Residual added to a branch, after bias and dropout where the model has them.
    fn residual(&self, work: &mut Work, name: &str, model: &Transformer) {
        let n = self.rows() * model.width;
        let forward = Phase::Forward;
        match (model.dropout, self.stack.fuses_pointwise()) {
            (true, true) => self.pointwise(work, forward, name, ElementwiseKind::Where, n),
            (true, false) => {
                self.pointwise(work, forward, name, ElementwiseKind::Dropout, n);
                self.pointwise(work, forward, name, ElementwiseKind::Add, n);
            }
            (false, _) => self.pointwise(work, forward, name, ElementwiseKind::Add, n),
        }
        if model.dropout {
            self.pointwise(work, Phase::Backward, name, ElementwiseKind::DropoutBwd, n);
            work.saved += n as f64;
        }
        // The gradient of the branch joins the residual's.
        self.pointwise(work, Phase::Backward, name, ElementwiseKind::Add, n);
    }

    fn attention_core(&self, work: &mut Work, model: &Transformer) {
        let name = "attention";
        let heads = (model.heads / self.tp).max(1);
        let kv = (model.kv_heads / self.tp).max(1);
        let local = (self.seq / self.cp.max(1)).max(1);
        let d = model.head_dim;
        let from = work.forward.len();
        let (saved, e) = (work.saved, self.size());
        let tokens = self.tokens() as f64;
        if model.positions == 0 {
            let n = self.tokens() * (heads + kv) * d;
            if self.stack.fuses_pointwise() {
                self.pointwise(work, Phase::Forward, name, ElementwiseKind::Mul, n);
                self.pointwise(work, Phase::Backward, name, ElementwiseKind::Mul, n);
            } else {
                // Two products, a rotated half (two copies) and a sum.
                for kind in
                    [ElementwiseKind::Mul, ElementwiseKind::Mul, ElementwiseKind::Copy, ElementwiseKind::Add]
                {
                    self.pointwise(work, Phase::Forward, name, kind, n);
                    self.pointwise(work, Phase::Backward, name, kind, n);
                }
            }
        }
        let core_from = work.forward.len();
        if self.attention == Attention::Fused {
            let op = Fused {
                batch: self.micro_batch,
                heads,
                kv_heads: kv,
                q_len: local,
                kv_len: local,
                head_dim: d,
                causal: model.causal,
                dropout: model.dropout,
            };
            work.push(Phase::Forward, name, Op::Attention(op), Pass::Fwd, self.dtype, self.cp);
            work.push(Phase::Backward, name, Op::Attention(op), Pass::Bwd, self.dtype, self.cp);
            // q, k, v, the output and one fp32 number for each row and head.
            work.saved += tokens * ((2 * heads + 2 * kv) * d) as f64 * e + tokens * heads as f64 * 4.0;
        } else {
            let (batch, keys) = (self.micro_batch * heads, local * self.cp);
            let scores = batch * local * keys;
            let softmax =
                Op::Rowwise(Rowwise { kind: RowwiseKind::Softmax, rows: batch * local, cols: keys });
            let product = |m, n, k| Op::Gemm(Gemm::bmm(batch, m, n, k));
            work.push(Phase::Forward, name, product(local, keys, d), Pass::Fwd, self.dtype, 1);
            if !self.stack.fuses_pointwise() {
                self.pointwise(work, Phase::Forward, name, ElementwiseKind::MulScalar, scores);
                self.pointwise(work, Phase::Backward, name, ElementwiseKind::MulScalar, scores);
            }
            let fused_mask = self.stack.fuses_pointwise() && model.causal;
            if fused_mask {
                // Fused with scale and causal mask it streams: the lower triangle read, the whole square written.
                self.pointwise(work, Phase::Forward, name, ElementwiseKind::Exp, scores * 3 / 4);
                self.pointwise(work, Phase::Backward, name, ElementwiseKind::Mul, scores * 2 / 3);
            } else {
                work.push(Phase::Forward, name, softmax.clone(), Pass::Fwd, self.dtype, 1);
                work.push(Phase::Backward, name, softmax, Pass::Bwd, self.dtype, 1);
            }
            if model.dropout {
                self.pointwise(work, Phase::Forward, name, ElementwiseKind::Dropout, scores);
                self.pointwise(work, Phase::Backward, name, ElementwiseKind::DropoutBwd, scores);
            }
            work.push(Phase::Forward, name, product(local, d, keys), Pass::Fwd, self.dtype, 1);
            let shapes = [(local, keys, d), (keys, d, local), (local, d, keys), (keys, d, local)];
            for (m, n, k) in shapes {
                work.push(Phase::Backward, name, product(m, n, k), Pass::Fwd, self.dtype, 1);
            }
            let copy = Movement { kind: MovementKind::Permute, rows: self.tokens() * heads, cols: d };
            work.push(Phase::Forward, name, Op::Movement(copy), Pass::Fwd, self.dtype, 1);
            work.push(Phase::Backward, name, Op::Movement(copy), Pass::Fwd, self.dtype, 1);
            // Korthikanti et al., arXiv 2205.05198: q, k, v; softmax output, mask and dropped scores: 5 bytes a score.
            let kept = if model.dropout { 2.0 * e + 1.0 } else { e };
            work.saved += tokens * ((2 * heads + 2 * kv) * d) as f64 * e;
            let core = scores as f64 * kept;
            work.saved += core;
            work.saved_core += core;
            work.temporary = work.temporary.max(2.0 * scores as f64 * e);
        }
        work.core.extend_from_slice(&work.forward[core_from..]);
        debug_assert!(work.forward.len() > from && work.saved >= saved);
    }

    fn inner(&self, work: &mut Work, model: &Transformer) {
        let up = if model.gated { 2 } else { 1 };
        let tokens = self.tokens();
        let (rows, count, inner) = match model.experts {
            None => (tokens, 1, (model.inner / self.tp).max(1)),
            Some(e) => {
                // Balanced: each of the local experts gets its part of what all ranks of the group send.
                let local = (e.count / self.ep.max(1)).max(1);
                let rows = (tokens * e.taken).div_ceil(local);
                self.product(work, "router", [tokens, e.count, model.width], false, 1);
                let moved = tokens * e.taken * model.width;
                for phase in [Phase::Forward, Phase::Backward] {
                    for _ in 0..2 {
                        self.pointwise(work, phase, "experts", ElementwiseKind::Copy, moved);
                    }
                }
                (rows.max(1), local, (model.inner / self.tp).max(1))
            }
        };
        let e = self.size();
        let width = model.width;
        self.product(work, "up", [rows, up * inner, width], model.bias, count);
        let n = rows * count * inner;
        self.activation(work, model, n);
        self.product(work, "down", [rows, width, inner], model.bias, count);
        work.saved += (n * (up + 1)) as f64 * e;
        work.temporary = work.temporary.max((n * (up + 1)) as f64 * e);
        if model.experts.is_some() {
            work.saved += (rows * count * width) as f64 * e;
        }
    }

    fn activation(&self, work: &mut Work, model: &Transformer, n: u64) {
        let (f, b) = (Phase::Forward, Phase::Backward);
        match (model.gated, self.stack.fuses_pointwise()) {
            (true, true) => {
                self.pointwise(work, f, "activation", ElementwiseKind::Mul, n);
                self.pointwise(work, b, "activation", ElementwiseKind::SiluBwd, n);
                self.pointwise(work, b, "activation", ElementwiseKind::Copy, n);
            }
            (true, false) => {
                self.pointwise(work, f, "activation", ElementwiseKind::Silu, n);
                self.pointwise(work, f, "activation", ElementwiseKind::Mul, n);
                for kind in [ElementwiseKind::Mul, ElementwiseKind::Mul, ElementwiseKind::SiluBwd] {
                    self.pointwise(work, b, "activation", kind, n);
                }
                work.saved += n as f64 * self.size();
            }
            (false, _) => {
                self.pointwise(work, f, "activation", ElementwiseKind::Gelu, n);
                self.pointwise(work, b, "activation", ElementwiseKind::GeluBwd, n);
            }
        }
    }

    /// One layer.
    pub fn layer(&self, model: &Transformer) -> Work {
        let mut work = Work::default();
        let tokens = self.tokens();
        let width = model.width;
        let rows = self.rows() as f64;
        work.input = rows * width as f64 * self.size();
        self.norm(&mut work, "norm", model);
        // The input of the first products; with sequence parallel only its own rows stay.
        work.saved += rows * width as f64 * self.size();
        self.product(&mut work, "qkv", [tokens, model.qkv() / self.tp, width], model.bias, 1);
        self.attention_core(&mut work, model);
        let out = (model.heads * model.head_dim / self.tp).max(1);
        self.product(&mut work, "out", [tokens, width, out], model.bias, 1);
        self.residual(&mut work, "residual", model);
        self.norm(&mut work, "norm", model);
        work.saved += rows * width as f64 * self.size();
        self.inner(&mut work, model);
        self.residual(&mut work, "residual", model);
        if matches!(self.stack, Stack::Eager | Stack::Compiled) {
            self.select_operators(&mut work, model);
        }
        work
    }

    /// Selective checkpointing of PyTorch works by operator: attention and every second product keep their output, all else
    /// runs again. Products in order: query, key, value, out, (gate,) up, down; the first is kept.
    fn select_operators(&self, work: &mut Work, model: &Transformer) {
        let (tokens, e) = (self.tokens() as f64, self.size());
        let (heads, kv) = (model.heads / self.tp, (model.kv_heads / self.tp).max(1));
        let (d, inner) = (model.head_dim, (model.inner / self.tp).max(1));
        let mut columns = vec![heads * d, kv * d, kv * d, model.width];
        columns.extend(std::iter::repeat_n(inner, if model.gated { 2 } else { 1 }));
        columns.push(model.width);
        let kept: u64 = columns.iter().step_by(2).sum();
        let attention = tokens * (heads * d) as f64 * e + tokens * heads as f64 * 4.0;
        let selected = work.input + attention + tokens * kept as f64 * e;
        work.saved_core = (work.saved - selected).max(0.0);
        let again = |s: &&Step| match (&s.call.op, s.name.as_str()) {
            (Op::Attention(_), _) | (Op::Gemm(_), "qkv" | "down") => false,
            (Op::Gemm(_), "up") => model.gated,
            _ => true,
        };
        work.core = work.forward.iter().filter(again).cloned().collect();
    }

    /// Token and position tables.
    pub fn embedding(&self, model: &Transformer) -> Work {
        let mut work = Work::default();
        let tokens = self.tokens();
        let table = Embedding { vocab: (model.vocabulary / self.tp).max(1), dim: model.width, tokens };
        work.push(Phase::Forward, "embedding", Op::Embedding(table), Pass::Fwd, self.dtype, 1);
        work.push(Phase::Backward, "embedding", Op::Embedding(table), Pass::Bwd, self.dtype, 1);
        if model.positions > 0 {
            self.pointwise(
                &mut work,
                Phase::Forward,
                "embedding",
                ElementwiseKind::Add,
                tokens * model.width,
            );
        }
        if model.dropout {
            let n = self.rows() * model.width;
            self.pointwise(&mut work, Phase::Forward, "embedding", ElementwiseKind::Dropout, n);
            self.pointwise(&mut work, Phase::Backward, "embedding", ElementwiseKind::DropoutBwd, n);
            work.saved += n as f64;
        }
        work.saved += tokens as f64 * 8.0;
        work
    }

    /// Last norm, output layer and loss.
    pub fn head(&self, model: &Transformer) -> Work {
        let mut work = Work::default();
        let tokens = self.tokens();
        let classes = (model.vocabulary / self.tp).max(1);
        self.norm(&mut work, "norm", model);
        work.saved += self.rows() as f64 * model.width as f64 * self.size();
        let plain = Self { product: self.dtype, ..*self };
        plain.product(&mut work, "head", [tokens, classes, model.width], false, 1);
        let loss = Op::CrossEntropy(CrossEntropy { rows: tokens, classes });
        let logits = tokens * classes;
        self.pointwise(&mut work, Phase::Forward, "loss", ElementwiseKind::Cast, logits);
        work.push(Phase::Forward, "loss", loss.clone(), Pass::Fwd, Dtype::Fp32, 1);
        if matches!(self.stack, Stack::Megatron | Stack::Te) {
            // The vocabulary-parallel loss runs maximum, difference, exponent and quotient over fp32 logits one by one.
            for kind in [ElementwiseKind::Exp, ElementwiseKind::MulScalar] {
                let pass = Op::Elementwise(Elementwise { kind, n: logits });
                work.push(Phase::Forward, "loss", pass, Pass::Fwd, Dtype::Fp32, 1);
            }
        }
        work.push(Phase::Backward, "loss", loss, Pass::Bwd, Dtype::Fp32, 1);
        self.pointwise(&mut work, Phase::Backward, "loss", ElementwiseKind::Cast, logits);
        // Kept: 16-bit logits and fp32 log-probabilities (Megatron turns fp32 logits into them in place). Backward adds fp32
        // gradients of both and, where fused, a 16-bit one in place of the second.
        let (kept, added) = match self.stack {
            Stack::Eager => (6.0, 8.0),
            Stack::Compiled => (6.0, 6.0),
            Stack::Megatron | Stack::Te => (4.0, 6.0),
        };
        work.saved += logits as f64 * kept;
        work.temporary = logits as f64 * added;
        work
    }

    /// The optimizer step over the parameters that a rank owns: Adam in fp32 and the 16-bit copy.
    pub fn optimizer(&self, parameters: u64) -> Vec<Step> {
        let mut work = Work::default();
        let adam = Optimizer { kind: OptimizerKind::AdamFused, params: parameters.max(1), tensors: 1 };
        work.push(Phase::Backward, "optimizer", Op::Optimizer(adam), Pass::Fwd, Dtype::Fp32, 1);
        let cast = Op::Elementwise(Elementwise { kind: ElementwiseKind::Cast, n: parameters.max(1) });
        work.push(Phase::Backward, "optimizer", cast, Pass::Fwd, Dtype::Fp32, 1);
        work.backward.into_iter().map(|s| Step { phase: Phase::Optimizer, ..s }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(tp: u64) -> Shard {
        Shard {
            micro_batch: 4,
            seq: 2048,
            tp,
            cp: 1,
            ep: 1,
            sequence_parallel: false,
            stack: Stack::Megatron,
            attention: Attention::Eager,
            dtype: Dtype::Fp16,
            product: Dtype::Fp16,
        }
    }

    fn flops(steps: &[Step]) -> f64 {
        let products = steps.iter().filter(|s| matches!(s.call.op, Op::Gemm(_)));
        products.map(|s| s.call.flops().0 * f64::from(s.count)).sum()
    }

    #[test]
    fn a_layer_has_the_published_flops_and_backward_twice_as_many() {
        let model = Transformer::gpt("22b", 48, 6144, 64, 51_200, 2048);
        let work = shard(1).layer(&model);
        // arXiv 2205.05198, equation 7, one layer forward: 24 B s h^2 (1 + s / 6h)
        let (b, s, h) = (4.0, 2048.0, 6144.0);
        let published = 24.0 * b * s * h * h * (1.0 + s / (6.0 * h));
        assert!((flops(&work.forward) / published - 1.0).abs() < 1e-9);
        assert!((flops(&work.backward) / published - 2.0).abs() < 1e-9);
        let eighth = shard(8).layer(&model);
        assert!((flops(&eighth.forward) * 8.0 / published - 1.0).abs() < 1e-9);
    }

    #[test]
    fn activations_of_a_layer_are_the_published_ones() {
        // arXiv 2205.05198, equation 2: s b h (34 + 5 a s / h); with t = 8: s b h (10 + 24/8 + 5 a s / (8 h)).
        let model = Transformer::gpt("22b", 48, 6144, 64, 51_200, 2048);
        let (sbh, scores) = (4.0 * 2048.0 * 6144.0, 5.0 * 64.0 * 2048.0 / 6144.0);
        let one = shard(1).layer(&model).saved / sbh;
        assert!((one / (34.0 + scores) - 1.0).abs() < 0.02, "{one}");
        let eight = shard(8).layer(&model).saved / sbh;
        assert!((eight / (10.0 + 3.0 + scores / 8.0) - 1.0).abs() < 0.05, "{eight}");
    }
}
