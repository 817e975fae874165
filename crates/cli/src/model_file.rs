//! Models that files describe: recorded iterations, graphs, exported programs, configurations.

use crate::error::InputError;
use crate::input;
use anyhow::Context as _;
use preflop_core::capture::Capture;
use preflop_core::model::zoo::config::HubConfig;
use preflop_core::model::zoo::config::Stored;
use preflop_core::model::zoo::decoder::Plan;
use preflop_core::model::{Graph, Stage};
use preflop_import::exported::{Bindings, read_onnx, read_pt2};
use serde::Deserialize;
use std::path::Path;

/// The largest JSON file read; recorded iterations of large models reach some tens of megabytes.
const MAX_JSON_FILE: u64 = 256 << 20;

/// What kind of JSON it is.
#[derive(Deserialize)]
struct Probe<'a> {
    #[serde(borrow)]
    format: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow)]
    model_type: Option<std::borrow::Cow<'a, str>>,
}

/// The graph that a file describes; `sizes` are for dimensions that the file leaves open.
pub fn read(path: &str, sizes: &Bindings, stage: Stage) -> anyhow::Result<Graph> {
    let extension = Path::new(path).extension().and_then(|e| e.to_str()).unwrap_or_default().to_lowercase();
    match extension.as_str() {
        "onnx" | "pt2" if stage != Stage::Full => Err(no_stage(path, stage)),
        "onnx" => {
            let program = read_onnx(input::open(path)?, path, &name_of(path), sizes)?;
            program.into_graph().with_context(|| path.to_owned())
        }
        "pt2" => {
            let program = read_pt2(input::open(path)?, path, &name_of(path), sizes)?;
            program.into_graph().with_context(|| path.to_owned())
        }
        _ => json(path, sizes, stage),
    }
}

/// The file's name; a `config.json` is named after its folder.
fn name_of(path: &str) -> String {
    let path = Path::new(path);
    let stem = |p: &Path| p.file_stem().map(|s| s.to_string_lossy().into_owned());
    let folder = path.parent().and_then(|p| p.file_name()).map(|s| s.to_string_lossy().into_owned());
    match stem(path) {
        Some(name) if name == "config" => folder.unwrap_or(name),
        name => name.unwrap_or_default(),
    }
}

/// A program has the operators that it has.
fn no_stage(path: &str, stage: Stage) -> anyhow::Error {
    let step = stage.name().unwrap_or_default();
    InputError::new(format!("{path}: a recorded or exported program has no mode `{step}`"))
        .hint("name a language model or its config.json, or record the step itself")
        .into()
}

/// The plan of a decoder's configuration, its parameters, and the format of the checkpoint's weights.
pub fn decoder(path: &str) -> anyhow::Result<(Plan, u64, Option<Stored>)> {
    let bytes = input::read_limited(path, MAX_JSON_FILE, "model file")?;
    let config: HubConfig =
        serde_json::from_slice(&bytes).with_context(|| format!("{path}: not a model configuration"))?;
    let plan = config.plan().with_context(|| path.to_owned())?.ok_or_else(|| {
        InputError::new(format!("{path}: `--stack served` does not know the family `{}`", config.model_type))
            .hint("it takes decoders such as llama, qwen3 and mixtral")
    })?;
    let graph = config.build(&name_of(path), Some(1), Some(1)).with_context(|| path.to_owned())?;
    Ok((plan, graph.parameter_count(), graph.stored))
}

fn json(path: &str, sizes: &Bindings, stage: Stage) -> anyhow::Result<Graph> {
    let bytes = input::read_limited(path, MAX_JSON_FILE, "model file")?;
    let probe: Option<Probe<'_>> = serde_json::from_slice(&bytes).ok();
    let (format, family) = probe.map_or((None, None), |p| (p.format, p.model_type));
    if !sizes.dims.is_empty() {
        let message = format!("{path}: `--dim` is for .onnx and .pt2 files");
        return Err(InputError::new(message).hint("use `--batch` and `--seq`").into());
    }
    if family.is_some() {
        let config: HubConfig =
            serde_json::from_slice(&bytes).with_context(|| format!("{path}: not a model configuration"))?;
        let graph = config.build_stage(&name_of(path), sizes.batch, sizes.seq, stage);
        return graph.with_context(|| path.to_owned());
    }
    if stage != Stage::Full {
        return Err(no_stage(path, stage));
    }
    if sizes.batch.is_some() || sizes.seq.is_some() {
        let message = format!("{path}: a captured graph has its batch and sequence built in");
        return Err(InputError::new(message).hint("leave out `--batch` and `--seq`").into());
    }
    if format.is_some_and(|f| f == "preflop-capture") {
        return Ok(Capture::parse(&bytes).with_context(|| path.to_owned())?.into_graph());
    }
    serde_json::from_slice(&bytes).map_err(|error| {
        let message = format!("{path}: not a captured graph: {error}");
        InputError::new(message)
            .hint(
                "a model file is a graph in JSON, .onnx or .pt2; `preflop models` lists the built-in models",
            )
            .into()
    })
}
