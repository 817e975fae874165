//! Language, recurrent, generative and reinforcement models: operators against PyTorch's kernels, FLOPs against hand counts.

use preflop_core::model::{Iteration, LowerOptions, Mode, Precision, lower, zoo};
use preflop_core::ops::{ElementwiseKind, MovementKind, Op, OptimizerKind, Pass};

fn run(name: &str, batch: u64, mode: Mode, precision: Precision) -> Iteration {
    let graph = zoo::build(name, Some(batch), None).unwrap_or_else(|e| panic!("{e}"));
    lower(&graph, &LowerOptions { mode, precision, optimizer: Some(graph.optimizer.as_measured()) })
        .unwrap_or_else(|e| panic!("{e}"))
}

fn count(it: &Iteration, matches: impl Fn(&Op, Pass) -> bool) -> u32 {
    it.steps.iter().filter(|s| matches(&s.call.op, s.call.pass)).map(|s| s.count).sum()
}

fn elementwise(it: &Iteration, kind: ElementwiseKind) -> u32 {
    count(it, |op, _| matches!(op, Op::Elementwise(e) if e.kind == kind))
}

/// FLOPs of products and convolutions.
fn product_flops(it: &Iteration) -> f64 {
    it.steps
        .iter()
        .filter(|s| matches!(s.call.op, Op::Gemm(_) | Op::Conv(_)))
        .map(|s| s.call.flops().0 * f64::from(s.count))
        .sum()
}

fn equal(what: &str, got: f64, expected: f64) {
    assert!((got / expected - 1.0).abs() < 1e-9, "{what}: {got:e} instead of {expected:e}");
}

/// Kernels of PyTorch 2.11 on an H200 without memsets: `e2e_kernels.csv.gz`, llama-1b b1.
#[test]
fn llama_inference_runs_the_kernels_that_pytorch_ran() {
    for (precision, expected) in [(Precision::Amp, 884 - 49), (Precision::Tf32, 930 - 65)] {
        let it = run("llama-1b", 1, Mode::Infer, precision);
        assert_eq!(count(&it, |_, _| true), expected, "{precision:?}");
    }
    let it = run("llama-1b", 1, Mode::Infer, Precision::Amp);
    assert_eq!(count(&it, |op, _| matches!(op, Op::Gemm(_))), 113);
    assert_eq!(count(&it, |op, _| matches!(op, Op::Attention(_))), 16);
    // 113 weights, 48 of q, k, v, 81 inputs of products to bf16; 16 values to the fp32 of their cache.
    assert_eq!(elementwise(&it, ElementwiseKind::Cast), 242 + 16);
    // 32 halves turned, 16 keys cached, one table; none of the tensors lies row by row.
    assert_eq!(count(&it, |op, _| matches!(op, Op::Movement(m) if m.kind == MovementKind::CatStrided)), 49);
    let it = run("llama-1b", 1, Mode::Infer, Precision::Tf32);
    assert_eq!(count(&it, |op, _| matches!(op, Op::Attention(_))), 0);
    assert_eq!(count(&it, |op, _| matches!(op, Op::Gemm(_))), 145);
}

/// 147 tensors of seven Adam kernels each, and the rest, as in the same file.
#[test]
fn llama_training_runs_nearly_the_kernels_that_pytorch_ran() {
    for (precision, measured) in [(Precision::Amp, 3623 - 163 - 64), (Precision::Tf32, 3441 - 227)] {
        let it = run("llama-1b", 1, Mode::Train, precision);
        let adam = count(&it, |op, _| matches!(op, Op::Optimizer(o) if o.kind == OptimizerKind::AdamSingle));
        assert_eq!(adam, 147);
        let kernels = count(&it, |_, _| true) + 6 * adam;
        let ratio = f64::from(kernels) / f64::from(measured);
        assert!((0.995..=1.0).contains(&ratio), "{precision:?}: {kernels} of {measured}");
    }
}

#[test]
fn peak_memory_is_near_the_measured() {
    use Mode::{Infer, Train};
    use Precision::{Amp, Fp32, Tf32};
    let measured = [
        ("llama-1b", 2, Tf32, Train, 53_019.0),
        ("llama-1b", 2, Tf32, Infer, 8582.0),
        ("llama-1b", 2, Amp, Infer, 9445.0),
        ("llama-1b", 1, Amp, Train, 26_654.0),
        ("t5-small", 16, Fp32, Train, 2870.0),
        ("t5-small", 16, Amp, Train, 2727.0),
        ("t5-small", 16, Amp, Infer, 600.0),
        ("gpt2-large", 4, Tf32, Infer, 5337.0),
        ("gnmt-wide", 1, Fp32, Infer, 915.0),
        ("gnmt-wide", 8, Amp, Infer, 923.0),
    ];
    for (name, batch, precision, mode, expected) in measured {
        let mib = run(name, batch, mode, precision).memory.peak.0 / f64::from(1 << 20);
        let error = mib / expected - 1.0;
        assert!(
            error.abs() < 0.01,
            "{name} {batch}: {mib:.0} MiB, measured {expected}: {:.1} %",
            100.0 * error
        );
    }
}

/// Two operations per weight and token in every linear layer; a table look-up and norms multiply nothing.
#[test]
fn llama_products_are_two_flops_per_weight_and_token() {
    // parameters, vocabulary x width, (2 norms a layer + 1) x width
    for (name, parameters, table, norms) in [
        ("llama-1b", 1_498_482_688.0, 128_256.0 * 2048.0, 33.0 * 2048.0),
        ("llama-2-7b", 6_738_415_616.0, 32_000.0 * 4096.0, 65.0 * 4096.0),
        ("llama-3-8b", 8_030_261_248.0, 128_256.0 * 4096.0, 65.0 * 4096.0),
    ] {
        let expected = 2.0 * 2048.0 * (parameters - table - norms);
        equal(name, product_flops(&run(name, 1, Mode::Infer, Precision::Bf16)), expected);
        // Backward multiplies twice as much: the embedding's output needs a gradient too.
        equal(name, product_flops(&run(name, 1, Mode::Train, Precision::Bf16)), 3.0 * expected);
    }
}

#[test]
fn t5_products_are_the_weights_and_the_scores() {
    // Each of 12 + 12 layers: q, k, v, o of 768 x 768 (twice in the decoder), 768 x 3072 and back; the tied output.
    let (d, f, tokens) = (768.0, 3072.0, 16.0 * 128.0);
    let weights = 12.0 * (4.0 * d * d + 2.0 * d * f) + 12.0 * (8.0 * d * d + 2.0 * d * f) + 32_128.0 * d;
    // Self-attention of both stacks is two products of 128 x 128 x 64 for each of 16 x 12 heads.
    let scores = 24.0 * 2.0 * 2.0 * 16.0 * 12.0 * 128.0 * 128.0 * 64.0;
    let it = run("t5-base", 16, Mode::Infer, Precision::Fp32);
    equal("t5-base", product_flops(&it), 2.0 * tokens * weights + scores);
    // Cross-attention is fused.
    assert_eq!(count(&it, |op, _| matches!(op, Op::Attention(_))), 12);
}

#[test]
fn sockeye_decodes_step_by_step() {
    let (b, t, h, words) = (64.0, 25.0, 512.0, 7709.0);
    // A step: cells of 2h and h inputs, query, combination; scores and context over t source words.
    let step = b * (4.0 * h * 3.0 * h + 4.0 * h * 2.0 * h + h * h + h * 2.0 * h) + 2.0 * b * t * h;
    // Four initial states, keys, output.
    let once = b * 4.0 * h * h + b * t * h * h + b * t * words * h;
    let it = run("sockeye", 64, Mode::Infer, Precision::Fp32);
    equal("sockeye", product_flops(&it), 2.0 * (t * step + once));
    // Two encoder calls; seven products and one batched one a step, four states, keys, output.
    assert_eq!(count(&it, |op, _| matches!(op, Op::Rnn(_))), 2);
    assert_eq!(count(&it, |op, _| matches!(op, Op::Gemm(_))), 25 * 8 + 6);
    let long = zoo::build("sockeye", Some(1), Some(1025));
    assert!(long.is_err(), "a sentence of 1025 words is too long");
}

#[test]
fn wgan_has_101_layers_on_each_side() {
    let it = run("wgan", 64, Mode::Infer, Precision::Fp32);
    let layers = count(&it, |op, _| matches!(op, Op::Conv(_) | Op::Gemm(_)));
    // 33 blocks of three, one layer at each end; four shortcuts on each side have a convolution of their own.
    assert_eq!(layers, 2 * (33 * 3 + 2) + 2 * 4);
    let train = run("wgan", 64, Mode::Train, Precision::Fp32);
    // The noise needs no gradient: one data gradient less than layers.
    let gradients = count(&train, |op, p| matches!(op, Op::Conv(_)) && p == Pass::Dgrad);
    assert_eq!(gradients, layers - 2);
}

#[test]
fn a3c_multiplies_as_its_layers_say() {
    // 16 x 20 x 20 outputs of 4 x 8 x 8; 32 x 9 x 9 of 16 x 4 x 4; 2592 x 256; 256 x 6 and 256 x 1
    let macs = 6400.0 * 256.0 + 2592.0 * 256.0 + 2592.0 * 256.0 + 256.0 * 7.0;
    let it = run("a3c", 20, Mode::Infer, Precision::Fp32);
    equal("a3c", product_flops(&it), 2.0 * 20.0 * macs);
    assert_eq!(run("a3c", 20, Mode::Train, Precision::Fp32).parameters, 677_943);
}

#[test]
fn two_of_eight_experts_work_per_token() {
    let json = r#"{"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
        "num_local_experts": 8, "num_experts_per_tok": 2}"#;
    let config: zoo::config::HubConfig = serde_json::from_str(json).unwrap_or_else(|e| panic!("{e}"));
    let graph = config.build("config", Some(1), None).unwrap_or_else(|e| panic!("{e}"));
    let options = LowerOptions { mode: Mode::Infer, precision: Precision::Bf16, optimizer: None };
    let iteration = lower(&graph, &options).unwrap_or_else(|e| panic!("{e}"));
    // About 12.9 G parameters work, 2 FLOPs each and token in forward.
    let flops: f64 = iteration.steps.iter().map(|s| s.call.flops().0 * f64::from(s.count)).sum();
    let per_token = flops / 2048.0;
    assert!((25.0e9..29.0e9).contains(&per_token), "{per_token}");
}
