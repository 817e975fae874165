//! What may leave a Kineto or Chakra trace: the fields that are known, each with the shape of its value.

/// What a field may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A number; one in quotes is freed of them.
    Number,
    /// A moment in microseconds, told from the first one of the file on.
    Moment,
    /// Numbers in lists of any depth.
    Numbers,
    /// A name made of known words.
    Name,
    /// One of the words that tell kinds of events apart.
    Kind,
    /// A name or a number.
    NameOrNumber,
    /// A list of names.
    Names,
    /// Values of an operator's arguments: numbers, lists of them and yes or no, mostly in quotes.
    Values,
}

use Shape::{Kind, Moment, Name, NameOrNumber, Names, Number, Numbers, Values};

pub type Fields = &'static [(&'static str, Shape)];

/// Top-level fields; all others are left out.
pub const TOP: Fields = &[
    ("schemaVersion", Number),
    ("record_shapes", Number),
    ("profile_memory", Number),
    ("with_stack", Number),
    ("with_flops", Number),
    ("with_modules", Number),
    ("cuda_driver_version", Number),
    ("cuda_runtime_version", Number),
    ("cupti_version", Number),
    ("hip_driver_version", Number),
    ("hip_runtime_version", Number),
    ("roctracer_version", Number),
];

pub const EVENT: Fields = &[
    ("ph", Kind),
    ("cat", Kind),
    ("name", Name),
    ("pid", NameOrNumber),
    ("tid", NameOrNumber),
    ("ts", Moment),
    ("dur", Number),
    ("id", Number),
    ("bp", Kind),
];

pub const ARGS: Fields = &[
    ("External id", Number),
    ("external id", Number),
    ("correlation", Number),
    ("device", Number),
    ("stream", Number),
    ("context", Number),
    ("queued", Number),
    ("cbid", Number),
    ("grid", Numbers),
    ("block", Numbers),
    ("registers per thread", Number),
    ("shared memory", Number),
    ("blocks per SM", Number),
    ("warps per SM", Number),
    ("est. achieved occupancy %", Number),
    ("bytes", Number),
    ("memory bandwidth (GB/s)", Number),
    ("graph node id", Number),
    ("graph id", Number),
    ("Sequence number", Number),
    ("Sequence Number", Number),
    ("Fwd thread id", Number),
    ("Record function id", Number),
    ("Ev Idx", Number),
    ("Python id", Number),
    ("Python parent id", Number),
    ("Python module id", Number),
    ("Input Dims", Numbers),
    ("Input dims", Numbers),
    ("Input Strides", Numbers),
    ("Input type", Names),
    ("Concrete Inputs", Values),
    ("In msg nelems", Number),
    ("Out msg nelems", Number),
    ("Group size", Number),
    ("dtype", Name),
    ("Collective name", Name),
];

pub const DEVICE: Fields = &[
    ("id", Number),
    ("totalGlobalMem", Number),
    ("computeMajor", Number),
    ("computeMinor", Number),
    ("maxThreadsPerBlock", Number),
    ("maxThreadsPerMultiprocessor", Number),
    ("regsPerBlock", Number),
    ("regsPerMultiprocessor", Number),
    ("warpSize", Number),
    ("sharedMemPerBlock", Number),
    ("sharedMemPerMultiprocessor", Number),
    ("sharedMemPerBlockOptin", Number),
    ("numSms", Number),
];

pub const NODE: Fields = &[
    ("id", Number),
    ("name", Name),
    ("ctrl_deps", Number),
    ("parent", Number),
    ("input_shapes", Numbers),
    ("input_types", Names),
    ("output_shapes", Numbers),
    ("output_types", Names),
    ("seq_id", Number),
    ("tid", Number),
    ("fw_tid", Number),
    ("fw_parent", Number),
    ("rf_id", Number),
    ("scope", Number),
];

pub const TENSORS: Fields =
    &[("values", Values), ("shapes", Numbers), ("types", Names), ("strides", Numbers)];

/// Attributes of a node that are whole numbers.
pub const ATTRIBUTES: [&str; 7] = ["seq_id", "tid", "fw_tid", "fw_parent", "rf_id", "scope", "rank"];

/// Categories of events that the importer reads, and the flows between them.
pub const CATEGORIES: [&str; 26] = [
    "kernel",
    "Kernel",
    "gpu_memcpy",
    "Memcpy",
    "memcpy",
    "gpu_memset",
    "Memset",
    "memset",
    "cpu_op",
    "Operator",
    "operator",
    "cuda_runtime",
    "cuda_driver",
    "Runtime",
    "runtime",
    "hip_runtime",
    "privateuse1_runtime",
    "user_annotation",
    "User Annotation",
    "gpu_user_annotation",
    "python_function",
    "Python",
    "cuda_profiler_range",
    "ac2g",
    "fwdbwd",
    "async_gpu",
];

/// Phases of events that are kept: those with a length, flows, and where a flow binds.
pub const PHASES: [&str; 5] = ["X", "s", "t", "f", "e"];
