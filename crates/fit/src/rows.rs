//! Fits fp32 softmax and layer norm outside Hopper: two constants per kernel.

use crate::data::Measured;
use crate::simplex::minimise;
use crate::unseen::{LeftOut, stranger};
use anyhow::Result;
use preflop_core::gpu::{Gpu, Vendor};
use preflop_core::kernels::rows::{Figures, Kernel};
use preflop_core::ops::Rowwise;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Host time in the published rows: what elementwise calls of 0.2 to 0.4 ms take longer than DRAM allows.
const HOST: f64 = 15e-6;

/// A measured call.
#[derive(Debug, Clone)]
pub struct Row {
    kernel: Kernel,
    op: Rowwise,
    pub gpu: usize,
    seconds: f64,
    class: &'static str,
}

pub fn rows(measured: &[Measured]) -> Vec<Row> {
    let row = |m: &Measured| {
        let (kernel, op) = Kernel::of(&m.call)?;
        Some(Row { kernel, op, gpu: m.gpu, seconds: m.us * 1e-6, class: m.call.family().name() })
    };
    measured.iter().filter_map(row).collect()
}

/// The constants of every kernel over NVIDIA's GPUs, each GPU weighing the same: least mean |log error|, held near the start.
pub fn constants(rows: &[Row], gpus: &[Gpu]) -> BTreeMap<String, Vec<f64>> {
    let one = |kernel: Kernel| {
        let members: Vec<&Row> =
            rows.iter().filter(|r| r.kernel == kernel && gpus[r.gpu].vendor == Vendor::Nvidia).collect();
        let mut counts: BTreeMap<usize, f64> = BTreeMap::new();
        for r in &members {
            *counts.entry(r.gpu).or_default() += 1.0;
        }
        let start = kernel.start().map(f64::ln);
        let from = |logs: &[f64]| -> Figures { [logs[0].exp(), logs[1].exp()] };
        let loss = |logs: &[f64]| {
            let figures = from(logs);
            let error = |r: &Row| {
                ((kernel.time(&r.op, &figures, &gpus[r.gpu]) + HOST) / r.seconds).ln().abs() / counts[&r.gpu]
            };
            let stray: f64 = logs.iter().zip(start).map(|(a, b)| (a - b) * (a - b)).sum();
            members.iter().map(|r| error(r)).sum::<f64>() / counts.len().max(1) as f64 + 0.0025 * stray
        };
        let (best, _) = minimise(&loss, &start, 0.3, 300);
        (kernel.key().to_string(), from(&best).to_vec())
    };
    Kernel::ALL.into_iter().map(one).collect()
}

/// Every row by constants that did not see its GPU.
pub fn left_out(rows: &[Row], gpus: &[Gpu]) -> Result<Vec<LeftOut>> {
    let each: BTreeSet<usize> = rows.iter().map(|r| r.gpu).collect();
    let parts: Vec<Vec<LeftOut>> = each
        .into_par_iter()
        .map(|g| {
            let (own, others): (Vec<Row>, Vec<Row>) = rows.iter().cloned().partition(|r| r.gpu == g);
            let forms = constants(&others, gpus);
            let gpu = stranger(&gpus[g].name)?;
            let predict = |r: &Row| {
                let figures = forms[r.kernel.key()].as_slice().try_into().unwrap_or(r.kernel.start());
                let predicted = r.kernel.time(&r.op, &figures, &gpu);
                LeftOut { gpu: g, class: r.class.to_string(), predicted, seconds: r.seconds }
            };
            Ok(own.iter().map(predict).collect())
        })
        .collect::<Result<_>>()?;
    Ok(parts.into_iter().flatten().collect())
}
