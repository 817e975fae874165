//! Computes the rows: each way to run is lowered once, and predicted on every GPU.

use super::args::{Question, Source};
use super::row::Row;
use preflop_cluster::room;
use preflop_core::Gpu;
use preflop_core::cost::fit::{self, Setup};
use preflop_core::cost::rank::usd_per_million_samples;
use preflop_core::cost::room::{Misfit, Room};
use preflop_core::cost::{Power, Search, energy};
use preflop_core::model::{Iteration, ModelError, zoo};
use preflop_core::schedule::Schedule as _;
use preflop_core::time::{IterationPrediction, TimeModel};
use preflop_core::units::Bytes;
use rayon::prelude::*;
use std::borrow::Cow;
use std::collections::HashMap;

/// One row per GPU: its best setup, or the smallest where none fits.
pub fn rows(question: &Question, model: &TimeModel, scale: f64) -> anyhow::Result<Vec<Row>> {
    let several = question.setups.len() > 1;
    let lowered: Vec<Option<(Setup, Iteration)>> = question
        .setups
        .par_iter()
        .map(|setup| match question.lower(setup) {
            // Of many batch sizes, those above the model's own limit are left out.
            Err(ModelError::Size { .. }) if several => Ok(None),
            other => Ok(Some((*setup, other?))),
        })
        .collect::<Result<_, ModelError>>()?;
    let lowered: Vec<(Setup, Iteration)> = lowered.into_iter().flatten().collect();
    let best: Vec<usize> = if several {
        let search = Search::new(&lowered);
        let of_gpu = |gpu: &Gpu| search.best(model, gpu, &question.reserve, question.rank).place;
        question.gpus.par_iter().with_max_len(1).map(of_gpu).collect()
    } else {
        vec![0; question.gpus.len()]
    };
    let mut rows: Vec<Row> = question
        .gpus
        .par_iter()
        .zip(&best)
        .map(|(gpu, place)| {
            let (setup, iteration) = &lowered[*place];
            let prediction = model.predict_iteration(iteration, gpu);
            row(question, gpu, setup, iteration, &prediction, scale)
        })
        .collect();
    largest_batches(question, &mut rows, &best, &lowered)?;
    advise(question, model, &mut rows, &best, &lowered);
    Ok(rows)
}

fn row(
    question: &Question,
    gpu: &Gpu,
    setup: &Setup,
    iteration: &Iteration,
    p: &IterationPrediction,
    scale: f64,
) -> Row {
    let samples_per_s = iteration.samples as f64 / (p.time.0 * scale);
    let power = Power::of(iteration, p, gpu);
    let joules = power.per_sample(samples_per_s);
    let quote = question.prices.quote(&gpu.name, question.pricing);
    let prudent = fit::prudent_peak(iteration);
    Row {
        gpu: gpu.name.clone(),
        batch: setup.batch,
        precision: setup.precision.name(),
        iteration_ms: p.time.ms() * scale,
        low_ms: p.low.ms() * scale,
        high_ms: p.high.ms() * scale,
        evidence: p.evidence.name(),
        samples_per_s,
        memory_mib: iteration.memory.peak.mib(),
        needed_mib: question.reserve.needed(prudent).mib(),
        gpu_memory_mib: gpu.memory.mib(),
        fits: question.reserve.fits(prudent, gpu),
        largest_batch: None,
        usd_per_hour: quote.as_ref().map(|q| q.usd_per_hour),
        price_date: quote.as_ref().map(|q| q.date),
        price_includes_host: quote.as_ref().map(|q| q.host_included),
        usd_per_million_samples: quote
            .as_ref()
            .map(|q| usd_per_million_samples(q.usd_per_hour, samples_per_s)),
        price_source: quote.map(|q| q.source),
        watts: power.watts,
        joules_per_sample: joules.joules,
        joules_low: joules.low_joules,
        joules_high: joules.high_joules,
        grams_co2_per_million_samples: question
            .grams_per_kwh
            .map(|g| joules.joules * 1e6 / energy::JOULES_PER_KWH * g),
        gpu_busy_ms: p.gpu_busy.ms() * scale,
        host_ms: p.host.ms() * scale,
        bound: p.bound,
        pareto: false,
        speed_over_baseline: None,
        run_hours: None,
        run_usd: None,
        usd_per_epoch: None,
        keeps_limits: None,
        chosen: false,
        changes: Vec::new(),
    }
}

/// The largest batch that fits on each GPU; peaks are shared between the searches.
fn largest_batches(
    question: &Question,
    rows: &mut [Row],
    best: &[usize],
    lowered: &[(Setup, Iteration)],
) -> Result<(), ModelError> {
    if matches!(question.model, Source::File(_)) {
        return Ok(());
    }
    let mut peaks: HashMap<Setup, Bytes> = lowered.iter().map(|(s, i)| (*s, fit::prudent_peak(i))).collect();
    for ((row, gpu), place) in rows.iter_mut().zip(&question.gpus).zip(best) {
        let setup = lowered[*place].0;
        row.largest_batch = Some(largest(question, gpu, &setup, &mut peaks)?);
    }
    Ok(())
}

fn largest(
    question: &Question,
    gpu: &Gpu,
    setup: &Setup,
    peaks: &mut HashMap<Setup, Bytes>,
) -> Result<u64, ModelError> {
    fit::largest_batch(gpu, &question.reserve, zoo::MAX_BATCH, |batch| {
        let setup = Setup { batch, ..*setup };
        if let Some(peak) = peaks.get(&setup) {
            return Ok(*peak);
        }
        let peak = fit::peak(batch, || question.lower(&setup))?;
        peaks.insert(setup, peak);
        Ok(peak)
    })
}

/// What would make each run fit that does not; other GPUs are in the table.
fn advise(
    question: &Question,
    model: &TimeModel,
    rows: &mut [Row],
    best: &[usize],
    lowered: &[(Setup, Iteration)],
) {
    let network = |batch| question.model.graph(batch, question.seq).ok().map(Cow::into_owned);
    let mut rooms = HashMap::new();
    for ((row, gpu), place) in rows.iter_mut().zip(&question.gpus).zip(best) {
        if row.fits {
            continue;
        }
        let (setup, iteration) = &lowered[*place];
        let room = rooms
            .entry(*place)
            .or_insert_with(|| Room::new(question.options(setup), question.form, iteration, network));
        let (reserve, largest_batch) = (&question.reserve, row.largest_batch);
        row.changes = room::changes(room, &Misfit { model, gpu, reserve, largest_batch, elsewhere: false });
    }
}
