//! Reads measurements: the project's own H200 files and the published ones beside the repository.

use crate::sets::Sets;
use anyhow::{Context, Result};
use preflop_core::Dtype;
use preflop_core::kernels::stream::launches;
use preflop_core::ops::{Attention, Gemm, Op, OpCall, row};

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

/// Reads a file of `op, phase, dtype, shape, gpu_us` rows of the project's own set.
pub fn operators(sets: &Sets, source: &'static str) -> Result<Vec<Measured>> {
    let gpu = sets.own_gpu()?;
    let mut reader = csv::Reader::from_reader(sets.open(&sets.own(&format!("{source}.csv.gz"))?)?);
    let headers = reader.headers()?.clone();
    let column = |name: &str| headers.iter().position(|h| h == name);
    let need = |name: &str| column(name).with_context(|| format!("{source}: no column {name}"));
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
                    note(&format!("{source}: skipped a row: {e}"));
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
pub fn without_cudnn(sets: &Sets, source: &'static str, gap_us: f64) -> Result<Vec<Measured>> {
    let mut rows = operators(sets, source)?;
    for r in &mut rows {
        let kernels =
            if r.kernels.is_empty() { launches(&r.call) } else { r.kernels.split('|').count() as f64 };
        r.us += gap_us * kernels;
    }
    Ok(rows)
}

/// Says something on the terminal.
#[allow(clippy::print_stderr)]
pub fn note(text: &str) {
    eprintln!("{text}");
}

/// Every how many rows of `served.csv.gz` teach the H200's own fit: their operands stay in the L2 more often than those of
/// the other files, so they may not outnumber them.
const SERVED_STEP: usize = 4;

/// Served products as rows of the H200's own fit.
pub fn served_as_own(sets: &Sets) -> Result<Vec<Measured>> {
    let rows = without_cudnn(sets, "served", CUDNN_GAP_US)?;
    Ok(rows.into_iter().step_by(SERVED_STEP).collect())
}

/// bf16 products on four GPUs (aiconfigurator): linear layers without bias, milliseconds.
pub fn bf16_products(sets: &Sets) -> Result<Vec<Measured>> {
    let mut reader = csv::Reader::from_reader(sets.open("aiconfigurator/gemm_bf16.csv.gz")?);
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
                    gpu: sets.index(gpu)?,
                    us: ms * 1e3,
                    kernels: String::new(),
                    source: "published",
                });
            }
        }
    }
    Ok(out)
}

/// fp8 products (one scale per tensor) on three GPUs (aiconfigurator).
pub fn fp8_products(sets: &Sets) -> Result<Vec<Measured>> {
    let mut reader = csv::Reader::from_reader(sets.open("aiconfigurator/gemm_quantized.csv.gz")?);
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
            gpu: sets.index(gpu)?,
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
pub fn published_attention(sets: &Sets) -> Result<Vec<Measured>> {
    let mut out = Vec::new();
    for kind in ["context", "generation"] {
        let mut reader =
            csv::Reader::from_reader(sets.open(&format!("aiconfigurator/{kind}_attention.csv.gz"))?);
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
                gpu: sets.index(gpu)?,
                us: text("time_ms").parse::<f64>()? * 1e3,
                kernels: text("kernel_source").to_string(),
                source: "published",
            });
        }
    }
    Ok(out)
}
