// Made from the schemas of the answers by `PREFLOP_WRITE=1 cargo test -p preflop-api generated`; do not edit.

/** One way to run, with what it brings. */
export type Advice = {
  /** What each of them costs; empty if nothing. */
  cost: string[];
  /** Does it fit? */
  fits: boolean;
  /** Share of the time per sample that is saved. */
  gain: number;
  /** The gain at the lower end of it. */
  gain_high: number;
  /** The gain at the upper end of the iteration's interval. */
  gain_low: number;
  /** 90 % interval of it. */
  high_ms: number;
  /** What to write. */
  how: string[];
  /** Predicted iteration. */
  iteration_ms: number;
  /** 90 % interval of it. */
  low_ms: number;
  /** Peak memory. */
  memory_mib: number;
  /** The options, as on the command line. */
  options: string[];
};

/** A figure that the file did not hold. */
export type Assumption = {
  /** Section and key. */
  key: string;
  /** The value taken, in the unit that the key names. */
  value: number;
  /** Why this value. */
  why: string;
};

/** One batch. The unit stands in every name. */
export type BatchRun = {
  /** Milliseconds of a whole answer. */
  answer_ms: number;
  /** Sequences at once. */
  batch: number;
  /** Does it fit, with reserve? */
  fits: boolean;
  /** Keys and values at the end. */
  kv_mib: number;
  /** Memory at its peak. */
  memory_mib: number;
  /** Written tokens a second of all users. */
  tokens_per_s: number;
  /** Written tokens a second of one user. */
  tokens_per_s_per_user: number;
  /** Upper end of the interval of `tpot_ms`. */
  tpot_high_ms: number;
  /** Lower end of the interval of `tpot_ms`. */
  tpot_low_ms: number;
  /** Milliseconds between two tokens, in the mean over the answer. */
  tpot_ms: number;
  /** Milliseconds to the first token. */
  ttft_ms: number;
  /** Dollars of a million written tokens. */
  usd_per_million_tokens?: number;
  /** Are the limits kept? */
  within_limits: boolean;
};

/** A change that needs less memory, or has more, and what it does to the time. */
export type Change = {
  /** In words. */
  change: string;
  /** Does it fit now? */
  fits: boolean;
  /** The GPU, where it is another. */
  gpu?: string;
  /** GPUs that it takes. */
  gpus: number;
  /** Time of one iteration. */
  iteration_ms: number;
  /** Peak with the change, of one GPU. */
  memory_mib: number;
  /** As options of the command line. */
  options: string[];
  /** Samples per second, of all GPUs. */
  samples_per_s: number;
  /** Time of one sample over that of the run that was asked for, had it fitted. */
  time_ratio: number;
};

/** Another GPU for the same run. */
export type Cheaper = {
  /** Its name. */
  gpu: string;
  /** The price of the GPU asked about. */
  instead_of_usd_per_hour: number;
  /** The run as asked for, there. */
  iteration_ms: number;
  /** Its price. */
  usd_per_hour: number;
};

/** A collective of an iteration. */
export type CollectiveUse = {
  bus_gbs: number;
  bytes: number;
  count: number;
  exposed_us: number;
  gpus: number;
  group: string;
  time_us: number;
  what: string;
  where: string;
};

export type DeltaAnswer = {
  bottlenecks: Record<string, number>;
  gpu: string;
  layers: DeltaLayer[];
  total_ms: number;
};

export type DeltaLayer = {
  active_ctas_per_sm: number;
  bottleneck: string;
  bounds_ms: Record<string, number>;
  cta_tile: number[];
  dram_bytes: number;
  headroom: number;
  l1_bytes: number;
  l2_bytes: number;
  name: string;
  next_bottleneck: string;
  num_cta: number;
  time_ms: number;
};

export type DesignAnswer = {
  /** What binds most of the time, what would bind once that is gone, and the most that removing it gives. */
  bottleneck: string;
  /** Time in those layers. */
  bottleneck_ms: Record<string, number>;
  /** Layers by what binds them. */
  bottlenecks: Record<string, number>;
  cost: number;
  headroom: number;
  name: string;
  next_bottleneck: string;
  on_front: boolean;
  scales: Scales;
  speedup: number;
  time_ms: number;
};

/** The designs in the order of the question. */
export type DesignsAnswer = {
  base: string;
  base_time_ms: number;
  batch: number;
  designs: WholeDesign[];
  model: string;
  precision: string;
};

export type ExploreAnswer = {
  base: string;
  base_time_ms: number;
  designs: DesignAnswer[];
  layers: number;
  network: string;
};

/** One figure of a GPU file with where it comes from. */
export type Fact = {
  /** Section and key, such as `memory.dram_gbs`. */
  key: string;
  /** Anything a reader should know about it. */
  note?: string;
  /** Where it comes from, spelled out. */
  source: string;
  /** The figure, in the unit that the key names. */
  value: number;
};

/** The answer with what was asked, with the names and units that scripts rely on. */
export type GenerateAnswer = {
  /** That batch. */
  goodput_batch: number | null;
  /** Tokens a second of the best batch that fits and keeps the limits; 0 if none does. */
  goodput_tokens_per_s: number;
  /** The largest batch that fits with whole answers; 0 if none does. */
  largest_batch: number;
  /** The batches asked for. */
  runs: BatchRun[];
  gpu: string;
  /** What the card has. */
  gpu_memory_mib: number;
  model: string;
  notes: string[];
  output: number;
  precision: string;
  price_date?: string;
  prompt: number;
  run: string;
  stack: string;
  traffic?: TrafficOutcome;
  usd_per_hour?: number;
};

/** The answer. */
export type Generated = {
  /** That batch. */
  goodput_batch: number | null;
  /** Tokens a second of the best batch that fits and keeps the limits; 0 if none does. */
  goodput_tokens_per_s: number;
  /** The largest batch that fits with whole answers; 0 if none does. */
  largest_batch: number;
  /** The batches asked for. */
  runs: BatchRun[];
};

/** A GPU with all its figures. */
export type GpuAnswer = {
  aliases: string[];
  architecture: string;
  dram_gbs: number;
  fp32_tflops: number | null;
  memory_gib: number;
  name: string;
  release_year: number | null;
  sm_count: number;
  tdp_w: number;
  tensor_16bit_tflops: number | null;
  title: string;
  vendor: string;
  assumptions: Assumption[];
  chip: string;
  compute_capability: string;
  dram_kind: string;
  facts: Fact[];
  form: string;
  host_interface: string;
};

/** A GPU in a few figures. */
export type GpuInfo = {
  aliases: string[];
  architecture: string;
  dram_gbs: number;
  fp32_tflops: number | null;
  memory_gib: number;
  name: string;
  release_year: number | null;
  sm_count: number;
  tdp_w: number;
  tensor_16bit_tflops: number | null;
  title: string;
  vendor: string;
};

/** How the main kernel of a call is thought to run. Times are those of the closed form, before what was learned. */
export type KernelForm = {
  /** Algorithm or kernel family. */
  algorithm: string;
  /** Arithmetic. */
  compute_us: number | null;
  /** CTAs of the grid. */
  ctas: number | null;
  /** Bytes that come from or go to DRAM. */
  dram_us: number | null;
  /** Operand tiles from the L2. */
  l2_us: number | null;
  /** Latency along the sum. */
  latency_us: number | null;
  /** Parts into which the sum over K (or over the keys) is split. */
  split: number | null;
  /** Rows and columns of the CTA tile, where the kernel has one. */
  tile: number[] | null;
  /** CTAs that one SM runs in turn. */
  waves: number | null;
};

export type LayerAnswer = {
  gpu: string;
  name: string;
  operators: OperatorLine[];
};

/** One layer: all its operators, forward, backward and optimizer together. */
export type LayerLine = {
  backward_us: number;
  /** What binds most of its time. */
  bound: string;
  forward_us: number;
  name: string;
  optimizer_us: number;
  share: number;
  time_us: number;
};

/** A model of the zoo. */
export type ListedModel = {
  /** Samples of an iteration unless said. */
  default_batch: number;
  /** Tokens of a sample unless said; `None` where there is no sequence. */
  default_seq: number | null;
  /** Family: `cnn`, `transformer`, `rnn`, `gan`, ... */
  family: string;
  /** What a sample is. */
  input: string;
  /** Longest sequence the model can take, if it has a limit. */
  max_seq: number | null;
  /** Name on the command line. */
  name: string;
  /** Optimizer unless said. */
  optimizer: string;
  /** Parameters. */
  parameters: number;
  /** One line for people. */
  title: string;
  /** Does it write tokens? */
  generates: boolean;
};

/** A machine as scripts and pages read it. */
export type MachineData = {
  device_overhead_us: number;
  dram_bytes_per_s: number | null;
  gpu: string;
  host_overhead_us: number;
  l1_bytes_per_s: number | null;
  l2_bytes_per_s: number | null;
  roofs: RoofData[];
  title: string;
};

/** Peak memory by part. The unit stands in every name, as in all JSON. */
export type MemoryParts = {
  activations_mib: number;
  gradients_mib: number;
  /** Keys and values of a language model. */
  kv_cache_mib: number;
  optimizer_mib: number;
  weights_mib: number;
  workspace_mib: number;
};

/** What was kept, under which name to ask about it, and what can be chosen. */
export type ModelFileAnswer = {
  /** Can another batch be asked for? */
  any_batch: boolean;
  batch: number;
  /** Can prompts and answers be asked for? */
  generates: boolean;
  /** `onnx`, `pt2`, `config`, `recorded-step` or `graph`. */
  kind: string;
  /** The `model` of questions about it. */
  model: string;
  parameters: number;
  seq: number | null;
  /** The network's name. */
  title: string;
};

/** What is known of a model before it is built. */
export type ModelInfo = {
  /** Samples of an iteration unless said. */
  default_batch: number;
  /** Tokens of a sample unless said; `None` where there is no sequence. */
  default_seq: number | null;
  /** Family: `cnn`, `transformer`, `rnn`, `gan`, ... */
  family: string;
  /** What a sample is. */
  input: string;
  /** Longest sequence the model can take, if it has a limit. */
  max_seq: number | null;
  /** Name on the command line. */
  name: string;
  /** Optimizer unless said. */
  optimizer: string;
  /** Parameters. */
  parameters: number;
  /** One line for people. */
  title: string;
};

/** A node of the catalogue. Bandwidths are one way: of a GPU inside, of a node outside. */
export type NodeInfo = {
  gpu: string;
  gpus: number;
  link_gbs: number;
  name: string;
  network: string;
  network_gbs: number;
  title: string;
  topology: string;
};

/** One GPU. What has no price has no dollars. */
export type Offer = {
  batch: number;
  bound: string;
  /** Where it does not fit, what would make it there, the least costly first. */
  changes?: Change[];
  /** The fastest that keeps to the budget. */
  chosen: boolean;
  /** What the interval rests on. */
  evidence: string;
  fits: boolean;
  gpu: string;
  gpu_busy_ms: number;
  gpu_memory_mib: number;
  high_ms: number;
  host_ms: number;
  iteration_ms: number;
  joules_per_sample: number;
  keeps_limits: boolean | null;
  low_ms: number;
  memory_mib: number;
  needed_mib: number;
  /** On the Pareto front of time and money. */
  pareto: boolean;
  precision: string;
  price_date: string | null;
  price_source: string | null;
  run_hours: number | null;
  run_usd: number | null;
  samples_per_s: number;
  title: string;
  usd_per_hour: number | null;
  usd_per_million_samples: number | null;
  watts: number;
};

/** One operator in one place. */
export type OpLine = {
  bound: string;
  count: number;
  dtype: string;
  name: string;
  op: string;
  pass: string;
  phase: string;
  shape: string;
  share: number;
  /** All `count` runs together. */
  time_us: number;
};

/** One operator of the layer; figures are of one call. */
export type OperatorLine = {
  bound: string;
  count: number;
  dram_bytes: number;
  dtype: string;
  flops: number;
  high_us: number;
  kernel: KernelForm;
  l1_bytes: number;
  l2_bytes: number;
  launches: number;
  low_us: number;
  op: string;
  pass: string;
  phase: string;
  shape: string;
  time_us: number;
};

/** What a page shows of a view. */
export type PageView = {
  /** Pieces of work that the rows stand for. */
  entries: number;
  gpu: string;
  label: string;
  machine: MachineData;
  /** Rows that were put together because there are too many to draw. */
  merged: number;
  rows: RowData[];
  /** Where the work of a recording comes from, in words. */
  sources?: string;
  /** Share of the time of work that nobody knows. */
  unknown_share: number;
  zero_flop_launch_share: number;
  zero_flop_time_share: number;
};

/** A change of the plan. */
export type ParallelAdvice = {
  change: string;
  fits: boolean;
  /** Share of the time that it saves; below 0 where it is slower and fits. */
  gain: number;
  needed_mib: number;
};

/** The answer. */
export type ParallelAnswer = {
  /** Changes that are faster, or that fit where this does not, the best first. */
  advice: ParallelAdvice[];
  /** Sequences of an iteration over all GPUs. */
  batch: number;
  /** What limits it: compute, bubble, host, link, network. */
  bound: string;
  breakdown_ms: Record<string, number>;
  cluster: string;
  collectives: CollectiveUse[];
  fits: boolean;
  /** The model's own FLOPs of an iteration. */
  flops: number;
  gpu: string;
  /** Time of the GPUs' own work, and that of the host which nothing hides. */
  gpu_busy_ms: number;
  gpu_memory_mib: number;
  high_ms: number;
  host_ms: number;
  iteration_ms: number;
  low_ms: number;
  /** The fullest rank: what PyTorch reserves, and that with what driver and libraries hold. */
  memory_mib: number;
  /** Share of the products' peak that the model's own FLOPs are. */
  mfu: number;
  mode: string;
  model: string;
  needed_mib: number;
  parallel: ParallelSizes;
  parameters: number;
  precision: string;
  ranks: RankMemory[];
  samples_per_s: number;
  /** Time of one GPU alone with its part of the samples, over this time. */
  scaling_efficiency: number | null;
  seq: number;
  /** One iteration: a row for each pipeline stage. */
  timeline: TimelineBar[];
  /** Hours for the tokens that were asked about. */
  tokens_hours?: number;
  tokens_per_s: number;
  tokens_per_s_per_gpu: number;
  /** Parts of the plan that were checked against no measurements. */
  unmeasured: string[];
  usd_per_hour: number | null;
  usd_per_million_tokens: number | null;
};

/** How the model is cut. */
export type ParallelSizes = {
  attention: string;
  cp: number;
  dp: number;
  ep: number;
  fsdp: string | null;
  global_batch: number;
  gpus: number;
  interleave: number;
  micro_batch: number;
  microbatches: number;
  nodes: number;
  offload: string;
  plan: string;
  pp: number;
  /** The stack by its older name. */
  profile: string;
  recompute: string;
  schedule: string;
  sequence_parallel: boolean;
  stack: string;
  tp: number;
  zero: number;
};

/** Percentiles of a time, in milliseconds. */
export type Percentiles = {
  p50_ms: number;
  p90_ms: number;
  p99_ms: number;
};

/** The plans, the best first. */
export type PlanAnswer = {
  cluster: string;
  /** Plans that were tried, and how many of them do not fit. */
  considered: number;
  global_batch: number;
  gpu: string;
  gpu_memory_mib: number;
  gpus: number;
  model: string;
  plans: PlanRow[];
  seq: number;
  too_large: number;
  why_not: WhyNot[];
};

/** One plan. */
export type PlanRow = {
  attention: string;
  cp: number;
  dp: number;
  ep: number;
  fsdp: string | null;
  global_batch: number;
  gpus: number;
  interleave: number;
  micro_batch: number;
  microbatches: number;
  nodes: number;
  offload: string;
  plan: string;
  pp: number;
  /** The stack by its older name. */
  profile: string;
  recompute: string;
  schedule: string;
  sequence_parallel: boolean;
  stack: string;
  tp: number;
  zero: number;
  breakdown_ms: Record<string, number>;
  iteration_ms: number;
  joules_per_iteration: number;
  memory_mib: number;
  tokens_per_s: number;
  tokens_per_s_per_gpu: number;
  usd_per_hour: number | null;
  usd_per_million_tokens: number | null;
};

/** What was asked for. */
export type PredictQuestion = {
  /** How algorithms of convolutions are chosen: heuristic, autotuned. */
  algorithms: string;
  /** Samples of one iteration. */
  batch: number;
  /** Which activations are computed again in backward: none, full, every=K. */
  checkpoint: string;
  /** Tokens before the new one, in decode. */
  context?: number;
  /** GPU name. */
  gpu: string;
  /** How many times as long as the usual host the job's takes, where that was said. */
  host_factor?: number;
  /** How feature maps lie: nchw, channels-last. A recorded iteration has its own layout. */
  layout: string;
  /** Training or inference, or a step of generation. */
  mode: string;
  /** Model name. */
  model: string;
  /** What a reader of the result should know. */
  notes: string[];
  /** Optimizer of a training step, where it was not recorded. */
  optimizer?: string;
  /** Which of PyTorch's implementations runs it: single, foreach, fused. */
  optimizer_implementation?: string;
  /** Number formats. */
  precision: string;
  /** How it is launched: eager, graph, compile, compile-graph. */
  run: string;
  /** Tokens of one sample, for models that have them. */
  seq: number | null;
};

/** The answer, with the names and units that scripts rely on. */
export type Prediction = {
  /** How algorithms of convolutions are chosen: heuristic, autotuned. */
  algorithms: string;
  /** Samples of one iteration. */
  batch: number;
  /** Which activations are computed again in backward: none, full, every=K. */
  checkpoint: string;
  /** Tokens before the new one, in decode. */
  context?: number;
  /** GPU name. */
  gpu: string;
  /** How many times as long as the usual host the job's takes, where that was said. */
  host_factor?: number;
  /** How feature maps lie: nchw, channels-last. A recorded iteration has its own layout. */
  layout: string;
  /** Training or inference, or a step of generation. */
  mode: string;
  /** Model name. */
  model: string;
  /** What a reader of the result should know. */
  notes: string[];
  /** Optimizer of a training step, where it was not recorded. */
  optimizer?: string;
  /** Which of PyTorch's implementations runs it: single, foreach, fused. */
  optimizer_implementation?: string;
  /** Number formats. */
  precision: string;
  /** How it is launched: eager, graph, compile, compile-graph. */
  run: string;
  /** Tokens of one sample, for models that have them. */
  seq: number | null;
  /** Bytes of keys and values that one more token of one sequence keeps. */
  cache_bytes_per_token?: number;
  /** Model FLOPs utilisation, from 0 to 1. */
  mfu?: number;
  /** FLOPs of products and attention in one iteration. */
  model_flops?: number;
  /** Tokens that one iteration reads (training, prefill) or writes (decode). */
  tokens?: number;
  /** Tokens a second. */
  tokens_per_s?: number;
  assumptions: Assumption[];
  /** The 16-bit format that autocast takes on this GPU, where the run has autocast. */
  autocast?: string;
  bound: string;
  /** Where it does not fit and that was asked for, what would make it: on this GPU, the least costly first, on another, on several. */
  changes?: Change[];
  dram_bytes: number;
  /** What the interval rests on. */
  evidence: string;
  fits: boolean;
  flops: number;
  /** Time of all kernels. */
  gpu_busy_ms: number;
  gpu_memory_mib: number;
  /** Time in which the GPU works: less than that of all kernels where several run at once. */
  gpu_wall_ms: number;
  high_ms: number;
  host_ms: number;
  iteration_ms: number;
  /** Kernels that a profiler would count. */
  kernels: number;
  /** Where it does not fit, the largest batch that does; 0 if none does. */
  largest_batch?: number;
  layers?: LayerLine[];
  low_ms: number;
  memory: MemoryParts;
  memory_mib: number;
  /** The peak with context and reserve: what the card must have. */
  needed_mib: number;
  ops: OpLine[];
  parameters: number;
  samples_per_s: number;
  /** Hours that the tokens asked for take. */
  tokens_hours?: number;
  unmodelled: Unmodelled[];
};

/** Memory of the GPUs of one pipeline stage. */
export type RankMemory = {
  activations_mib: number;
  allocated_mib: number;
  fits: boolean;
  gathered_mib: number;
  gradients_mib: number;
  memory_mib: number;
  needed_mib: number;
  optimizer_mib: number;
  reserve_mib: number;
  stage: number;
  states_mib: number;
  weights_mib: number;
};

/** The answer of `advise`. */
export type Ranking = {
  /** Options of it that are on already. */
  already: string[];
  /** The run as asked for. */
  base_ms: number;
  /** The cheapest GPU that is as fast, where one costs less by the hour. */
  cheaper?: Cheaper;
  /** What a reader should know. */
  notes: string[];
  /** Ways to run, the fastest first. */
  options: Advice[];
};

/** A roof as scripts and pages read it. */
export type RoofData = {
  flops_per_s: number;
  pipe: string;
};

export type RooflineAnswer = {
  /** Points are single calls. */
  per_call: boolean;
  title: string;
  views: PageView[];
};

/** A row as scripts read it. */
export type RowData = {
  /** Roofs that the row lies above. */
  above_roof: string[];
  /** The slowest resource, inner levels included. */
  binding: string;
  /** compute, memory, overhead, or unknown where the work is. */
  class: string;
  /** `t_F`. */
  compute_bound_us: number;
  count: number;
  /** `t_B` at each level. */
  dram_bound_us: number | null;
  dram_bytes: number | null;
  dtype: string;
  family: string;
  flops: number;
  /** FLOPs by pipe, such as `bf16 tensor`. */
  flops_by_pipe: Record<string, number>;
  host_launch_bound_us: number;
  /** Time over the largest of all terms, where it is far above it. */
  inefficient: number | null;
  /** `AI` at DRAM in FLOP per byte. */
  intensity: number | null;
  l1_bound_us: number | null;
  l1_bytes: number | null;
  l2_bound_us: number | null;
  l2_bytes: number | null;
  /** `t_0` on the device and on the host. */
  launch_bound_us: number;
  launches: number;
  name: string;
  op: string;
  phase: string;
  /** Share of the time of all rows, from 0 to 1. */
  share: number;
  /** `t / max(t_F, t_B)`. */
  slowdown: number | null;
  time_us: number;
};

/** The curve. */
export type ScaleAnswer = {
  gpu: string;
  growth: string;
  model: string;
  node: string;
  points: ScalePoint[];
  seq: number;
};

/** One size. */
export type ScalePoint = {
  /** Throughput of a GPU over that of the smallest size that fits. */
  efficiency: number;
  efficiency_high: number;
  efficiency_low: number;
  exposed_share: number;
  fits: boolean;
  global_batch: number;
  gpus: number;
  iteration_ms: number | null;
  memory_mib: number | null;
  plan: string | null;
  pp_bubble_share: number;
  tokens_per_s: number | null;
};

/** How much of each resource, as a multiple of the base machine; the tile edge is a size. */
export type Scales = {
  /** DRAM_BW of the chip. */
  dram_bw: number;
  /** L1_BW per SM. */
  l1_bw: number;
  /** L2_BW of the chip. */
  l2_bw: number;
  /** MAC_BW per SM. */
  mac_per_sm: number;
  /** REGS_SIZE per SM. */
  reg: number;
  /** N_SM. */
  sm_count: number;
  /** SMEM_BW per SM. */
  smem_bw: number;
  /** SMEM_SIZE per SM. */
  smem_size: number;
  /** CTA tile height and width of the widest layers. */
  tile: number;
};

/** Something that a pipeline stage does. */
export type TimelineBar = {
  end_ms: number;
  microbatch: number;
  stage: number;
  start_ms: number;
  what: string;
};

/** What came of it. */
export type TrafficOutcome = {
  /** Requests that were answered by the end of the arrivals. */
  answered: number;
  /** Requests that arrived. */
  arrived: number;
  /** Answered requests a second that kept the limits. */
  goodput_per_s: number;
  /** From arrival to the last token. */
  latency: Percentiles;
  /** Most that waited at once. */
  longest_queue: number;
  /** Requests that ran at once, in the mean. */
  mean_batch: number;
  /** Requests a second that arrived. */
  rate: number;
  /** Does the queue grow without end? */
  saturated: boolean;
  /** Seconds of arrivals. */
  seconds: number;
  /** Steps. */
  steps: number;
  /** Written tokens a second. */
  tokens_per_s: number;
  /** Between tokens, in the mean of an answer. */
  tpot: Percentiles;
  /** To the first token. */
  ttft: Percentiles;
};

/** An operator we know by name only, and how much of the GPU's time that concerns. */
export type Unmodelled = {
  count: number;
  op: string;
  share: number;
};

/** One design over whole networks. */
export type WholeDesign = {
  area_mm2: number | null;
  area_share: number;
  /** Networks by what binds them. */
  bottlenecks: Record<string, number>;
  joules_per_sample: number;
  name: string;
  /** Of each network, in their order. */
  network_ms: number[];
  on_front: boolean;
  /** Multiples of the base by key. */
  scales: Record<string, number>;
  speedup: number;
  /** Geometric mean over the networks. */
  time_ms: number;
  usd_per_million_samples: number | null;
  watts: number;
  within_limits: boolean;
};

/** Another value of a size, and what it would do. */
export type WhyNot = {
  change: string;
  /** Time over the best plan's, where it fits. */
  ratio: number | null;
  why: string;
};

/** What one iteration says about tokens. */
export type Words = {
  /** Bytes of keys and values that one more token of one sequence keeps. */
  cache_bytes_per_token: number;
  /** Model FLOPs utilisation, from 0 to 1. */
  mfu: number;
  /** FLOPs of products and attention in one iteration. */
  model_flops: number;
  /** Tokens that one iteration reads (training, prefill) or writes (decode). */
  tokens: number;
  /** Tokens a second. */
  tokens_per_s: number;
};
