//! `preflop predict`: how long one iteration of a model takes on a GPU, and why.

use super::parallel::{self, Wanted};
use crate::cluster_args::ParallelArgs;
use crate::error::{InputError, Partly};
use crate::input;
use crate::launches;
use crate::output::{self, Output};
use crate::report::{Question, Report, WORTH, algorithms_name, layout_name};
use crate::room;
use crate::run_args::RunArgs;
use clap::Args;
use preflop_core::cost::quantity;
use preflop_core::model::{OptimizerChoice, Stage};
use preflop_core::report::advise;
use preflop_core::schedule::timeline::timeline;
use preflop_core::schedule::{Known, Schedule as _};
use preflop_language::Words;
use std::io::Write as _;

/// Predict one iteration of a model: time, throughput, memory, and where the time goes
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop predict resnet50 --gpu h200
  preflop predict gpt2 --gpu a100 --precision amp --batch 16 --seq 1024 --run compile
  preflop predict my.onnx --gpu l4 --mode infer --dim batch=8
  preflop predict config.json --gpu h100 --precision bf16     # a Hugging Face model
  preflop predict step.json --gpu ./my-gpu.toml --json        # a recorded step, a GPU of your own")]
pub struct PredictArgs {
    /// Model name (see `preflop models`), or a file: captured graph, .onnx, .pt2, Hugging Face config.json
    model: String,

    /// GPU name (see `preflop gpus`) or the path of a GPU file
    #[arg(long, value_name = "GPU", required_unless_present = "cluster")]
    gpu: Option<String>,

    #[command(flatten)]
    run: RunArgs,

    /// List every kernel that would run, in order: family, tile, grid, time, bound
    #[arg(long)]
    launches: bool,

    #[command(flatten)]
    parallel: ParallelArgs,

    /// End with status 1 where it does not fit into the GPU's memory
    #[arg(long)]
    fail_if_not_fit: bool,

    /// Tokens to read in all, such as 10B: says how long that takes
    #[arg(long, value_name = "N", value_parser = quantity::count, allow_hyphen_values = true)]
    tokens: Option<u64>,

    /// Your own correction for this GPU, from `preflop fit`
    #[arg(long, value_name = "FILE")]
    correction: Option<String>,

    /// The host that the job will run on: fast, usual, slow, a factor such as 1.5x, or a file from `preflop host`
    #[arg(long, value_name = "HOST", conflicts_with = "cluster")]
    host: Option<String>,
}

/// Model to graph, graph to operators, operators to time, time to a report.
pub fn run(args: &PredictArgs, output: &Output) -> anyhow::Result<()> {
    if let Some(cluster) = &args.parallel.cluster {
        if args.launches {
            let message = "`--launches` lists the kernels of one GPU";
            return Err(InputError::new(message)
                .hint("leave out `--cluster`, or write a timeline of the plan with `--trace`")
                .into());
        }
        let wanted =
            Wanted { correction: args.correction.as_deref(), fit: args.fail_if_not_fit, tokens: args.tokens };
        let gpu = args.gpu.as_deref();
        return parallel::run(&args.model, cluster, gpu, &args.run, &args.parallel, &wanted, output);
    }
    args.parallel.refuse_without_cluster()?;
    let gpu = input::gpu(args.gpu.as_deref().unwrap_or_default())?;
    let job = args.run.job(&args.model, None, None)?;
    job.check_on(&gpu)?;
    let model = input::time_model(args.correction.as_deref(), [&gpu])?;
    let model = input::on_host(model, args.host.as_deref())?;
    let mut known = Known::default();
    let prediction = model.predict_iteration_with(&job.iteration, &gpu, &mut known);
    let optimizer = job.graph.steps_with(&job.options);
    let question = Question {
        model: job.graph.name.clone(),
        gpu: gpu.name.clone(),
        batch: job.graph.samples,
        seq: job.graph.seq,
        precision: job.options.precision.name(),
        mode: if args.run.mode.generates() { args.run.mode.name() } else { job.options.mode.name() },
        context: match job.graph.stage {
            Stage::Decode { context, .. } => Some(context),
            _ => None,
        },
        run: job.run.name(),
        optimizer: optimizer.map(|o| o.rule.name()),
        optimizer_implementation: optimizer.and_then(OptimizerChoice::implementation_name),
        layout: layout_name(job.graph.channels_last),
        checkpoint: job.graph.checkpoint.to_string(),
        algorithms: algorithms_name(job.form.autotuned),
        host_factor: model.host_factor(),
        notes: job.notes.clone(),
    };
    let largest = room::largest_batch((&args.model, &args.run), &job, &gpu);
    let mut report = Report::new(&question, &gpu, (&job.iteration, &prediction), largest, output.json);
    let words = Words::of(&job.graph, &job.iteration, &prediction, &gpu);
    if let (Some(tokens), None) = (args.tokens, words) {
        let message =
            format!("`--tokens {tokens}` is for models that read tokens; `{}` does not", job.graph.name);
        return Err(InputError::new(message).into());
    }
    report.set_words(words, args.tokens);
    if !report.fits() {
        report.set_changes(room::changes((&args.model, &args.run), &job, &gpu, &model, largest));
    }
    if args.launches {
        let host = model.host_model(&gpu);
        let launches = timeline(&model, &job.iteration, &prediction, &gpu, &host);
        report.launches = Some(launches::rows(&job.iteration, &prediction, &launches));
    }
    if output.json {
        output::print_json(&report)?;
        return verdict(args, &report);
    }
    let asked = advise::Asked {
        graph: &job.graph,
        options: job.options,
        form: job.form,
        iteration: &job.iteration,
        known,
    };
    report.helps = advise::helps(&model, asked, &gpu, WORTH, |a, b| {
        rayon::join(a, b);
    });
    let mut out = output::stdout();
    report.write(&mut out, output)?;
    if let Some(rows) = &report.launches {
        writeln!(out)?;
        launches::write(&mut out, rows, output)?;
    }
    out.flush()?;
    verdict(args, &report)
}

/// The end of a run that must fit.
fn verdict(args: &PredictArgs, report: &Report<'_>) -> anyhow::Result<()> {
    if args.fail_if_not_fit && !report.fits() { Err(Partly(report.misfit()).into()) } else { Ok(()) }
}
