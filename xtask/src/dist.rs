//! `cargo xtask dist`: what a release consists of, built here and tried as a user would.

use crate::page;
use crate::run::{cargo, output_of, program, step, succeed, works};
use crate::site;
use anyhow::Context as _;
use std::path::{Path, PathBuf};

/// The file name of the program.
const PROGRAM: &str = if cfg!(windows) { "preflop.exe" } else { "preflop" };

/// Builds and tries all parts, or those whose name contains `only`. What cannot be built here is named at the end.
pub fn run(root: &Path, only: &str) -> anyhow::Result<()> {
    let dist = root.join("target/dist");
    std::fs::create_dir_all(&dist).context("cannot make target/dist")?;
    let mut left_out = Vec::new();
    let wanted = |name: &str| name.contains(only);
    if wanted("packages") {
        step("packages", || packages(root))?;
    }
    if wanted("program") {
        let target = target(root)?;
        if target.ends_with("-linux-gnu") {
            left_out.push("program that runs on every Linux (apt install musl-tools)");
        }
        step("program", || binary(root, &dist, &target))?;
    }
    if wanted("wheel") {
        step("wheel", || wheel(root, &dist))?;
    }
    if wanted("container") {
        match builder(root) {
            Some(builder) => step("container", || container(root, builder))?,
            None => left_out.push("container (neither docker nor podman can build here)"),
        }
    }
    if wanted("site") {
        step("site", || site::run(root))?;
    }
    println!("what was built is in {}", dist.display());
    if !left_out.is_empty() {
        println!("NOT BUILT: {}", left_out.join(", "));
    }
    Ok(())
}

/// Every crate that can be published is packed, unpacked and built from its package alone.
fn packages(root: &Path) -> anyhow::Result<()> {
    succeed(&mut cargo(
        root,
        &["publish", "--workspace", "--dry-run", "--locked", "--allow-dirty", "--quiet"],
    ))
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

/// What the program is built for: on Linux no library of the system, where the compiler for that is at hand.
fn target(root: &Path) -> anyhow::Result<String> {
    let host = host(root)?;
    if host.ends_with("-linux-gnu") && works(&mut program(root, "musl-gcc", &["--version"])) {
        return Ok(host.replace("-gnu", "-musl"));
    }
    Ok(host)
}

/// The program with the core for the browser inside, its man pages and completions, as one archive.
fn binary(root: &Path, dist: &Path, target: &str) -> anyhow::Result<()> {
    let core = page::core(root)?;
    succeed(&mut program(root, "rustup", &["target", "add", target]))?;
    let build = ["build", "--release", "--quiet", "--locked", "-p", "preflop", "--target", target];
    succeed(cargo(root, &build).env(page::CORE, core))?;
    let built = root.join("target").join(target).join("release").join(PROGRAM);
    let folder = dist.join("preflop");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(folder.join("completions"))?;
    let preflop = folder.join(PROGRAM);
    std::fs::copy(&built, &preflop).context("no program was built")?;
    if target.ends_with("-musl") {
        // Of a program that needs nothing `ldd` says so, in one way or the other.
        let needs = program(root, "ldd", &[&preflop.to_string_lossy()]).output().context("cannot run ldd")?;
        let needs = String::from_utf8_lossy(&needs.stdout).into_owned();
        anyhow::ensure!(!needs.contains("=>"), "the program needs libraries of the system:\n{needs}");
    }
    for name in ["LICENSE", "README.md", "CHANGELOG.md"] {
        std::fs::copy(root.join(name), folder.join(name))?;
    }
    // Tried where nothing of the repository is: in the folder itself, with an empty environment.
    let say = |args: &[&str]| output_of(program(&folder, &preflop, args).env_clear().env("NO_COLOR", "1"));
    succeed(program(&folder, &preflop, &["man", "-o", "man"]).env_clear())?;
    let pages = std::fs::read_dir(folder.join("man"))?.count();
    anyhow::ensure!(pages > 20, "only {pages} man pages");
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let script = say(&["completions", shell])?;
        anyhow::ensure!(script.contains("preflop"), "the completions for {shell} are empty");
        std::fs::write(folder.join("completions").join(format!("preflop.{shell}")), script)?;
    }
    let answer: serde_json::Value =
        serde_json::from_str(&say(&["predict", "resnet50", "--gpu", "h200", "--json"])?)?;
    anyhow::ensure!(answer["iteration_ms"].as_f64().is_some_and(|ms| ms > 1.0), "no prediction: {answer}");
    say(&["page", "-o", "preflop.html"])?;
    let bytes = std::fs::metadata(folder.join("preflop.html"))?.len();
    anyhow::ensure!(bytes <= page::MOST_BYTES, "the page has {bytes} bytes");
    println!("    the page has {} kB", bytes / 1000);
    let archive = format!("preflop-{}-{target}.tar.gz", version(root)?);
    succeed(&mut program(dist, "tar", &["-czf", &archive, "preflop"]))
}

/// The wheel with the core for the browser inside, installed into a fresh environment and asked.
fn wheel(root: &Path, dist: &Path) -> anyhow::Result<()> {
    let tools = root.join("target/venv-dist");
    if !works(&mut program(root, tools.join("bin/maturin"), &["--version"])) {
        succeed(&mut program(root, "python3", &["-m", "venv", "--clear", "target/venv-dist"]))?;
        let install = ["install", "--quiet", "--disable-pip-version-check", "maturin>=1.16,<2"];
        succeed(&mut program(root, tools.join("bin/pip"), &install))?;
    }
    let wheels = dist.join("wheels");
    let _ = std::fs::remove_dir_all(&wheels);
    let out = wheels.to_string_lossy().into_owned();
    let core = page::core(root)?;
    // Maturin reads `profile`, `features` and `locked` from pyproject.toml.
    let build = ["build", "--quiet", "--out", &out];
    succeed(program(root, tools.join("bin/maturin"), &build).env(page::CORE, core))?;
    let built: Vec<PathBuf> = std::fs::read_dir(&wheels)?.filter_map(|e| Some(e.ok()?.path())).collect();
    let [wheel] = built.as_slice() else { anyhow::bail!("{} wheels were built", built.len()) };
    let fresh = dist.join("venv-fresh");
    let fresh_name = fresh.to_string_lossy().into_owned();
    succeed(&mut program(dist, "python3", &["-m", "venv", "--clear", &fresh_name]))?;
    let install =
        ["install", "--quiet", "--disable-pip-version-check", "--no-index", &wheel.to_string_lossy()];
    succeed(&mut program(dist, fresh.join("bin/pip"), &install))?;
    let asked = output_of(&mut program(
        dist,
        fresh.join("bin/preflop"),
        &["predict", "resnet50", "--gpu", "h200", "--json"],
    ))?;
    let answer: serde_json::Value = serde_json::from_str(&asked)?;
    anyhow::ensure!(answer["iteration_ms"].as_f64().is_some_and(|ms| ms > 1.0), "no prediction: {answer}");
    output_of(&mut program(&fresh, fresh.join("bin/preflop"), &["page", "-o", "preflop.html"]))?;
    std::fs::remove_dir_all(&fresh).context("cannot remove the fresh environment")
}

/// A program that can build images here.
fn builder(root: &Path) -> Option<&'static str> {
    ["docker", "podman"]
        .into_iter()
        .find(|name| works(&mut program(root, name, &["info", "--format", "{{.ID}}{{.Host}}"])))
}

/// The image, asked once.
fn container(root: &Path, builder: &str) -> anyhow::Result<()> {
    let image = format!("preflop:{}", version(root)?);
    succeed(&mut program(root, builder, &["build", "--file", "Containerfile", "--tag", &image, "."]))?;
    let said = output_of(&mut program(
        root,
        builder,
        &["run", "--rm", &image, "predict", "resnet50", "--gpu", "h200", "--json"],
    ))?;
    anyhow::ensure!(said.contains("iteration_ms"), "the image gives no prediction");
    Ok(())
}

fn version(root: &Path) -> anyhow::Result<String> {
    let manifest: toml::Value = toml::from_str(&std::fs::read_to_string(root.join("Cargo.toml"))?)?;
    let version = manifest["workspace"]["package"]["version"].as_str();
    Ok(version.context("Cargo.toml has no version")?.to_string())
}

/// The platform that is built for, as Rust names it.
fn host(root: &Path) -> anyhow::Result<String> {
    let said = output_of(&mut program(root, "rustc", &["-vV"]))?;
    let host = said.lines().find_map(|l| l.strip_prefix("host: "));
    Ok(host.context("rustc does not say its host")?.to_string())
}
