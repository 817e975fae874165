//! Fits fused attention: constants per mode, number format and generation, then the correction.

use crate::data::Measured;
use crate::gbdt::Settings;
use crate::samples::{Sample, fit};
use crate::sets::Sets;
use crate::simplex::minimise;
use crate::unseen::{self, LeftOut};
use anyhow::Result;
use preflop_core::gpu::{Architecture, Gpu};
use preflop_core::kernels::attention;
use preflop_core::ops::{Attention, Op};
use preflop_core::time::TimeModel;
use preflop_core::time::fitted::ConstantsFile;
use preflop_core::time::trees::Forest;
use preflop_core::{Dtype, Pass};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Constants by key.
pub type Forms = BTreeMap<String, Vec<f64>>;

/// A measured attention.
#[derive(Debug, Clone, Copy)]
struct Row {
    op: Attention,
    pass: Pass,
    dtype: Dtype,
    gpu: usize,
    seconds: f64,
    source: &'static str,
}

fn rows(measured: &[Measured]) -> Vec<Row> {
    measured
        .iter()
        .filter_map(|m| match m.call.op {
            Op::Attention(op) => Some(Row {
                op,
                pass: m.call.pass,
                dtype: m.call.dtype,
                gpu: m.gpu,
                seconds: m.us * 1e-6,
                source: m.source,
            }),
            _ => None,
        })
        .collect()
}

/// Fewest rows that get constants of their own.
const LEAST: usize = 40;

/// Constants of every class, pooled over GPUs, and of every class on every generation with enough rows.
pub fn constants(measured: &[Measured], gpus: &[Gpu]) -> Forms {
    let mut groups: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for r in rows(measured) {
        let class = attention::class(&r.op, r.pass, r.dtype);
        groups.entry(class.to_string()).or_default().push(r);
        groups.entry(attention::key(class, gpus[r.gpu].architecture)).or_default().push(r);
    }
    groups
        .into_par_iter()
        .filter(|(_, members)| members.len() >= LEAST)
        .map(|(key, members)| (key, minimum(&members, gpus)))
        .collect::<Vec<_>>()
        .into_iter()
        .collect()
}

/// The constants that ship. The two sources run different libraries (PyTorch, a server), so each gets its own
/// fit; where both have a key, the project's own measurement goes first, except that the pooled keys come from
/// the source with more GPUs.
pub fn shipped(own: &Forms, published: &Forms) -> Forms {
    let mut out = own.clone();
    for (key, c) in published {
        let pooled = key.matches('/').count() == 2;
        if pooled || !out.contains_key(key) {
            out.insert(key.clone(), c.clone());
        }
    }
    out
}

/// How firmly each constant is held at its start. The fourth (`mask` of prefill, `lone` of decode) is held
/// firmly: where all rows of a GPU are causal, `mask` and `eff` cannot be told apart.
const HOLD: [f64; attention::CONSTANTS] = [1.0, 1.0, 1.0, 20.0, 1.0, 1.0, 1.0, 1.0, 1.0];

/// Least mean |log error|, held near the start by 0.5 % of the squared log change.
fn minimum(rows: &[Row], gpus: &[Gpu]) -> Vec<f64> {
    let step = rows.len().div_ceil(900).max(1);
    let picked: Vec<&Row> = rows.iter().step_by(step).collect();
    let first = picked[0];
    let start: Vec<f64> = attention::start(attention::mode(&first.op, first.pass), first.dtype)
        .iter()
        .map(|c| c.ln())
        .collect();
    let loss = |logs: &[f64]| {
        let c: Vec<f64> = logs.iter().map(|l| l.exp()).collect();
        let error: f64 = picked
            .iter()
            .map(|r| (attention::reference(&r.op, r.pass, r.dtype, &c, &gpus[r.gpu]) / r.seconds).ln().abs())
            .sum::<f64>()
            / picked.len() as f64;
        let stray: f64 =
            logs.iter().zip(&start).zip(HOLD).map(|((a, b), hold)| hold * (a - b) * (a - b)).sum();
        error + 0.005 * stray / logs.len() as f64
    };
    let (once, _) = minimise(&loss, &start, 0.3, 1500);
    // A second simplex around the first result leaves shallow corners.
    let (best, _) = minimise(&loss, &once, 0.2, 1500);
    best.iter().map(|l| l.exp()).collect()
}

/// Constants of a class on a generation, else pooled, else none.
pub fn look_up<'a>(forms: &'a Forms, class: &str, generation: Architecture) -> &'a [f64] {
    forms.get(&attention::key(class, generation)).or_else(|| forms.get(class)).map_or(&[], Vec::as_slice)
}

pub fn samples(measured: &[Measured], gpus: &[Gpu], forms: &Forms) -> Vec<Sample> {
    rows(measured)
        .iter()
        .enumerate()
        .map(|(i, r)| {
            let gpu = &gpus[r.gpu];
            let class = attention::class(&r.op, r.pass, r.dtype);
            let c = look_up(forms, class, gpu.architecture);
            let t = attention::form(&r.op, r.pass, r.dtype, c, gpu, gpu);
            Sample {
                x: attention::features(&r.op, r.pass, r.dtype, &t, gpu),
                reference: t.time,
                seconds: r.seconds,
                forest: "",
                class: class.to_string(),
                gpu: r.gpu,
                group: i,
                weight: 1.0,
                source: r.source,
            }
        })
        .collect()
}

/// Every published row by a model that did not see its GPU; `own` and its forest are the project's, from Hopper. Hopper's
/// rows are left out: there the model speaks for another library.
pub fn left_out(
    published: &[Measured],
    sets: &Sets,
    own: &Forms,
    forest: &Forest,
    settings: Settings,
) -> Result<Vec<LeftOut>> {
    let gpus = &sets.gpus;
    let each: BTreeSet<usize> = published.iter().map(|m| m.gpu).collect();
    let models: BTreeMap<usize, (TimeModel, Gpu)> = each
        .into_par_iter()
        .map(|g| {
            let others: Vec<Measured> = published.iter().filter(|m| m.gpu != g).cloned().collect();
            let there = constants(&others, gpus);
            let served = fit(&samples(&others, gpus, &there), attention::FEATURES, &settings, |_| true);
            let file = ConstantsFile { forms: shipped(own, &there), ..ConstantsFile::default() };
            let forests = BTreeMap::from([
                ("attention".to_string(), forest.clone()),
                ("attention/served".to_string(), served),
            ]);
            Ok((g, (unseen::model(file, &forests, sets, g)?, unseen::stranger(&gpus[g].name)?)))
        })
        .collect::<Result<_>>()?;
    let one = |m: &Measured| {
        let Op::Attention(op) = &m.call.op else { return None };
        if gpus[m.gpu].architecture == Architecture::Hopper {
            return None;
        }
        let (model, gpu) = &models[&m.gpu];
        Some(LeftOut {
            gpu: m.gpu,
            class: attention::class(op, m.call.pass, m.call.dtype).to_string(),
            predicted: model.predict(&m.call, gpu).time.0,
            seconds: m.us * 1e-6,
        })
    };
    Ok(published.par_iter().filter_map(one).collect())
}
