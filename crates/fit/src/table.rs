//! `preflop-fit unseen`: what a reader with another GPU meets, each GPU left out of constants and trees in turn.
//!
//! A GPU is left out with its chip: what was fitted on a V100 in one board does not speak for another. Figures that were typed into
//! the catalogue from these measurements are left out with it (`unseen::stranger`).

use crate::boards::{self, Rows};
use crate::data::{self, Measured};
use crate::score::{Line, Score, Scored, score};
use crate::sets::Sets;
use crate::throughput;
use crate::unseen::{self, stranger};
use crate::whole::{across_gpus, plain_products};
use crate::{gemm, networks, neusight, plain_conv, published, rows};
use anyhow::Result;
use preflop_core::Dtype;
use preflop_core::model::{Mode, Precision};
use preflop_core::ops::Op;
use preflop_core::time::{Library, Stack, TimeModel};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// A line of the table: what, its rows, and the bar that its mean must not exceed.
fn print(what: &str, s: Score, bar: Option<f64>) {
    let verdict = match bar {
        None => String::new(),
        Some(bar) if s.mean <= bar => format!("  bar {bar}: holds"),
        Some(bar) => format!("  bar {bar}: DOES NOT HOLD"),
    };
    println!("{what:58} {s}{verdict}");
}

/// The GPU of the fits that has the chip of a board.
fn chip(board: &str, sets: &Sets) -> Option<usize> {
    sets.index(if board.starts_with("v100") { "v100-pcie-32gb" } else { board }).ok()
}

/// Models that know nothing of one chip.
struct Without<'a> {
    sets: &'a Sets,
    benches: Rows,
    made: BTreeMap<Option<usize>, TimeModel>,
    parts: Option<Parts>,
}

struct Parts {
    products: Vec<gemm::Row>,
    vectors: Vec<rows::Row>,
    convolutions: Vec<plain_conv::Row>,
}

impl Without<'_> {
    /// A model without the chip of a board.
    fn model(&mut self, board: &str) -> Result<TimeModel> {
        let without = chip(board, self.sets);
        if let Some(model) = self.made.get(&without) {
            return Ok(model.clone());
        }
        let neusight = without.filter(|g| self.sets.measured_by("neusight", *g));
        let base = match neusight {
            None => TimeModel::embedded(),
            Some(g) => {
                if self.parts.is_none() {
                    self.parts = Some(Parts {
                        products: plain_products(self.sets)?,
                        vectors: rows::rows(&neusight::vectors(self.sets)?),
                        convolutions: plain_conv::rows(&neusight::convolutions(self.sets)?),
                    });
                }
                let Some(parts) = &self.parts else { anyhow::bail!("no rows") };
                let known = (&parts.products[..], &parts.vectors[..], &parts.convolutions[..]);
                unseen::shipped_without(g, known, self.sets, across_gpus())?.0
            }
        };
        // The V100 of DeepBench is another board with the same chip.
        let bench = match without.map(|g| self.sets.gpus[g].name.as_str()) {
            Some("v100-pcie-32gb") => self.sets.index("v100-sxm2-16gb").ok(),
            _ => without.filter(|g| self.sets.gpus[*g].name == "titan-xp"),
        };
        let model = if bench.is_some() {
            let mut figures = boards::constants(&base, &self.benches, &self.sets.gpus, bench);
            if without.is_some_and(|g| self.sets.gpus[g].name == "v100-pcie-32gb") {
                let runs = networks::runs(self.sets)?;
                let all = (&runs[..], &self.benches.convolutions[..]);
                let base = base.clone().with_boards(figures.clone());
                figures.tensor = boards::tensor(all, &base, &self.sets.gpus, Some("v100-sxm2-32gb"));
            }
            base.with_boards(figures)
        } else {
            base
        };
        self.made.insert(without, model.clone());
        Ok(model)
    }
}

/// Is every row to be printed, prediction before measurement?
pub fn rows_wanted() -> bool {
    std::env::args().any(|a| a == "--rows")
}

/// Rows of single calls by models without their chip, with what timing a call adds.
fn single(
    without: &mut Without,
    rows: &[&Measured],
    stack: Stack,
) -> Result<BTreeMap<usize, Vec<(f64, f64)>>> {
    let mut by_gpu: BTreeMap<usize, Vec<&Measured>> = BTreeMap::new();
    for m in rows {
        by_gpu.entry(m.gpu).or_default().push(m);
    }
    let mut out = BTreeMap::new();
    let sets = without.sets;
    let shown = rows_wanted();
    for (gpu, members) in by_gpu {
        let model = without.model(&sets.gpus[gpu].name)?.with_stack(stack);
        let machine = stranger(&sets.gpus[gpu].name)?;
        let pairs = members
            .par_iter()
            .map(|m| ((model.predict(&m.call, &machine).time.0 + stack.call_s) * 1e6, m.us))
            .collect::<Vec<(f64, f64)>>();
        for (m, (predicted, measured)) in members.iter().zip(&pairs).filter(|_| shown) {
            println!("row {} {predicted:.1} {measured:.1} {:?}", sets.gpus[gpu].name, m.call);
        }
        out.insert(gpu, pairs);
    }
    Ok(out)
}

fn all(by_gpu: &BTreeMap<usize, Vec<(f64, f64)>>) -> Score {
    score(by_gpu.values().flatten().copied())
}

fn print_all(sets: &Sets, what: &str, by_gpu: &BTreeMap<usize, Vec<(f64, f64)>>, bar: f64) {
    print(what, all(by_gpu), Some(bar));
    if by_gpu.len() > 1 {
        for (gpu, pairs) in by_gpu {
            print(&format!("  {}", sets.gpus[*gpu].name), score(pairs.iter().copied()), None);
        }
    }
}

/// Prints the lines whose names begin with one of `wanted`, or all.
pub fn report(sets: &Sets, wanted: &[String]) -> Result<()> {
    let picks = |name: &str| {
        wanted.iter().all(|w| w == "--rows") || wanted.iter().any(|w| name.starts_with(w.as_str()))
    };
    let mut without = Without { sets, benches: Rows::read(sets)?, made: BTreeMap::new(), parts: None };
    if picks("deepbench") {
        deepbench(&mut without)?;
    }
    let mut intervals = Vec::new();
    if picks("networks") {
        intervals.extend(whole_networks(&mut without)?);
    }
    if picks("throughput") {
        intervals.extend(throughput::report(sets, |board| without.model(board), &print)?);
    }
    if picks("neusight") {
        operators(&mut without)?;
        let mut pairs = Vec::new();
        published::whole_models(
            sets,
            |gpu| Ok((without.model(&sets.gpus[gpu].name)?, stranger(&sets.gpus[gpu].name)?)),
            &mut pairs,
        )?;
        print(
            "whole fp32 transformers (NeuSight)",
            score(pairs.iter().map(|s| (s.predicted, s.measured))),
            Some(6.0),
        );
        intervals.extend(pairs);
    }
    if !intervals.is_empty() {
        let line = Line::of(&intervals);
        let verdict = if (85.0..=95.0).contains(&line.inside) { "holds" } else { "DOES NOT HOLD" };
        println!(
            "{:58} n {:6}  {:.1} % inside, median half width {:.2} in log  bar 85 to 95: {verdict}",
            "intervals of whole networks",
            intervals.len(),
            line.inside,
            line.half_width
        );
    }
    if picks("bf16") {
        let mut rows = gemm::rows(&data::bf16_products(sets)?, Library::Served);
        rows.extend(gemm::rows(&data::operators(sets, "served")?, Library::Served));
        let rows = gemm::thinned(rows, 50_000);
        let mut by_gpu: BTreeMap<usize, Vec<(f64, f64)>> = BTreeMap::new();
        for r in unseen::products("gemm/bf16", &rows, sets, TimeModel::embedded().fitted(), across_gpus())? {
            by_gpu.entry(r.gpu).or_default().push((r.predicted, r.seconds));
        }
        for (gpu, pairs) in &by_gpu {
            print(&format!("  bf16 products, {}", sets.gpus[*gpu].name), score(pairs.iter().copied()), None);
        }
        let mean = |names: &[&str]| {
            let each = by_gpu.iter().filter(|(g, _)| names.contains(&sets.gpus[**g].name.as_str()));
            let means: Vec<f64> = each.map(|(_, p)| score(p.iter().copied()).mean).collect();
            means.iter().sum::<f64>() / means.len().max(1) as f64
        };
        println!(
            "bf16 products: mean of five {:.2} %, of those whose generation was never seen {:.2} %  bar 9",
            mean(&sets.gpus.iter().map(|g| g.name.as_str()).collect::<Vec<_>>()),
            mean(&["a100-sxm-80gb", "l40s", "b200"])
        );
    }
    Ok(())
}

fn deepbench(without: &mut Without) -> Result<()> {
    let sets = without.sets;
    let benches = Rows::read(without.sets)?;
    let of = |rows: &[Measured], dtype: Dtype| -> Vec<Measured> {
        rows.iter().filter(|m| m.call.dtype == dtype).cloned().collect()
    };
    let lines = [
        ("DeepBench convolutions, fp32", of(&benches.convolutions, Dtype::Fp32), 25.0),
        ("DeepBench convolutions, 16 bit", of(&benches.convolutions, Dtype::Fp16), 30.0),
        ("DeepBench products, fp32", of(&benches.products, Dtype::Fp32), 18.0),
        ("DeepBench products, 16 bit", of(&benches.products, Dtype::Fp16), 18.0),
        ("DeepBench recurrent layers", benches.recurrent.clone(), 25.0),
    ];
    for (what, rows, bar) in lines {
        let refs: Vec<&Measured> = rows.iter().collect();
        print_all(sets, what, &single(without, &refs, Stack::DEEPBENCH)?, bar);
        let mut parts: BTreeMap<String, Vec<&Measured>> = BTreeMap::new();
        for m in &rows {
            let part = match &m.call.op {
                Op::Gemm(g) => match g.m.min(g.n) {
                    0..=32 => "up to 32 columns".to_string(),
                    33..=256 => "33 to 256".to_string(),
                    _ => "more".to_string(),
                },
                _ => format!("{} {}", m.call.name(), m.call.pass.name()),
            };
            parts.entry(part).or_default().push(m);
        }
        for (part, members) in parts {
            print(&format!("  {part}"), all(&single(without, &members, Stack::DEEPBENCH)?), None);
        }
    }
    Ok(())
}

/// At most so many rows, evenly picked.
fn evenly(rows: &[Measured], most: usize) -> Vec<Measured> {
    let picked = most.min(rows.len());
    (0..picked).map(|i| rows[i * rows.len() / picked].clone()).collect()
}

/// Rows of each file that are scored, so that no kind of operator drowns the others.
const EACH: usize = 30_000;

fn operators(without: &mut Without) -> Result<()> {
    let sets = without.sets;
    let files = [
        ("products", neusight::products(sets)?),
        ("vector operators", neusight::vectors(sets)?),
        ("3x3 convolutions", neusight::convolutions(sets)?),
    ];
    let (mut every, mut scored) = (Vec::new(), Vec::new());
    for (what, rows) in files {
        // What the host takes is out of the rows of products and convolutions.
        let call_s = if what == "vector operators" { Stack::NEUSIGHT.call_s } else { 0.0 };
        let mut predicted = |rows: &[Measured]| -> Result<BTreeMap<usize, Vec<(f64, f64)>>> {
            let (older, own): (Vec<&Measured>, Vec<&Measured>) =
                rows.iter().partition(|m| what == "products" && neusight::older_library(m));
            let mut by_gpu = single(without, &own, Stack { call_s, ..Stack::NEUSIGHT })?;
            for (gpu, pairs) in single(without, &older, Stack { call_s, ..Stack::NEUSIGHT_OLDER })? {
                if !pairs.is_empty() {
                    let line = "    by an older library";
                    print(line, score(pairs.iter().copied()), None);
                }
                by_gpu.entry(gpu).or_default().extend(pairs);
            }
            Ok(by_gpu)
        };
        every.extend(predicted(&rows)?.into_values().flatten());
        let by_gpu = predicted(&evenly(&rows, EACH))?;
        print(&format!("  NeuSight {what}"), all(&by_gpu), None);
        for (gpu, pairs) in &by_gpu {
            print(&format!("    {}", sets.gpus[*gpu].name), score(pairs.iter().copied()), None);
        }
        scored.extend(by_gpu.into_values().flatten());
    }
    print("NeuSight operators, at most 30,000 of a kind", score(scored), Some(11.0));
    print("  all rows", score(every), None);
    Ok(())
}

/// Whole image networks, each board left out of the constants of convolutions too.
fn whole_networks(without: &mut Without) -> Result<Vec<Scored>> {
    let runs = networks::runs(without.sets)?;
    let mut lines: BTreeMap<&str, Vec<Scored>> = BTreeMap::new();
    let mut every = Vec::new();
    let mut boards: Vec<String> = runs.iter().map(|r| r.gpu.clone()).collect();
    boards.sort();
    boards.dedup();
    for board in boards {
        let mut model = without.model(&board)?;
        let mut figures = model.boards().clone();
        let convolutions = &without.benches.convolutions;
        figures.tensor = boards::tensor((&runs, convolutions), &model, &without.sets.gpus, Some(&board));
        println!("  without {board}: convolutions on tensor cores {:.3?}", figures.tensor);
        model = model.with_boards(figures);
        let machine = stranger(&board)?;
        let own: Vec<&networks::Run> = runs.iter().filter(|r| r.gpu == board).collect();
        let scored: Vec<(&networks::Run, Scored)> =
            own.par_iter().filter_map(|r| Some((*r, networks::scored(&model, r, &machine)?))).collect();
        for (run, s) in scored {
            if rows_wanted() {
                println!("row {:.3} {:.3} {run:?}", s.predicted, s.measured);
            }
            let transformer = run.transformer();
            let plain = run.precision == Precision::Fp32;
            let line = match (transformer, plain) {
                (true, _) => "image transformers on GeForce",
                (false, true) => "fp32 CNNs",
                (false, false) => "CNNs in 16 bit and tf32",
            };
            lines.entry(line).or_default().push(s);
            if !transformer && run.precision == Precision::Amp && run.mode == Mode::Infer {
                lines.entry("autocast inference of CNNs").or_default().push(s);
            }
            lines.entry(board_name(&board)).or_default().push(s);
            every.push(s);
        }
    }
    for (line, rows) in &lines {
        let bar = match *line {
            "CNNs in 16 bit and tf32" => Some(16.0),
            "autocast inference of CNNs" => Some(10.0),
            "fp32 CNNs" => Some(13.0),
            "image transformers on GeForce" => Some(18.0),
            _ => None,
        };
        print(line, Line::of(rows).score, bar);
        println!("    {}", Line::of(rows));
    }
    Ok(every)
}

fn board_name(board: &str) -> &'static str {
    match board {
        "rtx-3090" => "  all on rtx-3090",
        "rtx-2080-ti" => "  all on rtx-2080-ti",
        "titan-v" => "  all on titan-v",
        _ => "  all on v100",
    }
}
