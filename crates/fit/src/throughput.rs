//! Published training throughput of single GPUs (`training_throughput/single_gpu.csv`).

use crate::score::{Score, Scored, score};
use crate::sets::Sets;
use crate::table::rows_wanted;
use crate::unseen::stranger;
use anyhow::Result;
use preflop_core::model::{Implementation, LowerOptions, Mode, OptimizerChoice, Precision, lower, zoo};
use preflop_core::schedule::Schedule as _;
use preflop_core::time::{Stack, TimeModel};
use std::collections::BTreeMap;

/// Tokens of a question with its paragraph in the runs of BERT, as their scripts have it.
const SQUAD_TOKENS: u64 = 384;
/// Tokens of a sentence in those of GNMT: they come in batches of like length, cut at 50; this is a usual mean and no figure of the runs.
const SENTENCE_TOKENS: u64 = 28;

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
            "bert_base_squad" => ("bert-base", "ResNet-50 and BERT", Some(SQUAD_TOKENS)),
            "bert_large_squad" => ("bert-large", "ResNet-50 and BERT", Some(SQUAD_TOKENS)),
            "gnmt" => ("gnmt", "GNMT", Some(SENTENCE_TOKENS)),
            _ => continue,
        };
        let machine = stranger(gpu)?;
        let ampere = gpu.starts_with("a100");
        let precision = match &r[5] {
            "FP32" if ampere => Precision::Tf32,
            "FP32" => Precision::Fp32,
            // Scripts of BERT keep fp32 weights and cast, the others hold them in fp16.
            "FP16" if !name.starts_with("bert") => Precision::Fp16,
            _ => Precision::Amp,
        };
        let batch: u64 = r[6].parse()?;
        let graph = zoo::build(name, Some(batch), seq)?;
        let optimizer = (name != "resnet50").then_some(OptimizerChoice::ADAMW.by(Implementation::Fused));
        let iteration = lower(&graph, &LowerOptions { mode: Mode::Train, precision, optimizer })?;
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
