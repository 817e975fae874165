//! What would make a run fit: changes on its GPU, alone and together, and another GPU; each with its price in time.
//!
//! Every change is lowered and predicted, never guessed. Of changes together only those are named of which no part is enough. Several GPUs are
//! added by `preflop-cluster`.

use crate::fit::{largest_batch, prudent_peak};
use crate::rank::usd_per_million_samples;
use crate::search::lacks;
use crate::{Catalogue, Pricing, Reserve};
use preflop_gpu::{Gpu, catalog};
use preflop_graph::{
    Checkpoint, Graph, Implementation, Iteration, LowerOptions, Mode, OptimizerChoice, Precision, Rule,
};
use preflop_lower::Form;
use preflop_schedule::{Known, Schedule as _};
use preflop_time::TimeModel;
use preflop_units::{Bytes, Seconds};
use serde::Serialize;
use std::collections::HashMap;
use std::rc::Rc;

/// A change that needs less memory, or has more, and what it does to the time.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct Change {
    /// In words.
    pub change: String,
    /// As options of the command line.
    pub options: Vec<String>,
    /// Peak with the change, of one GPU.
    pub memory_mib: f64,
    /// Does it fit now?
    pub fits: bool,
    /// Time of one iteration.
    pub iteration_ms: f64,
    /// Samples per second, of all GPUs.
    pub samples_per_s: f64,
    /// Time of one sample over that of the run that was asked for, had it fitted.
    pub time_ratio: f64,
    /// The GPU, where it is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub gpu: Option<String>,
    /// GPUs that it takes.
    pub gpus: u64,
}

/// A run, with what may be changed about it. Made once, asked for any number of GPUs.
#[derive(Debug)]
pub struct Room<'a, Network> {
    options: LowerOptions,
    form: Form,
    iteration: &'a Iteration,
    network: Network,
    lowered: HashMap<(Vec<Lever>, u64), Option<Rc<Iteration>>>,
}

/// A GPU on which the run does not fit.
#[derive(Debug, Clone, Copy)]
pub struct Misfit<'a> {
    /// Predicts.
    pub model: &'a TimeModel,
    /// The GPU.
    pub gpu: &'a Gpu,
    /// What must stay free.
    pub reserve: &'a Reserve,
    /// The largest batch that fits, where the batch can be changed.
    pub largest_batch: Option<u64>,
    /// Are other GPUs looked at too?
    pub elsewhere: bool,
}

/// Changes named for the GPU at hand.
const NAMED: usize = 6;
/// Changes that still do not fit, named where nothing does.
const NAMED_WITHOUT: usize = 3;
/// Changes made together at most.
const TOGETHER: usize = 3;
/// Rank of the adapters that are proposed.
const ADAPTER_RANK: u64 = 16;

/// How weights are adapted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Adapters {
    Plain,
    Packed,
}

/// A single change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Lever {
    Format(Precision),
    States(OptimizerChoice),
    Checkpoint,
    Adapters(Adapters),
    Batch(u64),
}

impl Lever {
    /// Of one group only one can be made.
    fn group(self) -> u8 {
        match self {
            Self::Batch(_) => 0,
            Self::Format(_) => 1,
            // States of adapters are small: leaner ones are no change beside them.
            Self::States(_) | Self::Adapters(_) => 2,
            Self::Checkpoint => 3,
        }
    }

    fn words(self) -> String {
        match self {
            Self::Batch(batch) => format!("batch {batch}"),
            Self::Format(Precision::Amp) => "autocast".to_owned(),
            Self::Format(p) => format!("{} weights", p.name()),
            Self::States(o) if o.implementation.paged() => "states on the host".to_owned(),
            Self::States(_) => "8-bit Adam".to_owned(),
            Self::Checkpoint => "checkpointing".to_owned(),
            Self::Adapters(Adapters::Plain) => "adapters".to_owned(),
            Self::Adapters(Adapters::Packed) => "adapters over 4-bit weights".to_owned(),
        }
    }

    fn option(self) -> String {
        match self {
            Self::Batch(batch) => format!("--batch {batch}"),
            Self::Format(p) => format!("--precision {}", p.name()),
            Self::States(o) => format!("--optimizer {o}"),
            Self::Checkpoint => format!("--checkpoint {}", Checkpoint::Full),
            Self::Adapters(Adapters::Plain) => format!("--lora {ADAPTER_RANK}"),
            Self::Adapters(Adapters::Packed) => format!("--qlora {ADAPTER_RANK}"),
        }
    }
}

/// A run with some changes.
#[derive(Debug, Clone)]
struct Way {
    levers: Vec<Lever>,
    peak: Bytes,
    iteration: Rc<Iteration>,
}

impl<'a, Network: FnMut(u64) -> Option<Graph>> Room<'a, Network> {
    /// `network` builds the network with a batch, as the run asks for it but for layout and checkpoints.
    pub fn new(options: LowerOptions, form: Form, iteration: &'a Iteration, network: Network) -> Self {
        Self { options, form, iteration, network, lowered: HashMap::new() }
    }

    /// Everything that makes it fit: on this GPU, what costs least time first, then on another GPU. Where nothing does, what comes nearest.
    pub fn changes(&mut self, at: &Misfit<'_>) -> Vec<Change> {
        let mut known = Known::default();
        let now = at.model.predict_iteration_with(self.iteration, at.gpu, &mut known);
        let before = per_sample(now.time, self.iteration.samples);
        let (fitting, others) = self.ways(at);
        let mut out: Vec<Change> =
            fitting.iter().map(|way| self.change(at, way, true, before, &mut known)).collect();
        out.sort_by(|a, b| a.time_ratio.total_cmp(&b.time_ratio));
        out.truncate(NAMED);
        if at.elsewhere {
            out.extend(self.elsewhere(at, before));
        }
        if out.is_empty() {
            out = others.iter().map(|way| self.change(at, way, false, before, &mut known)).collect();
        }
        out
    }

    /// The run with blocks computed again, where that can be asked of it and is not.
    pub fn checkpointed(&mut self) -> Option<Rc<Iteration>> {
        let training = self.options.mode == Mode::Train && self.form.checkpoint.is_none();
        training.then(|| self.lowered(&[Lever::Checkpoint], self.iteration.samples)).flatten()
    }

    /// The run as it was asked for.
    pub fn asked(&self) -> (&'a Iteration, LowerOptions, Form) {
        (self.iteration, self.options, self.form)
    }

    /// Its network, as asked for but for layout and checkpoints.
    pub fn network(&mut self) -> Option<Graph> {
        (self.network)(self.iteration.samples)
    }

    fn change(&self, at: &Misfit<'_>, way: &Way, fits: bool, before: f64, known: &mut Known) -> Change {
        let p = at.model.predict_iteration_with(&way.iteration, at.gpu, known);
        // Paged states travel to the GPU and back in every step.
        let offloaded = way.levers.iter().any(|l| matches!(l, Lever::States(o) if o.implementation.paged()));
        let states = self.iteration.memory.optimizer * if offloaded { 2.0 } else { 0.0 };
        let time = p.time + states / at.gpu.host;
        let words: Vec<String> = way.levers.iter().map(|l| l.words()).collect();
        let samples = way.iteration.samples;
        Change {
            change: words.join(", "),
            options: way.levers.iter().map(|l| l.option()).collect(),
            memory_mib: way.iteration.memory.peak.mib(),
            fits,
            iteration_ms: time.ms(),
            samples_per_s: samples as f64 / time.0,
            time_ratio: per_sample(time, samples) / before,
            gpu: None,
            gpus: 1,
        }
    }

    /// The run with these changes, lowered now or before; nothing where it cannot have them.
    fn lowered(&mut self, levers: &[Lever], batch: u64) -> Option<Rc<Iteration>> {
        let key = (levers.to_vec(), batch);
        if !self.lowered.contains_key(&key) {
            let iteration = (self.network)(batch).and_then(|graph| self.lower(levers, graph)).map(Rc::new);
            self.lowered.insert(key.clone(), iteration);
        }
        self.lowered.get(&key).cloned().flatten()
    }

    fn lower(&self, levers: &[Lever], mut graph: Graph) -> Option<Iteration> {
        // A recorded step is what it is.
        if graph.fixed.is_some() {
            return None;
        }
        let (mut options, mut form) = (self.options, self.form);
        for lever in levers {
            match *lever {
                Lever::Format(p) => options.precision = p,
                Lever::States(o) => options.optimizer = Some(o),
                Lever::Checkpoint => form.checkpoint = Checkpoint::Full,
                Lever::Adapters(Adapters::Plain) => graph = graph.with_adapters(ADAPTER_RANK).ok()?,
                Lever::Adapters(Adapters::Packed) => graph = graph.with_packed_adapters(ADAPTER_RANK).ok()?,
                // The network has it.
                Lever::Batch(_) => {}
            }
        }
        form.shape(&mut graph, options.mode).ok()?;
        form.lower(&graph, &options).ok()
    }

    /// Single changes that this run can have on this GPU.
    fn levers(&mut self, at: &Misfit<'_>) -> Vec<Lever> {
        let Some(graph) = self.network() else { return Vec::new() };
        let mut out = Vec::new();
        let precision = self.options.precision;
        for to in [Precision::Amp, Precision::Bf16] {
            let narrower =
                if to == Precision::Amp { precision.is_full() } else { precision.weight_bytes() > 2.0 };
            if narrower && lacks(at.gpu, to).is_none() {
                out.push(Lever::Format(to));
            }
        }
        if self.options.mode == Mode::Train {
            // Beside adapters the model is frozen already, and their states are small.
            if graph.parameters.iter().all(|p| !p.frozen) {
                let now = graph.steps_with(&self.options);
                let adam = now.filter(|o| matches!(o.rule, Rule::Adam | Rule::Adamw));
                if let Some(adam) = adam.filter(|o| !o.implementation.narrow()) {
                    out.push(Lever::States(adam.by(Implementation::EightBit)));
                    if !adam.implementation.paged() {
                        out.push(Lever::States(adam.by(Implementation::Paged)));
                    }
                }
                out.extend([Lever::Adapters(Adapters::Plain), Lever::Adapters(Adapters::Packed)]);
            }
            if self.form.checkpoint.is_none() {
                out.push(Lever::Checkpoint);
            }
        }
        out
    }

    /// The ways to run that fit, of changes of which no part is enough; and those that do not, the smallest first.
    fn ways(&mut self, at: &Misfit<'_>) -> (Vec<Way>, Vec<Way>) {
        let batch = self.iteration.samples;
        let (mut fitting, mut others): (Vec<Way>, Vec<Way>) = (Vec::new(), Vec::new());
        let levers = self.levers(at);
        let mut level: Vec<(Vec<Lever>, Bytes)> = vec![(Vec::new(), prudent_peak(self.iteration))];
        for _ in 0..TOGETHER {
            let mut next = Vec::new();
            for (made, before) in &level {
                for lever in &levers {
                    let last = made.last().map_or(0, |l| l.group());
                    let all = [&made[..], &[*lever]].concat();
                    let enough = |way: &Way| way.levers.iter().all(|l| all.contains(l));
                    if lever.group() <= last || fitting.iter().any(enough) {
                        continue;
                    }
                    let Some(way) = self.way(&all, batch).filter(|way| way.peak < *before) else { continue };
                    if at.reserve.fits(way.peak, at.gpu) {
                        fitting.push(way);
                    } else {
                        next.push((all, way.peak));
                        others.push(way);
                    }
                }
            }
            level = next;
        }
        others.sort_by(|a, b| a.peak.0.total_cmp(&b.peak.0));
        others.truncate(NAMED_WITHOUT);
        if let Some(largest) = at.largest_batch.filter(|n| (1..batch).contains(n)) {
            fitting.extend(self.smaller(&[], largest));
        }
        if fitting.is_empty() && at.largest_batch.is_some() && batch > 1 {
            for way in &others {
                let peak = |n: u64| self.way(&way.levers, n).map(|way| way.peak).ok_or(());
                let largest = largest_batch(at.gpu, at.reserve, batch - 1, peak).unwrap_or(0);
                if largest > 0 {
                    fitting.extend(self.smaller(&way.levers, largest));
                }
            }
        }
        (fitting, others)
    }

    fn way(&mut self, levers: &[Lever], batch: u64) -> Option<Way> {
        let iteration = self.lowered(levers, batch)?;
        Some(Way { levers: levers.to_vec(), peak: prudent_peak(&iteration), iteration })
    }

    /// With a smaller batch too.
    fn smaller(&mut self, levers: &[Lever], batch: u64) -> Option<Way> {
        let mut way = self.way(levers, batch)?;
        way.levers.push(Lever::Batch(batch));
        Some(way)
    }

    /// The run as it is on other GPUs of the catalogue: the fastest that has room, and the cheapest where it is another.
    fn elsewhere(&self, at: &Misfit<'_>, before: f64) -> Vec<Change> {
        let (Ok(gpus), Ok(prices)) = (catalog::all(), Catalogue::embedded()) else { return Vec::new() };
        let peak = prudent_peak(self.iteration);
        let samples = self.iteration.samples;
        let with_room = gpus.into_iter().filter(|g| {
            g.name != at.gpu.name && at.reserve.fits(peak, g) && lacks(g, self.options.precision).is_none()
        });
        let offers: Vec<(f64, Seconds, String)> = with_room
            .filter_map(|g| {
                let usd = prices.quote(&g.name, Pricing::OnDemand)?.usd_per_hour;
                let time = at.model.predict_iteration(self.iteration, &g).time;
                Some((usd_per_million_samples(usd, samples as f64 / time.0), time, g.name))
            })
            .collect();
        let fastest = offers.iter().min_by(|a, b| a.1.0.total_cmp(&b.1.0));
        let cheapest = offers.iter().min_by(|a, b| a.0.total_cmp(&b.0));
        let (Some(fastest), Some(cheapest)) = (fastest, cheapest) else { return Vec::new() };
        let named = if fastest.2 == cheapest.2 {
            vec![(fastest, "fastest and cheapest")]
        } else {
            vec![(fastest, "fastest"), (cheapest, "cheapest")]
        };
        let change = |((_, time, name), what): (&(f64, Seconds, String), &str)| Change {
            change: format!("{name}, {what} with room"),
            options: vec![format!("--gpu {name}")],
            memory_mib: self.iteration.memory.peak.mib(),
            fits: true,
            iteration_ms: time.ms(),
            samples_per_s: samples as f64 / time.0,
            time_ratio: per_sample(*time, samples) / before,
            gpu: Some(name.clone()),
            gpus: 1,
        };
        named.into_iter().map(change).collect()
    }
}

fn per_sample(time: Seconds, samples: u64) -> f64 {
    time.0 / samples.max(1) as f64
}
