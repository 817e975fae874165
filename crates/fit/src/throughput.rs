//! Published training throughput of single GPUs (`training_throughput/single_gpu.csv`).

use crate::score::{Score, Scored, score};
use crate::sets::Sets;
use crate::table::rows_wanted;
use crate::unseen::stranger;
use anyhow::Result;
use preflop_core::model::zoo::config::HubConfig;
use preflop_core::model::{
    Graph, Implementation, Iteration, LowerOptions, Mode, OptimizerChoice, Phase, Precision, Step, lower, zoo,
};
use preflop_core::ops::{Elementwise, ElementwiseKind, Op, OpCall, RowwiseKind};
use preflop_core::schedule::Schedule as _;
use preflop_core::time::{Stack, TimeModel};
use preflop_core::{Dtype, Pass};
use std::collections::BTreeMap;

/// Tokens of a question with its paragraph in the runs of BERT, as their scripts have it.
const SQUAD_TOKENS: u64 = 384;
/// Tokens of a sentence in those of GNMT: they come in batches of like length, cut at 50; this is a usual mean and no figure of the runs.
const SENTENCE_TOKENS: u64 = 28;

/// BERT as those scripts have it: answers to questions, attention as plain products.
fn bert(name: &str, batch: u64) -> Result<Graph> {
    let (width, layers, heads) = if name == "bert-large" { (1024, 24, 16) } else { (768, 12, 12) };
    let config: HubConfig = serde_json::from_value(serde_json::json!({
        "model_type": "bert",
        "architectures": ["BertForQuestionAnswering"],
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
    }))?;
    Ok(config.build(name, Some(batch), Some(SQUAD_TOKENS))?.with_eager_attention())
}

/// Adds the mask of padded tokens to the scores of attention, which the zoo's network leaves out.
fn with_masks(iteration: &mut Iteration) {
    let softmax = |s: &Step| match &s.call.op {
        Op::Rowwise(r) if s.phase == Phase::Forward && r.kind == RowwiseKind::Softmax => {
            Some(r.rows * r.cols)
        }
        _ => None,
    };
    let mask = |s: &Step| {
        let n = softmax(s)?;
        let op = Op::Elementwise(Elementwise { kind: ElementwiseKind::AddScalar, n });
        let call = OpCall::new(op, Pass::Fwd, s.call.dtype);
        Some(Step { name: format!("{}.mask", s.name), call, ..s.clone() })
    };
    let masks: Vec<Step> = iteration.steps.iter().filter_map(mask).collect();
    iteration.steps.extend(masks);
}

/// Keeps the weights of an fp16 iteration in fp32 beside it (`opt_level="O2"` of the scripts): gradients are widened before the optimizer's step, weights narrowed after it.
fn with_masters(iteration: &mut Iteration) {
    let call = OpCall::new(
        Op::Elementwise(Elementwise { kind: ElementwiseKind::Cast, n: iteration.parameters }),
        Pass::Fwd,
        Dtype::Fp16,
    );
    iteration.steps.push(Step { name: "masters".into(), phase: Phase::Optimizer, call, count: 2 });
}

/// The scripts of these years step fp32 weights, whatever format the network holds.
fn stepped_in_full(iteration: &mut Iteration) {
    for step in iteration.steps.iter_mut().filter(|s| s.phase == Phase::Optimizer) {
        step.call.dtype = Dtype::Fp32;
    }
}

/// Catalogue name of a GPU in the file; boards with a lower power limit in laptops are left out.
fn board(name: &str) -> Option<&'static str> {
    Some(match name {
        n if n.contains("A100-SXM") => "a100-sxm-80gb",
        "GeForce RTX 2080 Ti" => "rtx-2080-ti",
        "Tesla V100-SXM2-16GB" => "v100-sxm2-16gb",
        "Tesla V100-SXM2-32GB" => "v100-sxm2-32gb",
        _ => return None,
    })
}

/// Errors of ResNet-50, BERT and GNMT. What was fitted on the chip is left out, but for an A100's 16-bit products.
pub fn report(
    sets: &Sets,
    mut model_of: impl FnMut(&str) -> Result<TimeModel>,
    print: &dyn Fn(&str, Score, Option<f64>),
) -> Result<Vec<Scored>> {
    let mut reader = csv::Reader::from_reader(sets.open("training_throughput/single_gpu.csv")?);
    let mut lines: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    let mut every = Vec::new();
    for record in reader.records() {
        let r = record?;
        let (Some(gpu), published) = (board(&r[1]), &r[4]) else { continue };
        let (name, line, seq) = match published {
            "resnet50" => ("resnet50", "ResNet-50 and BERT", None),
            "bert_base_squad" => ("bert-base", "ResNet-50 and BERT", None),
            "bert_large_squad" => ("bert-large", "ResNet-50 and BERT", None),
            "gnmt" => ("gnmt", "GNMT", Some(SENTENCE_TOKENS)),
            _ => continue,
        };
        let machine = stranger(gpu)?;
        let ampere = gpu.starts_with("a100");
        let precision = match &r[5] {
            "FP32" if ampere => Precision::Tf32,
            "FP32" => Precision::Fp32,
            "FP16" => Precision::Fp16,
            _ => Precision::Amp,
        };
        let batch: u64 = r[6].parse()?;
        let answers = name.starts_with("bert");
        let graph = if answers { bert(name, batch)? } else { zoo::build(name, Some(batch), seq)? };
        // In fp32 the scripts of BERT have an optimizer of their own, which takes one tensor after the other.
        let how = match precision {
            Precision::Fp16 => Implementation::Fused,
            _ if answers => Implementation::Single,
            _ => Implementation::Fused,
        };
        let optimizer = (name != "resnet50").then_some(OptimizerChoice::ADAMW.by(how));
        let mut iteration = lower(&graph, &LowerOptions { mode: Mode::Train, precision, optimizer })?;
        if answers {
            with_masks(&mut iteration);
        }
        stepped_in_full(&mut iteration);
        if answers && precision == Precision::Fp16 {
            with_masters(&mut iteration);
        }
        let p = model_of(gpu)?.with_stack(Stack::PYTORCH_2019).predict_iteration(&iteration, &machine);
        // Sentences have tokens in both languages.
        let items = if name == "gnmt" { batch * 2 * SENTENCE_TOKENS } else { batch } as f64;
        let measured = items / r[9].parse::<f64>()?;
        let pair = (p.time.0, measured);
        if rows_wanted() {
            println!("row {:.3} {:.3} {gpu} {name} {} {batch}", 1e3 * pair.0, 1e3 * pair.1, precision.name());
        }
        lines.entry(line.to_string()).or_default().push(pair);
        lines.entry(format!("  {line} {gpu} {}", precision.name())).or_default().push(pair);
        every.push(Scored { predicted: p.time.0, measured, low: p.low.0, high: p.high.0 });
    }
    for (line, pairs) in lines {
        let bar = match line.as_str() {
            "GNMT" => Some(15.0),
            "ResNet-50 and BERT" => Some(9.0),
            _ => None,
        };
        print(&line, score(pairs), bar);
    }
    Ok(every)
}
