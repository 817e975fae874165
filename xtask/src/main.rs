//! The project's tasks: `cargo xtask test`, `cargo xtask bench` and so on; without a name it lists them.
//!
//! They need Rust, and Python for the Python package: what else is missing is installed under `target/` or, where it is
//! large, in the user's cache folder.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod bundle;
mod dist;
mod examples;
mod formulas;
mod frozen;
mod fuzz;
mod licences;
mod links;
mod needs;
mod page;
mod papers;
mod python;
mod readme;
mod reference;
mod run;
mod site;
mod spelling;
mod test;
mod validate;

use anyhow::Context as _;
use std::path::PathBuf;
use std::process::ExitCode;

const HELP: &str = "usage: cargo xtask TASK

  test [STEP]      format, lints, tests, docs, licences, spelling, Python and browser parts
  frozen [write]   answers of the whole program against a kept corpus (data/frozen), or the corpus anew
  ray              tables and sweeps in Python: data frames, and a Ray cluster of three nodes on this machine
  bench            speed of start-up, predictions and operator files
  papers [write]   every figure of docs/papers.toml as the program answers it, or docs/papers.md anew
  validate-shared  checks against the shared data folder (PREFLOP_SHARED, default ../shared)
  page [FILE]      the tool as one web page without a server (default preflop.html)
  site             the documentation as a site, in target/site (mdBook)
  dist [PART]      a release, each part built and tried: packages, core, program (with man pages, completions and page),
                   container, wheel, site
  readme           rewrites the examples in README.md and the tutorials with what the tool prints
  fuzz [SECONDS] [TARGET...] [--jobs N] [--executions N] [--wall SECONDS] [--programs FOLDER]
                   random input into every reader, so long each (default 60 seconds), or in turn until so many
                   executions were made or so much time has passed; with programs that were built elsewhere
  fuzz build       the programs of that alone
  fuzz nightly     an hour of it; inputs that reach something new are kept in fuzz/seeds, made small";

/// The root of the repository: the folder above this package, or where we are when this program was built elsewhere.
fn root() -> anyhow::Result<PathBuf> {
    let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    if !package.is_dir() {
        return std::env::current_dir().context("there is no current folder");
    }
    Ok(package.parent().context("xtask has no parent folder")?.to_path_buf())
}

fn task() -> anyhow::Result<()> {
    let root = root()?;
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["test"] => test::run(&root, ""),
        ["test", only] => test::run(&root, only),
        ["frozen"] => frozen::run(&root, false),
        ["frozen", "write"] => frozen::run(&root, true),
        ["papers"] => papers::run(&root, false),
        ["papers", "write"] => papers::run(&root, true),
        ["bench"] => bench::run(&root),
        ["ray"] => python::tables(&root),
        ["validate-shared"] => validate::run(&root),
        ["page"] => page::run(&root, "preflop.html"),
        ["page", file] => page::run(&root, file),
        ["site"] => site::run(&root),
        ["dist"] => dist::run(&root, ""),
        ["dist", only] => dist::run(&root, only),
        ["readme"] => readme::run(&root, true).and_then(|()| examples::run(&root, true)),
        ["fuzz", "nightly"] => fuzz::nightly(&root),
        ["fuzz", options @ ..] => fuzz::run(&root, &fuzz::Options::parse(options)?),
        _ => anyhow::bail!("{HELP}"),
    }
}

fn main() -> ExitCode {
    match task() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}
