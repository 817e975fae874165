//! An inference server: its own kernels for attention, quantised products and experts, fused elementwise kernels, decode steps as CUDA graphs.
//!
//! `forms`, `attention`, `experts`, `products` and `blocked` have the closed forms, `formats` the number formats, `tuned` the shapes that a server has tuned kernels for, `constants` reads `data/fitted/served.toml` and the trees beside it, `operator` asks them for single operators,
//! `stack` puts the steps of a model together.

pub mod attention;
pub mod blocked;
pub mod constants;
pub mod experts;
pub mod formats;
pub mod forms;
pub mod operator;
pub mod products;
pub mod stack;
pub mod tuned;

pub use constants::Constants;
pub use formats::{Formats, KvFormat, Unfit, WeightFormat};
pub use stack::Served;

use preflop_core::Gpu;

/// Times of kernels that were measured in no such format or on no such generation lie between these shares of the prediction.
const UNSEEN: [f64; 2] = [0.5, 2.0];

/// What a reader of a server's times should know: what was measured, and what follows from bytes alone.
pub fn notes(constants: &Constants, formats: Formats, gpu: &Gpu) -> Vec<String> {
    let Formats { weights, kv } = formats;
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
    match weights.operands(gpu) {
        Some(_) if weights == WeightFormat::Mxfp4 => {
            notes.push("no product with mxfp4 weights was measured: those with nvfp4 stand in, within a factor of two".into());
        }
        Some(operands) if !constants.measured(operands.kind(), gpu) => notes.push(format!(
            "no product with {} weights was measured on this GPU's generation: others stand in, within a factor of two",
            weights.name()
        )),
        None if weights != WeightFormat::Bf16 => notes.push(format!(
            "no product with {} weights was measured: its time follows from its bytes, within a factor of two",
            weights.name()
        )),
        _ => {}
    }
    if !kv.measured() {
        notes.push(format!(
            "attention with keys and values in {} was measured nowhere: their memory is exact, its time follows from their bytes, within a factor of two",
            kv.name()
        ));
    }
    notes
}
