//! Fits convolutions: constants per kernel family and engine, the choosers, the correction.

use crate::choices::{Answer, Shape, UNKNOWN, Variants, pass_of, shape_of, tile_of_kernels, with_kernels};
use crate::chooser::{self, Size};
use crate::data::Measured;
use crate::samples::Sample;
use crate::simplex::minimise;
use preflop_core::Dtype;
use preflop_core::gpu::Gpu;
use preflop_core::kernels::Machine;
use preflop_core::kernels::conv::{
    ConvConstants, ConvFamily, ConvKey, SURE, Task, dtype_group, interval_class,
};
use preflop_core::kernels::conv_features::{CHOICE_FEATURES, candidates_of, finish, shape_features};
use preflop_core::kernels::conv_form::family_time;
use preflop_core::kernels::depthwise::{StreamConstants, depthwise_time, walk};
use preflop_core::ops::{Gemm, Op};
use preflop_core::time::TimeModel;
use preflop_core::time::choice::{Chooser, Variant};
use preflop_core::time::conv_table::{ConvContext, ConvForms, coarser, engine_key, tile_key};
use preflop_core::time::trees::Features;
use rayon::prelude::*;
use std::collections::{BTreeMap, HashMap};

/// A measured convolution.
#[derive(Debug, Clone)]
pub struct Row {
    pub task: Task,
    pub gpu: usize,
    pub seconds: f64,
    /// What ran, where the kernels were named.
    pub ran: Option<Variant>,
    pub source: &'static str,
}

/// The convolutions among the measurements, and which variant each answer of the library means.
pub fn rows(
    measured: &[Measured],
    asked: &[(Task, Answer)],
    named: &HashMap<Shape, String>,
) -> (Vec<Row>, Variants) {
    let answers: HashMap<_, Answer> = asked.iter().filter_map(|(t, a)| Some((shape_of(t)?, *a))).collect();
    let mut variants = Variants::default();
    let mut out: Vec<(Row, Option<Answer>)> = Vec::new();
    for m in measured {
        let Op::Conv(c) = &m.call.op else { continue };
        let task = Task::new(c, m.call.pass, m.call.dtype);
        let shape = shape_of(&task);
        let answer = shape.and_then(|s| answers.get(&s)).copied();
        let elsewhere = shape.and_then(|s| named.get(&s)).filter(|_| m.kernels.is_empty());
        let kernels = elsewhere.unwrap_or(&m.kernels);
        let family = ConvFamily::of_kernels(kernels);
        let tile = tile_of_kernels(kernels);
        if let (Some(answer), Some(family), false) = (answer, family, task.depthwise()) {
            variants.note(&task, answer, family, tile);
        }
        let ran = family.map(|family| Variant {
            tile: if family.tiled() { tile } else { [0; 3] },
            ..Variant::of_family(family)
        });
        out.push((Row { task, gpu: m.gpu, seconds: m.us * 1e-6, ran, source: m.source }, answer));
    }
    let rows = out
        .into_iter()
        .map(|(mut row, answer)| {
            let said = answer.and_then(|a| variants.of(&row.task, a)).filter(|_| !row.task.depthwise());
            row.ran = match (row.ran, said) {
                (Some(ran), Some(said)) if ran.family == said.family => {
                    Some(Variant { tile: ran.tile, ..said })
                }
                (None, said) => said,
                (ran, _) => ran,
            };
            row
        })
        .collect();
    (rows, variants)
}

/// Places of the latency of a step and of how far groups wait in the list of constants.
const LATENCY: usize = 6;
const WAITING: usize = 13;

fn with(start: &[f64], at: usize, value: f64) -> Vec<f64> {
    start.iter().enumerate().map(|(i, v)| if i == at { value } else { *v }).collect()
}

/// Fits the constants of all keys with at least 12 rows, of their coarser keys, and of single engines and their tiles.
pub fn constants(rows: &[Row], gpus: &[Gpu]) -> BTreeMap<String, Vec<f64>> {
    let mut groups: BTreeMap<String, Vec<(&Row, Variant)>> = BTreeMap::new();
    // By the coarser key and the own one.
    let mut engines: BTreeMap<[String; 2], Vec<(&Row, Variant)>> = BTreeMap::new();
    let mut tiles: BTreeMap<[String; 2], Vec<(&Row, Variant)>> = BTreeMap::new();
    for r in rows {
        // Without the answer the clusters are not known.
        let known = |v: &Variant| v.family != ConvFamily::Xmma90 || v.engine != UNKNOWN || r.task.depthwise();
        if let Some(v) = r.ran.filter(known) {
            let key = ConvKey::new(&r.task, v.family).text();
            // Constants of streams mean other things in other passes.
            let least = if v.family.streams() { 2 } else { 1 };
            for k in coarser(&key).filter(|k| k.matches('/').count() >= least) {
                groups.entry(k.to_string()).or_default().push((r, v));
            }
            if v.engine != UNKNOWN && !v.family.streams() {
                let engine = engine_key(&key, v.engine);
                if v.tile[0] > 0 {
                    let tile = tile_key(&key, v.engine, v.tile);
                    tiles.entry([engine.clone(), tile]).or_default().push((r, v));
                }
                engines.entry([key, engine]).or_default().push((r, v));
            }
        }
    }
    let mut table: BTreeMap<String, Vec<f64>> = groups
        .into_par_iter()
        .filter(|(_, members)| members.len() >= 12)
        .map(|(key, members)| {
            let (first, v) = members[0];
            let start: Vec<f64> = if v.family.streams() {
                StreamConstants::start(walk(&first.task, v.family))
            } else {
                ConvConstants::START.to_array().to_vec()
            };
            // Kernels wait long for each step of a sum, or hardly, and for the group before, or not: places to start from.
            let mut starts = vec![start];
            if !v.family.streams() {
                for (at, value) in [(LATENCY, 1e-6), (WAITING, 0.8)] {
                    if at == WAITING && !(v.family.loops() && first.task.conv.groups > 1) {
                        continue;
                    }
                    let more: Vec<Vec<f64>> = starts.iter().map(|s| with(s, at, value)).collect();
                    starts.extend(more);
                }
            }
            let fits = starts.iter().map(|s| fit_key(&members, gpus, s));
            let best = fits.min_by(|a, b| a.1.total_cmp(&b.1)).map_or_else(Vec::new, |f| f.0);
            (key, best)
        })
        .collect();
    for finer in [engines, tiles] {
        let single: Vec<(String, Vec<f64>)> = finer
            .into_par_iter()
            .filter(|(_, members)| members.len() >= 40)
            .filter_map(|([key, own], members)| {
                let start = coarser(&key).find_map(|k| table.get(k))?;
                Some((own, fit_key(&members, gpus, start).0))
            })
            .collect();
        table.extend(single);
    }
    table
}

/// The constants that fit these rows best, drawn towards `start`, and their loss.
fn fit_key(members: &[(&Row, Variant)], gpus: &[Gpu], start: &[f64]) -> (Vec<f64>, f64) {
    let step = members.len().div_ceil(300).max(1);
    let picked: Vec<(&Row, Variant, Machine)> = members
        .iter()
        .step_by(step)
        .map(|(r, v)| (*r, *v, Machine::of(&gpus[r.gpu], r.task.dtype)))
        .collect();
    let logs: Vec<f64> = start.iter().map(|v| v.ln()).collect();
    let loss = |p: &[f64]| {
        let c: Vec<f64> = p.iter().map(|l| l.exp()).collect();
        let error: f64 = picked
            .iter()
            .map(|(r, v, m)| {
                let t = if let Some(k) = StreamConstants::from_slice(&c).filter(|_| v.family.streams()) {
                    depthwise_time(&r.task, v.family, &k, m)
                } else {
                    let k = ConvConstants::from_slice(&c).unwrap_or(ConvConstants::START);
                    family_time(&r.task, v, &k, m).time
                };
                (t / r.seconds).ln().abs()
            })
            .sum::<f64>()
            / picked.len() as f64;
        let stray: f64 = p.iter().zip(&logs).map(|(a, b)| (a - b) * (a - b)).sum::<f64>() / p.len() as f64;
        error + 0.01 * stray
    };
    let (best, least) = minimise(&loss, &logs, 0.3, 1500);
    (best.iter().map(|l| l.exp()).collect(), least)
}

/// Forests that repeat the library's answers, by pass, and the one for depthwise convolutions.
const ORDINARY: Size = Size { trees: 8, leaves: 13000 };
const DEPTHWISE: Size = Size { trees: 12, leaves: 100 };
/// Seed of the forests.
const SEED: u64 = 11;
/// A variant that fewer answers mean is left out.
const LEAST_ANSWERS: usize = 30;

/// Trains a chooser on tasks and what ran.
fn learn(tasks: &[(Features, Variant)], size: Size) -> Chooser {
    let mut counts: BTreeMap<Variant, usize> = BTreeMap::new();
    for (_, v) in tasks {
        *counts.entry(*v).or_default() += 1;
    }
    let mut known: Vec<(usize, Variant)> = counts.into_iter().map(|(v, n)| (n, v)).collect();
    known.sort_by(|a, b| b.cmp(a));
    let least = if tasks.len() > 20_000 { LEAST_ANSWERS } else { 1 };
    let variants: Vec<Variant> =
        known.into_iter().filter(|(n, _)| *n >= least).take(255).map(|(_, v)| v).collect();
    let number: HashMap<Variant, u8> = variants.iter().enumerate().map(|(i, v)| (*v, i as u8)).collect();
    let kept: Vec<(&Features, u8)> = tasks.iter().filter_map(|(x, v)| Some((x, *number.get(v)?))).collect();
    let x: Vec<Features> = kept.iter().map(|k| *k.0).collect();
    let y: Vec<u8> = kept.iter().map(|k| k.1).collect();
    chooser::train(&x, &y, &variants, CHOICE_FEATURES, size, SEED)
}

/// The choosers of ordinary convolutions, from the library's answers and the kernels that ran for some of them. No
/// timed shape is among them, so measured rows are new to them.
pub fn ordinary(
    asked: &[(Task, Answer)],
    variants: &Variants,
    named: &HashMap<Shape, String>,
    gpu: &Gpu,
) -> [Chooser; 3] {
    std::array::from_fn(|pass| {
        let mut kinds: BTreeMap<_, Vec<Asked>> = BTreeMap::new();
        let tasks: Vec<Asked> = asked
            .par_iter()
            .filter(|(t, _)| pass_of(t.pass) == pass && !t.depthwise())
            .filter_map(|(t, a)| {
                let said = variants.of(t, *a)?;
                let names = shape_of(t).and_then(|s| named.get(&s));
                let ran = names.and_then(|n| with_kernels(said, n));
                Some(Asked {
                    x: shape_features(t, &Machine::of(gpu, t.dtype)),
                    task: *t,
                    answer: *a,
                    said,
                    ran,
                })
            })
            .collect();
        for t in tasks {
            kinds.entry((dtype_group(t.task.dtype), t.answer.kernel())).or_default().push(t);
        }
        let labelled: Vec<(Features, Variant)> = kinds.values().flat_map(|members| label(members)).collect();
        learn(&labelled, ORDINARY)
    })
}

/// A shape that the library was asked about: what the answer means, and what ran where the kernels were named.
struct Asked {
    x: Features,
    task: Task,
    answer: Answer,
    said: Variant,
    ran: Option<Variant>,
}

/// Forests that tell the kernels of one answer apart. They stay here.
const REFINED: Size = Size { trees: 16, leaves: 800 };
/// Named shapes of an answer from which its kernels are learned.
const LEAST_NAMED: usize = 60;

/// Variants of shapes with the same answer. An answer may leave the kernel open: then the shapes whose kernels were named
/// tell it, and a forest of them guesses it for the rest.
fn label(members: &[Asked]) -> Vec<(Features, Variant)> {
    // Clusters and parts belong to the shape, not to the kernel.
    let plain = |v: Variant| Variant { engine: v.engine, tile: v.tile, ..Variant::of_family(v.family) };
    let named: Vec<(Features, Variant)> = members.iter().filter_map(|m| Some((m.x, plain(m.ran?)))).collect();
    let open = named.iter().any(|(_, v)| *v != named[0].1) && named.len() >= LEAST_NAMED;
    let forest = open.then(|| learn(&named, REFINED));
    let guess = |m: &Asked| {
        let kernel =
            m.ran.or_else(|| Some(forest.as_ref()?.guesses(&m.x).first()?.variant)).unwrap_or(m.said);
        Variant { family: kernel.family, tile: kernel.tile, ..m.said }
    };
    members.par_iter().map(|m| (m.x, guess(m))).collect()
}

/// Samples for the correction, the depthwise chooser, and how often family and tile were guessed right. Depthwise
/// rows get guesses of a chooser that did not see their fold. Plain products of 1x1 layers come from `products`.
pub fn samples(
    rows: &[Row],
    gpus: &[Gpu],
    table: &ConvForms,
    passes: &[Chooser; 3],
    products: &TimeModel,
) -> (Vec<Sample>, Chooser, [f64; 2]) {
    let shapes: Vec<Features> =
        rows.par_iter().map(|r| shape_features(&r.task, &Machine::of(&gpus[r.gpu], r.task.dtype))).collect();
    let depthwise = |keep: &dyn Fn(usize) -> bool| {
        let tasks: Vec<(Features, Variant)> = (0..rows.len())
            .filter(|&i| rows[i].task.depthwise() && keep(i))
            .filter_map(|i| Some((shapes[i], rows[i].ran?)))
            .collect();
        learn(&tasks, DEPTHWISE)
    };
    let full = depthwise(&|_| true);
    let folds: Vec<Chooser> = (0..5usize).map(|fold| depthwise(&|i| i % 5 != fold)).collect();
    let made: Vec<(Sample, Option<[bool; 2]>)> = rows
        .par_iter()
        .enumerate()
        .map(|(i, r)| {
            let chooser = if r.task.depthwise() { &folds[i % 5] } else { &passes[pass_of(r.task.pass)] };
            let product = |g: &Gemm, dtype: Dtype| products.product_time(g, dtype, &gpus[r.gpu]);
            let context = ConvContext { forms: table, product: &product };
            let machine = Machine::of(&gpus[r.gpu], r.task.dtype);
            let candidates = candidates_of(&r.task, chooser.guesses(&shapes[i]), &context, &machine);
            let top = candidates.top().map(|(g, _, _)| *g);
            let right = top.zip(r.ran).map(|(g, ran)| {
                [g.variant.family == ran.family, g.variant.family == ran.family && g.variant.tile == ran.tile]
            });
            let (family, sure) =
                top.map_or((0, false), |g| (g.variant.family as usize, g.probability > SURE));
            let sample = Sample {
                x: finish(&shapes[i], &candidates, &machine),
                reference: candidates.reference,
                seconds: r.seconds,
                forest: "",
                class: interval_class(family, r.task.grouped(), sure),
                gpu: r.gpu,
                group: i,
                // The broad sweeps count more than the one that was aimed at odd shapes.
                weight: if r.source == "conv_extra" { 1.0 } else { 1.5 },
                source: r.source,
            };
            (sample, right)
        })
        .collect();
    let told: Vec<[bool; 2]> = made.iter().filter_map(|m| m.1).collect();
    let share = |i: usize| told.iter().filter(|t| t[i]).count() as f64 / told.len().max(1) as f64;
    let shares = [share(0), share(1)];
    (made.into_iter().map(|m| m.0).collect(), full, shares)
}
