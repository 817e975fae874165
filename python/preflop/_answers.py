"""Answers as they come: the JSON of `Prediction.to_dict()` and of the API.

Made from the schemas of the answers by `PREFLOP_WRITE=1 cargo test -p preflop-api generated`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from typing_extensions import NotRequired


class Advice(TypedDict):
    """One way to run, with what it brings."""

    cost: list[str]
    fits: bool
    gain: float
    gain_high: float
    gain_low: float
    high_ms: float
    how: list[str]
    iteration_ms: float
    low_ms: float
    memory_mib: float
    options: list[str]


class Assumption(TypedDict):
    """A figure that the file did not hold."""

    key: str
    value: float
    why: str


class BatchRun(TypedDict):
    """One batch. The unit stands in every name."""

    answer_ms: float
    batch: int
    fits: bool
    kv_mib: float
    memory_mib: float
    tokens_per_s: float
    tokens_per_s_per_user: float
    tpot_high_ms: float
    tpot_low_ms: float
    tpot_ms: float
    ttft_ms: float
    usd_per_million_tokens: NotRequired[float]
    within_limits: bool


class Change(TypedDict):
    """A change that needs less memory, or has more, and what it does to the time."""

    change: str
    fits: bool
    gpu: NotRequired[str]
    gpus: int
    iteration_ms: float
    memory_mib: float
    options: list[str]
    samples_per_s: float
    time_ratio: float


class Cheaper(TypedDict):
    """Another GPU for the same run."""

    gpu: str
    instead_of_usd_per_hour: float
    iteration_ms: float
    usd_per_hour: float


class CollectiveUse(TypedDict):
    """A collective of an iteration."""

    bus_gbs: float
    bytes: float
    count: float
    exposed_us: float
    gpus: int
    group: str
    time_us: float
    what: str
    where: str


class DeltaAnswer(TypedDict):
    bottlenecks: dict[str, int]
    gpu: str
    layers: list[DeltaLayer]
    total_ms: float


class DeltaLayer(TypedDict):
    active_ctas_per_sm: int
    bottleneck: str
    bounds_ms: dict[str, float]
    cta_tile: list[int]
    dram_bytes: float
    headroom: float
    l1_bytes: float
    l2_bytes: float
    name: str
    next_bottleneck: str
    num_cta: int
    time_ms: float


class DesignAnswer(TypedDict):
    bottleneck: str
    bottleneck_ms: dict[str, float]
    bottlenecks: dict[str, int]
    cost: float
    headroom: float
    name: str
    next_bottleneck: str
    on_front: bool
    scales: Scales
    speedup: float
    time_ms: float


class DesignsAnswer(TypedDict):
    """The designs in the order of the question."""

    base: str
    base_time_ms: float
    batch: int
    designs: list[WholeDesign]
    model: str
    precision: str


class ExploreAnswer(TypedDict):
    base: str
    base_time_ms: float
    designs: list[DesignAnswer]
    layers: int
    network: str


class Fact(TypedDict):
    """One figure of a GPU file with where it comes from."""

    key: str
    note: NotRequired[str]
    source: str
    value: float


class GenerateAnswer(TypedDict):
    """The answer with what was asked, with the names and units that scripts rely on."""

    goodput_batch: int | None
    goodput_tokens_per_s: float
    largest_batch: int
    runs: list[BatchRun]
    gpu: str
    gpu_memory_mib: float
    model: str
    notes: list[str]
    output: int
    precision: str
    price_date: NotRequired[str]
    prompt: int
    run: str
    stack: str
    traffic: NotRequired[TrafficOutcome]
    usd_per_hour: NotRequired[float]


class Generated(TypedDict):
    """The answer."""

    goodput_batch: int | None
    goodput_tokens_per_s: float
    largest_batch: int
    runs: list[BatchRun]


class GpuAnswer(TypedDict):
    """A GPU with all its figures."""

    aliases: list[str]
    architecture: str
    dram_gbs: float
    fp32_tflops: float | None
    memory_gib: float
    name: str
    release_year: int | None
    sm_count: int
    tdp_w: float
    tensor_16bit_tflops: float | None
    title: str
    vendor: str
    assumptions: list[Assumption]
    chip: str
    compute_capability: str
    dram_kind: str
    facts: list[Fact]
    form: str
    host_interface: str


class GpuInfo(TypedDict):
    """A GPU in a few figures."""

    aliases: list[str]
    architecture: str
    dram_gbs: float
    fp32_tflops: float | None
    memory_gib: float
    name: str
    release_year: int | None
    sm_count: int
    tdp_w: float
    tensor_16bit_tflops: float | None
    title: str
    vendor: str


class KernelForm(TypedDict):
    """How the main kernel of a call is thought to run. Times are those of the closed form, before what was learned."""

    algorithm: str
    compute_us: float | None
    ctas: float | None
    dram_us: float | None
    l2_us: float | None
    latency_us: float | None
    split: float | None
    tile: list[int] | None
    waves: float | None


class LayerAnswer(TypedDict):
    gpu: str
    name: str
    operators: list[OperatorLine]


class LayerLine(TypedDict):
    """One layer: all its operators, forward, backward and optimizer together."""

    backward_us: float
    bound: str
    forward_us: float
    name: str
    optimizer_us: float
    share: float
    time_us: float


class ListedModel(TypedDict):
    """A model of the zoo."""

    default_batch: int
    default_seq: int | None
    family: str
    input: str
    max_seq: int | None
    name: str
    optimizer: str
    parameters: int
    title: str
    generates: bool


class MachineData(TypedDict):
    """A machine as scripts and pages read it."""

    device_overhead_us: float
    dram_bytes_per_s: float | None
    gpu: str
    host_overhead_us: float
    l1_bytes_per_s: float | None
    l2_bytes_per_s: float | None
    roofs: list[RoofData]
    title: str


class MemoryParts(TypedDict):
    """Peak memory by part. The unit stands in every name, as in all JSON."""

    activations_mib: float
    gradients_mib: float
    kv_cache_mib: float
    optimizer_mib: float
    weights_mib: float
    workspace_mib: float


class ModelFileAnswer(TypedDict):
    """What was kept, under which name to ask about it, and what can be chosen."""

    any_batch: bool
    batch: int
    generates: bool
    kind: str
    model: str
    parameters: int
    seq: int | None
    title: str


class ModelInfo(TypedDict):
    """What is known of a model before it is built."""

    default_batch: int
    default_seq: int | None
    family: str
    input: str
    max_seq: int | None
    name: str
    optimizer: str
    parameters: int
    title: str


class NodeInfo(TypedDict):
    """A node of the catalogue. Bandwidths are one way: of a GPU inside, of a node outside."""

    gpu: str
    gpus: int
    link_gbs: float
    name: str
    network: str
    network_gbs: float
    title: str
    topology: str


class Offer(TypedDict):
    """One GPU. What has no price has no dollars."""

    batch: int
    bound: str
    changes: NotRequired[list[Change]]
    chosen: bool
    evidence: str
    fits: bool
    gpu: str
    gpu_busy_ms: float
    gpu_memory_mib: float
    high_ms: float
    host_ms: float
    iteration_ms: float
    joules_per_sample: float
    keeps_limits: bool | None
    low_ms: float
    memory_mib: float
    needed_mib: float
    pareto: bool
    precision: str
    price_date: str | None
    price_source: str | None
    run_hours: float | None
    run_usd: float | None
    samples_per_s: float
    title: str
    usd_per_hour: float | None
    usd_per_million_samples: float | None
    watts: float


OpLine = TypedDict(
    "OpLine",
    {
        "bound": "str",
        "count": "int",
        "dtype": "str",
        "name": "str",
        "op": "str",
        "pass": "str",
        "phase": "str",
        "shape": "str",
        "share": "float",
        "time_us": "float",
    },
)


OperatorLine = TypedDict(
    "OperatorLine",
    {
        "bound": "str",
        "count": "int",
        "dram_bytes": "float",
        "dtype": "str",
        "flops": "float",
        "high_us": "float",
        "kernel": "KernelForm",
        "l1_bytes": "float",
        "l2_bytes": "float",
        "launches": "float",
        "low_us": "float",
        "op": "str",
        "pass": "str",
        "phase": "str",
        "shape": "str",
        "time_us": "float",
    },
)


class PageView(TypedDict):
    """What a page shows of a view."""

    entries: int
    gpu: str
    label: str
    machine: MachineData
    merged: int
    rows: list[RowData]
    sources: NotRequired[str]
    unknown_share: float
    zero_flop_launch_share: float
    zero_flop_time_share: float


class ParallelAdvice(TypedDict):
    """A change of the plan."""

    change: str
    fits: bool
    gain: float
    needed_mib: float


class ParallelAnswer(TypedDict):
    """The answer."""

    advice: list[ParallelAdvice]
    batch: int
    bound: str
    breakdown_ms: dict[str, float]
    cluster: str
    collectives: list[CollectiveUse]
    fits: bool
    flops: float
    gpu: str
    gpu_busy_ms: float
    gpu_memory_mib: float
    high_ms: float
    host_ms: float
    iteration_ms: float
    low_ms: float
    memory_mib: float
    mfu: float
    mode: str
    model: str
    needed_mib: float
    parallel: ParallelSizes
    parameters: int
    precision: str
    ranks: list[RankMemory]
    samples_per_s: float
    scaling_efficiency: float | None
    seq: int
    timeline: list[TimelineBar]
    tokens_hours: NotRequired[float]
    tokens_per_s: float
    tokens_per_s_per_gpu: float
    unmeasured: list[str]
    usd_per_hour: float | None
    usd_per_million_tokens: float | None


class ParallelSizes(TypedDict):
    """How the model is cut."""

    attention: str
    cp: int
    dp: int
    ep: int
    fsdp: str | None
    global_batch: int
    gpus: int
    interleave: int
    micro_batch: int
    microbatches: int
    nodes: int
    offload: str
    plan: str
    pp: int
    profile: str
    recompute: str
    schedule: str
    sequence_parallel: bool
    stack: str
    tp: int
    zero: int


class Percentiles(TypedDict):
    """Percentiles of a time, in milliseconds."""

    p50_ms: float
    p90_ms: float
    p99_ms: float


class PlanAnswer(TypedDict):
    """The plans, the best first."""

    cluster: str
    considered: int
    global_batch: int
    gpu: str
    gpu_memory_mib: float
    gpus: int
    model: str
    plans: list[PlanRow]
    seq: int
    too_large: int
    why_not: list[WhyNot]


class PlanRow(TypedDict):
    """One plan."""

    attention: str
    cp: int
    dp: int
    ep: int
    fsdp: str | None
    global_batch: int
    gpus: int
    interleave: int
    micro_batch: int
    microbatches: int
    nodes: int
    offload: str
    plan: str
    pp: int
    profile: str
    recompute: str
    schedule: str
    sequence_parallel: bool
    stack: str
    tp: int
    zero: int
    breakdown_ms: dict[str, float]
    iteration_ms: float
    joules_per_iteration: float
    memory_mib: float
    tokens_per_s: float
    tokens_per_s_per_gpu: float
    usd_per_hour: float | None
    usd_per_million_tokens: float | None


class PredictQuestion(TypedDict):
    """What was asked for."""

    algorithms: str
    batch: int
    checkpoint: str
    context: NotRequired[int]
    gpu: str
    host_factor: NotRequired[float]
    layout: str
    mode: str
    model: str
    notes: list[str]
    optimizer: NotRequired[str]
    optimizer_implementation: NotRequired[str]
    precision: str
    run: str
    seq: int | None


class Prediction(TypedDict):
    """The answer, with the names and units that scripts rely on."""

    algorithms: str
    batch: int
    checkpoint: str
    context: NotRequired[int]
    gpu: str
    host_factor: NotRequired[float]
    layout: str
    mode: str
    model: str
    notes: list[str]
    optimizer: NotRequired[str]
    optimizer_implementation: NotRequired[str]
    precision: str
    run: str
    seq: int | None
    cache_bytes_per_token: NotRequired[float]
    mfu: NotRequired[float]
    model_flops: NotRequired[float]
    tokens: NotRequired[int]
    tokens_per_s: NotRequired[float]
    assumptions: list[Assumption]
    autocast: NotRequired[str]
    bound: str
    changes: NotRequired[list[Change]]
    dram_bytes: float
    evidence: str
    fits: bool
    flops: float
    gpu_busy_ms: float
    gpu_memory_mib: float
    gpu_wall_ms: float
    high_ms: float
    host_ms: float
    iteration_ms: float
    kernels: float
    largest_batch: NotRequired[int]
    layers: NotRequired[list[LayerLine]]
    low_ms: float
    memory: MemoryParts
    memory_mib: float
    needed_mib: float
    ops: list[OpLine]
    parameters: int
    samples_per_s: float
    tokens_hours: NotRequired[float]
    unmodelled: list[Unmodelled]


class RankMemory(TypedDict):
    """Memory of the GPUs of one pipeline stage."""

    activations_mib: float
    allocated_mib: float
    fits: bool
    gathered_mib: float
    gradients_mib: float
    memory_mib: float
    needed_mib: float
    optimizer_mib: float
    reserve_mib: float
    stage: int
    states_mib: float
    weights_mib: float


class Ranking(TypedDict):
    """The answer of `advise`."""

    already: list[str]
    base_ms: float
    cheaper: NotRequired[Cheaper]
    notes: list[str]
    options: list[Advice]


class RoofData(TypedDict):
    """A roof as scripts and pages read it."""

    flops_per_s: float
    pipe: str


class RooflineAnswer(TypedDict):
    per_call: bool
    title: str
    views: list[PageView]


RowData = TypedDict(
    "RowData",
    {
        "above_roof": "list[str]",
        "binding": "str",
        "class": "str",
        "compute_bound_us": "float",
        "count": "float",
        "dram_bound_us": "float | None",
        "dram_bytes": "float | None",
        "dtype": "str",
        "family": "str",
        "flops": "float",
        "flops_by_pipe": "dict[str, float]",
        "host_launch_bound_us": "float",
        "inefficient": "float | None",
        "intensity": "float | None",
        "l1_bound_us": "float | None",
        "l1_bytes": "float | None",
        "l2_bound_us": "float | None",
        "l2_bytes": "float | None",
        "launch_bound_us": "float",
        "launches": "float",
        "name": "str",
        "op": "str",
        "phase": "str",
        "share": "float",
        "slowdown": "float | None",
        "time_us": "float",
    },
)


class ScaleAnswer(TypedDict):
    """The curve."""

    gpu: str
    growth: str
    model: str
    node: str
    points: list[ScalePoint]
    seq: int


class ScalePoint(TypedDict):
    """One size."""

    efficiency: float
    efficiency_high: float
    efficiency_low: float
    exposed_share: float
    fits: bool
    global_batch: int
    gpus: int
    iteration_ms: float | None
    memory_mib: float | None
    plan: str | None
    pp_bubble_share: float
    tokens_per_s: float | None


class Scales(TypedDict):
    """How much of each resource, as a multiple of the base machine; the tile edge is a size."""

    dram_bw: float
    l1_bw: float
    l2_bw: float
    mac_per_sm: float
    reg: float
    sm_count: float
    smem_bw: float
    smem_size: float
    tile: int


class TimelineBar(TypedDict):
    """Something that a pipeline stage does."""

    end_ms: float
    microbatch: int
    stage: int
    start_ms: float
    what: str


class TrafficOutcome(TypedDict):
    """What came of it."""

    answered: int
    arrived: int
    goodput_per_s: float
    latency: Percentiles
    longest_queue: int
    mean_batch: float
    rate: float
    saturated: bool
    seconds: float
    steps: int
    tokens_per_s: float
    tpot: Percentiles
    ttft: Percentiles


class Unmodelled(TypedDict):
    """An operator we know by name only, and how much of the GPU's time that concerns."""

    count: int
    op: str
    share: float


class WholeDesign(TypedDict):
    """One design over whole networks."""

    area_mm2: float | None
    area_share: float
    bottlenecks: dict[str, int]
    joules_per_sample: float
    name: str
    network_ms: list[float]
    on_front: bool
    scales: dict[str, float]
    speedup: float
    time_ms: float
    usd_per_million_samples: float | None
    watts: float
    within_limits: bool


class WhyNot(TypedDict):
    """Another value of a size, and what it would do."""

    change: str
    ratio: float | None
    why: str


class Words(TypedDict):
    """What one iteration says about tokens."""

    cache_bytes_per_token: float
    mfu: float
    model_flops: float
    tokens: int
    tokens_per_s: float
