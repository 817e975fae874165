//! `advise`: single options that make a run faster, each predicted.

use crate::engine::Engine;
use crate::error::ApiError;
use crate::question::Advise;
use preflop_core::model::zoo;
use preflop_core::report::advise::{Ranking, rank_together};

/// Builds the model and tries the options one by one.
pub fn answer(engine: &Engine, asked: &Advise) -> Result<Ranking, ApiError> {
    let gpu = engine.gpu(&asked.gpu)?;
    let job = engine.jobs.job(&asked.run)?;
    let mut graph = zoo::build(&job.model, Some(job.batch), job.seq)?;
    job.form.shape(&mut graph, job.options.mode)?;
    Ok(rank_together(&engine.model, &graph, job.options, job.form, gpu, 1))
}
