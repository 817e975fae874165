//! The report of a recording: measured times, other GPUs by transfer.

use super::{Change, GpuSummary, Question, Report, binds_lines, modules, ms, part, phases, three};
use preflop_cost::energy::Power;
use preflop_gpu::Gpu;
use preflop_profile::Analysis;
use preflop_profile::explain::Explanation;
use preflop_profile::transfer::{Target, Transfer};
use preflop_roofline::{By, Entry, Machine, RowData, Rows, Sources};
use preflop_units::dtype::Dtype;

/// What a report of a recording is made from.
#[derive(Debug, Clone, Copy)]
pub struct Recorded<'a> {
    /// The recording.
    pub analysis: &'a Analysis<'a>,
    /// Where its time goes.
    pub explanation: &'a Explanation,
    /// Its work.
    pub entries: &'a [Entry],
    /// Where that comes from.
    pub sources: &'a Sources,
    /// GPU that it was recorded on.
    pub gpu: &'a Gpu,
    /// Samples of one iteration, if the user says.
    pub samples: Option<u64>,
    /// The same on other GPUs.
    pub transfer: &'a Transfer,
    /// Those GPUs, in the order of the transfer's targets.
    pub targets: &'a [Gpu],
}

/// Power while a recorded iteration runs again and again on a target, by the work that its shapes tell.
pub fn power_of_recording(analysis: &Analysis, target: &Target, gpu: &Gpu) -> Power {
    let mut active = 0.0;
    for group in &analysis.groups {
        let Some(work) = analysis.work(group) else { continue };
        let peak = gpu.peak(work.dtype.filter(|d| Dtype::MATH.contains(d)).unwrap_or(Dtype::Fp32));
        active += (work.flops / peak).max(work.bytes / gpu.dram).0;
    }
    let seconds = target.iteration_ms / 1e3;
    let busy = (target.gpu_busy_ms / target.iteration_ms).min(1.0);
    Power::from_shares(active / analysis.iterations() / seconds, busy, gpu)
}

/// Rows of the table of operators.
const MOST_ROWS: usize = 2000;

fn summary(
    question: &Question,
    place: usize,
    gpu: &Gpu,
    times: [f64; 6],
    samples: Option<u64>,
) -> GpuSummary {
    let [iteration_ms, low_ms, high_ms, gpu_busy_ms, gpu_wall_ms, host_ms] = times;
    let samples_per_s = samples.map(|n| n as f64 / (iteration_ms / 1e3));
    GpuSummary {
        gpu: gpu.name.clone(),
        title: gpu.title.clone(),
        iteration_ms,
        low_ms,
        high_ms,
        samples_per_s,
        memory_mib: None,
        needed_mib: None,
        gpu_memory_mib: gpu.memory.mib(),
        fits: None,
        bound: if host_ms > gpu_busy_ms { "host" } else { "gpu" },
        gpu_busy_ms,
        gpu_wall_ms,
        host_ms,
        ..GpuSummary::priced(question.quote(place), samples_per_s)
    }
}

/// Builds the report of a recording.
pub fn report_of_recording(question: &Question, r: &Recorded) -> Report {
    let seen = r.explanation;
    let machine = Machine::of(r.gpu);
    let families = Rows::new(r.entries, By::Family, &machine);
    // Kernels run beside each other elsewhere as they do here.
    let alone = if seen.gpu_busy_ms > 0.0 { seen.gpu_wall_ms / seen.gpu_busy_ms } else { 1.0 };
    let (iteration, busy) = (seen.iteration_ms, seen.gpu_busy_ms);
    let own = [iteration, iteration, iteration, busy, alone * busy, seen.host_ms];
    let mut gpus = vec![summary(question, 0, r.gpu, own, r.samples)];
    for (i, (gpu, t)) in r.targets.iter().zip(&r.transfer.targets).enumerate() {
        let busy = t.gpu_busy_ms;
        let times = [t.iteration_ms, t.low_ms, t.high_ms, busy, alone * busy, t.host_ms];
        gpus.push(summary(question, i + 1, gpu, times, r.samples));
    }
    let has_modules = r.entries.iter().any(|e| !e.layer.is_empty());
    let rows = Rows::new(r.entries, if has_modules { By::Layer } else { By::Operator }, &machine);
    let (limited, _) = rows.limited(MOST_ROWS);
    Report {
        headline: headline(question, r),
        command: question.command.to_string(),
        version: question.version.to_string(),
        measured: true,
        binds: binds(r, &families),
        to_fit: Vec::new(),
        helps: helps(seen),
        families: families.rows.iter().map(part).collect(),
        modules: modules(r.entries, &machine),
        phases: phases(r.entries, &machine),
        rows_by: if has_modules { "layer" } else { "operator" },
        layers: limited.iter().map(|row| RowData::from(row).rounded()).collect(),
        unmodelled: unmodelled(r.entries),
        assumptions: assumptions(r, gpus.len() > 1),
        accuracy: Vec::new(),
        family_errors: Vec::new(),
        gpus,
    }
}

fn headline(question: &Question, r: &Recorded) -> String {
    let seen = r.explanation;
    let rate = r.samples.map_or_else(String::new, |n| {
        format!(", {} samples per second", three(n as f64 / (seen.iteration_ms / 1e3)))
    });
    format!(
        "{}: {} per iteration on {}{rate}; the GPU is busy {:.0} % of the time.",
        question.title,
        ms(seen.iteration_ms),
        r.gpu.title,
        100.0 * seen.gpu_utilisation
    )
}

fn binds(r: &Recorded, families: &Rows) -> Vec<String> {
    let seen = r.explanation;
    let idle = &seen.idle;
    let mut lines = vec![format!(
        "The GPU works {} of {}; it waits {} for launches by the host, {} between a launch and its start, {} in \
         synchronisation, {} for other GPUs.",
        ms(seen.gpu_wall_ms),
        ms(seen.iteration_ms),
        ms(idle.host_bound_ms),
        ms(idle.launch_gaps_ms),
        ms(idle.sync_ms),
        ms(idle.communication_ms)
    )];
    lines.push(r.sources.sentence());
    lines.extend(binds_lines(families));
    if seen.unattributed.time_ms > 0.0 {
        lines.push(format!(
            "{} have no operator ({} from graphs, {} launched before the recording, {} outside operators).",
            ms(seen.unattributed.time_ms),
            ms(seen.unattributed.graph_ms),
            ms(seen.unattributed.orphan_ms),
            ms(seen.unattributed.no_operator_ms)
        ));
    }
    if families.summary.above_roof > 0 {
        lines.push(
            "Some work lies above a roof: its bytes came from a cache, or the data are wrong.".to_string(),
        );
    }
    lines
}

fn helps(seen: &Explanation) -> Vec<Change> {
    seen.advice
        .iter()
        .map(|a| {
            let then = (seen.iteration_ms - a.saves_ms).max(0.01 * seen.iteration_ms);
            Change {
                change: a.text.clone(),
                iteration_ms: then,
                speedup: seen.iteration_ms / then,
                note: "at most".to_string(),
            }
        })
        .collect()
}

/// Operators and kernels whose work is unknown, by name.
fn unmodelled(entries: &[Entry]) -> Vec<super::Unmodelled> {
    let total: f64 = entries.iter().map(|e| e.work.time.0).sum();
    let mut found: std::collections::BTreeMap<&str, (f64, f64)> = std::collections::BTreeMap::new();
    for entry in entries.iter().filter(|e| e.work.is_unknown()) {
        let sums = found.entry(entry.op.as_str()).or_default();
        sums.0 += entry.count;
        sums.1 += entry.work.time.0;
    }
    let mut list: Vec<super::Unmodelled> = found
        .into_iter()
        .map(|(name, (calls, time))| super::Unmodelled {
            name: name.to_string(),
            calls,
            share: if total > 0.0 { time / total } else { 0.0 },
        })
        .collect();
    list.sort_by(|a, b| b.share.total_cmp(&a.share));
    list.truncate(MOST_UNMODELLED);
    list
}

/// Names listed at most; the sentence on sources has the share of all.
const MOST_UNMODELLED: usize = 40;

fn assumptions(r: &Recorded, transferred: bool) -> Vec<String> {
    let seen = r.explanation;
    let mut lines = vec![format!(
        "Times are as recorded ({}), {}.",
        seen.format.name(),
        match seen.iterations {
            0 | 1 => "one iteration".to_string(),
            n => format!("the mean of {n} iterations"),
        }
    )];
    if r.sources.modelled.launches > 0.0 {
        lines.push(
            "Where there are no counters, bytes are those our model has for the recorded shapes; bytes served by \
             a cache can so lie above a roof."
                .to_string(),
        );
    }
    if transferred {
        lines.push(format!(
            "Other GPUs by `preflop transfer` ({} method), with its 90 % interval, on the same host.",
            r.transfer.method.name()
        ));
    }
    lines.push(
        "A recording does not say how much memory the job needs, nor how many samples an iteration has; `--batch` does."
            .to_string(),
    );
    lines.extend(seen.notes.iter().cloned());
    lines
}
