//! `advise`: single options that make a run faster, each predicted.

use crate::engine::Engine;
use crate::error::ApiError;
use crate::question::Advise;
use preflop_core::model::{Form, Stage};
use preflop_core::report::advise::{Ranking, rank_together};

/// Builds the model and tries the options one by one.
pub fn answer(engine: &Engine, asked: &Advise) -> Result<Ranking, ApiError> {
    let gpu = engine.gpu(&asked.gpu)?;
    let job = engine.jobs.job(&asked.run)?;
    let sizes = if job.fixed.is_some() { (None, None) } else { (Some(job.batch), job.seq) };
    let mut graph = engine.jobs.build(&job.asked, sizes.0, sizes.1, Stage::Full)?;
    job.form.shape(&mut graph, job.options.mode)?;
    let form = Form { run: job.form.run.or(job.fixed), ..job.form };
    Ok(rank_together(&engine.model, &graph, job.options, form, gpu, 1))
}
