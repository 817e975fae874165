// Answers as crates/api gives them.

export interface ModelInfo { name: string; title: string; family: string; default_batch: number; default_seq: number | null; max_seq: number | null; parameters: number; optimizer: string; }
export interface GpuInfo { name: string; title: string; vendor: string; architecture: string; release_year: number | null; memory_gib: number; }

export interface OpLine { name: string; op: string; phase: string; count: number; time_us: number; share: number; bound: string; pass: string; dtype: string; shape: string; }
export interface LayerLine { name: string; time_us: number; share: number; bound: string; forward_us: number; backward_us: number; optimizer_us: number; }

export interface Prediction {
  model: string; gpu: string; batch: number; seq: number | null; precision: string; mode: string;
  iteration_ms: number; low_ms: number; high_ms: number; gpu_busy_ms: number; host_ms: number;
  memory_mib: number; gpu_memory_mib: number; needed_mib: number; fits: boolean; largest_batch?: number; samples_per_s: number; flops: number; dram_bytes: number; bound: string;
  unmodelled: { op: string; count: number; share: number }[]; ops: OpLine[]; layers: LayerLine[]; parameters: number;
  memory: Record<string, number>; assumptions: { key: string; value: number; why: string }[];
}

export interface Ranking { base_ms: number; options: { options: string[]; iteration_ms: number; gain: number; fits: boolean; memory_mib: number; how: string[]; cost: string[] }[]; }

export interface KernelForm {
  algorithm: string; tile: [number, number] | null; split: number | null; ctas: number | null; waves: number | null;
  compute_us: number | null; l2_us: number | null; dram_us: number | null; latency_us: number | null;
}
export interface LayerAnswer {
  name: string; gpu: string;
  operators: {
    op: string; phase: string; pass: string; dtype: string; shape: string; count: number; time_us: number; low_us: number; high_us: number; bound: string;
    flops: number; l1_bytes: number; l2_bytes: number; dram_bytes: number; launches: number; kernel: KernelForm;
  }[];
}

export interface Offer {
  gpu: string; title: string; batch: number; precision: string; iteration_ms: number; low_ms: number; high_ms: number; samples_per_s: number;
  memory_mib: number; needed_mib: number; gpu_memory_mib: number; fits: boolean; evidence: string; usd_per_hour: number | null; price_date: string | null; price_source: string | null;
  usd_per_million_samples: number | null; watts: number; joules_per_sample: number; bound: string; pareto: boolean;
  run_hours: number | null; run_usd: number | null; keeps_limits: boolean | null; chosen: boolean;
}

export interface DesignAnswer {
  name: string; scales: Record<string, number>; time_ms: number; speedup: number; bottlenecks: Record<string, number>; bottleneck_ms: Record<string, number>;
  bottleneck: string; next_bottleneck: string; headroom: number; cost: number; on_front: boolean;
}
export interface ExploreAnswer { base: string; network: string; base_time_ms: number; layers: number; designs: DesignAnswer[]; }

export interface Part { name: string; time_ms: number; share: number; launches: number; }
export interface Explanation {
  source: string; format: string; device: string | null; gpu: string | null; iterations: number; iteration_ms: number; gpu_busy_ms: number; gpu_wall_ms: number;
  gpu_utilisation: number; cpu_utilisation: number; host_ms: number; idle: Record<string, number>;
  unattributed: { time_ms: number; kernel_share: number }; families: Part[]; dtypes: Part[]; tensor_cores: Part[]; phases: Part[]; modules: Part[];
  launching: { launches: number; median_call_us: number; host_ms: number };
  operators: { name: string; phase: string | null; family: string; count: number; time_ms: number; share: number; tflops: number | null; gbs: number | null; roof_share: number | null; bound: string | null }[];
  advice: { text: string; saves_ms: number; share: number }[]; notes: string[];
}
export interface Target { gpu: string; iteration_ms: number; low_ms: number; high_ms: number; gpu_busy_ms: number; host_ms: number; speedup: number; notes: string[]; }
export interface ProfileAnswer {
  explanation?: Explanation;
  untimed?: { source: string; format: string; operators: { name: string; count: number; flops: number; bytes: number }[] };
  transfer?: { origin: string; measured_ms: number; targets: Target[] };
  transfer_problem?: string;
}

export interface Score { family: string; dtype: string; gpu: string; n: number; mean_percent: number; median_percent: number; bias_percent: number; coverage_percent: number; roofline_mean_percent: number; }
export interface CrossScore { family: string; class: string; gpu: string; how: string; n: number; mean_percent: number; median_percent: number; bias_percent: number; }
export interface Scoreboard { rows: Score[]; skipped: number; cross_validation: CrossScore[]; }
