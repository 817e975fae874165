//! Trains each family, reports it, and writes the generated files.

use crate::data::GPUS;
use crate::gbdt::Settings;
use crate::samples::{Sample, cross_validate, fit, fit_all, intervals};
use crate::score::score;
use crate::unseen::LeftOut;
use anyhow::Result;
use preflop_core::gpu::Gpu;
use preflop_core::time::choice::Choosers;
use preflop_core::time::fitted::{ConstantsFile, Fitted, LogInterval, write_forests};
use preflop_core::time::trees::Forest;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

/// One line of the cross-validation report.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct ScoreRow {
    family: String,
    class: String,
    gpu: String,
    how: String,
    n: usize,
    mean_percent: f64,
    median_percent: f64,
    bias_percent: f64,
}

/// A family ready to be learned.
pub struct Learner {
    name: String,
    samples: Vec<Sample>,
    features: usize,
    settings: Settings,
    beside: Option<(String, Vec<Sample>, Settings)>,
    left_out: Vec<LeftOut>,
}

/// A family learned: its forest, what cross-validation said, its intervals.
pub struct Learned {
    name: String,
    samples: Vec<Sample>,
    forests: Vec<(String, Forest)>,
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
        Self { name: name.to_string(), samples, features, settings, beside: None, left_out: Vec::new() }
    }

    /// A second forest that ships with the family.
    #[must_use]
    pub fn beside(self, name: &str, samples: Vec<Sample>, settings: Settings) -> Self {
        Self { beside: Some((name.to_string(), samples, settings)), ..self }
    }

    /// What models that did not see a GPU say of its rows.
    #[must_use]
    pub fn left_out(self, rows: Vec<LeftOut>) -> Self {
        Self { left_out: rows, ..self }
    }

    /// Cross-validates and, unless `only_check`, trains on everything.
    pub fn train(self, only_check: bool) -> Learned {
        let predicted = cross_validate(&self.samples, self.features, &self.settings, 5);
        let mut forests = Vec::new();
        if !only_check {
            let own = fit_all(&self.samples, self.features, &self.settings, |_| true);
            forests.extend(own.0.into_iter().map(|(name, forest)| (name.to_string(), forest)));
            if let Some((name, samples, settings)) = &self.beside {
                forests.push((name.clone(), fit(samples, self.features, settings, |_| true)));
            }
        }
        Learned { name: self.name, samples: self.samples, forests, predicted, left_out: self.left_out }
    }
}

impl Learned {
    /// Errors by class and GPU, as text.
    pub fn report(&self) -> String {
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
        let mut gpus: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (i, (s, p)) in all().enumerate() {
            classes.entry(&s.class).or_default().push((*p, s.seconds));
            gpus.entry(s.gpu).or_default().push(i);
        }
        let several = gpus.len() > 1;
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
        for (gpu, members) in gpus.into_iter().filter(|_| several) {
            let pairs = members.iter().map(|&i| (self.predicted[i], self.samples[i].seconds));
            let _ = writeln!(out, "    {:16} cross-validated {}", GPUS[gpu], score(pairs));
        }
        for (gpu, pairs) in self.strangers() {
            let _ = writeln!(out, "    {:16} left out        {}", GPUS[gpu], score(pairs));
        }
        out
    }

    /// The same as rows for `report.json`.
    fn rows(&self) -> Vec<ScoreRow> {
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
            out.push(row("all", GPUS[gpu], "GPU left out", pairs));
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

/// Writes `constants.json`, `trees.bin` and `report.json` (what cross-validation said). With `update`, what was
/// not fitted this time stays as it was.
pub fn files(
    folder: &Path,
    gpus: &[Gpu],
    mut constants: ConstantsFile,
    learned: &[Learned],
    choosers: Option<Choosers>,
    update: bool,
) -> Result<()> {
    let family = |name: &str| name.split('/').next().unwrap_or(name).to_string();
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
    let everyone = learned.iter().flat_map(|l| l.logs().map(move |(_, log)| (family(&l.name), log)));
    constants.intervals.extend(intervals(everyone, 20));
    constants.unseen = unseen(learned, &constants.intervals);
    let mut forests: BTreeMap<String, Forest> =
        learned.iter().flat_map(|l| l.forests.iter().cloned()).collect();
    let mut rows: Vec<ScoreRow> = learned.iter().flat_map(Learned::rows).collect();
    let mut choosers = choosers;
    if update {
        let text = std::fs::read_to_string(folder.join("constants.json"))?;
        let old: ConstantsFile = serde_json::from_str(&text)?;
        let before = Fitted::read(&text, &std::fs::read(folder.join("trees.bin"))?)?;
        fill(&mut constants.tiles, old.tiles);
        // Keys of a family that was fitted again are its own.
        let again = |key: &str| learned.iter().any(|l| family(&l.name) == family(key));
        fill(&mut constants.forms, old.forms.into_iter().filter(|(k, _)| !again(k)).collect());
        fill(&mut constants.intervals, old.intervals);
        fill(&mut constants.unseen, old.unseen);
        let replaced =
            |name: &str| learned.iter().any(|l| name == l.name || name.starts_with(&format!("{}/", l.name)));
        for (name, forest) in before.forests().filter(|(name, _)| !replaced(name)) {
            forests.entry(name.to_string()).or_insert_with(|| forest.clone());
        }
        choosers = choosers.or_else(|| before.choosers());
        let old: Vec<ScoreRow> = serde_json::from_str(&std::fs::read_to_string(folder.join("report.json"))?)?;
        rows.extend(old.into_iter().filter(|r| learned.iter().all(|l| l.name != r.family)));
    }
    constants.provenance.insert("made_by".into(), "cargo run --release -p preflop-fit".into());
    constants.provenance.insert("errors".into(), "report.json, by cross-validation".into());
    constants.provenance.insert(
        "data".into(),
        "data/measured/h200 (ours); aiconfigurator products and attention; NeuSight fp32 products".into(),
    );
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("constants.json"), serde_json::to_string_pretty(&constants)? + "\n")?;
    std::fs::write(folder.join("trees.bin"), write_forests(&forests, &choosers.unwrap_or_default()))?;
    rows.sort_by(|a, b| a.family.cmp(&b.family));
    std::fs::write(folder.join("report.json"), serde_json::to_string_pretty(&rows)? + "\n")?;
    Ok(())
}

/// Takes over the entries that are missing.
fn fill<T>(new: &mut BTreeMap<String, T>, old: BTreeMap<String, T>) {
    for (key, value) in old {
        new.entry(key).or_insert(value);
    }
}

/// Intervals for GPUs of a generation nobody measured, by class and by family: from models that did not see the
/// row's GPU where several GPUs were measured, else twice as wide (in log) as on the measured one.
fn unseen(learned: &[Learned], seen: &BTreeMap<String, LogInterval>) -> BTreeMap<String, LogInterval> {
    let left_out = learned.iter().flat_map(|l| &l.left_out);
    let rows = left_out.map(|l| (l.class.clone(), (l.seconds / l.predicted).ln()));
    let mut out = intervals(rows, 20);
    for (name, interval) in seen {
        out.entry(name.clone()).or_insert(interval.widened(2.0));
    }
    out
}
