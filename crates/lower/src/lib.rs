//! From a network to the operators of one iteration.
//!
//! `eager` runs a graph without data, as eager PyTorch would; `capture` reads an iteration that Python recorded. Both give
//! operators in order, the host's work and the memory at its peak.

pub mod capture;
mod compiled;
mod eager;
mod form;

pub use eager::lower;
pub use form::Form;

use preflop_graph::{Iteration, Run, Step};
use preflop_ops::{Elementwise, ElementwiseKind, Op, OpCall, Pass};
use preflop_units::Bytes;
use preflop_units::dtype::Dtype;

/// cuBLAS keeps a workspace for every stream, and a graph is captured on one of its own: 32 MiB more than eager in 17 of 18 decode steps of an H200.
const CAPTURE_WORKSPACE: Bytes = Bytes(32.0 * 1024.0 * 1024.0);

/// The iteration as it is launched: fused where it is compiled, without the host where it is replayed. What was recorded from a
/// compiler is compiled already.
#[must_use]
pub fn launched(iteration: Iteration, run: Run) -> Iteration {
    let already = iteration.steps.iter().any(|s| matches!(s.call.op, Op::Fused(_)));
    let iteration = if run.compiles() && !already { compiled::compiled(&iteration) } else { iteration };
    let iteration = if run.compiles() { with_memsets(iteration) } else { iteration };
    let mut memory = iteration.memory;
    if run.replays() && !iteration.replayed {
        memory.workspace += CAPTURE_WORKSPACE;
        memory.peak += CAPTURE_WORKSPACE;
    }
    Iteration { replayed: iteration.replayed || run.replays(), memory, ..iteration }
}

/// Compiled code calls cuDNN's attention as an operator of its own, which clears its counters and its random state first: three memsets in forward and two in
/// backward, in each of four networks on an H200 (37 or 38 for 12 layers in inference, 62 to 64 in training).
fn with_memsets(mut iteration: Iteration) -> Iteration {
    let mut steps = Vec::with_capacity(iteration.steps.len());
    for step in iteration.steps {
        let clears = match (&step.call.op, step.call.pass) {
            (Op::Attention(_), _) if !step.call.dtype.is_half() => 0,
            (Op::Attention(_), Pass::Fwd) => 3,
            (Op::Attention(_), _) => 2,
            _ => 0,
        };
        if clears > 0 {
            let fill = Op::Elementwise(Elementwise { kind: ElementwiseKind::Fill, n: 1 });
            let call = OpCall::fwd(fill, Dtype::Fp32);
            let count = step.count.saturating_mul(clears);
            steps.push(Step { name: step.name.clone(), phase: step.phase, call, count });
        }
        steps.push(step);
    }
    iteration.steps = steps;
    iteration
}
