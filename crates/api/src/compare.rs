//! `compare`: one run on many GPUs, with dollars and joules.

use crate::engine::Engine;
use crate::error::ApiError;
use crate::generate::pricing;
use crate::job::Job;
use crate::question::{Compare, Rank, Run};
use crate::schema::MAX_USD_PER_HOUR;
use preflop_cluster::room;
use preflop_core::Gpu;
use preflop_core::cost::fit::Setup;
use preflop_core::cost::rank::{self, usd_per_million_samples};
use preflop_core::cost::room::{Change, Misfit};
use preflop_core::cost::search::usual_batches;
use preflop_core::cost::{Candidate, Date, Limits, Plan, Power, RankBy, Reserve, Search, fit, search};
use preflop_core::model::Iteration;
use preflop_core::schedule::Schedule as _;
use preflop_core::time::{Bound, TimeModel};
use preflop_core::units::Seconds;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;
use utoipa::ToSchema;

/// Of the whole catalogue, so many GPUs without room are told what would make it.
const ADVISED: usize = 3;

/// One GPU. What has no price has no dollars.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Offer)]
pub struct Row {
    gpu: String,
    title: String,
    batch: u64,
    precision: &'static str,
    iteration_ms: f64,
    low_ms: f64,
    high_ms: f64,
    /// What the interval rests on.
    evidence: &'static str,
    samples_per_s: f64,
    memory_mib: f64,
    needed_mib: f64,
    gpu_memory_mib: f64,
    fits: bool,
    usd_per_hour: Option<f64>,
    #[schema(value_type = Option<String>)]
    price_date: Option<Date>,
    price_source: Option<String>,
    usd_per_million_samples: Option<f64>,
    watts: f64,
    joules_per_sample: f64,
    gpu_busy_ms: f64,
    host_ms: f64,
    #[schema(value_type = String)]
    bound: Bound,
    /// On the Pareto front of time and money.
    pareto: bool,
    run_hours: Option<f64>,
    run_usd: Option<f64>,
    keeps_limits: Option<bool>,
    /// The fastest that keeps to the budget.
    chosen: bool,
    /// Where it does not fit, what would make it there, the least costly first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changes: Vec<Change>,
}

impl Row {
    fn candidate(&self) -> Candidate {
        Candidate {
            fits: self.fits,
            seconds_per_sample: 1.0 / self.samples_per_s,
            usd_per_sample: self.usd_per_million_samples.map(|usd| usd / 1e6),
            joules_per_sample: self.joules_per_sample,
        }
    }
}

/// Predicts on every GPU, prices, ranks.
pub fn answer(engine: &Engine, asked: &Compare) -> Result<Vec<Row>, ApiError> {
    let gpus = engine.some_gpus(asked.gpus.as_deref())?;
    let model = engine.on_host(asked.host.as_deref())?;
    let own = own_prices(engine, asked)?;
    let limits = limits(asked)?;
    let by = match asked.rank {
        Rank::Time => RankBy::Time,
        Rank::Cost => RankBy::Cost,
        Rank::Energy => RankBy::Energy,
    };
    let ways = ways(engine, asked)?;
    let reserve = Reserve::default();
    let mut rows: Vec<Row> = Vec::with_capacity(gpus.len());
    let mut lacking: Vec<(usize, &Gpu, usize)> = Vec::new();
    for (gpu, place) in gpus.iter().zip(best_ways(&model, asked, &ways, &gpus, by)?) {
        // Of the whole catalogue, those that can are compared.
        let Some(place) = place else { continue };
        let (setup, job) = &ways[place];
        let iteration = &job.iteration;
        let p = model.predict_iteration(iteration, gpu);
        let prudent = fit::prudent_peak(iteration);
        let samples_per_s = iteration.samples as f64 / p.time.0;
        let power = Power::of(iteration, &p, gpu);
        let quote = engine.prices.quote(&gpu.name, pricing(asked.pricing));
        let given = own.iter().find(|(name, _)| *name == gpu.name).map(|(_, usd)| *usd);
        let usd_per_hour = given.or(quote.as_ref().map(|q| q.usd_per_hour));
        let quote = quote.filter(|_| given.is_none());
        rows.push(Row {
            gpu: gpu.name.clone(),
            title: gpu.title.clone(),
            batch: job.batch,
            precision: setup.precision.name(),
            iteration_ms: p.time.ms(),
            low_ms: p.low.ms(),
            high_ms: p.high.ms(),
            evidence: p.evidence.name(),
            samples_per_s,
            memory_mib: iteration.memory.peak.mib(),
            needed_mib: reserve.needed(prudent).mib(),
            gpu_memory_mib: gpu.memory.mib(),
            fits: reserve.fits(prudent, gpu),
            usd_per_hour,
            price_date: quote.as_ref().map(|q| q.date),
            price_source: given.map(|_| "given".to_string()).or(quote.map(|q| q.source)),
            usd_per_million_samples: usd_per_hour.map(|usd| usd_per_million_samples(usd, samples_per_s)),
            watts: power.watts,
            joules_per_sample: power.per_sample(samples_per_s).joules,
            gpu_busy_ms: p.gpu_busy.ms(),
            host_ms: p.host.ms(),
            bound: p.bound,
            pareto: false,
            run_hours: None,
            run_usd: None,
            keeps_limits: None,
            chosen: false,
            changes: Vec::new(),
        });
        if !reserve.fits(prudent, gpu) {
            lacking.push((rows.len() - 1, gpu, place));
        }
    }
    // Of the whole catalogue, those that come nearest.
    if asked.gpus.is_none() {
        lacking.sort_by(|a, b| b.1.memory.0.total_cmp(&a.1.memory.0));
        lacking.truncate(ADVISED);
    }
    let mut rooms = HashMap::new();
    for (row, gpu, place) in lacking {
        let job = &ways[place].1;
        let largest_batch = engine.jobs.largest_batch(job, gpu, &reserve).ok();
        let run = rooms.entry(place).or_insert_with(|| engine.jobs.room(&asked.run, job));
        let at = Misfit { model: &model, gpu, reserve: &reserve, largest_batch, elsewhere: false };
        rows[row].changes = room::changes(run, &at);
    }
    rows.sort_by(|a, b| a.candidate().compare(&b.candidate(), by));
    let candidates: Vec<Candidate> = rows.iter().map(Row::candidate).collect();
    for (row, on_front) in rows.iter_mut().zip(rank::front(&candidates)) {
        row.pareto = on_front;
    }
    whole_run(asked, &limits, &mut rows);
    Ok(rows)
}

/// The ways to run that are asked for: each number format with each batch.
fn ways(engine: &Engine, asked: &Compare) -> Result<Vec<(Setup, Arc<Job>)>, ApiError> {
    if asked.auto_batch && asked.run.batch.is_some() {
        return Err(ApiError::invalid("`auto_batch` tries the usual batches; leave out `batch`"));
    }
    let formats =
        if asked.precisions.is_empty() { vec![asked.run.precision] } else { asked.precisions.clone() };
    let batches: Vec<Option<u64>> = if asked.auto_batch {
        usual_batches().into_iter().map(Some).collect()
    } else {
        vec![asked.run.batch]
    };
    let mut out: Vec<(Setup, Arc<Job>)> = Vec::new();
    let mut refused = None;
    for precision in formats {
        for batch in &batches {
            let run = Run { precision, batch: *batch, ..asked.run.clone() };
            // Of many batches, those that the model does not allow are left out.
            let job = match if asked.auto_batch { engine.jobs.lowered(&run) } else { engine.jobs.job(&run) } {
                Err(error) if asked.auto_batch => {
                    refused = Some(error);
                    continue;
                }
                job => job?,
            };
            let precision = job.options.precision;
            let (optimizer, checkpoint) = (job.options.optimizer, job.form.checkpoint);
            let setup = Setup { batch: job.batch, precision, optimizer, checkpoint };
            // A recorded step has one format and one batch.
            if out.iter().all(|(known, _)| *known != setup) {
                out.push((setup, job));
            }
        }
    }
    match refused {
        Some(error) if out.is_empty() => Err(error),
        _ => Ok(out),
    }
}

/// The best way of each GPU, or none where it has none of the formats.
fn best_ways(
    model: &TimeModel,
    asked: &Compare,
    ways: &[(Setup, Arc<Job>)],
    gpus: &[&Gpu],
    by: RankBy,
) -> Result<Vec<Option<usize>>, ApiError> {
    let recorded = ways.iter().any(|(_, job)| job.fixed.is_some());
    let [(setup, _)] = ways else {
        let lowered: Vec<(Setup, Iteration)> =
            ways.iter().map(|(setup, job)| (*setup, job.iteration.clone())).collect();
        let search = Search::new(&lowered);
        let reserve = Reserve::default();
        let able = |gpu: &Gpu| ways.iter().any(|(setup, _)| search::native(gpu, setup.precision));
        let best = |gpu: &&Gpu| able(gpu).then(|| search.best(model, gpu, &reserve, by).place);
        return Ok(gpus.iter().map(best).collect());
    };
    let lacks = |gpu: &Gpu| search::lacks(gpu, setup.precision).filter(|_| !recorded);
    if let Some(lacks) = gpus.iter().find_map(|gpu| lacks(gpu)).filter(|_| asked.gpus.is_some()) {
        return Err(ApiError::invalid(lacks));
    }
    Ok(gpus.iter().map(|gpu| lacks(gpu).is_none().then_some(0)).collect())
}

fn own_prices(engine: &Engine, asked: &Compare) -> Result<Vec<(String, f64)>, ApiError> {
    let mut own = Vec::with_capacity(asked.prices.len());
    for (name, usd) in &asked.prices {
        if !(0.0..=MAX_USD_PER_HOUR).contains(usd) {
            return Err(ApiError::invalid(format!(
                "the price of `{name}` is {usd}; it must be from 0 to {MAX_USD_PER_HOUR} US dollars per hour"
            )));
        }
        own.push((engine.gpu(name)?.name.clone(), *usd));
    }
    Ok(own)
}

fn limits(asked: &Compare) -> Result<Limits, ApiError> {
    const MOST_SAMPLES: u64 = 1_000_000_000_000;
    if let Some(n) = asked.samples.filter(|n| !(1..=MOST_SAMPLES).contains(n)) {
        return Err(ApiError::invalid(format!("`samples` is {n}; it must be from 1 to {MOST_SAMPLES}")));
    }
    match asked.budget_usd {
        Some(usd) if !(usd.is_finite() && usd >= 0.0) => {
            Err(ApiError::invalid(format!("`budget_usd` is {usd}; it must be 0 or more")))
        }
        Some(_) if asked.samples.is_none() => {
            Err(ApiError::invalid("`budget_usd` needs `samples`: how long the run is"))
        }
        budget_usd => Ok(Limits { deadline: None, budget_usd }),
    }
}

/// Time and money of the whole run, where its length is given.
fn whole_run(asked: &Compare, limits: &Limits, rows: &mut [Row]) {
    let Some(samples) = asked.samples else { return };
    let plan = Plan { epochs: 1, dataset_size: samples };
    let ways: Vec<_> = rows
        .iter()
        .map(|r| r.fits.then(|| plan.way(Seconds(r.iteration_ms / 1e3), r.batch, r.usd_per_hour)))
        .collect();
    for (row, way) in rows.iter_mut().zip(&ways) {
        row.run_hours = way.map(|w| w.time.0 / 3600.0);
        row.run_usd = way.and_then(|w| w.usd);
        row.keeps_limits = limits.goal().map(|_| way.is_some_and(|w| limits.allow(&w)));
    }
    if let Some(best) = limits.choose(&ways) {
        rows[best].chosen = true;
    }
}
