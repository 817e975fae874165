//! `preflop compare`: one model on many GPUs, ranked by time, money or energy.

mod args;
mod recording;
mod row;
mod several;
mod show;
mod sweep;
mod verdict;

pub use args::CompareArgs;

use crate::error::{InputError, Partly};
use crate::input;
use crate::output::{self, Output};
use args::Question;
use preflop_core::cost::{Candidate, Pricing, rank};
use preflop_core::schedule::Schedule as _;
use preflop_core::time::TimeModel;
use preflop_core::units::Seconds;
use row::Row;

/// Question to rows, rows to an order, order to a table.
pub fn run(args: &CompareArgs, output: &Output) -> anyhow::Result<()> {
    if args.gpus.iter().any(|name| several::is_several(name)) {
        if args.fail_if_not_fit {
            return Err(InputError::new("`--fail-if-not-fit` is for single GPUs")
                .hint("ask `preflop predict --cluster` about several")
                .into());
        }
        return several::run(args, output);
    }
    if let Some(recorded) = super::roofline::recording::read(&args.model)? {
        return recording::run(&recorded, args, output);
    }
    let question = args.question()?;
    let model = input::time_model(args.correction.as_deref(), &question.gpus)?;
    let model = input::on_host(model, args.host.as_deref())?;
    let scale = scale(&question, &model)?;
    let mut rows = sweep::rows(&question, &model, scale)?;
    order(&question, &mut rows);
    choose(&question, &mut rows)?;
    let sentences =
        if output.json { Vec::new() } else { verdict::verdict(&question, &rows, &model, args.all) };
    let top = args.top.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let fits = rows.iter().any(|r| r.fits);
    rows.truncate(top);
    if let Some(path) = &args.output {
        show::write_file(path, &rows)?;
    }
    if let Some(path) = &args.plot {
        show::plot(path, &question, &rows)?;
    }
    if output.json {
        output::print_json(&rows)?;
        return ended(args, fits);
    }
    // GPUs without room are folded away, unless they were named or nothing else is left.
    if !args.all && !question.named && rows.iter().any(|r| r.fits) {
        rows.retain(|r| r.fits);
    }
    show::print(&question, &rows, sentences, output)?;
    ended(args, fits)
}

/// The end of a comparison of which something must fit.
fn ended(args: &CompareArgs, fits: bool) -> anyhow::Result<()> {
    if args.fail_if_not_fit && !fits {
        return Err(Partly(format!("`{}` fits on none of these GPUs", args.model)).into());
    }
    Ok(())
}

/// Measured over predicted time on the user's own GPU: 1 where nothing was measured.
fn scale(question: &Question, model: &TimeModel) -> anyhow::Result<f64> {
    let Some((gpu, measured)) = &question.measured else { return Ok(1.0) };
    let [setup] = question.setups.as_slice() else {
        return Err(InputError::new(
            "`--measured` needs one `--batch` and one `--precision`: those of the measurement",
        )
        .into());
    };
    let gpu = input::gpu(gpu)?;
    let iteration = question.lower(setup)?;
    Ok(*measured / model.predict_iteration(&iteration, &gpu).time)
}

fn candidate(row: &Row) -> Candidate {
    Candidate {
        fits: row.fits,
        seconds_per_sample: 1.0 / row.samples_per_s,
        usd_per_sample: row.usd_per_million_samples.map(|usd| usd / 1e6),
        joules_per_sample: row.joules_per_sample,
    }
}

/// Best first; the front and the speed over the baseline are marked.
fn order(question: &Question, rows: &mut [Row]) {
    rows.sort_by(|a, b| candidate(a).compare(&candidate(b), question.rank));
    let candidates: Vec<Candidate> = rows.iter().map(candidate).collect();
    for (row, on_front) in rows.iter_mut().zip(rank::front(&candidates)) {
        row.pareto = on_front;
    }
    let base = question.baseline.as_ref().and_then(|name| rows.iter().find(|r| r.gpu == *name));
    if let Some(base) = base.map(|r| r.samples_per_s) {
        for row in rows {
            row.speed_over_baseline = Some(row.samples_per_s / base);
        }
    }
}

/// Marks the answer to a question with a deadline or a budget; if there is none, says what comes closest.
fn choose(question: &Question, rows: &mut [Row]) -> anyhow::Result<()> {
    let Some(plan) = &question.plan else { return Ok(()) };
    let ways: Vec<_> = rows
        .iter()
        .map(|r| r.fits.then(|| plan.way(Seconds(r.iteration_ms / 1e3), r.batch, r.usd_per_hour)))
        .collect();
    for (row, way) in rows.iter_mut().zip(&ways) {
        row.run_hours = way.map(|w| w.time.0 / 3600.0);
        row.run_usd = way.and_then(|w| w.usd);
        row.usd_per_epoch = row.run_usd.map(|usd| usd / plan.epochs as f64);
        row.keeps_limits = question.limits.goal().map(|_| way.is_some_and(|w| question.limits.allow(&w)));
    }
    if question.limits.goal().is_none() {
        return Ok(());
    }
    if let Some(best) = question.limits.choose(&ways) {
        rows[best].chosen = true;
        return Ok(());
    }
    let fastest = rows.iter().filter_map(|r| Some((r.run_hours?, &r.gpu))).min_by(|a, b| a.0.total_cmp(&b.0));
    let cheapest = rows.iter().filter_map(|r| Some((r.run_usd?, &r.gpu))).min_by(|a, b| a.0.total_cmp(&b.0));
    let mut closest = Vec::new();
    if let Some((hours, gpu)) = fastest {
        closest.push(format!("the fastest, `{gpu}`, takes {}", show::hours(hours)));
    }
    if let Some((usd, gpu)) = cheapest {
        closest.push(format!("the cheapest, `{gpu}`, costs {}", show::usd(usd)));
    }
    let what = show::limits(&question.limits);
    let message = format!("no GPU does {} epochs of {} samples {what}", plan.epochs, plan.dataset_size);
    let error = InputError::new(message);
    Err(if closest.is_empty() {
        error.hint("it fits on none of them")
    } else {
        error.hint(closest.join("; "))
    }
    .into())
}

/// GPUs whose price is asked for but not known.
fn unpriced<'a>(question: &Question, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    names.filter(|name| question.prices.quote(name, question.pricing).is_none()).collect()
}

/// How a price is named in a sentence.
fn price_kind(pricing: Pricing) -> &'static str {
    match pricing {
        Pricing::OnDemand => "on demand, median of the clouds",
        Pricing::Cheapest => "on demand, cheapest cloud",
        Pricing::Spot => "spot, median of the clouds",
        Pricing::Purchase => "bought with a host and written off",
    }
}
