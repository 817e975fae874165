//! `cargo xtask fuzz`: random input into every reader, on the stable toolchain.
//!
//! Each target is a program of `fuzz/` linked with libFuzzer and built with coverage counters. It starts from the files in
//! `fuzz/seeds` and from what earlier runs kept in `fuzz/corpus` (not in the repository).

use crate::run::{cargo, output_of, step, succeed};
use anyhow::Context as _;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Memory that a target may take.
const MEMORY_MIB: u32 = 512;
/// Time for one input; what takes longer is a hang.
const LONGEST_S: u64 = 1;
/// A busy machine can stop any program for a while: what was slow is asked again before it counts.
const PATIENCE_S: u64 = 10;
/// Longest input: readers make their decisions in the first kilobytes.
const LONGEST_INPUT: u32 = 4096;
/// What the nightly run may add to the seeds of one target in the repository.
const SEED_BYTES: u64 = 64 << 10;

/// libFuzzer's counters; sanitizers need a nightly compiler, and safe Rust needs none.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Runs every target for so many seconds; a crash is an error and leaves its input in `fuzz/artifacts`.
pub fn run(root: &Path, seconds: &str) -> anyhow::Result<()> {
    let limit: u64 =
        seconds.parse().map_err(|_| anyhow::anyhow!("`{seconds}` is not a number of seconds"))?;
    let programs = build(root)?;
    each(root, &programs, limit).map(drop)
}

/// An hour over all targets; inputs that reach something new are made small and kept in `fuzz/seeds`.
pub fn nightly(root: &Path) -> anyhow::Result<()> {
    const HOUR_S: u64 = 3600;
    let programs = build(root)?;
    each(root, &programs, HOUR_S / targets(root)?.len() as u64)?;
    for target in targets(root)? {
        keep(root, &programs, &target)?;
    }
    Ok(())
}

/// Names of the targets: the files of `fuzz_targets`.
fn targets(root: &Path) -> anyhow::Result<BTreeSet<String>> {
    let folder = root.join("fuzz/fuzz_targets");
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        if let Some(name) = entry?.path().file_stem() {
            names.insert(name.to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

/// Builds all targets and gives the folder they are in.
fn build(root: &Path) -> anyhow::Result<PathBuf> {
    let version = output_of(&mut cargo(root, &["version", "--verbose"]))?;
    let host =
        version.lines().find_map(|l| l.strip_prefix("host: ")).context("cargo tells no host")?.to_owned();
    // With a target named, build scripts and macros are built without the counters.
    let folder = root.join("fuzz");
    step("build of the fuzz targets", || {
        let mut build =
            cargo(&folder, &["build", "--release", "--bins", "--locked", "--quiet", "--target", &host]);
        succeed(build.env("RUSTFLAGS", FLAGS))
    })?;
    Ok(folder.join("target").join(host).join("release"))
}

fn each(root: &Path, programs: &Path, seconds: u64) -> anyhow::Result<u64> {
    let start = Instant::now();
    let mut all = 0;
    for target in targets(root)? {
        step(&format!("fuzz {target}"), || {
            let runs = one(root, programs, &target, seconds)?;
            println!("    {runs} executions, {} per second", runs / seconds.max(1));
            all += runs;
            Ok(())
        })?;
    }
    println!("{all} executions in {:.0} s", start.elapsed().as_secs_f64());
    Ok(all)
}

fn fuzzer(root: &Path, programs: &Path, target: &str) -> Command {
    let mut command = Command::new(programs.join(target));
    command.current_dir(root);
    command.args([format!("-rss_limit_mb={MEMORY_MIB}"), format!("-timeout={PATIENCE_S}")]);
    command.arg(format!("-max_len={LONGEST_INPUT}"));
    command
}

/// Runs one target and gives the number of executions.
fn one(root: &Path, programs: &Path, target: &str, seconds: u64) -> anyhow::Result<u64> {
    let (corpus, artifacts) =
        (root.join("fuzz/corpus").join(target), root.join("fuzz/artifacts").join(target));
    std::fs::create_dir_all(&corpus)?;
    std::fs::create_dir_all(&artifacts)?;
    let mut command = fuzzer(root, programs, target);
    command.args([
        format!("-max_total_time={seconds}"),
        format!("-report_slow_units={LONGEST_S}"),
        format!("-artifact_prefix={}/", artifacts.display()),
        "-print_final_stats=1".into(),
        "-verbosity=0".into(),
    ]);
    command.arg(&corpus).arg(root.join("fuzz/seeds").join(target));
    let out = command.output().with_context(|| format!("cannot start the target `{target}`"))?;
    let said = String::from_utf8_lossy(&out.stderr);
    if !out.status.success() {
        let tail: Vec<&str> = said.lines().rev().take(25).collect();
        tail.iter().rev().for_each(|line| println!("    {line}"));
        anyhow::bail!("`{target}` ended with {}; the input is in {}", out.status, artifacts.display());
    }
    for entry in std::fs::read_dir(&artifacts)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("slow-unit-")) {
            let start = Instant::now();
            succeed(fuzzer(root, programs, target).arg(&path))?;
            anyhow::ensure!(
                start.elapsed().as_secs() < 2 * LONGEST_S,
                "`{target}` hangs on {}",
                path.display()
            );
            std::fs::remove_file(path)?;
        }
    }
    let runs = said.lines().find_map(|l| l.strip_prefix("stat::number_of_executed_units:"));
    runs.and_then(|n| n.trim().parse().ok())
        .with_context(|| format!("`{target}` told no number of executions"))
}

/// Adds to the seeds the smallest inputs that reach what the seeds alone do not, within a bound.
fn keep(root: &Path, programs: &Path, target: &str) -> anyhow::Result<()> {
    let (corpus, seeds) = (root.join("fuzz/corpus").join(target), root.join("fuzz/seeds").join(target));
    let merged = root.join("fuzz/target/merged").join(target);
    let _ = std::fs::remove_dir_all(&merged);
    std::fs::create_dir_all(&merged)?;
    for entry in std::fs::read_dir(&seeds)? {
        let path = entry?.path();
        std::fs::copy(&path, merged.join(path.file_name().unwrap_or_default()))?;
    }
    succeed(fuzzer(root, programs, target).args(["-merge=1", "-verbosity=0"]).arg(&merged).arg(&corpus))?;
    let mut found: Vec<(u64, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(&merged)? {
        let entry = entry?;
        found.push((entry.metadata()?.len(), entry.path()));
    }
    found.sort();
    let mut room = SEED_BYTES;
    for (size, path) in found {
        let place = seeds.join(path.file_name().unwrap_or_default());
        if size <= room && !place.exists() {
            std::fs::copy(&path, &place)?;
            room -= size;
        }
    }
    Ok(())
}
