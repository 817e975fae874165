//! Schemas of the fields whose values come from the core: the document lists them all.

use preflop_core::Dtype;
use preflop_core::delta::networks;
use preflop_core::explore::KEYS;
use preflop_core::gpu::catalog;
use preflop_core::model::{Mode, OptimizerChoice, Precision, Run, zoo};
use utoipa::openapi::schema::{AdditionalProperties, ArrayBuilder, Object, ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{RefOr, Schema};

fn names<'a>(description: &str, names: impl IntoIterator<Item = &'a str>) -> Object {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some(description))
        .enum_values(Some(names.into_iter().map(str::to_string).collect::<Vec<_>>()))
        .build()
}

fn schema(object: Object) -> RefOr<Schema> {
    RefOr::T(Schema::Object(object))
}

pub fn model() -> RefOr<Schema> {
    schema(names("Model of the zoo.", zoo::names()))
}

pub fn gpu() -> RefOr<Schema> {
    schema(names("GPU by name; aliases such as `a100` are taken too.", catalog::names()))
}

pub fn gpus() -> RefOr<Schema> {
    let items = names("GPU by name or alias.", catalog::names());
    RefOr::T(Schema::Array(
        ArrayBuilder::new()
            .items(items)
            .min_items(Some(1))
            .max_items(Some(crate::question::MAX_GPUS))
            .description(Some("GPUs by name."))
            .build(),
    ))
}

pub fn network() -> RefOr<Schema> {
    schema(names("Network of the DeLTA paper.", networks::NAMES))
}

pub fn precision() -> RefOr<Schema> {
    let text = "Number formats: `pytorch`, the default, is TF32 in convolutions and fp32 products; `fp32` is without TF32; \
                `amp` is autocast over fp32 weights.";
    schema(names(text, Precision::ALL.map(Precision::name)))
}

pub fn mode() -> RefOr<Schema> {
    schema(names("Training or inference.", [Mode::Train, Mode::Infer].map(Mode::name)))
}

pub fn optimizer() -> RefOr<Schema> {
    let text = "Optimizer of a training step; as the model is usually trained if left out. A name alone runs over lists of tensors, \
                as in PyTorch.";
    schema(names(text, OptimizerChoice::SPELLINGS.map(|(name, _)| name)))
}

pub fn launching() -> RefOr<Schema> {
    let text = "How it is launched: operator by operator, as a CUDA graph, through torch.compile, or both.";
    schema(names(text, Run::ALL.map(Run::name)))
}

pub fn layout() -> RefOr<Schema> {
    schema(names("How feature maps lie in memory.", ["nchw", "channels-last"]))
}

pub fn algorithms() -> RefOr<Schema> {
    let text = "Algorithms of convolutions: by the library's heuristic, or found by trial (cudnn.benchmark).";
    schema(names(text, ["heuristic", "autotuned"]))
}

pub fn rank() -> RefOr<Schema> {
    schema(names("What the list is ordered by.", ["time", "cost", "energy"]))
}

pub fn pricing() -> RefOr<Schema> {
    schema(names("Which price counts.", ["on-demand", "cheapest", "spot", "purchase"]))
}

pub fn dtype() -> RefOr<Schema> {
    schema(names("Number format of the tensors.", Dtype::MATH.iter().map(|d| d.name())))
}

fn number(description: &str, minimum: f64, maximum: f64) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::Number)
        .description(Some(description))
        .minimum(Some(minimum))
        .maximum(Some(maximum))
}

/// Most dollars of an hour.
pub const MAX_USD_PER_HOUR: f64 = 1e6;

pub fn prices() -> RefOr<Schema> {
    let value = number("US dollars per GPU-hour.", 0.0, MAX_USD_PER_HOUR).build();
    let object = ObjectBuilder::new()
        .schema_type(SchemaType::new(Type::Object))
        .description(Some("Your own prices by GPU; they win."))
        .additional_properties(Some(AdditionalProperties::RefOr(schema(value))))
        .build();
    schema(object)
}

/// Least and largest multiple of a resource, and tile edges, that a design may ask for.
pub const SCALE_RANGE: [f64; 2] = [0.0625, 64.0];
/// CTA tile edges that the DeLTA model has warps for.
pub const TILE_EDGES: [f64; 2] = [128.0, 256.0];

pub fn scales() -> RefOr<Schema> {
    let mut object = ObjectBuilder::new().schema_type(SchemaType::new(Type::Object)).description(Some(
        "Multiples of the base GPU's resources; `tile` is the edge of the CTA tile. What is left out stays.",
    ));
    for key in KEYS {
        let value = if key == "tile" {
            number("Edge of the CTA tile.", TILE_EDGES[0], TILE_EDGES[1])
                .schema_type(Type::Integer)
                .enum_values(Some(TILE_EDGES.map(|e| e as u64)))
                .build()
        } else {
            number("Multiple of the base GPU.", SCALE_RANGE[0], SCALE_RANGE[1]).build()
        };
        object = object.property(key, schema(value));
    }
    schema(object.additional_properties(Some(AdditionalProperties::FreeForm(false))).build())
}
