//! What would help most, with what it would save.

use super::attribution::Link;
use super::explain::Explanation;
use super::{Analysis, KernelFamily};
use preflop_gpu::Gpu;
use preflop_ops::OptimizerKind;
use preflop_time::TimeModel;
use preflop_units::dtype::Dtype;
use serde::Serialize;

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// What is seen and what to do.
    pub text: String,
    /// Milliseconds of one iteration that it would save at most.
    pub saves_ms: f64,
    /// Of the iteration.
    pub share: f64,
}

/// Savings below this share of the iteration are not worth a line.
const WORTH: f64 = 0.02;

/// All that is worth saying, the largest saving first.
pub fn advise(analysis: &Analysis, model: &TimeModel, gpu: Option<&Gpu>, seen: &Explanation) -> Vec<Advice> {
    let mut advice = Vec::new();
    // Nothing saves more than there is.
    let mut add = |saves_ms: f64, text: String| {
        let saves_ms = saves_ms.min(seen.iteration_ms);
        let share = if seen.iteration_ms > 0.0 { saves_ms / seen.iteration_ms } else { 0.0 };
        if share >= WORTH {
            advice.push(Advice { text, saves_ms, share });
        }
    };
    let percent = |ms: f64| if seen.iteration_ms > 0.0 { 100.0 * ms / seen.iteration_ms } else { 0.0 };
    // Kernels that run beside each other shorten the iteration by their share of the GPU's time only.
    let busy = analysis.gpu_busy().ms();
    let alone = if busy > 0.0 { (analysis.gpu_wall().ms() / busy).min(1.0) } else { 1.0 };
    let launch_bound = seen.idle.host_bound_ms + seen.idle.launch_gaps_ms;
    let remedy = if mostly_replayed(analysis) {
        "it is a replayed graph already, so fewer and larger kernels (fusion) or a larger batch"
    } else {
        "CUDA graphs, torch.compile or a larger batch"
    };
    add(launch_bound, format!("{:.0} % of the time is launch-bound: {remedy}", percent(launch_bound)));
    add(
        seen.idle.sync_ms,
        format!(
            "the GPU idles for {:.0} % of the time around waits: fewer .item(), .cpu() and synchronize()",
            percent(seen.idle.sync_ms)
        ),
    );
    let communication =
        seen.timeline.exposed_communication_ms / analysis.iterations() + seen.idle.communication_ms;
    add(
        communication,
        "communication is exposed: larger buckets, overlap with backward, or a faster link".to_string(),
    );
    let copies = seen.timeline.exposed_memcpy_ms / analysis.iterations();
    add(copies, "copies run alone: pin the host memory and copy ahead on another stream".to_string());
    let layout = family_ms(seen, KernelFamily::Layout);
    add(layout * alone, "kernels convert between NCHW and NHWC: keep tensors in channels_last".to_string());
    if let Some((saves, format)) = gpu.and_then(|gpu| tensor_core_saving(analysis, model, gpu)) {
        add(saves * alone, format!("fp32 products run outside the tensor cores: allow {format}"));
    }
    let pointwise = family_ms(seen, KernelFamily::Elementwise) + family_ms(seen, KernelFamily::Copy);
    // A chain of two elementwise kernels fused into one saves the write and the read between them: half.
    add(
        alone * pointwise / 2.0,
        "elementwise kernels and casts move tensors again and again: fuse them (torch.compile), which saves up to half"
            .to_string(),
    );
    if let Some(saves) = optimizer_saving(analysis, seen) {
        add(
            saves * alone,
            "the optimizer runs tensor by tensor: fused=True moves 28 instead of 72 bytes a parameter".into(),
        );
    }
    advice.sort_by(|a, b| b.saves_ms.total_cmp(&a.saves_ms));
    advice
}

/// Does a replayed CUDA graph hold most of the GPU's time?
fn mostly_replayed(analysis: &Analysis) -> bool {
    let of = |replayed: bool| -> f64 {
        let groups = analysis.groups.iter().filter(|g| (g.link == Link::Graph) == replayed);
        groups.map(|g| g.time.0).sum()
    };
    of(true) > of(false)
}

/// GPU time of one iteration that a family takes.
fn family_ms(seen: &Explanation, family: KernelFamily) -> f64 {
    seen.families.iter().find(|part| part.name == family.name()).map_or(0.0, |part| part.time_ms)
}

/// What fp32 products would save on tensor cores, by the ratio of our predictions.
fn tensor_core_saving(analysis: &Analysis, model: &TimeModel, gpu: &Gpu) -> Option<(f64, &'static str)> {
    let (dtype, name) = if gpu.has_tensor(Dtype::Tf32) {
        (Dtype::Tf32, "TF32 (torch.set_float32_matmul_precision('high')) or autocast")
    } else if gpu.has_tensor(Dtype::Fp16) {
        (Dtype::Fp16, "fp16 autocast")
    } else {
        return None;
    };
    let mut saves = 0.0;
    for group in &analysis.groups {
        if group.tensor_core || group.dtype != Some(Dtype::Fp32) || !group.family.kernels_vary() {
            continue;
        }
        let Some(work) = analysis.work(group).filter(|w| !w.calls.is_empty()) else { continue };
        let (mut now, mut then) = (0.0, 0.0);
        for call in &work.calls {
            now += model.predict(call, gpu).time.0;
            let mut faster = call.clone();
            faster.dtype = dtype;
            then += model.predict(&faster, gpu).time.0;
        }
        if now > 0.0 {
            saves += group.time.ms() * (1.0 - then / now).max(0.0);
        }
    }
    Some((saves / analysis.iterations(), name))
}

/// Kernels of one iteration's optimizer from which on it is taken to run tensor by tensor.
const MANY_OPTIMIZER_KERNELS: f64 = 100.0;

fn optimizer_saving(analysis: &Analysis, seen: &Explanation) -> Option<f64> {
    let groups: Vec<_> = analysis
        .groups
        .iter()
        .filter(|g| g.family == KernelFamily::Optimizer)
        .filter(|g| analysis.profile.names.text(g.name).contains("addcdiv"))
        .collect();
    let kernels = groups.iter().map(|g| f64::from(g.calls())).sum::<f64>() / analysis.iterations();
    if kernels < MANY_OPTIMIZER_KERNELS
        || groups.iter().any(|g| analysis.profile.names.text(g.name).contains("foreach"))
    {
        return None;
    }
    let moved = |kind| preflop_ops::Optimizer { kind, params: 1, tensors: 1 }.traffic(4.0).total().0;
    let kept = moved(OptimizerKind::AdamFused) / moved(OptimizerKind::AdamSingle);
    Some(family_ms(seen, KernelFamily::Optimizer) * (1.0 - kept))
}
