//! Fits convolutions: constants per kernel family, the family chooser, the correction.

use crate::chooser;
use crate::data::Measured;
use crate::gbdt::Settings;
use crate::samples::{Sample, cross_validate};
use crate::score::score;
use crate::simplex::minimise;
use preflop_core::gpu::Gpu;
use preflop_core::kernels::Machine;
use preflop_core::kernels::conv::{
    ConvConstants, ConvFamily, Task, constants_key, depthwise_time, dtype_group, family_time,
};
use preflop_core::kernels::conv_features::{CHOICE_FEATURES, ConvTable, FEATURES, candidates_of, finish};
use preflop_core::ops::Op;
use preflop_core::time::choice::Chooser;
use rayon::prelude::*;
use std::collections::BTreeMap;

/// A measured convolution.
#[derive(Debug, Clone)]
pub struct Row {
    pub task: Task,
    pub gpu: usize,
    pub seconds: f64,
    pub family: Option<ConvFamily>,
    pub source: usize,
}

/// The convolutions among the measurements.
pub fn rows(measured: &[Measured], source: usize) -> Vec<Row> {
    measured
        .iter()
        .filter_map(|m| match &m.call.op {
            Op::Conv(c) => Some(Row {
                task: Task::new(c, m.call.pass, m.call.dtype),
                gpu: m.gpu,
                seconds: m.us * 1e-6,
                family: ConvFamily::of_kernels(&m.kernels),
                source,
            }),
            _ => None,
        })
        .collect()
}

/// Constants by key, with coarser keys to fall back on.
#[derive(Debug, Clone, Default)]
pub struct Constants {
    pub table: BTreeMap<String, Vec<f64>>,
}

fn coarser(key: &str) -> impl Iterator<Item = &str> {
    let mut at = Some(key);
    std::iter::from_fn(move || {
        let now = at?;
        at = now.rfind('/').map(|i| &now[..i]);
        Some(now)
    })
}

impl ConvTable for Constants {
    fn product(&self, task: &Task, family: ConvFamily) -> ConvConstants {
        let key = constants_key(task, family);
        coarser(&key)
            .find_map(|k| self.table.get(k))
            .and_then(|v| ConvConstants::from_slice(v))
            .unwrap_or(ConvConstants::START)
    }

    fn depthwise(&self, task: &Task, family: ConvFamily) -> (f64, f64) {
        let key = constants_key(task, family);
        coarser(&key).find_map(|k| self.table.get(k)).map_or((4e-6, 0.3), |v| (v[0], v[1]))
    }
}

/// Fits the constants of all keys with at least 12 rows, and of their coarser keys.
pub fn constants(rows: &[Row], gpus: &[Gpu]) -> Constants {
    let mut groups: BTreeMap<String, Vec<&Row>> = BTreeMap::new();
    for r in rows {
        if let Some(f) = r.family {
            let key = constants_key(&r.task, f);
            for k in coarser(&key).filter(|k| k.matches('/').count() >= 1) {
                groups.entry(k.to_string()).or_default().push(r);
            }
        }
    }
    let table = groups
        .into_par_iter()
        .filter(|(_, members)| members.len() >= 12)
        .map(|(key, members)| {
            let step = members.len().div_ceil(300).max(1);
            let picked: Vec<(&Row, Machine)> =
                members.iter().step_by(step).map(|r| (*r, Machine::of(&gpus[r.gpu], r.task.dtype))).collect();
            let family = members[0].family.unwrap_or(ConvFamily::Gemm);
            let start: Vec<f64> =
                if family.streams() { vec![4e-6, 0.3] } else { ConvConstants::START.to_array().to_vec() };
            let logs: Vec<f64> = start.iter().map(|v| v.ln()).collect();
            let loss = |p: &[f64]| {
                let c: Vec<f64> = p.iter().map(|l| l.exp()).collect();
                let error: f64 = picked
                    .iter()
                    .map(|(r, m)| {
                        let t = if family.streams() {
                            depthwise_time(&r.task, c[0], c[1], m)
                        } else {
                            let k = ConvConstants::from_slice(&c).unwrap_or(ConvConstants::START);
                            family_time(&r.task, family, &k, m).time
                        };
                        (t / r.seconds).ln().abs()
                    })
                    .sum::<f64>()
                    / picked.len() as f64;
                let stray: f64 =
                    p.iter().zip(&logs).map(|(a, b)| (a - b) * (a - b)).sum::<f64>() / p.len() as f64;
                error + 0.01 * stray
            };
            let (best, _) = minimise(&loss, &logs, 0.3, 500);
            (key, best.iter().map(|l| l.exp()).collect())
        })
        .collect::<Vec<(String, Vec<f64>)>>()
        .into_iter()
        .collect();
    Constants { table }
}

/// Trees and leaves of the chooser.
const CHOOSER: (usize, usize) = (12, 160);

/// Out-of-fold family probabilities for rows with names; the full chooser's for the others.
pub fn samples(rows: &[Row], gpus: &[Gpu], table: &Constants) -> (Vec<Sample>, Chooser, f64) {
    let made: Vec<_> = rows
        .par_iter()
        .map(|r| candidates_of(&r.task, table, &Machine::of(&gpus[r.gpu], r.task.dtype)))
        .collect();
    let named: Vec<usize> = (0..rows.len()).filter(|&i| rows[i].family.is_some()).collect();
    let learn = |keep: &dyn Fn(usize) -> bool, seed: u64| {
        let part: Vec<usize> = named.iter().copied().filter(|&i| keep(i)).collect();
        let x: Vec<_> = part.iter().map(|&i| made[i].x).collect();
        let y: Vec<u8> = part.iter().map(|&i| rows[i].family.map_or(0, |f| f as u8)).collect();
        chooser::train(&x, &y, CHOICE_FEATURES, CHOOSER.0, CHOOSER.1, seed)
    };
    let full = learn(&|_| true, 11);
    let folds: Vec<Chooser> = (0..5usize).map(|fold| learn(&|i| i % 5 != fold, 11)).collect();
    let mut right = 0;
    let samples = rows
        .iter()
        .enumerate()
        .map(|(i, r)| {
            let p = folds[i % 5].probabilities(&made[i].x);
            let (reference, x, top) = finish(&made[i], &p);
            if r.family.is_some_and(|f| f as usize == top) {
                right += 1;
            }
            let certain = if p[top] > 0.7 { "sure" } else { "unsure" };
            let kind = if r.task.grouped() { "grouped" } else { "plain" };
            Sample {
                x,
                reference,
                seconds: r.seconds,
                class: format!("conv/{}/{kind}/{certain}", ConvFamily::ALL[top].name()),
                gpu: r.gpu,
                group: i,
                weight: 1.0,
            }
        })
        .collect();
    (samples, full, right as f64 / named.len().max(1) as f64)
}

pub fn report(rows: &[Row], gpus: &[Gpu], settings: &Settings) {
    let table = constants(rows, gpus);
    println!("{} keys", table.table.len());
    let (samples, _, accuracy) = samples(rows, gpus, &table);
    println!("family right {:.1} %", 100.0 * accuracy);
    println!("form {}", score(samples.iter().map(|s| (s.reference, s.seconds))));
    let mut all = vec![0.0; samples.len()];
    for group in ["half", "tf32", "fp32"] {
        let part: Vec<usize> =
            (0..rows.len()).filter(|&i| dtype_group(rows[i].task.dtype) == group).collect();
        let own: Vec<Sample> = part.iter().map(|&i| samples[i].clone()).collect();
        let p = cross_validate(&own, FEATURES, settings, 5);
        println!("{group} cv {}", score(own.iter().zip(&p).map(|(s, p)| (*p, s.seconds))));
        for (i, p) in part.iter().zip(p) {
            all[*i] = p;
        }
    }
    for source in 0..3 {
        let v = (0..rows.len()).filter(|&i| rows[i].source == source).map(|i| (all[i], rows[i].seconds));
        println!("source {source} cv {}", score(v));
        for pass in [preflop_core::Pass::Fwd, preflop_core::Pass::Dgrad, preflop_core::Pass::Wgrad] {
            let v = (0..rows.len())
                .filter(|&i| rows[i].source == source && rows[i].task.pass == pass)
                .map(|i| (all[i], rows[i].seconds));
            println!("   {:6} {}", pass.name(), score(v));
        }
    }
    let mut by: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for (s, p) in samples.iter().zip(&all) {
        by.entry(&s.class).or_default().push((*p, s.seconds));
    }
    for (c, v) in by {
        println!("    {c:40} {}", score(v));
    }
}
