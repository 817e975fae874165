// The report page: text first, then the charts.
import { shareBars } from "./charts";
import { el, unbroken } from "./dom";
import { explorer } from "./explorer";
import { digits, percent, si, time } from "./format";
import { misfit, toFit } from "./room";
import { sortable, type Column } from "./table";
import type { GpuSummary, PageData, Report, Row } from "./types";

const card = (title: string, value: string, note: string): HTMLElement =>
  el("div", { class: "card" }, el("span", {}, title), el("strong", {}, value), el("small", {}, note));

const list = (items: string[]): HTMLElement => el("ul", {}, ...items.map((t) => el("li", {}, t)));

function section(id: string, title: string, ...children: (Node | null)[]): HTMLElement {
  return el("section", { id }, el("h2", {}, title), ...children);
}

function headline(g: GpuSummary, measured: boolean): HTMLElement {
  return el("div", { class: "cards" },
    card("one iteration", time(g.iteration_ms * 1e3), measured ? "as recorded" : `90 %: ${time(g.low_ms * 1e3)} to ${time(g.high_ms * 1e3)}`),
    g.samples_per_s === null
      ? card("throughput", `${digits(1e3 / g.iteration_ms)} /s`, "iterations; --batch tells the samples of one")
      : card("throughput", `${digits(g.samples_per_s)} /s`, "samples per second"),
    g.memory_mib === null || g.needed_mib === null
      ? card("memory", "not recorded", `the GPU has ${digits(g.gpu_memory_mib / 1024)} GiB`)
      : card("memory", `${digits(g.memory_mib / 1024)} GiB`, `${digits(g.needed_mib / 1024)} with reserve, ${g.fits ? "fits in" : "does not fit in"} ${digits(g.gpu_memory_mib / 1024)}`),
    card("binds", g.bound, `GPU ${time(g.gpu_wall_ms * 1e3)}, host ${time(g.host_ms * 1e3)}`),
    g.usd_per_hour === null
      ? card("cost", "no price known", "give --usd-per-hour")
      : g.usd_per_million_samples === null
        ? card("cost", `$${digits(g.usd_per_hour)}`, `per hour (${g.price_date ?? ""}, ${g.price_source ?? ""})`)
        : card("cost", `$${digits(g.usd_per_million_samples)}`, `per million samples at $${digits(g.usd_per_hour)} per hour (${g.price_date ?? ""}, ${g.price_source ?? ""})`));
}

/** Bars that follow the width of the page. */
function bars(rows: { name: string; time_ms: number; share: number }[]): HTMLElement {
  const box = el("div", { class: "bars" });
  let width = 0;
  // Drawn for ordinary screens; on larger ones everything grows alike.
  const draw = (): void => {
    const bars = shareBars(rows, Math.max(280, Math.min(640, width)));
    bars.style.width = `${Math.max(280, width)}px`;
    bars.style.height = "auto";
    box.replaceChildren(bars);
  };
  new ResizeObserver(() => { if (box.clientWidth !== width) { width = box.clientWidth; draw(); } }).observe(box);
  return box;
}

const LAYERS: Column<Row>[] = [
  { title: "layer", value: (r) => r.name, text: (r) => r.name },
  { title: "operators", value: (r) => r.op, text: (r) => r.op },
  { title: "time", value: (r) => r.time_us, text: (r) => time(r.time_us) },
  { title: "share", value: (r) => r.share, text: (r) => percent(r.share) },
  { title: "FLOPs", value: (r) => r.flops, text: (r) => (r.class === "unknown" ? "-" : si(r.flops, "")) },
  { title: "DRAM", value: (r) => r.dram_bytes ?? 0, text: (r) => (r.dram_bytes === null ? "-" : si(r.dram_bytes, "B")) },
  { title: "AI", value: (r) => r.intensity ?? 0, text: (r) => (r.intensity === null ? "-" : digits(r.intensity)), hint: "FLOP per byte of DRAM traffic" },
  { title: "t_F", value: (r) => r.compute_bound_us, text: (r) => (r.class === "unknown" ? "-" : time(r.compute_bound_us)), hint: "all FLOPs at peak" },
  { title: "t_B", value: (r) => r.dram_bound_us ?? 0, text: (r) => (r.dram_bound_us === null ? "-" : time(r.dram_bound_us)), hint: "all bytes at DRAM bandwidth" },
  { title: "t_0", value: (r) => r.launch_bound_us, text: (r) => time(r.launch_bound_us), hint: "launches at the device's overhead" },
  { title: "slowdown", value: (r) => r.slowdown ?? 0, text: (r) => (r.slowdown === null ? "-" : `${digits(r.slowdown)}x`), hint: "time over the larger of t_F and t_B" },
  { title: "binds", value: (r) => r.binding, text: (r) => r.binding + (r.above_roof.length ? " !" : "") },
];

const GPUS: Column<GpuSummary>[] = [
  { title: "GPU", value: (g) => g.title, text: (g) => g.title },
  { title: "iteration", value: (g) => g.iteration_ms, text: (g) => time(g.iteration_ms * 1e3) },
  { title: "90 % interval", value: (g) => g.low_ms, text: (g) => `${time(g.low_ms * 1e3)} to ${time(g.high_ms * 1e3)}` },
  { title: "samples/s", value: (g) => g.samples_per_s ?? 0, text: (g) => (g.samples_per_s === null ? "-" : digits(g.samples_per_s)) },
  { title: "GPU busy", value: (g) => g.gpu_wall_ms, text: (g) => time(g.gpu_wall_ms * 1e3) },
  { title: "binds", value: (g) => g.bound, text: (g) => g.bound },
  { title: "fits", value: (g) => String(g.fits), text: (g) => (g.fits === null ? "-" : g.fits ? "yes" : "no") },
  { title: "$/h", value: (g) => g.usd_per_hour ?? Infinity, text: (g) => (g.usd_per_hour === null ? "-" : digits(g.usd_per_hour)), hint: "price of an hour" },
  { title: "priced", value: (g) => g.price_date ?? "", text: (g) => g.price_date ?? "-", hint: "date of the price" },
  { title: "$ per M samples", value: (g) => g.usd_per_million_samples ?? Infinity, text: (g) => (g.usd_per_million_samples === null ? "-" : digits(g.usd_per_million_samples)) },
];

export function reportPage(data: PageData, r: Report): HTMLElement {
  return el("div", { class: "report" },
    el("p", { class: "lead", id: "headline" }, r.headline),
    ...(r.gpus[0].fits === false ? [misfit(r.gpus[0].title, r.gpus[0].needed_mib ?? 0, r.gpus[0].gpu_memory_mib), toFit("to-fit", r.to_fit ?? [])] : []),
    headline(r.gpus[0], r.measured),
    section("binds", "What binds", list(r.binds)),
    section("helps", "What would help",
      r.helps.length === 0 ? el("p", {}, "Nothing that was tried.") : sortable("helps-table", r.helps, [
        { title: "change", value: (h) => h.change, text: (h) => h.change, node: (h) => unbroken(h.change) },
        { title: "iteration", value: (h) => h.iteration_ms, text: (h) => time(h.iteration_ms * 1e3) },
        { title: "samples/s", value: (h) => h.speedup, text: (h) => `${digits(h.speedup)}x` },
        { title: "why", value: (h) => h.note, text: (h) => h.note },
      ], 2)),
    el("div", { class: "two" },
      section("families", "Time by family", bars(r.families)),
      section("modules", "Time by module", bars(r.modules))),
    section("charts", "Roofline", explorer(data)),
    r.gpus.length > 1 ? section("gpus", "GPUs compared", sortable("gpus-table", r.gpus, GPUS, r.gpus[0].samples_per_s === null ? 1 : 3)) : null,
    section("layers", r.rows_by === "layer" ? "Layers" : "Operators", el("p", { class: "note" }, `${r.layers.length} ${r.rows_by}s on ${r.gpus[0].title}; ${r.rows_by === "layer" ? "forward, backward and optimizer together. " : ""}Click a title to sort.`),
      sortable("layers-table", r.layers, LAYERS, 2)),
    section("unmodelled", "Operators without a model",
      r.unmodelled.length === 0 ? el("p", {}, "None: every operator has one.") : list(r.unmodelled.map((u) => `${u.name}: ${digits(u.calls)} calls, ${percent(u.share)} of the time${r.measured ? "" : ", by its bytes alone"}`))),
    section("assumptions", "Assumptions and accuracy", list([...r.assumptions, ...r.accuracy]),
      r.family_errors.length === 0 ? null : el("p", { class: "note" }, "Errors of single operators by family, each held out in turn when the model was fitted:"),
      r.family_errors.length === 0 ? null : sortable("errors-table", r.family_errors, [
        { title: "family", value: (f) => f.family, text: (f) => f.family },
        { title: "share of time", value: (f) => f.share, text: (f) => percent(f.share) },
        { title: "mean error", value: (f) => f.mean_percent, text: (f) => `${digits(f.mean_percent)} %` },
        { title: "median", value: (f) => f.median_percent, text: (f) => `${digits(f.median_percent)} %` },
        { title: "held-out rows", value: (f) => f.rows, text: (f) => String(f.rows) },
        { title: "this GPU held out", value: (f) => f.unseen_mean_percent ?? Infinity, text: (f) => (f.unseen_mean_percent === null ? "-" : `${digits(f.unseen_mean_percent)} %`), hint: "mean error on this GPU when none of its measurements were used" },
      ], 1)),
    section("reproduce", "Reproduce", el("pre", { id: "command" }, r.command), el("p", { class: "note" }, `preflop ${r.version}`)));
}
