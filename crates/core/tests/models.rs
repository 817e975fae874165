//! The zoo against published figures, and the operators of an iteration against what PyTorch ran.

use preflop_core::model::{
    Builder, ConvSpec, Graph, Implementation, Iteration, LowerOptions, Mode, ModelError, OptimizerChoice,
    Phase, Precision, lower, zoo,
};
use preflop_core::ops::{ElementwiseKind, MovementKind, Op, Pass};
use proptest::prelude::*;

fn run(name: &str, batch: u64, mode: Mode, precision: Precision) -> Iteration {
    let graph = zoo::build(name, Some(batch), None).unwrap_or_else(|e| panic!("{e}"));
    let optimizer = Some(graph.optimizer.as_measured());
    lower(&graph, &LowerOptions { mode, precision, optimizer }).unwrap_or_else(|e| panic!("{e}"))
}

fn count(it: &Iteration, matches: impl Fn(&Op, Pass) -> bool) -> u32 {
    it.steps.iter().filter(|s| matches(&s.call.op, s.call.pass)).map(|s| s.count).sum()
}

fn kernels(it: &Iteration, kind: ElementwiseKind) -> u32 {
    count(it, |op, _| matches!(op, Op::Elementwise(e) if e.kind == kind))
}

#[test]
fn every_model_has_its_published_parameters() {
    for info in zoo::list() {
        let graph = zoo::build(info.name, Some(1), None).unwrap_or_else(|e| panic!("{}: {e}", info.name));
        assert_eq!(graph.parameter_count(), info.parameters, "{}", info.name);
    }
}

/// Multiply-adds in billions of one sample, as torchvision publishes them with its weights (`_ops`).
#[test]
fn multiply_adds_are_those_of_torchvision() {
    let published = [
        ("alexnet", 0.714),
        ("vgg11", 7.609),
        ("vgg13", 11.308),
        ("vgg16", 15.470),
        ("vgg19", 19.632),
        ("resnet18", 1.814),
        ("resnet34", 3.664),
        ("resnet50", 4.089),
        ("resnet101", 7.801),
        ("resnet152", 11.514),
        ("resnext50_32x4d", 4.230),
        ("resnext101_32x8d", 16.414),
        ("wide_resnet50_2", 11.398),
        ("wide_resnet101_2", 22.753),
        ("inception_v3", 5.713),
        ("mobilenet_v2", 0.301),
        ("googlenet", 1.498),
        ("densenet121", 2.834),
        ("densenet161", 7.728),
        ("densenet169", 3.360),
        ("densenet201", 4.291),
        ("efficientnet_b0", 0.386),
        ("convnext_tiny", 4.456),
        ("convnext_small", 8.684),
        ("convnext_base", 15.355),
        ("convnext_large", 34.361),
        ("vit_b_16", 17.564),
        ("vit_b_32", 4.409),
        ("vit_l_16", 61.555),
        ("vit_l_32", 15.378),
        ("swin_t", 4.491),
        ("swin_s", 8.741),
        ("swin_b", 15.431),
    ];
    for (name, giga) in published {
        let it = run(name, 1, Mode::Infer, Precision::Fp32);
        let macs: f64 = it
            .steps
            .iter()
            .filter(|s| matches!(s.call.op, Op::Conv(_) | Op::Gemm(_) | Op::Attention(_)))
            .map(|s| s.call.flops().0 / 2.0)
            .sum();
        let ours = macs / 1e9;
        assert!((ours - giga).abs() <= 0.0006, "{name}: {ours:.4} instead of {giga}");
    }
}

/// Counts read off traces of PyTorch on an H200.
#[test]
fn resnet50_under_autocast_runs_what_pytorch_ran() {
    let it = run("resnet50", 64, Mode::Train, Precision::Amp);
    assert_eq!(count(&it, |op, p| matches!(op, Op::Conv(_)) && p == Pass::Fwd), 53);
    assert_eq!(count(&it, |op, p| matches!(op, Op::Conv(_)) && p == Pass::Wgrad), 53);
    // The images need no gradient.
    assert_eq!(count(&it, |op, p| matches!(op, Op::Conv(_)) && p == Pass::Dgrad), 52);
    // Images, 54 weights, a bias and the logits; back: all but the images.
    assert_eq!(kernels(&it, ElementwiseKind::Cast), 113);
    // 16 joins forward and 16 backward; the 53 counters of batch norms are scalar additions.
    assert_eq!(kernels(&it, ElementwiseKind::Add), 32);
    assert_eq!(kernels(&it, ElementwiseKind::ReluBwd), 49);
}

#[test]
fn gpt2_under_autocast_runs_what_pytorch_ran() {
    let it = run("gpt2", 8, Mode::Train, Precision::Amp);
    assert_eq!(count(&it, |op, _| matches!(op, Op::Gemm(_))), 147);
    assert_eq!(count(&it, |op, _| matches!(op, Op::Attention(_))), 24);
    assert_eq!(kernels(&it, ElementwiseKind::Dropout) + kernels(&it, ElementwiseKind::DropoutBwd), 50);
    // 366 copies with a kernel: two per layer reorder the gradients of key and value, the rest are casts.
    assert_eq!(kernels(&it, ElementwiseKind::Cast), 342);
    let adam: u32 = it.steps.iter().filter(|s| s.phase == Phase::Optimizer).map(|s| s.count).sum();
    assert_eq!(adam, 148);
    assert_eq!(it.host.parameter_tensors, 148);
}

#[test]
fn transformer_copies_and_multiplies_as_pytorch_did() {
    let it = run("transformer", 64, Mode::Train, Precision::Fp32);
    assert_eq!(count(&it, |op, _| matches!(op, Op::Gemm(_))), 201);
    let moves = count(&it, |op, _| matches!(op, Op::Movement(m) if m.kind != MovementKind::Cat));
    assert_eq!(kernels(&it, ElementwiseKind::Copy) + moves, 289);
}

/// Counts read off profiles of PyTorch on an H200 (`data/measured/h200/e2e_kernels.csv.gz`).
#[test]
fn vision_models_run_what_pytorch_ran() {
    let moves = |it: &Iteration, kind| count(it, |op, _| matches!(op, Op::Movement(m) if m.kind == kind));
    // 86 copies into another order, and 12 scalings of queries, which are parts of rows and walked like these; 20 rolls, 15 paddings by
    // nothing and 10 masks copied.
    let it = run("swin_t", 32, Mode::Infer, Precision::Fp32);
    assert_eq!(moves(&it, MovementKind::Permute) + moves(&it, MovementKind::Transpose), 86 + 12);
    assert_eq!(kernels(&it, ElementwiseKind::Copy), 45);
    assert_eq!(kernels(&it, ElementwiseKind::Fill), 50);
    // 24 sums of whole tensors, 23 that broadcast a bias or a mask.
    assert_eq!(kernels(&it, ElementwiseKind::Add), 24);
    assert_eq!(kernels(&it, ElementwiseKind::AddBias) + kernels(&it, ElementwiseKind::AddChannel), 23);
    assert_eq!(it.steps.iter().map(|s| s.count).sum::<u32>(), 406);
    // The stem's map and the three filters of the downsampling layers go to channels-last.
    let it = run("convnext_tiny", 32, Mode::Infer, Precision::Fp32);
    assert_eq!(moves(&it, MovementKind::Permute) + moves(&it, MovementKind::Transpose), 4);
    let nhwc = count(&it, |op, _| matches!(op, Op::Conv(c) if c.channels_last));
    assert_eq!((nhwc, count(&it, |op, _| matches!(op, Op::Conv(_)))), (21, 22));
    // Fused self-attention without copies.
    let it = run("vit_b_16", 32, Mode::Infer, Precision::Fp32);
    assert_eq!(count(&it, |op, _| matches!(op, Op::Attention(_))), 12);
    assert_eq!(moves(&it, MovementKind::Permute) + kernels(&it, ElementwiseKind::Copy), 0);
    assert_eq!(kernels(&it, ElementwiseKind::Add), 24);
    // Nine shortcuts with stochastic depth and one dropout in place; 49 activations keep a copy.
    let it = run("efficientnet_b0", 32, Mode::Train, Precision::Fp32);
    assert_eq!(kernels(&it, ElementwiseKind::Copy), 49);
    assert_eq!(kernels(&it, ElementwiseKind::SiluBwd), 49);
    let it = run("densenet121", 32, Mode::Infer, Precision::Fp32);
    assert_eq!(moves(&it, MovementKind::Cat), 62);
    let it = run("googlenet", 32, Mode::Train, Precision::Fp32);
    assert_eq!(kernels(&it, ElementwiseKind::Relu), 61);
    assert_eq!(kernels(&it, ElementwiseKind::ReluBwd), 57);
    assert_eq!(kernels(&it, ElementwiseKind::Add), 27);
}

/// torchvision counts 41,755,286 for ResNet-50, whose batch norms (53,120 numbers) it freezes.
#[test]
fn faster_rcnn_has_torchvisions_parameters() {
    let graph = zoo::build("fasterrcnn_resnet50_fpn", Some(1), None).unwrap_or_else(|e| panic!("{e}"));
    let is_norm = |name: &str| name.contains(".bn") || name.contains("downsample.1");
    let norms: u64 =
        graph.parameters.iter().filter(|p| is_norm(&p.name)).map(|p| p.shape.iter().product::<u64>()).sum();
    assert_eq!(norms, 53_120);
    assert_eq!(graph.parameter_count() - norms, 41_755_286);
    assert!(zoo::build("faster-rcnn", Some(65), None).is_err());
}

/// Peaks that `torch.cuda.max_memory_allocated` showed on an H200, in MiB.
#[test]
fn peak_memory_is_near_the_measured() {
    let measured = [
        ("resnet50", 64, Mode::Train, Precision::Fp32, 5589.0),
        ("resnet50", 64, Mode::Train, Precision::Amp, 3069.0),
        ("mobilenet_v2", 256, Mode::Train, Precision::Amp, 9884.0),
        ("bert-large", 16, Mode::Train, Precision::Amp, 15601.0),
        ("gpt2", 8, Mode::Train, Precision::Amp, 12980.0),
        ("gpt2", 8, Mode::Infer, Precision::Amp, 1901.0),
        ("transformer", 64, Mode::Train, Precision::Fp32, 3872.0),
        ("vgg16", 128, Mode::Train, Precision::Tf32, 10837.0),
        ("inception_v3", 128, Mode::Infer, Precision::Tf32, 2327.0),
        ("googlenet", 32, Mode::Train, Precision::Amp, 1108.0),
        ("densenet121", 96, Mode::Train, Precision::Fp32, 12140.0),
        ("densenet121", 96, Mode::Infer, Precision::Amp, 612.0),
        ("efficientnet_b0", 128, Mode::Train, Precision::Amp, 5621.0),
        ("convnext_tiny", 32, Mode::Train, Precision::Fp32, 3671.0),
        ("vit_b_16", 96, Mode::Train, Precision::Amp, 7651.0),
        ("swin_t", 128, Mode::Infer, Precision::Amp, 1620.0),
    ];
    for (name, batch, mode, precision, mib) in measured {
        let ours = run(name, batch, mode, precision).memory.peak.0 / f64::from(1 << 20);
        let error = ours / mib - 1.0;
        assert!(
            error.abs() < 0.02,
            "{name} b{batch}: {ours:.0} MiB instead of {mib}, {:.2} %",
            100.0 * error
        );
    }
}

#[test]
fn parts_at_the_peak_sum_to_it() {
    let m = run("resnet50", 8, Mode::Train, Precision::Fp32).memory;
    let parts = m.weights + m.gradients + m.optimizer + m.activations + m.workspace;
    assert!((parts.0 - m.peak.0).abs() < 1.0);
    // Momentum is as large as the weights: 25,557,032 * 4 bytes and rounding.
    assert!(m.optimizer.0 >= 4.0 * 25_557_032.0 && m.optimizer.0 < 4.01 * 25_557_032.0);
}

#[test]
fn optimizers_differ_as_they_should() {
    let graph = zoo::build("alexnet", Some(2), None).unwrap_or_else(|e| panic!("{e}"));
    let with = |o| {
        let options = LowerOptions { mode: Mode::Train, precision: Precision::Fp32, optimizer: Some(o) };
        lower(&graph, &options).unwrap_or_else(|e| panic!("{e}"))
    };
    let none = with(OptimizerChoice::NONE);
    let sgd = with(OptimizerChoice::SGD);
    let adam = with(OptimizerChoice::ADAM);
    assert!(none.steps.iter().all(|s| s.phase != Phase::Optimizer));
    assert!(none.memory.peak.0 < sgd.memory.peak.0 && sgd.memory.peak.0 < adam.memory.peak.0);
    // Sixteen tensors: one by one, or all in one call; with decay, one more of each.
    let calls = |o: OptimizerChoice| -> u32 {
        with(o).steps.iter().filter(|s| s.phase == Phase::Optimizer).map(|s| s.count).sum()
    };
    assert_eq!(Implementation::ALL.map(|how| calls(OptimizerChoice::ADAM.by(how))), [16, 1, 1, 16, 16, 16]);
    assert_eq!(Implementation::ALL.map(|how| calls(OptimizerChoice::ADAMW.by(how))), [32, 2, 1, 16, 16, 16]);
    assert_eq!(Implementation::ALL.map(|how| calls(OptimizerChoice::SGD.by(how))), [48, 1, 1, 1, 1, 1]);
}

#[test]
fn graphs_survive_json() {
    for name in ["inception_v3", "transformer", "gnmt"] {
        let graph = zoo::build(name, Some(2), None).unwrap_or_else(|e| panic!("{e}"));
        let text = serde_json::to_string(&graph).unwrap_or_default();
        let back: Graph = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(back, graph);
    }
}

#[test]
fn bad_requests_are_one_clear_line() {
    let message = |r: Result<Graph, ModelError>| r.err().map(|e| e.to_string()).unwrap_or_default();
    assert!(
        message(zoo::build("rensnet50", None, None))
            .starts_with("unknown model `rensnet50`; did you mean `resnet50`")
    );
    assert_eq!(
        message(zoo::build("resnet50", Some(0), None)),
        "`batch` must be between 1 and 1048576, not 0"
    );
    assert_eq!(message(zoo::build("resnet50", None, Some(5))), "model `resnet50` takes no sequence length");
    assert_eq!(message(zoo::build("gpt2", None, Some(4096))), "`seq` must be between 1 and 1024, not 4096");
    let mut b = Builder::new("x", 1);
    let x = b.images(3, 4, 4).unwrap_or_else(|e| panic!("{e}"));
    let e = b.conv2d("stem", x, ConvSpec::new(8, 7)).err().map(|e| e.to_string());
    assert_eq!(e.as_deref(), Some("layer `stem`: a 7x7 filter does not fit into [1, 3, 4, 4]"));
}

#[test]
fn the_largest_batch_neither_panics_nor_overflows() {
    for info in zoo::list() {
        if let Ok(graph) = zoo::build(info.name, Some(zoo::MAX_BATCH), None) {
            for mode in [Mode::Train, Mode::Infer] {
                let it = lower(&graph, &LowerOptions { mode, precision: Precision::Amp, optimizer: None });
                assert!(
                    it.is_ok_and(|i| i.memory.peak.0.is_finite() && i.memory.peak.0 > 0.0),
                    "{}",
                    info.name
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Memory and FLOPs grow with the batch, training needs more than inference.
    #[test]
    fn laws(model in 0..zoo::names().len(), batch in 1_u64..16, p in 0..Precision::ALL.len()) {
        let name = zoo::names()[model];
        let precision = Precision::ALL[p];
        let flops = |it: &Iteration| it.steps.iter().map(|s| s.call.flops().0 * f64::from(s.count)).sum::<f64>();
        let small = run(name, batch, Mode::Train, precision);
        let large = run(name, batch + 1, Mode::Train, precision);
        let infer = run(name, batch, Mode::Infer, precision);
        prop_assert!(large.memory.peak.0 >= small.memory.peak.0);
        prop_assert!(flops(&large) > flops(&small));
        prop_assert!(infer.memory.peak.0 <= small.memory.peak.0);
        prop_assert!(flops(&infer) < flops(&small));
        prop_assert_eq!(infer.host.backward_ops, 0);
    }

    /// A damaged graph is refused or lowered, never a panic.
    #[test]
    fn damaged_graphs_do_not_panic(seed in any::<u64>(), model in 0..zoo::names().len()) {
        let name = zoo::names()[model];
        let mut graph = zoo::build(name, Some(2), None).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let pick = |n: usize, salt: u32| (seed.rotate_left(salt) as usize) % n.max(1);
        let node = pick(graph.nodes.len(), 3);
        let other = pick(graph.nodes.len(), 17);
        match seed % 5 {
            0 => graph.nodes[node].op = graph.nodes[other].op.clone(),
            1 => graph.nodes[node].inputs = graph.nodes[other].inputs.clone(),
            2 => graph.nodes[node].parameters = graph.nodes[other].parameters.clone(),
            3 => graph.nodes.swap(node, other),
            _ => {
                let t = pick(graph.tensors.len(), 29);
                let u = pick(graph.tensors.len(), 41);
                graph.tensors[t] = graph.tensors[u].clone();
            }
        }
        for mode in [Mode::Train, Mode::Infer] {
            let lowered = lower(&graph, &LowerOptions { mode, precision: Precision::Amp, optimizer: None });
            prop_assert!(lowered.map_or_else(|e| !e.to_string().is_empty(), |i| i.memory.peak.0.is_finite()));
        }
    }
}
