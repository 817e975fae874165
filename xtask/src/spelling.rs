//! Spelling, with `typos`: from PyPI where there is a Python (seconds), else built from source (minutes).

use crate::run::{cargo, program, succeed, works};
use std::path::{Path, PathBuf};

/// The release whose word list the repository is clean of.
const VERSION: &str = "1.51.1";

/// Checks every tracked file.
pub fn check(root: &Path) -> anyhow::Result<()> {
    let typos = install(root)?;
    succeed(&mut program(root, typos, &["--config", "typos.toml"]))
}

fn install(root: &Path) -> anyhow::Result<PathBuf> {
    let in_venv = root.join("target/venv/bin/typos");
    let from_source = root.join("target/tools/bin/typos");
    for known in [&in_venv, &from_source] {
        if known.is_file() {
            return Ok(known.clone());
        }
    }
    let venv = works(&mut program(root, "python3", &["-m", "venv", "target/venv"]))
        && works(&mut program(
            root,
            root.join("target/venv/bin/pip"),
            &["install", "--quiet", &format!("typos=={VERSION}")],
        ));
    if venv {
        return Ok(in_venv);
    }
    succeed(&mut cargo(
        root,
        &["install", "--quiet", "--locked", "--root", "target/tools", "typos-cli", "--version", VERSION],
    ))?;
    Ok(from_source)
}
