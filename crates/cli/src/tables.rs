//! Tables and the names in them: GPUs, models and clusters may be files here.

use crate::error::InputError;
use crate::{cluster_args, input};
use preflop_cluster::Cluster;
use preflop_core::Gpu;
use preflop_core::model::{Graph, Stage};
use preflop_core::time::TimeModel;
use preflop_import::exported::Bindings;
use preflop_table::format::Format;
use preflop_table::{Engine, Source, TableError};
use std::sync::{Arc, OnceLock};

/// Names and paths, as on the command line.
#[derive(Debug, Clone, Copy)]
struct Files;

fn said(error: &anyhow::Error) -> String {
    format!("{error:#}")
}

impl Source for Files {
    fn gpu(&self, name: &str) -> Result<Gpu, String> {
        input::gpu(name).map_err(|e| said(&e))
    }

    fn model(&self, name: &str, batch: Option<u64>, seq: Option<u64>, stage: Stage) -> Result<Graph, String> {
        let sizes = Bindings { batch, seq, ..Bindings::default() };
        input::staged_model(name, &sizes, stage).map_err(|e| said(&e))
    }

    fn cluster(&self, name: &str) -> Result<Cluster, String> {
        cluster_args::cluster(name, None).map_err(|e| said(&e))
    }
}

/// An engine with this model.
pub fn engine_of(model: TimeModel) -> Result<Engine, TableError> {
    Engine::new(model, Box::new(Files))
}

/// The engine of this process, made on first use and kept.
pub fn engine() -> Result<Arc<Engine>, TableError> {
    static ENGINE: OnceLock<Arc<Engine>> = OnceLock::new();
    if let Some(engine) = ENGINE.get() {
        return Ok(Arc::clone(engine));
    }
    let made = Arc::new(engine_of(TimeModel::embedded())?);
    Ok(Arc::clone(ENGINE.get_or_init(|| made)))
}

/// For `--format`.
pub fn format(text: &str) -> Result<Format, String> {
    input::one_of(text, &Format::ALL.map(|(format, name, _)| (name, format)))
}

/// The format of a file: as said, or by its ending.
pub fn format_of(path: &str, given: Option<Format>) -> anyhow::Result<Format> {
    match given {
        Some(format) => Ok(format),
        None => Format::of_path(path).map_err(|e| InputError::new(e.to_string()).into()),
    }
}
