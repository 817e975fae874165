//! `delta`: the published model, layer by layer.

use crate::engine::Engine;
use crate::error::ApiError;
use crate::question::Delta;
use preflop_core::delta::{Bottleneck, Fig6, Machine, Readings, evaluate, networks};
use preflop_core::units::Seconds;
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DeltaAnswer)]
pub struct Answer {
    gpu: String,
    layers: Vec<LayerRow>,
    total_ms: f64,
    bottlenecks: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DeltaLayer)]
pub struct LayerRow {
    name: String,
    l1_bytes: f64,
    l2_bytes: f64,
    dram_bytes: f64,
    time_ms: f64,
    #[schema(value_type = String)]
    bottleneck: Bottleneck,
    #[schema(value_type = String)]
    next_bottleneck: Bottleneck,
    headroom: f64,
    bounds_ms: BTreeMap<&'static str, f64>,
    cta_tile: [u64; 3],
    num_cta: u64,
    active_ctas_per_sm: u64,
}

/// Evaluates every layer.
pub fn answer(engine: &Engine, asked: &Delta) -> Result<Answer, ApiError> {
    let gpu = engine.gpu(&asked.gpu)?;
    let machine = Machine::of(gpu, asked.dtype);
    let mut layers = Vec::new();
    let mut total = Seconds::ZERO;
    let mut bottlenecks = BTreeMap::new();
    for mut named in networks::find(&asked.network, asked.batch)? {
        named.layer.element_bytes = asked.dtype.size();
        let r = evaluate(&named.layer, &machine, &Fig6, Readings::default())
            .map_err(|e| ApiError::from(e.in_layer(&named.name)))?;
        total += r.time;
        *bottlenecks.entry(r.bottleneck.name()).or_insert(0) += 1;
        layers.push(LayerRow {
            name: named.name,
            l1_bytes: r.traffic.l1.0,
            l2_bytes: r.traffic.l2.0,
            dram_bytes: r.traffic.dram.0,
            time_ms: r.time.ms(),
            bottleneck: r.bottleneck,
            next_bottleneck: r.next,
            headroom: r.headroom(),
            bounds_ms: Bottleneck::ALL.iter().map(|b| (b.name(), r.bound(*b).ms())).collect(),
            cta_tile: [r.tile.blk_m as u64, r.tile.blk_n as u64, r.tile.blk_k as u64],
            num_cta: r.num_cta as u64,
            active_ctas_per_sm: r.active_ctas as u64,
        });
    }
    Ok(Answer { gpu: gpu.name.clone(), layers, total_ms: total.ms(), bottlenecks })
}
