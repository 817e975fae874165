//! `cargo xtask readme`: the example in README.md is what the tool prints today, and a test says so.

use crate::run::{cargo, output_of};
use anyhow::Context as _;
use std::path::Path;

/// The example stands between the line with its command and the end of the block.
const COMMAND: &str = "$ preflop predict resnet50 --gpu h200\n";
const END: &str = "```";

/// Compares the example with what is printed; rewrites it if asked to.
pub fn run(root: &Path, rewrite: bool) -> anyhow::Result<()> {
    let path = root.join("README.md");
    let readme = std::fs::read_to_string(&path).context("cannot read README.md")?;
    let args = ["run", "--quiet", "--locked", "-p", "preflop", "--", "predict", "resnet50", "--gpu", "h200"];
    let printed = output_of(cargo(root, &args).env("COLUMNS", "90").env("NO_COLOR", "1"))?;
    let (before, rest) = readme.split_once(COMMAND).context("README.md has no example to check")?;
    let end = rest.find(END).context("the example of README.md does not end")?;
    if rest[..end] == printed {
        return Ok(());
    }
    anyhow::ensure!(rewrite, "the example in README.md is out of date; `cargo xtask readme` rewrites it");
    std::fs::write(&path, format!("{before}{COMMAND}{printed}{}", &rest[end..]))
        .context("cannot write README.md")?;
    println!("README.md rewritten");
    Ok(())
}
