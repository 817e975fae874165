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
use preflop_language::served::attention::{Prompt, Token};
use preflop_language::served::constants::write_trees;
use preflop_language::served::experts::{Experts, Load, TILES};
use preflop_language::served::forms::{Constant, FEATURES, Shape};
use preflop_language::served::products::{Operands, Product};
use preflop_language::served::tuned::tuned;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// Systems of the published rows and their names here.
const SYSTEMS: [(&str, &str); 4] =
    [("a100_sxm", "a100-sxm-80gb"), ("l40s", "l40s"), ("h100_sxm", "h100-sxm"), ("b200_sxm", "b200")];
/// Rows of one kind on one GPU that a fit looks at, and of how many one at the least: products have ten times as many rows as the rest. The errors are over all.
const LOOKED_AT: usize = 250;
const ONE_OF: usize = 24;
/// Evaluations of each of a fit's three searches.
const EVALUATIONS: usize = 1200;
/// Parts of cross-validation.
const FOLDS: usize = 5;
/// How firmly constants are held at their start.
const HELD: f64 = 1e-3;

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

/// Prompts with a cache in bf16 and in fp8, in which scores are then computed (rows that say so take the same time). B200's rows are left out: those without a window are faster
/// than the chip's peak, so a window was there.
fn prompts(sets: &Sets) -> Result<Vec<Row>> {
    rows(sets, "context_attention.csv.gz", |text| {
        let bf16 = text("attn_dtype") == "bfloat16";
        let whole = matches!(text("window_size").as_str(), "" | "0") && text("system") != "b200_sxm";
        (bf16 && whole).then(|| {
            Shape::Prompt(Prompt {
                batch: number(text, "batch_size"),
                tokens: number(text, "isl"),
                heads: number(text, "num_heads"),
                kv_heads: number(text, "num_key_value_heads"),
                head_dim: number(text, "head_dim"),
                dtype: if text("kv_cache_dtype") == "fp8" { Dtype::Fp8 } else { Dtype::Bf16 },
            })
        })
    })
}

fn new_tokens(sets: &Sets) -> Result<Vec<Row>> {
    rows(sets, "generation_attention.csv.gz", |text| {
        let whole = matches!(text("window_size").as_str(), "" | "0") && text("attn_dtype") == "bfloat16";
        whole.then(|| {
            let fp8 = text("kv_cache_dtype") == "fp8";
            Shape::Token(Token {
                batch: number(text, "batch_size"),
                context: number(text, "isl") + number(text, "step"),
                heads: number(text, "num_heads"),
                kv_heads: number(text, "num_key_value_heads"),
                head_dim: number(text, "head_dim"),
                kv_bytes: if fp8 { 1.0 } else { 2.0 },
                dtype: if fp8 { Dtype::Fp8 } else { Dtype::Bf16 },
                warm: true,
            })
        })
    })
}

/// Products, and the kernel that quantises their activations.
fn products(sets: &Sets, published: &str, operands: Operands) -> Result<Vec<Row>> {
    rows(sets, "gemm_quantized.csv.gz", |text| {
        (text("dtype") == published).then(|| {
            let [m, n, k] = ["m", "n", "k"].map(|side| number(text, side));
            Shape::Product(Product { m, n, k, operands, sets: Product::PUBLISHED })
        })
    })
}

/// Layers whose experts are all on one GPU: with experts spread over several, the file does not say which tokens a GPU gets (times stay the same from 2 to 8 parts).
fn expert_layers(sets: &Sets, published: &str, bytes: f64, dtype: Dtype) -> Result<Vec<Row>> {
    let mut loads: BTreeMap<[u64; 4], Load> = BTreeMap::new();
    let mut out = rows(sets, "moe.csv.gz", |text| {
        (text("moe_dtype") == published && text("moe_ep_size") == "1").then(|| {
            let (tokens, taken, count) =
                (number(text, "num_tokens"), number(text, "topk"), number(text, "num_experts"));
            let skew = text("distribution").strip_prefix("power_law_").and_then(|a| a.parse().ok());
            let inner = number(text, "inter_size") / number(text, "moe_tp_size");
            Shape::Experts(Experts {
                tokens,
                width: number(text, "hidden_size"),
                inner,
                taken,
                count,
                weight_bytes: bytes,
                dtype,
                load: Load { skew: skew.unwrap_or(0.0), reached: 1.0, tiles: [0.0; TILES.len()] },
                tuned: false,
                warm: true,
            })
        })
    })?;
    for row in &mut out {
        let generation = catalog::find(SYSTEMS[row.gpu].1)?.architecture;
        if let Shape::Experts(a) = &mut row.shape {
            let key = [a.tokens, a.taken, a.count, a.load.skew].map(f64::to_bits);
            a.load = *loads.entry(key).or_insert_with(|| Load::of(a.tokens, a.taken, a.count, a.load.skew));
            a.tuned = tuned(generation, a.count, a.inner);
        }
    }
    Ok(out)
}

/// The constants that make the mean of |ln(predicted/measured)| least, over GPUs with equal weight.
fn fit(rows: &[&Row], constants: &[Constant], gpus: &[Gpu]) -> Vec<f64> {
    let mut looked: Vec<(&Row, f64)> = Vec::new();
    for gpu in 0..gpus.len() {
        let own: Vec<&&Row> = rows.iter().filter(|r| r.gpu == gpu).collect();
        let step = own.len().div_ceil(LOOKED_AT).clamp(1, ONE_OF);
        let taken = own.len().div_ceil(step).max(1) as f64;
        looked.extend(own.into_iter().step_by(step).map(|r| (*r, 1.0 / taken)));
    }
    let weight: f64 = looked.iter().map(|l| l.1).sum();
    let loss = |x: &[f64]| {
        let list: Vec<f64> = x.iter().map(|v| v.exp()).collect();
        let sum: f64 =
            looked.iter().map(|(r, w)| w * (r.shape.form(&list, &gpus[r.gpu]) / r.seconds).ln().abs()).sum();
        let far: f64 = x.iter().zip(constants).map(|(v, c)| c.held * (v - c.start.ln()).powi(2)).sum();
        let value = sum / weight + HELD * far / x.len() as f64;
        if value.is_finite() { value } else { 1e9 }
    };
    let mut best: Vec<f64> = constants.iter().map(|c| c.start.ln()).collect();
    for step in [0.3, 0.15, 0.1] {
        best = minimise(&loss, &best, step, EVALUATIONS).0;
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

/// A kind of kernel: its name here, its rows, and the constants of its form.
struct Kind {
    name: &'static str,
    rows: Vec<Row>,
    constants: &'static [Constant],
    /// The kind with the same form whose constants stand in where only one GPU was measured.
    like: Option<&'static str>,
}

impl Kind {
    /// # Panics
    /// Without a row.
    fn new(name: &'static str, rows: Vec<Row>) -> Self {
        let constants = rows[0].shape.constants();
        Self { name, rows, constants, like: None }
    }

    fn like(self, other: Operands) -> Self {
        Self { like: Some(other.kind()), ..self }
    }

    fn of(&self, gpu: usize) -> Vec<&Row> {
        self.rows.iter().filter(|r| r.gpu == gpu).collect()
    }

    /// Constants fitted on all rows but one GPU's.
    fn without(&self, gpu: Option<usize>, gpus: &[Gpu]) -> Option<Vec<f64>> {
        let rows: Vec<&Row> = self.rows.iter().filter(|r| Some(r.gpu) != gpu).collect();
        (!rows.is_empty()).then(|| fit(&rows, self.constants, gpus))
    }
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

/// Error of rows by the closed form, in per cent; with `default`, as if no configuration was tuned.
fn closed(rows: &[&Row], constants: &[f64], gpus: &[Gpu], default: bool) -> f64 {
    mean_error(rows.iter().map(|r| {
        let mut shape = r.shape;
        if let Shape::Experts(a) = &mut shape {
            a.tuned &= !default;
        }
        shape.form(constants, &gpus[r.gpu]) / r.seconds
    }))
}

/// Trees for one GPU's rows of a kind beside shared constants, and the mean error of those rows, in per cent, by trees that did not see them.
fn learn(own: &[&Row], constants: &[f64], gpus: &[Gpu]) -> (Forest, f64) {
    let samples = samples(own, constants, gpus);
    let predicted = samples::cross_validate(&samples, FEATURES, &settings(), FOLDS);
    let validated = mean_error(predicted.iter().zip(&samples).map(|(p, s)| p / s.seconds));
    (samples::fit(&samples, FEATURES, &settings(), |_| true), validated)
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
    let experts = |published: &str, bytes, dtype| expert_layers(sets, published, bytes, dtype);
    let product = |published: &str, operands: Operands| {
        products(sets, published, operands).map(|rows| Kind::new(operands.kind(), rows))
    };
    let kinds = [
        Kind::new("prompt", prompts(sets)?),
        Kind::new("token", new_tokens(sets)?),
        product("fp8", Operands::Fp8)?,
        product("fp8_block", Operands::Fp8Blocks)?,
        product("nvfp4", Operands::Nvfp4)?.like(Operands::Fp8),
        Kind::new("experts.bf16", experts("bfloat16", 2.0, Dtype::Bf16)?),
        Kind::new("experts.fp8", experts("fp8_block", 1.0, Dtype::Fp8)?),
        Kind::new("experts.int4", experts("int4_wo", 0.515_625, Dtype::Bf16)?),
        Kind::new("experts.nvfp4", experts("nvfp4", 0.5625, Dtype::Fp4)?),
    ];
    let (mut file, mut forests) = (String::from(HEADER), BTreeMap::new());
    let mut without: BTreeMap<&str, Vec<Option<Vec<f64>>>> = BTreeMap::new();
    println!(
        "{:<18} {:<14} {:>6} {:>10} {:>10} {:>10} {:>16}",
        "kernels", "GPU", "rows", "left out", "untuned", "in the fit", "cross-validated"
    );
    for kind in &kinds {
        // Every GPU left out in turn, and none.
        let turns: Vec<Option<usize>> = (0..gpus.len()).map(Some).chain([None]).collect();
        let mut lists: Vec<Option<Vec<f64>>> =
            turns.par_iter().map(|gpu| kind.without(*gpu, &gpus)).collect();
        let Some(all) = lists.pop().flatten() else { continue };
        let other = kind.like.and_then(|name| without.get(name));
        for (own, other) in lists.iter_mut().zip(other.into_iter().flatten()) {
            *own = own.take().or_else(|| other.clone());
        }
        without.insert(kind.name, lists.clone());
        writeln!(file, "\n# {}", kind.constants.iter().map(|c| c.name).collect::<Vec<_>>().join(", "))?;
        let mut means = [0.0; 3];
        let mut count = 0.0;
        for (g, gpu) in gpus.iter().enumerate() {
            let own = kind.of(g);
            if own.is_empty() {
                continue;
            }
            let (forest, validated) = learn(&own, &all, &gpus);
            let fitted = closed(&own, &all, &gpus, false);
            let outside = lists[g]
                .as_ref()
                .map(|list| [closed(&own, list, &gpus, false), closed(&own, list, &gpus, true), fitted]);
            let said = |i: usize| outside.map_or("-".to_string(), |e| format!("{:.1} %", e[i]));
            println!(
                "{:<18} {:<14} {:>6} {:>10} {:>10} {fitted:>8.1} % {validated:>14.1} %",
                kind.name,
                gpu.name,
                own.len(),
                said(0),
                said(1)
            );
            writeln!(
                file,
                "# {} on {}: {} rows, {} with it left out, {fitted:.1} % in the fit, {validated:.1} % cross-validated",
                kind.name,
                gpu.name,
                own.len(),
                said(0)
            )?;
            if let Some(errors) = outside {
                count += 1.0;
                means.iter_mut().zip(errors).for_each(|(m, e)| *m += e);
            }
            forests.insert(format!("{}/{}", kind.name, gpu.architecture.name()), forest);
        }
        if count > 0.0 {
            let [left_out, untuned, fitted] = means.map(|m| m / count);
            println!(
                "{:<18} {:<14} {:>6} {left_out:>8.1} % {untuned:>8.1} % {fitted:>8.1} %",
                kind.name,
                "mean",
                kind.rows.len()
            );
        }
        writeln!(file, "\"{}\" = {}", kind.name, list(&all))?;
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
# Constants of an inference server's kernels, read by crates/language/src/served/constants.rs; attention.rs and experts.rs beside it have the formulas.
# Made by `cargo run --profile quick -p preflop-fit -- served write` from measurements that are not part of this repository: ai-dynamo/aiconfigurator (Apache-2.0),
# SGLang 0.5.10 on A100 SXM 80 GB, L40S, H100 SXM and B200. All GPUs share the constants. Mean absolute errors: the closed form with the whole GPU left out of the fit
# (no trees), the same form fitted on all, and with trees of the generation that did not see the row. Left out of product.nvfp4, measured on one GPU, is the format too: constants of product.fp8.

[kernels]
";
