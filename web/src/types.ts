// What the command line writes into a page: crates/roofline/src/export.rs and crates/report.
import type { Change } from "./room";

export type Level = "dram" | "l2" | "l1";
export const LEVELS: Level[] = ["dram", "l2", "l1"];
export const LEVEL_NAMES: Record<Level, string> = { dram: "DRAM", l2: "L2", l1: "L1" };

export type { MachineData as Machine, PageView as View, RowData as Row } from "./app/schema";
import type { MachineData as Machine, PageView as View, RowData as Row } from "./app/schema";

export interface GpuSummary {
  gpu: string;
  title: string;
  iteration_ms: number;
  low_ms: number;
  high_ms: number;
  /** Not known of a recording, unless the user says how many samples an iteration has. */
  samples_per_s: number | null;
  memory_mib: number | null;
  needed_mib: number | null;
  gpu_memory_mib: number;
  fits: boolean | null;
  bound: string;
  gpu_busy_ms: number;
  gpu_wall_ms: number;
  host_ms: number;
  usd_per_hour: number | null;
  price_date: string | null;
  price_source: string | null;
  usd_per_million_samples: number | null;
}

export interface Report {
  headline: string;
  command: string;
  version: string;
  /** Times are of a recording, not predicted. */
  measured: boolean;
  gpus: GpuSummary[];
  binds: string[];
  /** What would make it fit the first GPU, where it does not. */
  to_fit?: Change[];
  helps: { change: string; iteration_ms: number; speedup: number; note: string }[];
  families: { name: string; time_ms: number; share: number; class: string; slowdown: number | null }[];
  modules: { name: string; time_ms: number; share: number; class: string; slowdown: number | null }[];
  phases: { name: string; time_ms: number; share: number }[];
  rows_by: "layer" | "operator";
  layers: Row[];
  unmodelled: { name: string; calls: number; share: number }[];
  assumptions: string[];
  accuracy: string[];
  family_errors: { family: string; share: number; rows: number; mean_percent: number; median_percent: number; unseen_mean_percent: number | null }[];
}

export interface PageData {
  title: string;
  per_call: boolean;
  views: View[];
  report?: Report;
}

export function bytesAt(row: Row, level: Level): number {
  return (level === "dram" ? row.dram_bytes : level === "l2" ? row.l2_bytes : row.l1_bytes) ?? 0;
}

export function bandwidthAt(machine: Machine, level: Level): number | null {
  return level === "dram" ? machine.dram_bytes_per_s : level === "l2" ? machine.l2_bytes_per_s : machine.l1_bytes_per_s;
}
