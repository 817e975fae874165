// One colour for each thing that can bind (Okabe and Ito 2008); names always stand beside them.
import { el } from "../dom";

export const BOUND_COLORS: Record<string, string> = { compute: "#0072b2", dram: "#d55e00", l2: "#e69f00", latency: "#cc79a7", host: "#8a8a8a" };
export const BOUND_NAMES: Record<string, string> = { compute: "compute", dram: "DRAM bandwidth", l2: "L2 bandwidth", latency: "latency", host: "host" };

export const BOTTLENECK_COLORS: Record<string, string> = {
  MAC: "#0072b2", SMEM: "#009e73", L1_BW: "#56b4e9", L2_BW: "#e69f00", DRAM_BW: "#d55e00", DRAM_LAT: "#cc79a7",
};
export const BOTTLENECK_NAMES: Record<string, string> = {
  MAC: "arithmetic", SMEM: "shared memory", L1_BW: "L1 bandwidth", L2_BW: "L2 bandwidth", DRAM_BW: "DRAM bandwidth", DRAM_LAT: "DRAM latency",
};

/** A coloured square and a name. */
export function tag(color: string, name: string): HTMLElement {
  const box = el("i", { class: "swatch", "aria-hidden": "true" }, "■");
  box.style.color = color;
  return el("span", { class: "tag" }, box, name);
}

export function legend(colors: Record<string, string>, names: Record<string, string>, shown: string[]): HTMLElement {
  return el("p", { class: "legend", "aria-label": "colours" }, ...shown.map((k) => tag(colors[k] ?? "#8a8a8a", names[k] ?? k)));
}
