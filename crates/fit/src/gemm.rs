//! Fits matrix products: constants per kernel class, then the correction.

use crate::data::Measured;
use crate::gbdt::Settings;
use crate::samples::{Sample, cross_validate};
use crate::score::score;
use crate::simplex::minimise;
use preflop_core::Dtype;
use preflop_core::gpu::Gpu;
use preflop_core::kernels::Machine;
use preflop_core::kernels::gemm;
use preflop_core::kernels::tile::Constants;
use preflop_core::ops::{Gemm, Op};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// A measured product.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub gemm: Gemm,
    pub dtype: Dtype,
    pub gpu: usize,
    pub seconds: f64,
}

/// The products among the measurements.
pub fn rows(measured: &[Measured]) -> Vec<Row> {
    measured
        .iter()
        .filter_map(|m| match m.call.op {
            Op::Gemm(gemm) => Some(Row { gemm, dtype: m.call.dtype, gpu: m.gpu, seconds: m.us * 1e-6 }),
            _ => None,
        })
        .collect()
}

/// Fits the constants of one class: least mean |log error|, held near the start by 1 % of the squared log change.
pub fn constants(rows: &[Row], gpus: &[Gpu], start: Constants, evaluations: usize) -> Constants {
    // At most 600 rows, evenly picked.
    let step = rows.len().div_ceil(600).max(1);
    let picked: Vec<(&Row, Machine)> =
        rows.iter().step_by(step).map(|r| (r, Machine::of(&gpus[r.gpu], r.dtype))).collect();
    let start_logs: Vec<f64> = start.to_array().iter().map(|c| c.ln()).collect();
    let from = |logs: &[f64]| {
        let mut a = [0.0; Constants::COUNT];
        for (a, l) in a.iter_mut().zip(logs) {
            *a = l.exp();
        }
        Constants::from_array(a)
    };
    let loss = |logs: &[f64]| {
        let c = from(logs);
        let error: f64 = picked
            .iter()
            .map(|(r, machine)| (gemm::form(&r.gemm, r.dtype, &c, machine).time / r.seconds).ln().abs())
            .sum::<f64>()
            / picked.len().max(1) as f64;
        let stray: f64 =
            logs.iter().zip(&start_logs).map(|(a, b)| (a - b) * (a - b)).sum::<f64>() / logs.len() as f64;
        error + 0.01 * stray
    };
    let (best, _) = minimise(&loss, &start_logs, 0.3, evaluations);
    from(&best)
}

pub type Table = BTreeMap<(Dtype, u8), Constants>;

/// Constants of every class among the rows.
pub fn table(rows: &[Row], gpus: &[Gpu]) -> Table {
    let mut classes: BTreeMap<(Dtype, u8), Vec<Row>> = BTreeMap::new();
    for r in rows {
        classes.entry((r.dtype, gemm::class(&r.gemm, r.dtype))).or_default().push(*r);
    }
    classes
        .into_par_iter()
        .map(|(key, members)| (key, constants(&members, gpus, Constants::START, 900)))
        .collect::<Vec<_>>()
        .into_iter()
        .collect()
}

pub fn samples(rows: &[Row], gpus: &[Gpu], table: &Table) -> Vec<Sample> {
    rows.iter()
        .enumerate()
        .map(|(i, r)| {
            let machine = Machine::of(&gpus[r.gpu], r.dtype);
            let class = gemm::class(&r.gemm, r.dtype);
            let t = gemm::form(&r.gemm, r.dtype, &table[&(r.dtype, class)], &machine);
            Sample {
                x: gemm::features(&r.gemm, r.dtype, &t, &machine),
                reference: t.time,
                seconds: r.seconds,
                class: format!("gemm/{}/{class}", r.dtype.name()),
                gpu: r.gpu,
                group: i,
                weight: 1.0,
            }
        })
        .collect()
}

pub fn report(measured: &[Measured], gpus: &[Gpu], settings: &Settings) {
    let rows = rows(measured);
    let table = table(&rows, gpus);
    let samples = samples(&rows, gpus, &table);
    println!("gemm form {}", score(samples.iter().map(|s| (s.reference, s.seconds))));
    let p = cross_validate(&samples, gemm::FEATURES, settings, 5);
    println!("gemm cv   {}", score(samples.iter().zip(&p).map(|(s, p)| (*p, s.seconds))));
}
