//! The program with its manual pages and completions, as an archive.

use super::{QUESTION, check_answer, host, version};
use crate::page;
use crate::run::{cargo, output_of, program, succeed, works};
use anyhow::Context as _;
use std::path::Path;

/// The file name of the program.
const PROGRAM: &str = if cfg!(windows) { "preflop.exe" } else { "preflop" };

/// What the program is built for: on Linux no library of the system, where the compiler for that is at hand.
pub fn target(root: &Path) -> anyhow::Result<String> {
    let host = host(root)?;
    if host.ends_with("-linux-gnu") && works(&mut program(root, "musl-gcc", &["--version"])) {
        return Ok(host.replace("-gnu", "-musl"));
    }
    Ok(host)
}

/// The program with the core for the browser inside; it is tried alone, and writes its own manual pages, completions and page.
pub fn build(root: &Path, dist: &Path, target: &str) -> anyhow::Result<()> {
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
    check_answer(&say(&QUESTION)?)?;
    say(&["page", "-o", "preflop.html"])?;
    let bytes = std::fs::metadata(folder.join("preflop.html"))?.len();
    anyhow::ensure!(bytes <= page::MOST_BYTES, "the page has {bytes} bytes");
    let size = std::fs::metadata(&preflop)?.len();
    println!("    {target}: {} kB, {pages} man pages, a page of {} kB", size / 1000, bytes / 1000);
    let archive = format!("preflop-{}-{target}.tar.gz", version(root)?);
    succeed(&mut program(dist, "tar", &["-czf", &archive, "preflop"]))
}
