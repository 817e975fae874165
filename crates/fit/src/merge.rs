//! What ships as the base of a fit of some families alone: `preflop-fit merge FAMILY ..`.
//!
//! Families do not look at each other, but for products, on which convolutions and recurrent layers stand. So where only the rows or forms of some families
//! changed, these can be fitted anew and put in the place of the shipped ones: constants, trees, intervals, what cross-validation said. Forms for boards before
//! Hopper are fitted through the whole model, so `boards` goes with the others. `provenance.json` names the families.

use crate::write::ScoreRow;
use anyhow::{Context as _, Result, bail};
use preflop_core::kernels::tensor_conv;
use preflop_core::time::choice::Choosers;
use preflop_core::time::fitted::{ConstantsFile, Fitted, LogInterval};
use preflop_core::time::trees::Forest;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Families that nothing else is fitted on, and the beginnings of the names of their forms.
const FAMILIES: [(&str, &[&str]); 6] = [
    ("attention", &["attention"]),
    ("boards", &[]),
    ("conv", &["conv/"]),
    ("listed", &[]),
    ("rnn", &["rnn/"]),
    ("stream", &["linear/", "rows/"]),
];

/// Beginnings of the names of forms for boards, which stay until new ones take their places.
const BOARDS: [&str; 2] = [tensor_conv::KEY, "rnn/older/"];

/// By how much intervals of shipped classes are wider on GPUs that nobody measured, unless rows of such GPUs were left out.
pub const UNSEEN: f64 = 2.0;

/// The files of a fit that ships.
pub struct Shipped {
    constants: ConstantsFile,
    fitted: Fitted,
    report: Vec<ScoreRow>,
    provenance: BTreeMap<String, String>,
    /// Families that are fitted anew.
    families: Vec<&'static str>,
    forms: Vec<&'static str>,
}

impl Shipped {
    pub fn read(folder: &Path, wanted: &[String]) -> Result<Self> {
        let known = FAMILIES.map(|(name, _)| name).join(", ");
        if let Some(other) = wanted.iter().find(|w| FAMILIES.iter().all(|(name, _)| name != w)) {
            bail!("`{other}` cannot be fitted alone (these can: {known}); `preflop-fit` fits everything");
        }
        let picked = || FAMILIES.iter().filter(|(name, _)| wanted.iter().any(|w| w == name));
        if picked().next().is_none() {
            bail!("which families? {known}");
        }
        let text = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))
        };
        let trees = std::fs::read(folder.join("trees.bin")).context("cannot read `trees.bin`")?;
        let constants = text("constants.json")?;
        Ok(Self {
            fitted: Fitted::read(&constants, &trees)?,
            constants: serde_json::from_str(&constants)?,
            report: serde_json::from_str(&text("report.json")?)?,
            provenance: serde_json::from_str(&text("provenance.json")?)?,
            families: picked().map(|(name, _)| *name).collect(),
            forms: picked().flat_map(|(_, forms)| *forms).copied().collect(),
        })
    }

    /// The shipped constants with new ones in the place of those of the families.
    pub fn constants(&self, new: &ConstantsFile) -> ConstantsFile {
        let mut out = self.constants.clone();
        let starts = |name: &str, with: &[&str]| with.iter().any(|start| name.starts_with(start));
        out.forms.retain(|name, _| starts(name, &BOARDS) || !starts(name, &self.forms));
        out.forms.extend(new.forms.clone());
        out.references.clone_from(&new.references);
        out.intervals.extend(new.intervals.clone());
        for (class, interval) in &new.unseen {
            // What rows of left-out GPUs of other families said of a class stays.
            let old = self.constants.unseen.get(class);
            let seen = self.constants.intervals.get(class);
            let wide = |i: &LogInterval| i.widened(UNSEEN);
            let own = out.intervals.get(class).map(wide).as_ref() != Some(interval);
            if old.is_none() || old == seen.map(wide).as_ref() || own {
                out.unseen.insert(class.clone(), *interval);
            }
        }
        out
    }

    /// The shipped forests with new ones in the place of those of the same name.
    pub fn forests(&self, new: BTreeMap<String, Forest>) -> BTreeMap<String, Forest> {
        let shipped = self.fitted.forests().map(|(name, forest)| (name.to_string(), forest.clone()));
        shipped.chain(new).collect()
    }

    /// The choosers of convolutions: new ones, where they were fitted.
    pub fn choosers(&self, new: &Choosers) -> Choosers {
        let new = Some(new).filter(|c| **c != Choosers::default());
        new.cloned().or_else(|| self.fitted.choosers()).unwrap_or_default()
    }

    /// What cross-validation said of the other families, and now says of these.
    pub fn report(&self, new: &[ScoreRow]) -> Vec<ScoreRow> {
        let old = self.report.iter().filter(|r| new.iter().all(|n| n.family != r.family)).cloned();
        old.chain(new.iter().cloned()).collect()
    }

    /// Where all of it comes from.
    pub fn provenance(&self, mut new: BTreeMap<String, String>) -> BTreeMap<String, String> {
        for (key, value) in self.provenance.iter().filter(|(key, _)| key.starts_with("error ")) {
            new.entry(key.clone()).or_insert_with(|| value.clone());
        }
        let earlier = self.provenance.get("merged").map_or("", |m| m.split(';').next().unwrap_or_default());
        let all: BTreeSet<&str> = earlier.split(' ').chain(self.families.iter().copied()).collect();
        let families = all.into_iter().filter(|f| !f.is_empty()).collect::<Vec<_>>().join(" ");
        new.insert("made_by".into(), format!("cargo run --release -p preflop-fit merge {families}"));
        let others = "the other families as of an earlier whole fit, whose inputs are all but those that only these read";
        new.insert("merged".into(), format!("{families}; {others}"));
        new
    }
}
