// Charts of language models and clusters.
import * as Plot from "@observablehq/plot";
import { draw } from "../draw";
import { digits, percent, short, shortSi, si, time } from "../format";
import type { GenerateAnswer, ScalePoint, TimelineBar } from "./answers";

type Chart = (SVGSVGElement | HTMLElement) & Plot.Plot;
type Run = GenerateAnswer["runs"][number];

const style = (width: number): Partial<CSSStyleDeclaration> => ({ fontSize: width < 520 ? "10px" : "12px", background: "transparent", overflow: "visible" });
const TIP = { fill: "var(--card)", stroke: "var(--line)", fontSize: 12, lineWidth: 26 };

/** All users' tokens a second against one user's: a point for each batch. */
export function tokensChart(runs: Run[], width: number): Chart {
  const good = (r: Run): boolean => r.fits && r.within_limits;
  const height = Math.min(380, Math.max(280, width * 0.4));
  const span = (of: (r: Run) => number, below: number, above: number): [number, number] => [Math.min(...runs.map(of)) / below, Math.max(...runs.map(of)) * above];
  const [xs, ys] = [span((r) => r.tokens_per_s_per_user, 1.3, 1.4), span((r) => r.tokens_per_s, 1.3, 1.5)];
  // Of points that lie close together only the first is named.
  const at = (v: number, [low, high]: [number, number], long: number): number => (Math.log(v / low) / Math.log(high / low)) * long;
  const taken: [number, number][] = [];
  const labelled = runs.filter((r) => {
    const [x, y] = [at(r.tokens_per_s_per_user, xs, width - 100), at(r.tokens_per_s, ys, height - 70)];
    if (taken.some(([a, b]) => Math.abs(a - x) < 56 && Math.abs(b - y) < 15)) return false;
    taken.push([x, y]);
    return true;
  });
  return draw({
    width, height, marginLeft: 62, marginRight: 38, marginTop: 28, marginBottom: 44, style: style(width),
    x: { type: "log", domain: xs, label: "tokens a second of one user", labelAnchor: "center", labelArrow: "none", ticks: width < 520 ? 3 : 6, tickFormat: (v: number) => short(v) },
    y: { type: "log", domain: ys, label: "tokens a second of all users", labelArrow: "none", ticks: 5, tickFormat: (v: number) => short(v), grid: true },
    ariaLabel: "Tokens a second of all users against those of one, by batch", ariaDescription: "The table below has the same figures.",
    marks: [
      Plot.line(runs, { x: "tokens_per_s_per_user", y: "tokens_per_s", stroke: "var(--accent)", strokeOpacity: 0.5 }),
      Plot.dot(runs, { x: "tokens_per_s_per_user", y: "tokens_per_s", r: 5, fill: (r: Run) => (good(r) ? "var(--accent)" : "var(--page)"), stroke: "var(--accent)", strokeWidth: 1.5 }),
      Plot.text(labelled, { x: "tokens_per_s_per_user", y: "tokens_per_s", text: (r: Run) => `batch ${r.batch}`, dx: 9, dy: -7, textAnchor: "start", fill: "var(--ink)", stroke: "var(--page)", strokeWidth: 3 }),
      Plot.tip(runs, Plot.pointer({ x: "tokens_per_s_per_user", y: "tokens_per_s", title: (r: Run) => `batch ${r.batch}\nfirst token ${time(r.ttft_ms * 1e3)}, then ${time(r.tpot_ms * 1e3)} each\n${digits(r.tokens_per_s)} tokens/s, ${digits(r.tokens_per_s_per_user)} per user\n${r.fits ? "fits" : "does not fit"}`, ...TIP })),
    ],
  });
}

export const PART_COLORS: Record<string, string> = {
  compute: "#0072b2", recompute: "#56b4e9", tp_exposed: "#d55e00", cp_exposed: "#e69f00", ep_exposed: "#f0a35e", dp_exposed: "#cc79a7",
  pp_bubble: "#8a8a8a", pp_transfer: "#b39ddb", optimizer: "#009e73", host_exposed: "#5d6670", straggler: "#a6761d",
};
export const PART_NAMES: Record<string, string> = {
  compute: "compute", recompute: "computed again", tp_exposed: "tensor parallel", cp_exposed: "context parallel", ep_exposed: "expert parallel", dp_exposed: "data parallel",
  pp_bubble: "pipeline bubble", pp_transfer: "between stages", optimizer: "optimizer", host_exposed: "host", straggler: "stragglers",
};

/** One iteration as one bar, by cause. */
export function partsChart(parts: Record<string, number>, width: number): Chart {
  const total = Object.values(parts).reduce((a, b) => a + b, 0);
  let start = 0;
  const rows = Object.keys(PART_NAMES).filter((k) => (parts[k] ?? 0) > 0).map((key) => { const row = { key, x1: start, x2: start + parts[key] }; start = row.x2; return row; });
  return draw({
    width, height: 74, marginLeft: 8, marginRight: 12, marginTop: 6, marginBottom: 30, style: style(width),
    x: { domain: [0, total], label: null, ticks: width < 520 ? 4 : 8, tickFormat: (v: number) => shortSi(v / 1e3, "s") }, color: { type: "identity" },
    ariaLabel: "Where the time of an iteration goes", ariaDescription: "The list beside it has the same figures.",
    marks: [
      Plot.rectX(rows, { x1: "x1", x2: "x2", fill: (r) => PART_COLORS[r.key], insetRight: 0.5 }),
      Plot.text(rows.filter((r) => (r.x2 - r.x1) / total > 0.09), { x: (r) => (r.x1 + r.x2) / 2, frameAnchor: "middle", text: (r) => percent((r.x2 - r.x1) / total), fill: "#fff", stroke: "#000", strokeOpacity: 0.55, strokeWidth: 3 }),
      Plot.tip(rows, Plot.pointerX({ x: (r) => (r.x1 + r.x2) / 2, title: (r) => `${PART_NAMES[r.key]}\n${time((r.x2 - r.x1) * 1e3)}, ${percent((r.x2 - r.x1) / total)}`, ...TIP })),
    ],
  });
}

export const BAR_COLORS: Record<string, string> = { forward: "#56b4e9", backward: "#0072b2", links: "#d55e00", optimizer: "#009e73" };
export const BAR_NAMES: Record<string, string> = { forward: "forward", backward: "backward", links: "links", optimizer: "optimizer" };

/** Pipeline stages as rows over the time of one iteration; waiting is what no bar covers. */
export function timelineChart(bars: TimelineBar[], width: number): Chart {
  const stages = [...new Set(bars.map((b) => b.stage))].sort((a, b) => a - b);
  const end = Math.max(...bars.map((b) => b.end_ms));
  // A number inside a bar needs room for it.
  const named = bars.filter((b) => (b.what === "forward" || b.what === "backward") && ((b.end_ms - b.start_ms) / end) * (width - 80) > 20);
  return draw({
    width, height: Math.min(560, 60 + 30 * stages.length), marginLeft: 62, marginRight: 12, marginTop: 8, marginBottom: 34, style: style(width),
    x: { domain: [0, end], label: null, ticks: width < 520 ? 4 : 8, tickFormat: (v: number) => shortSi(v / 1e3, "s") },
    y: { domain: stages, label: null, tickSize: 0, tickFormat: (s: number) => `stage ${s}`, padding: 0.15 }, color: { type: "identity" },
    ariaLabel: "One iteration over the pipeline's stages", ariaDescription: "Forward and backward of each microbatch, links and optimizer.",
    marks: [
      Plot.barX(bars, { y: "stage", x1: "start_ms", x2: "end_ms", fill: (b: TimelineBar) => BAR_COLORS[b.what], insetRight: 0.4 }),
      Plot.text(named, { y: "stage", x: (b: TimelineBar) => (b.start_ms + b.end_ms) / 2, text: (b: TimelineBar) => String(b.microbatch), fill: "#fff", stroke: "#000", strokeOpacity: 0.5, strokeWidth: 2.5, fontSize: 10 }),
      Plot.tip(bars, Plot.pointer({ y: "stage", x: (b: TimelineBar) => (b.start_ms + b.end_ms) / 2, title: (b: TimelineBar) => `stage ${b.stage}: ${BAR_NAMES[b.what]}${b.what === "forward" || b.what === "backward" ? ` of microbatch ${b.microbatch}` : ""}\n${time((b.end_ms - b.start_ms) * 1e3)} from ${time(b.start_ms * 1e3)}`, ...TIP })),
    ],
  });
}

/** Efficiency of the best plan at every size, with its interval. */
export function scaleChart(points: ScalePoint[], width: number): Chart {
  const rows = points.filter((p) => p.fits);
  const most = Math.max(1, ...rows.map((p) => p.efficiency_high));
  return draw({
    width, height: Math.min(340, Math.max(260, width * 0.34)), marginLeft: 56, marginRight: 20, marginTop: 28, marginBottom: 44, style: style(width),
    x: { type: "log", base: 2, domain: [Math.min(...rows.map((p) => p.gpus)) / 1.15, Math.max(...rows.map((p) => p.gpus)) * 1.15], label: "GPUs", labelAnchor: "center", labelArrow: "none", ticks: Math.min(rows.length, width < 520 ? 5 : 12), tickFormat: (v: number) => String(Math.round(v)) },
    y: { domain: [0, most], label: "efficiency, and shares of the iteration", labelArrow: "none", tickFormat: (v: number) => `${short(100 * v)} %`, ticks: 5, grid: true }, color: { type: "identity" },
    ariaLabel: "Efficiency, bubble and exposed links of the best plan at every size", ariaDescription: "The table below has the same figures.",
    marks: [
      Plot.areaY(rows, { x: "gpus", y1: "efficiency_low", y2: "efficiency_high", fill: "var(--accent)", fillOpacity: 0.18 }),
      Plot.line(rows, { x: "gpus", y: "efficiency", stroke: "var(--accent)", strokeWidth: 2 }),
      Plot.dot(rows, { x: "gpus", y: "efficiency", fill: "var(--accent)", r: 3.5 }),
      Plot.line(rows, { x: "gpus", y: "exposed_share", stroke: "#d55e00" }),
      Plot.line(rows, { x: "gpus", y: "pp_bubble_share", stroke: "#8a8a8a", strokeDasharray: "5 3" }),
      Plot.tip(rows, Plot.pointerX({ x: "gpus", y: "efficiency", title: (p: ScalePoint) => `${p.gpus} GPUs, ${p.global_batch} sequences\n${p.plan}\n${time((p.iteration_ms ?? 0) * 1e3)}, ${si(p.tokens_per_s ?? 0, "tokens/s")}\nefficiency ${percent(p.efficiency)}`, ...TIP })),
      Plot.ruleY([0], { stroke: "var(--line)" }),
    ],
  });
}
