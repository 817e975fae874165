//! What users name: a GPU by name or file, counts within reason.

use crate::error::InputError;
use anyhow::Context as _;
use preflop_core::Gpu;
use preflop_core::gpu::{catalog, parse};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// A GPU file is a page of text; anything near this size is something else.
const MAX_GPU_FILE: u64 = 1 << 20;

/// A catalogue GPU by name or alias, or the GPU that a file describes.
pub fn gpu(name: &str) -> anyhow::Result<Gpu> {
    if looks_like_a_path(name) { gpu_file(name) } else { Ok(catalog::find(name)?) }
}

fn looks_like_a_path(name: &str) -> bool {
    let path = Path::new(name);
    name.contains(['/', '\\'])
        || path.extension().is_some_and(|e| e.eq_ignore_ascii_case("toml"))
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

/// A count from 1 to `max`. Says what is wrong in words, since `invalid digit` helps nobody.
fn count(text: &str, max: u64) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(0) => Err(format!("it must be a whole number from 1 to {max}, not zero")),
        Ok(n) if n <= max => Ok(n),
        _ => Err(format!("it must be a whole number from 1 to {max}")),
    }
}

/// The most samples of one iteration: a thousand times what any GPU holds.
const MAX_BATCH: u64 = 1_000_000;
/// The longest sequence, likewise.
const MAX_SEQ: u64 = 10_000_000;

/// For `--batch`.
pub fn batch(text: &str) -> Result<u64, String> {
    count(text, MAX_BATCH)
}

/// For `--seq`.
pub fn seq(text: &str) -> Result<u64, String> {
    count(text, MAX_SEQ)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_whole_and_bounded() {
        assert_eq!(batch("64"), Ok(64));
        for bad in ["0", "-1", "1e18", "NaN", "", "1.5", "1000001", "99999999999999999999999"] {
            assert!(batch(bad).is_err(), "{bad}");
        }
    }
}
