//! Fits fp32 convolutions outside Hopper: constants per algorithm, then the correction.

use crate::data::Measured;
use crate::gbdt::{Random, Settings};
use crate::samples::{Sample, fit};
use crate::sets::Sets;
use crate::simplex::minimise;
use crate::unseen::{self, LeftOut};
use anyhow::Result;
use preflop_core::Dtype;
use preflop_core::gpu::Gpu;
use preflop_core::kernels::Machine;
use preflop_core::kernels::conv::Task;
use preflop_core::kernels::plain_conv::{Algorithm, FEATURES, Figures, features};
use preflop_core::ops::{Op, OpCall, Pass};
use preflop_core::time::TimeModel;
use preflop_core::time::fitted::ConstantsFile;
use preflop_core::time::trees::Forest;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Name of the forest.
pub const NAME: &str = "plain/conv";
/// Rows shorter than this hold a tenth of a millisecond that is not the kernels' (DeepBench has equal layers without
/// it): constants come from the others.
const LONG: f64 = 1.5e-3;
/// How firmly each constant is held at its start. A launch is known.
const HOLD: [f64; 6] = [1.0, 1.0, 1.0, 1.0, 1.0, 100.0];

/// A measured convolution.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    task: Task,
    pub gpu: usize,
    seconds: f64,
    ran: Option<Algorithm>,
}

pub fn rows(measured: &[Measured]) -> Vec<Row> {
    let row = |m: &Measured| {
        let Op::Conv(c) = &m.call.op else { return None };
        let task = Task::new(c, Pass::Fwd, Dtype::Fp32);
        Some(Row { task, gpu: m.gpu, seconds: m.us * 1e-6, ran: Algorithm::of_kernels(&m.kernels) })
    };
    measured.iter().filter_map(row).collect()
}

/// The constants of every algorithm, from the rows where it ran: least mean |log error|, held near the start.
pub fn constants(rows: &[Row], gpus: &[Gpu]) -> BTreeMap<String, Vec<f64>> {
    let one = |algorithm: Algorithm| {
        let mut random = Random(1);
        let members: Vec<&Row> =
            rows.iter().filter(|r| r.ran == Some(algorithm) && r.seconds > LONG).collect();
        let share = 800.0 / members.len().max(1) as f32;
        let picked: Vec<(&Row, Machine)> = members
            .into_iter()
            .filter(|_| random.unit() < share)
            .map(|r| (r, Machine::convolution(&gpus[r.gpu], Dtype::Fp32)))
            .collect();
        let start: Vec<f64> = algorithm.start().iter().map(|c| c.ln()).collect();
        let from = |logs: &[f64]| -> Figures { std::array::from_fn(|i| logs[i].exp()) };
        let loss = |logs: &[f64]| {
            let figures = from(logs);
            let time =
                |r: &Row, m: &Machine| algorithm.tiling(&r.task, &figures, m).map_or(r.seconds, |t| t.time);
            let error: f64 = picked.iter().map(|(r, m)| (time(r, m) / r.seconds).ln().abs()).sum::<f64>()
                / picked.len().max(1) as f64;
            let stray: f64 =
                logs.iter().zip(&start).zip(HOLD).map(|((a, b), hold)| hold * (a - b) * (a - b)).sum();
            error + 0.01 * stray / logs.len() as f64
        };
        let (once, _) = minimise(&loss, &start, 0.3, 500);
        let (best, _) = minimise(&loss, &once, 0.2, 500);
        (algorithm.key().to_string(), from(&best).to_vec())
    };
    Algorithm::ALL.into_par_iter().map(one).collect()
}

/// The rows as the learner sees them.
pub fn samples(rows: &[Row], gpus: &[Gpu], forms: &BTreeMap<String, Vec<f64>>) -> Vec<Sample> {
    let figures = Algorithm::ALL.map(|a| forms[a.key()].as_slice().try_into().unwrap_or(a.start()));
    let sample = |(i, r): (usize, &Row)| {
        let machine = Machine::convolution(&gpus[r.gpu], Dtype::Fp32);
        let times: [f64; 3] = std::array::from_fn(|a| {
            Algorithm::ALL[a].tiling(&r.task, &figures[a], &machine).map_or(f64::INFINITY, |t| t.time)
        });
        Sample {
            x: features(&r.task, &times, &machine),
            reference: times.into_iter().fold(f64::INFINITY, f64::min),
            seconds: r.seconds,
            forest: "",
            class: NAME.to_string(),
            gpu: r.gpu,
            group: i,
            weight: 1.0,
            source: "published",
        }
    };
    rows.iter().enumerate().map(sample).collect()
}

/// Settings of the forest.
pub fn settings() -> Settings {
    Settings { depth: 5, ..crate::whole::smooth(120, 30, 0.5) }
}

/// Constants and forest without one GPU.
pub fn without(rows: &[Row], gpus: &[Gpu], gpu: usize) -> (BTreeMap<String, Vec<f64>>, Forest) {
    let others: Vec<Row> = rows.iter().filter(|r| r.gpu != gpu).copied().collect();
    let forms = constants(&others, gpus);
    let forest = fit(&samples(&others, gpus, &forms), FEATURES, &settings(), |_| true);
    (forms, forest)
}

/// Every row by a model that did not see its GPU.
pub fn left_out(rows: &[Row], sets: &Sets) -> Result<Vec<LeftOut>> {
    let gpus = &sets.gpus;
    let each: BTreeSet<usize> = rows.iter().map(|r| r.gpu).collect();
    let models: BTreeMap<usize, (TimeModel, Gpu)> = each
        .into_par_iter()
        .map(|g| {
            let (forms, forest) = without(rows, gpus, g);
            let file = ConstantsFile { forms, ..ConstantsFile::default() };
            let forests = BTreeMap::from([(NAME.to_string(), forest)]);
            Ok((g, (unseen::model(file, &forests, sets, g)?, unseen::stranger(&gpus[g].name)?)))
        })
        .collect::<Result<_>>()?;
    Ok(rows
        .par_iter()
        .map(|r| {
            let (model, gpu) = &models[&r.gpu];
            let call = OpCall::fwd(Op::Conv(r.task.conv), Dtype::Fp32);
            LeftOut {
                gpu: r.gpu,
                class: NAME.to_string(),
                predicted: model.predict(&call, gpu).time.0,
                seconds: r.seconds,
            }
        })
        .collect())
}
