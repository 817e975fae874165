//! Predicts a fixed mix of operators over and over, and prints how many a second: one by one, and all of a list together.
//!
//! `preflop-bench` times it; `preflop-bench COUNT` makes exactly COUNT passes over the mix one by one, `preflop-bench many
//! COUNT` together, and prints nothing but its size, so that a tool that counts instructions can compare two runs; `preflop-bench ask
//! COUNT` answers so many different questions as the server would; `preflop-bench predict COUNT` predicts a step of ResNet-152 and what would make it
//! faster, as the command `predict` does at its start. `preflop-bench search` finds the
//! best of 40 batch sizes and 4 formats of ResNet-50 on every GPU, on one core.
#![allow(clippy::print_stdout)]

use preflop_api::{Engine, Kind};
use preflop_core::cost::fit::Setup;
use preflop_core::cost::search::usual_batches;
use preflop_core::cost::{RankBy, Reserve, Search};
use preflop_core::gpu::catalog;
use preflop_core::model::{Checkpoint, Form, LowerOptions, Mode, Precision, lower, zoo};
use preflop_core::ops::row;
use preflop_core::report::advise;
use preflop_core::schedule::{Known, Schedule as _};
use preflop_core::time::TimeModel;
use preflop_core::{Gpu, OpCall};
use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

/// Shapes from ResNet-50, BERT, GPT-2, Llama and GNMT: every family of operators, small and large.
const MIX: &[(&str, &str, &str, &str)] = &[
    ("conv2d", "fwd", "fp32", r#"{"b":64,"ci":3,"hw":224,"co":64,"k":7,"stride":2,"pad":3}"#),
    ("conv2d", "fwd", "tf32", r#"{"b":64,"ci":64,"hw":56,"co":64,"k":3,"pad":1}"#),
    ("conv2d", "dgrad", "bf16", r#"{"b":64,"ci":256,"hw":14,"co":256,"k":3,"pad":1,"channels_last":true}"#),
    ("conv2d", "wgrad", "fp16", r#"{"b":64,"ci":512,"hw":7,"co":2048,"k":1}"#),
    ("conv2d", "fwd", "bf16", r#"{"b":64,"ci":96,"hw":56,"co":96,"k":3,"pad":1,"groups":96}"#),
    ("linear", "fwd", "bf16", r#"{"m":8192,"n":4096,"k":1024,"bias":true}"#),
    ("mm", "fwd", "tf32", r#"{"m":1024,"n":1024,"k":8192,"layout":"tn"}"#),
    ("mm", "fwd", "fp32", r#"{"m":64,"n":1000,"k":2048}"#),
    ("bmm", "fwd", "fp16", r#"{"b":192,"m":512,"n":512,"k":64}"#),
    ("sdpa", "fwd", "bf16", r#"{"b":8,"h":12,"kv":12,"s":1024,"d":64,"causal":true}"#),
    ("sdpa", "bwd", "bf16", r#"{"b":2,"h":32,"kv":8,"s":2048,"d":64,"causal":true}"#),
    ("sdpa", "fwd", "bf16", r#"{"b":16,"h":32,"kv":8,"s":1,"d":128,"kv_len":4096}"#),
    ("lstm", "fwd", "fp32", r#"{"b":64,"s":50,"input":1024,"hidden":1024,"layers":4}"#),
    ("lstm", "bwd", "tf32", r#"{"b":64,"s":50,"input":1024,"hidden":1024,"layers":1,"bidirectional":true}"#),
    ("softmax", "fwd", "fp32", r#"{"rows":98304,"cols":512}"#),
    ("layernorm", "bwd", "bf16", r#"{"rows":8192,"cols":1024}"#),
    ("rmsnorm", "fwd", "bf16", r#"{"rows":4096,"cols":2048}"#),
    ("batchnorm", "fwd", "fp32", r#"{"b":64,"c":256,"hw":56}"#),
    ("batchnorm", "bwd", "bf16", r#"{"b":64,"c":512,"hw":28,"channels_last":true}"#),
    ("maxpool", "fwd", "fp32", r#"{"b":64,"c":64,"hw":112}"#),
    ("elementwise", "fwd", "fp32", r#"{"n":51380224}"#),
    ("relu", "bwd", "bf16", r#"{"n":12845056}"#),
    ("embedding", "fwd", "bf16", r#"{"v":50257,"d":768,"n":8192}"#),
    ("cross_entropy", "fwd", "fp32", r#"{"n":8192,"v":50257}"#),
    ("adam", "fwd", "fp32", r#"{"n":124439808,"parts":148}"#),
    ("transpose", "fwd", "fp32", r#"{"rows":4096,"cols":4096}"#),
];

/// Sizes of each operator: its first size times 1 to this many, over a third of it.
const SIZES: u64 = 48;
/// Passes of one timed round, and rounds: the median is reported.
const PASSES: usize = 80;
const ROUNDS: usize = 9;

/// The mix, each operator in many sizes.
fn calls() -> Result<Vec<OpCall>, Box<dyn Error>> {
    let mut out = Vec::new();
    for i in 1..=SIZES {
        for (op, phase, dtype, shape) in MIX {
            let mut shape: serde_json::Map<String, serde_json::Value> = serde_json::from_str(shape)?;
            let first = ["b", "m", "rows", "n"].into_iter().find(|key| shape.contains_key(*key));
            let size = first.and_then(|key| shape.get_mut(key)).ok_or("an operator without a size")?;
            *size = (size.as_u64().unwrap_or(1) * i).div_ceil(SIZES / 3).into();
            out.push(row::parse(op, phase, dtype, &serde_json::to_string(&shape)?)?);
        }
    }
    Ok(out)
}

fn passes(model: &TimeModel, calls: &[OpCall], gpu: &Gpu, count: usize) -> f64 {
    let mut total = 0.0;
    for _ in 0..count {
        for call in calls {
            total += black_box(model.predict(black_box(call), black_box(gpu))).time.0;
        }
    }
    total
}

fn passes_together(model: &TimeModel, calls: &[OpCall], gpu: &Gpu, count: usize) -> f64 {
    let calls: Vec<&OpCall> = calls.iter().collect();
    (0..count)
        .flat_map(|_| black_box(model.predict_many(black_box(&calls), black_box(gpu))))
        .map(|p| p.time.0)
        .sum()
}

/// Predictions a second: the median of several rounds.
fn rate(calls: usize, mut round: impl FnMut() -> f64) -> f64 {
    let mut rates: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            black_box(round());
            (PASSES * calls) as f64 / start.elapsed().as_secs_f64()
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    rates[ROUNDS / 2]
}

/// Lowers 160 ways to train ResNet-50, finds each GPU's best, and prints how long that takes and how many of the
/// operators had to be predicted.
fn search(model: &TimeModel) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let mut lowered = Vec::new();
    for precision in [Precision::Fp32, Precision::Tf32, Precision::Amp, Precision::Bf16] {
        for batch in usual_batches() {
            let setup = Setup { batch, precision, optimizer: None, checkpoint: Checkpoint::None };
            let graph = zoo::build("resnet50", Some(setup.batch), None)?;
            let options = LowerOptions { mode: Mode::Train, precision, optimizer: None };
            lowered.push((setup, lower(&graph, &options)?));
        }
    }
    let lowering = start.elapsed();
    let search = Search::new(&lowered);
    let gpus = catalog::all()?;
    let (mut predicted, mut distinct) = (0, 0);
    for gpu in &gpus {
        let found = black_box(search.best(model, gpu, &Reserve::default(), RankBy::Time));
        predicted += found.predicted;
        distinct += found.distinct;
    }
    println!(
        "{} runs on {} GPUs: {:.3} s on one core, {:.3} s of it lowering; {predicted} of {distinct} operators predicted ({:.0} %)",
        lowered.len(),
        gpus.len(),
        start.elapsed().as_secs_f64(),
        lowering.as_secs_f64(),
        100.0 * predicted as f64 / distinct as f64
    );
    Ok(())
}

/// Answers one of many different questions; the bytes of the answer.
fn answer(engine: &Engine, i: usize) -> Result<usize, Box<dyn Error>> {
    let fields = serde_json::from_str(&preflop_bench::varied(i))?;
    Ok(engine.answer(Kind::Predict, fields).map_err(|e| e.to_string())?.len())
}

/// Predicts a step and ranks what would make it faster, from nothing; options that help.
fn predict_once(gpu: &Gpu) -> Result<usize, Box<dyn Error>> {
    let model = TimeModel::embedded();
    let graph = zoo::build("resnet152", None, None)?;
    let options = LowerOptions { mode: Mode::Train, precision: Precision::Pytorch, optimizer: None };
    let (iteration, mut known) = (lower(&graph, &options)?, Known::default());
    black_box(model.predict_iteration_with(&iteration, gpu, &mut known));
    let (graph, iteration) = (&graph, &iteration);
    let asked = advise::Asked { graph, options, form: Form::default(), iteration, known };
    let in_turn = |a: &mut (dyn FnMut() + Send), b: &mut (dyn FnMut() + Send)| {
        a();
        b();
    };
    Ok(advise::helps(&model, asked, gpu, 0.05, in_turn).len())
}

fn main() -> Result<(), Box<dyn Error>> {
    let gpu = catalog::find(catalog::USUAL)?;
    let model = TimeModel::embedded();
    let calls = calls()?;
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => {
            let one_by_one = rate(calls.len(), || passes(&model, &calls, &gpu, PASSES));
            let together = rate(calls.len(), || passes_together(&model, &calls, &gpu, PASSES));
            println!("{one_by_one:.0} {together:.0}");
        }
        ["search"] => search(&model)?,
        ["ask", count] => {
            let engine = Engine::new(None)?.for_many();
            let bytes: usize = (0..count.parse()?).map(|i| answer(&engine, i)).sum::<Result<usize, _>>()?;
            println!("{bytes}");
        }
        ["predict", count] => {
            let helps: usize = (0..count.parse()?).map(|_| predict_once(&gpu)).sum::<Result<usize, _>>()?;
            println!("{helps}");
        }
        ["many", count] => {
            black_box(passes_together(&model, &calls, &gpu, count.parse()?));
            println!("{}", calls.len());
        }
        [count, ..] => {
            black_box(passes(&model, &calls, &gpu, count.parse()?));
            println!("{}", calls.len());
        }
    }
    Ok(())
}
