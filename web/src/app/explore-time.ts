// Explore, whole networks by the time model: turn a GPU's knobs and see what it gains, and what it takes.
import { el } from "../dom";
import { percent, short, three, time } from "../format";
import { sortable, type Column } from "../table";
import type { DesignsAnswer, WholeDesign } from "./answers";
import { latest } from "./ask";
import { gainChart } from "./charts";
import { BOUND_COLORS, BOUND_NAMES, legend, tag } from "./colors";
import type { Page } from "./main";
import { button, card, chartBox, csvButton, pngButton, problem, section, slider } from "./parts";
import { catalogue, DEFAULT_GPU, gpuSelect, jobCopies, question, runForm, runName } from "./run";

/** Keys of a design (crates/design), their names, and those inside a sentence. */
const KNOBS: [string, string, string][] = [["sm_count", "SMs", "SMs"], ["clock", "Clock", "clock"], ["mac_per_sm", "MACs of an SM", "MACs of an SM"], ["l2", "L2, size and bandwidth", "L2"], ["dram_bw", "DRAM bandwidth", "DRAM bandwidth"]];
const TWICE = "2 x ";
/** An eighth to 8 times, twelve places to a doubling; whole doublings are hit exactly. */
const toScale = (v: number): number => Number((2 ** (v / 12)).toPrecision(3));
const toPlace = (scale: number): number => Math.round(12 * Math.log2(scale));
const OWN = "yours";

const bound = (d: WholeDesign): string => Object.keys(d.bottlenecks)[0] ?? "host";
const changes = (d: WholeDesign): string => KNOBS.filter(([key]) => d.scales[key] !== 1).map(([key]) => `${key}=${short(d.scales[key])}`).join(" ") || "none";

const COLUMNS: Column<WholeDesign>[] = [
  { title: "design", value: (d) => d.name, text: (d) => d.name },
  { title: "speed-up", value: (d) => d.speedup, text: (d) => `${three(d.speedup)}x` },
  { title: "iteration", value: (d) => d.time_ms, text: (d) => time(d.time_ms * 1e3) },
  { title: "binds", value: bound, text: bound, node: (d) => tag(BOUND_COLORS[bound(d)], BOUND_NAMES[bound(d)]) },
  { title: "area", value: (d) => d.area_share, text: (d) => `${three(d.area_share)}x`, hint: "of the base, by data/area_weights.toml" },
  { title: "mm2", value: (d) => d.area_mm2 ?? 0, text: (d) => (d.area_mm2 === null ? "-" : three(d.area_mm2)), hint: "of the die, where that of the base is known" },
  { title: "power", value: (d) => d.watts, text: (d) => `${three(d.watts)} W` },
  { title: "J/sample", value: (d) => d.joules_per_sample, text: (d) => three(d.joules_per_sample), hint: "an estimate" },
  { title: "$/million", value: (d) => d.usd_per_million_samples ?? Infinity, text: (d) => (d.usd_per_million_samples === null ? "-" : `$${three(d.usd_per_million_samples)}`), hint: "dollars of a million samples, where an hour costs in proportion to area" },
  { title: "changes", wide: true, value: changes, text: changes },
];

export const exploreTime: Page = async (root, params) => {
  const lists = await catalogue();
  const base = (): string => params.get("base", params.get("gpu", DEFAULT_GPU));
  const scales = (): Record<string, number> => {
    const out: Record<string, number> = {};
    for (const [key] of KNOBS) { const v = params.number(key); if (v !== null && v !== 1) out[key] = Math.min(64, Math.max(0.0625, v)); }
    return out;
  };
  let shown: WholeDesign[] = [];
  const out = el("div", { id: "result" });
  const failed = el("div");
  const live = el("p", { class: "status", id: "status", role: "status" });
  const table = el("div");
  const colours = el("div");
  const chart = chartBox("chart", (width) => (shown.length ? gainChart(shown, OWN, width) : null));
  const request = latest<DesignsAnswer>((answer) => {
    shown = answer.designs;
    const own = shown[shown.length - 1];
    failed.replaceChildren();
    const best = shown.slice(0, -1).reduce((a, b) => (b.speedup > a.speedup ? b : a));
    out.replaceChildren(el("div", { class: "cards" },
      card("speedup", "speed-up", `${three(own.speedup)}x`, `${time(own.time_ms * 1e3)}; ${answer.base} takes ${time(answer.base_time_ms * 1e3)}`),
      card("bottleneck", "binds", BOUND_NAMES[bound(own)], `on ${answer.base} itself, twice the ${best.name.replace(TWICE, "")} would help most: ${percent(best.speedup - 1)} faster`),
      card("area", "area", `${three(own.area_share)}x`, own.area_mm2 === null ? "of the base" : `${three(own.area_mm2)} mm2`),
      card("power", "power", `${three(own.watts)} W`, `${three(own.joules_per_sample)} J per sample`)));
    live.textContent = `Speed-up ${three(own.speedup)}x; ${BOUND_NAMES[bound(own)]} binds.`;
    Object.assign(live.dataset, { speedup: own.speedup, bottleneck: bound(own) });
    chart.redraw();
    colours.replaceChildren(legend(BOUND_COLORS, BOUND_NAMES, Object.keys(BOUND_COLORS).filter((b) => shown.some((d) => bound(d) === b))));
    table.replaceChildren(sortable("designs-table", shown, COLUMNS, 1, { mark: (d) => (d === own ? "chosen" : "") }));
  }, (error) => { shown = []; out.replaceChildren(); live.textContent = ""; table.replaceChildren(); chart.redraw(); failed.replaceChildren(problem(error)); });
  const turn = (): void => request(question("design", params, {
    base: base(), designs: [...KNOBS.map(([key, , name]) => ({ name: TWICE + name, scales: { [key]: 2 } })), { name: OWN, scales: scales() }],
  }));
  const knobs = KNOBS.map(([key, label]) => ({ key, ...slider(key, label, { min: -36, max: 36, step: 1, value: toPlace(params.number(key) ?? 1) }, (v) => `${short(toScale(v))}x`, (v) => { params.set({ [key]: toScale(v) === 1 ? null : toScale(v) }); turn(); }) }));
  const reset = button("preset-0", "As the base", () => {
    for (const knob of knobs) { knob.show(0); params.set({ [knob.key]: null }); }
    turn();
  });
  const name = (): string => runName(params, base(), "designs");
  const vary = (): [string, string][] => Object.entries(scales()).map(([key, value]) => ["vary", `${key}=${value}`]);
  root.append(
    runForm(params, lists, false, turn),
    el("div", { class: "controls" }, gpuSelect("base", "Base GPU", lists.gpus, base(), (v) => { params.set({ base: v }); turn(); }), reset),
    section("knobs", "Knobs", el("div", { class: "knobs" }, ...knobs.map((k) => k.field))),
    failed, out, live,
    section("designs", "Your design beside twice of each resource", colours, chart.box,
      el("div", { class: "controls" }, pngButton("png", chart, name), csvButton("csv", () => shown.map((d) => ({ ...d, ...d.scales })), name),
        ...jobCopies("explore", params, () => [["base", base()], ["objective", "time"], ...(vary().length ? vary() : KNOBS.map(([key]): [string, string] => ["vary", `${key}=1,2`]))])), table,
      el("p", { class: "note" }, "Whole iterations by the time model. Area and power follow round assumptions (data/area_weights.toml, data/dies.toml): good for comparing designs of one making.")));
  turn();
};
