//! `gpus` and `gpu`: the catalogue.

use crate::engine::Engine;
use crate::error::ApiError;
use preflop_core::gpu::{Assumption, Fact, Vendor, catalog};
use preflop_core::{Dtype, Gpu};
use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct Listed<'a> {
    name: &'a str,
    title: &'a str,
    vendor: Vendor,
    architecture: &'a str,
    release_year: Option<u32>,
    sm_count: u32,
    memory_gib: f64,
    dram_gbs: f64,
    fp32_tflops: Option<f64>,
    tensor_16bit_tflops: Option<f64>,
    tdp_w: f64,
    aliases: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct Shown<'a> {
    #[serde(flatten)]
    listed: Listed<'a>,
    chip: &'a str,
    compute_capability: &'a str,
    form: &'a str,
    dram_kind: &'a str,
    host_interface: &'a str,
    facts: &'a [Fact],
    assumptions: &'a [Assumption],
}

/// Rounds away what the change of units left behind.
fn rounded(x: f64, step: f64) -> f64 {
    (x * step).round() / step
}

fn listed(gpu: &Gpu) -> Listed<'_> {
    let tensor = gpu.tensor.get(Dtype::Bf16).or_else(|| gpu.tensor.get(Dtype::Fp16));
    Listed {
        name: &gpu.name,
        title: &gpu.title,
        vendor: gpu.vendor,
        architecture: gpu.architecture.name(),
        release_year: gpu.release_year,
        sm_count: gpu.sm_count,
        memory_gib: rounded(gpu.memory.mib() / 1024.0, 100.0),
        dram_gbs: gpu.dram.gbs(),
        fp32_tflops: gpu.plain.get(Dtype::Fp32).map(|r| rounded(r.tflops(), 10.0)),
        tensor_16bit_tflops: tensor.map(|r| rounded(r.tflops(), 10.0)),
        tdp_w: gpu.tdp_w,
        aliases: catalog::aliases(&gpu.name),
    }
}

impl Engine {
    /// All GPUs, NVIDIA's first, then by age.
    pub(crate) fn gpu_list(&self) -> Vec<Listed<'_>> {
        let mut gpus: Vec<&Gpu> = self.gpus.iter().collect();
        gpus.sort_by_key(|g| (g.vendor != Vendor::Nvidia, g.release_year, g.architecture, &g.name));
        gpus.into_iter().map(listed).collect()
    }

    /// One GPU with all its figures.
    pub(crate) fn gpu_in_full(&self, name: &str) -> Result<Shown<'_>, ApiError> {
        let gpu = self.gpu(name)?;
        Ok(Shown {
            listed: listed(gpu),
            chip: &gpu.chip,
            compute_capability: &gpu.compute_capability,
            form: &gpu.form,
            dram_kind: &gpu.dram_kind,
            host_interface: &gpu.host_interface,
            facts: &gpu.facts,
            assumptions: &gpu.assumptions,
        })
    }
}
