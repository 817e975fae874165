//! `layer`: one layer down to its kernels, with tile, waves and traffic.

use crate::engine::Engine;
use crate::error::ApiError;
use crate::question::Layer;
use preflop_core::model::Phase;
use preflop_core::ops::shape;
use preflop_core::time::{Bound, KernelForm};
use serde::Serialize;
use utoipa::ToSchema;

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LayerAnswer)]
pub struct Answer {
    name: String,
    gpu: String,
    operators: Vec<OperatorLine>,
}

/// One operator of the layer; figures are of one call.
#[derive(Debug, Serialize, ToSchema)]
pub struct OperatorLine {
    op: String,
    #[schema(value_type = String)]
    phase: Phase,
    pass: &'static str,
    dtype: &'static str,
    shape: String,
    count: u64,
    time_us: f64,
    low_us: f64,
    high_us: f64,
    #[schema(value_type = String)]
    bound: Bound,
    flops: f64,
    l1_bytes: f64,
    l2_bytes: f64,
    dram_bytes: f64,
    launches: f64,
    kernel: KernelForm,
}

/// All operators of the layer in the order in which they run.
pub fn answer(engine: &Engine, asked: &Layer) -> Result<Answer, ApiError> {
    let gpu = engine.gpu(&asked.gpu)?;
    let job = engine.jobs.job(&asked.run)?;
    let mut operators: Vec<OperatorLine> = Vec::new();
    for step in job.iteration.steps.iter().filter(|s| s.name == asked.name) {
        let call = step.call.in_format(gpu.runs_in(step.call.dtype));
        let p = engine.model.predict(&call, gpu);
        operators.push(OperatorLine {
            op: step.call.name().to_string(),
            phase: step.phase,
            pass: step.call.pass.name(),
            dtype: call.dtype.name(),
            shape: shape::describe(&step.call),
            count: u64::from(step.count),
            time_us: p.time.us(),
            low_us: p.low.us(),
            high_us: p.high.us(),
            bound: p.bound,
            flops: p.flops.0,
            l1_bytes: p.l1.0,
            l2_bytes: p.l2.0,
            dram_bytes: p.dram.0,
            launches: p.launches,
            kernel: engine.model.kernel_form(&call, gpu),
        });
    }
    if operators.is_empty() {
        let name: String = asked.name.chars().take(80).collect();
        return Err(ApiError::Invalid {
            message: format!("`{}` has no layer `{name}`", job.model),
            hint: Some("ask `predict` with `layers` for the names"),
        });
    }
    Ok(Answer { name: asked.name.clone(), gpu: gpu.name.clone(), operators })
}
