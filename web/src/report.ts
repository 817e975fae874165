// The report page: text first, then the charts.
import { shareBars } from "./charts";
import { el } from "./dom";
import { explorer } from "./explorer";
import { digits, percent, si, time } from "./format";
import { sortable, type Column } from "./table";
import type { GpuSummary, PageData, Report, Row } from "./types";

const card = (title: string, value: string, note: string): HTMLElement =>
  el("div", { class: "card" }, el("span", {}, title), el("strong", {}, value), el("small", {}, note));

const list = (items: string[]): HTMLElement => el("ul", {}, ...items.map((t) => el("li", {}, t)));

function section(id: string, title: string, ...children: (Node | null)[]): HTMLElement {
  return el("section", { id }, el("h2", {}, title), ...children);
}

function headline(g: GpuSummary): HTMLElement {
  return el("div", { class: "cards" },
    card("one iteration", time(g.iteration_ms * 1e3), `90 %: ${time(g.low_ms * 1e3)} to ${time(g.high_ms * 1e3)}`),
    card("throughput", `${digits(g.samples_per_s)} /s`, "samples per second"),
    card("memory", `${digits(g.memory_mib / 1024)} GiB`, `${g.fits ? "fits in" : "does not fit in"} ${digits(g.gpu_memory_mib / 1024)} GiB`),
    card("binds", g.bound, `GPU ${time(g.gpu_busy_ms * 1e3)}, host ${time(g.host_ms * 1e3)}`),
    g.usd_per_million_samples === null
      ? card("cost", "not known", "give --usd-per-hour")
      : card("cost", `$${digits(g.usd_per_million_samples)}`, `per million samples at $${digits(g.usd_per_hour ?? 0)} per hour`));
}

/** Bars that follow the width of the page. */
function bars(rows: { name: string; time_ms: number; share: number }[]): HTMLElement {
  const box = el("div", { class: "bars" });
  let width = 0;
  const draw = (): void => { box.replaceChildren(shareBars(rows, Math.max(280, Math.min(640, width)))); };
  new ResizeObserver(() => { if (box.clientWidth !== width) { width = box.clientWidth; draw(); } }).observe(box);
  return box;
}

const LAYERS: Column<Row>[] = [
  { title: "layer", value: (r) => r.name, text: (r) => r.name },
  { title: "operators", value: (r) => r.op, text: (r) => r.op },
  { title: "time", value: (r) => r.time_us, text: (r) => time(r.time_us) },
  { title: "share", value: (r) => r.share, text: (r) => percent(r.share) },
  { title: "FLOPs", value: (r) => r.flops, text: (r) => si(r.flops, "") },
  { title: "DRAM", value: (r) => r.dram_bytes ?? 0, text: (r) => si(r.dram_bytes ?? 0, "B") },
  { title: "AI", value: (r) => r.intensity ?? 0, text: (r) => (r.intensity === null ? "-" : digits(r.intensity)), hint: "FLOP per byte of DRAM traffic" },
  { title: "t_F", value: (r) => r.compute_bound_us, text: (r) => time(r.compute_bound_us), hint: "all FLOPs at peak" },
  { title: "t_B", value: (r) => r.dram_bound_us ?? 0, text: (r) => time(r.dram_bound_us ?? 0), hint: "all bytes at DRAM bandwidth" },
  { title: "t_0", value: (r) => r.launch_bound_us, text: (r) => time(r.launch_bound_us), hint: "launches at the device's overhead" },
  { title: "slowdown", value: (r) => r.slowdown ?? 0, text: (r) => (r.slowdown === null ? "-" : `${digits(r.slowdown)}x`), hint: "time over the larger of t_F and t_B" },
  { title: "binds", value: (r) => r.binding, text: (r) => r.binding + (r.above_roof.length ? " !" : "") },
];

const GPUS: Column<GpuSummary>[] = [
  { title: "GPU", value: (g) => g.title, text: (g) => g.title },
  { title: "iteration", value: (g) => g.iteration_ms, text: (g) => time(g.iteration_ms * 1e3) },
  { title: "90 % interval", value: (g) => g.low_ms, text: (g) => `${time(g.low_ms * 1e3)} to ${time(g.high_ms * 1e3)}` },
  { title: "samples/s", value: (g) => g.samples_per_s, text: (g) => digits(g.samples_per_s) },
  { title: "GPU busy", value: (g) => g.gpu_busy_ms, text: (g) => time(g.gpu_busy_ms * 1e3) },
  { title: "binds", value: (g) => g.bound, text: (g) => g.bound },
  { title: "fits", value: (g) => (g.fits ? "yes" : "no"), text: (g) => (g.fits ? "yes" : "no") },
];

export function reportPage(data: PageData, r: Report): HTMLElement {
  return el("div", { class: "report" },
    el("p", { class: "lead", id: "headline" }, r.headline),
    headline(r.gpus[0]),
    section("binds", "What binds", list(r.binds)),
    section("helps", "What would help",
      r.helps.length === 0 ? el("p", {}, "Nothing that was tried.") : sortable("helps-table", r.helps, [
        { title: "change", value: (h) => h.change, text: (h) => h.change },
        { title: "iteration", value: (h) => h.iteration_ms, text: (h) => time(h.iteration_ms * 1e3) },
        { title: "samples/s", value: (h) => h.speedup, text: (h) => `${digits(h.speedup)}x` },
        { title: "why", value: (h) => h.note, text: (h) => h.note },
      ], 2)),
    el("div", { class: "two" },
      section("families", "Time by family", bars(r.families)),
      section("modules", "Time by module", bars(r.modules))),
    section("charts", "Roofline", explorer(data)),
    r.gpus.length > 1 ? section("gpus", "GPUs compared", sortable("gpus-table", r.gpus, GPUS, 3)) : null,
    section("layers", "Layers", el("p", { class: "note" }, `${r.layers.length} layers on ${r.gpus[0].title}; forward, backward and optimizer together. Click a title to sort.`),
      sortable("layers-table", r.layers, LAYERS, 2)),
    section("unmodelled", "Operators without a model",
      r.unmodelled.length === 0 ? el("p", {}, "None: every operator of this model has one.") : list(r.unmodelled.map((u) => `${u.name}: ${digits(u.calls)} calls, ${percent(u.share)} of the time, by its bytes alone`))),
    section("assumptions", "Assumptions and accuracy", list([...r.assumptions, ...r.accuracy])),
    section("reproduce", "Reproduce", el("pre", { id: "command" }, r.command), el("p", { class: "note" }, `preflop ${r.version}`)));
}
