//! What fits into a GPU's memory, of a run as the command line describes it.

use crate::grid::Grid;
use crate::output::{self, Align, Output, three_digits};
use crate::run_args::{Job, RunArgs};
use preflop_cluster::room;
use preflop_core::Gpu;
use preflop_core::cost::room::{Change, Misfit, Room};
use preflop_core::cost::{Reserve, fit};
use preflop_core::model::zoo;
use preflop_core::time::TimeModel;
use preflop_core::units::Bytes;
use std::io::{self, Write};

/// Longest options that stand beside their change; longer ones stand below all, so that no column has to go for them.
const WIDEST_HOW: usize = 44;

/// What would make a run fit that does not, on one GPU, on another and on several.
pub fn changes(
    (model, run): (&str, &RunArgs),
    job: &Job,
    gpu: &Gpu,
    time_model: &TimeModel,
    largest_batch: Option<u64>,
) -> Vec<Change> {
    let reserve = Reserve::default();
    let at = Misfit { model: time_model, gpu, reserve: &reserve, largest_batch, elsewhere: true };
    let other = |batch: u64| (batch != job.graph.samples).then_some(batch);
    let network = |batch| run.network(model, other(batch), None).ok();
    room::changes(&mut Room::new(job.options, job.form, &job.iteration, network), &at)
}

/// The largest batch that fits, as `compare` finds it, where the one asked for does not; a recorded step and many files have no other.
pub fn largest_batch((model, run): (&str, &RunArgs), job: &Job, gpu: &Gpu) -> Option<u64> {
    let reserve = Reserve::default();
    if job.graph.fixed.is_some() || reserve.fits(fit::prudent_peak(&job.iteration), gpu) {
        return None;
    }
    let peak = |batch| -> anyhow::Result<Bytes> {
        let lowered = run.network(model, Some(batch), None).and_then(|mut graph| {
            job.form.shape(&mut graph, job.options.mode)?;
            Ok(job.form.lower(&graph, &job.options)?)
        });
        match lowered {
            // Beyond what the model itself allows nothing fits.
            Err(_) if batch > 1 => Ok(Bytes(f64::INFINITY)),
            other => other.map(|iteration| fit::prudent_peak(&iteration)),
        }
    };
    fit::largest_batch(gpu, &reserve, zoo::MAX_BATCH, peak).ok()
}

/// The list for people: what to change, what that takes (the time of a sample over that of the run as asked for), and how to say it.
pub fn write(changes: &[Change], out: &mut impl Write, output: &Output) -> io::Result<()> {
    if changes.is_empty() {
        return writeln!(
            out,
            "{}",
            output::wrapped("Nothing that was tried makes it fit.", output.width, "  ")
        );
    }
    let fits = changes.iter().any(|c| c.fits);
    let title = if fits { "what would make it fit" } else { "nothing makes it fit; nearest" };
    let mut grid = Grid::default();
    grid.add(title, Align::Keep, 0, changes.iter().map(|c| c.change.clone()));
    let memory = |c: &Change| output::memory(Bytes::from_mib(c.memory_mib));
    grid.add("memory", Align::Right, 2, changes.iter().map(memory));
    let time = |c: &Change| format!("{} x", three_digits(c.time_ratio));
    grid.add("time/sample", Align::Right, 0, changes.iter().map(time));
    let how: Vec<String> = changes.iter().map(|c| c.options.join(" ")).collect();
    let is_long = |how: &&String| how.len() > WIDEST_HOW;
    grid.add("how", Align::Keep, 1, how.iter().map(|h| if is_long(&h) { "below".into() } else { h.clone() }));
    let is_hidden = grid.write(out, output)?.contains(&"how");
    for (change, how) in changes.iter().zip(&how).filter(|(_, how)| is_hidden || is_long(how)) {
        writeln!(out, "{}", output::hanging(&format!("  {}  ", change.change), how, output.width))?;
    }
    Ok(())
}
