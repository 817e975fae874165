//! From a network to the operators of one iteration.
//!
//! `eager` runs a graph without data, as eager PyTorch would; `capture` reads an iteration that Python recorded. Both give
//! operators in order, the host's work and the memory at its peak.

pub mod capture;
mod compiled;
mod eager;
mod form;
mod fusion;

pub use eager::lower;
pub use form::Form;

use preflop_graph::{HostWork, Iteration, Phase, Run, Step};
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

/// The host's work around steps that a compiler wrote: its program calls backward's kernels as its forward's, and autograd runs one node for all of them.
fn launching(host: HostWork, steps: &[Step]) -> HostWork {
    let launches = steps.iter().filter(|s| s.phase != Phase::Optimizer).map(|s| u64::from(s.count)).sum();
    HostWork {
        forward_ops: launches,
        backward_ops: u64::from(host.backward_ops > 0),
        module_calls: 0,
        ..host
    }
}

/// Places of a product's result from which cuBLAS hands its tiles out by a counter, and of a convolution's from which cuDNN does: about two and a half and one tiles
/// for each multiprocessor of an H200.
const COUNTED_PRODUCT: u64 = 10_500_000;
const COUNTED_CONVOLUTION: u64 = 5_000_000;

/// Memsets that a library launches before a kernel, to clear the counter by which it hands out work or its workspace: what the profiler saw in front of which kernel, in 24
/// compiled runs of an H200 (`data/measured/h200/compiled.csv.gz`). Padded images have one for each copy; attention's are among its own kernels.
fn clears(call: &OpCall) -> u32 {
    if !call.dtype.is_half() {
        return 0;
    }
    match &call.op {
        Op::Gemm(g) => u32::from(g.batch == 1 && g.m.saturating_mul(g.n) >= COUNTED_PRODUCT),
        Op::Conv(c) if c.groups > 1 => 0,
        Op::Conv(c) if c.ci < 8 => 2 + u32::from(call.pass != Pass::Fwd),
        Op::Conv(c) if c.r * c.s == 1 && c.stride == [1, 1] => 0,
        Op::Conv(c) => {
            let maps = match call.pass {
                Pass::Dgrad => [c.ci, c.h, c.w],
                _ => [c.co, c.oh(), c.ow()],
            };
            let places = maps.into_iter().fold(c.batch, u64::saturating_mul);
            u32::from(call.pass == Pass::Wgrad || places >= COUNTED_CONVOLUTION)
        }
        _ => 0,
    }
}

fn with_memsets(mut iteration: Iteration) -> Iteration {
    let mut steps = Vec::with_capacity(iteration.steps.len());
    for step in iteration.steps {
        let clears = clears(&step.call);
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
