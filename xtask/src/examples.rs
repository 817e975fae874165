//! Examples in tutorials: what stands below a command is what the program prints today.
//!
//! In a block of kind `console` every line that starts with `$ ` is a command, run in the repository's root; the lines below it are
//! its output. A line `...` stands for lines that are left out.

use crate::run::{cargo, output_of, program, succeed};
use anyhow::Context as _;
use std::path::Path;

const START: &str = "```console";
const END: &str = "```";
const CUT: &str = "...";

/// Runs every command of the tutorials; rewrites their outputs if asked to.
pub fn run(root: &Path, rewrite: bool) -> anyhow::Result<()> {
    succeed(&mut cargo(root, &["build", "--quiet", "--locked", "-p", "preflop"]))?;
    for entry in std::fs::read_dir(root.join("docs")).context("cannot read docs")? {
        let path = entry?.path();
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        if !name.starts_with("tutorial") || path.extension().is_none_or(|e| e != "md") {
            continue;
        }
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {name}"))?;
        let (now, commands) = renewed(&text, |command| printed(root, command))?;
        anyhow::ensure!(commands > 0, "docs/{name} has no command to check");
        if now != text && rewrite {
            std::fs::write(&path, now).with_context(|| format!("cannot write {name}"))?;
            println!("    docs/{name} rewritten");
        } else if now != text {
            let differs = text.lines().zip(now.lines()).find(|(old, new)| old != new);
            let (old, new) = differs.unwrap_or(("(its length)", ""));
            anyhow::bail!(
                "docs/{name} is out of date; `cargo xtask readme` rewrites it\n  it says: {old}\n  now:     {new}"
            );
        } else {
            println!("    docs/{name}: {commands} commands say what is written");
        }
    }
    Ok(())
}

/// What a command prints, at the width of the documents.
fn printed(root: &Path, command: &str) -> anyhow::Result<String> {
    let script = command.replacen("preflop ", "target/debug/preflop ", 1);
    output_of(
        program(root, "bash", &["-euo", "pipefail", "-c", &script]).env("COLUMNS", "90").env("NO_COLOR", "1"),
    )
}

/// The document with the output of every command as it is now, and how many commands it has.
fn renewed(text: &str, say: impl Fn(&str) -> anyhow::Result<String>) -> anyhow::Result<(String, usize)> {
    let mut out = String::new();
    let mut commands = 0;
    let mut lines = text.lines().peekable();
    let mut inside = false;
    while let Some(line) = lines.next() {
        out.push_str(line);
        out.push('\n');
        if inside && line == END {
            inside = false;
        } else if line == START {
            inside = true;
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| inside) {
            commands += 1;
            let mut old = Vec::new();
            while let Some(next) = lines.next_if(|l| *l != END && !l.starts_with("$ ")) {
                old.push(next);
            }
            for line in cut_alike(&old, &say(command)?) {
                out.push_str(&line);
                out.push('\n');
            }
        }
    }
    Ok((out, commands))
}

/// The new output, cut where the old one was.
fn cut_alike(old: &[&str], new: &str) -> Vec<String> {
    let new: Vec<&str> = new.lines().collect();
    let own = |lines: &[&str]| lines.iter().map(|l| (*l).to_string()).collect::<Vec<_>>();
    let Some(head) = old.iter().position(|l| *l == CUT) else { return own(&new) };
    let tail = old.len() - head - 1;
    if head + tail >= new.len() {
        return own(&new);
    }
    [own(&new[..head]), vec![CUT.to_string()], own(&new[new.len() - tail..])].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_renewed_and_stay_cut() {
        let text = "a\n```console\n$ x\n1\n...\n3\n$ y\nold\n```\n$ not a command\n";
        let say = |c: &str| Ok(if c == "x" { "1\n2\n2\n4\n".to_string() } else { "new\n".to_string() });
        let (now, commands) = renewed(text, say).unwrap();
        assert_eq!(now, "a\n```console\n$ x\n1\n...\n4\n$ y\nnew\n```\n$ not a command\n");
        assert_eq!(commands, 2);
    }
}
