// Explore, convolutions by the published DeLTA model: turn a GPU's knobs and see what binds next.
import { el, select } from "../dom";
import { digits, percent, short, time } from "../format";
import { sortable, type Column } from "../table";
import type { DesignAnswer, ExploreAnswer } from "./answers";
import { ask, latest } from "./ask";
import { designChart } from "./charts";
import { BOTTLENECK_COLORS, BOTTLENECK_NAMES, legend, tag } from "./colors";
import type { Page } from "./main";
import { button, card, chartBox, csvButton, numberField, pngButton, problem, section, slider } from "./parts";
import { catalogue, copies, gpuSelect, options } from "./run";

const KNOBS: [string, string][] = [
  ["sm_count", "SMs"], ["mac_per_sm", "MACs of an SM"], ["reg", "Registers of an SM"], ["smem_size", "Shared memory of an SM"],
  ["smem_bw", "Shared-memory bandwidth"], ["l1_bw", "L1 bandwidth"], ["l2_bw", "L2 bandwidth"], ["dram_bw", "DRAM bandwidth"],
];
// A quarter to 16 times, twelve places to a doubling; whole doublings are hit exactly.
const toScale = (v: number): number => Number((2 ** (v / 12)).toPrecision(3));
const toPlace = (scale: number): number => Math.round(12 * Math.log2(scale));

const bind = (key: string): HTMLElement => tag(BOTTLENECK_COLORS[key], BOTTLENECK_NAMES[key]);

export const exploreDelta: Page = async (root, params) => {
  const [lists, networks] = await Promise.all([catalogue(), ask<string[]>({ ask: "networks" })]);
  const scales = (): Record<string, number> => {
    const out: Record<string, number> = {};
    for (const [key] of KNOBS) { const v = params.number(key); if (v !== null && v !== 1) out[key] = Math.min(64, Math.max(0.0625, v)); }
    if (params.get("tile") === "256") out.tile = 256;
    return out;
  };
  let presets: DesignAnswer[] = [];
  let own: DesignAnswer | null = null;
  const all = (): DesignAnswer[] => [...presets, ...(own ? [own] : [])];
  const out = el("div", { id: "result" });
  const failed = el("div");
  const live = el("p", { class: "status", id: "status", role: "status" });
  const chart = chartBox("chart", (width) => (all().length ? designChart(all(), width) : null));
  const table = el("div");

  const COLUMNS: Column<DesignAnswer>[] = [
    { title: "design", value: (d) => d.name, text: (d) => d.name },
    { title: "speed-up", value: (d) => d.speedup, text: (d) => `${digits(d.speedup)}x` },
    { title: "time", value: (d) => d.time_ms, text: (d) => time(d.time_ms * 1e3) },
    { title: "cost", value: (d) => d.cost, text: (d) => `${digits(d.cost)}x`, hint: "chip resources as a multiple of the base, by data/area_weights.toml" },
    { title: "binds", value: (d) => d.bottleneck, text: (d) => d.bottleneck, node: (d) => bind(d.bottleneck) },
    { title: "then", value: (d) => d.next_bottleneck, text: (d) => d.next_bottleneck, node: (d) => bind(d.next_bottleneck) },
    { title: "layers", words: true, wide: true, value: (d) => Object.keys(d.bottlenecks).length, text: (d) => Object.entries(d.bottlenecks).map(([k, n]) => `${k} ${n}`).join(", "), hint: "layers by what binds them" },
    { title: "changes", wide: true, value: (d) => describe(d.scales), text: (d) => describe(d.scales) },
  ];

  const show = (answer: ExploreAnswer): void => {
    own = answer.designs[0];
    failed.replaceChildren();
    const share = (own.bottleneck_ms[own.bottleneck] ?? 0) / own.time_ms;
    out.replaceChildren(el("div", { class: "cards" },
      card("speedup", "speed-up", `${digits(own.speedup)}x`, `${time(own.time_ms * 1e3)}; ${answer.base} takes ${time(answer.base_time_ms * 1e3)} for ${answer.layers} layers`),
      card("bottleneck", "bottleneck", BOTTLENECK_NAMES[own.bottleneck], `binds ${percent(share)} of the time`),
      card("next", "next bottleneck", BOTTLENECK_NAMES[own.next_bottleneck], `at most ${digits(own.headroom)}x more by removing the first alone`),
      card("cost", "cost", `${digits(own.cost)}x`, `chip resources; ${digits(own.speedup / own.cost)}x speed-up per cost`)));
    for (const [id, key] of [["bottleneck", own.bottleneck], ["next", own.next_bottleneck]]) out.querySelector(`#${id} strong`)?.replaceChildren(bind(key));
    live.textContent = `Speed-up ${digits(own.speedup)}x; ${BOTTLENECK_NAMES[own.bottleneck]} binds, then ${BOTTLENECK_NAMES[own.next_bottleneck]}.`;
    Object.assign(live.dataset, { speedup: own.speedup, bottleneck: own.bottleneck, next: own.next_bottleneck });
    chart.redraw();
    table.replaceChildren(sortable("designs-table", all(), COLUMNS, 1, { mark: (d) => (d === own ? "chosen" : "") }));
  };
  const fail = (error: unknown): void => { own = null; out.replaceChildren(); live.textContent = ""; table.replaceChildren(); failed.replaceChildren(problem(error)); };
  const base = (): Record<string, unknown> => ({ network: params.get("network", "resnet152"), base: params.get("base", "titan-xp"), batch: params.number("batch") ?? 256 });
  const request = latest<ExploreAnswer>(show, fail);
  const turn = (): void => request({ ask: "explore", ...base(), designs: [{ name: "yours", scales: scales() }] });
  const askPresets = latest<ExploreAnswer>((answer) => {
    presets = answer.designs.map((d) => ({ ...d, name: `option ${d.name}` }));
    buttons.replaceChildren(button("preset-0", "Base", () => preset({})), ...answer.designs.map((d) => button(`preset-${d.name}`, `Option ${d.name}`, () => preset(d.scales))));
    turn();
  }, fail);

  const knobs = KNOBS.map(([key, label]) => ({ key, ...slider(key, label, { min: -24, max: 48, step: 1, value: toPlace(params.number(key) ?? 1) }, (v) => `${short(toScale(v))}x`, (v) => { params.set({ [key]: toScale(v) === 1 ? null : toScale(v) }); turn(); }) }));
  const tile = select("tile", "CTA tile", [["128", "128 x 128"], ["256", "256 x 256"]], params.get("tile", "128"), (v) => { params.set({ tile: v === "128" ? null : v }); turn(); });
  const preset = (wanted: Record<string, number>): void => {
    for (const knob of knobs) {
      const value = wanted[knob.key] ?? 1;
      knob.show(toPlace(value));
      params.set({ [knob.key]: value === 1 ? null : value });
    }
    const edge = String(wanted.tile ?? 128);
    (tile.querySelector("select") as HTMLSelectElement).value = edge;
    params.set({ tile: edge === "128" ? null : edge });
    turn();
  };
  const buttons = el("div", { class: "legend", role: "group", "aria-label": "presets: the nine options of the DeLTA paper" });
  const set = (changes: Record<string, string | number | null>): void => { params.set(changes); askPresets({ ask: "explore", ...base() }); };
  const words = (): string[] => ["explore", params.get("network", "resnet152"), ...options({ base: params.get("base", "titan-xp"), batch: params.number("batch") }),
    ...(Object.keys(scales()).length ? Object.entries(scales()).flatMap(([key, value]) => ["--vary", `${key}=${value}`]) : ["--options", "delta-paper"])];
  const name = (): string => `${params.get("network", "resnet152")}-${params.get("base", "titan-xp")}-designs`;
  root.append(
    el("div", { class: "controls" },
      select("network", "Network", networks.map((n) => [n, n]), params.get("network", "resnet152"), (v) => set({ network: v })),
      gpuSelect("base", "Base GPU", lists.gpus, params.get("base", "titan-xp"), (v) => set({ base: v })),
      numberField("batch", "Images", params.number("batch") ?? 256, "256", (v) => set({ batch: v })), tile),
    section("presets", "Presets", buttons),
    section("knobs", "Knobs", el("div", { class: "knobs" }, ...knobs.map((k) => k.field))),
    failed, out, live,
    section("designs", "Your design beside the paper's nine options", legend(BOTTLENECK_COLORS, BOTTLENECK_NAMES, Object.keys(BOTTLENECK_COLORS)), chart.box,
      el("div", { class: "controls" }, pngButton("png", chart, name), csvButton("csv", () => all().map((d) => ({ ...d, ...d.scales })), name), ...copies(words)), table,
      el("p", { class: "note" }, "Convolution layers by the published DeLTA model (docs/delta.md); a bar is split by what binds the time that is left.")));
  askPresets({ ask: "explore", ...base() });
};

function describe(scales: Record<string, number>): string {
  const changed = Object.entries(scales).filter(([k, v]) => v !== (k === "tile" ? 128 : 1));
  return changed.map(([k, v]) => `${k}=${short(v)}`).join(" ") || "none";
}
