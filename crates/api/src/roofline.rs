//! `roofline`: the data of the charts, the same as the command line writes into its pages.

use crate::engine::Engine;
use crate::error::ApiError;
use crate::question::Roofline;
use crate::view::PageView;
use preflop_core::cost::search;
use preflop_core::roofline::{By, Machine, MachineData, Rows, entries_of_iteration};
use preflop_core::schedule::Schedule as _;
use serde::Serialize;
use utoipa::ToSchema;

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RooflineAnswer)]
pub struct Answer {
    title: String,
    /// Points are single calls.
    per_call: bool,
    views: Vec<PageView>,
}

/// Rows of a chart that a page shows one by one.
const MAX_MARKS: usize = 2000;
/// GPUs of one chart.
const MAX_VIEWS: usize = 8;

/// One view per GPU.
pub fn answer(engine: &Engine, asked: &Roofline) -> Result<Answer, ApiError> {
    let gpus = engine.some_gpus(Some(&asked.gpus))?;
    if gpus.len() > MAX_VIEWS {
        return Err(ApiError::invalid(format!("a chart shows at most {MAX_VIEWS} GPUs, not {}", gpus.len())));
    }
    let job = engine.jobs.job(&asked.run)?;
    if let Some(lacks) = gpus.iter().find_map(|gpu| search::lacks(gpu, asked.run.precision)) {
        return Err(ApiError::invalid(lacks));
    }
    let seq = job.seq.map_or(String::new(), |s| format!(", sequence {s}"));
    let (precision, mode) = (asked.run.precision.name(), asked.run.mode.name());
    let title = format!("{}, batch {}{seq}, {precision}, {mode}", job.model, job.batch);
    let views = gpus
        .into_iter()
        .map(|gpu| {
            let prediction = engine.model.predict_iteration(&job.iteration, gpu);
            let machine = Machine::of(gpu);
            let rows =
                Rows::new(&entries_of_iteration(&job.iteration, &prediction, gpu), By::Operator, &machine);
            PageView::new("", MachineData::from(&machine), &rows, None, MAX_MARKS)
        })
        .collect();
    Ok(Answer { title, per_call: true, views })
}
