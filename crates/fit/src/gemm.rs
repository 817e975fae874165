//! Fits matrix products: constants per kernel class, then the correction.

use crate::data::Measured;
use crate::gbdt::{Random, Settings};
use crate::samples::Sample;
use crate::simplex::minimise;
use preflop_core::Dtype;
use preflop_core::gpu::{Architecture, Gpu, Vendor};
use preflop_core::kernels::Machine;
use preflop_core::kernels::gemm;
use preflop_core::kernels::tile::Constants;
use preflop_core::ops::{Gemm, Op};
use preflop_core::time::Library;
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
    pub library: Library,
}

impl Row {
    /// The GPU as this measurement sees it.
    fn machine(&self, gpus: &[Gpu]) -> Machine {
        let gpu = &gpus[self.gpu];
        self.library.machine_of(&self.gemm, gpu, self.dtype, gpu.architecture)
    }
}

/// The products among the measurements.
pub fn rows(measured: &[Measured], library: Library) -> Vec<Row> {
    measured
        .iter()
        .filter_map(|m| match m.call.op {
            Op::Gemm(gemm) => {
                let (dtype, seconds) = (m.call.dtype, m.us * 1e-6);
                Some(Row { gemm, dtype, gpu: m.gpu, seconds, source: m.source, library })
            }
            _ => None,
        })
        .collect()
}

/// Where a fit starts and how firmly each constant is held there, in the order of `Constants::to_array`.
///
/// Across GPUs only what means the same everywhere may move far: published products run at the sustained peak, and
/// their L2 term is off, since clusters and larger tiles save what it counts.
fn start(library: Library) -> (Constants, [f64; Constants::COUNT]) {
    let held = [10.0, 1.0, 1.0, 1000.0, 10.0, 10.0, 1.0, 1.0, 1.0, 1.0];
    let across = Constants { eff: 1.05, hot: 0.3, slope: 10.0, l2: 10.0, drain: 150.0, ..Constants::START };
    match library {
        Library::Own => (Constants::START, [1.0; Constants::COUNT]),
        Library::Served => (across, held),
        Library::Plain => {
            (Constants { eff: 1.0, ..across }, [3.0, 1.0, 1.0, 1000.0, 3.0, 3.0, 1.0, 1.0, 1.0, 1.0])
        }
    }
}

/// Did a product of the same layout that is larger in every way take less than a share of the time? Then a poor kernel was picked, which is no law.
pub fn outdone<'a>(
    (g, seconds): (&Gemm, f64),
    mut others: impl Iterator<Item = (&'a Gemm, f64)>,
    share: f64,
) -> bool {
    others.any(|(o, time)| {
        time < share * seconds && o.m >= g.m && o.n >= g.n && o.k >= g.k && o.layout == g.layout
    })
}

/// Rows of each GPU that speak for the constants of a class.
const DRAWN: f32 = 600.0;
/// The same of a server's products, of which each GPU has 18,000.
const DRAWN_SERVED: f32 = 1200.0;
/// A server's products that take a quarter longer than a larger one teach nothing (they are scored). An L40S runs those of less than two million
/// multiply-adds whose sums are up to 8,192 long without splitting the sums, up to ten times as long as larger ones.
const OUTDONE: f64 = 0.8;

/// Fits the constants of one class: least mean |log error|, held near the start (or `near`) by 1 % of the squared log
/// change.
fn constants(rows: &[Row], gpus: &[Gpu], near: Option<Constants>) -> Constants {
    let (start, hold) = start(rows[0].library);
    let start = near.unwrap_or(start);
    let served = rows[0].library == Library::Served;
    let drawn = if served { DRAWN_SERVED } else { DRAWN };
    let teaches = |r: &Row| {
        let others = rows.iter().filter(|o| o.gpu == r.gpu && o.dtype == r.dtype);
        !served || !outdone((&r.gemm, r.seconds), others.map(|o| (&o.gemm, o.seconds)), OUTDONE)
    };
    // Drawn, since a fixed step would pick a single GPU where GPUs take turns in a file.
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for r in rows {
        *counts.entry(r.gpu).or_default() += 1;
    }
    let mut random = Random(1);
    let picked: Vec<(&Row, Machine, Architecture)> = rows
        .iter()
        .filter(|r| random.unit() < drawn / counts[&r.gpu] as f32)
        .filter(|r| teaches(r))
        .map(|r| (r, r.machine(gpus), gpus[r.gpu].architecture))
        .collect();
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
            .map(|(r, m, a)| (r.library.form(&r.gemm, r.dtype, &c, m, *a).time / r.seconds).ln().abs())
            .sum::<f64>()
            / picked.len().max(1) as f64;
        let stray: f64 =
            logs.iter().zip(&start_logs).zip(hold).map(|((a, b), h)| h * (a - b) * (a - b)).sum::<f64>()
                / logs.len() as f64;
        error + 0.01 * stray
    };
    let (best, _) = minimise(&loss, &start_logs, 0.3, 1500);
    from(&best)
}

/// Constants by number format, alignment class and generation.
pub type Table = BTreeMap<TileKey, Constants>;

/// The key of a row's constants.
pub fn key(r: &Row, gpus: &[Gpu]) -> TileKey {
    TileKey { dtype: r.dtype, class: r.library.class(&r.gemm, r.dtype), generation: gpus[r.gpu].architecture }
}

/// Constants of every class among the rows, near those pooled over generations.
pub fn table(rows: &[Row], gpus: &[Gpu]) -> Table {
    let pool = pooled(rows, gpus);
    let mut out = by_class(rows.iter().map(|r| (key(r, gpus), *r)), gpus, &pool);
    out.extend(pool);
    out
}

/// Constants of each number format and class over all of NVIDIA's GPUs, for generations nobody measured.
fn pooled(rows: &[Row], gpus: &[Gpu]) -> Table {
    let nvidia = rows.iter().filter(|r| gpus[r.gpu].vendor == Vendor::Nvidia);
    by_class(nvidia.map(|r| (anywhere(r, gpus), *r)), gpus, &Table::new())
}

/// Constants of each key, fitted near the pooled ones where there are any.
fn by_class(rows: impl Iterator<Item = (TileKey, Row)>, gpus: &[Gpu], pool: &Table) -> Table {
    let mut classes: BTreeMap<TileKey, Vec<Row>> = BTreeMap::new();
    for (key, r) in rows {
        classes.entry(key).or_default().push(r);
    }
    let near = |key: TileKey| pool.get(&TileKey { generation: Architecture::Other, ..key }).copied();
    classes
        .into_par_iter()
        .map(|(key, members)| (key, constants(&members, gpus, near(key))))
        .collect::<Vec<_>>()
        .into_iter()
        .collect()
}

/// The key of a row's pooled constants.
fn anywhere(r: &Row, gpus: &[Gpu]) -> TileKey {
    TileKey { generation: Architecture::Other, ..key(r, gpus) }
}

/// Name of the forest that knows no generations.
pub fn pooled_name(name: &str) -> String {
    format!("{name}/pooled")
}

/// Settings of that forest: few coarse trees, since it is used where nothing was measured.
pub fn across(settings: Settings) -> Settings {
    Settings { depth: 4, trees: 60, min_leaf: 100, ..settings }
}

/// Rows with the constants fitted on them.
pub struct Fit<'a> {
    rows: &'a [Row],
    table: Table,
}

impl<'a> Fit<'a> {
    pub fn new(rows: &'a [Row], gpus: &[Gpu]) -> Self {
        Self { rows, table: table(rows, gpus) }
    }

    /// All constants as the file holds them.
    pub fn constants(&self) -> impl Iterator<Item = (String, [f64; Constants::COUNT])> {
        self.table.iter().map(|(key, c)| (key.text(), c.to_array()))
    }

    /// The rows as the learner sees them, by the constants of their generation. The forest that knows no generations
    /// learns from the same: what is left beside a GPU's own constants holds on others too, whereas beside pooled
    /// constants most of what is left is the GPU itself.
    pub fn samples(&self, gpus: &[Gpu], pooled: bool) -> Vec<Sample> {
        let several = self.rows.iter().any(|r| r.gpu != self.rows[0].gpu);
        let sample = |(i, r): (usize, &Row)| {
            let machine = r.machine(gpus);
            let generation = gpus[r.gpu].architecture;
            let t = r.library.form(&r.gemm, r.dtype, &self.table[&key(r, gpus)], &machine, generation);
            let told = if pooled { Architecture::Other } else { generation };
            Sample {
                x: gemm::features(&r.gemm, r.dtype, &t, &machine, told),
                reference: t.time,
                seconds: r.seconds,
                forest: match r.library {
                    Library::Own => gemm::own_forest(r.dtype, gemm::class(&r.gemm, r.dtype)),
                    _ => "",
                },
                class: r.library.interval_class(&r.gemm, r.dtype).to_string(),
                gpu: r.gpu,
                // Rows of one (n, k) pair stay in one fold; on a single GPU every row is its own.
                group: if several { (r.gemm.n * 7919 + r.gemm.k * 31) as usize } else { i },
                weight: 1.0,
                source: r.source,
            }
        };
        self.rows.iter().enumerate().map(sample).collect()
    }
}

/// At most about `most` rows, evenly picked and as many of one GPU as of another: training time grows with rows,
/// errors hardly fall.
pub fn thinned(rows: Vec<Row>, most: usize) -> Vec<Row> {
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for r in &rows {
        *counts.entry(r.gpu).or_default() += 1;
    }
    let each = most / counts.len().max(1);
    let mut seen: BTreeMap<usize, usize> = BTreeMap::new();
    rows.into_iter()
        .filter(|r| {
            let at = seen.entry(r.gpu).or_default();
            *at += 1;
            // Each GPU starts at another row, so that they show different shapes.
            (*at - 1 + r.gpu).is_multiple_of((counts[&r.gpu] / each.max(1)).max(1))
        })
        .collect()
}
