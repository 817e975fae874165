//! The same job on another GPU, from a recording on the one at hand.
//!
//! Two ingredients: wave scaling of single kernels ([`wave`]), and the ratio of our absolute predictions for
//! operators whose kernels change between GPUs. [`iteration`] puts GPU and host time together.

pub mod change;
pub mod iteration;
mod uncertainty;
pub mod wave;

use crate::analysis::Group;
use crate::{Analysis, Format, GpuEvent, GpuKind, KernelFamily, occupancy};
use change::Change;
use iteration::Sides;
use preflop_gpu::Gpu;
use preflop_graph::Phase;
use preflop_ops::OpCall;
use preflop_schedule::Schedule as _;
use preflop_time::TimeModel;
use preflop_units::dtype::Dtype;
use preflop_units::math::Elementary as _;
use preflop_units::{FlopsPerSecond, Seconds};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use uncertainty::Spread;

/// How a group's time is carried over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Wave scaling for every kernel.
    Wave,
    /// The ratio of our predictions wherever shapes are known, wave scaling elsewhere.
    Ratio,
    /// The ratio for operators whose kernels change between GPUs or fill less than a wave, wave scaling for the
    /// others.
    Mixed,
}

impl Method {
    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wave => "wave",
            Self::Ratio => "ratio",
            Self::Mixed => "mixed",
        }
    }
}

/// The method with the smallest error on published rows (docs/papers.md).
pub const DEFAULT: Method = Method::Ratio;

/// Share of the recorded host time that is the job's own; the rest is the PyTorch profiler's. Eight iterations recorded on an
/// H200 against the same iterations without it (`h200/e2e.csv`) are all within 13 % with this.
pub const OWN_HOST_SHARE: f64 = 0.75;

/// The host that the job runs on elsewhere.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Host {
    /// The recorded one, without what the profiler cost it.
    Unprofiled,
    /// The recorded time with a factor: 1 keeps it, 0.8 is a host that is a fifth faster.
    Factor(f64),
    /// Another host, which takes this long for an iteration.
    Time(Seconds),
}

impl Host {
    /// Its time of one iteration. Only the PyTorch profiler works on the host for every operator; the other recorders watch
    /// launches from outside.
    pub fn time(self, analysis: &Analysis) -> Seconds {
        match self {
            Self::Unprofiled if analysis.profile.format == Format::Kineto => analysis.host() * OWN_HOST_SHARE,
            Self::Unprofiled => analysis.host(),
            Self::Factor(factor) => analysis.host() * factor,
            Self::Time(time) => time,
        }
    }
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Method.
    pub method: Method,
    /// The host there.
    pub host: Host,
    /// What else changes.
    pub change: Change,
    /// List every operator with its time on each GPU.
    pub operators: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { method: DEFAULT, host: Host::Unprofiled, change: Change::default(), operators: false }
    }
}

/// How much of the GPU time each way carried over.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Shares {
    /// Wave scaling.
    pub wave: f64,
    /// Ratio of predictions.
    pub ratio: f64,
    /// Ratio of the machines' roofs: products without shapes, copies.
    pub roof: f64,
    /// Kept as it is: communication.
    pub kept: f64,
}

/// One operator, all its calls in one iteration together, here and there.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Carried {
    /// Operator, or family of kernels without one.
    pub name: String,
    /// How it was carried over.
    pub way: Way,
    /// GPU time on the origin.
    pub origin_ms: f64,
    /// GPU time on the target.
    pub time_ms: f64,
}

/// What an iteration waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The GPU's work.
    Gpu,
    /// The host's launches.
    Host,
}

impl Side {
    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Host => "host",
        }
    }
}

/// The job on one GPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Target {
    /// GPU.
    pub gpu: String,
    /// Iteration.
    pub iteration_ms: f64,
    /// Lower end of the 90 % interval.
    pub low_ms: f64,
    /// Upper end of the 90 % interval.
    pub high_ms: f64,
    /// What the interval rests on: how near measurements are to the GPU.
    pub evidence: &'static str,
    /// Sum of kernel times.
    pub gpu_busy_ms: f64,
    /// Host time assumed.
    pub host_ms: f64,
    /// What the iteration waits for: `gpu` or `host`.
    pub bound: Side,
    /// Measured time of a sample over that of one here.
    pub speedup: f64,
    /// How the GPU time was carried over, as shares of the origin's time.
    pub shares: Shares,
    /// Operators, the longest first, if asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub operators: Vec<Carried>,
    /// What to know.
    pub notes: Vec<String>,
}

/// The job elsewhere.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Transfer {
    /// GPU of the recording.
    pub origin: String,
    /// One iteration as recorded.
    pub measured_ms: f64,
    /// Sum of kernel times.
    pub gpu_busy_ms: f64,
    /// Time with anything on the GPU.
    pub gpu_wall_ms: f64,
    /// Host time without waits.
    pub host_ms: f64,
    /// GPU time without an operator.
    pub unattributed_ms: f64,
    /// Its share of the kernel time.
    pub unattributed_share: f64,
    /// Method.
    pub method: Method,
    /// One per GPU asked for.
    pub targets: Vec<Target>,
    /// What to know of all of them.
    pub notes: Vec<String>,
}

/// Carries a profile from `origin` to every GPU of `targets`.
pub fn transfer(
    analysis: &Analysis,
    model: &TimeModel,
    origin: &Gpu,
    targets: &[Gpu],
    options: &Options,
) -> Transfer {
    let targets: Vec<Target> =
        targets.iter().map(|gpu| target(analysis, model, origin, gpu, options)).collect();
    let mut notes = Vec::new();
    if targets.len() > 1 && targets.iter().all(|t| t.bound == Side::Host) {
        notes.push(
            "the recorded host limits every GPU here, so none is faster: a faster host, CUDA graphs or a larger batch \
             would tell them apart"
                .to_string(),
        );
    }
    Transfer {
        origin: origin.name.clone(),
        measured_ms: analysis.measured().ms(),
        gpu_busy_ms: analysis.gpu_busy().ms(),
        gpu_wall_ms: analysis.gpu_wall().ms(),
        host_ms: analysis.host().ms(),
        unattributed_ms: analysis.unattributed().ms(),
        unattributed_share: analysis.unattributed_kernel_share(),
        method: options.method,
        targets,
        notes,
    }
}

/// How one group was carried over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// Wave scaling.
    Wave,
    /// Ratio of our predictions.
    Ratio,
    /// Ratio of the machines' roofs.
    Roof,
    /// Kept as recorded.
    Kept,
}

/// Ratios of predictions by work, and by whether the job's changes apply to it.
type Ratios = HashMap<(u32, bool), Option<(f64, f64)>>;

fn target(analysis: &Analysis, model: &TimeModel, origin: &Gpu, gpu: &Gpu, options: &Options) -> Target {
    let mut ratios = Ratios::new();
    let mut spread = Spread::default();
    let mut shares = Shares::default();
    let (mut here, mut there) = (0.0, 0.0);
    let mut carried: BTreeMap<(String, Way), (f64, f64)> = BTreeMap::new();
    // Only one method asks how the kernels of a group fill the GPU.
    let filled = match options.method {
        Method::Mixed => in_one_wave(analysis, origin),
        Method::Wave | Method::Ratio => vec![false; analysis.groups.len()],
    };
    let plans: Vec<Plan> = analysis
        .groups
        .iter()
        .zip(filled)
        .map(|(group, filled)| plan(analysis, model, group, (origin, gpu), options, &mut ratios, filled))
        .collect();
    let by_wave = analysis.by_group(Seconds::ZERO, |sum, event, place| {
        if let Carry::Waves { gamma, .. } = plans[place].carry {
            *sum += event_time(event, origin, gpu, gamma);
        }
    });
    for ((group, plan), by_wave) in analysis.groups.iter().zip(plans).zip(by_wave) {
        let (way, width) = (plan.way, plan.width);
        let time = match plan.carry {
            Carry::Time(time) => time,
            Carry::Waves { factor, .. } => by_wave * factor,
        };
        here += group.time.0;
        there += time.0;
        spread.add(group.family, way, time, width);
        if options.operators {
            let name = if group.is_unattributed() {
                format!("(unattributed) {}", group.family.name())
            } else {
                analysis.profile.names.text(group.name).to_string()
            };
            let sum = carried.entry((name, way)).or_default();
            sum.0 += group.time.ms() / analysis.iterations();
            sum.1 += time.ms() / analysis.iterations();
        }
        *match way {
            Way::Wave => &mut shares.wave,
            Way::Ratio => &mut shares.ratio,
            Way::Roof => &mut shares.roof,
            Way::Kept => &mut shares.kept,
        } += group.time.0;
    }
    if here > 0.0 {
        for share in [&mut shares.wave, &mut shares.ratio, &mut shares.roof, &mut shares.kept] {
            *share /= here;
        }
    }
    let growth = if here > 0.0 { there / here } else { 1.0 };
    let (measured, wall, host) = (analysis.measured(), analysis.gpu_wall(), analysis.host());
    // Streams overlap there as they do here.
    let host_there = options.host.time(analysis);
    let host_model = model.host_model(gpu);
    let at = |growth: f64, host_there: Seconds| {
        let here = Sides { gpu_wall: wall, host };
        iteration::elsewhere(&host_model, measured, here, Sides { gpu_wall: wall * growth, host: host_there })
    };
    let same = origin.name == gpu.name && options.change.is_none();
    let gpu_width = spread.log_half_width(same);
    let host_width = uncertainty::host_log_half_width(same && options.host == Host::Factor(1.0));
    let time = at(growth, host_there);
    // GPU and host errors are independent: each end moves by both, added in squares.
    let end = |sign: f64| {
        let by_gpu = (at(growth * (sign * gpu_width).exponential(), host_there) / time).natural_log();
        let by_host = (at(growth, host_there * (sign * host_width).exponential()) / time).natural_log();
        time * (sign * by_gpu.hypotenuse(by_host)).exponential()
    };
    Target {
        gpu: gpu.name.clone(),
        iteration_ms: time.ms(),
        low_ms: end(-1.0).ms(),
        high_ms: end(1.0).ms(),
        evidence: model.nearness(gpu).name(),
        gpu_busy_ms: analysis.gpu_busy().ms() * growth,
        host_ms: host_there.ms(),
        bound: if host_there > wall * growth { Side::Host } else { Side::Gpu },
        speedup: measured / time * options.change.batch.unwrap_or(1.0),
        shares,
        operators: sorted(carried),
        notes: notes(analysis, gpu),
    }
}

fn sorted(carried: BTreeMap<(String, Way), (f64, f64)>) -> Vec<Carried> {
    let mut list: Vec<Carried> = carried
        .into_iter()
        .map(|((name, way), (origin_ms, time_ms))| Carried { name, way, origin_ms, time_ms })
        .collect();
    list.sort_by(|a, b| b.time_ms.total_cmp(&a.time_ms));
    list
}

/// How a group is carried over, and the half-width of its interval in the logarithm.
struct Plan {
    carry: Carry,
    way: Way,
    width: f64,
}

/// Where the time of a group on the destination comes from.
enum Carry {
    /// It is known.
    Time(Seconds),
    /// Its kernels are scaled one by one by this memory-boundedness, and their sum by a factor.
    Waves { gamma: f64, factor: f64 },
}

impl Plan {
    fn time(time: Seconds, way: Way, width: f64) -> Self {
        Self { carry: Carry::Time(time), way, width }
    }
}

/// How to carry a group over; `filled` says whether its kernels fit into one wave.
fn plan(
    analysis: &Analysis,
    model: &TimeModel,
    group: &Group,
    (origin, gpu): (&Gpu, &Gpu),
    options: &Options,
    ratios: &mut Ratios,
    filled: bool,
) -> Plan {
    // The optimizer's work has nothing to do with samples, formats and layouts.
    let change = if group.phase == Some(Phase::Optimizer) { Change::default() } else { options.change };
    if group.family == KernelFamily::Communication {
        return Plan::time(group.time, Way::Kept, uncertainty::KEPT_LOG_HALF_WIDTH);
    }
    if change.channels_last && group.family == KernelFamily::Layout {
        return Plan::time(Seconds::ZERO, Way::Kept, 0.0);
    }
    let by_ratio = match options.method {
        Method::Wave => !change.is_none(),
        Method::Ratio => true,
        Method::Mixed => group.family.kernels_vary() || filled,
    };
    if by_ratio {
        let found = group.work.and_then(|w| {
            *ratios
                .entry((w, change.is_none()))
                .or_insert_with(|| ratio(analysis, model, w, (origin, gpu), &change))
        });
        if let Some((factor, width)) = found {
            return Plan::time(group.time * factor, Way::Ratio, width);
        }
        if group.family.kernels_vary() {
            return Plan::time(
                group.time * roof_factor(group, origin, gpu) * change.unknown(group.family),
                Way::Roof,
                uncertainty::ROOF_LOG_HALF_WIDTH,
            );
        }
    }
    let work = analysis.work(group);
    let dtype = group.dtype.unwrap_or(Dtype::Fp32);
    let peak = if group.family.kernels_vary() {
        gpu.sustained_peak(stand_in_dtype(dtype, gpu))
    } else {
        gpu.plain_peak(dtype)
    };
    let gamma = match work {
        Some(work) if work.bytes.0 > 0.0 => wave::gamma(work.flops, work.bytes, peak, gpu),
        _ => unknown_gamma(group.family),
    };
    let carry = Carry::Waves { gamma, factor: change.unknown(group.family) };
    Plan { carry, way: Way::Wave, width: uncertainty::WAVE_LOG_HALF_WIDTH }
}

/// By group: do all its kernels fit into one wave? Such launches are sized to the GPU (grid-stride loops) or bound by
/// latency; either way their blocks say nothing about another GPU, and waves would scale them by chance.
fn in_one_wave(analysis: &Analysis, origin: &Gpu) -> Vec<bool> {
    analysis.by_group(true, |all, event, _| {
        *all &= event.blocks > 0 && event.blocks <= occupancy::wave(event, origin);
    })
}

/// One GPU event elsewhere: kernels by waves, copies and memsets by the bandwidth they use.
fn event_time(event: &GpuEvent, origin: &Gpu, gpu: &Gpu, gamma: f64) -> Seconds {
    let time = Seconds(event.dur_ns as f64 / 1e9);
    match event.kind {
        GpuKind::Kernel => time * wave::factor(event, origin, gpu, gamma),
        GpuKind::CopyHost => time * (origin.host / gpu.host),
        GpuKind::CopyPeer => time,
        GpuKind::CopyDevice | GpuKind::Memset => {
            // What is not bandwidth is latency, and stays.
            let moved = |bandwidth| preflop_units::Bytes(event.bytes as f64) / bandwidth;
            let here = moved(origin.dram_sustained).min(time);
            time - here + here * (origin.dram_sustained / gpu.dram_sustained)
        }
    }
}

/// Memory-boundedness where no shapes are known: products at the ridge, everything else memory-bound.
fn unknown_gamma(family: KernelFamily) -> f64 {
    if family.kernels_vary() { 0.5 } else { 1.0 }
}

/// Ratio of our predictions and its half-width.
fn ratio(
    analysis: &Analysis,
    model: &TimeModel,
    work: u32,
    (origin, gpu): (&Gpu, &Gpu),
    change: &Change,
) -> Option<(f64, f64)> {
    let calls = &analysis.works[work as usize].calls;
    let (mut here, mut there, mut width) = (0.0, 0.0, 0.0);
    for call in calls {
        let (o, d) = (model.predict(call, origin), model.predict(&stand_in(&change.call(call), gpu), gpu));
        here += o.time.0;
        there += d.time.0;
        width += d.time.0 * uncertainty::ratio_log_half_width(&o, &d);
    }
    let factor = there / here;
    (here > 0.0 && there > 0.0 && factor.is_finite()).then(|| (factor, width / there))
}

/// The call in the format that a user would choose there: fp16 where the tensor cores have no bf16 (Volta, Turing).
fn stand_in(call: &OpCall, gpu: &Gpu) -> OpCall {
    let dtype = stand_in_dtype(call.dtype, gpu);
    OpCall { dtype, ..call.clone() }
}

fn stand_in_dtype(dtype: Dtype, gpu: &Gpu) -> Dtype {
    let lacks = dtype == Dtype::Bf16 && !gpu.has_tensor(Dtype::Bf16) && gpu.has_tensor(Dtype::Fp16);
    if lacks { Dtype::Fp16 } else { dtype }
}

/// Why a recording cannot be carried to a GPU: a format of its calls that the GPU lacks, with the nearest that it has. bf16 becomes fp16 where only
/// that is there, and tf32 is fp32 on GPUs without it, as frameworks do by themselves.
pub fn lacks(analysis: &Analysis, gpu: &Gpu) -> Option<String> {
    let calls = analysis.works.iter().flat_map(|w| &w.calls);
    let formats = calls.map(|c| stand_in_dtype(c.dtype, gpu)).filter(|d| *d != Dtype::Tf32);
    let lacking = formats.into_iter().find(|d| d.on_tensor_cores() && !gpu.has(*d))?;
    let nearest = [Dtype::Bf16, Dtype::Fp16].into_iter().find(|d| gpu.has(*d)).unwrap_or(Dtype::Fp32);
    Some(format!("`{}` has no {}; the nearest it has is {}", gpu.name, lacking.name(), nearest.name()))
}

/// Products without shapes: halfway, in the logarithm, between the ratio of peaks and that of bandwidths.
fn roof_factor(group: &Group, origin: &Gpu, gpu: &Gpu) -> f64 {
    let rate = |g: &Gpu| -> FlopsPerSecond {
        match group.dtype {
            Some(dtype) => g.sustained_peak(stand_in_dtype(dtype, g)),
            None if group.tensor_core => g.sustained_peak(Dtype::Bf16),
            None => g.sustained_peak(Dtype::Fp32),
        }
    };
    ((rate(origin) / rate(gpu)) * (origin.dram_sustained / gpu.dram_sustained)).sqrt()
}

fn notes(analysis: &Analysis, gpu: &Gpu) -> Vec<String> {
    let mut notes = Vec::new();
    let mut missing: Vec<&'static str> = Vec::new();
    for group in analysis.groups.iter().filter(|g| g.tensor_core) {
        if let Some(dtype) = group.dtype.filter(|d| !gpu.has_tensor(*d) && !missing.contains(&d.name())) {
            missing.push(dtype.name());
        }
    }
    if !missing.is_empty() {
        notes.push(format!(
            "no tensor cores for {}: runs as the format libraries take instead",
            missing.join(", ")
        ));
    }
    if analysis.groups.iter().any(|g| g.family == KernelFamily::Communication) {
        notes.push("communication is kept as recorded".to_string());
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Profile;
    use crate::fixtures::{call, event, op, profile};
    use crate::window::Choice;
    use preflop_gpu::catalog;

    fn sample() -> Profile {
        let mut p = profile();
        let mut mm = op(&mut p.names, "aten::mm", 0, 100_000);
        mm.dims = p.names.add("[[4096, 4096], [4096, 4096]]");
        mm.types = p.names.add(r#"["c10::BFloat16", "c10::BFloat16"]"#);
        p.ops = vec![mm].into();
        p.calls = vec![call(&mut p.names, 10, 5, 1), call(&mut p.names, 20, 5, 2)].into();
        p.gpu_events = vec![
            event(&mut p.names, "nvjet_tst_128x256", 30_000, 180_000, 1),
            event(&mut p.names, "orphan_elementwise", 300_000, 20_000, 77),
        ]
        .into();
        p
    }

    #[test]
    fn a_round_trip_returns_the_measured_time() {
        let p = sample();
        let a = Analysis::new(&p, &Choice::default()).unwrap();
        let h200 = catalog::find("h200").unwrap();
        for method in [Method::Wave, Method::Ratio, Method::Mixed] {
            let t = transfer(
                &a,
                &TimeModel::embedded(),
                &h200,
                std::slice::from_ref(&h200),
                &Options { method, host: Host::Factor(1.0), ..Options::default() },
            );
            assert!((t.targets[0].iteration_ms / t.measured_ms - 1.0).abs() < 1e-9, "{method:?}");
            assert!(t.targets[0].low_ms < t.measured_ms && t.measured_ms < t.targets[0].high_ms);
        }
    }

    #[test]
    fn a_slower_gpu_takes_longer_and_knows_less() {
        let p = sample();
        let a = Analysis::new(&p, &Choice::default()).unwrap();
        let (h200, t4) = (catalog::find("h200").unwrap(), catalog::find("t4").unwrap());
        let t = transfer(&a, &TimeModel::embedded(), &h200, &[h200.clone(), t4], &Options::default());
        let (same, far) = (&t.targets[0], &t.targets[1]);
        assert!(far.iteration_ms > 2.0 * same.iteration_ms);
        assert!(far.high_ms / far.low_ms > same.high_ms / same.low_ms);
        assert!((far.shares.ratio - 0.9).abs() < 1e-9 && (far.shares.wave - 0.1).abs() < 1e-9);
    }
}
