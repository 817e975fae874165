//! The operators of the table: constants on two thirds of the measured rows and on those that were missed by much, errors on the third that no fit sees.
//!
//! A row is held back by a hash of its text, so the third is the same in every run. `preflop-fit operators` prints
//! the errors of every operator of the file on its held-back rows; with `write` it fits the forms, writes `data/fitted/operators.toml` and judges
//! the forms alone. Trees that learn what the forms leave out are part of the whole fit.

use crate::data::{Measured, operators as read};
use crate::samples::Sample;
use crate::score::{Score, score};
use crate::sets::Sets;
use anyhow::{Context as _, Result};
use preflop_core::gpu::Gpu;
use preflop_core::kernels::listed::{TERMS, class, forest, form, terms};
use preflop_core::ops::{Op, OpCall};
use preflop_core::time::{TimeModel, listed_class, listed_form};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{BuildHasher as _, BuildHasherDefault};

const FILE: &str = "data/fitted/operators.toml";
/// Largest constants: more passes, clocks or launches than any kernel makes come from rows that do not tell terms apart.
const LARGEST: [f64; TERMS] = [30.0, 10.0, 60.0, 1e4, 1e5, 1e5, 1e5];
/// Classes with fewer rows to fit on have none of their own.
const FEWEST: usize = 4;

/// A fitted class.
struct Class {
    constants: [f64; TERMS],
    rows: usize,
    spread: [f64; 2],
}

/// FNV-1a, so that the held-back rows are the same on every machine.
#[derive(Default)]
struct Fnv(u64);

impl std::hash::Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Is a call only for judging?
pub fn held(call: &OpCall) -> bool {
    let hash = BuildHasherDefault::<Fnv>::default().hash_one(format!("{call:?}"));
    // The low bits of a product are poor: the high ones decide.
    (hash >> 32).is_multiple_of(3)
}

/// Constants that are not negative, with the least sum of |log| errors: least squares of relative errors, weighed anew by the last ones.
fn fitted(rows: &[([f64; TERMS], f64)]) -> [f64; TERMS] {
    const ROUNDS: usize = 25;
    const SWEEPS: usize = 300;
    /// Errors below this count alike.
    const FINE: f64 = 0.03;
    let mut scale = [0.0f64; TERMS];
    for (terms, seconds) in rows {
        for (s, t) in scale.iter_mut().zip(terms) {
            *s = s.max(t / seconds);
        }
    }
    let scaled: Vec<[f64; TERMS]> = rows
        .iter()
        .map(|(terms, seconds)| {
            std::array::from_fn(|j| if scale[j] > 0.0 { terms[j] / seconds / scale[j] } else { 0.0 })
        })
        .collect();
    let mut weights = vec![1.0; rows.len()];
    let mut constants = [0.0; TERMS];
    for _ in 0..ROUNDS {
        let (mut square, mut mixed) = ([[0.0; TERMS]; TERMS], [0.0; TERMS]);
        for (x, w) in scaled.iter().zip(&weights) {
            for i in 0..TERMS {
                mixed[i] += w * x[i];
                for j in 0..TERMS {
                    square[i][j] += w * x[i] * x[j];
                }
            }
        }
        for _ in 0..SWEEPS {
            for j in 0..TERMS {
                if square[j][j] > 0.0 {
                    let rest: f64 = (0..TERMS).map(|i| square[j][i] * constants[i]).sum();
                    let most = LARGEST[j] * scale[j];
                    constants[j] = (constants[j] + (mixed[j] - rest) / square[j][j]).clamp(0.0, most);
                }
            }
        }
        for (x, w) in scaled.iter().zip(&mut weights) {
            let ratio = form(&constants, x).max(1e-3);
            *w = 1.0 / ratio.ln().abs().max(FINE) / ratio.max(1.0);
        }
    }
    std::array::from_fn(|j| if scale[j] > 0.0 { constants[j] / scale[j] } else { 0.0 })
}

/// 5 and 95 % of ln(measured/predicted), half as wide again since these rows were fitted on, and never narrower than their number allows.
fn spread(rows: &[([f64; TERMS], f64)], constants: &[f64; TERMS]) -> [f64; 2] {
    const WIDER: f64 = 1.5;
    let mut logs: Vec<f64> = rows.iter().map(|(t, s)| (s / form(constants, t)).ln()).collect();
    logs.sort_by(f64::total_cmp);
    let at = |share: f64| logs[((logs.len() - 1) as f64 * share).round() as usize];
    // Few rows say little of their own tails.
    let least = 0.1 + 1.2 / (logs.len() as f64).sqrt();
    [(WIDER * at(0.05)).min(-least), (WIDER * at(0.95)).max(least)]
}

/// The rows that constants and trees are fitted on: none of a call that is only for judging.
fn known(sets: &Sets) -> Result<Vec<Measured>> {
    let rows = read(sets, "operators")?;
    let mut missed = read(sets, "missed")?;
    missed.extend(read(sets, "gaps")?);
    missed.retain(|m| !held(&m.call) || rows.iter().all(|r| r.call != m.call));
    Ok(rows.into_iter().filter(|m| !held(&m.call)).chain(missed).collect())
}

/// The rows to learn from, beside the form with the constants that ship.
pub fn samples(sets: &Sets) -> Result<Vec<Sample>> {
    let rows = known(sets)?;
    let sample = |(group, m): (usize, &Measured)| {
        let Op::Listed(o) = &m.call.op else { return None };
        let (reference, x) = listed_form(o, &m.call, &sets.gpus[m.gpu]);
        let class = listed_class(o);
        let (forest, source) = (forest(o.kind), m.source);
        Some(Sample {
            x,
            reference,
            seconds: m.us * 1e-6,
            forest,
            class,
            gpu: m.gpu,
            group,
            weight: 1.0,
            source,
        })
    };
    Ok(rows.iter().enumerate().filter_map(sample).collect())
}

fn classes(rows: &[Measured], gpu: &Gpu) -> BTreeMap<String, Class> {
    let mut groups: BTreeMap<String, Vec<([f64; TERMS], f64)>> = BTreeMap::new();
    for m in rows {
        if let Op::Listed(o) = &m.call.op {
            let row = (terms(o, &m.call, gpu), m.us * 1e-6);
            groups.entry(class(o, &m.call)).or_default().push(row);
        }
    }
    groups.retain(|_, rows| rows.len() >= FEWEST);
    groups
        .into_iter()
        .map(|(key, rows)| {
            let constants = fitted(&rows);
            (key, Class { constants, rows: rows.len(), spread: spread(&rows, &constants) })
        })
        .collect()
}

/// Microseconds of a call with their interval: by the forms of new classes alone, or as the model says that ships.
fn judged(
    call: &OpCall,
    classes: Option<&BTreeMap<String, Class>>,
    model: &TimeModel,
    gpu: &Gpu,
) -> [f64; 3] {
    if let Op::Listed(o) = &call.op
        && let Some(c) = classes.and_then(|all| all.get(&class(o, call)))
    {
        let us = form(&c.constants, &terms(o, call, gpu)) * 1e6;
        return [us, us * c.spread[0].exp(), us * c.spread[1].exp()];
    }
    let one = model.predict(call, gpu);
    [one.time.us(), one.low.us(), one.high.us()]
}

/// Fits, prints what the held-back rows say, and writes the file where that is asked for.
pub fn report(sets: &Sets, write: bool) -> Result<()> {
    let rows = read(sets, "operators")?;
    let gpu = &sets.gpus[sets.own_gpu()?];
    let classes = classes(&known(sets)?, gpu);
    if write {
        std::fs::write(FILE, text(&classes)).with_context(|| format!("cannot write {FILE}"))?;
        println!("wrote {FILE}");
    }
    let model = TimeModel::embedded();
    let mut by_name: BTreeMap<String, Vec<(&Measured, f64, bool)>> = BTreeMap::new();
    for m in &rows {
        let name = format!("{} {}", m.call.name(), m.call.pass.name());
        let [us, low, high] = judged(&m.call, write.then_some(&classes), &model, gpu);
        by_name.entry(name).or_default().push((m, us, (low..=high).contains(&m.us)));
    }
    let mut all: [Vec<(f64, f64)>; 2] = Default::default();
    println!(
        "| operator | rows | held back | error on these, mean / median | bias | in the interval | measured us |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (name, rows) in &by_name {
        let third: Vec<_> = rows.iter().filter(|(m, ..)| held(&m.call)).collect();
        let pairs = || third.iter().map(|(m, us, _)| (*us, m.us));
        let Score { n, mean, median, bias } = score(pairs());
        let inside = third.iter().filter(|r| r.2).count() as f64 / n.max(1) as f64;
        let times = rows.iter().map(|(m, ..)| m.us);
        let (least, most) = times.fold((f64::MAX, 0.0f64), |(a, b), us| (a.min(us), b.max(us)));
        println!(
            "| {name} | {} | {n} | {mean:.0} / {median:.0} % | {bias:+.0} % | {:.0} % | {least:.1} to {most:.0} |",
            rows.len(),
            100.0 * inside
        );
        let listed = rows.iter().any(|(m, ..)| matches!(m.call.op, Op::Listed(_)));
        all[usize::from(!listed)].extend(pairs());
    }
    let [listed, others] = all;
    println!("\noperators of the table, held back: {}", score(listed));
    println!("operators that other rows fitted:  {}", score(others));
    Ok(())
}

fn text(classes: &BTreeMap<String, Class>) -> String {
    let mut out = String::from(
        "# Constants of the operators of the table, by operator/pass/way/bytes of an element; crates/kernels/src/listed.rs has the form.\n\
         # Made by `preflop-fit operators write` from two thirds of data/measured/h200/operators.csv.gz (2026-11-16, one H200, torch 2.11.0) and from missed.csv.gz.\n\
         # `preflop-fit operators` prints the errors on the third that was held back; docs/accuracy.md has them.\n\n",
    );
    for (key, c) in classes {
        let constants: Vec<String> = c.constants.iter().map(|x| significant(*x).clone()).collect();
        let [low, high] = c.spread.map(significant);
        let _ = writeln!(
            out,
            "[class.\"{key}\"]\nconstants = [{}]\nspread = [{low}, {high}]\nrows = {}\n",
            constants.join(", "),
            c.rows
        );
    }
    out.truncate(out.trim_end().len());
    out + "\n"
}

/// Four significant digits.
fn significant(x: f64) -> String {
    if x.abs() < 1e-9 {
        return "0.0".to_owned();
    }
    let digits = usize::try_from((3 - x.abs().log10().floor() as i32).clamp(1, 12)).unwrap_or(1);
    format!("{x:.digits$}")
}
