//! Measured sets: what a manifest says about each, and the only way to their files.
//!
//! A set is a folder of `data/measured` with a `manifest.toml`: which GPUs, which software, how it was timed, when, under
//! which licence, and each file with its rows and its SHA-256. Sets that belong to others have a manifest only; their
//! files lie under `$PREFLOP_SHARED/data`. A file that is not the one its manifest describes is not read.

use anyhow::{Context, Result, bail};
use preflop_core::gpu::{Gpu, catalog};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Where manifests lie, seen from the repository's root.
const FOLDER: &str = "data/measured";

/// What is known of one set.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// What was measured, in a sentence.
    pub what: String,
    /// GPUs of its rows, by their names in the catalogue.
    pub gpus: Vec<String>,
    /// Framework and libraries that ran.
    pub software: String,
    /// How times were taken.
    pub timing: String,
    /// When it was measured, or published where that is not said.
    pub date: String,
    /// Who made it.
    pub source: String,
    /// Under which terms.
    pub licence: String,
    /// Folder under `$PREFLOP_SHARED/data`, for sets whose files are not in the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<String>,
    /// Libraries and generations that a GPU of the set speaks for; of several the first that is not left out.
    #[serde(default)]
    pub speaks: BTreeMap<String, Vec<String>>,
    /// Its files.
    pub file: Vec<Entry>,
}

/// One file of a set.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub holds: String,
    /// Lines, without the heading of a table.
    pub rows: usize,
    /// SHA-256 of the file as it lies on the disk.
    pub sha256: String,
}

/// All sets.
#[derive(Debug)]
pub struct Sets {
    manifests: BTreeMap<String, Manifest>,
    shared: PathBuf,
    /// The GPUs of the measurements that are fitted, with all their figures: the project's own first.
    pub gpus: Vec<Gpu>,
}

impl Sets {
    /// Reads all manifests; `shared` is the folder with the sets of others.
    pub fn read(shared: PathBuf) -> Result<Self> {
        let mut manifests = BTreeMap::new();
        for folder in std::fs::read_dir(FOLDER).with_context(|| format!("cannot read `{FOLDER}`"))? {
            let folder = folder?.path();
            if !folder.is_dir() {
                continue;
            }
            let path = folder.join("manifest.toml");
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read `{}`: every measured set has one", path.display()))?;
            let manifest: Manifest =
                toml::from_str(&text).with_context(|| format!("in `{}`", path.display()))?;
            let name = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            manifests.insert(name, manifest);
        }
        // The project's own sets first, then those of others by name: the order of their GPUs is that of reports.
        let own = manifests.values().filter(|m: &&Manifest| m.shared.is_none());
        let others = manifests.values().filter(|m| m.shared.is_some());
        let mut names: Vec<&String> = Vec::new();
        for name in own.chain(others).flat_map(|m| &m.gpus) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let gpus = names.into_iter().map(|n| Ok(catalog::find(n)?)).collect::<Result<_>>()?;
        Ok(Self { manifests, shared, gpus })
    }

    fn manifest(&self, set: &str) -> Result<&Manifest> {
        self.manifests
            .get(set)
            .with_context(|| format!("no set `{set}`: `{FOLDER}/{set}/manifest.toml` is missing"))
    }

    fn path(&self, set: &str, manifest: &Manifest, file: &str) -> PathBuf {
        match &manifest.shared {
            Some(folder) => self.shared.join(folder).join(file),
            None => Path::new(FOLDER).join(set).join(file),
        }
    }

    /// The place of a file named `set/file`, once it is found to be the one that the manifest describes.
    pub fn file(&self, name: &str) -> Result<PathBuf> {
        let (set, file) = name.split_once('/').with_context(|| format!("`{name}` is not `set/file`"))?;
        let manifest = self.manifest(set)?;
        let entry = manifest.file.iter().find(|e| e.name == file);
        let entry =
            entry.with_context(|| format!("`{FOLDER}/{set}/manifest.toml` names no file `{file}`"))?;
        let path = self.path(set, manifest, file);
        if hash(&path)? != entry.sha256 {
            bail!(
                "`{}` is not the file that `{FOLDER}/{set}/manifest.toml` describes: `preflop-fit manifests write` takes it as it is now",
                path.display()
            );
        }
        Ok(path)
    }

    /// Opens a file named `set/file`, unpacked.
    pub fn open(&self, name: &str) -> Result<Box<dyn Read>> {
        unpacked(&self.file(name)?)
    }

    /// Index of a GPU in [`Sets::gpus`].
    pub fn index(&self, name: &str) -> Result<usize> {
        self.gpus
            .iter()
            .position(|g| g.name == name)
            .with_context(|| format!("no manifest names the GPU `{name}`"))
    }

    /// Has a set rows of one of [`Sets::gpus`]?
    pub fn measured_by(&self, set: &str, gpu: usize) -> bool {
        self.manifests.get(set).is_some_and(|m| m.gpus.contains(&self.gpus[gpu].name))
    }

    /// A file of the project's own set, named as in its manifest.
    pub fn own(&self, file: &str) -> Result<String> {
        let own = self.manifests.iter().find(|(_, m)| m.shared.is_none());
        let (set, _) = own.with_context(|| format!("`{FOLDER}` has no set whose files lie there"))?;
        Ok(format!("{set}/{file}"))
    }

    /// Index of the one GPU that the project's own set was measured on.
    pub fn own_gpu(&self) -> Result<usize> {
        let file = self.own("")?;
        let set = file.trim_end_matches('/');
        match self.manifest(set)?.gpus.as_slice() {
            [one] => self.index(one),
            other => bail!("`{set}` was measured on {} GPUs, and its rows do not say on which", other.len()),
        }
    }

    /// The GPUs that speak for libraries and generations, without one of [`Sets::gpus`].
    pub fn references(&self, without: Option<usize>) -> BTreeMap<String, String> {
        let left_out = without.map(|g| self.gpus[g].name.as_str());
        let first = |names: &[String]| names.iter().find(|n| Some(n.as_str()) != left_out).cloned();
        let all = self.manifests.values().flat_map(|m| &m.speaks);
        all.filter_map(|(key, names)| Some((key.clone(), first(names)?))).collect()
    }

    /// Every file that a fit may read with its hash, and the date of the newest set.
    pub fn inputs(&self) -> (BTreeMap<String, String>, String) {
        let files = self
            .manifests
            .iter()
            .flat_map(|(set, m)| m.file.iter().map(move |e| (format!("{set}/{}", e.name), e.sha256.clone())));
        let newest = self.manifests.values().map(|m| m.date.clone()).max().unwrap_or_default();
        (files.collect(), newest)
    }

    /// Compares every file with its manifest, or takes rows and hashes from the files; gives a line for each set.
    pub fn check(&mut self, write: bool) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        for (set, manifest) in &self.manifests {
            let mut new = manifest.clone();
            let mut differ = Vec::new();
            for entry in &mut new.file {
                let path = self.path(set, manifest, &entry.name);
                let now = Entry { rows: rows(&path)?, sha256: hash(&path)?, ..entry.clone() };
                if now.sha256 != entry.sha256 || now.rows != entry.rows {
                    differ.push(entry.name.clone());
                    *entry = now;
                }
            }
            let rows: usize = new.file.iter().map(|e| e.rows).sum();
            if write && !differ.is_empty() {
                let path = Path::new(FOLDER).join(set).join("manifest.toml");
                std::fs::write(&path, toml::to_string(&new)?)?;
            }
            let state = match (differ.is_empty(), write) {
                (true, _) => "as described".to_string(),
                (false, true) => format!("described anew: {}", differ.join(", ")),
                (false, false) => format!("DIFFERS: {}", differ.join(", ")),
            };
            lines.push(format!("{set:22} {:3} files {rows:8} rows  {state}", new.file.len()));
        }
        if !write && lines.iter().any(|l| l.contains("DIFFERS")) {
            bail!("{}", lines.join("\n"));
        }
        Ok(lines)
    }
}

/// Opens a file, unpacking it when it ends in `.gz`.
fn unpacked(path: &Path) -> Result<Box<dyn Read>> {
    let file = std::fs::File::open(path).with_context(|| format!("cannot open `{}`", path.display()))?;
    let gz = path.extension().is_some_and(|e| e == "gz");
    Ok(if gz { Box::new(flate2::read::GzDecoder::new(file)) } else { Box::new(file) })
}

fn hash(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    let mut out = String::with_capacity(64);
    for byte in Sha256::digest(&bytes) {
        let _ = write!(out, "{byte:02x}");
    }
    Ok(out)
}

/// Lines of a file; the heading of a table is not counted.
fn rows(path: &Path) -> Result<usize> {
    let table = path.to_string_lossy().contains(".csv");
    let mut count = 0usize;
    for line in BufReader::new(unpacked(path)?).split(b'\n') {
        count += usize::from(!line?.is_empty());
    }
    Ok(count.saturating_sub(usize::from(table)))
}
