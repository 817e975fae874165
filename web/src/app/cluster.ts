// Clusters: the best plan for training a model on many GPUs, its iteration over the ranks, and how it scales.
import { el, select } from "../dom";
import { digits, percent, si, time } from "../format";
import { sortable, type Column } from "../table";
import type { NodeInfo, ParallelAnswer, PlanAnswer, PlanRow, ScaleAnswer, ScalePoint } from "./answers";
import { ask, latest } from "./ask";
import { BAR_COLORS, BAR_NAMES, PART_COLORS, PART_NAMES, partsChart, scaleChart, timelineChart } from "./charts-tokens";
import { legend, tag } from "./colors";
import { plainName } from "./files";
import type { Page } from "./main";
import { card, chartBox, csvButton, numberField, pngButton, problem, section } from "./parts";
import { catalogue, chosen, copies, grouped, modelSelect, options, PRECISIONS } from "./run";

const DEFAULT = "llama-2-7b";
const gib = (mib: number): string => `${digits(mib / 1024)} GiB`;
const ms = (x: number): string => time(x * 1e3);
const links = (b: Record<string, number>): number => ["tp_exposed", "cp_exposed", "ep_exposed", "dp_exposed", "pp_transfer"].reduce((sum, k) => sum + (b[k] ?? 0), 0);

/** The sizes of a plan, as a question and as options of a command. */
const SIZES = ["tp", "cp", "pp", "dp", "ep", "interleave", "micro_batch", "zero", "recompute", "sequence_parallel", "schedule"] as const;
const spelled = (p: PlanRow): string => SIZES.map((k) => `${k}:${p[k]}`).join(",");
function sizes(text: string): Record<string, string | number | boolean> {
  const out: Record<string, string | number | boolean> = {};
  for (const part of text.split(",")) {
    const [key, value] = part.split(":");
    if (!(SIZES as readonly string[]).includes(key) || value === undefined) continue;
    out[key] = value === "true" ? true : value === "false" ? false : /^\d+$/.test(value) ? Number(value) : value;
  }
  return out;
}

function cards(p: ParallelAnswer): HTMLElement {
  return el("div", { class: "cards" },
    card("iteration", "one iteration", ms(p.iteration_ms), `90 % interval ${ms(p.low_ms)} to ${ms(p.high_ms)}`),
    card("tokens", "throughput", `${si(p.tokens_per_s, "").trim()} tokens/s`, `${si(p.tokens_per_s_per_gpu, "").trim()} per GPU, ${percent(p.mfu)} of the peak (MFU)`),
    card("plan", "plan", p.parallel.plan, `micro batch ${p.parallel.micro_batch} x ${p.parallel.microbatches}, recompute ${p.parallel.recompute}`),
    card("memory", "memory", gib(p.needed_mib), `${p.fits ? "fits in" : "DOES NOT FIT in"} ${gib(p.gpu_memory_mib)}, on the fullest rank`),
    card("price", "price", p.usd_per_million_tokens === null ? "-" : `$${digits(p.usd_per_million_tokens)}`, p.usd_per_hour === null ? "no price is known" : `of a million tokens, at $${digits(p.usd_per_hour)} an hour`));
}

export const cluster: Page = async (root, params) => {
  const [lists, nodes] = await Promise.all([catalogue(), ask<NodeInfo[]>({ ask: "nodes" })]);
  const models = lists.models.filter((m) => m.generates);
  const wanted = (): string => (models.some((m) => m.name === params.get("model")) || params.get("model").startsWith("file:") ? params.get("model") : DEFAULT);
  const node = (): NodeInfo => nodes.find((n) => n.name === params.get("node", "dgx-h100")) ?? nodes[0];
  const count = (): number => params.number("nodes") ?? 4;
  const name = (): string => (count() === 1 ? node().name : `${node().name}x${count()}`);
  const globalBatch = (): number => params.number("global") ?? 256;
  const run = (): Record<string, unknown> => ({
    model: wanted(), ...(params.number("seq") === null ? {} : { seq: params.number("seq") }), ...(params.get("format") ? { precision: params.get("format") } : {}),
  });
  const stack = (): string => params.get("stack", "compiled");

  const failed = el("div");
  const out = el("div", { id: "result", "aria-live": "polite" });
  const plans = section("plans", "Best plans");
  const why = el("div");
  const more = el("div");
  let iteration: ParallelAnswer | null = null;
  let scaled: ScalePoint[] = [];
  const parts = chartBox("parts", (width) => (iteration ? partsChart(iteration.breakdown_ms, width) : null));
  const timeline = chartBox("chart", (width) => (iteration ? timelineChart(iteration.timeline, width) : null));
  const curve = chartBox("scale-chart", (width) => (scaled.some((p) => p.fits) ? scaleChart(scaled, width) : null));
  const scaleTable = el("div");

  const askIteration = latest<ParallelAnswer>((p) => {
    iteration = p;
    const total = p.iteration_ms;
    const shown = Object.keys(PART_NAMES).filter((k) => p.breakdown_ms[k] / total >= 0.001);
    out.replaceChildren(
      el("p", { class: "sub" }, `${p.model} training, ${p.batch} sequences of ${p.seq} tokens in ${p.precision} on ${p.cluster}: ${p.parallel.gpus} ${p.gpu}`), cards(p),
      section("where", "Where the time goes", el("p", { class: "legend" }, ...shown.map((k) => tag(PART_COLORS[k], `${PART_NAMES[k]} ${percent(p.breakdown_ms[k] / total)}`))), parts.box),
      section("timeline", "One iteration over the ranks", legend(BAR_COLORS, BAR_NAMES, Object.keys(BAR_COLORS).filter((k) => p.timeline.some((b) => b.what === k))), timeline.box,
        el("p", { class: "note" }, "A row is a pipeline stage; numbers are microbatches; what no bar covers is waiting."),
        el("div", { class: "controls" }, pngButton("png", timeline, () => `${plainName(wanted())}-${name()}-timeline`), csvButton("csv-timeline", () => p.timeline, () => `${plainName(wanted())}-${name()}-timeline`), ...copies(words))));
    out.dataset.ms = String(p.iteration_ms);
    parts.redraw();
    timeline.redraw();
    more.replaceChildren(el("div", { class: "two" },
      section("ranks", "Memory by stage", sortable("ranks-table", p.ranks, [
        { title: "stage", value: (r) => r.stage, text: (r) => String(r.stage) }, { title: "needed", value: (r) => r.needed_mib, text: (r) => gib(r.needed_mib) },
        { title: "weights", value: (r) => r.weights_mib, text: (r) => gib(r.weights_mib) }, { title: "gradients", value: (r) => r.gradients_mib, text: (r) => gib(r.gradients_mib) },
        { title: "optimizer", value: (r) => r.optimizer_mib, text: (r) => gib(r.optimizer_mib) }, { title: "activations", value: (r) => r.activations_mib, text: (r) => gib(r.activations_mib) },
        { title: "fits", words: true, value: (r) => Number(r.fits), text: (r) => (r.fits ? "yes" : "no") },
      ], 0, { down: false })),
      section("collectives", "Collectives", p.collectives.length === 0 ? el("p", {}, "None.") : sortable("collectives-table", p.collectives, [
        { title: "what", value: (c) => c.what, text: (c) => `${c.what} (${c.group})` }, { title: "where", value: (c) => c.where, text: (c) => `${c.where}, ${c.gpus} GPUs` },
        { title: "bytes", value: (c) => c.bytes, text: (c) => si(c.bytes, "B") }, { title: "count", value: (c) => c.count, text: (c) => String(Math.round(c.count)) },
        { title: "one", value: (c) => c.time_us, text: (c) => time(c.time_us) }, { title: "exposed", value: (c) => c.exposed_us, text: (c) => time(c.exposed_us), hint: "of all, what nothing hides" },
        { title: "GB/s", value: (c) => c.bus_gbs, text: (c) => digits(c.bus_gbs), hint: "bus bandwidth" },
      ], 5))));
  }, (error) => { iteration = null; more.replaceChildren(); out.replaceChildren(problem(error)); });

  const pick = (): Record<string, unknown> => sizes(params.get("plan"));
  const words = (): string[] => {
    const s = Object.keys(pick()).length ? pick() : iteration ? { ...iteration.parallel } as Record<string, unknown> : {};
    const dashed = Object.fromEntries(SIZES.filter((k) => s[k] !== undefined && s[k] !== 1 && s[k] !== 0 && s[k] !== "none" && s[k] !== "1f1b").map((k) => [k.replaceAll("_", "-"), s[k] as string]));
    return ["predict", plainName(wanted()), ...options({ cluster: name(), ...dashed, "global-batch": globalBatch(), seq: params.number("seq"), precision: params.get("format"), stack: params.get("stack") })];
  };
  const iterate = (): void => askIteration({ ask: "parallel", ...run(), cluster: name(), stack: stack(), global_batch: globalBatch(), ...pick() });

  const askPlans = latest<PlanAnswer>((answer) => {
    failed.replaceChildren();
    // A plan of another cluster or model is none here.
    const best = answer.plans[0];
    if (!answer.plans.some((p) => spelled(p) === params.get("plan"))) params.set({ plan: spelled(best) });
    const columns: Column<PlanRow>[] = [
      { title: "plan", value: (p) => p.plan, text: (p) => p.plan, node: (p) => { const b = el("button", { type: "button", class: "link" }, p.plan); b.addEventListener("click", () => { params.set({ plan: spelled(p) }); mark(); iterate(); }); return b; } },
      { title: "micro batch", value: (p) => p.micro_batch, text: (p) => `${p.micro_batch} x ${p.microbatches}` },
      { title: "recompute", value: (p) => p.recompute, text: (p) => p.recompute },
      { title: "time", value: (p) => p.iteration_ms, text: (p) => ms(p.iteration_ms) },
      { title: "tokens/s/GPU", value: (p) => p.tokens_per_s_per_gpu, text: (p) => si(p.tokens_per_s_per_gpu, "").trim() },
      { title: "bubble", value: (p) => p.breakdown_ms.pp_bubble / p.iteration_ms, text: (p) => percent(p.breakdown_ms.pp_bubble / p.iteration_ms) },
      { title: "exposed", value: (p) => links(p.breakdown_ms) / p.iteration_ms, text: (p) => percent(links(p.breakdown_ms) / p.iteration_ms), hint: "links that nothing hides" },
      { title: "memory", value: (p) => p.memory_mib, text: (p) => gib(p.memory_mib) },
      { title: "$/Mtok", value: (p) => p.usd_per_million_tokens ?? Infinity, text: (p) => (p.usd_per_million_tokens === null ? "-" : `$${digits(p.usd_per_million_tokens)}`), hint: "dollars of a million tokens" },
    ];
    const mark = (): void => plans.replaceChildren(el("h2", { id: "plans-title" }, "Best plans"),
      el("p", { class: "status", id: "status", role: "status", "data-ms": String(best.iteration_ms) }, `${answer.considered} plans tried, ${answer.too_large} of them too large. Choose one to see its iteration.`),
      sortable("plans-table", answer.plans, columns, 3, { down: false, mark: (p) => (spelled(p) === params.get("plan") ? "chosen" : "") }),
      el("div", { class: "controls" }, csvButton("csv", () => answer.plans, () => `${plainName(wanted())}-${name()}-plans`)));
    mark();
    why.replaceChildren(answer.why_not.length === 0 ? el("div") : section("why-not", "Why not another", el("ul", {}, ...answer.why_not.map((w) => el("li", {}, el("strong", {}, `${w.change}: `), w.why)))));
    iterate();
  }, (error) => { iteration = null; plans.replaceChildren(); why.replaceChildren(); more.replaceChildren(); out.replaceChildren(); failed.replaceChildren(problem(error)); });

  const askScale = latest<ScaleAnswer>((answer) => {
    scaled = answer.points;
    curve.redraw();
    scaleTable.replaceChildren(sortable("scale-table", scaled, [
      { title: "GPUs", value: (p) => p.gpus, text: (p) => String(p.gpus) }, { title: "batch", value: (p) => p.global_batch, text: (p) => String(p.global_batch) },
      { title: "plan", value: (p) => p.plan ?? "", text: (p) => p.plan ?? "no plan fits or divides" },
      { title: "time", value: (p) => p.iteration_ms ?? Infinity, text: (p) => (p.iteration_ms === null ? "-" : ms(p.iteration_ms)) },
      { title: "tokens/s", value: (p) => p.tokens_per_s ?? 0, text: (p) => (p.tokens_per_s === null ? "-" : si(p.tokens_per_s, "").trim()) },
      { title: "efficiency", value: (p) => p.efficiency, text: (p) => (p.fits ? percent(p.efficiency) : "-") },
      { title: "90 %", value: (p) => p.efficiency_low, text: (p) => (p.fits ? `${percent(p.efficiency_low)} to ${percent(p.efficiency_high)}` : "-") },
      { title: "bubble", value: (p) => p.pp_bubble_share, text: (p) => (p.fits ? percent(p.pp_bubble_share) : "-") },
      { title: "exposed", value: (p) => p.exposed_share, text: (p) => (p.fits ? percent(p.exposed_share) : "-") },
    ], 0, { down: false }));
  }, (error) => { scaled = []; curve.redraw(); scaleTable.replaceChildren(problem(error)); });

  const strong = (): boolean => params.get("growth") === "strong";
  const most = (): number => params.number("most") ?? 1024;
  const changed = (): void => {
    askPlans({ ask: "plan", ...run(), cluster: name(), global_batch: globalBatch(), objective: params.get("objective", "time"), stack: stack() });
    scale();
  };
  const scale = (): void => askScale({ ask: "scale", ...run(), node: node().name, least_gpus: 1, most_gpus: Math.max(1, most()), growth: strong() ? "strong" : "weak", stack: stack(), ...(strong() ? { global_batch: globalBatch() } : {}) });
  const set = (changes: Record<string, string | number | null>): void => { params.set(changes); changed(); };
  const model = chosen(models, wanted());
  const groups = new Map<string, [string, string][]>();
  for (const n of nodes) groups.set(n.gpu, [...(groups.get(n.gpu) ?? []), [n.name, `${n.name} (${n.gpus} GPUs)`]]);
  const form = el("form", { class: "controls", "aria-label": "training on a cluster" },
    modelSelect(models, model.name, (v) => set({ model: v, seq: null, plan: null })),
    grouped("node", "Node", groups, node().name, (v) => set({ node: v, plan: null })),
    numberField("nodes", "Nodes", count(), "4", (v) => set({ nodes: v, plan: null }), 4096),
    numberField("global", "Sequences of a step", globalBatch(), "256", (v) => set({ global: v, plan: null })),
    numberField("seq", "Tokens of one", params.number("seq") ?? model.default_seq, String(model.default_seq ?? 1024), (v) => set({ seq: v }), model.max_seq ?? 1048576),
    select("format", "Precision", [["", "16 bits"], ...PRECISIONS.slice(1)], params.get("format"), (v) => set({ format: v })),
    select("objective", "Best in", [["time", "time"], ["cost", "cost"], ["energy", "energy"]], params.get("objective", "time"), (v) => set({ objective: v === "time" ? null : v, plan: null })),
    select("stack", "Software", [["compiled", "compiled PyTorch"], ["eager", "eager PyTorch"], ["megatron", "Megatron"], ["te", "Transformer Engine"]], stack(), (v) => set({ stack: v === "compiled" ? null : v, plan: null })));
  form.addEventListener("submit", (e) => e.preventDefault());
  const scaling = el("div", { class: "controls" },
    select("growth", "The batch", [["weak", "grows with the GPUs"], ["strong", "stays"]], params.get("growth", "weak"), (v) => { params.set({ growth: v === "weak" ? null : v }); scale(); }),
    numberField("most", "Most GPUs", most(), "1024", (v) => { params.set({ most: v }); scale(); }, 131072));
  root.append(form, failed, out, plans, why, more,
    section("scale", "How it scales", scaling, el("p", { class: "legend" }, tag("var(--accent)", "efficiency, with its interval"), tag("#d55e00", "exposed links"), tag("#8a8a8a", "pipeline bubble (dashed)")), curve.box,
      el("p", { class: "note" }, "The best plan at every size. Efficiency is a GPU's throughput over that at the smallest size that fits."), scaleTable,
      el("div", { class: "controls" }, pngButton("png-scale", curve, () => `${plainName(wanted())}-${node().name}-scaling`), csvButton("csv-scale", () => scaled, () => `${plainName(wanted())}-${node().name}-scaling`))));
  changed();
};
