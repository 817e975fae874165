//! Fits convolutions: constants per kernel family, the family chooser, the correction.

use crate::chooser;
use crate::data::Measured;
use crate::samples::Sample;
use crate::simplex::minimise;
use preflop_core::Dtype;
use preflop_core::gpu::Gpu;
use preflop_core::kernels::Machine;
use preflop_core::kernels::conv::{
    ConvConstants, ConvFamily, ConvKey, Task, depthwise_time, family_time, interval_class,
};
use preflop_core::kernels::conv_features::{CHOICE_FEATURES, candidates_of, finish};
use preflop_core::ops::{Gemm, Op};
use preflop_core::time::TimeModel;
use preflop_core::time::choice::Chooser;
use preflop_core::time::conv_table::{ConvContext, ConvForms, coarser};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// A measured convolution.
#[derive(Debug, Clone)]
pub struct Row {
    pub task: Task,
    pub gpu: usize,
    pub seconds: f64,
    pub family: Option<ConvFamily>,
    pub source: &'static str,
}

/// The convolutions among the measurements.
pub fn rows(measured: &[Measured]) -> Vec<Row> {
    measured
        .iter()
        .filter_map(|m| match &m.call.op {
            Op::Conv(c) => Some(Row {
                task: Task::new(c, m.call.pass, m.call.dtype),
                gpu: m.gpu,
                seconds: m.us * 1e-6,
                family: ConvFamily::of_kernels(&m.kernels),
                source: m.source,
            }),
            _ => None,
        })
        .collect()
}

/// Fits the constants of all keys with at least 12 rows, and of their coarser keys.
pub fn constants(rows: &[Row], gpus: &[Gpu]) -> BTreeMap<String, Vec<f64>> {
    let mut groups: BTreeMap<String, Vec<&Row>> = BTreeMap::new();
    for r in rows {
        if let Some(f) = r.family {
            let key = ConvKey::new(&r.task, f).text();
            for k in coarser(&key).filter(|k| k.matches('/').count() >= 1) {
                groups.entry(k.to_string()).or_default().push(r);
            }
        }
    }
    groups
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
        .collect()
}

/// Trees and leaves of the chooser.
const CHOOSER: (usize, usize) = (24, 400);

/// Out-of-fold family probabilities for rows with names; the full chooser's for the others.
/// Plain products of 1x1 layers come from the product model that is in `data/fitted`.
pub fn samples(rows: &[Row], gpus: &[Gpu], table: &ConvForms) -> (Vec<Sample>, Chooser, f64) {
    let model = TimeModel::embedded();
    let made: Vec<_> = rows
        .par_iter()
        .map(|r| {
            let product = |g: &Gemm, dtype: Dtype| model.product_time(g, dtype, &gpus[r.gpu]);
            let context = ConvContext { forms: table, product: &product };
            candidates_of(&r.task, &context, &Machine::of(&gpus[r.gpu], r.task.dtype))
        })
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
            Sample {
                x,
                reference,
                seconds: r.seconds,
                class: interval_class(top, r.task.grouped(), p[top] > 0.7),
                gpu: r.gpu,
                group: i,
                // The two broad sweeps count more than the one that was aimed at odd shapes.
                weight: if r.source == "conv_extra" { 1.0 } else { 1.5 },
                source: r.source,
            }
        })
        .collect();
    (samples, full, f64::from(right) / named.len().max(1) as f64)
}
