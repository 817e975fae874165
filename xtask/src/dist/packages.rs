//! Packages of all crates, as `cargo publish` would upload them.

use super::version;
use crate::run::{cargo, succeed};
use anyhow::Context as _;
use std::path::{Path, PathBuf};

/// Every crate that can be published is packed, unpacked and built from its package alone.
pub fn build(root: &Path) -> anyhow::Result<()> {
    whole(root)?;
    forget(root)?;
    let args = ["publish", "--workspace", "--dry-run", "--locked", "--allow-dirty", "--quiet"];
    succeed(&mut cargo(root, &args))?;
    forget(root)
}

/// Removes what an earlier trial unpacked: cargo takes a package of the same name and version for the same package, and would build the older text.
fn forget(root: &Path) -> anyhow::Result<()> {
    let version = version(root)?;
    let ours = |name: &str| name.starts_with("preflop") && name.contains(&format!("-{version}"));
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let registry = home.unwrap_or_default().join("registry");
    let mut folders = vec![root.join("target/package")];
    for kind in ["src", "cache"] {
        for entry in std::fs::read_dir(registry.join(kind)).into_iter().flatten() {
            folders.push(entry?.path());
        }
    }
    for folder in folders {
        for entry in std::fs::read_dir(&folder).into_iter().flatten() {
            let path = entry?.path();
            let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            if name == "tmp-registry" || ours(&name) {
                let removed =
                    if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
                removed.with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
    }
    Ok(())
}

/// No crate embeds a file from outside its own folder: its package would not build. Data are linked into `crates/*/data`.
pub fn whole(root: &Path) -> anyhow::Result<()> {
    let mut outside = Vec::new();
    let mut folders: Vec<(PathBuf, usize)> = Vec::new();
    for entry in std::fs::read_dir(root.join("crates"))? {
        folders.push((entry?.path().join("src"), 0));
    }
    while let Some((folder, depth)) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten() {
            let path = entry?.path();
            if path.is_dir() {
                folders.push((path, depth + 1));
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&path)?;
                // `src` itself is one step below the crate.
                let leaves = "../".repeat(depth + 2);
                let embeds = |line: &&str| line.contains("include_") && line.contains(&leaves);
                if let Some(line) = text.lines().find(embeds) {
                    outside.push(format!("{}: {}", path.display(), line.trim()));
                }
            }
        }
    }
    anyhow::ensure!(
        outside.is_empty(),
        "these embed files from outside their crate; link them into its data/ (CONTRIBUTING.md):\n  {}",
        outside.join("\n  ")
    );
    Ok(())
}
