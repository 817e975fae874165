//! Fits the forms for boards before Hopper on published rows, through the model of everything else.
//!
//! Each form has a handful of constants, so they are fitted through the whole model: least mean |log error|, held near where they start. The
//! same functions fit without one GPU for the table of `preflop-fit unseen`.

use crate::data::Measured;
use crate::networks::Run;
use crate::sets::Sets;
use crate::simplex::minimise;
use crate::{deepbench, gemm, networks};
use anyhow::Result;
use preflop_core::Dtype;
use preflop_core::gpu::{Architecture, Gpu, catalog};
use preflop_core::kernels::conv::Task;
use preflop_core::kernels::{plain_rivals, rnn_older, skinny, tensor_conv};
use preflop_core::model::Precision;
use preflop_core::ops::{Op, Pass};
use preflop_core::time::boards::Boards;
use preflop_core::time::{Stack, TimeModel};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// How firmly constants are held at their start, and those of recurrent layers, of which each pass of a generation has one GPU.
const HOLD: f64 = 0.01;
const FIRM: f64 = 0.1;
/// Products of which a larger one takes less than this share of the time teach nothing.
const OUTDONE: f64 = 0.95;

/// The constants that minimise an error, near a start; constants of 0 in the start do not exist.
fn nearest<const N: usize>(
    start: [f64; N],
    evaluations: usize,
    error: impl Fn(&[f64; N]) -> f64,
) -> [f64; N] {
    nearest_of(start, [true; N], HOLD, evaluations, error)
}

/// The same with constants that no row speaks of where they start.
fn nearest_of<const N: usize>(
    start: [f64; N],
    spoken: [bool; N],
    hold: f64,
    evaluations: usize,
    error: impl Fn(&[f64; N]) -> f64,
) -> [f64; N] {
    let free: Vec<usize> = (0..N).filter(|i| spoken[*i]).collect();
    let logs: Vec<f64> = free.iter().map(|i| start[*i].ln()).collect();
    let from = |at: &[f64]| -> [f64; N] {
        let mut all = start;
        free.iter().zip(at).for_each(|(i, log)| all[*i] = log.exp());
        all
    };
    let loss = |at: &[f64]| {
        let stray: f64 = at.iter().zip(&logs).map(|(a, b)| (a - b) * (a - b)).sum();
        error(&from(at)) + hold * stray / N as f64
    };
    from(&minimise(&loss, &logs, 0.2, evaluations).0)
}

/// The sum over rows, computed on all cores and added up in the rows' order, so that two fits are equal in every digit.
fn in_order<T: Sync>(rows: &[T], of: impl Fn(&T) -> f64 + Sync + Send) -> f64 {
    rows.par_iter().map(of).collect::<Vec<f64>>().into_iter().sum()
}

/// Mean |log error| of a model on rows of DeepBench.
fn error(model: &TimeModel, rows: &[&Measured], gpus: &[Gpu]) -> f64 {
    let each = |m: &&Measured| {
        let predicted = model.predict(&m.call, &gpus[m.gpu]).time.0 + Stack::DEEPBENCH.call_s;
        (predicted / (m.us * 1e-6)).ln().abs()
    };
    in_order(rows, each) / rows.len().max(1) as f64
}

/// Was a product outdone by a larger one of the same format on its GPU?
fn outdone(m: &Measured, rows: &[Measured]) -> bool {
    let Op::Gemm(g) = &m.call.op else { return false };
    let same = |o: &&Measured| o.gpu == m.gpu && o.call.dtype == m.call.dtype;
    let others = rows.iter().filter(same).filter_map(|o| match &o.call.op {
        Op::Gemm(other) => Some((other, o.us)),
        _ => None,
    });
    gemm::outdone((g, m.us), others, OUTDONE)
}

/// All rows of DeepBench.
pub struct Rows {
    pub convolutions: Vec<Measured>,
    pub products: Vec<Measured>,
    pub recurrent: Vec<Measured>,
}

impl Rows {
    pub fn read(sets: &Sets) -> Result<Self> {
        Ok(Self {
            convolutions: deepbench::convolutions(sets)?,
            products: deepbench::products(sets)?,
            recurrent: deepbench::recurrent(sets)?,
        })
    }
}

/// The constants of all forms but tensor-core convolutions, without one of the GPUs.
pub fn constants(model: &TimeModel, rows: &Rows, gpus: &[Gpu], without: Option<usize>) -> Boards {
    let seen = |m: &&Measured| Some(m.gpu) != without;
    let mut boards = model.boards().clone();
    let thin: Vec<&Measured> = rows
        .products
        .iter()
        .filter(seen)
        .filter(
            |m| matches!(&m.call.op, Op::Gemm(g) if m.call.dtype == Dtype::Fp32 && skinny::share(g) >= 1.0),
        )
        .filter(|m| !outdone(m, &rows.products))
        .collect();
    boards.skinny = nearest(skinny::START, 120, |f| {
        error(&model.clone().with_boards(Boards { skinny: *f, ..boards.clone() }), &thin, gpus)
    });
    let plain: Vec<&Measured> =
        rows.convolutions.iter().filter(seen).filter(|m| m.call.dtype == Dtype::Fp32).collect();
    boards.rivals = nearest(plain_rivals::START, 160, |f| {
        error(&model.clone().with_boards(Boards { rivals: *f, ..boards.clone() }), &plain, gpus)
    });
    let slow = model.clone().with_stack(Stack::DEEPBENCH);
    for (generation, pass) in [
        (Architecture::Pascal, Pass::Fwd),
        (Architecture::Pascal, Pass::Bwd),
        (Architecture::Volta, Pass::Fwd),
        (Architecture::Volta, Pass::Bwd),
    ] {
        let of = |m: &&Measured| {
            let pascal = gpus[m.gpu].architecture == Architecture::Pascal;
            m.call.pass == pass && pascal == (generation == Architecture::Pascal)
        };
        let own: Vec<&Measured> = rows.recurrent.iter().filter(seen).filter(of).collect();
        // A generation without rows takes what the others teach.
        let own = if own.is_empty() {
            rows.recurrent.iter().filter(seen).filter(|m| m.call.pass == pass).collect()
        } else {
            own
        };
        let teacher = own.first().map_or(generation, |m| gpus[m.gpu].architecture);
        // Not from the generation's own start, which comes from a study of its rows.
        let start = rnn_older::start(teacher, pass);
        let spoken = rnn_older::spoken(own.iter().map(|m| m.call.dtype));
        let found = nearest_of(start, spoken, FIRM, 200, |f| {
            let mut tried = boards.clone();
            tried.set_recurrent(teacher, pass, *f);
            error(&slow.clone().with_boards(tried), &own, gpus)
        });
        boards.set_recurrent(generation, pass, found);
    }
    boards
}

/// Constants of tensor-core convolutions from whole networks and single 16-bit calls, without those of one GPU.
pub fn tensor(
    (runs, calls): (&[Run], &[Measured]),
    model: &TimeModel,
    gpus: &[Gpu],
    without: Option<&str>,
) -> tensor_conv::Figures {
    let chip = |name: &str| name.split('-').next().unwrap_or_default().to_string();
    let left_out =
        |name: &str| without.is_some_and(|w| w == name || chip(w) == "v100" && chip(name) == "v100");
    let single: Vec<(Task, &Gpu, f64)> = calls
        .iter()
        .filter(|m| m.call.dtype == Dtype::Fp16 && !left_out(&gpus[m.gpu].name))
        .filter_map(|m| match &m.call.op {
            Op::Conv(c) => Some((
                Task::new(c, m.call.pass, m.call.dtype),
                &gpus[m.gpu],
                m.us * 1e-6 - Stack::DEEPBENCH.call_s,
            )),
            _ => None,
        })
        .collect();
    let parts: Vec<networks::Parts> = runs
        .par_iter()
        .filter(|r| !left_out(&r.gpu) && r.precision != Precision::Fp32)
        .filter_map(|r| networks::parts(model, r))
        .collect();
    let on = runs.iter().filter(|r| r.precision != Precision::Fp32 && !left_out(&r.gpu));
    let names: BTreeSet<&str> = on.map(|r| r.gpu.as_str()).collect();
    let mut boards: Vec<Gpu> = names.into_iter().filter_map(|name| catalog::find(name).ok()).collect();
    boards.extend(single.iter().map(|(_, gpu, _)| (*gpu).clone()).take(1));
    let spoken = tensor_conv::spoken(&boards);
    nearest_of(tensor_conv::START, spoken, HOLD, 250, |f| {
        let whole = in_order(&parts, |p| (p.seconds(f) / p.measured).ln().abs());
        let one = in_order(&single, |(t, g, s)| (tensor_conv::form(t, f, g).time / s).ln().abs());
        (whole + one) / (parts.len() + single.len()).max(1) as f64
    })
}

/// The constants of all forms from all rows, through a model of everything else.
pub fn fit(sets: &Sets, model: &TimeModel) -> Result<BTreeMap<String, Vec<f64>>> {
    let rows = Rows::read(sets)?;
    let mut boards = constants(model, &rows, &sets.gpus, None);
    let runs = networks::runs(sets)?;
    let with_others = model.clone().with_boards(boards.clone());
    boards.tensor = tensor((&runs, &rows.convolutions), &with_others, &sets.gpus, None);
    let rounded =
        |f: &[f64]| f.iter().map(|x| format!("{x:.4e}").parse().unwrap_or(*x)).collect::<Vec<f64>>();
    Ok(boards.forms().into_iter().map(|(k, f)| (k.to_string(), rounded(&f))).collect())
}
