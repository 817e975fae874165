//! Trains each family, reports it, and writes the generated files.

use crate::gbdt::Settings;
use crate::growth::{self, Doubled, Known};
use crate::merge::{Shipped, UNSEEN};
use crate::samples::{self, Forests, Sample, fit, fit_all, intervals};
use crate::score::score;
use crate::sets::Sets;
use crate::unseen::LeftOut;
use anyhow::Result;
use preflop_core::gpu::Gpu;
use preflop_core::time::TimeModel;
use preflop_core::time::choice::Choosers;
use preflop_core::time::fitted::{ConstantsFile, Fitted, LogInterval, write_forests};
use preflop_core::time::trees::Forest;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

/// One line of the cross-validation report.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct ScoreRow {
    pub family: String,
    class: String,
    gpu: String,
    how: String,
    n: usize,
    mean_percent: f64,
    median_percent: f64,
    bias_percent: f64,
}

/// Parts of the rows that are left out in turn.
const FOLDS: usize = 5;

/// A family ready to be learned.
pub struct Learner {
    name: String,
    samples: Vec<Sample>,
    features: usize,
    settings: Settings,
    beside: Option<(String, Vec<Sample>, Settings)>,
}

/// A family learned: its forest, what cross-validation said, its intervals.
pub struct Learned {
    name: String,
    samples: Vec<Sample>,
    forests: Vec<(String, Forest)>,
    /// The forests of each fold, trained on the others.
    folds: Vec<Forests>,
    /// What the second forest that ships with the family was trained on.
    beside: Vec<Sample>,
    /// Seconds predicted by a model that did not see the row.
    predicted: Vec<f64>,
    /// Rows of GPUs by models that did not see them.
    left_out: Vec<LeftOut>,
}

impl Learner {
    pub fn new(name: &'static str, mut samples: Vec<Sample>, features: usize, settings: Settings) -> Self {
        for s in samples.iter_mut().filter(|s| s.forest.is_empty()) {
            s.forest = name;
        }
        Self { name: name.to_string(), samples, features, settings, beside: None }
    }

    /// A second forest that ships with the family.
    #[must_use]
    pub fn beside(self, name: &str, samples: Vec<Sample>, settings: Settings) -> Self {
        Self { beside: Some((name.to_string(), samples, settings)), ..self }
    }

    /// Cross-validates and, unless `only_check`, trains on everything.
    pub fn train(self, only_check: bool) -> Learned {
        let folds = samples::folds(&self.samples, self.features, &self.settings, FOLDS);
        let predicted = samples::unseen(&self.samples, &folds);
        let mut forests = Vec::new();
        if !only_check {
            let own = fit_all(&self.samples, self.features, &self.settings, |_| true);
            forests.extend(own.0.into_iter().map(|(name, forest)| (name.to_string(), forest)));
            if let Some((name, samples, settings)) = &self.beside {
                forests.push((name.clone(), fit(samples, self.features, settings, |_| true)));
            }
        }
        let beside = self.beside.map_or_else(Vec::new, |(_, samples, _)| samples);
        Learned {
            name: self.name,
            samples: self.samples,
            forests,
            folds,
            beside,
            predicted,
            left_out: Vec::new(),
        }
    }
}

impl Learned {
    /// Name of the family.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bends the forests, those of the folds too, so that larger calls take no less; what they would take was looked at on so many GPUs.
    pub fn settle(&mut self, doubled: &BTreeMap<String, Vec<Doubled>>, gpus: usize) {
        let (samples, beside) = (&self.samples, &self.beside);
        let settled = |name: &str, forest: &Forest, keep: &dyn Fn(&Sample) -> bool| {
            let Some(doubled) = doubled.get(name) else { return forest.clone() };
            let own = samples.iter().any(|s| s.forest == name);
            let rows = if own { samples } else { beside };
            let known: Vec<Known> = rows
                .iter()
                .filter(|s| (!own || s.forest == name) && keep(s))
                .map(|s| Known { x: &s.x, log: (s.seconds / s.reference).ln(), kind: (&s.class, s.source) })
                .collect();
            growth::settled(forest, &known, doubled, gpus)
        };
        self.folds.par_iter_mut().enumerate().for_each(|(fold, forests)| {
            for (name, forest) in &mut forests.0 {
                *forest = settled(name, forest, &|s| s.group % FOLDS != fold);
            }
        });
        self.forests.par_iter_mut().for_each(|(name, forest)| *forest = settled(name, forest, &|_| true));
        self.predicted = samples::unseen(samples, &self.folds);
    }

    /// What models that did not see a GPU say of its rows.
    pub fn leave_out(&mut self, rows: Vec<LeftOut>) {
        self.left_out = rows;
    }

    /// Errors by class and GPU, as text.
    pub fn report(&self, gpus: &[Gpu]) -> String {
        let mut out = String::new();
        let all = || self.samples.iter().zip(&self.predicted);
        let _ = writeln!(out, "{}", self.name);
        let _ = writeln!(
            out,
            "  closed form      {}",
            score(self.samples.iter().map(|s| (s.reference, s.seconds)))
        );
        let _ = writeln!(out, "  cross-validated  {}", score(all().map(|(s, p)| (*p, s.seconds))));
        let mut classes: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
        let mut by_gpu: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (i, (s, p)) in all().enumerate() {
            classes.entry(&s.class).or_default().push((*p, s.seconds));
            by_gpu.entry(s.gpu).or_default().push(i);
        }
        let several = by_gpu.len() > 1;
        let sources: BTreeSet<&str> =
            self.samples.iter().map(|s| s.source).filter(|s| !s.is_empty()).collect();
        for source in sources {
            let pairs = all().filter(|(s, _)| s.source == source).map(|(s, p)| (*p, s.seconds));
            let _ = writeln!(out, "    file {source:29} {}", score(pairs));
        }
        if classes.len() > 1 {
            for (class, pairs) in classes {
                let _ = writeln!(out, "    {class:34} {}", score(pairs));
            }
        }
        for (gpu, members) in by_gpu.into_iter().filter(|_| several) {
            let pairs = members.iter().map(|&i| (self.predicted[i], self.samples[i].seconds));
            let _ = writeln!(out, "    {:16} cross-validated {}", gpus[gpu].name, score(pairs));
        }
        for (gpu, pairs) in self.strangers() {
            let _ = writeln!(out, "    {:16} left out        {}", gpus[gpu].name, score(pairs));
        }
        out
    }

    /// The same as rows for `report.json`.
    fn rows(&self, gpus: &[Gpu]) -> Vec<ScoreRow> {
        let row = |class: &str, gpu: &str, how: &str, pairs: Vec<(f64, f64)>| {
            let s = score(pairs);
            ScoreRow {
                family: self.name.clone(),
                class: class.to_string(),
                gpu: gpu.to_string(),
                how: how.to_string(),
                n: s.n,
                mean_percent: s.mean,
                median_percent: s.median,
                bias_percent: s.bias,
            }
        };
        let pick = |keep: &dyn Fn(&Sample) -> bool| -> Vec<usize> {
            (0..self.samples.len()).filter(|&i| keep(&self.samples[i])).collect()
        };
        let seconds = |i: usize| self.samples[i].seconds;
        let mut out = Vec::new();
        let classes: BTreeSet<&str> = self.samples.iter().map(|s| s.class.as_str()).collect();
        let all = pick(&|_| true);
        out.push(row(
            "all",
            "all",
            "closed form",
            all.iter().map(|&i| (self.samples[i].reference, seconds(i))).collect(),
        ));
        out.push(row(
            "all",
            "all",
            "cross-validated",
            all.iter().map(|&i| (self.predicted[i], seconds(i))).collect(),
        ));
        for class in classes {
            let members = pick(&|s| s.class == class);
            out.push(row(
                class,
                "all",
                "cross-validated",
                members.iter().map(|&i| (self.predicted[i], seconds(i))).collect(),
            ));
        }
        let sources: BTreeSet<&str> =
            self.samples.iter().map(|s| s.source).filter(|s| !s.is_empty()).collect();
        for source in sources {
            let members = pick(&|s| s.source == source);
            let name = format!("file {source}");
            out.push(row(
                &name,
                "all",
                "cross-validated",
                members.iter().map(|&i| (self.predicted[i], seconds(i))).collect(),
            ));
        }
        for (gpu, pairs) in self.strangers() {
            out.push(row("all", &gpus[gpu].name, "GPU left out", pairs));
        }
        out
    }

    /// Predicted and measured seconds of the rows of one file, predicted by a model that did not see them.
    pub fn of_file(&self, source: &str) -> impl Iterator<Item = (f64, f64)> {
        let rows = self.samples.iter().zip(&self.predicted);
        rows.filter(move |(s, _)| s.source == source).map(|(s, p)| (*p, s.seconds))
    }

    /// Predicted and measured seconds of each GPU that was left out.
    fn strangers(&self) -> BTreeMap<usize, Vec<(f64, f64)>> {
        let mut out: BTreeMap<usize, Vec<(f64, f64)>> = BTreeMap::new();
        for l in &self.left_out {
            out.entry(l.gpu).or_default().push((l.predicted, l.seconds));
        }
        out
    }

    fn logs(&self) -> impl Iterator<Item = (&Sample, f64)> {
        self.samples.iter().zip(&self.predicted).map(|(s, p)| (s, (s.seconds / p).ln()))
    }
}

/// What a fit writes.
pub struct Files(BTreeMap<&'static str, Vec<u8>>);

impl Files {
    /// `constants.json`, `trees.bin`, `report.json` (what cross-validation said) and `provenance.json`; with those of the families that were not fitted from
    /// what ships.
    pub fn new(
        sets: &Sets,
        mut constants: ConstantsFile,
        learned: &[Learned],
        choosers: &Choosers,
        shipped: Option<&Shipped>,
    ) -> Result<Self> {
        let gpus = &sets.gpus;
        for l in learned {
            let by_class = intervals(l.logs().map(|(s, log)| (s.class.clone(), log)), 20);
            // The first to measure a class speaks for it; where it measured several generations, for each.
            let new = by_class.keys().filter(|c| !constants.intervals.contains_key(*c)).cloned();
            let new: BTreeSet<String> = new.collect();
            for (class, interval) in by_class {
                constants.intervals.entry(class).or_insert(interval);
            }
            if l.samples.iter().any(|s| s.gpu != l.samples[0].gpu) {
                let name = |s: &Sample| format!("{}/{}", s.class, gpus[s.gpu].architecture.name());
                let rows = l.logs().filter(|(s, _)| new.contains(&s.class)).map(|(s, log)| (name(s), log));
                constants.intervals.extend(intervals(rows, 20));
            }
        }
        let family = |name: &str| name.split('/').next().unwrap_or(name).to_string();
        let everyone = learned.iter().flat_map(|l| l.logs().map(move |(_, log)| (family(&l.name), log)));
        constants.intervals.extend(intervals(everyone, 20));
        constants.unseen = unseen(learned, &constants.intervals);
        constants.references = sets.references(None);
        let mut rows: Vec<ScoreRow> = learned.iter().flat_map(|l| l.rows(gpus)).collect();
        let mut provenance = provenance(sets, learned);
        let mut trees = (forests(learned), choosers.clone());
        if let Some(shipped) = shipped {
            constants = shipped.constants(&constants);
            rows = shipped.report(&rows);
            provenance = shipped.provenance(provenance);
            trees = (shipped.forests(trees.0), shipped.choosers(&trees.1));
        }
        rows.sort_by(|a, b| a.family.cmp(&b.family));
        Ok(Self(BTreeMap::from([
            ("constants.json", json(&constants)?),
            ("provenance.json", json(&provenance)?),
            ("report.json", json(&rows)?),
            ("trees.bin", write_forests(&trees.0, &trees.1)),
        ])))
    }

    /// Puts them into a folder.
    pub fn write(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder)?;
        for (name, bytes) in &self.0 {
            std::fs::write(folder.join(name), bytes)?;
        }
        Ok(())
    }

    /// The files of a folder that differ from these.
    pub fn differences(&self, folder: &Path) -> Vec<&'static str> {
        let differs = |(name, own): &(&&'static str, &Vec<u8>)| {
            std::fs::read(folder.join(name)).map_or(true, |shipped| shipped != **own)
        };
        self.0.iter().filter(differs).map(|(name, _)| *name).collect()
    }
}

fn json(value: &impl serde::Serialize) -> Result<Vec<u8>> {
    Ok((serde_json::to_string_pretty(value)? + "\n").into_bytes())
}

/// All forests by name.
fn forests(learned: &[Learned]) -> BTreeMap<String, Forest> {
    learned.iter().flat_map(|l| l.forests.iter().cloned()).collect()
}

/// The model that these constants, forests and choosers make, on top of what ships.
pub fn model(
    sets: &Sets,
    constants: &ConstantsFile,
    learned: &[Learned],
    choosers: &Choosers,
    shipped: Option<&Shipped>,
) -> Result<TimeModel> {
    let mut constants = ConstantsFile { references: sets.references(None), ..constants.clone() };
    let mut trees = (forests(learned), choosers.clone());
    if let Some(shipped) = shipped {
        constants = shipped.constants(&constants);
        trees = (shipped.forests(trees.0), shipped.choosers(&trees.1));
    }
    let trees = write_forests(&trees.0, &trees.1);
    Ok(TimeModel::new(Fitted::read(&serde_json::to_string(&constants)?, &trees)?))
}

/// Where the figures come from: the newest input's date, every input with its hash, the program's version, the errors.
fn provenance(sets: &Sets, learned: &[Learned]) -> BTreeMap<String, String> {
    let (inputs, date) = sets.inputs();
    let mut out: BTreeMap<String, String> =
        inputs.into_iter().map(|(file, hash)| (format!("input {file}"), format!("sha256 {hash}"))).collect();
    out.insert("made_by".into(), "cargo run --release -p preflop-fit".into());
    out.insert("version".into(), env!("CARGO_PKG_VERSION").into());
    out.insert("date".into(), format!("{date} (newest input)"));
    for l in learned {
        let s = score(l.samples.iter().zip(&l.predicted).map(|(s, p)| (*p, s.seconds)));
        out.insert(format!("error {}", l.name), format!("{s}, cross-validated; more in report.json"));
    }
    out
}

/// Intervals for GPUs of a generation nobody measured, by class and by family: from models that did not see the
/// row's GPU where several GPUs were measured, else twice as wide (in log) as on the measured one.
fn unseen(learned: &[Learned], seen: &BTreeMap<String, LogInterval>) -> BTreeMap<String, LogInterval> {
    let left_out = learned.iter().flat_map(|l| &l.left_out);
    let rows = left_out.map(|l| (l.class.clone(), (l.seconds / l.predicted).ln()));
    let mut out = intervals(rows, 20);
    for (name, interval) in seen {
        out.entry(name.clone()).or_insert(interval.widened(UNSEEN));
    }
    out
}
