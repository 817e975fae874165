//! Running programs and timing steps.

use anyhow::Context as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Runs a step, with its name before and its time after it.
pub fn step(name: &str, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    println!("==> {name}");
    let start = Instant::now();
    work().with_context(|| format!("step `{name}` failed"))?;
    println!("    {name}: {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// A program with its arguments, to be run in a folder.
pub fn program(root: &Path, name: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.current_dir(root).args(args);
    command
}

/// The cargo that runs us.
pub fn cargo(root: &Path, args: &[&str]) -> Command {
    program(root, std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), args)
}

/// Runs a command to its end; anything but success is an error.
pub fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let shown = show(command);
    let status = command.status().with_context(|| format!("cannot start `{shown}`"))?;
    anyhow::ensure!(status.success(), "`{shown}` ended with {status}");
    Ok(())
}

/// What a command prints on standard output.
pub fn output_of(command: &mut Command) -> anyhow::Result<String> {
    let shown = show(command);
    let out = command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start `{shown}`"))?;
    anyhow::ensure!(out.status.success(), "`{shown}` ended with {}", out.status);
    String::from_utf8(out.stdout).with_context(|| format!("`{shown}` printed something that is not text"))
}

/// Does the command run and succeed? Its output is dropped.
pub fn works(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}
