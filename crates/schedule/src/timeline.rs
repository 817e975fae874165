//! The launches of an iteration in the order in which they run, with the times at which they start.

use crate::host::HostModel;
use crate::iteration::IterationPrediction;
use preflop_gpu::Gpu;
use preflop_graph::Iteration;
use preflop_kernels::launch::Launch;
use preflop_time::TimeModel;
use preflop_units::Seconds;

/// Launches of one kind, placed in the iteration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scheduled {
    /// Index into the iteration's steps.
    pub step: usize,
    /// What is launched.
    pub launch: Launch,
    /// When the first of them starts, by the GPU's clock: after what came before in its stream, and the pauses between.
    pub start: Seconds,
}

/// All launches of an iteration. A step that runs several times in one place has its launches counted together.
pub fn timeline(
    model: &TimeModel,
    iteration: &Iteration,
    prediction: &IterationPrediction,
    gpu: &Gpu,
    host: &HostModel,
) -> Vec<Scheduled> {
    let mut at = 0.0;
    let mut out = Vec::new();
    for p in &prediction.steps {
        let count = p.count;
        let call = &iteration.steps[p.step].call;
        let call = call.in_format(gpu.runs_in(call.dtype));
        for mut launch in model.launches(&call, &p.one, gpu) {
            launch.count = (f64::from(launch.count) * count) as u32;
            launch.seconds *= count;
            launch.flops *= count;
            launch.bytes = launch.bytes.map(|b| b * count);
            launch.streams = p.streams.ceil() as u32;
            out.push(Scheduled { step: p.step, launch, start: Seconds(at) });
            // Several streams hide each other's pauses.
            let pauses = if launch.streams > 1 { 0.0 } else { host.pauses(f64::from(launch.count)).0 };
            at += launch.seconds + pauses;
        }
    }
    out
}
