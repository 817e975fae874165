//! The command line: translates files and arguments into calls of the core, and its answers into tables or JSON.
//!
//! [`run`] is the whole program; [`call`] is the same program as a function that returns what it would print.

mod clean;
mod cluster_args;
mod commands;
mod complete;
mod destination;
mod error;
mod grid;
mod input;
mod launches;
mod model_file;
mod output;
mod price_args;
mod report;
mod room;
mod rows;
mod run_args;
mod shape;
mod sink;
pub mod tables;

use clap::{CommandFactory, Parser, Subcommand};
use output::{ColorChoice, Output};
use std::ffi::OsString;
use std::io::Write as _;

pub use error::Failure;

/// Know before you FLOP: how long a deep-learning job takes on a GPU, why, and how much memory it needs.
#[derive(Debug, Parser)]
#[command(name = "preflop", version, max_term_width = 100, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Print JSON for scripts instead of a table
    #[arg(long, global = true)]
    json: bool,

    /// Colour the output; `NO_COLOR` turns it off too
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: ColorChoice,
}

#[derive(Debug, Subcommand)]
enum Command {
    Predict(commands::predict::PredictArgs),
    Advise(commands::advise::AdviseArgs),
    Generate(commands::generate::GenerateArgs),
    Ops(commands::ops::OpsArgs),
    Gpus(commands::gpus::GpusArgs),
    Models(commands::models::ModelsArgs),
    Delta(commands::delta::DeltaArgs),
    Explore(commands::explore::ExploreArgs),
    Sensitivity(commands::sensitivity::SensitivityArgs),
    Validate(commands::validate::ValidateArgs),
    Transfer(commands::transfer::TransferArgs),
    Explain(commands::explain::ExplainArgs),
    Diff(commands::diff::DiffArgs),
    Redact(commands::redact::RedactArgs),
    Compare(commands::compare::CompareArgs),
    Cluster(commands::cluster::ClusterArgs),
    Collective(commands::collective::CollectiveArgs),
    Plan(commands::plan::PlanArgs),
    Scale(commands::scale::ScaleArgs),
    Prices(commands::prices::PricesArgs),
    Study(commands::study::StudyArgs),
    Sweep(commands::sweep::SweepArgs),
    Roofline(commands::roofline::RooflineArgs),
    Report(commands::report::ReportArgs),
    Serve(commands::serve::ServeArgs),
    Page(commands::page::PageArgs),
    Calibrate(commands::calibrate::CalibrateArgs),
    Measure(commands::measure::MeasureArgs),
    Fit(commands::fit::FitArgs),
    Host(commands::host::HostArgs),
    Completions(commands::completions::CompletionsArgs),
    Man(commands::man::ManArgs),
}

fn execute(cli: Cli) -> anyhow::Result<()> {
    let output = Output::new(cli.json, cli.color);
    match cli.command {
        Command::Predict(args) => commands::predict::run(&args, &output),
        Command::Advise(args) => commands::advise::run(&args, &output),
        Command::Generate(args) => commands::generate::run(&args, &output),
        Command::Ops(args) => commands::ops::run(&args, &output),
        Command::Gpus(args) => commands::gpus::run(args, &output),
        Command::Models(args) => commands::models::run(args, &output),
        Command::Delta(args) => commands::delta::run(&args, &output),
        Command::Explore(args) => commands::explore::run(&args, &output),
        Command::Sensitivity(args) => commands::sensitivity::run(&args, &output),
        Command::Validate(args) => commands::validate::run(&args, &output),
        Command::Transfer(args) => commands::transfer::run(&args, &output),
        Command::Explain(args) => commands::explain::run(&args, &output),
        Command::Diff(args) => commands::diff::run(&args, &output),
        Command::Redact(args) => commands::redact::run(&args, &output),
        Command::Compare(args) => commands::compare::run(&args, &output),
        Command::Cluster(args) => commands::cluster::run(args, &output),
        Command::Collective(args) => commands::collective::run(&args, &output),
        Command::Plan(args) => commands::plan::run(&args, &output),
        Command::Scale(args) => commands::scale::run(&args, &output),
        Command::Prices(args) => commands::prices::run(&args, &output),
        Command::Study(args) => commands::study::run(&args, &output),
        Command::Sweep(args) => commands::sweep::run(&args, &output),
        Command::Roofline(args) => commands::roofline::run(&args, &output),
        Command::Report(args) => commands::report::run(&args, &output),
        Command::Serve(args) => commands::serve::run(&args, &output),
        Command::Page(args) => commands::page::run(&args, &output),
        Command::Calibrate(args) => commands::calibrate::run(&args, &output),
        Command::Measure(args) => commands::measure::run(&args, &output),
        Command::Fit(args) => commands::fit::run(&args, &output),
        Command::Host(args) => commands::host::run(&args, &output),
        Command::Man(args) => commands::man::run(&args, Cli::command()),
        Command::Completions(args) => commands::completions::run(&args, &mut Cli::command()),
    }
}

/// Runs the program with `args` (the first is its own name) and gives its exit status.
pub fn run(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> u8 {
    let args: Vec<OsString> = args.into_iter().map(Into::into).collect();
    if args.get(1).is_some_and(|word| word == complete::ASK) {
        let words: Vec<String> = args[2..].iter().map(|w| w.to_string_lossy().into_owned()).collect();
        let answer = complete::answer(Cli::command(), &words);
        return error::finish(output::stdout().write_all(answer.as_bytes()).map_err(Into::into));
    }
    match Cli::try_parse_from(args) {
        Ok(cli) => error::finish(execute(cli)),
        Err(error) => error::usage(&error),
    }
}

/// Runs a command as a function: what it would print on standard output, or why it failed.
///
/// `args` are those after the program's name, such as `["gpus", "--json"]`.
pub fn call(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<String, Failure> {
    let args = std::iter::once(OsString::from("preflop")).chain(args.into_iter().map(Into::into));
    let cli = Cli::try_parse_from(args).map_err(|error| Failure::usage(&error))?;
    let (result, bytes) = sink::collect(|| execute(cli));
    result.map_err(|error| Failure::of(&error))?;
    String::from_utf8(bytes).map_err(|_| Failure {
        message: "the answer is not text".to_owned(),
        hint: None,
        status: 2,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words of a line as a shell would see them; what is behind `#`, `>` or `|` is not for the program.
    fn words(line: &str) -> Vec<&str> {
        line.split_whitespace()
            .take_while(|word| !word.starts_with('#') && !["|", ">"].contains(word))
            .collect()
    }

    #[test]
    fn every_command_shows_examples_that_it_understands() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples = help.strip_prefix("EXAMPLES\n");
            let examples = examples.unwrap_or_else(|| panic!("`{}` has no examples", command.get_name()));
            for line in examples.lines() {
                let asked = Cli::try_parse_from(words(line));
                assert!(asked.is_ok(), "{line}: {}", asked.unwrap_err());
            }
            let own = examples.lines().any(|line| words(line).get(1) == Some(&command.get_name()));
            assert!(own, "the examples of `{}` are others'", command.get_name());
        }
    }

    #[test]
    fn gpus_are_named_by_one_option() {
        let one = |line: &str| Cli::try_parse_from(words(line)).is_ok();
        assert!(one("preflop explore vgg16 --gpu v100") && one("preflop explore vgg16 --base v100"));
        assert!(one("preflop transfer a.json --gpu l4") && one("preflop transfer a.json --to l4"));
        assert!(one("preflop compare vgg16 --gpu l4,t4") && one("preflop compare vgg16 --gpus l4,t4"));
        assert!(one("preflop report vgg16 --gpus l4,t4 -o r.html"));
    }
}
