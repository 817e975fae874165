//! The Python package as a wheel, installed into a fresh environment and asked.

use super::{QUESTION, check_answer, host};
use crate::page;
use crate::run::{output_of, program, succeed, works};
use anyhow::Context as _;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

const PYTHON: &str = if cfg!(windows) { "python" } else { "python3" };
/// The oldest system library that a wheel for Linux asks for: that of Debian 10, RHEL 8, Ubuntu 18.10.
const LINUX: &str = "manylinux_2_28";

/// A program of a virtual environment.
fn tool(environment: &Path, name: &str) -> PathBuf {
    if cfg!(windows) {
        environment.join("Scripts").join(format!("{name}.exe"))
    } else {
        environment.join("bin").join(name)
    }
}

/// Where programs are looked for once the environment of this one is activated: Maturin asks the first Python there for Zig.
fn activated(tool: &Path) -> anyhow::Result<OsString> {
    let folder = tool.parent().context("a program lies in a folder")?.to_path_buf();
    let before = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(folder).chain(std::env::split_paths(&before)))
        .context("a folder of PATH cannot be named")
}

/// The wheel with the core for the browser inside.
pub fn build(root: &Path, dist: &Path) -> anyhow::Result<()> {
    let tools = root.join("target/venv-dist");
    let maturin = tool(&tools, "maturin");
    if !works(&mut program(root, &maturin, &["--version"])) {
        succeed(&mut program(root, PYTHON, &["-m", "venv", "--clear", "target/venv-dist"]))?;
        let install = ["install", "--quiet", "--disable-pip-version-check", "maturin[zig]>=1.16,<2"];
        succeed(&mut program(root, tool(&tools, "pip"), &install))?;
    }
    let wheels = dist.join("wheels");
    let _ = std::fs::remove_dir_all(&wheels);
    let out = wheels.to_string_lossy().into_owned();
    let core = page::core(root)?;
    // Maturin reads `profile`, `features` and `locked` from pyproject.toml. Zig links against an older system library than this machine's.
    let mut build = vec!["build", "--quiet", "--out", &out];
    if host(root)?.ends_with("-linux-gnu") {
        build.extend(["--zig", "--compatibility", LINUX]);
    }
    succeed(program(root, &maturin, &build).env(page::CORE, core).env("PATH", activated(&maturin)?))?;
    let built: Vec<PathBuf> = std::fs::read_dir(&wheels)?.filter_map(|e| Some(e.ok()?.path())).collect();
    let [wheel] = built.as_slice() else { anyhow::bail!("{} wheels were built", built.len()) };
    let fresh = dist.join("venv-fresh");
    succeed(&mut program(dist, PYTHON, &["-m", "venv", "--clear", &fresh.to_string_lossy()]))?;
    let install =
        ["install", "--quiet", "--disable-pip-version-check", "--no-index", &wheel.to_string_lossy()];
    succeed(&mut program(dist, tool(&fresh, "pip"), &install))?;
    let preflop = tool(&fresh, "preflop");
    check_answer(&output_of(&mut program(dist, &preflop, &QUESTION))?)?;
    output_of(&mut program(&fresh, &preflop, &["page", "-o", "preflop.html"]))?;
    let name = wheel.file_name().unwrap_or_default().to_string_lossy().into_owned();
    println!("    {name}: {} kB", std::fs::metadata(wheel)?.len() / 1000);
    std::fs::remove_dir_all(&fresh).context("cannot remove the fresh environment")
}
