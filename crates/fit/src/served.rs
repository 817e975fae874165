//! Fits the closed forms of a server's kernels (`preflop_language::served::forms`) to published times, and prints how far they are off: with the whole GPU left out of the
//! fit, and within it. `served write` writes `data/fitted/served.toml` and `served.bin`.

use crate::gbdt::{Loss, Settings};
use crate::samples::{self, Sample};
use crate::sets::Sets;
use crate::simplex::minimise;
use anyhow::Result;
use preflop_core::Dtype;
use preflop_core::gpu::{Gpu, catalog};
use preflop_core::learned::trees::Forest;
use preflop_language::served::constants::{kin, write_trees};
use preflop_language::served::forms::{
    EXPERT_NAMES, EXPERT_START, Experts, FEATURES, PROMPT_NAMES, PROMPT_START, Prompt, Shape, TOKEN_NAMES,
    TOKEN_START, Token,
};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// Systems of the published rows and their names here.
const SYSTEMS: [(&str, &str); 4] =
    [("a100_sxm", "a100-sxm-80gb"), ("l40s", "l40s"), ("h100_sxm", "h100-sxm"), ("b200_sxm", "b200")];
/// Rows of one kind on one GPU that a fit looks at; the errors are over all.
const LOOKED_AT: usize = 1500;
/// Parts of cross-validation.
const FOLDS: usize = 5;
/// How firmly constants are held at their start.
const HELD: f64 = 2e-3;

struct Row {
    shape: Shape,
    gpu: usize,
    seconds: f64,
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
            .map(|(r, w)| w * (r.shape.form(&constants, &gpus[r.gpu]) / r.seconds).ln().abs())
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

/// Rows as the learner sees them: what the closed form leaves.
fn samples(rows: &[&Row], constants: &[f64], gpus: &[Gpu]) -> Vec<Sample> {
    let sample = |(i, r): (usize, &&Row)| Sample {
        x: r.shape.features(),
        reference: r.shape.form(constants, &gpus[r.gpu]),
        seconds: r.seconds,
        forest: "",
        class: String::new(),
        gpu: r.gpu,
        group: (i.wrapping_mul(2_654_435_761) >> 7) % (8 * FOLDS),
        weight: 1.0,
        source: "",
    };
    rows.iter().enumerate().map(sample).collect()
}

/// A kind of kernel: its name here, its rows, its constants' names and start.
struct Kind {
    name: String,
    rows: Vec<Row>,
    names: Vec<&'static str>,
    start: Vec<f64>,
}

/// The trees beside a closed form: small, for a file that ships and pages that carry it.
fn settings() -> Settings {
    Settings {
        trees: 60,
        depth: 5,
        rate: 0.15,
        loss: Loss::Quantile(0.45),
        second: Loss::Squared,
        bags: 2,
        min_leaf: 5,
        feature_fraction: 0.7,
        ..Settings::default()
    }
}

/// What one GPU's rows gave.
struct Fitted {
    gpu: usize,
    rows: usize,
    constants: Vec<f64>,
    forest: Forest,
    /// Mean error of its own rows, in per cent, by trees that did not see them.
    validated: f64,
}

impl Fitted {
    fn of(gpu: usize, own: &[&Row], start: &[f64], gpus: &[Gpu]) -> Self {
        let constants = fit(own, start, gpus);
        let samples = samples(own, &constants, gpus);
        let predicted = samples::cross_validate(&samples, FEATURES, &settings(), FOLDS);
        let validated = mean_error(predicted.iter().zip(&samples).map(|(p, s)| p / s.seconds));
        let forest = samples::fit(&samples, FEATURES, &settings(), |_| true);
        Self { gpu, rows: own.len(), constants, forest, validated }
    }

    /// Mean error of rows of another GPU, in per cent.
    fn carried(&self, rows: &[&Row], gpus: &[Gpu]) -> f64 {
        let ratio = |s: Sample| s.reference * f64::from(self.forest.predict(&s.x)).exp() / s.seconds;
        mean_error(samples(rows, &self.constants, gpus).into_iter().map(ratio))
    }
}

fn mean_error(ratios: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut count) = (0.0, 0_usize);
    for ratio in ratios {
        (sum, count) = (sum + (ratio - 1.0).abs(), count + 1);
    }
    100.0 * sum / count.max(1) as f64
}

/// Fits all, prints the table, and writes the files where asked: constants to `served.toml` in this folder, trees to `served.bin`.
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
    let (mut file, mut forests) = (String::from(HEADER), BTreeMap::new());
    println!("{:<14} {:<14} {:>6} {:>10} {:>16}", "kernels", "GPU", "rows", "left out", "cross-validated");
    for kind in &kinds {
        let own = |g: usize| kind.rows.iter().filter(|r| r.gpu == g).collect::<Vec<&Row>>();
        let measured: Vec<usize> = (0..gpus.len()).filter(|g| !own(*g).is_empty()).collect();
        let fitted: Vec<Fitted> =
            measured.par_iter().map(|&g| Fitted::of(g, &own(g), &kind.start, &gpus)).collect();
        writeln!(file, "\n[kernels.\"{}\"] # {}", kind.name, kind.names.join(", "))?;
        let mut left_out = Vec::new();
        for f in &fitted {
            let gpu = &gpus[f.gpu];
            let mut others = kin(gpu.architecture).iter().filter(|a| **a != gpu.architecture);
            let nearest = others.find_map(|a| fitted.iter().find(|o| gpus[o.gpu].architecture == *a));
            let outside = nearest.map(|o| o.carried(&own(f.gpu), &gpus));
            left_out.extend(outside);
            let said = outside.map_or("-".to_string(), |e| format!("{e:.1} %"));
            println!("{:<14} {:<14} {:>6} {said:>10} {:>14.1} %", kind.name, gpu.name, f.rows, f.validated);
            let said = outside
                .map_or("no other GPU to fit on".to_string(), |e| format!("{e:.1} % with it left out"));
            writeln!(file, "# {}: {} rows, {said}, {:.1} % cross-validated", gpu.name, f.rows, f.validated)?;
            writeln!(file, "{} = {}", gpu.architecture.name(), list(&f.constants))?;
            forests.insert(format!("{}/{}", kind.name, gpu.architecture.name()), f.forest.clone());
        }
        if !left_out.is_empty() {
            let mean = left_out.iter().sum::<f64>() / left_out.len() as f64;
            println!("{:<14} {:<14} {:>6} {mean:>8.1} %", kind.name, "mean", kind.rows.len());
        }
    }
    if let Some(folder) = update {
        std::fs::write(folder.join("served.toml"), file)?;
        std::fs::write(folder.join("served.bin"), write_trees(&forests))?;
    }
    Ok(())
}

fn list(constants: &[f64]) -> String {
    let numbers: Vec<String> = constants.iter().map(|c| format!("{c:.4e}")).collect();
    format!("[{}]", numbers.join(", "))
}

const HEADER: &str = "\
# Constants of an inference server's kernels, read by crates/language/src/served/constants.rs; crates/language/src/served/forms.rs has the formulas.
# Made by `cargo run --profile quick -p preflop-fit -- served write` from measurements that are not part of this repository: ai-dynamo/aiconfigurator (Apache-2.0),
# SGLang 0.5.10 on A100 SXM 80 GB, L40S, H100 SXM and B200. Mean absolute errors stand beside each line, first with the whole GPU left out of the fit
# (constants and trees of its nearest kin), then by trees beside its own constants that did not see the row.
";
