//! Captured graphs with numbers changed at random: lowering gives an iteration whose operators can be predicted, or an
//! error.
//!
//! Random text is hardly ever a graph, so the input is a list of edits on graphs that are: the first byte picks the
//! model, each following group of six bytes sets one number.
#![no_main]

use libfuzzer_sys::fuzz_target;
use preflop_core::model::{Graph, LowerOptions, Mode, Precision, lower, zoo};
use preflop_core::time::TimeModel;
use preflop_core::{Gpu, gpu};
use serde_json::Value;
use std::sync::LazyLock;

/// A small model of each kind.
const MODELS: [&str; 6] = ["alexnet", "dcgan", "gnmt", "gpt2", "resnet18", "mobilenet_v2"];

static GRAPHS: LazyLock<Vec<(Value, Vec<String>)>> = LazyLock::new(|| {
    let build = |name: &&str| {
        let graph = zoo::build(name, Some(2), None).expect("a zoo model");
        let value = serde_json::to_value(graph).expect("a graph is JSON");
        let mut places = Vec::new();
        numbers(&value, String::new(), &mut places);
        (value, places)
    };
    MODELS.iter().map(build).collect()
});
static MODEL: LazyLock<TimeModel> = LazyLock::new(TimeModel::embedded);
static H200: LazyLock<Gpu> = LazyLock::new(|| gpu::catalog::find("h200").expect("a catalogue GPU"));

/// JSON pointers of all numbers.
fn numbers(value: &Value, at: String, out: &mut Vec<String>) {
    match value {
        Value::Number(_) => out.push(at),
        Value::Array(items) => items.iter().enumerate().for_each(|(i, v)| numbers(v, format!("{at}/{i}"), out)),
        Value::Object(map) => map.iter().for_each(|(k, v)| numbers(v, format!("{at}/{k}"), out)),
        _ => {}
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((model, edits)) = data.split_first() else { return };
    let (graph, places) = &GRAPHS[usize::from(*model) % MODELS.len()];
    let mut graph = graph.clone();
    for edit in edits.chunks_exact(6).take(8) {
        let place = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % places.len();
        let raw = u64::from(u32::from_le_bytes([edit[2], edit[3], edit[4], edit[5]]));
        // The top bits pick the size: small numbers are the interesting ones.
        let value = match raw >> 30 {
            0 => raw & 0xf,
            1 => raw & 0x3ff,
            2 => raw & 0x3fff_ffff,
            _ => raw << 32,
        };
        if let Some(number) = graph.pointer_mut(&places[place]) {
            *number = Value::from(value);
        }
    }
    let Ok(graph) = serde_json::from_value::<Graph>(graph) else { return };
    for (mode, precision) in [(Mode::Train, Precision::Amp), (Mode::Infer, Precision::Fp32)] {
        let Ok(iteration) = lower(&graph, &LowerOptions { mode, precision, optimizer: None }) else { continue };
        let p = MODEL.predict_iteration(&iteration, &H200);
        assert!(p.time.0.is_finite() && p.time.0 > 0.0, "{p:?}");
        assert!(p.low <= p.time && p.time <= p.high, "{p:?}");
    }
});
