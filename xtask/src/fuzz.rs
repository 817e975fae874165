//! `cargo xtask fuzz`: random input into everything that reads text, on the stable toolchain.

use crate::run::{cargo, step, succeed, works};
use std::path::Path;

/// Each target with the files it starts from in `fuzz/seeds`.
const TARGETS: [&str; 5] = ["gpu_file", "operator_row", "graph_file", "recording", "capture_file"];

/// Runs every target for so many seconds; a crash is an error and leaves its input in `fuzz/artifacts`.
pub fn run(root: &Path, seconds: &str) -> anyhow::Result<()> {
    let limit: u64 =
        seconds.parse().map_err(|_| anyhow::anyhow!("`{seconds}` is not a number of seconds"))?;
    let mut path = vec![root.join("target/tools/bin")];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let path = std::env::join_paths(path)?;
    if !works(cargo(root, &["fuzz", "--version"]).env("PATH", &path)) {
        succeed(&mut cargo(
            root,
            &["install", "--locked", "--quiet", "--root", "target/tools", "cargo-fuzz"],
        ))?;
    }
    for target in TARGETS {
        step(&format!("fuzz {target}"), || {
            let corpus = root.join("fuzz/corpus").join(target);
            std::fs::create_dir_all(&corpus)?;
            let (corpus, seeds) = (corpus.to_string_lossy(), format!("fuzz/seeds/{target}"));
            // Sanitizers need a nightly compiler; safe Rust needs none, and overflow panics by itself.
            let mut fuzz = cargo(root, &["fuzz", "run", "--sanitizer", "none", target, &corpus, &seeds]);
            fuzz.args(["--", &format!("-max_total_time={limit}"), "-verbosity=0", "-print_final_stats=1"]);
            succeed(fuzz.env("PATH", &path))
        })?;
    }
    Ok(())
}
