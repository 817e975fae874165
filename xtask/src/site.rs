//! `cargo xtask site`: the documentation as a site, with a reference that the program itself writes.

use crate::links;
use crate::run::{cargo, output_of, program, succeed, works};
use anyhow::Context as _;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The version that is installed where there is none.
const MDBOOK: &str = "0.5.1";

/// Checks the links, writes the reference and builds the site into target/site.
pub fn run(root: &Path) -> anyhow::Result<()> {
    links::check(root)?;
    let source = root.join("target/site-source");
    let _ = std::fs::remove_dir_all(&source);
    std::fs::create_dir_all(source.join("src/reference")).context("cannot make target/site-source")?;
    std::fs::copy(root.join("docs/book.toml"), source.join("book.toml")).context("no docs/book.toml")?;
    for entry in std::fs::read_dir(root.join("docs"))? {
        let path = entry?.path();
        if let Some(name) = path.file_name().filter(|_| path.extension().is_some_and(|e| e == "md")) {
            // Inside the site the documents of the root stand beside the others.
            let text = std::fs::read_to_string(&path)?.replace("](../", "](");
            std::fs::write(source.join("src").join(name), text)?;
        }
    }
    for name in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"] {
        let text = std::fs::read_to_string(root.join(name))?.replace("](docs/", "](");
        std::fs::write(source.join("src").join(name), text)?;
    }
    reference(root, &source.join("src/reference"))?;
    let mdbook = mdbook(root)?;
    let (from, to) = (source.to_string_lossy().into_owned(), root.join("target/site"));
    succeed(&mut program(root, mdbook, &["build", &from, "--dest-dir", &to.to_string_lossy()]))?;
    let start = to.join("index.html");
    anyhow::ensure!(start.is_file(), "the site has no index.html");
    println!("    the site is in {}", to.display());
    Ok(())
}

/// An installed mdBook, or one for this working tree.
fn mdbook(root: &Path) -> anyhow::Result<PathBuf> {
    if works(&mut program(root, "mdbook", &["--version"])) {
        return Ok("mdbook".into());
    }
    let tools = root.join("target/tools");
    let own = tools.join("bin/mdbook");
    if !own.is_file() {
        println!("    installing mdBook into target/tools, some minutes");
        let place = tools.to_string_lossy();
        succeed(&mut cargo(
            root,
            &["install", "--quiet", "--locked", "--root", &place, "mdbook", "--version", MDBOOK],
        ))?;
    }
    Ok(own)
}

/// Every command with its options, every GPU and model, and the questions of the API, as the program says them.
fn reference(root: &Path, folder: &Path) -> anyhow::Result<()> {
    succeed(&mut cargo(root, &["build", "--quiet", "--locked", "-p", "preflop"]))?;
    let preflop = root.join("target/debug/preflop");
    let say =
        |args: &[&str]| output_of(program(root, &preflop, args).env("COLUMNS", "100").env("NO_COLOR", "1"));
    let help = say(&["--help"])?;
    let mut page = format!("# Commands\n\n```text\n{help}```\n");
    for name in commands(&help) {
        writeln!(page, "\n## preflop {name}\n\n```text\n{}```", say(&[name, "--help"])?)?;
    }
    std::fs::write(folder.join("commands.md"), page)?;
    let (gpus, models) = (say(&["gpus"])?, say(&["models"])?);
    std::fs::write(folder.join("gpus.md"), format!("# GPUs\n\n```text\n{gpus}```\n"))?;
    std::fs::write(folder.join("models.md"), format!("# Models\n\n```text\n{models}```\n"))?;
    Ok(())
}

/// The names in the list of commands of the help.
fn commands(help: &str) -> Vec<&str> {
    let list = help.lines().skip_while(|l| !l.starts_with("Commands:")).skip(1);
    let names = list.take_while(|l| l.starts_with("  ")).filter(|l| !l.starts_with("   "));
    names.filter_map(|l| l.split_whitespace().next()).filter(|n| *n != "help").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_off_the_help() {
        let help = "Know\n\nUsage: x\n\nCommands:\n  predict  Predict one\n           more\n  gpus     List\n  help     Print\n\nOptions:\n";
        assert_eq!(commands(help), ["predict", "gpus"]);
    }
}
