//! `cargo xtask test`: everything that must hold before a change is merged.

use crate::run::{cargo, program, step, succeed, works};
use crate::{bundle, licences, python, readme, spelling};
use std::path::Path;

/// Runs all steps, or those whose name contains `only`; the first failure ends it.
pub fn run(root: &Path, only: &str) -> anyhow::Result<()> {
    let step = |name: &str, work: &dyn Fn() -> anyhow::Result<()>| {
        if name.contains(only) { step(name, work) } else { Ok(()) }
    };
    step("set-up", &|| components(root))?;
    step("format", &|| succeed(&mut cargo(root, &["fmt", "--all", "--", "--check"])))?;
    step("lints", &|| {
        let args = ["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"];
        succeed(&mut cargo(root, &args))
    })?;
    step("core for the browser", &|| wasm(root))?;
    step("tests", &|| tests(root))?;
    step("example in README.md", &|| readme::run(root, false))?;
    step("documentation", &|| {
        let mut doc = cargo(root, &["doc", "--workspace", "--no-deps", "--locked", "--quiet"]);
        succeed(doc.env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    step("licences", &|| licences::check(root))?;
    step("spelling", &|| spelling::check(root))?;
    step("Python", &|| python::test(root))?;
    if root.join("web/package.json").is_file() {
        step("browser", &|| browser(root))?;
    }
    println!("{}", if only.is_empty() { "all steps passed" } else { "these steps passed" });
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
    let packages = ["--package", "preflop-core", "--package", "preflop-api"];
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
    // The tests drive Debian's Chromium; a fresh machine lacks it.
    if !Path::new("/usr/bin/chromium").exists() {
        succeed(&mut program(root, "apt-get", &["update", "-qq"]))?;
        succeed(&mut program(root, "apt-get", &["install", "-y", "-qq", "chromium"]))?;
    }
    // `npm ci` refuses lock files that name other platforms' optional binaries without their packages.
    succeed(&mut program(&web, "npm", &["install", "--silent", "--no-audit", "--no-fund"]))?;
    bundle::check(root)?;
    // The program of this tree, not one that an earlier build left behind.
    succeed(&mut cargo(root, &["build", "--quiet", "--locked", "-p", "preflop"]))?;
    let built = root.join("target/debug/preflop");
    succeed(program(&web, "npm", &["test"]).env("PREFLOP_BIN", built))
}
