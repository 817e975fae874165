//! `preflop models`: the zoo.

use crate::output::{self, Align, Output};
use clap::{Args, Subcommand};
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
    // The title goes first where the terminal is narrow, then the family.
    let wide = output.width >= 100;
    let medium = output.width >= 70;
    let mut header = vec![("name", Align::Keep)];
    if medium {
        header.push(("family", Align::Keep));
    }
    header.extend([("parameters", Align::Right), ("batch", Align::Right), ("seq", Align::Right)]);
    if wide {
        header.push(("what", Align::Left));
    }
    let mut table = output.table(&header);
    for m in models.iter().map(|m| &m.info) {
        let mut row = vec![m.name.to_string()];
        if medium {
            row.push(m.family.to_string());
        }
        row.push(output::grouped(m.parameters));
        row.push(m.default_batch.to_string());
        row.push(m.default_seq.map_or_else(String::new, |s| s.to_string()));
        if wide {
            row.push(m.title.to_string());
        }
        table.add_row(row);
    }
    let mut out = output::stdout();
    output::write_table(&mut out, &table)?;
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
        writeln!(out, "  {what:<11} {text}")?;
    }
    writeln!(out, "\nTry `preflop predict {} --gpu h200`.", m.name)?;
    Ok(out.flush()?)
}
