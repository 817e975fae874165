//! `cargo xtask fuzz`: random input into every reader, on the stable toolchain.
//!
//! Each target is a program of `fuzz/` linked with libFuzzer and built with coverage counters. It starts from the files in
//! `fuzz/seeds` and from what earlier runs kept in `fuzz/corpus` (not in the repository). The programs need nothing but a Linux
//! of the same kind: `--programs` runs them on a machine without Rust.

mod options;
mod slice;

pub use options::Options;

use crate::run::{cargo, output_of, step, succeed};
use anyhow::Context as _;
use slice::Slice;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Memory that a target may take.
const MEMORY_MIB: u32 = 512;
/// Longest input: readers make their decisions in the first kilobytes.
const LONGEST_INPUT: u32 = 4096;
/// A busy machine can stop any program for a while: what was slow is asked again before it counts (see `slice.rs`).
const PATIENCE_S: u64 = 10;
/// What the seeds of one target may take in the repository, over all nights.
const SEED_BYTES: u64 = 64 << 10;

/// libFuzzer's counters; sanitizers need a nightly compiler, and safe Rust needs none.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Runs the targets in turn, several beside each other; a finding is an error and leaves its input in `fuzz/artifacts`.
pub fn run(root: &Path, options: &Options) -> anyhow::Result<()> {
    let known = targets(root)?;
    if let Some(stranger) = options.targets.iter().find(|t| !known.contains(*t)) {
        let names: Vec<&str> = known.iter().map(String::as_str).collect();
        anyhow::bail!("unknown target `{stranger}`; there are {}", names.join(", "));
    }
    let chosen: Vec<String> =
        if options.targets.is_empty() { known.into_iter().collect() } else { options.targets.clone() };
    let programs = match &options.programs {
        Some(folder) => folder.clone(),
        None => build(root)?,
    };
    if options.build_only {
        println!("{}", programs.display());
        return Ok(());
    }
    drive(root, &programs, &chosen, options)
}

/// An hour over all targets; inputs that reach something new are made small and kept in `fuzz/seeds`.
pub fn nightly(root: &Path) -> anyhow::Result<()> {
    const HOUR_S: u64 = 3600;
    let programs = build(root)?;
    let chosen: Vec<String> = targets(root)?.into_iter().collect();
    let options = Options { seconds: HOUR_S / chosen.len() as u64, ..Options::default() };
    // What was found before a finding is worth keeping too.
    let outcome = drive(root, &programs, &chosen, &options);
    for target in &chosen {
        keep(root, &programs, target)?;
    }
    outcome
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

/// Compiles the targets with the lints of the workspace: what they call changes with it.
pub fn lint(root: &Path) -> anyhow::Result<()> {
    let manifest = root.join("fuzz/Cargo.toml");
    let mut clippy = cargo(root, &["clippy", "--bins", "--locked", "--quiet", "--manifest-path"]);
    clippy.arg(manifest).arg("--target-dir").arg(root.join("target"));
    succeed(clippy.args(["--", "-D", "warnings"]))
}

/// What became of the slices so far.
#[derive(Default)]
struct Tally {
    next: usize,
    /// By target: executions, seconds, most memory in MiB.
    done: BTreeMap<String, (u64, f64, u64)>,
    findings: Vec<String>,
}

impl Tally {
    fn executions(&self) -> u64 {
        self.done.values().map(|d| d.0).sum()
    }

    /// The next slice: its target and seconds; none when enough was done. A target with a finding is not asked again.
    fn take(&mut self, chosen: &[String], options: &Options, start: Instant) -> Option<(String, u64)> {
        let enough = match (options.executions, options.wall) {
            (Some(executions), _) if self.executions() >= executions => true,
            (None, None) => self.next >= chosen.len(),
            _ => self.findings.len() >= chosen.len(),
        };
        let left = options.wall.map_or(u64::MAX, |w| w.saturating_sub(start.elapsed().as_secs()));
        if enough || left < 2 {
            return None;
        }
        let found = |target: &String| self.findings.iter().any(|f| f.starts_with(&format!("`{target}`")));
        for _ in 0..chosen.len() {
            let target = &chosen[self.next % chosen.len()];
            self.next += 1;
            if !found(target) {
                return Some((target.clone(), options.seconds.min(left)));
            }
        }
        None
    }
}

/// Gives slices of time to the targets in turn until enough was done, as many at once as there are jobs.
fn drive(root: &Path, programs: &Path, chosen: &[String], options: &Options) -> anyhow::Result<()> {
    let start = Instant::now();
    let tally = Mutex::new(Tally::default());
    let locked = || tally.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    std::thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(|| {
                while let Some((target, seconds)) = { locked().take(chosen, options, start) } {
                    let began = Instant::now();
                    let outcome = (Slice { root, programs, target: &target, seconds }).run();
                    let took = began.elapsed().as_secs_f64();
                    let mut tally = locked();
                    match outcome {
                        Ok(stats) => {
                            let done = tally.done.entry(target.clone()).or_default();
                            *done = (done.0 + stats.executions, done.1 + took, done.2.max(stats.peak_mib));
                            println!(
                                "    {target}: {} executions, {:.0} per second, {} MiB; {} in all after {:.0} s",
                                stats.executions,
                                stats.executions as f64 / took.max(1e-9),
                                stats.peak_mib,
                                tally.executions(),
                                start.elapsed().as_secs_f64()
                            );
                        }
                        Err(error) => {
                            println!("    FOUND: {error:#}");
                            tally.findings.push(format!("{error:#}"));
                        }
                    }
                }
            });
        }
    });
    let tally = locked();
    let wall = start.elapsed();
    println!("{:16} {:>12} {:>12} {:>8}", "target", "executions", "per second", "MiB");
    for (target, (executions, seconds, peak)) in &tally.done {
        println!("{target:16} {executions:>12} {:>12.0} {peak:>8}", *executions as f64 / seconds.max(1e-9));
    }
    summary(&tally, wall, options)
}

fn summary(tally: &Tally, wall: Duration, options: &Options) -> anyhow::Result<()> {
    let all = tally.executions();
    println!("{all} executions in {:.0} s with {} at once", wall.as_secs_f64(), options.jobs);
    anyhow::ensure!(tally.findings.is_empty(), "found: {}", tally.findings.join("; "));
    if let Some(wanted) = options.executions.filter(|wanted| all < *wanted) {
        anyhow::bail!("{all} executions of {wanted}: the time was over");
    }
    Ok(())
}

/// A target's program with the limits of every run.
fn fuzzer(root: &Path, programs: &Path, target: &str) -> Command {
    let mut command = Command::new(programs.join(target));
    command.current_dir(root);
    command.args([format!("-rss_limit_mb={MEMORY_MIB}"), format!("-timeout={PATIENCE_S}")]);
    command.arg(format!("-max_len={LONGEST_INPUT}"));
    command
}

/// Adds to the seeds the smallest inputs that reach what the seeds alone do not, within a bound.
fn keep(root: &Path, programs: &Path, target: &str) -> anyhow::Result<()> {
    let (corpus, seeds) = (root.join("fuzz/corpus").join(target), root.join("fuzz/seeds").join(target));
    let merged = root.join("fuzz/target/merged").join(target);
    let _ = std::fs::remove_dir_all(&merged);
    std::fs::create_dir_all(&merged)?;
    let mut room = SEED_BYTES;
    for entry in std::fs::read_dir(&seeds)? {
        let path = entry?.path();
        let size = std::fs::copy(&path, merged.join(path.file_name().unwrap_or_default()))?;
        room = room.saturating_sub(size);
    }
    succeed(fuzzer(root, programs, target).args(["-merge=1", "-verbosity=0"]).arg(&merged).arg(&corpus))?;
    let mut found: Vec<(u64, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(&merged)? {
        let entry = entry?;
        found.push((entry.metadata()?.len(), entry.path()));
    }
    found.sort();
    for (size, path) in found {
        let place = seeds.join(path.file_name().unwrap_or_default());
        if size <= room && !place.exists() {
            std::fs::copy(&path, &place)?;
            room -= size;
        }
    }
    Ok(())
}
