//! Fits recurrent layers: constants per pass, number format and algorithm, then the correction.

use crate::attention::Forms;
use crate::data::Measured;
use crate::gemm;
use crate::samples::Sample;
use crate::simplex::minimise;
use preflop_core::gpu::Gpu;
use preflop_core::kernels::tile::Constants;
use preflop_core::kernels::{Machine, gemm as product, rnn};
use preflop_core::ops::{Gemm, Op, Rnn};
use preflop_core::time::fitted::TileKey;
use preflop_core::{Dtype, Pass};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// A measured call with the times of its products, which do not depend on the constants fitted here.
#[derive(Debug, Clone)]
struct Row {
    op: Rnn,
    pass: Pass,
    dtype: Dtype,
    gpu: usize,
    seconds: f64,
    source: &'static str,
    class: String,
    input: f64,
    step: f64,
}

fn rows(measured: &[Measured], gpus: &[Gpu], products: &gemm::Table) -> Vec<Row> {
    measured
        .iter()
        .filter_map(|m| {
            let Op::Rnn(op) = m.call.op else { return None };
            let (pass, dtype, gpu) = (m.call.pass, m.call.dtype, &gpus[m.gpu]);
            let machine = Machine::of(gpu, dtype);
            let time = |g: Gemm| {
                let c = products
                    .get(&TileKey { dtype, class: product::class(&g, dtype), generation: gpu.architecture })
                    .unwrap_or(&Constants::START);
                product::form(&g, dtype, c, &machine).time
            };
            let (input, step) = rnn::products(&op, pass, &time);
            let class = rnn::class(&op, pass, dtype, gpu);
            Some(Row {
                op,
                pass,
                dtype,
                gpu: m.gpu,
                seconds: m.us * 1e-6,
                source: m.source,
                class,
                input,
                step,
            })
        })
        .collect()
}

/// Fewest rows that get constants of their own.
const LEAST: usize = 8;

/// Constants of every class.
pub fn constants(measured: &[Measured], gpus: &[Gpu], products: &gemm::Table) -> Forms {
    let mut groups: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for r in rows(measured, gpus, products) {
        groups.entry(r.class.clone()).or_default().push(r);
    }
    groups
        .into_par_iter()
        .filter(|(_, members)| members.len() >= LEAST)
        .map(|(key, members)| (key, minimum(&members, gpus)))
        .collect::<Vec<_>>()
        .into_iter()
        .collect()
}

/// Least mean |log error|, held near the start by 0.5 % of the squared log change.
fn minimum(rows: &[Row], gpus: &[Gpu]) -> Vec<f64> {
    let first = &rows[0];
    let algorithm = rnn::algorithm(&first.op, first.pass, first.dtype, &gpus[first.gpu]);
    let start: Vec<f64> = rnn::start(algorithm).iter().map(|c| c.ln()).collect();
    let loss = |logs: &[f64]| {
        let mut c = [0.0; rnn::CONSTANTS];
        for (c, l) in c.iter_mut().zip(logs) {
            *c = l.exp();
        }
        let error: f64 = rows
            .iter()
            .map(|r| (rnn::chain(&r.op, &c, r.input, r.step).time / r.seconds).ln().abs())
            .sum::<f64>()
            / rows.len() as f64;
        let stray: f64 = logs.iter().zip(&start).map(|(a, b)| (a - b) * (a - b)).sum();
        error + 0.005 * stray / logs.len() as f64
    };
    let (once, _) = minimise(&loss, &start, 0.4, 1500);
    let (best, _) = minimise(&loss, &once, 0.2, 1500);
    best.iter().map(|l| l.exp()).collect()
}

pub fn samples(measured: &[Measured], gpus: &[Gpu], products: &gemm::Table, forms: &Forms) -> Vec<Sample> {
    rows(measured, gpus, products)
        .into_iter()
        .enumerate()
        .map(|(i, r)| {
            let gpu = &gpus[r.gpu];
            let algorithm = rnn::algorithm(&r.op, r.pass, r.dtype, gpu);
            let c = forms.get(&r.class).and_then(|c| c.first_chunk()).unwrap_or(rnn::start(algorithm));
            let mut t = rnn::chain(&r.op, c, r.input, r.step);
            t.time = t.time.max(rnn::floor(&r.op, r.pass, r.dtype, gpu));
            Sample {
                x: rnn::features(&r.op, r.pass, r.dtype, &t, gpu),
                reference: t.time,
                seconds: r.seconds,
                forest: rnn::forest_name(r.pass),
                class: r.class,
                gpu: r.gpu,
                group: i,
                weight: 1.0,
                source: r.source,
            }
        })
        .collect()
}
