//! `explore`: what changed designs of a GPU do to a network.

use crate::engine::Engine;
use crate::error::ApiError;
use crate::question::{DesignQuestion, Explore, MAX_DESIGNS};
use crate::schema::{SCALE_RANGE, TILE_EDGES};
use preflop_core::delta::networks;
use preflop_core::delta::{Bottleneck, Machine, Readings};
use preflop_core::explore::{
    AREA_WEIGHTS, AreaWeights, Design, KEYS, Scales, Workload, paper_options, pareto,
};
use preflop_core::names::did_you_mean;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use utoipa::ToSchema;

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ExploreAnswer)]
pub struct Answer {
    base: String,
    network: String,
    base_time_ms: f64,
    layers: u64,
    designs: Vec<Row>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DesignAnswer)]
pub struct Row {
    name: String,
    scales: Scales,
    time_ms: f64,
    speedup: f64,
    /// Layers by what binds them.
    bottlenecks: BTreeMap<&'static str, u64>,
    /// Time in those layers.
    bottleneck_ms: BTreeMap<&'static str, f64>,
    /// What binds most of the time, what would bind once that is gone, and the most that removing it gives.
    bottleneck: &'static str,
    next_bottleneck: &'static str,
    headroom: f64,
    cost: f64,
    on_front: bool,
}

/// Evaluates the designs.
pub fn answer(engine: &Engine, asked: &Explore) -> Result<Answer, ApiError> {
    let gpu = engine.gpu(&asked.base)?;
    let designs = match &asked.designs {
        None => paper_options(),
        Some(list) if list.is_empty() || list.len() > MAX_DESIGNS => {
            let message = format!("`designs` takes 1 to {MAX_DESIGNS} designs, not {}", list.len());
            return Err(ApiError::invalid(message));
        }
        Some(list) => list.iter().map(design).collect::<Result<_, _>>()?,
    };
    let mut layers = networks::find(&asked.network, asked.batch)?;
    for named in &mut layers {
        named.layer.element_bytes = asked.dtype.size();
    }
    let machine = Machine::of(gpu, asked.dtype);
    let edges: BTreeSet<u32> = designs.iter().map(|d| d.scales.tile).collect();
    let workload = Workload::new(&layers, &machine, edges, Readings::default())?;
    let weights = AreaWeights::parse(AREA_WEIGHTS, "data/area_weights.toml")?;
    let mut rows = Vec::with_capacity(designs.len());
    for design in &designs {
        let result = workload.evaluate(design)?;
        let next = workload.next(design)?;
        let bound = || Bottleneck::ALL.into_iter().filter(|b| result.layers(*b) > 0);
        rows.push(Row {
            name: design.name.clone(),
            scales: design.scales,
            time_ms: result.time.ms(),
            speedup: result.speedup,
            bottlenecks: bound().map(|b| (b.name(), result.layers(b))).collect(),
            bottleneck_ms: bound().map(|b| (b.name(), result.bottleneck_time[b as usize].ms())).collect(),
            bottleneck: next.bottleneck.name(),
            next_bottleneck: next.next.name(),
            headroom: next.headroom,
            cost: weights.cost(&design.scales),
            on_front: false,
        });
    }
    let points: Vec<(f64, f64)> = rows.iter().map(|r| (r.speedup, r.cost)).collect();
    for (row, on_front) in rows.iter_mut().zip(pareto(&points)) {
        row.on_front = on_front;
    }
    Ok(Answer {
        base: gpu.name.clone(),
        network: asked.network.to_lowercase(),
        base_time_ms: workload.base_time().ms(),
        layers: layers.len() as u64,
        designs: rows,
    })
}

fn design(asked: &DesignQuestion) -> Result<Design, ApiError> {
    let mut scales = Scales::default();
    for (key, value) in &asked.scales {
        let [least, most] = SCALE_RANGE;
        let allowed = if key == "tile" { TILE_EDGES.contains(value) } else { (least..=most).contains(value) };
        let known = KEYS.contains(&key.as_str());
        if known && !allowed {
            let range =
                if key == "tile" { "128 or 256".to_string() } else { format!("from {least} to {most}") };
            return Err(ApiError::invalid(format!("`{key}` is {value}; it must be {range}")));
        }
        scales = scales.with(key, *value).ok_or_else(|| {
            let shown: String = key.chars().take(40).collect();
            ApiError::invalid(format!(
                "unknown resource `{shown}`{}; there are {}",
                did_you_mean(&shown, KEYS),
                KEYS.join(", ")
            ))
        })?;
    }
    Ok(Design { name: asked.name.chars().take(80).collect(), scales })
}
