//! The study of five applications on seven GPUs, predicted instead of measured.
//!
//! After A. Jayarajan and A. Fedorova (University of British Columbia), a poster on the hardware needs of
//! deep-learning training: throughput, cost effectiveness with GPU and CPU, utilisation of both, sources of
//! inefficiency, NVIDIA against AMD. All runs share one host, as there. Where the poster counts stalls of warps, this
//! counts the GPU's time by the resource that binds each operator.

use super::fit::{Reserve, prudent_peak};
use super::price::{Catalogue, Pricing};
use preflop_gpu::{Gpu, GpuError, Vendor, catalog};
use preflop_graph::{Iteration, LowerOptions, Mode, ModelError, Precision, zoo};
use preflop_lower::lower;
use preflop_schedule::{IterationPrediction, Schedule as _};
use preflop_time::{Bound, TimeModel};
use preflop_units::dtype::Dtype;
use serde::Serialize;

/// What dominates a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Convolutions.
    Convolution,
    /// Recurrent layers.
    Recurrent,
    /// Attention.
    Attention,
    /// A small network between steps of an environment.
    Reinforcement,
}

/// One model of the study.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Workload {
    /// Application.
    pub application: &'static str,
    /// Name in the zoo.
    pub model: &'static str,
    /// Data it is trained on.
    pub dataset: &'static str,
    /// What dominates it.
    pub kind: Kind,
    /// Samples of one iteration.
    pub batch: u64,
}

const fn workload(
    application: &'static str,
    model: &'static str,
    dataset: &'static str,
    kind: Kind,
    batch: u64,
) -> Workload {
    Workload { application, model, dataset, kind, batch }
}

/// The poster's applications and models, and GNMT beside Sockeye. Its Inception has 22 layers, which is GoogLeNet. It prints no
/// batch sizes: these fit the smallest card (8 GB).
pub const WORKLOADS: [Workload; 9] = [
    workload("Image classification", "resnet50", "ImageNet", Kind::Convolution, 32),
    workload("Image classification", "resnet152", "ImageNet", Kind::Convolution, 16),
    workload("Image classification", "googlenet", "ImageNet", Kind::Convolution, 32),
    workload("Machine translation", "sockeye", "IWSLT15", Kind::Recurrent, 64),
    workload("Machine translation", BEYOND, "IWSLT15", Kind::Recurrent, 32),
    workload("Machine translation", "transformer", "IWSLT15", Kind::Attention, 64),
    workload("Object detection", "faster-rcnn", "Pascal VOC", Kind::Convolution, 1),
    workload("Unsupervised learning", "wgan", "ImageNet-small", Kind::Convolution, 64),
    workload("Reinforcement learning", "a3c", "Atari 2600", Kind::Reinforcement, 20),
];

/// A recurrent network that the poster does not have: its findings are told without it, and it has one of its own.
pub const BEYOND: &str = "gnmt";

/// The poster's table, in its order.
pub const GPUS: [&str; 7] =
    ["titan-xp", "titan-v", "gtx-1080-ti", "p4000", "p100-pcie", "v100-sxm2-16gb", "vega-frontier"];

/// Cards sold to players of games; the poster's finding is about them.
pub const GAMING: [&str; 2] = ["titan-xp", "gtx-1080-ti"];
/// Cards sold for data centres.
pub const DATA_CENTRE: [&str; 2] = ["p100-pcie", "v100-sxm2-16gb"];

/// The same question today.
pub use preflop_gpu::catalog::TODAY;

/// What can stop the study.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StudyError {
    /// Models that this build lacks.
    #[error("this build's zoo lacks {models}, which the study needs; `--models` runs it with others")]
    Missing {
        /// Their names.
        models: String,
    },
    /// A GPU.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// A model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A price.
    #[error(transparent)]
    Cost(#[from] super::CostError),
}

/// One model on one GPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// Name in the zoo.
    pub model: &'static str,
    /// What dominates it.
    pub kind: Kind,
    /// GPU.
    pub gpu: String,
    /// NVIDIA or AMD.
    pub vendor: Vendor,
    /// Samples per second.
    pub samples_per_s: f64,
    /// One iteration.
    pub iteration_ms: f64,
    /// Peak memory.
    pub memory_mib: f64,
    /// Does it fit?
    pub fits: bool,
    /// Share of the time in which the GPU works.
    pub gpu_utilisation: f64,
    /// Share of the time in which the launching core works.
    pub cpu_utilisation: f64,
    /// Useful FLOP/s over the datasheet's.
    pub arithmetic_efficiency: f64,
    /// Shares of the GPU's time bound by compute, DRAM, L2 and latency.
    pub bound_shares: [f64; 4],
    /// Why warps stall, by the poster's classes.
    pub stalls: StallShares,
    /// What binds the whole iteration.
    pub bound: Bound,
    /// Dollars per hour, bought or rented.
    pub usd_per_hour: Option<f64>,
    /// The date of that price.
    pub price_date: Option<super::Date>,
    /// Million samples per dollar.
    pub million_samples_per_usd: Option<f64>,
}

/// Shares of the stalled time by the poster's five classes; what no counters speak for is `other`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StallShares {
    /// An input is not ready yet.
    pub execution_dependency: f64,
    /// Waiting for memory.
    pub memory_dependency: f64,
    /// Waiting at a barrier.
    pub synchronisation: f64,
    /// The pipe is busy.
    pub pipe_busy: f64,
    /// No instruction at hand.
    pub instruction_fetch: f64,
    /// Short kernels, whose stalls were not counted.
    pub other: f64,
}

/// Stalls of kernels that arithmetic binds, in the order of [`StallShares`]: means over the 23 fp32 convolution layers of
/// `data/measured/h200/conv_counters.csv`, short scoreboard and wait, long scoreboard, barrier, math pipe throttle, no instruction,
/// each over the sum of these.
const ARITHMETIC_STALLS: [f64; 5] = [0.336, 0.053, 0.173, 0.270, 0.168];
/// Stalls of kernels that memory binds: the same over the 6 fp16 layers of that file whose bytes take longer than their FLOPs.
const MEMORY_STALLS: [f64; 5] = [0.167, 0.672, 0.116, 0.018, 0.027];

impl StallShares {
    /// From the shares of the GPU's time bound by compute, DRAM, L2 and latency: each brings the stalls that kernels of its
    /// kind were counted with on an H200. An estimate: other GPUs were not counted.
    fn of([compute, dram, l2, latency]: [f64; 4]) -> Self {
        let at = |i: usize| compute * ARITHMETIC_STALLS[i] + (dram + l2) * MEMORY_STALLS[i];
        Self {
            execution_dependency: at(0),
            memory_dependency: at(1),
            synchronisation: at(2),
            pipe_busy: at(3),
            instruction_fetch: at(4),
            other: latency,
        }
    }

    /// In the order of the fields.
    pub fn values(&self) -> [f64; 6] {
        [
            self.execution_dependency,
            self.memory_dependency,
            self.synchronisation,
            self.pipe_busy,
            self.instruction_fetch,
            self.other,
        ]
    }
}

/// Checks that the zoo has every model.
pub fn check(workloads: &[Workload]) -> Result<(), StudyError> {
    let missing: Vec<String> =
        workloads.iter().filter(|w| zoo::info(w.model).is_err()).map(|w| format!("`{}`", w.model)).collect();
    if missing.is_empty() { Ok(()) } else { Err(StudyError::Missing { models: missing.join(", ") }) }
}

/// Every workload on every GPU: training in one precision on one host.
pub fn run(
    model: &TimeModel,
    workloads: &[Workload],
    gpus: &[&str],
    precision: Precision,
    prices: (&Catalogue, Pricing),
) -> Result<Vec<Cell>, StudyError> {
    check(workloads)?;
    let gpus: Vec<Gpu> = gpus.iter().map(|name| catalog::find(name)).collect::<Result<_, _>>()?;
    let mut cells = Vec::with_capacity(workloads.len() * gpus.len());
    for w in workloads {
        let graph = zoo::build(w.model, Some(w.batch), None)?;
        // The study's frameworks had no walks over lists of tensors yet: one tensor at a time.
        let optimizer = Some(graph.optimizer.as_measured());
        let iteration = lower(&graph, &LowerOptions { mode: Mode::Train, precision, optimizer })?;
        for gpu in &gpus {
            let prediction = model.predict_iteration(&iteration, gpu);
            cells.push(cell(w, gpu, &iteration, &prediction, prices));
        }
    }
    Ok(cells)
}

fn cell(
    w: &Workload,
    gpu: &Gpu,
    iteration: &Iteration,
    p: &IterationPrediction,
    (catalogue, pricing): (&Catalogue, Pricing),
) -> Cell {
    let mut bound_shares = [0.0; 4];
    let mut useful_at_peak = 0.0;
    for s in &p.steps {
        let place = match s.one.bound {
            Bound::Compute => 0,
            Bound::Dram => 1,
            Bound::L2 => 2,
            Bound::Latency | Bound::Host => 3,
        };
        bound_shares[place] += s.one.time.0 * s.count / p.gpu_wall.0;
        let dtype = iteration.steps[s.step].call.dtype;
        let dtype = if matches!(dtype, Dtype::Int64 | Dtype::Int8) { Dtype::Fp32 } else { dtype };
        useful_at_peak += (s.one.flops / gpu.peak(dtype)).0 * s.count;
    }
    let quote = catalogue.quote(&gpu.name, pricing);
    let samples_per_s = iteration.samples as f64 / p.time.0;
    Cell {
        model: w.model,
        kind: w.kind,
        gpu: gpu.name.clone(),
        vendor: gpu.vendor,
        samples_per_s,
        iteration_ms: p.time.ms(),
        memory_mib: iteration.memory.peak.mib(),
        fits: Reserve::default().fits(prudent_peak(iteration), gpu),
        gpu_utilisation: (p.gpu_wall / p.time).min(1.0),
        cpu_utilisation: (p.host / p.time).min(1.0),
        arithmetic_efficiency: useful_at_peak / p.time.0,
        bound_shares,
        stalls: StallShares::of(bound_shares),
        bound: p.bound,
        usd_per_hour: quote.as_ref().map(|q| q.usd_per_hour),
        price_date: quote.as_ref().map(|q| q.date),
        million_samples_per_usd: quote.map(|q| samples_per_s * 3600.0 / q.usd_per_hour / 1e6),
    }
}

/// One of the poster's statements, with the figures that bear it out or not.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// As the poster has it.
    pub statement: &'static str,
    /// Do the predictions agree?
    pub holds: bool,
    /// The figures.
    pub figures: String,
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut n) = (0.0, 0);
    for v in values {
        sum += v;
        n += 1;
    }
    if n == 0 { 0.0 } else { sum / f64::from(n) }
}

/// Throughput of a model on one GPU over that on another.
fn speedup(cells: &[Cell], model: &str, fast: &str, slow: &str) -> Option<f64> {
    let on = |gpu: &str| cells.iter().find(|c| c.model == model && c.gpu == gpu).map(|c| c.samples_per_s);
    Some(on(fast)? / on(slow)?)
}

/// The weakest and the strongest NVIDIA GPU of the table by fp32 rate: 5.2 and 15.7 TFLOP/s.
const WEAK: &str = "p4000";
const STRONG: &str = "v100-sxm2-16gb";

/// The poster's statement on recurrent networks, asked of one that it does not have.
pub const BEYOND_STATEMENT: &str =
    "RNN models don't scale well on GPUs: GNMT, which the poster does not have";

/// The poster's findings, tested on cells of its GPUs. A finding about a kind that is missing does not hold.
pub fn findings(cells: &[Cell]) -> Vec<Finding> {
    let models = |kinds: &[Kind]| -> Vec<&'static str> {
        let mut names: Vec<&str> =
            cells.iter().filter(|c| kinds.contains(&c.kind) && c.model != BEYOND).map(|c| c.model).collect();
        names.dedup();
        names
    };
    let speed = |kind: Kind| mean(models(&[kind]).iter().filter_map(|m| speedup(cells, m, STRONG, WEAK)));
    let on_strong = |kinds: &[Kind], value: fn(&Cell) -> f64| {
        let chosen = |c: &&Cell| c.gpu == STRONG && kinds.contains(&c.kind) && c.model != BEYOND;
        mean(cells.iter().filter(chosen).map(value))
    };
    let classifiers = ["resnet50", "resnet152", "googlenet"];
    let conv = mean(classifiers.iter().filter_map(|m| speedup(cells, m, STRONG, WEAK)));
    let rnn = speed(Kind::Recurrent);
    let worth = |gpus: &[&str], model: &str| {
        mean(
            cells
                .iter()
                .filter(|c| c.model == model && gpus.contains(&c.gpu.as_str()))
                .filter_map(|c| c.million_samples_per_usd),
        )
    };
    let all = models(&[Kind::Convolution, Kind::Recurrent, Kind::Attention, Kind::Reinforcement]);
    let gaming_wins = all.iter().filter(|m| worth(&GAMING, m) > worth(&DATA_CENTRE, m)).count();
    let ratio = mean(all.iter().map(|m| worth(&GAMING, m) / worth(&DATA_CENTRE, m)));
    let cpu = |kinds: &[Kind]| on_strong(kinds, |c| c.cpu_utilisation);
    let (cpu_conv, cpu_rnn, cpu_rl) = (
        mean(
            cells
                .iter()
                .filter(|c| c.gpu == STRONG && classifiers.contains(&c.model))
                .map(|c| c.cpu_utilisation),
        ),
        cpu(&[Kind::Recurrent]),
        cpu(&[Kind::Reinforcement]),
    );
    let use_conv = mean(
        cells
            .iter()
            .filter(|c| c.gpu == STRONG && classifiers.contains(&c.model))
            .map(|c| c.arithmetic_efficiency),
    );
    let use_rnn = on_strong(&[Kind::Recurrent], |c| c.arithmetic_efficiency);
    let mut findings = vec![
        Finding {
            statement: "Convolution networks scale well on GPUs",
            holds: conv >= 2.0,
            figures: format!("V100 over P4000, 3.0 times the fp32 rate: image classifiers {conv:.2}x"),
        },
        Finding {
            statement: "RNN models don't scale well on GPUs",
            holds: rnn > 0.0 && rnn < 0.75 * conv,
            figures: format!("V100 over P4000: recurrent {rnn:.2}x, image classifiers {conv:.2}x"),
        },
        Finding {
            statement: "Gaming GPUs are more cost effective",
            holds: !all.is_empty() && gaming_wins == all.len(),
            figures: format!(
                "samples per dollar of GPU and host, TITAN Xp and 1080 Ti over P100 and V100: {ratio:.2}x; more on {gaming_wins} of {} models",
                all.len()
            ),
        },
        Finding {
            statement: "RNN and RL models have high dependency on CPU",
            holds: cpu_rnn > cpu_conv && cpu_rl > cpu_conv && cpu_rnn.min(cpu_rl) >= 0.5,
            figures: format!(
                "CPU busy on the V100: recurrent {:.0} %, reinforcement {:.0} %, image classifiers {:.0} %",
                100.0 * cpu_rnn,
                100.0 * cpu_rl,
                100.0 * cpu_conv
            ),
        },
        Finding {
            statement: "RNN models are very inefficient in utilizing GPUs",
            holds: use_rnn > 0.0 && use_rnn < 0.5 * use_conv,
            figures: format!(
                "share of the V100's fp32 rate used: recurrent {:.1} %, image classifiers {:.1} %",
                100.0 * use_rnn,
                100.0 * use_conv
            ),
        },
    ];
    let beyond = |gpu: &str| cells.iter().find(|c| c.model == BEYOND && c.gpu == gpu);
    if let (Some(gain), Some(cell)) = (speedup(cells, BEYOND, STRONG, WEAK), beyond(STRONG)) {
        findings.push(Finding {
            statement: BEYOND_STATEMENT,
            holds: gain < 0.75 * conv,
            figures: format!(
                "GNMT: V100 over P4000 {gain:.2}x, {:.1} % of the V100's fp32 rate",
                100.0 * cell.arithmetic_efficiency
            ),
        });
    }
    findings
}
