//! Fits the operators that are bound by memory.

use crate::data::Measured;
use crate::samples::Sample;
use preflop_core::gpu::Gpu;
use preflop_core::kernels::stream;
use preflop_core::ops::Family;

/// The families fitted here.
pub const FAMILIES: [Family; 4] = [Family::Rowwise, Family::Spatial, Family::Elementwise, Family::Movement];

/// Its name in the report.
pub fn name(family: Family) -> &'static str {
    match family {
        Family::Rowwise => "rowwise",
        Family::Spatial => "spatial",
        Family::Elementwise => "elementwise",
        _ => "movement",
    }
}

/// The samples of one family.
pub fn samples(measured: &[Measured], gpus: &[Gpu], family: Family) -> Vec<Sample> {
    measured
        .iter()
        .filter(|m| m.call.family() == family)
        .enumerate()
        .map(|(i, m)| Sample {
            x: stream::features(&m.call, &gpus[m.gpu]),
            reference: stream::reference(&m.call, &gpus[m.gpu]),
            seconds: m.us * 1e-6,
            forest: stream::forest_name(&m.call),
            class: stream::interval_class(&m.call),
            gpu: m.gpu,
            group: i,
            weight: 1.0,
            source: m.source,
        })
        .collect()
}
