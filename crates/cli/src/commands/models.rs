//! `preflop models`: the zoo.

use crate::grid::Grid;
use crate::output::{self, Align, Output};
use clap::{Args, Subcommand};
use preflop_core::model::zoo::ModelInfo;
use preflop_core::model::{OptimizerChoice, zoo};
use std::io::Write as _;

/// List the models, or show one
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop models
  preflop models show resnet50")]
pub struct ModelsArgs {
    #[command(subcommand)]
    command: Option<ModelsCommand>,
}

#[derive(Debug, Subcommand)]
enum ModelsCommand {
    /// List all models (the default)
    List,
    /// Show one model
    Show {
        /// Model name
        model: String,
    },
}

/// Lists or shows.
pub fn run(args: ModelsArgs, output: &Output) -> anyhow::Result<()> {
    match args.command {
        None | Some(ModelsCommand::List) => list(output),
        Some(ModelsCommand::Show { model }) => show(&model, output),
    }
}

fn list(output: &Output) -> anyhow::Result<()> {
    let models = preflop_api::catalogue::models();
    if output.json {
        return output::print_json(&models);
    }
    let of = |cell: &dyn Fn(&ModelInfo) -> String| models.iter().map(|m| cell(&m.info)).collect::<Vec<_>>();
    let mut grid = Grid::default();
    grid.add("name", Align::Keep, 0, of(&|m| m.name.to_string()));
    grid.add("family", Align::Keep, 1, of(&|m| m.family.to_string()));
    grid.add("parameters", Align::Right, 0, of(&|m| output::grouped(m.parameters)));
    grid.add("batch", Align::Right, 0, of(&|m| m.default_batch.to_string()));
    grid.add("seq", Align::Right, 0, of(&|m| m.default_seq.map_or_else(String::new, |s| s.to_string())));
    grid.add("what", Align::Keep, 2, of(&|m| m.title.to_string()));
    let mut out = output::stdout();
    grid.write(&mut out, output)?;
    let note = "batch, seq: samples and tokens of one iteration unless `--batch` or `--seq` says otherwise.";
    writeln!(out, "\n{}", output.dim(&output::wrapped(note, output.width, "")))?;
    Ok(out.flush()?)
}

fn show(name: &str, output: &Output) -> anyhow::Result<()> {
    let m = zoo::info(name)?;
    if output.json {
        return output::print_json(&m);
    }
    let mut out = output::stdout();
    writeln!(out, "{} ({})\n", output.bold(m.title), m.name)?;
    let seq = m.default_seq.map(|s| match m.max_seq {
        Some(max) => format!("{s} tokens unless `--seq` says otherwise, at most {max}"),
        None => format!("{s} tokens unless `--seq` says otherwise"),
    });
    for (what, text) in [
        ("family", m.family.to_string()),
        ("parameters", output::grouped(m.parameters)),
        ("sample", m.input.to_string()),
        ("batch", format!("{} unless `--batch` says otherwise", m.default_batch)),
        ("sequence", seq.unwrap_or_else(|| "none".to_string())),
        ("optimizer", OptimizerChoice::of(m.optimizer).to_string()),
    ] {
        writeln!(out, "{}", output::hanging(&format!("  {what:<11} "), &text, output.width))?;
    }
    writeln!(out, "\nTry `preflop predict {} --gpu h200`.", m.name)?;
    Ok(out.flush()?)
}
