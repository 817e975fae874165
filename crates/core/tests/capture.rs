//! Recorded iterations: operators, host work and memory by hand, and whatever is accepted stays finite.

use preflop_core::capture::Capture;
use preflop_core::model::{Mode, Precision};
use preflop_core::ops::shape::describe;
use preflop_core::ops::{Op, OptimizerKind};
use preflop_core::schedule::Schedule as _;
use preflop_core::time::TimeModel;
use proptest::prelude::*;

/// `y = relu(x W^T + b)` with its bias gradient and a step of plain SGD; x is 4 x 8, W is 16 x 8.
const SMALL: &str = r#"{
  "format": "preflop-capture", "version": 1, "name": "small", "samples": 4, "seq": null, "mode": "train",
  "autocast": null, "tf32_products": false, "tf32_convolutions": true, "parameters": 144,
  "parameter_tensors": 2, "module_calls": 2, "first_op": 0,
  "tensors": [
    ["fp32", [4, 8], [8, 1], 0], ["fp32", [16, 8], [8, 1], 1], ["fp32", [8, 16], [1, 8], 1], ["fp32", [16], [1], 2],
    ["fp32", [4, 16], [16, 1], 3], ["fp32", [4, 16], [16, 1], 4], ["fp32", [16], [1], 5]
  ],
  "storages": [
    [128, "input", 0, null], [512, "weight", 0, null], [64, "weight", 0, null], [256, "activation", 1, 3],
    [10485760, "activation", 2, 3], [64, "gradient", 3, null]
  ],
  "ops": [
    {"op": "aten::t", "phase": "forward", "module": "0", "in": [{"t": 1}], "out": [2], "view": true},
    {"op": "aten::addmm", "phase": "forward", "module": "0", "in": [{"t": 3}, {"t": 0}, {"t": 2}], "out": [4]},
    {"op": "aten::relu", "phase": "forward", "module": "1", "in": [{"t": 4}], "out": [5]},
    {"op": "aten::sum", "phase": "backward", "module": "0", "in": [{"t": 5}, [0], true], "out": [6]},
    {"op": "aten::_foreach_add_", "phase": "optimizer", "module": "", "in": [[{"t": 3}], [{"t": 6}], -0.1], "out": []},
    {"op": "mine::mix", "phase": "forward", "module": "2", "in": [{"t": 4}], "out": [5]}
  ]
}"#;

#[test]
fn operators_host_work_and_memory() {
    let fixed = Capture::parse(SMALL.as_bytes()).unwrap().fixed();
    assert_eq!((fixed.mode, fixed.precision), (Mode::Train, Precision::Pytorch));
    let steps = &fixed.iteration.steps;
    let names: Vec<&str> = steps.iter().map(|s| s.call.name()).collect();
    assert_eq!(names, ["linear", "relu", "sum_cols", "sgd_plain", "mine::mix"]);
    // 2 * 4 * 16 * 8
    assert_eq!(steps[0].call.flops().0, 1024.0);
    assert!(matches!(steps[0].call.op, Op::Gemm(g) if g.bias && (g.m, g.n, g.k) == (4, 16, 8)));
    assert!(
        matches!(steps[3].call.op, Op::Optimizer(o) if o.kind == OptimizerKind::SgdPlain && o.params == 16)
    );
    // 4 * 16 numbers of 4 bytes in and out
    assert!(matches!(steps[4].call.op, Op::Unmodelled { bytes: 512, .. }));
    let host = fixed.iteration.host;
    assert_eq!((host.forward_ops, host.backward_ops, host.module_calls), (4, 1, 2));
    // Before the third operator: 512-byte blocks for input, weight, bias and product, and 10 MiB, which fill their segment.
    let memory = fixed.iteration.memory;
    assert_eq!(memory.peak.0 - memory.workspace.0, 4.0 * 512.0 + 10_485_760.0);
    assert_eq!(memory.weights.0, 1024.0);
}

/// The 10 MiB end before the fourth operator: a peak that is reset there does not see them. Each side stream has a workspace of 32 MiB.
#[test]
fn a_peak_is_reset_and_streams_keep_workspaces() {
    let memory = |more: &str| {
        let file = SMALL.replacen("\"first_op\": 0", &format!("\"first_op\": 0, {more}"), 1);
        Capture::parse(file.as_bytes()).unwrap().fixed().iteration.memory
    };
    let (late, early) = (memory("\"peak_from\": 3"), memory("\"peak_from\": 2"));
    // Input, weight, bias and the gradient.
    assert_eq!(late.peak.0 - late.workspace.0, 4.0 * 512.0);
    assert_eq!(early.peak.0 - early.workspace.0, 4.0 * 512.0 + 10_485_760.0);
    // After everything: what still lives.
    let end = memory("\"peak_from\": 100");
    assert_eq!(end.peak.0 - end.workspace.0, 4.0 * 512.0);
    let streams = memory("\"side_streams\": 2");
    assert_eq!(streams.peak.0 - memory("\"side_streams\": 0").peak.0, 2.0 * 32.0 * 1_048_576.0);
}

/// A 64 x 32 map stored column by column, flags and a column of indices: each costs a kernel that a row-major tensor would not.
#[test]
fn tensors_that_lie_across_cost_a_copy() {
    let file = r#"{
  "format": "preflop-capture", "version": 1, "name": "across", "samples": 1, "seq": null, "mode": "infer",
  "autocast": null, "tf32_products": false, "tf32_convolutions": true, "parameters": 0,
  "parameter_tensors": 0, "module_calls": 0, "first_op": 0,
  "tensors": [
    ["fp32", [64, 32], [1, 64], 0], ["fp32", [64, 32], [32, 1], 1], ["bool", [64, 32], [32, 1], 2], ["int64", [64], [8], 3],
    ["fp32", [100, 16], [16, 1], 4], ["fp32", [64, 16], [16, 1], 5], ["int64", [64], [8], 3], ["fp32", [64, 1], [1, 1], 6]
  ],
  "storages": [
    [8192, "input", 0, null], [8192, "activation", 0, null], [2048, "activation", 0, null], [4096, "input", 0, null],
    [6400, "weight", 0, null], [4096, "activation", 0, null], [256, "activation", 0, null]
  ],
  "ops": [
    {"op": "aten::native_layer_norm", "phase": "forward", "module": "", "in": [{"t": 0}, [32], null, null, 1e-5], "out": [1]},
    {"op": "aten::native_layer_norm", "phase": "forward", "module": "", "in": [{"t": 1}, [32], null, null, 1e-5], "out": [1]},
    {"op": "aten::add", "phase": "forward", "module": "", "in": [{"t": 0}, {"t": 1}], "out": [1]},
    {"op": "aten::sum", "phase": "forward", "module": "", "in": [{"t": 2}, [1], false], "out": [7]},
    {"op": "aten::embedding", "phase": "forward", "module": "", "in": [{"t": 4}, {"t": 6}], "out": [5]},
    {"op": "aten::eq", "phase": "forward", "module": "", "in": [{"t": 7}, {"t": 1}], "out": [2], "pointwise": true}
  ]
}"#;
    let fixed = Capture::parse(file.as_bytes()).unwrap().fixed();
    let names: Vec<&str> = fixed.iteration.steps.iter().map(|s| s.call.name()).collect();
    let expected =
        ["transpose", "layernorm", "layernorm", "transpose", "cast", "sum", "gather_dim", "add_channel"];
    assert_eq!(names, expected);
}

/// Operators of the table, each with what its sizes become.
#[test]
fn operators_of_the_table_have_their_sizes() {
    let file = r#"{
      "format": "preflop-capture", "version": 1, "name": "table", "samples": 1, "seq": null, "mode": "infer",
      "autocast": null, "tf32_products": false, "tf32_convolutions": false, "parameters": 0,
      "parameter_tensors": 0, "module_calls": 0, "first_op": 0,
      "notes": ["autocast of the CPU was on"],
      "assumptions": [{"id": 0, "operator": "nonzero", "module": "", "line": "a.py:3", "assumed": "half of them", "size": 4, "count": 2}],
      "tensors": [
        ["fp32", [8, 64], [64, 1], 0], ["int64", [8, 64], [64, 1], 1], ["int64", [20], [1], 2], ["fp32", [20, 64], [64, 1], 3],
        ["fp32", [2, 3, 4, 6, 6], [432, 144, 36, 6, 1], 4], ["fp32", [5, 3, 3, 3, 3], [81, 27, 9, 3, 1], 5],
        ["fp32", [2, 5, 4, 6, 6], [720, 144, 36, 6, 1], 6], ["fp32", [7, 9, 9], [81, 9, 1], 7], ["fp32", [8, 33], [33, 1], 8],
        ["fp32", [2, 3, 5, 5], [75, 25, 5, 1], 9], ["fp32", [2, 5, 5, 2], [50, 10, 2, 1], 10]
      ],
      "storages": [
        [2048, "input", 0, null], [4096, "input", 0, null], [160, "input", 0, null], [5120, "input", 0, null], [3456, "input", 0, null],
        [1620, "input", 0, null], [5760, "input", 0, null], [2268, "input", 0, null], [1056, "input", 0, null],
        [600, "input", 0, null], [400, "input", 0, null]
      ],
      "ops": [
        {"op": "aten::sort", "phase": "forward", "module": "", "in": [{"t": 0}], "out": [0, 1]},
        {"op": "aten::topk", "phase": "forward", "module": "", "in": [{"t": 0}, 3], "out": [0, 1]},
        {"op": "aten::cumsum", "phase": "forward", "module": "", "in": [{"t": 0}, 0], "out": [0]},
        {"op": "aten::_softmax", "phase": "forward", "module": "", "in": [{"t": 0}, 0, false], "out": [0]},
        {"op": "aten::_softmax", "phase": "forward", "module": "", "in": [{"t": 0}, 1, false], "out": [0]},
        {"op": "aten::max", "phase": "forward", "module": "", "in": [{"t": 0}, 1], "out": [0, 1]},
        {"op": "aten::index", "phase": "forward", "module": "", "in": [{"t": 0}, [{"t": 2}]], "out": [3]},
        {"op": "aten::_index_put_impl_", "phase": "forward", "module": "", "in": [{"t": 0}, [null, {"t": 2}], {"t": 3}, true], "out": [0]},
        {"op": "aten::cudnn_grid_sampler_backward", "phase": "backward", "module": "", "in": [{"t": 9}, {"t": 10}, {"t": 9}], "out": [9, 10]},
        {"op": "aten::index_add_", "phase": "forward", "module": "", "in": [{"t": 0}, 0, {"t": 2}, {"t": 3}], "out": [0]},
        {"op": "aten::convolution", "phase": "forward", "module": "", "in": [{"t": 4}, {"t": 5}, null, [1, 1, 1], [1, 1, 1], [1, 1, 1], false, [0, 0, 0], 1], "out": [6]},
        {"op": "aten::_linalg_svd", "phase": "forward", "module": "", "in": [{"t": 7}, true], "out": [7]},
        {"op": "aten::_fft_r2c", "phase": "forward", "module": "", "in": [{"t": 0}, [1], 0, true], "out": [8]},
        {"op": "aten::native_batch_norm", "phase": "forward", "module": "", "in": [{"t": 0}, null, null, null, null, true, 0.1, 1e-5], "out": [0]}
      ]
    }"#;
    let fixed = Capture::parse(file.as_bytes()).unwrap().fixed();
    let found: Vec<(&str, String)> =
        fixed.iteration.steps.iter().map(|s| (s.call.name(), describe(&s.call))).collect();
    let expected = [
        ("sort", "rows 8, cols 64"),
        ("topk", "rows 8, cols 64, k 3"),
        ("cumsum", "rows 1, cols 8, width 64"),
        ("softmax_inner", "rows 1, cols 8, width 64"),
        ("softmax", "8x64"),
        ("max_rows", "rows 8, cols 64"),
        ("index_select", "v 8, d 64, n 20"),
        // `x[:, i]`: 64 places of 8 numbers each.
        ("index_put_add", "v 64, d 8, n 20"),
        ("grid_sample", "b 2, c 3, area 25, n 25"),
        ("index_add", "v 8, d 64, n 20"),
        ("conv3d", "b 2, ci 3, co 5, area 144, n 144, k 27, groups 1"),
        ("svd", "rows 7, n 9"),
        ("fft_r2c", "rows 8, n 64"),
        ("batchnorm_line", "b 8, c 64, area 1"),
    ];
    assert_eq!(found, expected.map(|(name, sizes)| (name, sizes.to_owned())));
    assert_eq!(
        fixed.notes,
        ["autocast of the CPU was on", "assumed for `nonzero` at a.py:3, 2 times: half of them"]
    );
}

#[test]
fn damaged_files_say_what_is_wrong() {
    for (from, to, said) in [
        ("\"version\": 1", "\"version\": 3", "version 3"),
        ("preflop-capture", "other", "format"),
        ("{\"t\": 4}], \"out\": [5]}", "{\"t\": 40}], \"out\": [5]}", "beyond the 7 listed"),
        ("[64, \"gradient\", 3, null]", "[64, \"gradient\", 3, 2]", "ends before it begins"),
        ("\"samples\": 4", "\"samples\": 0", "at least one"),
    ] {
        let damaged = SMALL.replace(from, to);
        let error = Capture::parse(damaged.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(said) && !error.contains('\n'), "{error}");
    }
}

proptest! {
    /// Any operator name on any shapes gives finite times.
    #[test]
    fn whatever_is_accepted_is_predicted(
        op in prop::sample::select(vec![
            "aten::convolution", "aten::mm", "aten::bmm", "aten::_softmax", "aten::native_layer_norm", "aten::cat",
            "aten::max_pool2d_with_indices", "aten::embedding", "aten::_cudnn_rnn", "aten::copy_", "aten::add",
            "aten::_scaled_dot_product_flash_attention", "aten::_adaptive_avg_pool2d", "aten::mean", "aten::index",
        ]),
        sizes in prop::collection::vec(0_u64..9, 0..6),
        numbers in prop::collection::vec(-2_i64..5, 9),
    ) {
        let strides: Vec<u64> = sizes.iter().map(|_| 1).collect();
        let tensor = format!("[\"fp32\", {sizes:?}, {strides:?}, 0]");
        let args: Vec<String> = numbers.iter().map(|n| format!("[{n}, {n}]")).collect();
        let json = SMALL
            .replace("[\"fp32\", [4, 16], [16, 1], 3]", &tensor)
            .replace("[\"fp32\", [4, 16], [16, 1], 4]", &tensor)
            .replace("mine::mix", op)
            .replace("[{\"t\": 4}], \"out\": [5]}\n  ]", &format!("[{{\"t\": 4}}, {{\"t\": 5}}, {}], \"out\": [5]}}\n  ]", args.join(", ")));
        let graph = Capture::parse(json.as_bytes()).unwrap().into_graph();
        let fixed = graph.fixed.unwrap();
        let gpu = preflop_core::gpu::catalog::find("a100").unwrap();
        let p = TimeModel::embedded().predict_iteration(&fixed.iteration, &gpu);
        prop_assert!(p.time.0.is_finite() && p.time.0 > 0.0);
    }
}
