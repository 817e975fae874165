//! `cargo xtask validate-shared`: the checks that need the folder of shared measurements.

use crate::python;
use crate::run::{cargo, output_of, step, succeed};
use anyhow::Context as _;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The feature that crates give to such checks.
const FEATURE: &str = "shared-data";

/// Runs the checks of every crate that has them.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let shared = folder(root)?;
    println!("shared data: {}", shared.display());
    let crates = crates_with_checks(root)?;
    anyhow::ensure!(!crates.is_empty(), "no crate has the feature `{FEATURE}`, so nothing would be checked");
    for name in crates {
        step(&format!("{name} against shared data"), || {
            let args =
                ["test", "--release", "--locked", "-p", &name, "--features", FEATURE, "--", "--nocapture"];
            succeed(cargo(root, &args).env("PREFLOP_SHARED", &shared))
        })?;
    }
    step("Python against shared data", || python::validate(root, &shared))
}

fn folder(root: &Path) -> anyhow::Result<PathBuf> {
    let folder = std::env::var_os("PREFLOP_SHARED").map_or_else(|| root.join("../shared"), PathBuf::from);
    anyhow::ensure!(
        folder.is_dir(),
        "the shared data folder {} does not exist; set PREFLOP_SHARED to where it is",
        folder.display()
    );
    folder.canonicalize().context("cannot resolve the shared data folder")
}

fn crates_with_checks(root: &Path) -> anyhow::Result<Vec<String>> {
    let metadata = output_of(&mut cargo(root, &["metadata", "--format-version", "1", "--no-deps"]))?;
    let metadata: Value = serde_json::from_str(&metadata).context("cargo metadata is not JSON")?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let with_checks = packages.iter().filter(|p| p["features"].get(FEATURE).is_some());
    Ok(with_checks.filter_map(|p| p["name"].as_str().map(str::to_string)).collect())
}
