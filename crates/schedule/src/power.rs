//! The board's power limit, where it binds a whole iteration.
//!
//! ```text
//! t >= (e_f * F + e_b * B) / (P - P_0)
//! ```
//!
//! Where F are the FLOPs on 16-bit and 8-bit tensor cores, B the bytes through DRAM, P the limit of the board, P_0 what it draws whatever it does, e_f and e_b joules
//! of one FLOP and of one byte. Single products were measured in bursts too short for the limit to bind; iterations that
//! consist of them run into it. The three constants were read off prefills of an H200 (`llm.csv`: a model of 8 G parameters ran at 445 to 500 TFLOP/s in the mean
//! where its operators alone allow 525 to 545, one of 1.5 G at 410 without loss), so those runs are no check of them.

use crate::iteration::IterationPrediction;
use preflop_gpu::{Architecture, Gpu};
use preflop_graph::Iteration;
use preflop_ops::{Op, OpCall};
use preflop_units::Seconds;
use preflop_units::dtype::Dtype;

/// Joules of one FLOP on tensor cores with its share of registers, shared memory and L2.
const JOULES_PER_FLOP: f64 = 1.0e-12;
/// The same on Blackwell, whose tensor cores keep sums in a memory of their own, over Hopper's: products of a sixth of a second and more, which the
/// limit binds, hold 701 TFLOP/s on an H100 of 700 W and 1,263 on a B200 of 1,000 W (32,768 x 51,200 x 65,536 in `gemm_bf16.csv.gz` of
/// aiconfigurator): (786 W / 1,263) / (550 W / 701).
const BLACKWELL_SHARE: f64 = 0.79;
/// Joules of one byte through DRAM and L2.
const JOULES_PER_BYTE: f64 = 60e-12;
/// What a board of this class draws beside, as a share of its limit (150 of 700 W).
const IDLE_SHARE: f64 = 150.0 / 700.0;
/// FLOPs in 8 bits cost so much of those in 16.
const EIGHT_BITS: f64 = 0.5;

fn joules_per_flop(gpu: &Gpu) -> f64 {
    let share = if gpu.architecture == Architecture::Blackwell { BLACKWELL_SHARE } else { 1.0 };
    JOULES_PER_FLOP * share
}

/// Tensor-core FLOPs of a call in units of 16-bit ones.
fn tensor_flops(call: &OpCall, flops: f64) -> f64 {
    let products = matches!(call.op, Op::Gemm(_) | Op::Conv(_) | Op::Attention(_) | Op::Rnn(_));
    match call.dtype {
        _ if !products => 0.0,
        Dtype::Bf16 | Dtype::Fp16 => flops,
        Dtype::Fp8 | Dtype::Int8 => EIGHT_BITS * flops,
        _ => 0.0,
    }
}

/// Slows the products of an iteration that would draw more than the board allows.
pub(crate) fn keep_within(iteration: &Iteration, out: &mut IterationPrediction, gpu: &Gpu) {
    let watts = gpu.tdp_w * (1.0 - IDLE_SHARE);
    let (mut flops, mut products) = (0.0, 0.0);
    for s in &out.steps {
        let work = tensor_flops(&iteration.steps[s.step].call, s.one.flops.0) * s.count;
        if work > 0.0 {
            flops += work;
            products += s.one.time.0 * s.count;
        }
    }
    let least = (joules_per_flop(gpu) * flops + JOULES_PER_BYTE * out.dram.0) / watts.max(1.0);
    let beyond = least - out.gpu_wall.0;
    if beyond <= 0.0 || products <= 0.0 {
        return;
    }
    let slower = 1.0 + beyond / products;
    for s in &mut out.steps {
        if tensor_flops(&iteration.steps[s.step].call, s.one.flops.0) > 0.0 {
            s.one.time = s.one.time * slower;
            s.one.low = s.one.low * slower;
            s.one.high = s.one.high * slower;
        }
    }
    let stretch = least / out.gpu_wall.0;
    out.gpu_wall = Seconds(least);
    out.gpu_busy = out.gpu_busy * stretch;
}
