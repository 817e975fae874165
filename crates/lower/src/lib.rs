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

use preflop_graph::{Iteration, Run};
use preflop_ops::Op;
use preflop_units::Bytes;

/// cuBLAS keeps a workspace for every stream, and a graph is captured on one of its own: 32 MiB more than eager in 17 of 18 decode steps of an H200.
const CAPTURE_WORKSPACE: Bytes = Bytes(32.0 * 1024.0 * 1024.0);

/// The iteration as it is launched: fused where it is compiled, without the host where it is replayed. What was recorded from a
/// compiler is compiled already.
#[must_use]
pub fn launched(iteration: Iteration, run: Run) -> Iteration {
    let already = iteration.steps.iter().any(|s| matches!(s.call.op, Op::Fused(_)));
    let iteration = if run.compiles() && !already { compiled::compiled(&iteration) } else { iteration };
    let mut memory = iteration.memory;
    if run.replays() && !iteration.replayed {
        memory.workspace += CAPTURE_WORKSPACE;
        memory.peak += CAPTURE_WORKSPACE;
    }
    Iteration { replayed: iteration.replayed || run.replays(), memory, ..iteration }
}
