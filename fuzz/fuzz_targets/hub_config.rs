//! Any bytes as a Hugging Face configuration: a graph that lowers, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use preflop_core::model::zoo::config::HubConfig;
use preflop_core::model::{LowerOptions, Mode, Precision, lower};

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut config) = serde_json::from_slice::<serde_json::Value>(bytes) else { return };
    // Many layers are one layer many times.
    for key in ["num_hidden_layers", "n_layer"] {
        if let Some(layers) = config.get_mut(key).filter(|n| n.as_u64().is_some_and(|n| n > 2)) {
            *layers = 2.into();
        }
    }
    let Ok(config) = serde_json::from_value::<HubConfig>(config) else { return };
    let Ok(graph) = config.build("fuzz", Some(2), Some(16)) else { return };
    let options = LowerOptions { mode: Mode::Infer, precision: Precision::Fp32, optimizer: None };
    if let Ok(iteration) = lower(&graph, &options) {
        assert!(iteration.memory.peak.0.is_finite());
    }
});
