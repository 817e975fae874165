// Predict: one model on one GPU, down to the kernels.
import { el, unbroken } from "../dom";
import { digits, percent, si, time } from "../format";
import { misfit, toFit } from "../room";
import { sortable, type Column } from "../table";
import type { LayerAnswer, LayerLine, Prediction, Ranking } from "./answers";
import { latest } from "./ask";
import { type Fold, folds, isOptimizer, layerChart } from "./charts";
import { BOUND_COLORS, BOUND_NAMES, legend, tag } from "./colors";
import type { Page } from "./main";
import { button, card, chartBox, csvButton, list, pngButton, problem, section } from "./parts";
import { catalogue, DEFAULT_GPU, jobCopies, question, runForm, runName } from "./run";

const bound = (key: string): HTMLElement => tag(BOUND_COLORS[key], BOUND_NAMES[key]);

/** The interval as a line with the prediction on it. */
function interval(p: Prediction): HTMLElement {
  const place = (ms: number): string => `${(100 * (ms - p.low_ms)) / Math.max(p.high_ms - p.low_ms, 1e-9)}%`;
  const mark = el("i", { class: "mark" });
  mark.style.left = place(p.iteration_ms);
  return el("div", { class: "interval", role: "img", "aria-label": `90 % interval from ${time(p.low_ms * 1e3)} to ${time(p.high_ms * 1e3)}` },
    el("span", {}, time(p.low_ms * 1e3)), el("span", { class: "track" }, mark), el("span", {}, time(p.high_ms * 1e3)));
}

const formats = (p: Prediction): string => (p.precision === "pytorch" ? "PyTorch's default formats (TF32 in convolutions, where the GPU has it)" : p.precision);
/** How it is launched, where that is not the usual way. */
const form = (p: Prediction): string => [p.run === "eager" ? "" : p.run, p.layout === "nchw" ? "" : p.layout, p.checkpoint === "none" ? "" : `checkpoint ${p.checkpoint}`, p.algorithms === "heuristic" ? "" : p.algorithms].filter(Boolean).map((t) => `, ${t}`).join("");
const optimizer = (p: Prediction): string => (p.optimizer ? `, ${p.optimizer}${p.optimizer_implementation ? ` (${p.optimizer_implementation})` : ""}` : "");

function headline(p: Prediction): HTMLElement {
  const mode = p.mode === "train" ? "training" : "inference";
  return el("div", { class: "headline" },
    el("p", { class: "sub" }, `${p.model} ${mode}, batch ${p.batch}${p.seq ? `, sequence ${p.seq}` : ""}, ${formats(p)}${optimizer(p)}${form(p)} on ${p.gpu}`),
    el("p", { class: "figure", id: "time", "data-ms": String(p.iteration_ms) }, time(p.iteration_ms * 1e3), el("small", {}, " per iteration")),
    interval(p), el("p", { class: "note" }, "90 % of such runs are expected between these two."));
}

function memoryParts(p: Prediction): string {
  const parts = Object.entries(p.memory).filter(([, mib]) => mib >= 0.01 * p.memory_mib);
  return parts.map(([key, mib]) => `${key.replace("_mib", "")} ${mib < 1024 ? `${digits(mib)} MiB` : `${digits(mib / 1024)} GiB`}`).join(", ");
}

function cards(p: Prediction): HTMLElement {
  return el("div", { class: "cards" },
    p.tokens_per_s === undefined ? card("throughput", "throughput", `${digits(p.samples_per_s)} /s`, "samples per second")
      : card("throughput", "throughput", `${digits(p.tokens_per_s)} tokens/s`, `${digits(p.samples_per_s)} samples per second; MFU ${percent(p.mfu ?? 0)}: the model's own FLOPs over the peak of its products`),
    card("bound", "binds", BOUND_NAMES[p.bound], `GPU busy ${time(p.gpu_wall_ms * 1e3)}, host ${time(p.host_ms * 1e3)}`),
    card("memory", "memory", `${digits(p.memory_mib / 1024)} GiB`, `${p.fits ? "fits in" : `DOES NOT FIT (${p.largest_batch ? `a batch of ${p.largest_batch} would` : "no batch does"}) in`} ${digits(p.gpu_memory_mib / 1024)} GiB; ${memoryParts(p)}`),
    card("work", "work", si(p.flops, "FLOP"), `${si(p.dram_bytes, "B")} through DRAM, ${si(p.parameters, "").trim()} parameters`));
}

export const predict: Page = async (root, params) => {
  const lists = await catalogue();
  const out = el("div", { id: "result" });
  const drill = el("div", { id: "kernels", "aria-live": "polite" });
  let shown: Prediction | null = null;

  const chart = chartBox("chart", (width) => {
    if (!shown) return null;
    const plot = layerChart(folds(shown.layers ?? [], params.get("each") === "1"), params.get("layer"), width);
    // Of a repeated block the slowest is opened.
    plot.addEventListener("click", () => { const at = (plot as { value?: Fold }).value; if (at) choose(at.layers.reduce((a, b) => (b.time_us > a.time_us ? b : a)).name); });
    return plot;
  });
  const name = (): string => runName(params, params.get("gpu", DEFAULT_GPU), String(shown?.batch ?? ""));
  const each = button("each", "Every layer by itself", () => {
    params.set({ each: params.get("each") === "1" ? null : 1 });
    each.setAttribute("aria-pressed", String(params.get("each") === "1"));
    chart.redraw();
  });
  each.setAttribute("aria-pressed", String(params.get("each") === "1"));
  const tools = el("div", { class: "controls" }, each, pngButton("png", chart, name), csvButton("csv", () => shown?.layers ?? [], () => `${name()}-layers`), csvButton("csv-ops", () => shown?.ops ?? [], () => `${name()}-operators`));
  (tools.querySelector("#csv") as HTMLElement).textContent = "Save layers (CSV)";
  (tools.querySelector("#csv-ops") as HTMLElement).textContent = "Save operators (CSV)";

  const columns: Column<LayerLine>[] = [
    { title: "layer", value: (l) => l.name, text: (l) => l.name, node: (l) => { const b = el("button", { type: "button", class: "link", "data-layer": l.name }, l.name || "(model)"); b.addEventListener("click", () => choose(l.name)); return b; } },
    { title: "time", value: (l) => l.time_us, text: (l) => time(l.time_us) },
    { title: "share", value: (l) => l.share, text: (l) => percent(l.share) },
    { title: "binds", value: (l) => l.bound, text: (l) => l.bound, node: (l) => bound(l.bound) },
    { title: "forward", value: (l) => l.forward_us, text: (l) => (l.forward_us ? time(l.forward_us) : "-") },
    { title: "backward", value: (l) => l.backward_us, text: (l) => (l.backward_us ? time(l.backward_us) : "-") },
    { title: "optimizer", value: (l) => l.optimizer_us, text: (l) => (l.optimizer_us ? time(l.optimizer_us) : "-") },
  ];
  const layers = section("layers", "Layers");
  const rest = el("div");
  const askLayer = latest<LayerAnswer>((answer) => { drill.replaceChildren(kernels(answer)); }, (error) => { drill.replaceChildren(problem(error)); });
  const drillDown = (): void => {
    const layer = params.get("layer");
    if (!layer) { drill.replaceChildren(); return; }
    askLayer(question("layer", params, { gpu: params.get("gpu", DEFAULT_GPU), name: layer }));
  };
  const choose = (layer: string): void => {
    params.set({ layer: params.get("layer") === layer ? null : layer });
    drillDown();
    chart.redraw();
    if (params.get("layer")) requestAnimationFrame(() => drill.scrollIntoView({ block: "nearest" }));
  };

  const copy = el("div", { class: "controls" }, ...jobCopies("predict", params, () => [["gpu", params.get("gpu", DEFAULT_GPU)]]));
  const helps = el("div", { id: "helps", "aria-live": "polite" });
  const askHelps = latest<Ranking>((ranking) => { helps.replaceChildren(advice(ranking)); }, () => { helps.replaceChildren(); });

  const request = latest<Prediction>((p) => {
    shown = p;
    // What does not fit is said first.
    const verdict = p.fits ? [] : [misfit(p.gpu, p.needed_mib, p.gpu_memory_mib), toFit("to-fit", p.changes ?? [])];
    out.replaceChildren(...verdict, headline(p), cards(p));
    askHelps(question("advise", params, { gpu: params.get("gpu", DEFAULT_GPU) }));
    if (performance.getEntriesByName("preflop-first-answer").length === 0) performance.mark("preflop-first-answer");
    if (params.get("layer") && !p.layers?.some((l) => l.name === params.get("layer"))) params.set({ layer: null });
    drillDown();
    chart.redraw();
    const bounds = Object.keys(BOUND_COLORS).filter((b) => p.layers?.some((l) => l.bound === b));
    const sort = Number(params.get("sort", "1"));
    const table = sortable("layers-table", p.layers ?? [], columns, sort in columns ? sort : 1, {
      down: params.get("up") !== "1", sorted: (by, down) => params.set({ sort: by === 1 ? null : by, up: down ? null : 1 }), mark: (l) => (l.name === params.get("layer") ? "chosen" : ""),
    });
    layers.replaceChildren(el("h2", { id: "layers-title" }, "Layers"), legend(BOUND_COLORS, BOUND_NAMES, bounds), chart.box, apart(p), tools, drill, el("p", { class: "note" }, "Choose a layer to see its kernels."), table);
    rest.replaceChildren(
      section("unmodelled", "Operators without a model", p.unmodelled.length === 0 ? el("p", {}, "None: every operator of this model has one.")
        : list(p.unmodelled.map((u) => `${u.op}: ${u.count} calls, ${percent(u.share)} of the time, by its bytes alone`))),
      p.assumptions.length === 0 ? el("div") : section("assumptions", `Taken for ${p.gpu} where its file says nothing`, list(p.assumptions.map((a) => `${a.key} = ${digits(a.value)}: ${a.why}`))));
  }, (error) => { shown = null; out.replaceChildren(problem(error)); helps.replaceChildren(); layers.replaceChildren(); rest.replaceChildren(); });

  const changed = (): void => request(question("predict", params, { gpu: params.get("gpu", DEFAULT_GPU), layers: true, changes: true }));
  root.append(runForm(params, lists, true, changed), el("div", { "aria-live": "polite" }, out), copy, helps, layers, rest);
  changed();
};

/** What the chart leaves out. */
function apart(p: Prediction): HTMLElement {
  const optimizer = (p.layers ?? []).filter(isOptimizer).reduce((sum, l) => sum + l.time_us, 0);
  const set = optimizer ? ` The optimizer stands apart: it takes ${time(optimizer)} for all layers together.` : "";
  return el("p", { class: "note", id: "apart" }, `Layers of repeated blocks are one bar, unless each is drawn by itself.${set}`);
}

/** What would make it faster, from the list of `preflop advise`. */
function advice(ranking: Ranking): HTMLElement {
  const worth = ranking.options.filter((o) => o.fits && o.gain >= 0.05).slice(0, 4);
  if (worth.length === 0) return el("p", { class: "note" }, "No single option makes it 5 % faster.");
  return section("advice", "What would help", el("ul", {}, ...worth.map((o) =>
    el("li", {}, el("strong", {}, `${percent(o.gain)} less time per sample: `), el("code", {}, unbroken(o.options.join(" "))), ` (${o.how.join("; ")}${o.cost.some(Boolean) ? `; ${o.cost.filter(Boolean).join("; ")}` : ""})`))));
}

const maybe = (x: number | null, text: (x: number) => string): string => (x === null ? "-" : text(x));

/** The operators of one layer with their kernels. */
function kernels(answer: LayerAnswer): HTMLElement {
  type Line = LayerAnswer["operators"][number];
  const columns: Column<Line>[] = [
    { title: "operator", value: (o) => o.op, text: (o) => `${o.op} ${o.pass}` },
    { title: "shape", value: (o) => o.shape, text: (o) => `${o.shape} ${o.dtype}` },
    { title: "time", value: (o) => o.time_us, text: (o) => `${time(o.time_us)}${o.count > 1 ? ` x ${o.count}` : ""}`, hint: "of one call" },
    { title: "interval", value: (o) => o.high_us, text: (o) => `${time(o.low_us)} to ${time(o.high_us)}` },
    { title: "binds", value: (o) => o.bound, text: (o) => o.bound, node: (o) => bound(o.bound) },
    { title: "kernel", value: (o) => o.kernel.algorithm, text: (o) => o.kernel.algorithm },
    { title: "tile", value: (o) => o.kernel.tile?.[0] ?? 0, text: (o) => (o.kernel.tile ? o.kernel.tile.join("x") : "-"), hint: "rows and columns of one CTA's result" },
    { title: "CTAs", value: (o) => o.kernel.ctas ?? 0, text: (o) => maybe(o.kernel.ctas, (x) => digits(x)) },
    { title: "waves", value: (o) => o.kernel.waves ?? 0, text: (o) => maybe(o.kernel.waves, (x) => digits(x)), hint: "CTAs that one SM runs in turn" },
    { title: "split", value: (o) => o.kernel.split ?? 0, text: (o) => maybe(o.kernel.split, (x) => digits(x)), hint: "parts of the sum" },
    { title: "launches", value: (o) => o.launches, text: (o) => String(Math.round(o.launches)) },
    { title: "FLOPs", value: (o) => o.flops, text: (o) => si(o.flops, "") },
    { title: "L1", value: (o) => o.l1_bytes, text: (o) => si(o.l1_bytes, "B") },
    { title: "L2", value: (o) => o.l2_bytes, text: (o) => si(o.l2_bytes, "B") },
    { title: "DRAM", value: (o) => o.dram_bytes, text: (o) => si(o.dram_bytes, "B") },
  ];
  return el("div", { class: "drill" }, el("h3", {}, `${answer.name} on ${answer.gpu}`), sortable("kernels-table", answer.operators, columns, 2));
}
