//! Where the time of one profile goes.

use super::advice::{self, Advice};
use super::attribution::Link;
use super::stalls::{self, Counted};
use super::timeline::{self, Idle, Timeline};
use super::{Analysis, Format, KernelFamily, Profile, Reading, occupancy, origin, parts, window};
use preflop_gpu::Gpu;
use preflop_graph::Phase;
use preflop_time::TimeModel;
use preflop_units::Seconds;
use serde::Serialize;
use std::collections::BTreeMap;

/// A part of the GPU time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    /// What.
    pub name: String,
    /// GPU time of one iteration.
    pub time_ms: f64,
    /// Of all GPU time.
    pub share: f64,
    /// GPU events of one iteration.
    pub launches: f64,
}

/// GPU time without an operator, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Unattributed {
    /// All of it, per iteration.
    pub time_ms: f64,
    /// Share of the kernels' time.
    pub kernel_share: f64,
    /// Replayed from a graph.
    pub graph_ms: f64,
    /// Launched before the recording began.
    pub orphan_ms: f64,
    /// Launched outside any operator.
    pub no_operator_ms: f64,
}

/// What launching costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Launching {
    /// Kernels, copies and memsets of one iteration.
    pub launches: f64,
    /// Median host time of a launch call.
    pub median_call_us: f64,
    /// Host time of all launch calls of one iteration.
    pub host_ms: f64,
    /// Device time that as many empty kernels would take, where the GPU is known.
    pub device_floor_ms: Option<f64>,
}

/// One operator, all its calls in one iteration together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Operator {
    /// Name.
    pub name: String,
    /// Pass.
    pub phase: Option<&'static str>,
    /// Family.
    pub family: KernelFamily,
    /// Calls per iteration.
    pub count: f64,
    /// GPU time of one iteration.
    pub time_ms: f64,
    /// Of all GPU time.
    pub share: f64,
    /// Useful FLOP/s reached, where the shapes are known.
    pub tflops: Option<f64>,
    /// Compulsory traffic per time, where the shapes are known.
    pub gbs: Option<f64>,
    /// Time at the roof (datasheet peak or bandwidth, the slower) over the time taken.
    pub roof_share: Option<f64>,
    /// What the roof is.
    pub bound: Option<&'static str>,
}

/// Occupancy of the kernels, weighted by time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Occupancy {
    /// Mean theoretical occupancy.
    pub mean: f64,
    /// Lowest of all kernels.
    pub lowest: f64,
    /// Kernels above 48 KiB of shared memory, whose occupancy recorders write as 0.
    pub large_shared_kernels: usize,
    /// Lowest of those.
    pub large_shared_lowest: Option<f64>,
}

/// Everything `explain` says.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// File.
    pub source: String,
    /// Tool.
    pub format: Format,
    /// Device as recorded.
    pub device: Option<String>,
    /// Catalogue GPU.
    pub gpu: Option<String>,
    /// Iterations in the window.
    pub iterations: u32,
    /// Time of one iteration as recorded.
    pub iteration_ms: f64,
    /// Sum of GPU event times of one iteration.
    pub gpu_busy_ms: f64,
    /// Time of one iteration with anything on the GPU.
    pub gpu_wall_ms: f64,
    /// Share of the window with anything on the GPU.
    pub gpu_utilisation: f64,
    /// Share of the window with the host at work.
    pub cpu_utilisation: f64,
    /// Host time of one iteration without waits.
    pub host_ms: f64,
    /// The GPU's span, whole window.
    pub timeline: Timeline,
    /// Idle time of one iteration, by cause.
    pub idle: Idle,
    /// Work without an operator.
    pub unattributed: Unattributed,
    /// By family.
    pub families: Vec<Part>,
    /// By number format.
    pub dtypes: Vec<Part>,
    /// By tensor-core use.
    pub tensor_cores: Vec<Part>,
    /// By pass.
    pub phases: Vec<Part>,
    /// By module, the largest.
    pub modules: Vec<Part>,
    /// Launching.
    pub launching: Launching,
    /// Occupancy, where the GPU is known.
    pub occupancy: Option<Occupancy>,
    /// Operators, the longest first.
    pub operators: Vec<Operator>,
    /// Kernels with counters.
    pub counters: Vec<Counted>,
    /// What would help, the best first.
    pub advice: Vec<Advice>,
    /// What to know about the recording.
    pub notes: Vec<String>,
    /// What reading the file gave.
    pub reading: Reading,
}

/// Modules and counted kernels shown at most.
const MOST_PARTS: usize = 20;

/// Explains an analysed profile; `gpu` is where it ran, if known.
pub fn explain(analysis: &Analysis, model: &TimeModel, gpu: Option<&Gpu>) -> Explanation {
    let profile = analysis.profile;
    let n = analysis.iterations();
    let measured = analysis.measured();
    let idle = timeline::idle(profile, &analysis.window, &analysis.links, |e| analysis.class(e).family);
    let idle = Idle {
        host_bound_ms: idle.host_bound_ms / n,
        launch_gaps_ms: idle.launch_gaps_ms / n,
        sync_ms: idle.sync_ms / n,
        communication_ms: idle.communication_ms / n,
    };
    let wall = analysis.gpu_wall();
    let launching = launching(analysis, gpu);
    let device = profile
        .devices
        .iter()
        .find(|d| d.id == i64::from(analysis.window.device))
        .or(profile.devices.first())
        .map(|d| d.name.clone())
        .filter(|name| !name.is_empty());
    let [families, dtypes, tensor_cores, phases, mut modules] = parts::all(analysis);
    modules.truncate(MOST_PARTS);
    let mut explanation = Explanation {
        source: profile.source.clone(),
        format: profile.format,
        device,
        gpu: gpu.map(|g| g.name.clone()),
        iterations: analysis.window.iterations,
        iteration_ms: measured.ms(),
        gpu_busy_ms: analysis.gpu_busy().ms(),
        gpu_wall_ms: wall.ms(),
        gpu_utilisation: if measured.0 > 0.0 { wall / measured } else { 0.0 },
        cpu_utilisation: timeline::host_utilisation(profile, &analysis.window),
        host_ms: analysis.host().ms(),
        timeline: timeline::split(analysis.events().map(|(e, _)| (e, analysis.class(&e).family))),
        idle,
        unattributed: unattributed(analysis),
        families,
        dtypes,
        tensor_cores,
        phases,
        modules,
        launching,
        occupancy: gpu.and_then(|gpu| occupancies(analysis, gpu)),
        operators: operators(analysis, gpu),
        counters: counters(profile),
        advice: Vec::new(),
        notes: notes(analysis),
        reading: profile.reading.clone(),
    };
    explanation.advice = advice::advise(analysis, model, gpu, &explanation);
    explanation
}

fn unattributed(analysis: &Analysis) -> Unattributed {
    let n = analysis.iterations();
    let sum = |link: Link| {
        let sum: Seconds = analysis.groups.iter().filter(|g| g.link == link).map(|g| g.time).sum();
        (Seconds::ZERO + sum).ms() / n
    };
    Unattributed {
        time_ms: analysis.unattributed().ms(),
        kernel_share: analysis.unattributed_kernel_share(),
        graph_ms: sum(Link::Graph),
        orphan_ms: sum(Link::Orphan),
        no_operator_ms: sum(Link::NoOperator),
    }
}

fn launching(analysis: &Analysis, gpu: Option<&Gpu>) -> Launching {
    let profile = analysis.profile;
    let inside = |t: i64| (analysis.window.start_ns..analysis.window.end_ns).contains(&t);
    let median = timeline::median_launch_ns(profile);
    // Blocked launches are waits; each counts as a median one here.
    let host: f64 = profile
        .calls
        .iter()
        .filter(|c| c.kind == super::CallKind::Launch && inside(c.start_ns))
        .map(|c| if c.dur_ns > median.saturating_mul(timeline::BLOCKED_LAUNCH) { median } else { c.dur_ns } as f64)
        .sum();
    let n = analysis.iterations();
    let launches = analysis.window.events.len() as f64 / n;
    Launching {
        launches,
        median_call_us: median as f64 / 1e3,
        host_ms: host / 1e6 / n,
        device_floor_ms: gpu.map(|g| (g.kernel_floor * launches).ms()),
    }
}

/// Shared memory above which a kernel must ask for it, and above which Kineto writes no occupancy.
const LARGE_SHARED_BYTES: u32 = 48 * 1024;

fn occupancies(analysis: &Analysis, gpu: &Gpu) -> Option<Occupancy> {
    let (mut sum, mut weight, mut lowest) = (0.0, 0.0, f64::INFINITY);
    let (mut large, mut large_lowest) = (0, f64::INFINITY);
    for (event, _) in analysis.events() {
        let Some(value) = occupancy::occupancy(&event, gpu) else { continue };
        sum += value * event.dur_ns as f64;
        weight += event.dur_ns as f64;
        lowest = value.min(lowest);
        if event.shared_bytes > LARGE_SHARED_BYTES {
            large += 1;
            large_lowest = value.min(large_lowest);
        }
    }
    (weight > 0.0).then(|| Occupancy {
        mean: sum / weight,
        lowest,
        large_shared_kernels: large,
        large_shared_lowest: (large > 0).then_some(large_lowest),
    })
}

#[derive(Default)]
struct Sum {
    count: u64,
    time: f64,
    known_time: f64,
    flops: f64,
    bytes: f64,
    flop_roof: f64,
    byte_roof: f64,
    roof: f64,
}

fn operators(analysis: &Analysis, gpu: Option<&Gpu>) -> Vec<Operator> {
    type Key<'a> = (&'static str, &'a str, Option<&'static str>, KernelFamily);
    let mut sums: BTreeMap<Key, Sum> = BTreeMap::new();
    let mut all = 0.0;
    for group in &analysis.groups {
        let (origin, name) = match group.link {
            Link::Operator(_) => ("", analysis.profile.names.text(group.name)),
            Link::Graph => ("(graph) ", group.family.name()),
            Link::Orphan => ("(before the window) ", group.family.name()),
            Link::NoOperator => ("(no operator) ", group.family.name()),
        };
        let sum = sums.entry((origin, name, group.phase.map(Phase::name), group.family)).or_default();
        sum.count += u64::from(group.calls());
        sum.time += group.time.0;
        all += group.time.0;
        if let Some(work) = analysis.work(group).filter(|w| w.bytes.0 > 0.0) {
            sum.known_time += group.time.0;
            sum.flops += work.flops.0;
            sum.bytes += work.bytes.0;
            if let Some(gpu) = gpu {
                let rate = match group.dtype {
                    Some(d) if group.family.kernels_vary() => gpu.peak(d),
                    Some(d) => gpu.plain_peak(d),
                    None => gpu.plain_peak(preflop_units::Dtype::Fp32),
                };
                let (f, b) = ((work.flops / rate).0, (work.bytes / gpu.dram).0);
                sum.flop_roof += f;
                sum.byte_roof += b;
                sum.roof += f.max(b);
            }
        }
    }
    let n = analysis.iterations();
    let mut rows: Vec<Operator> = sums
        .into_iter()
        .map(|((origin, name, phase, family), s)| {
            let known = s.known_time > 0.0;
            Operator {
                name: format!("{origin}{name}"),
                phase,
                family,
                count: s.count as f64 / n,
                time_ms: s.time * 1e3 / n,
                share: if all > 0.0 { s.time / all } else { 0.0 },
                tflops: known.then(|| s.flops / s.known_time / 1e12),
                gbs: known.then(|| s.bytes / s.known_time / 1e9),
                roof_share: (known && gpu.is_some()).then(|| s.roof / s.known_time),
                bound: (known && gpu.is_some()).then_some(if s.flop_roof > s.byte_roof {
                    "compute"
                } else {
                    "dram"
                }),
            }
        })
        .collect();
    rows.sort_by(|a, b| b.time_ms.total_cmp(&a.time_ms).then_with(|| a.name.cmp(&b.name)));
    rows
}

fn counters(profile: &Profile) -> Vec<Counted> {
    let mut counted: Vec<Counted> =
        profile.counters.iter().map(|c| stalls::read(c, &profile.names)).collect();
    counted.sort_by(|a, b| {
        let weight = |c: &Counted| c.time_us.unwrap_or_else(|| c.flops.total());
        weight(b).total_cmp(&weight(a))
    });
    counted
}

fn notes(analysis: &Analysis) -> Vec<String> {
    let profile = analysis.profile;
    let mut notes = Vec::new();
    let steps = window::steps(profile);
    if steps.len() > 1 && analysis.window.iterations > 1 {
        notes.push(format!("{} steps; times are means of one", steps.len()));
    }
    for (device, busy) in &analysis.window.other_devices {
        notes.push(format!("device {device} is not shown; it is busy for {:.3} ms", *busy as f64 / 1e6));
    }
    let shapes = profile.ops.iter().any(|o| !o.dims.is_empty());
    if !shapes && !profile.ops.is_empty() {
        notes.push(
            "no operator shapes were recorded (record_shapes=True gives FLOP/s and better transfers)".into(),
        );
    }
    if profile.format == Format::Kineto {
        notes.push("the profiler itself slows the host by about 1.2 to 1.5 times".into());
    }
    notes
}

/// Explains a profile without GPU times: operators with their work, or counters alone.
pub fn explain_untimed(profile: &Profile) -> Untimed {
    let mut sums: BTreeMap<String, (u64, f64, f64)> = BTreeMap::new();
    for op in &profile.ops {
        let sum = sums.entry(profile.names.text(op.name).to_string()).or_default();
        sum.0 += 1;
        if let Some(work) = super::operators::work(&op, &profile.names) {
            sum.1 += work.flops.0;
            sum.2 += work.bytes.0;
        }
    }
    let mut operators: Vec<UntimedOperator> = sums
        .into_iter()
        .map(|(name, (count, flops, bytes))| UntimedOperator { name, count, flops, bytes })
        .collect();
    operators.sort_by(|a, b| {
        b.flops.total_cmp(&a.flops).then(b.bytes.total_cmp(&a.bytes)).then(b.count.cmp(&a.count))
    });
    Untimed {
        source: profile.source.clone(),
        format: profile.format,
        gpu: profile.devices.first().and_then(origin::find).map(|g| g.name),
        operators,
        counters: counters(profile),
        reading: profile.reading.clone(),
    }
}

/// What a recording without GPU times says.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Untimed {
    /// File.
    pub source: String,
    /// Tool.
    pub format: Format,
    /// Catalogue GPU.
    pub gpu: Option<String>,
    /// Operators, the most work first.
    pub operators: Vec<UntimedOperator>,
    /// Kernels with counters.
    pub counters: Vec<Counted>,
    /// What reading the file gave.
    pub reading: Reading,
}

/// One operator, all calls together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UntimedOperator {
    /// Name.
    pub name: String,
    /// Calls.
    pub count: u64,
    /// Useful FLOPs, 0 where unknown.
    pub flops: f64,
    /// Compulsory traffic, 0 where unknown.
    pub bytes: f64,
}
