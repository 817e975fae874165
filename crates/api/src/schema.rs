//! Schemas of the fields whose values come from the core: the document lists them all.

use preflop_cluster::model::Stack;
use preflop_cluster::strategy::{Fsdp, Offload, Recompute, Schedule};
use preflop_core::Dtype;
use preflop_core::delta::networks;
use preflop_core::explore::KEYS;
use preflop_core::gpu::catalog;
use preflop_core::model::{CacheKind, Mode, OptimizerChoice, Precision, Run, zoo};
use preflop_language::served::{KvFormat, WeightFormat};
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

pub fn precisions() -> RefOr<Schema> {
    let items = names("Number formats.", Precision::ALL.map(Precision::name));
    let text = "Several number formats: of those that a GPU has the best is taken.";
    let list = ArrayBuilder::new().items(items).max_items(Some(Precision::ALL.len())).description(Some(text));
    RefOr::T(Schema::Array(list.build()))
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

pub fn checkpoint() -> RefOr<Schema> {
    let text = "Activation checkpointing: `none`, `full`, or `every=K` with K blocks for each kept input.";
    let object = ObjectBuilder::new().schema_type(Type::String).description(Some(text));
    schema(object.pattern(Some("^(none|full|every=[1-9][0-9]{0,2})$")).build())
}

pub fn host() -> RefOr<Schema> {
    let text = "How fast the host is: `fast`, `usual`, `slow`, or a factor from `0.1x` to `10x` on the time that the usual one takes.";
    let object = ObjectBuilder::new().schema_type(Type::String).description(Some(text));
    schema(object.pattern(Some("^(fast|usual|slow|[0-9]+([.][0-9]+)?x)$")).build())
}

pub fn layout() -> RefOr<Schema> {
    schema(names("How feature maps lie in memory.", ["nchw", "channels-last"]))
}

pub fn algorithms() -> RefOr<Schema> {
    let text = "Algorithms of convolutions: by the library's heuristic, or found by trial (cudnn.benchmark).";
    schema(names(text, ["heuristic", "autotuned"]))
}

pub fn token_stack() -> RefOr<Schema> {
    let text =
        "What runs it: PyTorch as Hugging Face writes it, or an inference server with its own kernels.";
    schema(names(text, ["pytorch", "served"]))
}

pub fn weights() -> RefOr<Schema> {
    let text = "With the stack `served`: format of the layers' weights.";
    schema(names(text, WeightFormat::ALL.map(WeightFormat::name)))
}

pub fn kv() -> RefOr<Schema> {
    let text = "With the stack `served`: format of keys and values.";
    schema(names(text, KvFormat::ALL.map(KvFormat::name)))
}

pub fn cache() -> RefOr<Schema> {
    let text = "Keys and values in a tensor of fixed length, or concatenated at every step.";
    schema(names(text, [CacheKind::Static, CacheKind::Growing].map(CacheKind::name)))
}

pub fn batches() -> RefOr<Schema> {
    let one =
        ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).maximum(Some(zoo::MAX_BATCH as f64));
    let text = "Sequences at once; each number is answered by itself.";
    let list = ArrayBuilder::new().items(one.build()).min_items(Some(1)).max_items(Some(32));
    RefOr::T(Schema::Array(list.description(Some(text)).build()))
}

pub fn recompute() -> RefOr<Schema> {
    schema(names("What is computed again in backward.", Recompute::ALL.map(Recompute::name)))
}

pub fn fsdp() -> RefOr<Schema> {
    schema(names("Fully sharded data parallel.", [Fsdp::Full, Fsdp::GradOp, Fsdp::Hybrid].map(Fsdp::name)))
}

pub fn schedule() -> RefOr<Schema> {
    let all = [Schedule::Gpipe, Schedule::OneFOneB, Schedule::ZeroBubble];
    schema(names("Order of a pipeline.", all.map(Schedule::name)))
}

pub fn offload() -> RefOr<Schema> {
    let all = [Offload::None, Offload::Optimizer, Offload::Activations];
    schema(names("What the host's memory holds.", all.map(Offload::name)))
}

pub fn attention() -> RefOr<Schema> {
    schema(names("Attention in one kernel or several.", ["fused", "eager"]))
}

pub fn software() -> RefOr<Schema> {
    schema(names("Software that trains.", Stack::ALL.map(Stack::name)))
}

pub fn cluster() -> RefOr<Schema> {
    let text = "Node; `NODExCOUNT` is a cluster and `8xGPU` a usual box.";
    schema(names(text, preflop_cluster::node::catalog::names()))
}

pub fn growth() -> RefOr<Schema> {
    schema(names("Weak: the batch grows with the GPUs; strong: it stays.", ["weak", "strong"]))
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

pub fn changes() -> RefOr<Schema> {
    let text = "Multiples of the base GPU's resources. What is left out stays.";
    let mut object = ObjectBuilder::new().schema_type(SchemaType::new(Type::Object)).description(Some(text));
    for key in preflop_design::KEYS {
        let value = number("Multiple of the base GPU.", SCALE_RANGE[0], SCALE_RANGE[1]).build();
        object = object.property(key, schema(value));
    }
    schema(object.additional_properties(Some(AdditionalProperties::FreeForm(false))).build())
}
