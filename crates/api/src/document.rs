//! The OpenAPI document: every question with its fields, from the types themselves.

use crate::engine::Kind;
use crate::error::ApiError;
use crate::types::{nullable, schemas_of_answers};
use crate::{
    catalogue, cluster, compare, delta, design, explore, generate, layer, model_file, predict, question,
    roofline,
};
use preflop_core::report::advise::Ranking;
use serde_json::{Map, Value, json};
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Preflop",
        description = "How long a deep-learning job takes on a GPU, why, and what it costs. Times in answers carry \
                       their unit in the name; intervals are 90 %. Errors are `{\"error\": {\"kind\", \"message\", \"hint\"}}`."
    ),
    components(schemas(
        question::Run,
        question::Predict,
        question::Advise,
        question::Layer,
        question::Compare,
        question::Roofline,
        question::Generate,
        question::ClusterRun,
        question::Parallel,
        question::Plan,
        question::Scale,
        question::Explore,
        question::Designs,
        question::ChangedGpu,
        question::DesignQuestion,
        question::Delta,
        question::GpuQuestion,
        predict::Answer,
        Ranking,
        layer::Answer,
        compare::Row,
        roofline::Answer,
        generate::Answer,
        cluster::parallel::Answer,
        cluster::plan::Answer,
        cluster::scale::Answer,
        cluster::Listed,
        model_file::Answer,
        explore::Answer,
        design::Answer,
        delta::Answer,
        catalogue::Listed,
        catalogue::Shown,
        catalogue::ListedModel
    ))
)]
struct Questions;

/// Name of the schema of a question's fields, and what the question is.
fn described(kind: Kind) -> (Option<&'static str>, &'static str) {
    match kind {
        Kind::Predict => (Some("Predict"), "Time, interval, memory and operators of one iteration on a GPU"),
        Kind::Advise => (Some("Advise"), "Options that make an iteration faster on a GPU, the best first"),
        Kind::Layer => (Some("Layer"), "One layer down to its kernels, with tile, waves and traffic"),
        Kind::Compare => {
            (Some("Compare"), "One run on many GPUs: time, memory, dollars, energy, Pareto front")
        }
        Kind::Roofline => (Some("Roofline"), "Bounds of every operator: the data of Roofline charts"),
        Kind::Generate => (
            Some("Generate"),
            "A language model that writes: first token, time per token, tokens/s, memory, traffic",
        ),
        Kind::Parallel => (Some("Parallel"), "One iteration of training on several GPUs, with its timeline"),
        Kind::Plan => (Some("Plan"), "The best way to cut a model over a cluster, and why not another"),
        Kind::Scale => (Some("Scale"), "The best plan at every size of a cluster"),
        Kind::Explore => (Some("Explore"), "What changed designs of a GPU do to a network (DeLTA model)"),
        Kind::Design => (Some("Designs"), "What changed designs of a GPU do to a whole network (time model)"),
        Kind::Delta => (Some("Delta"), "Traffic, time and bottleneck of convolution layers (DeLTA model)"),
        Kind::Gpus => (None, "The GPU catalogue"),
        Kind::Gpu => (Some("GpuQuestion"), "Every figure of one GPU with its source"),
        Kind::Models => (None, "The models"),
        Kind::Networks => (None, "The networks of the DeLTA model"),
        Kind::Nodes => (None, "The nodes that clusters are made of"),
        Kind::Accuracy => (None, "The scoreboard: predictions against measurements"),
        Kind::Version => (None, "Name and version of this server"),
    }
}

fn example(kind: Kind) -> Value {
    match kind {
        Kind::Predict => json!({ "model": "resnet50", "gpu": "h100", "batch": 64, "precision": "amp" }),
        Kind::Advise => json!({ "model": "resnet50", "gpu": "h100" }),
        Kind::Layer => json!({ "model": "resnet50", "gpu": "h100", "name": "layer1.0.conv2" }),
        Kind::Compare => json!({ "model": "gpt2", "precision": "bf16", "rank": "cost" }),
        Kind::Roofline => json!({ "model": "resnet50", "gpus": ["h100", "a100"], "precision": "amp" }),
        Kind::Generate => {
            json!({ "model": "llama-3-8b", "gpu": "h100", "prompt": 2048, "output": 512, "batches": [1, 8, 64] })
        }
        Kind::Parallel => json!({ "model": "llama-2-7b", "cluster": "dgx-h100x4", "tp": 2, "pp": 2 }),
        Kind::Plan => {
            json!({ "model": "llama-2-7b", "cluster": "dgx-h100x4", "global_batch": 256, "top": 3 })
        }
        Kind::Scale => json!({ "model": "llama-2-7b", "node": "dgx-h100", "least_gpus": 8, "most_gpus": 64 }),
        Kind::Explore => json!({ "network": "resnet152", "base": "titan-xp",
            "designs": [{ "name": "wide", "scales": { "mac_per_sm": 4.0 } }] }),
        Kind::Design => json!({ "model": "resnet50", "base": "h100",
            "designs": [{ "name": "wide", "scales": { "dram_bw": 2.0 } }] }),
        Kind::Delta => json!({ "network": "vgg16", "gpu": "titan-xp" }),
        Kind::Gpu => json!({ "gpu": "h100" }),
        _ => Value::Null,
    }
}

fn of(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// Schema of the answer to a question.
fn answered(kind: Kind) -> Value {
    let list = |items: Value| json!({ "type": "array", "items": items });
    match kind {
        Kind::Predict => of("Prediction"),
        Kind::Advise => of("Ranking"),
        Kind::Layer => of("LayerAnswer"),
        Kind::Compare => list(of("Offer")),
        Kind::Roofline => of("RooflineAnswer"),
        Kind::Generate => of("GenerateAnswer"),
        Kind::Parallel => of("ParallelAnswer"),
        Kind::Plan => of("PlanAnswer"),
        Kind::Scale => of("ScaleAnswer"),
        Kind::Explore => of("ExploreAnswer"),
        Kind::Design => of("DesignsAnswer"),
        Kind::Delta => of("DeltaAnswer"),
        Kind::Gpus => list(of("GpuInfo")),
        Kind::Gpu => of("GpuAnswer"),
        Kind::Models => list(of("ListedModel")),
        Kind::Nodes => list(of("NodeInfo")),
        Kind::Networks => list(json!({ "type": "string" })),
        Kind::Accuracy => json!({ "type": "object" }),
        Kind::Version => json!({ "type": "object", "required": ["name", "version"],
            "properties": { "name": { "type": "string" }, "version": { "type": "string" } } }),
    }
}

/// Responses of an operation: `answer` is the schema of the one that is meant to come.
fn responses(status: &[&str], answer: &Value) -> Value {
    let text = |code: &str| match code {
        "200" => "The answer",
        "400" => "Not JSON, or fields that the question does not have",
        "401" => "The token is missing or wrong",
        "408" => "The request came too slowly",
        "413" => "The body is too large",
        "415" => "The body is not `application/json`",
        "422" => "A name or a value that cannot be",
        _ => "Too many requests wait already; try again",
    };
    let problem = json!({ "type": "object", "required": ["error"], "properties": { "error": {
        "type": "object", "required": ["kind", "message"], "properties": {
            "kind": { "type": "string" }, "message": { "type": "string" }, "hint": { "type": "string" } } } } });
    let content = |code: &str| {
        let schema = if code == "200" { answer } else { &problem };
        json!({ "application/json": { "schema": schema } })
    };
    status
        .iter()
        .map(|code| ((*code).to_string(), json!({ "description": text(code), "content": content(code) })))
        .collect::<Map<_, _>>()
        .into()
}

/// Adds to the required fields those that may be null.
fn present(schema: &mut Value) {
    for part in schema.get_mut("allOf").and_then(Value::as_array_mut).into_iter().flatten() {
        present(part);
    }
    let fields = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let may_be_null: Vec<Value> =
        fields.filter(|(_, own)| nullable(own)).map(|(name, _)| json!(name)).collect();
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        required.extend(may_be_null);
    }
}

/// The OpenAPI document as JSON.
pub fn document() -> Value {
    let mut document = serde_json::to_value(Questions::openapi()).unwrap_or_default();
    document["info"]["version"] = json!(env!("CARGO_PKG_VERSION"));
    let mut paths = Map::new();
    for kind in Kind::ALL {
        let (schema, summary) = described(kind);
        let address = format!("/api/v1/{}", kind.name());
        let operation = match schema {
            None => json!({ "get": { "operationId": kind.name(), "summary": summary,
                "responses": responses(&["200", "401", "429"], &answered(kind)) } }),
            Some(schema) => json!({ "post": { "operationId": kind.name(), "summary": summary,
                "requestBody": { "required": true, "content": { "application/json": {
                    "schema": { "$ref": format!("#/components/schemas/{schema}") }, "example": example(kind) } } },
                "responses": responses(&["200", "400", "401", "408", "413", "415", "422", "429"], &answered(kind)) } }),
        };
        paths.insert(address, operation);
    }
    paths.insert(
        "/api/v1/ask".to_string(),
        json!({ "post": { "operationId": "ask",
            "summary": "Any of these questions, with its name in `ask`; errors are answers with status 200",
            "requestBody": { "required": true, "content": { "application/json": { "schema": {
                "type": "object", "required": ["ask"],
                "properties": { "ask": { "type": "string", "enum": Kind::ALL.map(Kind::name) } } },
                "example": { "ask": "predict", "model": "resnet50", "gpu": "h100" } } } },
            "responses": responses(&["200", "401", "408", "413", "415", "429"], &json!({})) } }),
    );
    let parameter = |name: &str, text: &str| json!({ "name": name, "in": "query", "required": false, "description": text, "schema": { "type": "string" } });
    paths.insert(
        "/api/v1/profile".to_string(),
        json!({ "post": { "operationId": "profile",
            "summary": "Upload a recording (PyTorch profiler, Nsight Systems or Compute, Chakra; plain, .gz or .zst): where its time goes, and other GPUs",
            "parameters": [parameter("from", "GPU of the recording, where it does not say"),
                parameter("to", "GPUs to carry it to, separated by commas; all if left out"),
                parameter("host", "factor on the recorded host time: 1 keeps it, 0.8 is a host a fifth faster; without it the profiler's own share is taken out"),
                parameter("name", "file name for messages")],
            "requestBody": { "required": true, "content": { "application/octet-stream": {
                "schema": { "type": "string", "format": "binary" } } } },
            "responses": responses(&["200", "401", "408", "413", "422", "429"], &json!({ "type": "object" })) } }),
    );
    paths.insert(
        "/api/v1/model".to_string(),
        json!({ "post": { "operationId": "model",
            "summary": "A model's file (ONNX, .pt2, config.json, recorded step): kept for a while, and asked about by the `model` of the answer",
            "parameters": [parameter("name", "file name; its ending tells ONNX files")],
            "requestBody": { "required": true, "content": { "application/octet-stream": {
                "schema": { "type": "string", "format": "binary" } } } },
            "responses": responses(&["200", "401", "408", "413", "422", "429"], &of("ModelFileAnswer")) } }),
    );
    document["paths"] = Value::Object(paths);
    // In answers what may be null is there; what may be absent is not null.
    for name in schemas_of_answers(&document) {
        present(&mut document["components"]["schemas"][name]);
    }
    document
}

/// Fields of a run, shared by several questions.
const RUN: [&str; 10] =
    ["model", "batch", "seq", "precision", "mode", "optimizer", "run", "layout", "checkpoint", "algorithms"];
/// Fields of a run on several GPUs.
const CLUSTER_RUN: [&str; 3] = ["model", "seq", "precision"];

/// Refuses fields that a question does not have, where serde cannot: in questions with a run inside.
pub(crate) fn check_fields(kind: Kind, fields: &Map<String, Value>) -> Result<(), ApiError> {
    let (run, own): (&[&str], &[&str]) = match kind {
        Kind::Predict => (&RUN, &["gpu", "host", "layers", "changes"]),
        Kind::Advise => (&RUN, &["gpu"]),
        Kind::Layer => (&RUN, &["gpu", "name"]),
        Kind::Compare => (
            &RUN,
            &[
                "gpus",
                "host",
                "precisions",
                "auto_batch",
                "rank",
                "pricing",
                "prices",
                "samples",
                "budget_usd",
            ],
        ),
        Kind::Roofline => (&RUN, &["gpus"]),
        Kind::Design => (&RUN, &["base", "designs"]),
        Kind::Parallel => (
            &CLUSTER_RUN,
            &[
                "cluster",
                "gpu",
                "gpus",
                "tp",
                "dp",
                "pp",
                "cp",
                "ep",
                "interleave",
                "micro_batch",
                "global_batch",
                "recompute",
                "sequence_parallel",
                "zero",
                "fsdp",
                "schedule",
                "offload",
                "attention",
                "stack",
            ],
        ),
        Kind::Plan => {
            (&CLUSTER_RUN, &["cluster", "gpu", "global_batch", "objective", "top", "fixed", "stack"])
        }
        Kind::Scale => (
            &CLUSTER_RUN,
            &["node", "gpu", "least_gpus", "most_gpus", "growth", "global_batch", "fixed", "stack"],
        ),
        _ => return Ok(()),
    };
    let unknown = fields.keys().find(|key| !run.contains(&key.as_str()) && !own.contains(&key.as_str()));
    match unknown {
        None => Ok(()),
        Some(key) => Err(ApiError::Malformed {
            detail: format!(
                "unknown field `{}`, expected one of {}, {}",
                key.chars().take(40).collect::<String>(),
                run.join(", "),
                own.join(", ")
            ),
        }),
    }
}
