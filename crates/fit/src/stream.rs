//! Fits the operators that are bound by memory.

use crate::data::Measured;
use crate::gbdt::Settings;
use crate::samples::{Sample, cross_validate};
use crate::score::score;
use preflop_core::gpu::Gpu;
use preflop_core::kernels::stream;
use preflop_core::ops::Family;
use std::collections::BTreeMap;

/// The families fitted here.
pub const FAMILIES: [Family; 4] = [Family::Rowwise, Family::Spatial, Family::Elementwise, Family::Movement];

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
            class: format!("{}/{}", m.call.name(), m.call.pass.name()),
            gpu: m.gpu,
            group: i,
            weight: 1.0,
        })
        .collect()
}

pub fn report(measured: &[Measured], gpus: &[Gpu], settings: &Settings) {
    for family in FAMILIES {
        let s = samples(measured, gpus, family);
        let p = cross_validate(&s, stream::FEATURES, settings, 5);
        println!("{:12} form {}", family.name(), score(s.iter().map(|s| (s.reference, s.seconds))));
        println!("{:12} cv   {}", family.name(), score(s.iter().zip(&p).map(|(s, p)| (*p, s.seconds))));
        let mut by: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
        for (s, p) in s.iter().zip(&p) {
            by.entry(&s.class).or_default().push((*p, s.seconds));
        }
        for (c, v) in by {
            println!("    {c:24} {}", score(v));
        }
    }
}
