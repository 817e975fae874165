//! `cargo xtask test`: everything that must hold before a change is merged.

use crate::needs::{self, Needs};
use crate::run::{cargo, program, step, succeed, works};
use crate::{bundle, dist, examples, fuzz, licences, links, page, papers, python, readme, site, spelling};
use anyhow::Context as _;
use std::path::Path;

/// Runs all steps, or those whose name contains `only`; the first failure ends it. Steps for which something is missing on
/// this machine are named at the start and at the end.
pub fn run(root: &Path, only: &str) -> anyhow::Result<()> {
    let needs = Needs::find(root);
    let step = |name: &str, work: &dyn Fn() -> anyhow::Result<()>| {
        if !name.contains(only) {
            return Ok(());
        }
        if !needs.allow(name) {
            println!("==> {name}: NOT RUN, see the start");
            return Ok(());
        }
        step(name, work)
    };
    needs.tell(root);
    step("set-up", &|| components(root))?;
    step("format", &|| succeed(&mut cargo(root, &["fmt", "--all", "--", "--check"])))?;
    step("lints", &|| {
        let args = ["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"];
        succeed(&mut cargo(root, &args))
    })?;
    step("fuzz targets", &|| fuzz::lint(root))?;
    step("core for the browser", &|| wasm(root))?;
    step("tests", &|| tests(root))?;
    step("example in README.md", &|| readme::run(root, false))?;
    step("examples in tutorials", &|| examples::run(root, false))?;
    step("figures of the papers", &|| papers::run(root, false))?;
    step("blocks in README.md", &|| readme::blocks(root))?;
    step("documentation", &|| {
        let mut doc = cargo(root, &["doc", "--workspace", "--no-deps", "--locked", "--quiet"]);
        succeed(doc.env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    step("links", &|| links::check(root))?;
    step("chapters of the site", &|| site::source(root).map(drop))?;
    step("packages are whole", &|| dist::whole(root))?;
    step("licences and sources", &|| licences::check(root))?;
    step("dependencies by cargo-deny", &|| {
        needs::install_deny(root)?;
        succeed(&mut needs::deny(root, &["--locked", "check", "bans", "licenses", "sources"]))
    })?;
    step("advisories", &|| advisories(root))?;
    step("spelling", &|| spelling::check(root))?;
    step("Python", &|| python::test(root))?;
    if root.join("web/package.json").is_file() {
        step("browser", &|| browser(root))?;
    }
    let left_out: Vec<&str> = needs.left_out().into_iter().filter(|name| name.contains(only)).collect();
    let passed =
        if only.is_empty() && left_out.is_empty() { "all steps passed" } else { "these steps passed" };
    let but = if left_out.is_empty() { String::new() } else { format!("; NOT RUN: {}", left_out.join(", ")) };
    println!("{passed}{but}");
    // A gate must not pass what it did not look at. Advisories need a database that not every machine can reach, and are named above
    // where they were not looked at.
    let ours = ["advisories", "completion in zsh", "completion in fish"];
    let unseen: Vec<&&str> = left_out.iter().filter(|name| !ours.contains(name)).collect();
    anyhow::ensure!(std::env::var_os("CI").is_none() || unseen.is_empty(), "steps were not run: {unseen:?}");
    Ok(())
}

/// A minimal Rust lacks the formatter and the linter.
fn components(root: &Path) -> anyhow::Result<()> {
    for (subcommand, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        if !works(&mut cargo(root, &[subcommand, "--version"])) {
            succeed(&mut program(root, "rustup", &["component", "add", component]))?;
        }
    }
    Ok(())
}

/// The core and its questions must build where there is no operating system at all.
fn wasm(root: &Path) -> anyhow::Result<()> {
    const TARGET: &str = "wasm32-unknown-unknown";
    // Without it the check would say nothing, so a machine that cannot get it fails.
    succeed(&mut program(root, "rustup", &["target", "add", TARGET]))?;
    let packages = ["--package", "preflop-core", "--package", "preflop-cluster", "--package", "preflop-api"];
    let args = [&["check", "--target", TARGET, "--locked", "--quiet"], &packages[..]].concat();
    succeed(&mut cargo(root, &args))
}

fn tests(root: &Path) -> anyhow::Result<()> {
    if works(&mut cargo(root, &["nextest", "--version"])) {
        succeed(&mut cargo(root, &["nextest", "run", "--workspace", "--locked", "--no-fail-fast"]))?;
        // nextest leaves out the examples in the documentation.
        return succeed(&mut cargo(root, &["test", "--workspace", "--doc", "--locked", "--quiet"]));
    }
    succeed(&mut cargo(root, &["test", "--workspace", "--locked", "--quiet"]))
}

/// Installs what the lock file names and runs the page's tests.
fn browser(root: &Path) -> anyhow::Result<()> {
    let web = root.join("web");
    if needs::chromium().is_none() {
        succeed(&mut program(root, "apt-get", &["update", "-qq"]))?;
        succeed(&mut program(root, "apt-get", &["install", "-y", "-qq", "chromium"]))?;
    }
    // `npm ci` refuses lock files that name other platforms' optional binaries without their packages; the lock file stays as it is.
    succeed(&mut program(&web, "npm", &["install", "--no-save", "--silent", "--no-audit", "--no-fund"]))?;
    bundle::check(root)?;
    // The program of this tree, not one that an earlier build left behind.
    let core = page::core(root)?;
    succeed(cargo(root, &["build", "--quiet", "--locked", "-p", "preflop"]).env(page::CORE, core))?;
    let built = root.join("target/debug/preflop");
    let chromium = needs::chromium().context("there is no Chromium")?;
    succeed(program(&web, "npm", &["test"]).env("PREFLOP_BIN", built).env("CHROMIUM", chromium))
}

/// What is known to be wrong with dependencies, by the database that was fetched at the start.
fn advisories(root: &Path) -> anyhow::Result<()> {
    succeed(&mut needs::deny(root, &["--offline", "check", "advisories"]))
}
