//! Chakra host traces, as PyTorch's execution trace observer writes them in JSON: operators with shapes and their
//! order, without times. Both the flat layout of schema 1.0 and the nested one with attributes.

use preflop_core::profile::{HostOp, NameId, Profile};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashMap;

/// One node: what we use of both layouts.
#[derive(Deserialize)]
struct Node<'a> {
    id: i64,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default, alias = "parent")]
    ctrl_deps: Option<i64>,
    #[serde(borrow, default)]
    inputs: Option<&'a RawValue>,
    #[serde(default)]
    attrs: Vec<Attribute>,
    // The flat layout.
    #[serde(borrow, default)]
    input_shapes: Option<&'a RawValue>,
    #[serde(borrow, default)]
    input_types: Option<&'a RawValue>,
    #[serde(default)]
    seq_id: Option<i64>,
    #[serde(default)]
    tid: Option<i64>,
    #[serde(default)]
    fw_tid: Option<i64>,
}

#[derive(Deserialize)]
struct Attribute {
    name: String,
    #[serde(default)]
    value: Value,
}

#[derive(Deserialize)]
struct Inputs<'a> {
    #[serde(borrow, default)]
    values: Option<&'a RawValue>,
    #[serde(borrow, default)]
    shapes: Option<&'a RawValue>,
    #[serde(borrow, default)]
    types: Option<&'a RawValue>,
    #[serde(borrow, default)]
    strides: Option<&'a RawValue>,
}

/// The nodes seen so far: a node's place in the order stands for its time.
#[derive(Default)]
pub struct Nodes {
    depth: HashMap<i64, u32>,
    next: i64,
}

/// Nodes that stand for processes and threads, not for operators.
fn is_scaffold(name: &str) -> bool {
    name.starts_with('[') || name.starts_with("## ")
}

impl Nodes {
    /// Takes one node.
    pub fn node(&mut self, element: &[u8], profile: &mut Profile) -> Result<(), serde_json::Error> {
        let node: Node = serde_json::from_slice(element)?;
        let attribute =
            |name: &str| node.attrs.iter().find(|a| a.name == name).and_then(|a| a.value.as_i64());
        let depth = node.ctrl_deps.and_then(|p| self.depth.get(&p)).map_or(0, |d| d + 1);
        self.depth.insert(node.id, depth);
        if is_scaffold(&node.name) {
            return Ok(());
        }
        let nested: Option<Inputs> = node
            .inputs
            .filter(|raw| raw.get().starts_with('{'))
            .and_then(|raw| serde_json::from_str::<Inputs>(raw.get()).ok());
        let shapes = nested.as_ref().and_then(|i| i.shapes).or(node.input_shapes);
        let types = nested.as_ref().and_then(|i| i.types).or(node.input_types);
        let values = nested.as_ref().map_or(node.inputs, |i| i.values);
        let strides = nested.as_ref().and_then(|i| i.strides);
        let tid = node.tid.or_else(|| attribute("tid")).unwrap_or(0);
        let forward_thread = node.fw_tid.or_else(|| attribute("fw_tid")).unwrap_or(0);
        let sequence = node.seq_id.or_else(|| attribute("seq_id")).unwrap_or(-1);
        let types = types.map_or(NameId::EMPTY, |t| profile.names.add(&plain_types(t.get())));
        let mut keep = |raw: Option<&RawValue>| raw.map_or(NameId::EMPTY, |r| profile.names.add(r.get()));
        let (dims, strides, concrete) = (keep(shapes), keep(strides), keep(values));
        self.next += 1;
        let (name, thread) = (profile.names.add(&node.name), profile.names.add(&format!("host/{tid}")));
        profile.reading.kept += 1;
        profile.ops.push(HostOp {
            start_ns: self.next,
            dur_ns: 0,
            name,
            thread,
            external: node.id,
            sequence,
            backward: forward_thread > 0 || node.name.starts_with("autograd::engine"),
            dims,
            types,
            strides,
            concrete,
        });
        Ok(())
    }
}

/// `Tensor(c10::BFloat16)` -> `c10::BFloat16`, as Kineto writes it.
fn plain_types(raw: &str) -> String {
    raw.replace("\"Tensor(", "\"").replace(")\"", "\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_core::profile::Format;

    #[test]
    fn both_layouts() {
        let mut profile = Profile::new("t", Format::Chakra);
        let mut nodes = Nodes::default();
        let nested = br#"{"id": 2, "name": "aten::mm", "ctrl_deps": 1, "inputs": {"values": [[7, 8], [9, 8]],
            "shapes": [[64, 128], [128, 256]], "types": ["Tensor(float)", "Tensor(float)"]},
            "outputs": {}, "attrs": [{"name": "seq_id", "type": "int64", "value": 5}, {"name": "fw_tid", "value": 0}]}"#;
        let flat = br#"{"id": 3, "name": "aten::mm", "parent": 1, "inputs": [1, 2], "input_shapes": [[64, 128], [128, 256]],
            "input_types": ["Tensor(float)", "Tensor(float)"], "seq_id": 6, "tid": 1, "fw_tid": 2}"#;
        nodes.node(nested, &mut profile).unwrap();
        nodes.node(flat, &mut profile).unwrap();
        for op in &profile.ops {
            let work = preflop_core::profile::operators::work(&op, &profile.names).unwrap();
            assert_eq!(work.flops.0, 2.0 * 64.0 * 128.0 * 256.0);
        }
        assert_eq!((profile.ops.at(0).sequence, profile.ops.at(1).backward), (5, true));
    }
}
