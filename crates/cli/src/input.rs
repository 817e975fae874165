//! What users name: a GPU by name or file, counts within reason.

use crate::error::InputError;
use crate::model_file;
use anyhow::Context as _;
use preflop_core::Gpu;
use preflop_core::cost::{Date, quantity};
use preflop_core::gpu::{catalog, parse};
use preflop_core::model::zoo::config::Stored;
use preflop_core::model::zoo::decoder::Plan;
use preflop_core::model::{Graph, MAX_ADAPTER_RANK, ModelError, Stage, zoo};
use preflop_core::schedule::host;
use preflop_core::time::{Correction, Probe, TimeModel};
use preflop_import::exported::Bindings;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// A GPU file is a page of text; anything near this size is something else.
const MAX_GPU_FILE: u64 = 1 << 20;

/// A catalogue GPU by name or alias, or the GPU that a file describes.
pub fn gpu(name: &str) -> anyhow::Result<Gpu> {
    if looks_like_a_file(name, "toml") { gpu_file(name) } else { Ok(catalog::find(name)?) }
}

/// Is it a file that is meant, rather than a name: by its folder, its extension, or because it is there?
fn looks_like_a_file(name: &str, extension: &str) -> bool {
    let path = Path::new(name);
    name.contains(['/', '\\'])
        || path.extension().is_some_and(|e| e.eq_ignore_ascii_case(extension))
        || path.is_file()
}

fn gpu_file(path: &str) -> anyhow::Result<Gpu> {
    let bytes = read_limited(path, MAX_GPU_FILE, "GPU file")?;
    let text = String::from_utf8(bytes).map_err(|_| {
        InputError::new(format!("{path}: not a text file"))
            .hint("a GPU file is TOML; docs/gpu-file.md shows one")
    })?;
    Ok(parse(&text, path)?)
}

/// A correction file has a few lines per family of operators.
const MAX_CORRECTION_FILE: u64 = 1 << 20;

/// The time model, with the correction of a file where one is given. It must be for one of these GPUs.
pub fn time_model<'a>(
    correction: Option<&str>,
    gpus: impl IntoIterator<Item = &'a Gpu>,
) -> anyhow::Result<TimeModel> {
    let model = TimeModel::embedded();
    let Some(path) = correction else { return Ok(model) };
    let text = String::from_utf8(read_limited(path, MAX_CORRECTION_FILE, "correction file")?)
        .map_err(|_| InputError::new(format!("{path}: not a text file")))?;
    let correction = Correction::parse(&text, path)?;
    if !gpus.into_iter().any(|g| g.name == correction.gpu) {
        let message = format!("{path}: a correction for `{}`, which is not asked for here", correction.gpu);
        return Err(InputError::new(message)
            .hint("a correction holds for the GPU it was measured on")
            .into());
    }
    Ok(model.with_correction(correction))
}

/// The time model for jobs on the host that is said, in a word, as a factor or by a file of `preflop host`.
pub fn on_host(model: TimeModel, host: Option<&str>) -> anyhow::Result<TimeModel> {
    let Some(path) = host else { return Ok(model) };
    let factor = if looks_like_a_file(path, "json") { probed(path)? } else { said(path)? };
    Ok(model.with_host_factor(factor))
}

/// Refuses a host where a recording says what its own took.
pub fn no_host(host: Option<&str>) -> anyhow::Result<()> {
    if host.is_none() {
        return Ok(());
    }
    let message = "`--host` is for predictions of models: a recording has its own host";
    Err(InputError::new(message).hint("`preflop transfer --host` scales the host of a recording").into())
}

fn said(text: &str) -> anyhow::Result<f64> {
    host::said(text).map_err(|error| {
        InputError::new(error.to_string())
            .hint("`preflop host -o my.host.json` measures one; the file goes here too")
            .into()
    })
}

fn probed(path: &str) -> anyhow::Result<f64> {
    let text = String::from_utf8(read_limited(path, MAX_CORRECTION_FILE, "host file")?)
        .map_err(|_| InputError::new(format!("{path}: not a text file")))?;
    Ok(Probe::parse(&text, path)?.factor())
}

/// A model of the zoo by name, or the graph that a file holds.
pub fn model(name: &str, batch: Option<u64>, seq: Option<u64>) -> anyhow::Result<Graph> {
    sized_model(name, &Bindings { batch, seq, ..Bindings::default() })
}

/// As [`model`], with sizes for the open dimensions of a file.
pub fn sized_model(name: &str, sizes: &Bindings) -> anyhow::Result<Graph> {
    staged_model(name, sizes, Stage::Full)
}

/// As [`sized_model`], for a step of generation.
pub fn staged_model(name: &str, sizes: &Bindings, stage: Stage) -> anyhow::Result<Graph> {
    if !looks_like_a_model_file(name) {
        return zoo::build_stage(name, sizes.batch, sizes.seq, stage).map_err(|error| match error {
            ModelError::Unknown { .. } => {
                InputError::new(error.to_string()).hint("`preflop models` lists all").into()
            }
            other => other.into(),
        });
    }
    model_file::read(name, sizes, stage)
}

/// The plan of a decoder, by name or by its configuration, its parameters, and the format of the checkpoint's weights.
pub fn decoder(name: &str) -> anyhow::Result<(Plan, u64, Option<Stored>)> {
    if !looks_like_a_model_file(name) {
        let plan = zoo::plan(name).ok_or_else(|| {
            InputError::new(format!("`--stack served` does not know `{name}`"))
                .hint("it takes the Llama models of `preflop models`, or a config.json of a decoder")
        })?;
        return Ok((plan, zoo::info(name)?.parameters, None));
    }
    model_file::decoder(name)
}

fn looks_like_a_model_file(name: &str) -> bool {
    let extension = Path::new(name).extension().and_then(|e| e.to_str()).unwrap_or_default().to_lowercase();
    name.contains(['/', '\\'])
        || matches!(extension.as_str(), "json" | "onnx" | "pt2" | "csv")
        || Path::new(name).is_file()
}

/// For `--dim`.
pub fn dim(text: &str) -> Result<(String, u64), String> {
    let (name, size) = text.split_once('=').ok_or("write it as NAME=SIZE, such as batch=8")?;
    Ok((name.to_owned(), count(size, zoo::MAX_SEQ)?))
}

/// Reads a file that must not be larger than `limit`. The limit holds for pipes and devices too.
pub fn read_limited(path: &str, limit: u64, what: &str) -> anyhow::Result<Vec<u8>> {
    let file = open(path)?;
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read `{path}`"))?;
    if bytes.len() as u64 > limit {
        let kib = limit >> 10;
        return Err(InputError::new(format!("{path}: larger than {kib} KiB, so not a {what}")).into());
    }
    Ok(bytes)
}

/// Opens a file for reading; a folder is refused here rather than at the first read.
pub fn open(path: &str) -> anyhow::Result<File> {
    let file = File::open(path).with_context(|| format!("cannot open `{path}`"))?;
    if file.metadata().is_ok_and(|m| m.is_dir()) {
        return Err(InputError::new(format!("cannot read `{path}`: it is a folder")).into());
    }
    Ok(file)
}

/// The day it is, by the clock of this machine.
pub fn today() -> Date {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    Date::from_unix_days(u32::try_from(seconds / 86_400).unwrap_or(0))
}

/// Checks early that a file can be written there, so that a long measurement is not lost for a wrong path.
pub fn writable(path: &Path) -> anyhow::Result<()> {
    if path == Path::new("-") {
        return Ok(());
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let shown = path.display();
    if path.is_dir() {
        return Err(InputError::new(format!("cannot write `{shown}`: it is a folder")).into());
    }
    if !folder.is_dir() {
        return Err(InputError::new(format!("cannot write `{shown}`: its folder does not exist")).into());
    }
    Ok(())
}

/// A count from 1 to `max`. Says what is wrong in words, since `invalid digit` helps nobody.
fn count(text: &str, max: u64) -> Result<u64, String> {
    match quantity::count(text) {
        Ok(n) if n <= max => Ok(n),
        _ if text.parse() == Ok(0) => Err(format!("it must be a whole number from 1 to {max}, not zero")),
        _ => Err(format!("it must be a whole number from 1 to {max}")),
    }
}

/// For `--lora`.
pub fn rank(text: &str) -> Result<u64, String> {
    count(text, MAX_ADAPTER_RANK)
}

/// For `--prompt`, `--output`, `--context`.
pub fn tokens(text: &str) -> Result<u64, String> {
    count(text, zoo::MAX_SEQ)
}

/// `64`, `1..256` (powers of two from one to the other), or a list of both.
pub fn batches(text: &str) -> Result<Batches, String> {
    let mut out = Vec::new();
    for part in text.split(',') {
        let Some((first, last)) = part.split_once("..") else {
            out.push(batch(part)?);
            continue;
        };
        let (mut next, last) = (batch(first)?, batch(last)?);
        if next > last {
            return Err(format!("`{part}` runs backwards"));
        }
        while next < last {
            out.push(next);
            next *= 2;
        }
        out.push(last);
    }
    out.sort_unstable();
    out.dedup();
    Ok(Batches(out))
}

/// Batches in ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batches(pub Vec<u64>);

/// Requests a second: `5/s`, `300/min` or `5`.
pub fn rate(text: &str) -> Result<f64, String> {
    let (number, unit) = text.split_once('/').unwrap_or((text, "s"));
    let seconds = match unit {
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("it must be a rate above zero, such as 5/s or 300/min".to_string()),
    };
    Ok(above_zero(number)? / seconds)
}

/// One of some names.
pub fn one_of<T: Copy>(text: &str, known: &[(&str, T)]) -> Result<T, String> {
    known.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        format!("it must be one of {}", names.join(", "))
    })
}

/// A number above zero.
pub fn above_zero(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if (1e-9..1e9).contains(&x) => Ok(x),
        _ => Err("it must be a number above zero, from 1e-9 to 1e9".to_string()),
    }
}

/// `NAME=VALUE`.
pub fn pair<'a>(text: &'a str, flag: &str, example: &str) -> anyhow::Result<(&'a str, &'a str)> {
    text.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty()).ok_or_else(|| {
        InputError::new(format!("`{flag} {text}` lacks a part"))
            .hint(format!("write it as `{flag} {example}`"))
            .into()
    })
}

/// For `--batch`.
pub fn batch(text: &str) -> Result<u64, String> {
    count(text, zoo::MAX_BATCH)
}

/// For `--seq`.
pub fn seq(text: &str) -> Result<u64, String> {
    count(text, zoo::MAX_SEQ)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_whole_and_bounded() {
        assert_eq!(batch("64"), Ok(64));
        assert_eq!(seq("8k"), Ok(8000));
        assert_eq!(batches("1..6,64").map(|b| b.0), Ok(vec![1, 2, 4, 6, 64]));
        assert!(batches("4..2").is_err() && batches("").is_err());
        assert_eq!(rate("300/min"), Ok(5.0));
        assert!(rate("5/fortnight").is_err() && rate("0/s").is_err());
        for bad in ["0", "-1", "1e18", "NaN", "", "1.5", "1048577", "99999999999999999999999"] {
            assert!(batch(bad).is_err(), "{bad}");
        }
    }
}
