//! `advise`: single options that make a run faster, each predicted.

use crate::engine::Engine;
use crate::error::ApiError;
use crate::question::Advise;
use preflop_core::model::{Run, Stage};
use preflop_core::report::advise::{Ranking, rank_together};

/// Builds the model and tries the options one by one.
pub fn answer(engine: &Engine, asked: &Advise) -> Result<Ranking, ApiError> {
    let gpu = engine.gpu(&asked.gpu)?;
    let job = engine.jobs.job(&asked.run)?;
    let sizes = if job.fixed.is_some() { (None, None) } else { (Some(job.batch), job.seq) };
    let graph = engine.jobs.build(&job.asked, sizes.0, sizes.1, Stage::Full)?;
    Ok(rank_together(&engine.model, &graph, job.options, job.fixed.unwrap_or(Run::Eager), gpu, 1))
}
