//! `preflop generate`: how fast a language model answers, for how many at once, at what price.

use crate::error::InputError;
use crate::grid::Grid;
use crate::input::{self, Batches};
use crate::output::{self, Align, Color, Output};
use crate::price_args::PriceArgs;
use crate::run_args::{self, StackChoice};
use clap::Args;
use clap::builder::{PossibleValue, TypedValueParser};
use preflop_core::Gpu;
use preflop_core::cost::{quantity, search};
use preflop_core::model::{CacheKind, Graph, LowerOptions, Mode, ModelError, Precision, Run, Stage};
use preflop_core::time::TimeModel;
use preflop_core::units::{Bytes, Seconds};
use preflop_import::exported::Bindings;
use preflop_language::generate::{Answer, BatchRun, Limits, PyTorch, Question, Stack, answer};
use preflop_language::served::{Constants, Formats, KvFormat, Served, Unfit, WeightFormat};
use preflop_language::traffic::{MAX_REQUESTS, Outcome, Percentiles, StepTable, Traffic, simulate};
use serde::Serialize;
use std::io::{self, Write};

/// Predict how a language model generates text: time to the first token, time per token, throughput, keys and values, price
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop generate llama-3-8b --gpu h200 --prompt 2048 --output 512
  preflop generate llama-3-8b --gpu l40s --stack served --rate 5/s --ttft 500ms")]
pub struct GenerateArgs {
    /// Language model: a name (see `preflop models`) or a Hugging Face config.json
    model: String,

    /// GPU name (see `preflop gpus`) or the path of a GPU file
    #[arg(long, value_name = "GPU")]
    gpu: String,

    /// The host that the job will run on: fast, usual, slow, a factor such as 1.5x, or a file from `preflop host`
    #[arg(long, value_name = "HOST")]
    host: Option<String>,

    /// Tokens of a prompt
    #[arg(long, value_name = "N", default_value = "1024", value_parser = input::tokens, allow_hyphen_values = true)]
    prompt: u64,

    /// Tokens of an answer
    #[arg(long, value_name = "N", default_value = "256", value_parser = input::tokens, allow_hyphen_values = true)]
    output: u64,

    /// Sequences at once: a list, or a range in powers of two
    #[arg(long, value_name = "LIST", default_value = "1..256", value_parser = input::batches, allow_hyphen_values = true)]
    batch: Batches,

    /// What runs it: PyTorch as Hugging Face writes it, or an inference server with its own kernels
    #[arg(long, value_name = "STACK", default_value = "pytorch", value_parser = run_args::stack())]
    stack: StackChoice,

    /// Number formats of weights and activations in PyTorch
    #[arg(long, value_name = "FORMAT", default_value = "bf16", value_parser = run_args::precision())]
    precision: Precision,

    /// With `--stack served`: format of the layers' weights [default: as a config.json's `quantization_config` says, else bf16]; int8 and int4 (and mxfp4 where the GPU does not multiply it) are widened before they are multiplied
    #[arg(long, value_name = "FORMAT", value_parser = weights())]
    weights: Option<WeightFormat>,

    /// With `--stack served`: format of keys and values [default: bf16]; int8 and fp4 are widened before scores are computed
    #[arg(long, value_name = "FORMAT", value_parser = kv())]
    kv: Option<KvFormat>,

    /// How decode steps are launched
    #[arg(long = "run", value_name = "HOW", default_value = "graph", value_parser = run_args::launching())]
    launching: Run,

    /// Keys and values in a tensor of fixed length, or concatenated at every step
    #[arg(long, value_name = "KIND", default_value = "static", value_parser = run_args::cache_kind())]
    cache: CacheKind,

    /// Requests that arrive, such as 5/s or 300/min: simulates a server with continuous batching and chunked prefill
    #[arg(long, value_name = "RATE", value_parser = input::rate, allow_hyphen_values = true)]
    rate: Option<f64>,

    /// With `--rate`: how long requests arrive
    #[arg(long = "for", value_name = "TIME", default_value = "10min", value_parser = quantity::time)]
    duration: Seconds,

    /// With `--rate`: prompt tokens that one step reads at most
    #[arg(long, value_name = "N", default_value = "2048", value_parser = input::tokens, allow_hyphen_values = true)]
    chunk: u64,

    /// Longest time to the first token that is good enough
    #[arg(long, value_name = "TIME", value_parser = quantity::time)]
    ttft: Option<Seconds>,

    /// Longest time per token that is good enough
    #[arg(long, value_name = "TIME", value_parser = quantity::time)]
    tpot: Option<Seconds>,

    #[command(flatten)]
    price: PriceArgs,
}

fn weights() -> impl TypedValueParser<Value = WeightFormat> {
    run_args::choice(WeightFormat::ALL.map(|f| (PossibleValue::new(f.name()), f)).to_vec())
}

fn kv() -> impl TypedValueParser<Value = KvFormat> {
    run_args::choice(KvFormat::ALL.map(|f| (PossibleValue::new(f.name()), f)).to_vec())
}

/// The answer with what was asked, with the names and units that scripts rely on.
#[derive(Debug, Serialize)]
struct Said<'a> {
    model: &'a str,
    gpu: &'a str,
    prompt: u64,
    output: u64,
    precision: &'static str,
    run: &'static str,
    stack: &'static str,
    #[serde(flatten)]
    answer: &'a Answer,
    #[serde(skip_serializing_if = "Option::is_none")]
    usd_per_hour: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    price_date: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traffic: Option<Outcome>,
    notes: Vec<String>,
}

/// Prefill and decode steps for every batch; then, if asked, requests that arrive.
pub fn run(args: &GenerateArgs, output: &Output) -> anyhow::Result<()> {
    let gpu = input::gpu(&args.gpu)?;
    if let Some(lacks) = search::lacks(&gpu, args.precision) {
        anyhow::bail!("{lacks}");
    }
    if args.launching.replays() && args.cache == CacheKind::Growing {
        let message = "a cache that grows has another shape at every step, so it cannot be replayed";
        return Err(InputError::new(message).hint("use `--cache static` or `--run eager`").into());
    }
    let (first, seq) = (args.batch.0.first().copied(), Some(args.prompt));
    // Says early, and with the file's name, what is wrong with the model.
    let name = input::staged_model(
        &args.model,
        &Bindings { batch: first, seq, ..Bindings::default() },
        Stage::Prefill,
    )?
    .name;
    let build = |batch, seq, stage| -> Result<Graph, ModelError> {
        let sizes = Bindings { batch: Some(batch), seq, ..Bindings::default() };
        input::staged_model(&args.model, &sizes, stage).map_err(|error| {
            match error.downcast::<ModelError>() {
                Ok(model) => model,
                Err(other) => ModelError::Layer { layer: args.model.clone(), problem: format!("{other:#}") },
            }
        })
    };
    let mut model = input::on_host(TimeModel::embedded(), args.host.as_deref())?;
    if args.stack == StackChoice::Served {
        if args.host.is_some() {
            let message = "`--host` is for `--stack pytorch`";
            return Err(InputError::new(message).hint("a server's steps have a host of their own").into());
        }
        model = model.with_stack(preflop_core::time::Stack::SERVED);
    }
    let constants = Constants::embedded();
    let options = LowerOptions { mode: Mode::Infer, precision: args.precision, optimizer: None };
    let mut notes = Vec::new();
    let pytorch =
        PyTorch { build: &build, options, run: args.launching, cache: args.cache, model: &model, gpu: &gpu };
    let mut weights = WeightFormat::Bf16;
    let server;
    let stack: &dyn Stack = match args.stack {
        StackChoice::PyTorch => {
            if args.weights.is_some() || args.kv.is_some() {
                let message = "`--weights` and `--kv` are for `--stack served`";
                return Err(InputError::new(message).hint("`--precision` chooses PyTorch's formats").into());
            }
            &pytorch
        }
        StackChoice::Served => {
            server = served(args, &gpu, &model, &constants, &mut notes)?;
            weights = server.formats.weights;
            &server
        }
    };
    let quote = args.price.catalogue()?.quote(&gpu.name, args.price.pricing);
    let limits = Limits { ttft: args.ttft, tpot: args.tpot };
    let question = Question {
        prompt: args.prompt,
        output: args.output,
        batches: args.batch.0.clone(),
        limits,
        usd_per_hour: quote.as_ref().map(|q| q.usd_per_hour),
    };
    let answered = answer(stack, &gpu, &question)?;
    let traffic =
        args.rate.map(|rate| arrivals(args, rate, limits, stack, &answered, &mut notes)).transpose()?;
    let said = Said {
        model: &name,
        gpu: &gpu.name,
        prompt: args.prompt,
        output: args.output,
        precision: match args.stack {
            StackChoice::PyTorch => args.precision.name(),
            StackChoice::Served => weights.name(),
        },
        run: if args.stack == StackChoice::Served { Run::Graph.name() } else { args.launching.name() },
        stack: if args.stack == StackChoice::Served { "served" } else { "pytorch" },
        answer: &answered,
        usd_per_hour: quote.as_ref().map(|q| q.usd_per_hour),
        price_date: quote.as_ref().map(|q| q.date.to_string()),
        traffic: traffic.flatten(),
        notes,
    };
    if output.json {
        return output::print_json(&said);
    }
    let mut out = output::stdout();
    write(&mut out, &said, &gpu, output)?;
    Ok(out.flush()?)
}

/// The model on an inference server, or why not.
fn served<'a>(
    args: &GenerateArgs,
    gpu: &'a Gpu,
    model: &'a TimeModel,
    constants: &'a Constants,
    notes: &mut Vec<String>,
) -> anyhow::Result<Served<'a>> {
    let (plan, parameters, stored) = input::decoder(&args.model)?;
    let formats = Formats::choose(args.weights, args.kv, stored, gpu).map_err(|unfit| match unfit {
        Unfit::Weights(why) => InputError::new(why).hint("choose another format with `--weights`"),
        Unfit::Kv(why) => InputError::new(why).hint("use `--kv bf16`"),
    })?;
    if args.weights.is_none() && stored.is_some() {
        notes.push(format!("weights are in {}, as the configuration says", formats.weights.name()));
    }
    notes.extend(preflop_language::served::notes(constants, formats, gpu));
    Ok(Served { plan, parameters, formats, constants, model, gpu })
}

/// Requests of `rate` a second; `None` where not one fits.
fn arrivals(
    args: &GenerateArgs,
    rate: f64,
    limits: Limits,
    stack: &dyn Stack,
    answered: &Answer,
    notes: &mut Vec<String>,
) -> anyhow::Result<Option<Outcome>> {
    if answered.largest_batch == 0 {
        notes.push("no traffic was simulated: not one request fits".to_string());
        return Ok(None);
    }
    if rate * args.duration.0 > MAX_REQUESTS {
        notes.push(format!("the simulation ends after {MAX_REQUESTS} requests"));
    }
    let traffic = Traffic {
        rate,
        seconds: args.duration.0,
        prompt: args.prompt,
        output: args.output,
        chunk: args.chunk,
        batch: answered.largest_batch.min(SERVER_BATCH),
        limits,
    };
    Ok(Some(simulate(&StepTable::new(stack, &traffic)?, &traffic)))
}

/// Requests that a server runs at once at most, as servers have it unless told otherwise.
const SERVER_BATCH: u64 = 256;

/// What is said of runs that cannot be, or are slower than wanted.
const NO_ROOM: &str = "does not fit";
const TOO_SLOW: &str = "too slow";

fn write(out: &mut impl Write, said: &Said<'_>, gpu: &Gpu, output: &Output) -> io::Result<()> {
    let title = format!(
        "{} on {} ({}), prompts of {}, answers of {} tokens, {}, {}, {}",
        said.model, said.gpu, gpu.title, said.prompt, said.output, said.precision, said.stack, said.run
    );
    writeln!(out, "{}\n", output.bold(&output::wrapped(&title, output.width, "  ")))?;
    let runs = &said.answer.runs;
    let memory = |mib: f64| output::memory(Bytes::from_mib(mib));
    let mut grid = Grid::default();
    grid.add("batch", Align::Right, 0, runs.iter().map(|r| r.batch.to_string()));
    grid.add("first token", Align::Right, 1, runs.iter().map(|r| output::milliseconds(r.ttft_ms)));
    grid.add("per token", Align::Right, 0, runs.iter().map(|r| output::milliseconds(r.tpot_ms)));
    grid.add("tokens/s", Align::Right, 0, runs.iter().map(|r| output::three_digits(r.tokens_per_s)));
    let per_user = runs.iter().map(|r| output::three_digits(r.tokens_per_s_per_user));
    grid.add("per user", Align::Right, 4, per_user);
    grid.add("keys, values", Align::Right, 5, runs.iter().map(|r| memory(r.kv_mib)));
    grid.add("memory", Align::Right, 3, runs.iter().map(|r| memory(r.memory_mib)));
    if said.usd_per_hour.is_some() {
        let usd = |x: Option<f64>| x.map_or_else(|| "-".to_string(), output::three_digits);
        grid.add("$/Mtok", Align::Right, 2, runs.iter().map(|r| usd(r.usd_per_million_tokens)));
    }
    let verdict = |r: &BatchRun| match (r.fits, r.within_limits) {
        (false, _) => NO_ROOM,
        (true, false) => TOO_SLOW,
        (true, true) => "",
    };
    grid.add("", Align::Keep, 0, runs.iter().map(|r| verdict(r).to_string()));
    grid.tint(|text| match text {
        NO_ROOM => Some(Color::Red),
        TOO_SLOW => Some(Color::Yellow),
        _ => None,
    });
    grid.write(out, output)?;
    let largest = match said.answer.largest_batch {
        0 => "Not one sequence fits.".to_string(),
        n => format!("{n} sequences fit at once."),
    };
    let best = match said.answer.goodput_batch {
        Some(batch) => format!(
            " Best of these: {} tokens/s with batch {batch}.",
            output::three_digits(said.answer.goodput_tokens_per_s)
        ),
        None => " None of these fits and is fast enough.".to_string(),
    };
    writeln!(out, "\n{}", output::wrapped(&format!("{largest}{best}"), output.width, "  "))?;
    if let Some(t) = &said.traffic {
        write_traffic(out, t, output)?;
    }
    for note in &said.notes {
        writeln!(out, "\n{}", output::wrapped(&format!("Note: {note}"), output.width, "  "))?;
    }
    Ok(())
}

fn write_traffic(out: &mut impl Write, t: &Outcome, output: &Output) -> io::Result<()> {
    let digits = output::three_digits;
    let state = if t.saturated { "the queue grows without end" } else { "the server keeps up" };
    let line = format!(
        "{} requests at {}/s: {state}. {} answered, {} tokens/s, {} requests/s within the limits, {} at once in the mean, up to {} waiting.",
        output::grouped(t.arrived),
        digits(t.rate),
        output::grouped(t.answered),
        digits(t.tokens_per_s),
        digits(t.goodput_per_s),
        digits(t.mean_batch),
        output::grouped(t.longest_queue)
    );
    writeln!(out, "\n{}\n", output::wrapped(&line, output.width, "  "))?;
    let mut table = Grid::new(&[
        ("", Align::Keep, 0),
        ("median", Align::Right, 0),
        ("90 %", Align::Right, 0),
        ("99 %", Align::Right, 0),
    ]);
    for (what, Percentiles { p50_ms, p90_ms, p99_ms }) in
        [("first token", t.ttft), ("per token", t.tpot), ("whole answer", t.latency)]
    {
        let times = [p50_ms, p90_ms, p99_ms].map(output::milliseconds);
        table.row(std::iter::once(what.to_string()).chain(times));
    }
    table.write(out, output).map(drop)
}
