//! `cargo xtask dist`: what a release consists of, built here and tried as a user would. The release workflow runs the same steps.

mod image;
mod packages;
mod program;
mod wheel;

pub use packages::whole;

use crate::run::{output_of, step};
use crate::{page, site};
use anyhow::Context as _;
use std::path::Path;

/// The parts, in the order in which they are built.
const PARTS: [&str; 6] = ["packages", "core", "program", "container", "wheel", "site"];

/// Builds and tries all parts, or one of them. What cannot be built here is named at the end.
pub fn run(root: &Path, only: &str) -> anyhow::Result<()> {
    anyhow::ensure!(
        only.is_empty() || PARTS.contains(&only),
        "`{only}` is no part of a release; the parts are {}",
        PARTS.join(", ")
    );
    let dist = root.join("target/dist");
    std::fs::create_dir_all(&dist).context("cannot make target/dist")?;
    let mut left_out = Vec::new();
    let wanted = |name: &str| only.is_empty() || only == name;
    if wanted("packages") {
        step("packages", || packages::build(root))?;
    }
    if wanted("core") {
        step("core", || page::core(root).map(drop))?;
    }
    let builder = image::builder(root);
    // The image is made of the program.
    if wanted("program") || (only == "container" && builder.is_some()) {
        let target = program::target(root)?;
        if target.ends_with("-linux-gnu") {
            left_out.push("program that runs on every Linux (apt install musl-tools)");
        }
        step("program", || program::build(root, &dist, &target))?;
    }
    if wanted("container") {
        match builder.filter(|_| cfg!(target_os = "linux")) {
            Some(builder) => step("container", || image::build(root, &dist, &builder))?,
            None => left_out
                .push("container (on Linux, by docker or podman where they run, or apt install buildah)"),
        }
    }
    if wanted("wheel") {
        step("wheel", || wheel::build(root, &dist))?;
    }
    if wanted("site") {
        step("site", || site::run(root))?;
    }
    println!("what was built is in {}", dist.display());
    if !left_out.is_empty() {
        println!("NOT BUILT: {}", left_out.join(", "));
    }
    // Whoever asks for one part wants that part.
    anyhow::ensure!(only.is_empty() || left_out.is_empty(), "`{only}` cannot be built here");
    Ok(())
}

/// The question that every artefact is tried with.
const QUESTION: [&str; 5] = ["predict", "resnet50", "--gpu", "h200", "--json"];

/// Is that an answer to it?
fn check_answer(said: &str) -> anyhow::Result<()> {
    let answer: serde_json::Value = serde_json::from_str(said).context("the answer is no JSON")?;
    anyhow::ensure!(answer["iteration_ms"].as_f64().is_some_and(|ms| ms > 1.0), "no prediction: {answer}");
    Ok(())
}

fn version(root: &Path) -> anyhow::Result<String> {
    let manifest: toml::Value = toml::from_str(&std::fs::read_to_string(root.join("Cargo.toml"))?)?;
    let version = manifest["workspace"]["package"]["version"].as_str();
    Ok(version.context("Cargo.toml has no version")?.to_string())
}

/// The platform that is built for, as Rust names it.
fn host(root: &Path) -> anyhow::Result<String> {
    let said = output_of(&mut crate::run::program(root, "rustc", &["-vV"]))?;
    let host = said.lines().find_map(|l| l.strip_prefix("host: "));
    Ok(host.context("rustc does not say its host")?.to_string())
}
