//! Reads measurements: the project's own H200 files and the published ones beside the repository.

use anyhow::{Context, Result};
use preflop_core::gpu::{Gpu, catalog};
use preflop_core::kernels::stream::launches;
use preflop_core::ops::{
    Attention, Conv, Elementwise, ElementwiseKind, Gemm, Op, OpCall, Rowwise, RowwiseKind, row,
};
use preflop_core::{Dtype, Pass};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// One measured call.
#[derive(Debug, Clone)]
pub struct Measured {
    pub call: OpCall,
    /// Index into the GPU list.
    pub gpu: usize,
    pub us: f64,
    /// Kernel names joined by a bar, where recorded.
    pub kernels: String,
    /// Name of the file it comes from.
    pub source: &'static str,
}

/// Opens a file, unpacking it when it ends in `.gz`.
pub fn open(path: &Path) -> Result<Box<dyn Read>> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let gz = path.extension().is_some_and(|e| e == "gz");
    Ok(if gz { Box::new(flate2::read::GzDecoder::new(file)) } else { Box::new(file) })
}

/// Reads a file of `op, phase, dtype, shape, gpu_us` rows measured on one GPU.
pub fn operators(path: &Path, gpu: usize, source: &'static str) -> Result<Vec<Measured>> {
    let mut reader = csv::Reader::from_reader(open(path)?);
    let headers = reader.headers()?.clone();
    let column = |name: &str| headers.iter().position(|h| h == name);
    let need = |name: &str| column(name).with_context(|| format!("{}: no column {name}", path.display()));
    let (op, phase, dtype, shape, us) =
        (need("op")?, need("phase")?, need("dtype")?, need("shape")?, need("gpu_us")?);
    let names = column("kernels");
    let mut out = Vec::new();
    let mut skipped = 0;
    for record in reader.records() {
        let r = record?;
        // Forms and corrections of attention know no dropout: what it adds is a constant of its own.
        if r[shape].contains("\"dropout\": 0.") && !r[shape].contains("\"dropout\": 0.0") {
            continue;
        }
        // Neither do products know scales by row or slow sums, which other fp8 kernels have.
        if r[shape].contains("\"scale\": \"row\"") || r[shape].contains("\"fast_accum\": false") {
            continue;
        }
        match row::parse(&r[op], &r[phase], &r[dtype], &r[shape]) {
            Ok(call) => out.push(Measured {
                call,
                gpu,
                us: r[us].parse()?,
                kernels: names.map(|i| r[i].to_string()).unwrap_or_default(),
                source,
            }),
            Err(e) => {
                skipped += 1;
                if skipped <= 3 {
                    note(&format!("{}: skipped a row: {e}", path.display()));
                }
            }
        }
    }
    Ok(out)
}

/// What every kernel takes longer once cuDNN has been used in its process, in us (`tools/measure/launch_gap.py`).
const CUDNN_GAP_US: f64 = 0.2;
/// What is left of it for `products_more`, which was timed in another way: its rows are 0.1 us longer than those of
/// `products` at 1,465 equal shapes.
const REST_GAP_US: f64 = 0.1;

/// Files whose rows were timed in processes that had not used cuDNN, and what their kernels lack, in us.
pub const WITHOUT_CUDNN: [(&str, f64); 3] =
    [("products", CUDNN_GAP_US), ("products_more", REST_GAP_US), ("rowwise", CUDNN_GAP_US)];

/// Reads a file of [`WITHOUT_CUDNN`] as if its process had used cuDNN, as nearly every job does.
pub fn without_cudnn(path: &Path, source: &'static str, gap_us: f64) -> Result<Vec<Measured>> {
    let mut rows = optional(path, source)?;
    for r in &mut rows {
        let kernels =
            if r.kernels.is_empty() { launches(&r.call) } else { r.kernels.split('|').count() as f64 };
        r.us += gap_us * kernels;
    }
    Ok(rows)
}

/// Reads a file of operators measured on the H200, or nothing if it is not there.
pub fn optional(path: &Path, source: &'static str) -> Result<Vec<Measured>> {
    if path.exists() { operators(path, 0, source) } else { Ok(Vec::new()) }
}

/// Says something on the terminal.
#[allow(clippy::print_stderr)]
pub fn note(text: &str) {
    eprintln!("{text}");
}

/// GPUs of the measurements, by index.
pub const GPUS: [&str; 13] = [
    "h200",
    "a100-sxm-80gb",
    "h100-sxm",
    "l40s",
    "b200",
    "p4",
    "p100-pcie",
    "v100-pcie-32gb",
    "t4",
    "a100-pcie-40gb",
    "mi100",
    "titan-xp",
    "v100-sxm2-16gb",
];

/// Which of them speaks for a library and a generation, the first that is not left out; a library alone speaks for generations without
/// measurements.
const REFERENCES: [(&str, &[&str]); 13] = [
    ("own", &["h200"]),
    ("own/hopper", &["h200"]),
    ("served", &["h100-sxm", "a100-sxm-80gb"]),
    ("served/ampere", &["a100-sxm-80gb"]),
    ("served/ada", &["l40s"]),
    ("served/hopper", &["h100-sxm"]),
    ("served/blackwell", &["b200"]),
    ("plain", &["v100-pcie-32gb", "a100-pcie-40gb"]),
    ("plain/pascal", &["p100-pcie", "p4"]),
    ("plain/volta", &["v100-pcie-32gb"]),
    ("plain/turing", &["t4"]),
    ("plain/ampere", &["a100-pcie-40gb"]),
    ("plain/cdna1", &["mi100"]),
];

/// The GPUs that measurements lie on, by library and generation, without one of [`GPUS`].
pub fn references(without: Option<usize>) -> BTreeMap<String, String> {
    let left_out = without.map(|g| GPUS[g]);
    let first = |names: &[&str]| names.iter().find(|n| Some(**n) != left_out).map(ToString::to_string);
    REFERENCES.iter().filter_map(|(key, names)| Some((key.to_string(), first(names)?))).collect()
}

/// The GPUs with all their figures.
pub fn gpus() -> Result<Vec<Gpu>> {
    GPUS.iter().map(|name| Ok(catalog::find(name)?)).collect()
}

fn index(name: &str) -> usize {
    GPUS.iter().position(|g| *g == name).unwrap_or(0)
}

/// Every how many rows of `served.csv.gz` teach the H200's own fit: their operands stay in the L2 more often than those of
/// the other files, so they may not outnumber them.
const SERVED_STEP: usize = 4;

/// Served products as rows of the H200's own fit.
pub fn served_as_own(own: &Path) -> Result<Vec<Measured>> {
    let rows = without_cudnn(&own.join("served.csv.gz"), "served", CUDNN_GAP_US)?;
    Ok(rows.into_iter().step_by(SERVED_STEP).collect())
}

/// bf16 products on four GPUs (aiconfigurator): linear layers without bias, milliseconds.
pub fn bf16_products(shared: &Path) -> Result<Vec<Measured>> {
    let mut reader = csv::Reader::from_reader(open(&shared.join("aiconfigurator/gemm_bf16.csv.gz"))?);
    let columns = [("a100-sxm-80gb", 3), ("b200", 4), ("h100-sxm", 5), ("l40s", 6)];
    let mut out = Vec::new();
    for record in reader.records() {
        let r = record?;
        let d = |i: usize| r[i].parse::<u64>();
        let call = OpCall::fwd(Op::Gemm(Gemm::linear(d(0)?, d(1)?, d(2)?, false)), Dtype::Bf16);
        for (gpu, c) in columns {
            if let Ok(ms) = r[c].parse::<f64>() {
                out.push(Measured {
                    call: call.clone(),
                    gpu: index(gpu),
                    us: ms * 1e3,
                    kernels: String::new(),
                    source: "published",
                });
            }
        }
    }
    Ok(out)
}

/// Index of a GPU by its name in the NeuSight files.
pub fn neusight_gpu(device: &str) -> Option<usize> {
    let name = match device.replace('_', " ").as_str() {
        "Tesla P4" => "p4",
        "Tesla P100-PCIE-16GB" => "p100-pcie",
        "Tesla V100-PCIE-32GB" => "v100-pcie-32gb",
        "Tesla T4" => "t4",
        "NVIDIA A100-PCIE-40GB" => "a100-pcie-40gb",
        "AMD Instinct MI100" => "mi100",
        _ => return None,
    };
    Some(index(name))
}

/// fp32 products on six GPUs (NeuSight). There N is the reduction: (B,M,N) x (B,N,K).
pub fn fp32_products(shared: &Path) -> Result<Vec<Measured>> {
    let mut out = Vec::new();
    for file in ["bmm", "linear"] {
        let mut reader =
            csv::Reader::from_reader(open(&shared.join(format!("neusight/{file}_fwd_fp32.csv.gz")))?);
        for record in reader.records() {
            let r = record?;
            let Some(gpu) = neusight_gpu(&r[1]) else { continue };
            let d = |i: usize| r[i].parse::<u64>();
            let (b, m, k, n) = (d(4)?, d(5)?, d(6)?, d(7)?);
            let gemm = if file == "bmm" { Gemm::bmm(b, m, n, k) } else { Gemm::linear(b * m, n, k, true) };
            let us = r[8].parse::<f64>()? * 1e3;
            out.push(Measured {
                call: OpCall::fwd(Op::Gemm(gemm), Dtype::Fp32),
                gpu,
                us,
                kernels: r[9].to_string(),
                source: "published",
            });
        }
    }
    Ok(out)
}

/// fp32 vector operators on six GPUs (NeuSight).
pub fn fp32_vectors(shared: &Path) -> Result<Vec<Measured>> {
    let mut reader = csv::Reader::from_reader(open(&shared.join("neusight/vector_fwd_fp32.csv.gz"))?);
    let mut out = Vec::new();
    for record in reader.records() {
        let r = record?;
        let Some(gpu) = neusight_gpu(&r[1]) else { continue };
        let (rows, cols) = (r[4].parse::<u64>()?, r[5].parse::<u64>()?);
        let e = |kind| Op::Elementwise(Elementwise { kind, n: rows * cols });
        let op = match &r[2] {
            "add" | "mul" | "div" | "pow" => e(ElementwiseKind::Add),
            "addu" | "mulu" | "divu" => e(ElementwiseKind::AddScalar),
            "powu" => e(ElementwiseKind::Pow),
            "relu" => e(ElementwiseKind::Relu),
            "gelu" => e(ElementwiseKind::Gelu),
            "tanh" => e(ElementwiseKind::Tanh),
            "softmax" => Op::Rowwise(Rowwise { kind: RowwiseKind::Softmax, rows, cols }),
            "ln" => Op::Rowwise(Rowwise { kind: RowwiseKind::LayerNorm, rows, cols }),
            _ => continue,
        };
        let us = r[6].parse::<f64>()? * 1e3;
        out.push(Measured {
            call: OpCall::new(op, Pass::Fwd, Dtype::Fp32),
            gpu,
            us,
            kernels: r[2].to_string(),
            source: "published",
        });
    }
    Ok(out)
}

/// fp8 products (one scale per tensor) on three GPUs (aiconfigurator).
pub fn fp8_products(shared: &Path) -> Result<Vec<Measured>> {
    let mut reader = csv::Reader::from_reader(open(&shared.join("aiconfigurator/gemm_quantized.csv.gz"))?);
    let mut out = Vec::new();
    for record in reader.records() {
        let r = record?;
        let gpu = match (&r[0], &r[2]) {
            ("b200_sxm", "fp8") => "b200",
            ("h100_sxm", "fp8") => "h100-sxm",
            ("l40s", "fp8") => "l40s",
            _ => continue,
        };
        let d = |i: usize| r[i].parse::<u64>();
        let call = OpCall::fwd(Op::Gemm(Gemm::linear(d(3)?, d(4)?, d(5)?, false)), Dtype::Fp8);
        out.push(Measured {
            call,
            gpu: index(gpu),
            us: r[6].parse::<f64>()? * 1e3,
            kernels: String::new(),
            source: "published",
        });
    }
    Ok(out)
}

/// bf16 attention of an inference server on four GPUs (aiconfigurator): prefill (causal) and decode. Rows with a window are left out, and so are B200 prefill rows marked as having none: they are
/// faster than rows with a window of 128 and than the chip's peak. The encoder file is not read: its times at one
/// shape jump by factors of ten between neighbours (B200: 2 to 30 % of peak), so it did not time the kernel alone.
pub fn published_attention(shared: &Path) -> Result<Vec<Measured>> {
    let mut out = Vec::new();
    for kind in ["context", "generation"] {
        let path = shared.join(format!("aiconfigurator/{kind}_attention.csv.gz"));
        let mut reader = csv::Reader::from_reader(open(&path)?);
        let headers = reader.headers()?.clone();
        let column = |name: &str| headers.iter().position(|h| h == name);
        for record in reader.records() {
            let r = record?;
            let text = |name: &str| column(name).map_or("", |i| &r[i]);
            let gpu = match text("system") {
                "a100_sxm" => "a100-sxm-80gb",
                "h100_sxm" => "h100-sxm",
                "l40s" => "l40s",
                "b200_sxm" => "b200",
                _ => continue,
            };
            let half = |name: &str| matches!(text(name), "" | "bfloat16");
            let full = matches!(text("window_size"), "" | "0");
            if !half("attn_dtype") || !half("kv_cache_dtype") || !full || (gpu == "b200" && kind == "context")
            {
                continue;
            }
            let number = |name: &str| text(name).parse::<u64>();
            let isl = number("isl")?;
            let decode = kind == "generation";
            let op = Attention {
                batch: number("batch_size")?,
                heads: number("num_heads")?,
                kv_heads: number("num_key_value_heads")?,
                q_len: isl,
                kv_len: if decode { isl + number("step")? } else { isl },
                head_dim: number("head_dim")?,
                causal: kind == "context",
                dropout: false,
            };
            out.push(Measured {
                call: OpCall::fwd(Op::Attention(op), Dtype::Bf16),
                gpu: index(gpu),
                us: text("time_ms").parse::<f64>()? * 1e3,
                kernels: text("kernel_source").to_string(),
                source: "published",
            });
        }
    }
    Ok(out)
}

/// fp32 3x3 convolutions on P4, T4 and V100 (NeuSight; cuDNN chose the fastest algorithm by trial).
pub fn fp32_convolutions(shared: &Path) -> Result<Vec<Measured>> {
    let mut reader = csv::Reader::from_reader(open(&shared.join("neusight/conv2d_fwd_fp32.csv.gz"))?);
    let mut out = Vec::new();
    for record in reader.records() {
        let r = record?;
        let Some(gpu) = neusight_gpu(&r[1]) else { continue };
        let d = |i: usize| r[i].parse::<u64>();
        let conv = Conv::square(d(4)?, d(5)?, d(8)?, d(6)?, d(7)?, d(9)?, d(10)?);
        out.push(Measured {
            call: OpCall::fwd(Op::Conv(conv), Dtype::Fp32),
            gpu,
            us: r[11].parse::<f64>()? * 1e3,
            kernels: r[24].to_string(),
            source: "published",
        });
    }
    Ok(out)
}
