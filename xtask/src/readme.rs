//! README.md: its example is what the tool prints today (`cargo xtask readme` rewrites it), its blocks run as they stand.

use crate::run::{cargo, output_of, program, succeed};
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

/// A block that a newcomer copies, by the name in the comment before it.
fn block(readme: &str, name: &str) -> anyhow::Result<String> {
    let start = format!("<!-- block: {name} -->\n```sh\n");
    let (_, rest) = readme.split_once(&start).with_context(|| format!("README.md has no block `{name}`"))?;
    let (block, _) = rest.split_once("\n```").with_context(|| format!("the block `{name}` does not end"))?;
    Ok(block.to_string())
}

/// Runs the blocks for newcomers as they stand, with one change: the program is the one that the tests have built.
pub fn blocks(root: &Path) -> anyhow::Result<()> {
    let readme = std::fs::read_to_string(root.join("README.md")).context("cannot read README.md")?;
    succeed(&mut cargo(root, &["build", "--quiet", "--locked", "-p", "preflop"]))?;
    for (name, says) in [("prediction", "per iteration"), ("report", "report written"), ("trace", "l4")] {
        let block = block(&readme, name)?;
        anyhow::ensure!(block.contains("cargo run --release -- "), "the block `{name}` builds nothing");
        let script = block.replace("cargo run --release -- ", "target/debug/preflop ");
        let said = output_of(&mut program(root, "bash", &["-euo", "pipefail", "-c", &script]))?;
        anyhow::ensure!(said.contains(says), "the block `{name}` does not say `{says}`:\n{said}");
        println!("    {name}: {} lines", said.lines().count());
    }
    std::fs::remove_file(root.join("report.html")).context("the block `report` wrote no report.html")?;
    let tasks = tasks(&readme)?;
    for task in &tasks {
        // Files that the reader has: a recording; and what is written goes where nothing is kept.
        let script =
            task.replace("trace.json.gz", "examples/step.json.gz").replace(" -o ", " -o target/readme-");
        let script = script.replacen("preflop ", "target/debug/preflop ", 1);
        output_of(&mut program(root, "bash", &["-euo", "pipefail", "-c", &script]))
            .with_context(|| format!("`{task}`, of the table of tasks"))?;
    }
    println!("    {} tasks of the table", tasks.len());
    Ok(())
}

/// The commands of the table "I want to ..", but for the server, which does not end.
fn tasks(readme: &str) -> anyhow::Result<Vec<String>> {
    let (_, rest) = readme.split_once("\n## I want to ...\n").context("README.md has no table of tasks")?;
    let rows = rest.lines().skip_while(|l| !l.starts_with("|---")).skip(1).take_while(|l| l.starts_with('|'));
    let commands = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    let tasks: Vec<String> = commands
        .filter(|c| c.starts_with("preflop ") && !c.starts_with("preflop serve"))
        .map(str::to_string)
        .collect();
    anyhow::ensure!(tasks.len() >= 9, "the table of tasks has {} commands", tasks.len());
    Ok(tasks)
}

/// Runs the block that records a step, with a Python that has the package installed.
pub fn python_block(root: &Path, python: &Path) -> anyhow::Result<()> {
    let readme = std::fs::read_to_string(root.join("README.md")).context("cannot read README.md")?;
    let block = block(&readme, "python")?;
    let (install, rest) = block.split_once('\n').context("the block `python` has one line")?;
    anyhow::ensure!(install.contains("pip install"), "the block `python` installs nothing");
    let script = rest.replace(".venv/bin/python", &python.to_string_lossy());
    let said = output_of(&mut program(root, "bash", &["-euo", "pipefail", "-c", &script]))?;
    anyhow::ensure!(said.contains("ms"), "the block `python` predicts nothing:\n{said}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_tasks_are_read_off_the_table() {
        let rows =
            (0..9).fold(String::new(), |rows, i| rows + &format!("| task {i} | `preflop gpus show {i}` |\n"));
        let readme = format!(
            "x\n## I want to ...\n\n| I want to | command |\n|---|---|\n{rows}| try | `preflop serve`; `cargo x` |\n\n| not | `preflop models` |\n"
        );
        let tasks = tasks(&readme).unwrap();
        assert_eq!(tasks.len(), 9);
        assert_eq!(tasks[8], "preflop gpus show 8");
    }
}
