//! An inference server: its own kernels for attention, quantised products and experts, fused elementwise kernels, decode steps as CUDA graphs.
//!
//! `forms`, `attention`, `experts`, `products` and `blocked` have the closed forms, `tuned` the shapes that a server has tuned kernels for, `constants` reads `data/fitted/served.toml` and the trees beside it, `operator` asks them for single operators,
//! `stack` puts the steps of a model together.

pub mod attention;
pub mod blocked;
pub mod constants;
pub mod experts;
pub mod forms;
pub mod operator;
pub mod products;
pub mod stack;
pub mod tuned;

pub use constants::Constants;
pub use stack::{Formats, Served, WeightFormat};

use preflop_core::Gpu;

/// What a reader of a server's times should know: what was measured, and what follows from bytes alone.
pub fn notes(constants: &Constants, weights: WeightFormat, gpu: &Gpu) -> Vec<String> {
    let seen = ["token", "prompt"].iter().all(|kind| constants.measured(kind, gpu));
    let mut notes = vec![if seen {
        "no whole step of a server was measured: kernels of this GPU's generation were, and the interval is wide".to_string()
    } else {
        "not every kernel of a server was measured on this GPU's generation: forms fitted on other generations stand in"
            .to_string()
    }];
    if weights == WeightFormat::Mxfp4 && weights.widened(gpu) {
        notes.push(format!(
            "`{}` does not multiply mxfp4: weights are widened to 16 bits before each product",
            gpu.name
        ));
    }
    if matches!(weights, WeightFormat::Int8 | WeightFormat::Nvfp4 | WeightFormat::Mxfp4) {
        notes.push(format!(
            "no product with {} weights was fitted: its time follows from its bytes",
            weights.name()
        ));
    }
    notes
}
