//! Fits how far the GPU's time of a whole iteration may be from its prediction (`preflop_core::schedule::spread`), and prints how many measured times lie in the
//! interval: as it ships, and with the model of each left out. `intervals write` writes `data/fitted/spread.toml`.
//!
//! Constants minimise the interval score (Gneiting and Raftery 2007, equation 43) in log: the width, and twenty times as much as a measurement lies
//! outside. Each model counts once, however many of its iterations were measured. What whole networks add is then as large as the language models ask for that
//! nobody looked at while the forms were made: with each of them left out of the other constants, 90 % of their times lie inside.

use crate::score::{Line, Scored};
use crate::sets::Sets;
use crate::simplex::minimise;
use crate::{e2e, llm};
use anyhow::{Context as _, Result};
use preflop_core::model::{Form, Iteration, LowerOptions, Mode, Precision, Run, zoo};
use preflop_core::ops::Family;
use preflop_core::schedule::Schedule as _;
use preflop_core::schedule::spread::{Figures, NORMAL_90, Parts};
use preflop_core::time::TimeModel;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

/// Part of the measurements that intervals are to hold.
const INSIDE: f64 = 0.9;
/// Where the search starts: standard deviations of whole networks, of single calls over their own, of families.
const START: (f64, f64, f64) = (0.03, 1.0, 0.05);
/// How firmly constants are held there: 0.001 left the models that were left out a better score than 0.003.
const HELD: f64 = 1e-3;
const EVALUATIONS: usize = 3000;

/// As `python/bench/measure_compiled.py` ran them: name there, name in the zoo, batch, tokens. Its llama is of no model's size.
const COMPILED: [(&str, &str, u64, Option<u64>); 11] = [
    ("resnet50", "resnet50", 64, None),
    ("gpt2", "gpt2", 8, Some(1024)),
    ("vit_b_16", "vit_b_16", 64, None),
    ("resnet18", "resnet18", 128, None),
    ("convnext_tiny", "convnext_tiny", 64, None),
    ("mobilenet_v2", "mobilenet_v2", 256, None),
    ("bert", "bert-base", 16, Some(512)),
    ("t5", "t5-small", 16, Some(256)),
    ("efficientnet_b0", "efficientnet_b0", 128, None),
    ("densenet121", "densenet121", 32, None),
    ("swin_t", "swin_t", 32, None),
];

/// A measured GPU time of a whole iteration.
struct Measured {
    model: String,
    /// Lines of the report that it belongs to.
    lines: Vec<String>,
    ms: f64,
    iteration: Iteration,
    /// Did nobody look at it while the forms were made?
    new: bool,
}

/// The same with its prediction.
struct Row {
    model: String,
    lines: Vec<String>,
    measured: f64,
    predicted: f64,
    parts: Parts,
    new: bool,
}

impl Row {
    /// Log of the measured time over the predicted one.
    fn error(&self) -> f64 {
        (self.measured / self.predicted).ln()
    }

    fn scored(&self, figures: &Figures) -> Scored {
        let [down, up] = self.parts.ends(figures);
        let (low, high) = (self.predicted * (-down).exp(), self.predicted * up.exp());
        Scored { predicted: self.predicted, measured: self.measured, low, high }
    }
}

fn compiled(sets: &Sets) -> Result<Vec<Measured>> {
    let mut reader = csv::Reader::from_reader(sets.open(&sets.own("compiled.csv.gz")?)?);
    let mut out = Vec::new();
    for record in reader.records() {
        let r = record?;
        let (name, mode, run, kind) = (&r[0], &r[1], &r[2], &r[3]);
        let known = COMPILED.iter().find(|(n, ..)| *n == name).filter(|_| kind == "run");
        let Some((_, model, batch, seq)) = known else { continue };
        let graph = zoo::build(model, Some(*batch), *seq)?;
        let mode = if mode == "train" { Mode::Train } else { Mode::Infer };
        let run = if run == "eager" { Run::Eager } else { Run::Compile };
        let options = LowerOptions { mode, precision: Precision::Amp, optimizer: None };
        out.push(Measured {
            model: (*model).to_string(),
            lines: vec!["compiled.csv.gz".into(), mode.name().into(), run.name().into()],
            ms: r[6].parse()?,
            iteration: Form::from(run).lower(&graph, &options)?,
            new: false,
        });
    }
    Ok(out)
}

fn measured(sets: &Sets) -> Result<Vec<Measured>> {
    let mut out = compiled(sets)?;
    for file in ["e2e.csv", "e2e_extra.csv"] {
        for run in e2e::runs(sets, file)? {
            let lines = vec![file.into(), run.mode, Run::Eager.name().into(), run.precision];
            let (model, ms, iteration) = (run.model, run.busy_ms, run.iteration);
            out.push(Measured { model, lines, ms, iteration, new: false });
        }
    }
    for file in ["llm.csv", "llm_more.csv"] {
        for llm::Step { row, iteration } in llm::steps(sets, file)? {
            let step = format!("{file} {}", row.phase);
            let new = !llm::chosen_on(&row.model);
            let mut lines = vec![file.into(), step, row.phase, row.run];
            lines.extend(new.then(|| "new language models".into()));
            out.push(Measured { model: row.model, lines, ms: row.gpu_busy_ms, iteration, new });
        }
    }
    Ok(out)
}

fn rows(sets: &Sets) -> Result<Vec<Row>> {
    let (model, gpu) = (TimeModel::embedded(), &sets.gpus[sets.own_gpu()?]);
    let row = |m: Measured| {
        let p = model.predict_iteration(&m.iteration, gpu);
        let parts = Parts::of(&m.iteration, &p.steps);
        let (model, lines, measured, new) = (m.model, m.lines, m.ms, m.new);
        Row { model, lines, measured, predicted: p.gpu_busy.ms(), parts, new }
    };
    Ok(measured(sets)?.into_iter().map(row).collect())
}

/// Width of an interval in log, and twenty times as much as the measurement lies outside.
fn interval_score(row: &Row, figures: &Figures) -> f64 {
    let ([down, up], error) = (row.parts.ends(figures), row.error());
    down + up + 2.0 / (1.0 - INSIDE) * ((-down - error).max(0.0) + (error - up).max(0.0))
}

/// The mean over models of the mean over their rows.
fn by_model(rows: &[&Row], of: impl Fn(&Row) -> f64) -> f64 {
    let mut models: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for row in rows {
        let (sum, n) = models.entry(&row.model).or_default();
        *sum += of(row);
        *n += 1.0;
    }
    models.values().map(|(sum, n)| sum / n).sum::<f64>() / models.len().max(1) as f64
}

/// Constants of these rows. Families that none of them has are as unsure as the least sure one.
fn fit(rows: &[&Row]) -> Figures {
    let families: Vec<Family> =
        Family::ALL.into_iter().filter(|f| rows.iter().any(|row| row.parts.has(*f))).collect();
    let figures = |p: &[f64]| {
        let each: Vec<f64> = p[2..].iter().map(|x| x.exp()).collect();
        let mut shared = [each.iter().copied().fold(0.0, f64::max); Family::ALL.len()];
        for (family, own) in families.iter().zip(each) {
            shared[*family as usize] = own;
        }
        Figures { network: p[0].exp(), own: p[1].exp(), shared }
    };
    let (network, own, shared) = START;
    let mut start = vec![network.ln(), own.ln()];
    start.extend(families.iter().map(|_| shared.ln()));
    let loss = |p: &[f64]| {
        let figures = figures(p);
        let stray: f64 = p.iter().zip(&start).map(|(a, b)| (a - b) * (a - b)).sum();
        by_model(rows, |row| interval_score(row, &figures)) + HELD * stray
    };
    figures(&minimise(&loss, &start, 0.4, EVALUATIONS).0)
}

/// The standard deviation of whole networks with which 90 % of these rows lie inside, a model counting once; each row has its own other figures.
fn network(rows: &[(&Row, &Figures)]) -> Result<f64> {
    let mut counts: BTreeMap<&str, f64> = BTreeMap::new();
    for (row, _) in rows {
        *counts.entry(&row.model).or_default() += 1.0;
    }
    let asked = |(row, figures): &(&Row, &Figures)| {
        let ([down, up], error) =
            (row.parts.ends(&Figures { network: 0.0, ..(*figures).clone() }), row.error());
        let end = if error < 0.0 { down } else { up };
        ((error * error - end * end).max(0.0).sqrt() / NORMAL_90, 1.0 / counts[row.model.as_str()])
    };
    let mut asked: Vec<(f64, f64)> = rows.iter().map(asked).collect();
    asked.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut inside = 0.0;
    let enough = asked.into_iter().find(|(_, weight)| {
        inside += weight;
        inside >= INSIDE * counts.len() as f64
    });
    Ok(enough.context("no language model was measured that nobody looked at")?.0)
}

fn print(what: &str, scored: &[(&Row, Scored)]) {
    println!("{what}");
    let mut lines: BTreeMap<&str, Vec<Scored>> = BTreeMap::new();
    for (row, s) in scored {
        for line in row.lines.iter().map(String::as_str).chain(["all"]) {
            lines.entry(line).or_default().push(*s);
        }
    }
    for (name, of) in lines {
        println!("  {name:28} {}", Line::of(&of));
    }
}

/// Fits, prints the table, and writes the file where asked.
pub fn run(sets: &Sets, folder: Option<&Path>) -> Result<()> {
    let rows = rows(sets)?;
    let all: Vec<&Row> = rows.iter().collect();
    let shipped: Vec<(&Row, Scored)> = all.iter().map(|r| (*r, r.scored(Figures::fitted()))).collect();
    print("as it ships", &shipped);
    let models: BTreeSet<&str> = rows.iter().map(|r| r.model.as_str()).collect();
    let without: BTreeMap<&str, Figures> = models
        .par_iter()
        .map(|left_out| {
            let others: Vec<&Row> = rows.iter().filter(|r| r.model != *left_out).collect();
            (*left_out, fit(&others))
        })
        .collect();
    let pairs: Vec<(&Row, &Figures)> = rows.iter().map(|r| (r, &without[r.model.as_str()])).collect();
    let score = by_model(&all, |r| interval_score(r, &without[r.model.as_str()]));
    let new: Vec<(&Row, &Figures)> = pairs.iter().copied().filter(|(r, _)| r.new).collect();
    let (fitted, network) = (fit(&all), network(&new)?);
    println!(
        "score of the models left out {score:.4}; whole networks {:.4}, new ones {network:.4}",
        fitted.network
    );
    let figures = Figures { network: network.max(fitted.network), ..fitted };
    let of_new = |figures: &Figures| Figures { network: figures.network.max(network), ..figures.clone() };
    let left_out: Vec<(&Row, Scored)> =
        pairs.iter().map(|(r, figures)| (*r, r.scored(&of_new(figures)))).collect();
    print("each model left out", &left_out);
    let line = Line::of(&left_out.iter().map(|(_, s)| *s).collect::<Vec<_>>());
    let mut file = format!(
        "# How far the GPU's time of a whole iteration may be from its prediction: standard deviations in log, read by crates/schedule/src/spread.rs, which has the formula.\n\
         # Made by `preflop-fit intervals write` from {} GPU times of {} models on an H200 (e2e.csv, e2e_extra.csv, compiled.csv.gz, llm.csv, llm_more.csv). Each model\n\
         # left out: {:.1} % inside the 90 % interval, whose half width is {:.3} in the median.\n\n",
        rows.len(),
        models.len(),
        line.inside,
        line.half_width
    );
    writeln!(
        file,
        "# Shared by all of a network: as large as the language models of llm_more.csv ask for that nobody looked at.\nnetwork = {:.4}",
        figures.network
    )?;
    writeln!(file, "# Of a call alone, over what its own interval says.\nown = {:.3}", figures.own)?;
    writeln!(file, "\n# Shared by all operators of a family in one pass.\n[shared]")?;
    for family in Family::ALL {
        let measured = rows.iter().any(|r| r.parts.has(family));
        let why = if measured { "" } else { " # none was measured in a network: as the least sure" };
        writeln!(file, "{} = {:.4}{why}", family.name(), figures.shared[family as usize])?;
    }
    print!("{file}");
    if let Some(folder) = folder {
        std::fs::write(folder.join("spread.toml"), file)?;
    }
    Ok(())
}
