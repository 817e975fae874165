// Answers as crates/api gives them. Those of questions are made from their schemas; recordings and the scoreboard have none yet.

export type { DesignAnswer, DesignsAnswer, ExploreAnswer, GpuInfo, GenerateAnswer, KernelForm, LayerAnswer, LayerLine, ListedModel, ModelFileAnswer, NodeInfo, Offer, OpLine, ParallelAnswer, PlanAnswer, PlanRow, Prediction, Ranking, ScaleAnswer, ScalePoint, TimelineBar, WholeDesign } from "./schema";


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
