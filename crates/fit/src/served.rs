//! Fits the closed forms of a server's kernels (`preflop_language::served::forms`) to published times, and prints how far they are off: with the whole GPU left out of the
//! fit, and within it. With `--update` it writes `data/fitted/served.toml`.

use crate::sets::Sets;
use crate::simplex::minimise;
use anyhow::Result;
use preflop_core::Dtype;
use preflop_core::gpu::{Gpu, catalog};
use preflop_language::served::forms::{
    EXPERT_NAMES, EXPERT_START, Experts, PROMPT_NAMES, PROMPT_START, Prompt, TOKEN_NAMES, TOKEN_START, Token,
    experts, prompt, token,
};
use rayon::prelude::*;
use std::fmt::Write as _;
use std::path::Path;

/// Systems of the published rows and their names here.
const SYSTEMS: [(&str, &str); 4] =
    [("a100_sxm", "a100-sxm-80gb"), ("l40s", "l40s"), ("h100_sxm", "h100-sxm"), ("b200_sxm", "b200")];
/// Rows of one kind on one GPU that a fit looks at; the errors are over all.
const LOOKED_AT: usize = 1500;
/// How firmly constants are held at their start.
const HELD: f64 = 2e-3;

#[derive(Debug, Clone, Copy)]
enum Shape {
    Prompt(Prompt),
    Token(Token),
    Experts(Experts),
}

struct Row {
    shape: Shape,
    gpu: usize,
    seconds: f64,
}

fn time(shape: &Shape, constants: &[f64], gpu: &Gpu) -> f64 {
    match shape {
        Shape::Prompt(a) => prompt(a, constants, gpu),
        Shape::Token(a) => token(a, constants, gpu),
        Shape::Experts(a) => experts(a, constants, gpu),
    }
}

/// Rows of one file that `shape` accepts.
fn rows(
    sets: &Sets,
    file: &str,
    shape: impl Fn(&dyn Fn(&str) -> String) -> Option<Shape>,
) -> Result<Vec<Row>> {
    let mut reader = csv::Reader::from_reader(sets.open(&format!("aiconfigurator/{file}"))?);
    let headers = reader.headers()?.clone();
    let mut out = Vec::new();
    for record in reader.records() {
        let r = record?;
        let text = |name: &str| {
            headers.iter().position(|h| h == name).and_then(|i| r.get(i)).unwrap_or_default().to_string()
        };
        let Some(gpu) = SYSTEMS.iter().position(|(s, _)| *s == text("system")) else { continue };
        if let Some(shape) = shape(&text) {
            out.push(Row { shape, gpu, seconds: text("time_ms").parse::<f64>()? * 1e-3 });
        }
    }
    Ok(out)
}

fn number(text: &dyn Fn(&str) -> String, name: &str) -> f64 {
    text(name).parse().unwrap_or(f64::NAN)
}

/// Prompts in bf16. B200's rows are left out: those without a window are faster than the chip's peak, so a window was there.
fn prompts(sets: &Sets) -> Result<Vec<Row>> {
    rows(sets, "context_attention.csv.gz", |text| {
        let bf16 = text("attn_dtype") == "bfloat16" && text("kv_cache_dtype") == "bfloat16";
        let whole = matches!(text("window_size").as_str(), "" | "0") && text("system") != "b200_sxm";
        (bf16 && whole).then(|| {
            Shape::Prompt(Prompt {
                batch: number(text, "batch_size"),
                tokens: number(text, "isl"),
                heads: number(text, "num_heads"),
                kv_heads: number(text, "num_key_value_heads"),
                head_dim: number(text, "head_dim"),
                dtype: Dtype::Bf16,
            })
        })
    })
}

fn new_tokens(sets: &Sets) -> Result<Vec<Row>> {
    rows(sets, "generation_attention.csv.gz", |text| {
        let whole = matches!(text("window_size").as_str(), "" | "0") && text("attn_dtype") == "bfloat16";
        whole.then(|| {
            Shape::Token(Token {
                batch: number(text, "batch_size"),
                context: number(text, "isl") + number(text, "step"),
                heads: number(text, "num_heads"),
                kv_heads: number(text, "num_key_value_heads"),
                head_dim: number(text, "head_dim"),
                kv_bytes: if text("kv_cache_dtype") == "fp8" { 1.0 } else { 2.0 },
            })
        })
    })
}

/// Layers whose experts are all on one GPU: with experts spread over several, the file does not say which tokens a GPU gets (times stay the same from 2 to 8 parts).
fn expert_layers(sets: &Sets, published: &str, bytes: f64, dtype: Dtype) -> Result<Vec<Row>> {
    rows(sets, "moe.csv.gz", |text| {
        (text("moe_dtype") == published && text("moe_ep_size") == "1").then(|| {
            Shape::Experts(Experts {
                tokens: number(text, "num_tokens"),
                width: number(text, "hidden_size"),
                inner: number(text, "inter_size") / number(text, "moe_tp_size"),
                taken: number(text, "topk"),
                count: number(text, "num_experts"),
                weight_bytes: bytes,
                dtype,
                balanced: text("distribution") == "balanced",
            })
        })
    })
}

fn error(rows: &[&Row], constants: &[f64], gpus: &[Gpu]) -> f64 {
    let sum: f64 =
        rows.iter().map(|r| (time(&r.shape, constants, &gpus[r.gpu]) / r.seconds - 1.0).abs()).sum();
    100.0 * sum / rows.len().max(1) as f64
}

/// The constants that make the mean of |ln(predicted/measured)| over GPUs least.
fn fit(rows: &[&Row], start: &[f64], gpus: &[Gpu]) -> Vec<f64> {
    let mut looked: Vec<(&Row, f64)> = Vec::new();
    for gpu in 0..gpus.len() {
        let own: Vec<&&Row> = rows.iter().filter(|r| r.gpu == gpu).collect();
        let step = own.len().div_ceil(LOOKED_AT).max(1);
        let taken = own.len().div_ceil(step).max(1) as f64;
        looked.extend(own.into_iter().step_by(step).map(|r| (*r, 1.0 / taken)));
    }
    let weight: f64 = looked.iter().map(|l| l.1).sum();
    let loss = |x: &[f64]| {
        let constants: Vec<f64> = x.iter().map(|v| v.exp()).collect();
        let sum: f64 = looked
            .iter()
            .map(|(r, w)| w * (time(&r.shape, &constants, &gpus[r.gpu]) / r.seconds).ln().abs())
            .sum();
        let far: f64 = x.iter().zip(start).map(|(v, s)| (v - s.ln()).powi(2)).sum();
        let value = sum / weight + HELD * far / x.len() as f64;
        if value.is_finite() { value } else { 1e9 }
    };
    let mut best: Vec<f64> = start.iter().map(|v| v.ln()).collect();
    for step in [0.4, 0.2, 0.1] {
        best = minimise(&loss, &best, step, 700).0;
    }
    best.iter().map(|v| v.exp()).collect()
}

/// A kind of kernel: its name here, its rows, its constants' names and start.
struct Kind {
    name: String,
    rows: Vec<Row>,
    names: Vec<&'static str>,
    start: Vec<f64>,
}

/// Fits all, prints the table, and writes the file where asked.
pub fn run(sets: &Sets, update: Option<&Path>) -> Result<()> {
    let gpus = SYSTEMS.iter().map(|(_, name)| catalog::find(name)).collect::<Result<Vec<_>, _>>()?;
    let kind = |name: &str, rows, names: &[&'static str], start: &[f64]| Kind {
        name: name.to_string(),
        rows,
        names: names.to_vec(),
        start: start.to_vec(),
    };
    let experts_of = |name: &str, published: &str, bytes, dtype| -> Result<Kind> {
        let rows = expert_layers(sets, published, bytes, dtype)?;
        Ok(kind(&format!("experts.{name}"), rows, &EXPERT_NAMES, &EXPERT_START))
    };
    let kinds = vec![
        kind("prompt", prompts(sets)?, &PROMPT_NAMES, &PROMPT_START),
        kind("token", new_tokens(sets)?, &TOKEN_NAMES, &TOKEN_START),
        experts_of("bf16", "bfloat16", 2.0, Dtype::Bf16)?,
        experts_of("fp8", "fp8_block", 1.0, Dtype::Fp8)?,
        experts_of("int4", "int4_wo", 0.515_625, Dtype::Bf16)?,
        experts_of("nvfp4", "nvfp4", 0.5625, Dtype::Fp4)?,
    ];
    let mut file = String::from(HEADER);
    println!("{:<14} {:<14} {:>6} {:>9} {:>8}", "kernels", "GPU", "rows", "left out", "in fit");
    for kind in &kinds {
        let measured: Vec<usize> =
            (0..gpus.len()).filter(|g| kind.rows.iter().any(|r| r.gpu == *g)).collect();
        let all: Vec<&Row> = kind.rows.iter().collect();
        let results: Vec<(usize, usize, f64, f64, Vec<f64>)> = measured
            .par_iter()
            .map(|&g| {
                let (own, others): (Vec<&Row>, Vec<&Row>) = all.iter().partition(|r| r.gpu == g);
                let constants = fit(&own, &kind.start, &gpus);
                let left_out = if others.is_empty() {
                    f64::NAN
                } else {
                    error(&own, &fit(&others, &kind.start, &gpus), &gpus)
                };
                (g, own.len(), left_out, error(&own, &constants, &gpus), constants)
            })
            .collect();
        let pooled = fit(&all, &kind.start, &gpus);
        let known: Vec<f64> = results.iter().map(|r| r.2).filter(|e| e.is_finite()).collect();
        writeln!(file, "\n[{}] # {}", kind.name, kind.names.join(", "))?;
        writeln!(file, "pooled = {}", list(&pooled))?;
        for (g, n, left_out, own, constants) in &results {
            println!("{:<14} {:<14} {n:>6} {left_out:>8.1}% {own:>7.1}%", kind.name, gpus[*g].name);
            let generation = gpus[*g].architecture.name();
            let outside = if left_out.is_finite() {
                format!("{left_out:.1} % with it left out")
            } else {
                "no other GPU to fit on".to_string()
            };
            writeln!(file, "# {}: {n} rows, {outside}, {own:.1} % in the fit", gpus[*g].name)?;
            writeln!(file, "generation.{generation} = {}", list(constants))?;
        }
        if !known.is_empty() {
            let mean = known.iter().sum::<f64>() / known.len() as f64;
            println!("{:<14} {:<14} {:>6} {mean:>8.1}%", kind.name, "mean", all.len());
        }
    }
    if let Some(path) = update {
        std::fs::write(path, file)?;
    }
    Ok(())
}

fn list(constants: &[f64]) -> String {
    let numbers: Vec<String> = constants.iter().map(|c| format!("{c:.4e}")).collect();
    format!("[{}]", numbers.join(", "))
}

const HEADER: &str = "\
# Constants of an inference server's kernels, read by crates/language/src/served/constants.rs; crates/language/src/served/forms.rs has the formulas.
# Made by `cargo run --profile quick -p preflop-fit -- --update served` from measurements that are not part of this repository: ai-dynamo/aiconfigurator (Apache-2.0),
# SGLang 0.5.10 on A100 SXM 80 GB, L40S, H100 SXM and B200. Mean absolute errors stand beside each line, first with the whole GPU left out of the fit.
";
