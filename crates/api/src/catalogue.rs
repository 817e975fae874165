//! `gpus` and `gpu`: the catalogue.

use crate::engine::Engine;
use crate::error::ApiError;
use preflop_core::gpu::{Assumption, Fact, Vendor, catalog};
use preflop_core::model::zoo::ModelInfo;
use preflop_core::model::{ModelError, Stage, zoo};
use preflop_core::{Dtype, Gpu};
use serde::Serialize;
use utoipa::ToSchema;

/// A GPU in a few figures.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = GpuInfo)]
#[allow(missing_docs)]
pub struct Listed<'a> {
    pub name: &'a str,
    pub title: &'a str,
    #[schema(value_type = String)]
    pub vendor: Vendor,
    pub architecture: &'a str,
    pub release_year: Option<u32>,
    pub sm_count: u32,
    pub memory_gib: f64,
    pub dram_gbs: f64,
    pub fp32_tflops: Option<f64>,
    pub tensor_16bit_tflops: Option<f64>,
    pub tdp_w: f64,
    pub aliases: Vec<String>,
}

/// A model of the zoo.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ListedModel)]
pub struct ListedModel {
    #[serde(flatten)]
    pub info: ModelInfo,
    /// Does it write tokens?
    pub generates: bool,
}

/// The models.
pub fn models() -> Vec<ListedModel> {
    // No batch is built: whether a model writes is looked at first.
    let refused = |name| {
        matches!(zoo::build_stage(name, Some(0), None, Stage::Prefill), Err(ModelError::NoGeneration { .. }))
    };
    zoo::list().into_iter().map(|info| ListedModel { generates: !refused(info.name), info }).collect()
}

/// A GPU with all its figures.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = GpuAnswer)]
#[allow(missing_docs)]
pub struct Shown<'a> {
    #[serde(flatten)]
    pub listed: Listed<'a>,
    pub chip: &'a str,
    pub compute_capability: &'a str,
    pub form: &'a str,
    pub dram_kind: &'a str,
    pub host_interface: &'a str,
    pub facts: &'a [Fact],
    pub assumptions: &'a [Assumption],
}

/// Rounds away what the change of units left behind.
fn rounded(x: f64, step: f64) -> f64 {
    (x * step).round() / step
}

impl<'a> Listed<'a> {
    /// The figures of a GPU.
    pub fn new(gpu: &'a Gpu) -> Self {
        let tensor = gpu.tensor.get(Dtype::Bf16).or_else(|| gpu.tensor.get(Dtype::Fp16));
        Self {
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
}

impl<'a> Shown<'a> {
    /// All figures of a GPU.
    pub fn new(gpu: &'a Gpu) -> Self {
        Self {
            listed: Listed::new(gpu),
            chip: &gpu.chip,
            compute_capability: &gpu.compute_capability,
            form: &gpu.form,
            dram_kind: &gpu.dram_kind,
            host_interface: &gpu.host_interface,
            facts: &gpu.facts,
            assumptions: &gpu.assumptions,
        }
    }
}

impl Engine {
    /// All GPUs, NVIDIA's first, then by age.
    pub(crate) fn gpu_list(&self) -> Vec<Listed<'_>> {
        let mut gpus: Vec<&Gpu> = self.gpus.iter().collect();
        gpus.sort_by_key(|g| (g.vendor != Vendor::Nvidia, g.release_year, g.architecture, &g.name));
        gpus.into_iter().map(Listed::new).collect()
    }

    /// One GPU with all its figures.
    pub(crate) fn gpu_in_full(&self, name: &str) -> Result<Shown<'_>, ApiError> {
        self.gpu(name).map(Shown::new)
    }
}
