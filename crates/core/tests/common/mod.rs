//! Strategies that the property tests share: valid rows of every operator, and hostile ones.
#![allow(dead_code)]

use preflop_core::gpu::catalog;
use preflop_core::ops::row;
use preflop_core::{Gpu, OpCall};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Any GPU of the catalogue.
pub fn gpu() -> impl Strategy<Value = Gpu> {
    let names: Vec<&'static str> = catalog::names().collect();
    proptest::sample::select(names).prop_map(|name| catalog::find(name).expect("a catalogue GPU is valid"))
}

/// A number format of operator files.
pub fn dtype() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec!["fp32", "tf32", "bf16", "fp16", "fp8"])
}

/// A size that is small as often as it is large: uniform in its logarithm, up to `2^bits`.
fn size(bits: u32) -> impl Strategy<Value = u64> {
    (0..=bits).prop_flat_map(|b| (1_u64 << b)..=(2_u64 << b) - 1)
}

fn matrix() -> impl Strategy<Value = Value> {
    (size(16), size(16)).prop_map(|(rows, cols)| json!({ "rows": rows, "cols": cols }))
}

fn image() -> impl Strategy<Value = Value> {
    (size(8), size(10), 3_u64..300, any::<bool>())
        .prop_map(|(b, c, hw, last)| json!({ "b": b, "c": c, "hw": hw, "channels_last": last }))
}

fn gemm() -> impl Strategy<Value = (&'static str, Value)> {
    let layout = proptest::sample::select(vec!["linear", "nn", "tn"]);
    let kind = proptest::sample::select(vec!["mm", "linear", "bmm"]);
    (kind, size(9), size(13), size(13), size(13), layout, any::<bool>()).prop_map(
        |(kind, b, m, n, k, layout, bias)| {
            (kind, json!({ "b": b, "m": m, "n": n, "k": k, "layout": layout, "bias": bias }))
        },
    )
}

fn conv() -> impl Strategy<Value = Value> {
    // Channels are multiples of the groups, and the padding lets any filter fit.
    (size(7), (size(5), 1_u64..40, 1_u64..40), (1_u64..200, 1_u64..200), (1_u64..8, 1_u64..8), 1_u64..4, 1_u64..3, any::<bool>())
        .prop_map(|(b, (groups, ci, co), (h, w), (r, s), stride, dilation, last)| {
            json!({
                "b": b, "ci": ci * groups, "co": co * groups, "h": h, "w": w, "r": r, "s": s, "stride": stride,
                "pad": [dilation * (r - 1), dilation * (s - 1)], "dilation": dilation, "groups": groups,
                "channels_last": last,
            })
        })
}

fn attention() -> impl Strategy<Value = Value> {
    (size(6), size(4), 1_u64..5, size(12), size(8), any::<bool>(), proptest::option::of(size(14))).prop_map(
        |(b, kv, group, s, d, causal, kv_len)| {
            let mut shape = json!({ "b": b, "h": kv * group, "kv": kv, "s": s, "d": d, "causal": causal });
            if let Some(kv_len) = kv_len {
                shape["kv_len"] = json!(kv_len.max(s));
            }
            shape
        },
    )
}

fn recurrent() -> impl Strategy<Value = Value> {
    (size(9), size(9), size(11), size(11), 1_u64..9, any::<bool>()).prop_map(|(b, s, input, hidden, layers, both)| {
        json!({ "b": b, "s": s, "input": input, "hidden": hidden, "layers": layers, "bidirectional": both })
    })
}

fn any_of(list: &[&'static str]) -> impl Strategy<Value = &'static str> + use<> {
    proptest::sample::select(list.to_vec())
}

/// Op, phase and shape of a row that must be accepted.
fn valid_parts() -> impl Strategy<Value = (&'static str, &'static str, Value)> {
    let both = || any_of(&["fwd", "bwd"]);
    let one = || Just("fwd");
    let rowwise = any_of(&["softmax", "log_softmax", "layernorm", "rmsnorm", "sum", "sum_cols"]);
    let spatial = any_of(&["batchnorm", "batchnorm_eval", "groupnorm", "maxpool", "avgpool", "gap"]);
    let moves = any_of(&["transpose", "cat", "cat_strided", "permute_copy", "gather", "layout_conversion"]);
    let steps = any_of(&["adam", "adam_single", "adam_foreach", "sgd_foreach", "sgd_plain"]);
    prop_oneof![
        (gemm(), one()).prop_map(|((op, shape), phase)| (op, phase, shape)),
        (any_of(&["conv2d", "conv_transpose2d"]), any_of(&["fwd", "dgrad", "wgrad"]), conv()).prop_filter(
            "a transposed one may shrink to nothing",
            |(op, phase, shape)| {
                *op == "conv2d" || row::parse(op, phase, "fp32", &shape.to_string()).is_ok()
            }
        ),
        (Just("sdpa"), both(), attention()),
        (any_of(&["lstm", "gru", "rnn"]), both(), recurrent()),
        (rowwise, both(), matrix()),
        (spatial, both(), image()),
        (moves, one(), matrix()),
        (steps, one(), (size(32), size(12)).prop_map(|(n, parts)| json!({ "n": n, "parts": parts }))),
        (any_of(&["elementwise", "relu", "gelu"]), one(), size(32).prop_map(|n| json!({ "n": n }))),
        (
            Just("embedding"),
            both(),
            (size(18), size(13), size(18)).prop_map(|(v, d, n)| json!({ "v": v, "d": d, "n": n }))
        ),
        (Just("cross_entropy"), both(), (size(16), size(18)).prop_map(|(n, v)| json!({ "n": n, "v": v }))),
    ]
}

/// A call that came from a valid row.
pub fn call() -> impl Strategy<Value = OpCall> {
    (valid_parts(), dtype()).prop_map(|((op, phase, shape), dtype)| {
        row::parse(op, phase, dtype, &shape.to_string())
            .unwrap_or_else(|e| panic!("{op} {phase} {dtype} {shape} is valid but gave: {e}"))
    })
}

/// A JSON value that a shape may hold by mistake.
fn odd_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => size(45).prop_map(Value::from),
        2 => any::<u64>().prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
        1 => proptest::sample::select(vec![
            json!(0), json!(-1), json!(1_u64 << 40), json!((1_u64 << 40) + 1), json!(u64::MAX), json!(null), json!(true),
            json!("8"), json!([1, 2]), json!([0, u64::MAX]), json!([1, 2, 3]), json!({}), json!(1e300),
        ]),
    ]
}

/// A shape with any keys and any values.
pub fn odd_shape() -> impl Strategy<Value = String> {
    const KEYS: [&str; 37] = [
        "b",
        "m",
        "n",
        "k",
        "bias",
        "layout",
        "ci",
        "co",
        "hw",
        "r",
        "s",
        "stride",
        "pad",
        "dilation",
        "groups",
        "channels_last",
        "native",
        "input",
        "hidden",
        "layers",
        "bidirectional",
        "h",
        "w",
        "kv",
        "kv_len",
        "d",
        "causal",
        "rows",
        "cols",
        "c",
        "v",
        "parts",
        "boxes",
        "rois",
        "size",
        "sampling",
        "scale",
    ];
    let keys = proptest::sample::subsequence(KEYS.to_vec(), 0..=KEYS.len());
    keys.prop_flat_map(|keys| {
        let n = keys.len();
        (Just(keys), proptest::collection::vec(odd_value(), n))
    })
    .prop_map(|(keys, values)| {
        let map: serde_json::Map<String, Value> = keys.into_iter().map(str::to_string).zip(values).collect();
        Value::Object(map).to_string()
    })
}

/// A valid row in which some sizes were replaced by others, often by far too large ones: near the edge of what is
/// accepted, on both sides. Gives op, phase and shape.
pub fn bent_row() -> impl Strategy<Value = (&'static str, &'static str, String)> {
    (valid_parts(), proptest::collection::vec(proptest::option::weighted(0.3, size(41)), 16)).prop_map(
        |((op, phase, mut shape), replacements)| {
            if let Value::Object(map) = &mut shape {
                for (value, replacement) in map.values_mut().zip(replacements) {
                    if let (Value::Number(_), Some(size)) = (&value, replacement) {
                        *value = json!(size);
                    }
                }
            }
            (op, phase, shape.to_string())
        },
    )
}
