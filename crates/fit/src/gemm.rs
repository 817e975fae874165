//! Fits matrix products: constants per kernel class, then the correction.

use crate::data::Measured;
use crate::samples::Sample;
use crate::simplex::minimise;
use preflop_core::Dtype;
use preflop_core::gpu::{Architecture, Gpu};
use preflop_core::kernels::Machine;
use preflop_core::kernels::gemm;
use preflop_core::kernels::tile::Constants;
use preflop_core::ops::{Gemm, Op};
use preflop_core::time::fitted::TileKey;
use rayon::prelude::*;
use std::collections::BTreeMap;

/// A measured product.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub gemm: Gemm,
    pub dtype: Dtype,
    pub gpu: usize,
    pub seconds: f64,
    /// File it comes from.
    pub source: &'static str,
}

/// The products among the measurements.
pub fn rows(measured: &[Measured]) -> Vec<Row> {
    measured
        .iter()
        .filter_map(|m| match m.call.op {
            Op::Gemm(gemm) => {
                Some(Row { gemm, dtype: m.call.dtype, gpu: m.gpu, seconds: m.us * 1e-6, source: m.source })
            }
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

/// Constants by number format, alignment class and generation.
pub type Table = BTreeMap<TileKey, Constants>;

/// The key of a row's constants.
pub fn key(r: &Row, gpus: &[Gpu]) -> TileKey {
    TileKey { dtype: r.dtype, class: gemm::class(&r.gemm, r.dtype), generation: gpus[r.gpu].architecture }
}

/// Constants of every class among the rows.
pub fn table(rows: &[Row], gpus: &[Gpu]) -> Table {
    let mut classes: BTreeMap<TileKey, Vec<Row>> = BTreeMap::new();
    for r in rows {
        classes.entry(key(r, gpus)).or_default().push(*r);
    }
    classes
        .into_par_iter()
        .map(|(key, members)| (key, constants(&members, gpus, Constants::START, 900)))
        .collect::<Vec<_>>()
        .into_iter()
        .collect()
}

/// The samples of a fit; `forest` names the one that learns a row of a format and class.
pub fn samples(
    rows: &[Row],
    gpus: &[Gpu],
    table: &Table,
    forest: impl Fn(Dtype, u8) -> &'static str,
) -> Vec<Sample> {
    let several = rows.iter().any(|r| r.gpu != rows[0].gpu);
    rows.iter()
        .enumerate()
        .map(|(i, r)| {
            let machine = Machine::of(&gpus[r.gpu], r.dtype);
            let class = gemm::class(&r.gemm, r.dtype);
            let t = gemm::form(&r.gemm, r.dtype, &table[&key(r, gpus)], &machine);
            Sample {
                x: gemm::features(&r.gemm, r.dtype, &t, &machine, gpus[r.gpu].architecture),
                reference: t.time,
                seconds: r.seconds,
                forest: forest(r.dtype, class),
                class: gemm::interval_class(r.dtype, class).to_string(),
                gpu: r.gpu,
                // Rows of one (n, k) pair stay in one fold; on a single GPU every row is its own.
                group: if several { (r.gemm.n * 7919 + r.gemm.k * 31) as usize } else { i },
                weight: 1.0,
                source: r.source,
            }
        })
        .collect()
}

/// Constants of each number format and class over all GPUs, for generations nobody measured.
pub fn pooled(rows: &[Row], gpus: &[Gpu]) -> Table {
    let mut classes: BTreeMap<TileKey, Vec<Row>> = BTreeMap::new();
    for r in rows {
        classes.entry(TileKey { generation: Architecture::Other, ..key(r, gpus) }).or_default().push(*r);
    }
    classes
        .into_par_iter()
        .map(|(key, members)| (key, constants(&members, gpus, Constants::START, 900)))
        .collect::<Vec<_>>()
        .into_iter()
        .collect()
}

/// At most `most` rows, evenly picked over the file: training time grows with rows, errors hardly fall.
pub fn thinned(rows: Vec<Row>, most: usize) -> Vec<Row> {
    // A step coprime to the number of GPUs in a row of the file keeps all of them.
    let step = (rows.len() / most).max(1) | 1;
    rows.into_iter().step_by(step).collect()
}
