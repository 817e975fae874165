//! `generate`: how a language model writes: time to the first token and per token, throughput, keys and values, traffic.

use crate::choice::{one_of, within};
use crate::engine::Engine;
use crate::error::ApiError;
use crate::model_file::PREFIX;
use crate::question::{Generate, PricingChoice};
use preflop_core::Gpu;
use preflop_core::cost::{Pricing, search};
use preflop_core::model::zoo::config::Stored;
use preflop_core::model::zoo::decoder::Plan;
use preflop_core::model::{CacheKind, Graph, LowerOptions, Mode, ModelError, Precision, Run, Stage, zoo};
use preflop_core::time::{Stack as Software, TimeModel};
use preflop_core::units::Seconds;
use preflop_language::generate::{Answer as Answered, Limits, PyTorch, Question, Stack, answer as answered};
use preflop_language::served::{Constants, Formats, KvFormat, Served, Unfit, WeightFormat};
use preflop_language::traffic::{MAX_REQUESTS, Outcome, StepTable, Traffic, simulate};
use serde::Serialize;
use utoipa::ToSchema;

/// Batches of one question.
const MOST_BATCHES: usize = 32;
/// Requests that a server runs at once at most, as servers have it unless told otherwise.
const SERVER_BATCH: u64 = 256;
/// Seconds that requests may arrive.
const MOST_SECONDS: f64 = 86_400.0;

/// The answer with what was asked, with the names and units that scripts rely on.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = GenerateAnswer)]
pub struct Answer {
    model: String,
    gpu: String,
    prompt: u64,
    output: u64,
    precision: &'static str,
    run: &'static str,
    stack: &'static str,
    #[serde(flatten)]
    batches: Answered,
    /// What the card has.
    gpu_memory_mib: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    usd_per_hour: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    price_date: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    traffic: Option<Outcome>,
    notes: Vec<String>,
}

/// Prefill and decode steps for every batch; then, if asked, requests that arrive.
pub fn answer(engine: &Engine, asked: &Generate) -> Result<Answer, ApiError> {
    let gpu = engine.gpu(&asked.gpu)?;
    let served = one_of("stack", &asked.stack, &[("pytorch", false), ("served", true)])?;
    let launching = one_of("run", &asked.run, &Run::ALL.map(|r| (r.name(), r)))?;
    let cache =
        one_of("cache", &asked.cache, &[CacheKind::Static, CacheKind::Growing].map(|c| (c.name(), c)))?;
    let (prompt, output) = (tokens("prompt", asked.prompt)?, tokens("output", asked.output)?);
    if asked.batches.is_empty() || asked.batches.len() > MOST_BATCHES {
        let message = format!("`batches` takes 1 to {MOST_BATCHES} numbers, not {}", asked.batches.len());
        return Err(ApiError::invalid(message));
    }
    for batch in &asked.batches {
        within("batches", *batch, 1, zoo::MAX_BATCH)?;
    }
    if let Some(lacks) = search::lacks(gpu, asked.precision).filter(|_| !served) {
        return Err(ApiError::invalid(lacks));
    }
    if launching.replays() && cache == CacheKind::Growing {
        return Err(ApiError::Invalid {
            message: "a cache that grows has another shape at every step, so it cannot be replayed"
                .to_string(),
            hint: Some("ask for `cache` static or `run` eager"),
        });
    }
    // Says early what is wrong with the model.
    let name =
        engine.jobs.build(&asked.model, asked.batches.first().copied(), Some(prompt), Stage::Prefill)?.name;
    let build = |batch, seq, stage| -> Result<Graph, ModelError> {
        engine
            .jobs
            .build(&asked.model, Some(batch), seq, stage)
            .map_err(|error| ModelError::Layer { layer: name.clone(), problem: error.to_string() })
    };
    let model = if served { &engine.model.clone().with_stack(Software::SERVED) } else { &engine.model };
    let constants = Constants::embedded();
    let options = LowerOptions { mode: Mode::Infer, precision: asked.precision, optimizer: None };
    let mut notes = Vec::new();
    let pytorch = PyTorch { build: &build, options, run: launching, cache, model, gpu };
    let mut weights = WeightFormat::Bf16;
    let server;
    let stack: &dyn Stack = if served {
        server = serving(engine, asked, gpu, model, &constants, &mut notes)?;
        weights = server.formats.weights;
        &server
    } else {
        if asked.weights.is_some() || asked.kv.is_some() {
            return Err(ApiError::Invalid {
                message: "`weights` and `kv` are for the stack `served`".to_string(),
                hint: Some("`precision` chooses PyTorch's formats"),
            });
        }
        &pytorch
    };
    let quote = engine.prices.quote(&gpu.name, pricing(asked.pricing));
    let limits = Limits { ttft: time("ttft_ms", asked.ttft_ms)?, tpot: time("tpot_ms", asked.tpot_ms)? };
    let mut batches = asked.batches.clone();
    batches.sort_unstable();
    batches.dedup();
    let question =
        Question { prompt, output, batches, limits, usd_per_hour: quote.as_ref().map(|q| q.usd_per_hour) };
    let answer = answered(stack, gpu, &question)?;
    let traffic = match asked.rate_per_s {
        None => None,
        Some(rate) => arrivals(asked, rate, limits, stack, &answer, &mut notes)?,
    };
    Ok(Answer {
        model: name.clone(),
        gpu: gpu.name.clone(),
        prompt,
        output,
        precision: if served { weights.name() } else { asked.precision.name() },
        run: if served { Run::Graph.name() } else { launching.name() },
        stack: if served { "served" } else { "pytorch" },
        batches: answer,
        gpu_memory_mib: gpu.memory.mib(),
        usd_per_hour: quote.as_ref().map(|q| q.usd_per_hour),
        price_date: quote.as_ref().map(|q| q.date.to_string()),
        traffic,
        notes,
    })
}

fn tokens(field: &str, value: u64) -> Result<u64, ApiError> {
    within(field, value, 1, zoo::MAX_SEQ)
}

fn time(field: &str, ms: Option<f64>) -> Result<Option<Seconds>, ApiError> {
    match ms {
        Some(ms) if !(ms.is_finite() && ms > 0.0) => {
            Err(ApiError::invalid(format!("`{field}` is {ms}; it must be above 0")))
        }
        ms => Ok(ms.map(|ms| Seconds(ms / 1e3))),
    }
}

/// The price that a choice means.
pub fn pricing(choice: PricingChoice) -> Pricing {
    match choice {
        PricingChoice::OnDemand => Pricing::OnDemand,
        PricingChoice::Cheapest => Pricing::Cheapest,
        PricingChoice::Spot => Pricing::Spot,
        PricingChoice::Purchase => Pricing::Purchase,
    }
}

fn decoder(engine: &Engine, model: &str) -> Result<(Plan, u64, Option<Stored>), ApiError> {
    let found = if model.starts_with(PREFIX) {
        engine.jobs.files.find(model)?.plan()?
    } else {
        zoo::plan(model)
            .map(|plan| Ok::<_, ModelError>((plan, zoo::info(model)?.parameters, None)))
            .transpose()?
    };
    found.ok_or_else(|| ApiError::Invalid {
        message: format!("the stack `served` does not know `{model}`"),
        hint: Some("it takes the Llama models, or a config.json of a decoder"),
    })
}

/// The model on an inference server, or why not.
fn serving<'a>(
    engine: &Engine,
    asked: &Generate,
    gpu: &'a Gpu,
    model: &'a TimeModel,
    constants: &'a Constants,
    notes: &mut Vec<String>,
) -> Result<Served<'a>, ApiError> {
    let (plan, parameters, stored) = decoder(engine, &asked.model)?;
    let weights = asked.weights.as_deref();
    let weights =
        weights.map(|w| one_of("weights", w, &WeightFormat::ALL.map(|w| (w.name(), w)))).transpose()?;
    let kv = asked.kv.as_deref();
    let kv = kv.map(|kv| one_of("kv", kv, &KvFormat::ALL.map(|kv| (kv.name(), kv)))).transpose()?;
    let formats = Formats::choose(weights, kv, stored, gpu).map_err(|unfit| match unfit {
        Unfit::Weights(message) => {
            ApiError::Invalid { message, hint: Some("choose another format of the `weights`") }
        }
        Unfit::Kv(message) => ApiError::Invalid { message, hint: Some("ask for `kv` bf16") },
    })?;
    if weights.is_none() && stored.is_some() {
        notes.push(format!("weights are in {}, as the configuration says", formats.weights.name()));
    }
    notes.extend(preflop_language::served::notes(constants, formats, gpu));
    Ok(Served { plan, parameters, formats, constants, model, gpu })
}

/// Requests of `rate` a second; `None` where not one fits.
fn arrivals(
    asked: &Generate,
    rate: f64,
    limits: Limits,
    stack: &dyn Stack,
    answered: &Answered,
    notes: &mut Vec<String>,
) -> Result<Option<Outcome>, ApiError> {
    if !(1e-6..=1e6).contains(&rate) {
        return Err(ApiError::invalid(format!(
            "`rate_per_s` is {rate}; it must be from 0.000001 to 1000000"
        )));
    }
    if !(1.0..=MOST_SECONDS).contains(&asked.seconds) {
        let message = format!("`seconds` is {}; it must be from 1 to {MOST_SECONDS}", asked.seconds);
        return Err(ApiError::invalid(message));
    }
    if answered.largest_batch == 0 {
        notes.push("no traffic was simulated: not one request fits".to_string());
        return Ok(None);
    }
    if rate * asked.seconds > MAX_REQUESTS {
        notes.push(format!("the simulation ends after {MAX_REQUESTS} requests"));
    }
    let traffic = Traffic {
        rate,
        seconds: asked.seconds,
        prompt: asked.prompt,
        output: asked.output,
        chunk: tokens("chunk", asked.chunk)?,
        batch: answered.largest_batch.min(SERVER_BATCH),
        limits,
    };
    Ok(Some(simulate(&StepTable::new(stack, &traffic)?, &traffic)))
}

/// As the command line has it unless told otherwise.
pub(crate) fn default_precision() -> Precision {
    Precision::Bf16
}
