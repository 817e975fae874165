//! `preflop-fit laws`: what physics asks of every answer, counted.
//!
//! * A GPU that has more of one resource is not slower, operator by operator and network by network.
//! * A call of which one dimension is doubled is not faster, where alignment and kernel stay.
//! * A GPU's name decides nothing.

use anyhow::Result;
use preflop_core::gpu::{Gpu, Resource, catalog};
use preflop_core::model::{LowerOptions, Mode, Precision, lower, zoo};
use preflop_core::ops::{Op, OpCall};
use preflop_core::schedule::Schedule as _;
use preflop_core::time::TimeModel;
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Relative tolerance: rounding alone.
const TOLERANCE: f64 = 1e-9;

/// A small generator of fixed seed (SplitMix64): the same triples on every machine.
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// What a law's check found.
#[derive(Default)]
struct Count {
    asked: usize,
    broken: usize,
    worst: f64,
    /// Broken by kind.
    kinds: BTreeMap<String, (usize, f64, String)>,
}

impl Count {
    fn add(&mut self, before: f64, after: f64, kind: &str, what: impl Fn() -> String) {
        self.asked += 1;
        if after > before * (1.0 + TOLERANCE) {
            self.broken += 1;
            let factor = after / before;
            self.worst = self.worst.max(factor);
            let entry = self.kinds.entry(kind.to_string()).or_insert((0, 0.0, String::new()));
            entry.0 += 1;
            if factor > entry.1 {
                (entry.1, entry.2) = (factor, what());
            }
        }
    }

    fn merge(mut self, other: Self) -> Self {
        self.asked += other.asked;
        self.broken += other.broken;
        self.worst = self.worst.max(other.worst);
        for (kind, (n, factor, what)) in other.kinds {
            let entry = self.kinds.entry(kind).or_insert((0, 0.0, String::new()));
            entry.0 += n;
            if factor > entry.1 {
                (entry.1, entry.2) = (factor, what);
            }
        }
        self
    }

    fn print(&self, law: &str, details: bool) {
        println!("{law}: {} of {} broken, worst factor {:.3}", self.broken, self.asked, self.worst.max(1.0));
        if details {
            for (kind, (n, factor, what)) in &self.kinds {
                println!("    {n:6} {kind}: {factor:.3} {what}");
            }
        }
    }
}

/// Checks all laws on `asked` triples of the calls and prints the counts.
pub fn report(calls: &[OpCall], asked: usize, details: bool) -> Result<()> {
    let model = TimeModel::embedded();
    let gpus: Vec<Gpu> = catalog::names().map(|n| Ok(catalog::find(n)?)).collect::<Result<_>>()?;
    resources(&model, calls, &gpus, asked).print("a resource raised by 1 to 100 %, slower", details);
    growth(&model, calls, &gpus, asked).print("a dimension doubled, faster", details);
    networks(&model, &gpus)?.print("networks, a resource raised", details);
    let copy = |gpu: &Gpu| Gpu { name: "copy".into(), ..gpu.clone() };
    let renamed = gpus.iter().map(copy).zip(&gpus);
    let moved: usize = renamed
        .map(|(copy, gpu)| {
            calls.par_iter().filter(|c| model.predict(c, &copy) != model.predict(c, gpu)).count()
        })
        .sum();
    println!("a GPU under another name: {moved} of {} answers differ", calls.len() * gpus.len());
    Ok(())
}

/// Triples in blocks, each with a generator of its own, so that the count does not depend on threads.
fn blocks(asked: usize, work: impl Fn(&mut Random) -> Count + Sync) -> Count {
    const BLOCK: usize = 500;
    (0..asked.div_ceil(BLOCK))
        .into_par_iter()
        .map(|b| {
            let mut random = Random(b as u64 + 1);
            (0..BLOCK).map(|_| work(&mut random)).fold(Count::default(), Count::merge)
        })
        .reduce(Count::default, Count::merge)
}

fn resources(model: &TimeModel, calls: &[OpCall], gpus: &[Gpu], asked: usize) -> Count {
    blocks(asked, |random| {
        let call = &calls[random.below(calls.len())];
        let gpu = &gpus[random.below(gpus.len())];
        let resource = Resource::ALL[random.below(Resource::ALL.len())];
        let factor = 1.01 + 0.99 * random.unit();
        let better = gpu.with_more(resource, factor);
        let time = |g: &Gpu| model.predict(call, g).time.0;
        let mut count = Count::default();
        let kind = format!("{} {}", call.name(), resource.name());
        count.add(time(gpu), time(&better), &kind, || format!("{} x{factor:.2} {call:?}", gpu.name));
        count
    })
}

fn growth(model: &TimeModel, calls: &[OpCall], gpus: &[Gpu], asked: usize) -> Count {
    blocks(asked, |random| {
        let mut count = Count::default();
        while count.asked == 0 {
            let call = &calls[random.below(calls.len())];
            let gpu = &gpus[random.below(gpus.len())];
            let doubled = call.doubled();
            if doubled.is_empty() {
                continue;
            }
            let (dimension, larger) = &doubled[random.below(doubled.len())];
            if !model.same_kernel(call, larger, gpu) {
                continue;
            }
            let time = |c: &OpCall| model.predict(c, gpu).time.0;
            let kind = format!("{} {dimension}", call.name());
            count.add(time(larger), time(call), &kind, || format!("{} {call:?}", gpu.name));
        }
        count
    })
}

/// Every model of the zoo on ten GPUs of all generations with more of each resource.
fn networks(model: &TimeModel, gpus: &[Gpu]) -> Result<Count> {
    let mut chosen: Vec<&Gpu> = Vec::new();
    for gpu in gpus {
        if chosen.len() < 10 && chosen.iter().all(|g| g.architecture != gpu.architecture) {
            chosen.push(gpu);
        }
    }
    for gpu in gpus.iter().filter(|g| ["rtx-4090", "h100-pcie", "l4"].contains(&g.name.as_str())) {
        if chosen.len() < 10 {
            chosen.push(gpu);
        }
    }
    let names: Vec<&str> = zoo::names();
    let counts: Result<Vec<Count>> = names
        .par_iter()
        .enumerate()
        .map(|(i, name)| {
            let graph = zoo::build(name, None, None)?;
            let precision = [Precision::Fp32, Precision::Amp, Precision::Tf32][i % 3];
            let mode = if i % 2 == 0 { Mode::Train } else { Mode::Infer };
            let iteration = lower(&graph, &LowerOptions { mode, precision, optimizer: None })?;
            let mut count = Count::default();
            for gpu in &chosen {
                let time = |g: &Gpu| model.predict_iteration(&iteration, g).time.0;
                let before = time(gpu);
                for resource in Resource::ALL {
                    for factor in [1.1, 2.0] {
                        let after = time(&gpu.with_more(resource, factor));
                        let kind = format!("{name} {}", resource.name());
                        count.add(before, after, &kind, || {
                            let better = gpu.with_more(resource, factor);
                            let time = |c: &OpCall, g: &Gpu| model.predict(c, g).time.0;
                            let ratio = |c: &OpCall| time(c, &better) / time(c, gpu);
                            let calls = iteration.steps.iter().map(|s| &s.call);
                            let worst = calls.max_by(|a, b| ratio(a).total_cmp(&ratio(b)));
                            format!("{} x{factor} {worst:?}", gpu.name)
                        });
                    }
                }
            }
            Ok(count)
        })
        .collect();
    Ok(counts?.into_iter().fold(Count::default(), Count::merge))
}

/// Calls that the laws are tried on: those measured, without what nobody models.
pub fn calls(measured: &[crate::data::Measured]) -> Vec<OpCall> {
    let known = measured.iter().filter(|m| !matches!(m.call.op, Op::Unmodelled { .. }));
    known.map(|m| m.call.clone()).collect()
}
