//! Fits fused attention: constants per mode, number format and generation, then the correction.

use crate::data::{GPUS, Measured};
use crate::gbdt::Settings;
use crate::samples::{Sample, cross_validate, fit};
use crate::score::score;
use crate::simplex::minimise;
use preflop_core::gpu::{Architecture, Gpu};
use preflop_core::kernels::attention;
use preflop_core::ops::{Attention, Op};
use preflop_core::{Dtype, Pass};
use rayon::prelude::*;
use std::collections::BTreeMap;

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
}

fn rows(measured: &[Measured]) -> Vec<Row> {
    measured
        .iter()
        .filter_map(|m| match m.call.op {
            Op::Attention(op) => {
                Some(Row { op, pass: m.call.pass, dtype: m.call.dtype, gpu: m.gpu, seconds: m.us * 1e-6 })
            }
            _ => None,
        })
        .collect()
}

/// Fewest rows that get constants of their own.
const LEAST: usize = 40;

/// Constants of every class, pooled over GPUs, and of every class on every generation with enough rows.
///
/// Where a generation has rows of the project's own measurement (PyTorch's kernels), only those count: the
/// published rows come from a server's kernels.
pub fn constants(measured: &[Measured], gpus: &[Gpu]) -> Forms {
    let mut groups: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for r in rows(measured) {
        let class = attention::class(&r.op, r.pass, r.dtype);
        groups.entry(class.to_string()).or_default().push(r);
        groups.entry(attention::key(class, gpus[r.gpu].architecture)).or_default().push(r);
    }
    groups
        .into_par_iter()
        .filter_map(|(key, mut members)| {
            let own = members.iter().filter(|r| r.gpu == 0).count();
            if key.matches('/').count() == 3 && own >= LEAST {
                members.retain(|r| r.gpu == 0);
            }
            (members.len() >= LEAST).then(|| (key, minimum(&members, gpus)))
        })
        .collect::<Vec<_>>()
        .into_iter()
        .collect()
}

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
        let stray: f64 = logs.iter().zip(&start).map(|(a, b)| (a - b) * (a - b)).sum();
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
            let t = attention::form(&r.op, r.pass, r.dtype, c, gpu);
            Sample {
                x: attention::features(&r.op, r.pass, r.dtype, &t, gpu),
                reference: t.time,
                seconds: r.seconds,
                class: class.to_string(),
                gpu: r.gpu,
                group: i,
                weight: 1.0,
            }
        })
        .collect()
}

fn by_class(title: &str, samples: &[Sample], predicted: &[f64], keep: impl Fn(&Sample) -> bool) {
    let mut by: BTreeMap<(&str, &str), Vec<(f64, f64)>> = BTreeMap::new();
    for (s, p) in samples.iter().zip(predicted).filter(|(s, _)| keep(s)) {
        by.entry((&s.class, GPUS[s.gpu])).or_default().push((*p, s.seconds));
    }
    for ((class, gpu), v) in by {
        println!("{title:8} {class:24} {gpu:16} {}", score(v));
    }
}

/// Cross-validation on the H200 alone, on all GPUs together, and with whole GPUs left out.
pub fn report(own: &[Measured], published: &[Measured], gpus: &[Gpu], settings: &Settings) {
    let all: Vec<Measured> = own.iter().chain(published).cloned().collect();
    let forms = constants(&all, gpus);
    for (key, c) in &forms {
        let text: Vec<String> = c.iter().map(|v| format!("{v:.3e}")).collect();
        println!("{key:32} {}", text.join(" "));
    }
    let h200 = samples(own, gpus, &forms);
    let closed: Vec<f64> = h200.iter().map(|s| s.reference).collect();
    by_class("form", &h200, &closed, |_| true);
    let p = cross_validate(&h200, attention::FEATURES, settings, 5);
    by_class("cv h200", &h200, &p, |_| true);

    let pooled = samples(&all, gpus, &forms);
    let closed: Vec<f64> = pooled.iter().map(|s| s.reference).collect();
    by_class("form", &pooled, &closed, |s| s.gpu != 0);
    let p = cross_validate(&pooled, attention::FEATURES, settings, 5);
    by_class("cv all", &pooled, &p, |_| true);
    leave_out(&all, gpus, settings);
}

/// Every published GPU in turn predicted from the others: closed form, whole and half correction.
fn leave_out(all: &[Measured], gpus: &[Gpu], settings: &Settings) {
    let mut names: Vec<usize> = all.iter().map(|m| m.gpu).filter(|g| *g != 0).collect();
    names.sort_unstable();
    names.dedup();
    for out in names {
        let rest: Vec<Measured> = all.iter().filter(|m| m.gpu != out).cloned().collect();
        let forms = constants(&rest, gpus);
        let forest = fit(&samples(&rest, gpus, &forms), attention::FEATURES, settings, |_| true);
        let test: Vec<Measured> = all.iter().filter(|m| m.gpu == out).cloned().collect();
        let test = samples(&test, gpus, &forms);
        for (title, share) in [("lo form", 0.0), ("lo full", 1.0), ("lo half", 0.5)] {
            let p: Vec<f64> =
                test.iter().map(|s| s.reference * (share * f64::from(forest.predict(&s.x))).exp()).collect();
            by_class(title, &test, &p, |_| true);
        }
    }
}
