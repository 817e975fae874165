//! Captured graphs with numbers changed at random: lowering gives an iteration whose operators can be predicted, or an
//! error.
//!
//! Random text is hardly ever a graph, so the input is a list of edits on graphs that are: the first two bytes pick the
//! graph, the third says how it is run, each following group of six bytes sets one number. The graphs are runs of three nodes, one
//! for each sequence of operators that any network of the zoo has: a thousand small questions find more than ten large ones.
#![no_main]

use libfuzzer_sys::fuzz_target;
use preflop_core::model::graph::{GraphOp, Node, When};
use preflop_core::model::{Graph, LowerOptions, Mode, Precision, lower, zoo};
use preflop_core::schedule::Schedule as _;
use preflop_core::time::TimeModel;
use preflop_core::{Gpu, gpu};
use serde::Deserialize as _;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Nodes of one graph.
const RUN: usize = 3;
/// Samples and tokens of the networks that are cut.
const BATCH: u64 = 2;
const TOKENS: u64 = 16;

/// Graphs with the places of their numbers. An input edits them where they stand and puts back what was there: to copy and drop a
/// document costs as much as to read it.
static GRAPHS: LazyLock<Vec<Mutex<Subject>>> = LazyLock::new(|| {
    let mut runs = BTreeMap::new();
    for name in zoo::names() {
        let read =
            zoo::build(name, Some(BATCH), Some(TOKENS)).or_else(|_| zoo::build(name, Some(BATCH), None));
        let whole = read.expect("a network of the zoo");
        for nodes in whole.nodes.windows(RUN) {
            runs.entry(operators(nodes)).or_insert_with(|| cut(&whole, nodes));
        }
    }
    runs.into_values().map(|graph| Mutex::new(with_places(graph))).collect()
});
static MODEL: LazyLock<TimeModel> = LazyLock::new(TimeModel::embedded);
static H200: LazyLock<Gpu> = LazyLock::new(|| gpu::catalog::find("h200").expect("a catalogue GPU"));

type Subject = (Value, Vec<String>);

/// What the nodes do, without its numbers.
fn operators(nodes: &[Node]) -> String {
    let named = nodes.iter().map(|n| format!("{:?} {:?} {}", n.op, n.when, n.parameters.len()));
    named.flat_map(|text| text.chars().filter(|c| !c.is_ascii_digit()).collect::<Vec<_>>()).collect()
}

/// Some nodes of a graph as one of its own: what others computed for them comes from outside, and the last result is the loss.
fn cut(whole: &Graph, nodes: &[Node]) -> Graph {
    let mut graph = Graph { tensors: Vec::new(), parameters: Vec::new(), nodes: Vec::new(), ..whole.clone() };
    (graph.kept, graph.held, graph.loss) = Default::default();
    let (mut tensors, mut parameters) = (HashMap::new(), HashMap::new());
    let mut outside = Vec::new();
    for node in nodes {
        let mut node = node.clone();
        for parameter in &mut node.parameters {
            *parameter = *parameters.entry(*parameter).or_insert_with(|| {
                graph.parameters.push(whole.parameters[*parameter as usize].clone());
                graph.parameters.len() as u32 - 1
            });
        }
        let inputs = node.inputs.len();
        for (place, tensor) in node.inputs.iter_mut().chain(&mut node.outputs).enumerate() {
            let old = *tensor;
            *tensor = *tensors.entry(old).or_insert_with(|| {
                graph.tensors.push(whole.tensors[old as usize].clone());
                let new = graph.tensors.len() as u32 - 1;
                if place < inputs {
                    let cache =
                        whole.nodes.iter().any(|n| n.op == GraphOp::Cache && n.outputs.contains(&old));
                    let op = if cache { GraphOp::Cache } else { GraphOp::Input };
                    outside.push(Node {
                        name: String::new(),
                        op,
                        inputs: Vec::new(),
                        parameters: Vec::new(),
                        outputs: vec![new],
                        when: When::Always,
                        modules: 0,
                    });
                }
                new
            });
        }
        graph.nodes.push(node);
    }
    graph.loss = graph.nodes.last().and_then(|n| n.outputs.first()).copied();
    graph.nodes.splice(0..0, outside);
    graph
}

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
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, v)| numbers(v, format!("{at}/{i}"), out))
        }
        Value::Object(map) => map.iter().for_each(|(k, v)| numbers(v, format!("{at}/{k}"), out)),
        _ => {}
    }
}

// Building the zoo is no input's time.
fuzz_target!(init: { LazyLock::force(&GRAPHS); }, |data: &[u8]| {
    let [low, high, how, edits @ ..] = data else { return };
    let pick = usize::from(u16::from_le_bytes([*low, *high])) % GRAPHS.len();
    let mut subject = GRAPHS[pick].lock().unwrap_or_else(PoisonError::into_inner);
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
    let (mode, precision) = match how % 4 {
        0 => (Mode::Train, Precision::Amp),
        1 => (Mode::Train, Precision::Fp32),
        2 => (Mode::Infer, Precision::Amp),
        _ => (Mode::Infer, Precision::Fp32),
    };
    let Ok(iteration) = lower(&graph, &LowerOptions { mode, precision, optimizer: None }) else { return };
    // A prediction takes longer than reading and lowering together: some inputs are predicted, all are lowered.
    let turn = usize::from(how / 4) + edits.len();
    if turn % 16 == 0
        && let Some(step) = iteration.steps.get(turn / 16 % iteration.steps.len().max(1))
    {
        let p = MODEL.predict(&step.call, &H200);
        assert!(p.time.0.is_finite() && p.time.0 > 0.0, "{p:?}");
    }
    if turn % 256 == 0 {
        let p = MODEL.predict_iteration(&iteration, &H200);
        assert!(p.time.0.is_finite() && p.low <= p.time && p.time <= p.high, "{p:?}");
    }
});
