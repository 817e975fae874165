//! The answer in a few sentences: the fastest GPU that has room, the cheapest, the best value, and what would do better.

use super::args::Question;
use super::row::Row;
use super::show::usd;
use crate::output::{self, three_digits};
use preflop_core::model::Form;
use preflop_core::report::advise;
use preflop_core::time::TimeModel;
use preflop_core::units::{Bytes, Seconds};

/// A way to run is worth a word from this share of the time.
const WORTH: f64 = 0.05;

/// The sentences. `rows` are all GPUs that were compared; those without room are shown too if `all`.
pub fn verdict(question: &Question, rows: &[Row], model: &TimeModel, all: bool) -> Vec<String> {
    let fitting: Vec<&Row> = rows.iter().filter(|r| r.fits).collect();
    let Some(fastest) = fitting.iter().copied().max_by(|a, b| a.samples_per_s.total_cmp(&b.samples_per_s))
    else {
        return no_room(rows).into_iter().collect();
    };
    let mut parts = vec![format!(
        "Fastest that fits: {}, {} per iteration{}.",
        fastest.gpu,
        output::time(Seconds(fastest.iteration_ms / 1e3)),
        price(fastest)
    )];
    let priced = || fitting.iter().copied().filter(|r| r.usd_per_million_samples.is_some());
    let dollars = |r: &Row| r.usd_per_million_samples.unwrap_or(f64::INFINITY);
    if let Some(cheapest) = priced().min_by(|a, b| dollars(a).total_cmp(&dollars(b))) {
        if cheapest.gpu == fastest.gpu {
            parts.push("It is the cheapest too.".to_string());
        } else {
            let slower = fastest.samples_per_s / cheapest.samples_per_s;
            parts.push(format!(
                "Cheapest: {}{}, {} times as long.",
                cheapest.gpu,
                price(cheapest),
                three_digits(slower)
            ));
        }
        // Time and money count alike: the least product of both.
        let value = |r: &Row| dollars(r) / r.samples_per_s;
        if let Some(best) = priced().min_by(|a, b| value(a).total_cmp(&value(b))) {
            let also = [&fastest.gpu, &cheapest.gpu].contains(&&best.gpu);
            let what = if also { String::new() } else { price(best) };
            parts.push(format!("Best value (least time x cost): {}{what}.", best.gpu));
        }
    }
    parts.extend(better(question, fastest, model));
    let folded = rows.len() - fitting.len();
    if folded > 0 && !question.named {
        let (has, verb) = if folded == 1 { ("GPU", "has") } else { ("GPUs", "have") };
        let hint = if all { "" } else { " (--all shows them)" };
        parts.push(format!("{folded} {has} {verb} too little memory{hint}."));
    }
    vec![parts.join(" ")]
}

fn price(row: &Row) -> String {
    let per_million = row.usd_per_million_samples;
    per_million.map_or_else(String::new, |x| format!(", {} per million samples", usd(x)))
}

/// What `advise` would say first about the fastest GPU.
fn better(question: &Question, fastest: &Row, model: &TimeModel) -> Option<String> {
    let gpu = question.gpus.iter().find(|g| g.name == fastest.gpu)?;
    let setup = question
        .setups
        .iter()
        .find(|s| s.batch == fastest.batch && s.precision.name() == fastest.precision)?;
    let graph = question.graph(setup).ok()?;
    let form = Form { run: Some(question.form.run(&graph).ok()?), ..question.form };
    let ranking = advise::rank_together(model, &graph, question.options(setup), form, gpu, 2);
    let best = ranking.options.iter().find(|o| o.fits && o.gain >= WORTH)?;
    Some(format!(
        "To do better: {} on {} saves {:.0} % of the time per sample.",
        best.options.join(" "),
        fastest.gpu,
        100.0 * best.gain
    ))
}

/// Nothing fits: the GPU with the most memory, and what would fit there.
fn no_room(rows: &[Row]) -> Option<String> {
    let most = rows.iter().max_by(|a, b| a.gpu_memory_mib.total_cmp(&b.gpu_memory_mib))?;
    let help = most.changes.iter().find(|c| c.fits).map_or_else(
        || "no simple change makes it fit".to_string(),
        |c| format!("it fits with {}, in {} times the time", c.change, three_digits(c.time_ratio)),
    );
    Some(format!(
        "No GPU has room: {} has the most, {}, and {} is needed; {help}.",
        most.gpu,
        output::memory(Bytes::from_mib(most.gpu_memory_mib)),
        output::memory(Bytes::from_mib(most.needed_mib))
    ))
}
