//! `preflop scale`: how a model scales from one GPU to a hundred thousand, the best plan at every size.

use super::parallel::{attention, refuse_of_one_gpu, subject};
use crate::cluster_args::{self, stack};
use crate::destination;
use crate::error::InputError;
use crate::grid::Grid;
use crate::output::{self, Align, Output};
use crate::run_args::RunArgs;
use clap::Args;
use preflop_api::cluster::exposed;
use preflop_api::cluster::scale::Answer;
use preflop_cluster::collective::Collectives;
use preflop_cluster::model::Stack;
use preflop_cluster::plan::{Fixed, Objective, Planned, Space};
use preflop_cluster::rank::CoreTimes;
use preflop_cluster::scale::{Growth, Point, Question, curve, short, sizes};
use preflop_core::time::TimeModel;
use preflop_core::units::Seconds;
use preflop_plot::{Format, Line, LineChart};
use std::io::Write as _;

/// Scaling curve of a model: the best plan, efficiency, bubble and exposed communication at every size
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop scale llama-2-7b --node dgx-h100 --gpus 8..512 --global-batch 512
  preflop scale llama-2-7b --node dgx-a100 --weak --plot scaling.svg")]
pub struct ScaleArgs {
    /// Model name (see `preflop models`) or a file: Hugging Face config.json, captured graph
    model: String,

    /// Node that is repeated: a name (see `preflop cluster list`), 8xGPU, or the path of a node file
    #[arg(long, visible_alias = "cluster", value_name = "NODE")]
    node: String,

    /// Sizes, as `8..16384` or `1..100000`
    #[arg(long, value_name = "LOW..HIGH", default_value = "1..1024")]
    gpus: String,

    /// The batch grows with the GPUs (the default)
    #[arg(long, conflicts_with = "strong")]
    weak: bool,

    /// The batch stays
    #[arg(long)]
    strong: bool,

    /// Sequences of an iteration: of all GPUs with `--strong`, of one GPU else [default: 8 for a GPU; 4096 with --strong]
    #[arg(long, value_name = "N", value_parser = cluster_args::size)]
    global_batch: Option<u64>,

    /// A size that is fixed, as `tp=8`; may be given several times
    #[arg(long, value_name = "SIZE=N")]
    fixed: Vec<String>,

    /// Software: eager, compiled, megatron, te
    #[arg(long, visible_alias = "profile", value_name = "STACK", default_value = "compiled", value_parser = stack)]
    stack: Stack,

    /// Draw the efficiency: .svg or .png
    #[arg(long, value_name = "FILE")]
    plot: Option<String>,

    #[command(flatten)]
    run: RunArgs,
}

/// Most GPUs that a curve reaches.
const MAX_GPUS: u64 = 131_072;

fn range(text: &str) -> anyhow::Result<(u64, u64)> {
    let wrong = || {
        InputError::new(format!("`--gpus {text}` is no range of sizes"))
            .hint(format!("write it as `8..16384`; at most {MAX_GPUS}"))
    };
    let (low, high) = text.split_once("..").unwrap_or((text, text));
    let (low, high): (u64, u64) = low.trim().parse().ok().zip(high.trim().parse().ok()).ok_or_else(wrong)?;
    if low == 0 || low > high || high > MAX_GPUS {
        return Err(wrong().into());
    }
    Ok((low, high))
}

/// Runs the command.
pub fn run(args: &ScaleArgs, output: &Output) -> anyhow::Result<()> {
    let (low, high) = range(&args.gpus)?;
    let cluster = cluster_args::cluster(&args.node, None)?;
    if high > cluster.node.gpus && cluster.node.network.0 <= 0.0 {
        return Err(InputError::new(format!(
            "`{}` has no network, so it stops at {} GPUs",
            cluster.node.name, cluster.node.gpus
        ))
        .hint("name a node of `preflop cluster list`")
        .into());
    }
    refuse_of_one_gpu(&args.run)?;
    let subject = subject(&args.model, &args.run, &cluster.node.gpu)?;
    let model = subject.transformer.clone()?;
    let mut fixed = Fixed::default();
    for text in &args.fixed {
        fixed.set(text)?;
    }
    let growth = if args.strong { Growth::Strong } else { Growth::Weak };
    let default = if args.strong { 4096 } else { 8 };
    let time_model = TimeModel::embedded();
    let times = CoreTimes { model: &time_model, gpu: &cluster.node.gpu };
    let collectives = Collectives::embedded();
    let question = Question {
        model: &model,
        seq: subject.seq,
        dtypes: cluster_args::formats(args.run.precision, &cluster.node.gpu),
        node: &cluster.node,
        collectives: &collectives,
        space: Space {
            global_batch: args.global_batch.unwrap_or(default),
            fixed,
            stack: args.stack,
            attention: attention(&args.run),
            objective: Objective::Time,
        },
        growth,
        host: args.stack.host(),
    };
    let wanted = sizes(low, high, cluster.node.gpus);
    if wanted.is_empty() {
        return Err(InputError::new(format!(
            "no size from {low} to {high} fills nodes of {}",
            cluster.node.gpus
        ))
        .into());
    }
    let points = curve(&question, &wanted, &times);
    if let Some(path) = &args.plot {
        draw(path, &points, &model.name, &cluster.node.name)?;
    }
    if output.json {
        return output::print_json(&Answer::of(&question, &points));
    }
    print(&points, &model.name, &cluster.node.name, args.strong, subject.seq, output)
}

fn links(p: &Point) -> f64 {
    p.share(exposed)
}

fn draw(path: &str, points: &[Point], model: &str, node: &str) -> anyhow::Result<()> {
    let line = |name: &str, of: &dyn Fn(&Point) -> f64| Line {
        name: name.to_string(),
        points: points.iter().filter(|p| p.plan.is_some()).map(|p| ((p.gpus as f64).log2(), of(p))).collect(),
        second_axis: false,
    };
    let chart = LineChart {
        title: format!("{model} on {node}"),
        x_label: "log2 of GPUs".to_string(),
        y_label: "per cent".to_string(),
        second_label: String::new(),
        lines: vec![
            line("efficiency", &|p| 100.0 * p.efficiency),
            line("lower end", &|p| 100.0 * p.low),
            line("bubble", &|p| 100.0 * p.share(|b| b.pp_bubble)),
            line("exposed links", &|p| 100.0 * links(p)),
        ],
    };
    destination::write_bytes(path, chart.draw()?.render(Format::of_path(path)?)?)
}

fn print(
    points: &[Point],
    model: &str,
    node: &str,
    strong: bool,
    seq: u64,
    output: &Output,
) -> anyhow::Result<()> {
    let mut out = output::stdout();
    let how = if strong { "strong scaling: the batch stays" } else { "weak scaling: the batch grows" };
    let title = format!("{model} on {node}, {how}");
    writeln!(out, "{}\n", output.bold(&output::wrapped(&title, output.width, "  ")))?;
    // What is said of a size where a plan fits; of one where none does there is nothing to say.
    let planned = |say: &dyn Fn(&Point, &Planned) -> String| -> Vec<String> {
        points.iter().map(|p| p.plan.as_ref().map_or_else(String::new, |plan| say(p, plan))).collect()
    };
    let percent = |x: f64| format!("{:.0} %", 100.0 * x);
    let plan = |p: &Point| {
        p.plan.map_or_else(|| "no plan fits or divides".to_string(), |plan| short(&plan.strategy))
    };
    let rate = |p: &Point, plan: &Planned| {
        output::si((p.global_batch * seq) as f64 / plan.time, "").trim_end().to_string()
    };
    let interval = |p: &Point, _: &Planned| format!("{:.0}-{:.0} %", 100.0 * p.low, 100.0 * p.high);
    let mut grid = Grid::default();
    grid.add("GPUs", Align::Right, 0, points.iter().map(|p| p.gpus.to_string()));
    grid.add("batch", Align::Right, 4, points.iter().map(|p| p.global_batch.to_string()));
    grid.add("plan", Align::Keep, 1, points.iter().map(plan));
    grid.add("time", Align::Right, 0, planned(&|_, plan| output::time(Seconds(plan.time))));
    grid.add("tokens/s", Align::Right, 2, planned(&rate));
    grid.add("efficiency", Align::Right, 0, planned(&|p, _| percent(p.efficiency)));
    grid.add("interval", Align::Right, 3, planned(&interval));
    grid.add("bubble", Align::Right, 5, planned(&|p, _| percent(p.share(|b| b.pp_bubble))));
    grid.add("exposed", Align::Right, 5, planned(&|p, _| percent(links(p))));
    grid.write(&mut out, output)?;
    let line = "Efficiency: throughput of a GPU over that of the smallest size that fits. The interval holds links a quarter off and stragglers beyond 2,000 GPUs.";
    writeln!(out, "\n{}", output.dim(&output::wrapped(line, output.width, "")))?;
    Ok(out.flush()?)
}
