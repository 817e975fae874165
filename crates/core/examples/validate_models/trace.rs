//! Counts the ATen operators of a Kineto trace that launched kernels.

use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::Path;

#[derive(Deserialize)]
struct Trace {
    #[serde(rename = "traceEvents")]
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    cat: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    tid: serde_json::Value,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    args: Args,
}

#[derive(Deserialize, Default)]
struct Args {
    correlation: Option<u64>,
    #[serde(rename = "Input Dims", default)]
    dims: Vec<serde_json::Value>,
}

/// `2 m n k` of a traced product, from the shapes of its last two operands.
fn product_flops(op: &Event) -> f64 {
    let dims = |v: &serde_json::Value| -> Vec<f64> {
        v.as_array().map(|a| a.iter().filter_map(serde_json::Value::as_f64).collect()).unwrap_or_default()
    };
    let at = match op.name.as_str() {
        "aten::mm" | "aten::bmm" => 0,
        "aten::addmm" => 1,
        _ => return 0.0,
    };
    match (op.args.dims.get(at).map(dims), op.args.dims.get(at + 1).map(dims)) {
        (Some(a), Some(b)) => 2.0 * a.iter().product::<f64>() * b.last().copied().unwrap_or(0.0),
        _ => 0.0,
    }
}

/// Operators with at least one kernel launched directly by them, by name, and all kernels, copies and memsets.
pub struct Counts {
    pub operators: BTreeMap<String, u32>,
    pub launches: usize,
    /// Of all matrix products outside cuDNN.
    pub gemm_flops: f64,
}

/// Reads a gzipped trace.
pub fn read(path: &Path) -> Counts {
    let mut text = String::new();
    let file = std::fs::File::open(path).unwrap();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let trace: Trace = serde_json::from_str(&text).unwrap();
    let mut by_thread: HashMap<String, Vec<&Event>> = HashMap::new();
    let mut runtime = HashMap::new();
    let mut kernels = Vec::new();
    for e in &trace.events {
        match e.cat.as_str() {
            "cpu_op" => by_thread.entry(e.tid.to_string()).or_default().push(e),
            "cuda_runtime" | "cuda_driver" => {
                if let Some(c) = e.args.correlation {
                    runtime.insert(c, e);
                }
            }
            "kernel" | "gpu_memset" | "gpu_memcpy" => kernels.push(e),
            _ => {}
        }
    }
    for ops in by_thread.values_mut() {
        ops.sort_by(|a, b| a.ts.total_cmp(&b.ts).then(b.dur.total_cmp(&a.dur)));
    }
    let mut launching: HashMap<*const Event, &Event> = HashMap::new();
    for k in &kernels {
        let Some(call) = k.args.correlation.and_then(|c| runtime.get(&c)) else { continue };
        let Some(ops) = by_thread.get(&call.tid.to_string()) else { continue };
        let from = ops.partition_point(|o| o.ts <= call.ts);
        if let Some(op) = ops[..from].iter().rev().find(|o| o.ts + o.dur >= call.ts) {
            launching.insert(std::ptr::from_ref(*op), *op);
        }
    }
    let mut operators = BTreeMap::new();
    for op in launching.values() {
        *operators.entry(op.name.trim_start_matches("aten::").to_owned()).or_default() += 1;
    }
    let gemm_flops = launching.values().map(|op| product_flops(op)).sum();
    Counts { operators, launches: kernels.len(), gemm_flops }
}
