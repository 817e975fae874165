//! Checks the core's invariant: no files, network, clock, threads, environment or printing.

use anyhow::Context as _;
use std::path::{Path, PathBuf};

/// What the core must not name. Tests inside it must not either.
const FORBIDDEN: [&str; 10] = [
    "std::fs",
    "std::net",
    "std::thread",
    "std::env",
    "std::process",
    "std::time",
    "std::io",
    "static mut",
    "thread_local!",
    "OnceLock",
];

/// Reads every source file of the core.
pub fn check(root: &Path) -> anyhow::Result<()> {
    let mut found = Vec::new();
    let files = sources(&root.join("crates/core/src"))?;
    for file in &files {
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        for (number, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("//") {
                continue;
            }
            for word in FORBIDDEN.iter().filter(|w| line.contains(**w)) {
                let place = file.strip_prefix(root).unwrap_or(file).display();
                found.push(format!("{place}:{}: {word}", number + 1));
            }
        }
    }
    anyhow::ensure!(found.is_empty(), "the core must stay pure: {}", found.join("; "));
    println!("    {} files of the core are pure", files.len());
    Ok(())
}

fn sources(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            out.extend(sources(&path)?);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
    Ok(out)
}
