//! The optimizer step: which kernels run, and the state they keep.

use super::Lowering;
use super::memory::Class;
use preflop_graph::{Implementation, OptimizerChoice, Phase, Rule};
use preflop_ops::{
    Elementwise, ElementwiseKind, Listed, ListedKind, Op, OpCall, Optimizer, OptimizerKind, Pass,
};
use preflop_units::dtype::Dtype;

/// Tensors of parameter size that the optimizer keeps for each parameter.
fn states(rule: Rule) -> u32 {
    match rule {
        Rule::Sgd => 1,
        Rule::Adam | Rule::Adamw => 2,
        Rule::None => 0,
    }
}

impl Lowering<'_> {
    /// The states exist from the second iteration on, for parameters that get gradients.
    pub(super) fn alloc_optimizer_state(&mut self, choice: OptimizerChoice, trained: &[bool]) {
        for (p, _) in self.graph.parameters.iter().zip(trained).filter(|(_, t)| **t) {
            for _ in 0..states(choice.rule) {
                self.memory.alloc(p.shape.numel(), self.policy.tensor, Class::Optimizer);
            }
        }
    }

    /// The step itself, as PyTorch's implementations run it.
    ///
    /// Over lists, SGD with momentum is mul, add, add and Adam seven walks over chunks; in a loop the same kernels run for
    /// every tensor, so that tensors of one size are one step with a count; a fused step is one walk. AdamW scales the
    /// parameters first, but for the fused kernel, which does it on the way.
    pub(super) fn optimizer_step(&mut self, choice: OptimizerChoice) {
        self.phase = Phase::Optimizer;
        let mut sizes: Vec<u64> = self
            .graph
            .parameters
            .iter()
            .zip(&self.parameter_grads)
            .filter(|(_, g)| g.is_some())
            .map(|(p, _)| p.shape.numel())
            .collect();
        if sizes.is_empty() {
            return;
        }
        let params = sizes.iter().fold(0_u64, |n, &s| n.saturating_add(s));
        let tensors = sizes.len() as u64;
        sizes.sort_unstable();
        let listed = |kind| Op::Listed(Listed::new(kind, &[params, tensors]));
        let whole = |kind| Op::Optimizer(Optimizer { kind, params, tensors });
        match (choice.rule, choice.implementation) {
            (Rule::None, _) => {}
            (Rule::Sgd, Implementation::Foreach) if self.graph.channels_last => {
                // Weights of size 1 in some dimension have other strides than their gradients: two of the three walks over lists
                // fall back to one tensor at a time. Channels-last training of residual nets launches about 2 kernels a
                // tensor more than the walk over lists.
                self.optimizer_call(whole(OptimizerKind::SgdPlain), 1);
                self.each_tensor(&sizes, &[ElementwiseKind::MulScalar, ElementwiseKind::Add]);
            }
            (Rule::Sgd, Implementation::Foreach) => self.optimizer_call(whole(OptimizerKind::SgdForeach), 1),
            (Rule::Sgd, Implementation::Fused) => self.optimizer_call(listed(ListedKind::SgdFused), 1),
            (Rule::Sgd, Implementation::Single) => {
                let kinds = [ElementwiseKind::MulScalar, ElementwiseKind::Add, ElementwiseKind::Add];
                self.each_tensor(&sizes, &kinds);
            }
            (Rule::Adam | Rule::Adamw, Implementation::Fused) => {
                self.optimizer_call(whole(OptimizerKind::AdamFused), 1);
            }
            (rule @ (Rule::Adam | Rule::Adamw), Implementation::Foreach) => {
                if rule == Rule::Adamw {
                    self.optimizer_call(listed(ListedKind::ForeachMul), 1);
                }
                // The square roots of all second moments live together.
                self.alloc_elements(params, self.policy.tensor);
                self.free_temporaries();
                self.optimizer_call(whole(OptimizerKind::AdamForeach), 1);
            }
            (rule @ (Rule::Adam | Rule::Adamw), Implementation::Single) => {
                // Square root and quotient of the tensor at hand live together.
                if let Some(&largest) = sizes.last() {
                    for _ in 0..2 {
                        self.alloc_elements(largest, self.policy.tensor);
                    }
                    self.free_temporaries();
                }
                if rule == Rule::Adamw {
                    self.each_tensor(&sizes, &[ElementwiseKind::MulScalar]);
                }
                for group in sizes.chunk_by(|a, b| a == b) {
                    let one = Optimizer { kind: OptimizerKind::AdamSingle, params: group[0], tensors: 1 };
                    self.optimizer_call(Op::Optimizer(one), group.len() as u32);
                }
            }
        }
    }

    /// Kernels that run for every tensor by itself.
    fn each_tensor(&mut self, sorted_sizes: &[u64], kinds: &[ElementwiseKind]) {
        for group in sorted_sizes.chunk_by(|a, b| a == b) {
            for &kind in kinds {
                let op = Op::Elementwise(Elementwise { kind, n: group[0] });
                self.optimizer_call(op, group.len() as u32);
            }
        }
    }

    fn optimizer_call(&mut self, op: Op, count: u32) {
        self.push_named_step("optimizer", OpCall::new(op, Pass::Fwd, Dtype::Fp32), count);
    }
}
