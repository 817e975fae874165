//! The shipped model against published measurements on other GPUs.

use crate::data::{self, GPUS, Measured};
use crate::score::score;
use anyhow::Result;
use preflop_core::gpu::Gpu;
use preflop_core::time::TimeModel;
use std::collections::BTreeMap;
use std::path::Path;

/// Host time hides below this in the fp32 files.
const LEAST_US: f64 = 200.0;

/// Prints errors by file, operator and GPU. Vector operators and recurrent layers of these files were in no fit.
pub fn report(shared: &Path, gpus: &[Gpu]) -> Result<()> {
    let model = TimeModel::embedded();
    let long = |rows: Vec<Measured>| rows.into_iter().filter(|m| m.us > LEAST_US).collect::<Vec<_>>();
    let files = [
        ("fp32 products (in the fit)", long(data::fp32_products(shared)?)),
        ("fp32 vector operators", long(data::fp32_vectors(shared)?)),
        ("fp32 recurrent layers", data::published_rnn(shared)?),
        ("bf16 products (in the fit)", data::bf16_products(shared)?),
        ("attention (in the fit)", data::published_attention(shared)?),
    ];
    for (name, rows) in files {
        let mut groups: BTreeMap<(usize, String), Vec<(f64, f64)>> = BTreeMap::new();
        for m in rows.iter().step_by((rows.len() / 40_000).max(1)) {
            let pair = (model.predict(&m.call, &gpus[m.gpu]).time.us(), m.us);
            groups.entry((m.gpu, String::new())).or_default().push(pair);
            groups.entry((m.gpu, m.call.name().to_string())).or_default().push(pair);
        }
        println!("{name}");
        for ((gpu, op), pairs) in groups {
            println!("  {:16} {op:12} {}", GPUS[gpu], score(pairs));
        }
    }
    Ok(())
}
