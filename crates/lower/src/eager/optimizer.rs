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

/// Elements from which bitsandbytes keeps a tensor's states in 8 bits (`min_8bit_size`).
const NARROW_FROM: u64 = 4096;
/// Bytes of an 8-bit state: itself, and a scale in fp32 for every 256.
const NARROW_BYTES: f64 = 1.0 + 4.0 / 256.0;

/// Bytes that an 8-bit step moves for a parameter of `e` bytes, over those of fused Adam: parameter read and written, gradient read, two states read and written.
fn narrow_share(e: f64) -> f64 {
    (3.0 * e + 4.0 * NARROW_BYTES) / (7.0 * e)
}

impl Lowering<'_> {
    /// The states exist from the second iteration on, for parameters that get gradients.
    pub(super) fn alloc_optimizer_state(&mut self, choice: OptimizerChoice, trained: &[bool]) {
        let how = choice.implementation;
        if how.paged() {
            return;
        }
        for (p, _) in self.graph.parameters.iter().zip(trained).filter(|(_, t)| **t) {
            let elements = p.shape.numel();
            for _ in 0..states(choice.rule) {
                if how.narrow() && elements >= NARROW_FROM {
                    self.memory.request(elements as f64 * NARROW_BYTES, Class::Optimizer);
                } else if how.narrow() {
                    self.memory.alloc(elements, Dtype::Fp32, Class::Optimizer);
                } else {
                    self.memory.alloc(elements, self.policy.tensor, Class::Optimizer);
                }
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
            (Rule::Sgd, Implementation::Fused) => self.optimizer_call(listed(ListedKind::SgdFused), 1),
            (Rule::Sgd, Implementation::Single) => {
                let kinds = [ElementwiseKind::MulScalar, ElementwiseKind::Add, ElementwiseKind::Add];
                self.each_tensor(&sizes, &kinds);
            }
            (Rule::Sgd, _) => self.optimizer_call(whole(OptimizerKind::SgdForeach), 1),
            // One kernel for each tensor, which does on the way what fused Adam does.
            (_, how) if how.narrow() || how.paged() => {
                let share = if how.narrow() { narrow_share(self.policy.tensor.size()) } else { 1.0 };
                for group in sizes.chunk_by(|a, b| a == b) {
                    let params = ((group[0] as f64 * share) as u64).max(1);
                    let one = Optimizer { kind: OptimizerKind::AdamFused, params, tensors: 1 };
                    self.optimizer_call(Op::Optimizer(one), group.len() as u32);
                }
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
            (rule @ (Rule::Adam | Rule::Adamw), _) => {
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
        // Gradients and states have the format of the parameters.
        self.push_named_step("optimizer", OpCall::new(op, Pass::Fwd, self.policy.tensor), count);
    }
}

#[cfg(test)]
mod tests {
    use crate::lower;
    use preflop_graph::{Implementation, LowerOptions, Mode, OptimizerChoice, Precision, zoo};

    fn memory(how: Implementation) -> [f64; 2] {
        let graph = zoo::build("llama-1b", Some(1), Some(128)).unwrap();
        let optimizer = Some(OptimizerChoice::ADAMW.by(how));
        let options = LowerOptions { mode: Mode::Train, precision: Precision::Fp32, optimizer };
        let memory = lower(&graph, &options).unwrap().memory;
        [memory.optimizer.0, memory.weights.0]
    }

    #[test]
    fn states_of_8_bits_take_a_quarter_and_paged_ones_the_hosts_memory() {
        let [wide, weights] = memory(Implementation::Fused);
        // Two states of 4 bytes for parameters of 4 bytes
        assert!((wide / weights - 2.0).abs() < 0.01, "{wide} {weights}");
        // 1 + 4/256 bytes instead of 4, but for a few short tensors
        let [narrow, _] = memory(Implementation::EightBit);
        assert!((narrow / wide - 0.2539).abs() < 0.003, "{narrow} {wide}");
        assert!(memory(Implementation::Paged)[0].abs() < 1.0);
    }

    #[test]
    fn weights_of_4_bits_are_widened_in_forward_and_backward() {
        let graph = || zoo::build("llama-1b", Some(1), Some(128)).unwrap();
        let options = LowerOptions { mode: Mode::Train, precision: Precision::Bf16, optimizer: None };
        let plain = lower(&graph().with_adapters(16).unwrap(), &options).unwrap();
        let packed = lower(&graph().with_packed_adapters(16).unwrap(), &options).unwrap();
        let projections: u64 = (graph().with_packed_adapters(16).unwrap().parameters)
            .iter()
            .filter(|p| p.packed)
            .map(|p| p.shape.numel())
            .sum();
        // 2 bytes become 0.5 + 1/64 + 4/16384
        let saved = projections as f64 * (2.0 - 0.515_869);
        let less = plain.memory.weights.0 - packed.memory.weights.0;
        assert!((less / saved - 1.0).abs() < 0.01, "{less} {saved}");
        assert!(packed.memory.peak < plain.memory.peak);
        // Three kernels for each of seven projections of a layer, twice; the first layer's queries, keys and values need no gradient of their input.
        assert!(packed.steps.len() > plain.steps.len());
        assert!(packed.stand_ins.copies && !plain.stand_ins.copies);
    }
}
