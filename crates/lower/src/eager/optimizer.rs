//! The optimizer step: which kernels run, and the state they keep.

use super::Lowering;
use super::memory::Class;
use preflop_graph::{OptimizerChoice, Phase};
use preflop_ops::{Elementwise, ElementwiseKind, Op, OpCall, Optimizer, OptimizerKind, Pass};
use preflop_units::dtype::Dtype;

/// Tensors of parameter size that the optimizer keeps for each parameter.
fn states(choice: OptimizerChoice) -> u32 {
    match choice {
        OptimizerChoice::Sgd => 1,
        OptimizerChoice::Adam | OptimizerChoice::Adamw => 2,
        OptimizerChoice::None => 0,
    }
}

impl Lowering<'_> {
    /// The states exist from the second iteration on, for parameters that get gradients.
    pub(super) fn alloc_optimizer_state(&mut self, choice: OptimizerChoice, trained: &[bool]) {
        for (p, _) in self.graph.parameters.iter().zip(trained).filter(|(_, t)| **t) {
            for _ in 0..states(choice) {
                self.memory.alloc(p.shape.numel(), self.policy.tensor, Class::Optimizer);
            }
        }
    }

    /// The step itself. SGD with momentum walks lists of tensors (mul, add, add over chunks); `Adam(fused=False)`
    /// runs seven kernels per tensor, so tensors of one size are one step with a count; AdamW is fused.
    pub(super) fn optimizer_step(&mut self, choice: OptimizerChoice) {
        self.phase = Phase::Optimizer;
        let sizes: Vec<u64> = self
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
        let call = |kind, params, tensors| {
            OpCall::new(Op::Optimizer(Optimizer { kind, params, tensors }), Pass::Fwd, Dtype::Fp32)
        };
        match choice {
            OptimizerChoice::None => {}
            OptimizerChoice::Sgd if self.graph.channels_last => {
                // Weights of size 1 in some dimension have other strides than their gradients: two of the three walks over lists
                // fall back to one tensor at a time. Channels-last training of residual nets launches about 2 kernels a
                // tensor more than the walk over lists.
                self.push_named_step("optimizer", call(OptimizerKind::SgdPlain, params, tensors), 1);
                let mut sizes = sizes;
                sizes.sort_unstable();
                for group in sizes.chunk_by(|a, b| a == b) {
                    for kind in [ElementwiseKind::MulScalar, ElementwiseKind::Add] {
                        let op = Op::Elementwise(Elementwise { kind, n: group[0] });
                        let call = OpCall::new(op, Pass::Fwd, Dtype::Fp32);
                        self.push_named_step("optimizer", call, group.len() as u32);
                    }
                }
            }
            OptimizerChoice::Sgd => {
                self.push_named_step("optimizer", call(OptimizerKind::SgdForeach, params, tensors), 1);
            }
            OptimizerChoice::Adamw => {
                self.push_named_step("optimizer", call(OptimizerKind::AdamFused, params, tensors), 1);
            }
            OptimizerChoice::Adam => {
                // Square root and quotient of the tensor at hand live together.
                if let Some(&largest) = sizes.iter().max() {
                    for _ in 0..2 {
                        self.alloc_elements(largest, self.policy.tensor);
                    }
                    self.free_temporaries();
                }
                let mut sizes = sizes;
                sizes.sort_unstable();
                for group in sizes.chunk_by(|a, b| a == b) {
                    self.push_named_step(
                        "optimizer",
                        call(OptimizerKind::AdamSingle, group[0], 1),
                        group.len() as u32,
                    );
                }
            }
        }
    }
}
