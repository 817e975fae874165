//! How DDP scales in one box against one measured GPU: whole networks on 2 to 16 GPUs.
//!
//! ```text
//! ratio = 1 / (1 + imbalance(model) * c(n) + exposed / t1)
//! exposed = max(bytes * 2(n-1)/n / bus(n) - overlap * t1, the last bucket)
//! ```
//!
//! Where t1 is the measured time of one GPU. The imbalance of a model and the buses are fitted on other GPUs than the one predicted.

use super::Pair;
use crate::data_parallel::largest_of;
use crate::interval::{LogInterval, quantile};
use serde::Deserialize;
use std::collections::HashMap;

/// A row of `ddp_scaling.csv`.
#[derive(Debug, Clone, Deserialize)]
#[allow(missing_docs)]
pub struct Row {
    pub system: String,
    pub gpu: String,
    pub gpus: u64,
    pub nvlink_bridge: String,
    pub model: String,
    pub precision: String,
    pub batch_per_gpu: Option<f64>,
    pub throughput_one_gpu_same_batch: Option<f64>,
    pub scaling_efficiency: Option<f64>,
    pub trap: String,
    pub virtual_machine: String,
}

/// What joins the GPUs of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Box {
    /// NVLink on a board.
    Nvlink,
    /// PCI Express 4 with peer access.
    PciePeer,
    /// Older or consumer cards, with or without bridges.
    PcieOther,
    /// Virtual machines.
    Virtual,
}

impl Box {
    /// Other boxes whose links are known as well: GPUs that reach each other's memory at the rate of a bus that its standard gives.
    fn alike(self) -> &'static [Self] {
        match self {
            Self::Nvlink => &[Self::PciePeer],
            Self::PciePeer => &[Self::Nvlink],
            Self::PcieOther | Self::Virtual => &[],
        }
    }
}

/// A usable row.
#[derive(Debug, Clone)]
pub struct Run {
    /// GPU.
    pub gpu: String,
    /// What joins them.
    pub joined: Box,
    /// Network.
    pub model: String,
    bus: &'static str,
    gpus: f64,
    /// Seconds of one GPU alone.
    alone: f64,
    bytes: f64,
    efficiency: f64,
    family: String,
    precision: String,
}

/// Millions of parameters, and units of throughput in one sample, by network.
const NETWORKS: &[(&str, f64, f64)] = &[
    ("bert_base_squad", 108.9, 1.0),
    ("bert_large_squad", 335.0, 1.0),
    // About 50 tokens in a sentence pair, about 600 frames in an utterance.
    ("gnmt", 160.0, 50.0),
    ("maskrcnn", 44.2, 1.0),
    ("resnet50", 25.6, 1.0),
    ("ssd", 23.0, 1.0),
    ("tacotron2", 28.2, 600.0),
];

fn yes(text: &str) -> bool {
    text.eq_ignore_ascii_case("true")
}

impl Row {
    fn run(&self) -> Option<Run> {
        if !self.trap.is_empty() {
            return None;
        }
        let (_, millions, units) = NETWORKS.iter().find(|(name, ..)| *name == self.model)?;
        let alone = self.batch_per_gpu? * units / self.throughput_one_gpu_same_batch?;
        // GNMT's trainer reduces fp32 gradients in either format: both take the same time on slow buses.
        let size = if self.precision == "FP16" && self.model != "gnmt" { 2.0 } else { 4.0 };
        let (bus, joined) = match self.gpu.as_str() {
            g if g.starts_with("A100-SXM") => ("nvlink3", Box::Nvlink),
            g if g.starts_with("V100-SXM2") => ("nvlink2", Box::Nvlink),
            // The one data-centre card on the bus; workstation cards share switches and sockets in many ways.
            "A40" => ("pcie4", Box::PciePeer),
            "RTX A4000" => ("pcie4", Box::PcieOther),
            "QRTX 8000" => ("pcie3", Box::PcieOther),
            _ => ("geforce", Box::PcieOther),
        };
        // The second series of this A100 lost its peer access: 1 to 2 GB/s of bus, as virtual machines have it.
        let virtual_machine = yes(&self.virtual_machine) || self.system.contains("A100_40GB_SXM4_v1");
        let joined = if virtual_machine { Box::Virtual } else { joined };
        // A virtual machine has the bus that it has, at each number of GPUs: a node file must say it. The two series of V100
        // machines differ.
        let bus = match (joined, bus, self.gpus) {
            (Box::Virtual, "nvlink3", 0..=2) => "virtual a100 x 2",
            (Box::Virtual, "nvlink3", 3..=4) => "virtual a100 x 4",
            (Box::Virtual, "nvlink3", _) => "virtual a100 x 8",
            (Box::Virtual, ..) if !self.system.contains("_v1") => "virtual v100, first series",
            (Box::Virtual, _, 0..=2) => "virtual v100 x 2",
            (Box::Virtual, _, 3..=4) => "virtual v100 x 4",
            (Box::Virtual, ..) => "virtual v100 x 8",
            (_, b, _) if yes(&self.nvlink_bridge) && b == "geforce" => "geforce bridge",
            (_, b, _) => b,
        };
        let digits = self.system.find('x').map_or(0, |i| i + 1);
        Some(Run {
            gpu: self.gpu.clone(),
            joined,
            model: self.model.clone(),
            bus,
            gpus: self.gpus as f64,
            alone,
            bytes: millions * 1e6 * size,
            efficiency: self.scaling_efficiency.filter(|e| e.is_finite() && *e > 0.0)?,
            family: format!("{} {}", self.gpu, &self.system[digits.min(self.system.len())..]),
            precision: self.precision.clone(),
        })
    }
}

/// Usable rows. A series of one network on one system that contradicts itself is dropped whole: where more GPUs give more than
/// their share of what fewer gave, one of the two logs is wrong.
pub fn usable(rows: &[Row]) -> Vec<Run> {
    let runs: Vec<Run> = rows.iter().filter_map(Row::run).collect();
    let series = |r: &Run| (r.family.clone(), r.model.clone());
    let mut broken: Vec<(String, String)> = Vec::new();
    for a in &runs {
        for b in
            runs.iter().filter(|b| b.gpus > a.gpus && series(b) == series(a) && b.precision == a.precision)
        {
            if b.efficiency > 1.05 * a.efficiency {
                broken.push(series(a));
            }
        }
    }
    runs.into_iter().filter(|r| !broken.contains(&series(r))).collect()
}

/// What is fitted.
#[derive(Debug, Clone)]
pub struct Constants {
    imbalance: HashMap<String, f64>,
    bus: HashMap<&'static str, f64>,
    exponent: f64,
    overlap: f64,
}

impl Constants {
    /// Imbalance of each network.
    pub fn imbalances(&self) -> Vec<(&str, f64)> {
        let mut all: Vec<(&str, f64)> = self.imbalance.iter().map(|(m, v)| (m.as_str(), *v)).collect();
        all.sort_unstable_by(|a, b| a.0.cmp(b.0));
        all
    }

    fn exposed(&self, r: &Run) -> f64 {
        let bus = self.bus.get(r.bus).copied().unwrap_or(10.0) * 1e9 * (r.gpus / 2.0).powf(self.exponent);
        let all = r.bytes * 2.0 * (r.gpus - 1.0) / r.gpus / bus;
        let last = all * (25e6 / r.bytes).min(1.0);
        // Without peer access every byte is staged through the host, and copies by the host's hand do not hide.
        let overlap = if r.joined == Box::Virtual { 0.0 } else { self.overlap };
        (all - overlap * r.alone).max(last) / r.alone
    }

    /// Time of one GPU over the time of all.
    pub fn ratio(&self, r: &Run) -> f64 {
        let imbalance = self.imbalance.get(&r.model).copied().unwrap_or(crate::data_parallel::EVEN_IMBALANCE);
        1.0 / (1.0 + imbalance * largest_of(r.gpus) + self.exposed(r))
    }

    /// The median over runs of what imbalance would explain.
    ///
    /// Runs that mostly wait for links say nothing about it, and virtual machines differ among themselves.
    fn settle(&mut self, runs: &[&Run]) {
        let mut by_model: HashMap<String, Vec<f64>> = HashMap::new();
        for r in runs {
            let exposed = self.exposed(r);
            if exposed > MOSTLY_LINKS || r.joined == Box::Virtual {
                continue;
            }
            let left = 1.0 / r.efficiency - 1.0 - exposed;
            by_model.entry(r.model.clone()).or_default().push((left / largest_of(r.gpus)).max(0.0));
        }
        for (model, mut values) in by_model {
            values.sort_by(f64::total_cmp);
            self.imbalance.insert(model, quantile(&values, 0.5));
        }
    }
}

/// Exposed share from which a run is about its links.
const MOSTLY_LINKS: f64 = 0.1;

fn error(c: &Constants, runs: &[&Run]) -> f64 {
    runs.iter().map(|r| (c.ratio(r) / r.efficiency).ln().abs()).sum::<f64>() / runs.len().max(1) as f64
}

/// Constants that fit these runs: buses one at a time on a grid, imbalances as medians of what is left.
pub fn fit(runs: &[&Run]) -> Constants {
    let start = [
        ("nvlink3", 150.0),
        ("nvlink2", 60.0),
        ("pcie4", 20.0),
        ("pcie3", 10.0),
        ("geforce", 4.0),
        ("geforce bridge", 6.0),
        ("virtual a100 x 2", 2.0),
        ("virtual a100 x 4", 2.0),
        ("virtual a100 x 8", 2.0),
        ("virtual v100, first series", 30.0),
        ("virtual v100 x 2", 6.0),
        ("virtual v100 x 4", 6.0),
        ("virtual v100 x 8", 6.0),
    ];
    let mut best = Constants {
        imbalance: HashMap::new(),
        bus: start.into_iter().collect(),
        exponent: -0.3,
        overlap: 0.5,
    };
    best.settle(runs);
    let mut least = error(&best, runs);
    for round in 0..12 {
        let step: f64 = if round < 6 { 1.4 } else { 1.1 };
        let names: Vec<&str> =
            start.iter().map(|(n, _)| *n).filter(|n| runs.iter().any(|r| r.bus == *n)).collect();
        let mut try_one = |tried: Constants, best: &mut Constants| {
            let mut tried = tried;
            tried.settle(runs);
            let e = error(&tried, runs);
            if e < least - 1e-6 {
                least = e;
                *best = tried;
            }
        };
        for name in names {
            for factor in [step, 1.0 / step] {
                let mut tried = best.clone();
                if let Some(bus) = tried.bus.get_mut(name) {
                    *bus *= factor;
                }
                try_one(tried, &mut best);
            }
        }
        for delta in [0.1, -0.1] {
            let tried = Constants { exponent: (best.exponent + delta).clamp(-1.5, 0.0), ..best.clone() };
            try_one(tried, &mut best);
            let tried = Constants { overlap: (best.overlap + delta).clamp(0.0, 0.67), ..best.clone() };
            try_one(tried, &mut best);
        }
    }
    best
}

/// Runs of one kind of box, each GPU predicted from all others; beside them what perfect scaling would say.
///
/// Virtual machines are predicted network by network instead: their buses come from the other networks on the same machine, as a
/// user would measure and write them into a node file. Intervals come from the errors of what else was left out in boxes of the same kind of
/// evidence; they grow with the share of time that waits for links.
pub fn left_out_gpus(runs: &[Run], joined: Box) -> (Vec<Pair>, Vec<Pair>) {
    let none = LogInterval { low: 0.0, high: 0.0 };
    let predicted = left_out(runs, joined);
    let peers: Vec<LeftOut<'_>> = joined.alike().iter().flat_map(|kind| left_out(runs, *kind)).collect();
    let (mut ours, mut perfect) = (Vec::new(), Vec::new());
    for p in &predicted {
        let others = predicted.iter().filter(|o| o.part != p.part).chain(&peers);
        let errors = others.map(|o| (o.part.as_str(), (o.run.efficiency / o.ratio).ln() / o.doubt()));
        let unit = LogInterval::either_way_by(errors).unwrap_or(none);
        let interval = LogInterval { low: unit.low * p.doubt(), high: unit.high * p.doubt() };
        let system = format!("{} {}", p.part, p.run.family);
        let measured = p.run.efficiency;
        ours.push(Pair { system: system.clone(), measured, predicted: p.ratio, interval, unmeasured: 0.0 });
        perfect.push(Pair { system, measured, predicted: 1.0, interval: none, unmeasured: 0.0 });
    }
    (ours, perfect)
}

/// A run predicted from others.
struct LeftOut<'a> {
    /// What was left out together.
    part: String,
    run: &'a Run,
    ratio: f64,
    /// Share of the time that waits for links.
    links: f64,
}

impl LeftOut<'_> {
    /// What errors are measured in: buses are known to a factor, compute of one GPU is measured.
    fn doubt(&self) -> f64 {
        MEASURED_ALONE + self.links
    }
}

/// Error of a ratio without any wait for links, in units of the error of a bus.
const MEASURED_ALONE: f64 = 0.05;

fn left_out(runs: &[Run], joined: Box) -> Vec<LeftOut<'_>> {
    let name = |r: &Run| if joined == Box::Virtual { r.model.clone() } else { r.gpu.clone() };
    let mut parts: Vec<String> = runs.iter().filter(|r| r.joined == joined).map(name).collect();
    parts.sort_unstable();
    parts.dedup();
    let mut out = Vec::new();
    for part in parts {
        let is_out = |r: &Run| name(r) == part && (joined != Box::Virtual || r.joined == Box::Virtual);
        let rest: Vec<&Run> = runs.iter().filter(|r| !is_out(r)).collect();
        let constants = fit(&rest);
        for run in runs.iter().filter(|r| r.joined == joined && is_out(r)) {
            let ratio = constants.ratio(run);
            out.push(LeftOut { part: part.clone(), run, ratio, links: ratio * constants.exposed(run) });
        }
    }
    out
}
