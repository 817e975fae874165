//! Captured graphs with numbers changed at random: lowering gives an iteration whose operators can be predicted, or an
//! error.
//!
//! Random text is hardly ever a graph, so the input is a list of edits on graphs that are: the first byte picks the
//! graph, each following group of six bytes sets one number. The graphs are single layers and the first nodes of networks,
//! and of the operators of some one is predicted, as a thousand small questions find more than ten large ones.
#![no_main]

use libfuzzer_sys::fuzz_target;
use preflop_core::model::zoo::config::HubConfig;
use preflop_core::model::{Graph, LowerOptions, Mode, Precision, lower, zoo};
use preflop_core::schedule::Schedule as _;
use preflop_core::time::TimeModel;
use preflop_core::{Gpu, gpu};
use serde::Deserialize as _;
use serde_json::{Value, json};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Networks whose first nodes are taken.
const NETWORKS: [&str; 5] = ["alexnet", "dcgan", "gnmt", "resnet18", "mobilenet_v2"];
/// How many of them.
const FIRST: usize = 5;
/// Families of which one layer is built.
const FAMILIES: [&str; 3] = ["gpt2", "llama", "bert"];

/// Graphs with the places of their numbers. An input edits them where they stand and puts back what was there: to copy and drop a
/// document costs as much as to read it.
static GRAPHS: LazyLock<Vec<Mutex<Subject>>> = LazyLock::new(|| {
    let cut = NETWORKS.iter().map(|name| {
        let mut graph = zoo::build(name, Some(2), None).expect("a zoo model");
        graph.nodes.truncate(FIRST);
        graph.kept.clear();
        // Only what these nodes use: the rest would be read again and again for nothing.
        let last = |ids: &mut dyn Iterator<Item = u32>| ids.max().map_or(0, |id| id as usize + 1);
        let tensors = last(&mut graph.nodes.iter().flat_map(|n| n.inputs.iter().chain(&n.outputs)).copied());
        let parameters = last(&mut graph.nodes.iter().flat_map(|n| &n.parameters).copied());
        graph.tensors.truncate(tensors);
        graph.parameters.truncate(parameters);
        graph
    });
    let layers = FAMILIES.iter().filter_map(|family| {
        let config = json!({ "model_type": family, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
            "intermediate_size": 128, "vocab_size": 512, "max_position_embeddings": 64 });
        serde_json::from_value::<HubConfig>(config).ok()?.build(family, Some(2), Some(16)).ok()
    });
    let graphs: Vec<_> = cut.chain(layers).map(|graph| Mutex::new(with_places(graph))).collect();
    assert!(graphs.len() > NETWORKS.len(), "no layer could be built");
    graphs
});
static MODEL: LazyLock<TimeModel> = LazyLock::new(TimeModel::embedded);
static H200: LazyLock<Gpu> = LazyLock::new(|| gpu::catalog::find("h200").expect("a catalogue GPU"));

type Subject = (Value, Vec<String>);

fn with_places(graph: Graph) -> Subject {
    let value = serde_json::to_value(graph).expect("a graph is JSON");
    let mut places = Vec::new();
    numbers(&value, String::new(), &mut places);
    (value, places)
}

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
    let Some((pick, edits)) = data.split_first() else { return };
    let mut subject = GRAPHS[usize::from(*pick) % GRAPHS.len()].lock().unwrap_or_else(PoisonError::into_inner);
    let (document, places) = &mut *subject;
    let mut before = Vec::new();
    for edit in edits.chunks_exact(6).take(8) {
        let place = &places[usize::from(u16::from_le_bytes([edit[0], edit[1]])) % places.len()];
        let raw = u64::from(u32::from_le_bytes([edit[2], edit[3], edit[4], edit[5]]));
        // The top bits pick the size: small numbers are the interesting ones.
        let value = match raw >> 30 {
            0 => raw & 0xf,
            1 => raw & 0x3ff,
            2 => raw & 0x3fff_ffff,
            _ => raw << 32,
        };
        if let Some(number) = document.pointer_mut(place) {
            before.push((place, std::mem::replace(number, Value::from(value))));
        }
    }
    let graph = Graph::deserialize(&*document);
    for (place, value) in before.into_iter().rev() {
        if let Some(number) = document.pointer_mut(place) {
            *number = value;
        }
    }
    let Ok(graph) = graph else { return };
    let (mode, precision) = if pick & 64 == 0 { (Mode::Train, Precision::Amp) } else { (Mode::Infer, Precision::Fp32) };
    let Ok(iteration) = lower(&graph, &LowerOptions { mode, precision, optimizer: None }) else { return };
    // A prediction takes longer than reading and lowering together: some inputs are predicted, all are lowered.
    let turn = usize::from(*pick >> 3) + edits.len();
    if turn % 16 == 0
        && let Some(step) = iteration.steps.get(turn / 16 % iteration.steps.len().max(1))
    {
        let p = MODEL.predict(&step.call, &H200);
        assert!(p.time.0.is_finite() && p.time.0 > 0.0, "{p:?}");
    }
    if turn % 512 == 0 {
        let p = MODEL.predict_iteration(&iteration, &H200);
        assert!(p.time.0.is_finite() && p.low <= p.time && p.time <= p.high, "{p:?}");
    }
});
