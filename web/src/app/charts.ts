// Charts of the application; the Roofline ones are those of the report (../charts).
import * as Plot from "@observablehq/plot";
import { draw } from "../draw";
import { digits, percent, short, shortSi, three, time } from "../format";
import type { DesignAnswer, LayerLine, Offer, Score, Target, WholeDesign } from "./answers";
import { BOTTLENECK_COLORS, BOTTLENECK_NAMES, BOUND_COLORS, BOUND_NAMES } from "./colors";

type Chart = (SVGSVGElement | HTMLElement) & Plot.Plot;

const style = (width: number): Partial<CSSStyleDeclaration> => ({ fontSize: width < 520 ? "10px" : "12px", background: "transparent", overflow: "visible" });
const TIP = { fill: "var(--card)", stroke: "var(--line)", fontSize: 12, lineWidth: 26 };

/** Layers of repeated blocks put together: `layer1.0.conv1` and `layer1.1.conv1` are `layer1.*.conv1`. */
export interface Fold { name: string; layers: LayerLine[]; time_us: number; share: number; forward_us: number; backward_us: number; bound: string; }

/** The optimizer works on all layers at once: it is told of apart, not drawn as one of them. */
export const isOptimizer = (l: LayerLine): boolean => l.forward_us === 0 && l.backward_us === 0 && l.optimizer_us > 0;

/** The layers without the optimizer, each by itself or by block. */
export function folds(layers: LayerLine[], each: boolean): Fold[] {
  const out = new Map<string, Fold>();
  for (const l of layers.filter((l) => !isOptimizer(l))) {
    // Numbers inside a name count blocks; a last one is a place inside its block.
    const name = each ? l.name : l.name.replace(/(^|\.)\d+(?=\.)/g, "$1*");
    const to = out.get(name) ?? { name, layers: [], time_us: 0, share: 0, forward_us: 0, backward_us: 0, bound: l.bound };
    if (l.time_us > Math.max(0, ...to.layers.map((x) => x.time_us))) to.bound = l.bound;
    to.layers.push(l);
    for (const key of ["time_us", "share", "forward_us", "backward_us"] as const) to[key] += l[key];
    out.set(name, to);
  }
  return [...out.values()].map((f) => (f.layers.length === 1 ? { ...f, name: f.layers[0].name } : f));
}

/** Layers in the order in which they run, as high as long they take, coloured by what binds them. */
export function layerChart(layers: Fold[], chosen: string, width: number): Chart {
  const rows = layers.map((layer, i) => ({ ...layer, i }));
  const most = Math.max(...rows.map((r) => r.time_us), 1e-9);
  const has = (d: Fold): boolean => d.layers.some((l) => l.name === chosen);
  // The tallest bars are named, where their names do not lie on each other.
  const [left, right] = [64, 12];
  const place = (i: number): number => ((i + 0.5) / rows.length) * (width - left - right);
  const taken: [number, number][] = [];
  const named = [...rows].sort((a, b) => b.time_us - a.time_us).slice(0, 8).filter((r) => {
    const long = r.name.length * (width < 520 ? 5.4 : 6.4);
    const from = Math.min(Math.max(0, place(r.i) - long / 2), width - left - right - long);
    if (!r.name || long > width - left - right || taken.length >= (width < 520 ? 2 : 4) || taken.some(([a, b]) => from < b + 8 && a < from + long + 8)) return false;
    taken.push([from, from + long]);
    return true;
  }).map((r) => ({ ...r, dx: Math.min(Math.max(r.name.length * (width < 520 ? 2.7 : 3.2) - place(r.i), 0), 1e3) - Math.max(place(r.i) + r.name.length * (width < 520 ? 2.7 : 3.2) - (width - left - right), 0) }));
  return draw({
    width, height: Math.min(300, Math.max(200, width * 0.28)), marginLeft: left, marginRight: right, marginTop: 26, marginBottom: 32, style: style(width),
    x: { domain: [0, rows.length], axis: null },
    y: { domain: [0, most], label: null, ticks: 5, tickFormat: (v: number) => shortSi(v * 1e-6, "s"), grid: true },
    color: { type: "identity" },
    ariaLabel: "Time of each layer, coloured by bottleneck", ariaDescription: "The table below has the same figures.",
    marks: [
      Plot.rectY(rows, { x1: "i", x2: (d) => d.i + 1, y: "time_us", fill: (d) => BOUND_COLORS[d.bound], fillOpacity: (d) => (chosen && !has(d) ? 0.45 : 1), insetLeft: rows.length < width / 4 ? 0.5 : 0 }),
      Plot.rectY(rows.filter(has), { x1: "i", x2: (d) => d.i + 1, y: "time_us", fill: "none", stroke: "var(--ink)", strokeWidth: 1.5 }),
      ...named.map((r) => Plot.text([r], { x: (d) => d.i + 0.5, y: "time_us", text: "name", dx: r.dx, dy: -7, fill: "var(--ink)", stroke: "var(--page)", strokeWidth: 3, fontSize: width < 520 ? 9 : 11 })),
      Plot.tip(rows, Plot.pointerX({ x: (d) => d.i + 0.5, y: "time_us", title: (d) => `${d.name}${d.layers.length > 1 ? ` (${d.layers.length} layers)` : ""}\n${time(d.time_us)}, ${percent(d.share)}\nbinds: ${BOUND_NAMES[d.bound]}\nforward ${time(d.forward_us)}, backward ${time(d.backward_us)}`, ...TIP })),
      Plot.ruleY([0], { stroke: "var(--line)" }),
      Plot.text(["layers in the order in which they run"], { frameAnchor: "bottom", dy: 18, fill: "var(--soft)" }),
    ],
  });
}

/** Speed-ups of designs of whole networks, with what they take. */
export function gainChart(designs: WholeDesign[], own: string, width: number): Chart {
  const small = width < 520;
  const bound = (d: WholeDesign): string => Object.keys(d.bottlenecks)[0] ?? "host";
  return draw({
    width, height: 60 + 30 * designs.length, marginLeft: Math.min(150, width * 0.32), marginRight: small ? 60 : 240, marginTop: 8, marginBottom: 34, style: style(width),
    x: { domain: [0, Math.max(1.05, ...designs.map((d) => d.speedup))], label: "speed-up", labelAnchor: "center", labelArrow: "none", ticks: small ? 3 : 6, tickFormat: (v: number) => `${short(v)}x`, grid: true },
    y: { domain: designs.map((d) => d.name), label: null, tickSize: 0 },
    color: { type: "identity" },
    ariaLabel: "Speed-up of each design, coloured by what binds it", ariaDescription: "The table below has the same figures.",
    marks: [
      Plot.barX(designs, { y: "name", x: "speedup", fill: (d) => BOUND_COLORS[bound(d)], fillOpacity: (d) => (d.name === own ? 1 : 0.7), insetTop: 3, insetBottom: 3 }),
      Plot.text(designs, { y: "name", x: "speedup", text: (d) => (small ? `${three(d.speedup)}x` : `${three(d.speedup)}x for ${three(d.area_share)}x the area, ${three(d.watts)} W`), textAnchor: "start", dx: 5, fill: "var(--ink)", stroke: "var(--page)", strokeWidth: 3 }),
      Plot.ruleX([1], { stroke: "var(--soft)", strokeDasharray: "3 3" }),
    ],
  });
}

/** Where a name may stand beside its point: to the right, to the left, over it, under it, at its corners; the last two, farther off, are for the front alone. */
const SIDES: [number, number, "start" | "middle" | "end"][] = [[8, 0, "start"], [-8, 0, "end"], [0, -13, "middle"], [0, 13, "middle"], [7, -11, "start"], [7, 11, "start"], [-7, -11, "end"], [-7, 11, "end"], [0, -24, "middle"], [0, 24, "middle"]];

/** Names of points where they cover no other name, no point and no part of the line that joins the front. Points on the front are named first, and where there
 * is no such place, over points that are not on it. */
function placed<T extends { gpu: string; pareto: boolean }>(points: T[], front: T[], at: (p: T) => [number, number], [wide, high]: [number, number], small: boolean): { point: T; dx: number; dy: number; anchor: "start" | "middle" | "end" }[] {
  type Box = [number, number, number, number];
  const around = ([x, y]: [number, number], r: number): Box => [x - r, x + r, y - r, y + r];
  const line = front.slice(1).flatMap((p, i): Box[] => {
    const [[x0, y0], [x1, y1]] = [at(front[i]), at(p)];
    const steps = Math.ceil(Math.hypot(x1 - x0, y1 - y0) / 6);
    return Array.from({ length: steps }, (_, k) => around([x0 + ((x1 - x0) * (k + 1)) / steps, y0 + ((y1 - y0) * (k + 1)) / steps], 2));
  });
  const strict: Box[] = [...line, ...front.map((p) => around(at(p), 4))];
  const others = points.filter((p) => !p.pareto).map((p) => around(at(p), 4));
  const names: Box[] = [];
  const out: ReturnType<typeof placed<T>> = [];
  for (const point of points) {
    const [[x, y], long] = [at(point), point.gpu.length * (small ? 5.4 : 6.8)];
    const box = ([dx, dy, anchor]: (typeof SIDES)[number]): Box => {
      const left = x + dx - (anchor === "start" ? 0 : anchor === "end" ? long : long / 2);
      return [left, left + long, y + dy - 7, y + dy + 7];
    };
    const free = ([l, r, t, b]: Box, taken: Box[]): boolean => l > -2 && r < wide + 24 && t > -20 && b < high && taken.every((o) => r <= o[0] || o[1] <= l || b <= o[2] || o[3] <= t);
    const side = SIDES.slice(0, point.pareto ? SIDES.length : -2).find((s) => free(box(s), [...strict, ...others, ...names])) ?? (point.pareto ? SIDES.find((s) => free(box(s), [...strict, ...names])) ?? SIDES.find((s) => free(box(s), names)) : undefined);
    if (!side) continue;
    names.push(box(side));
    out.push({ point, dx: side[0], dy: side[1], anchor: side[2] });
  }
  return out;
}

/** Time of a million samples against their price; the front is joined. */
export function paretoChart(offers: Offer[], width: number): Chart | null {
  const priced = offers.filter((o) => o.fits && o.usd_per_million_samples !== null && o.usd_per_million_samples > 0)
    .map((o) => ({ ...o, hours: 1e6 / o.samples_per_s / 3600, usd: o.usd_per_million_samples ?? 0 }));
  if (priced.length === 0) return null;
  const front = priced.filter((o) => o.pareto).sort((a, b) => a.hours - b.hours);
  const small = width < 520;
  // Room on the left for the names of the fastest.
  const span = (values: number[], room: number): [number, number] => [Math.min(...values) / room, Math.max(...values) * 1.35];
  const [h0, h1] = span(priced.map((o) => o.hours), small ? 2.2 : 1.35);
  const [u0, u1] = span(priced.map((o) => o.usd), 1.25);
  const height = Math.min(460, Math.max(small ? 380 : 320, width * 0.5));
  const [wide, high] = [width - 62 - 28, height - 26 - 44];
  const at = (o: { hours: number; usd: number }): [number, number] => [Math.log(o.hours / h0) / Math.log(h1 / h0) * wide, (1 - Math.log(o.usd / u0) / Math.log(u1 / u0)) * high];
  const names = placed([...priced].sort((a, b) => Number(b.chosen) - Number(a.chosen) || Number(b.pareto) - Number(a.pareto) || a.usd - b.usd), front, at, [wide, high], small);
  const color = (o: Offer): string => (o.keeps_limits === false ? "var(--soft)" : o.pareto ? "#d55e00" : "var(--accent)");
  return draw({
    width, height, marginLeft: 62, marginRight: 28, marginTop: 26, marginBottom: 44, style: style(width),
    x: { type: "log", domain: [h0, h1], label: "hours for a million samples", labelAnchor: "center", labelArrow: "none", ticks: 5, tickFormat: (v: number) => short(v) },
    y: { type: "log", domain: [u0, u1], label: "US dollars for a million samples", labelArrow: "none", ticks: 5, tickFormat: (v: number) => `$${short(v)}`, grid: true },
    color: { type: "identity" }, symbol: { type: "identity" },
    ariaLabel: "Time against cost of every GPU with its Pareto front", ariaDescription: "The table below has the same figures.",
    marks: [
      Plot.line(front, { x: "hours", y: "usd", stroke: "#d55e00", strokeWidth: 1.5, strokeDasharray: "5 3" }),
      Plot.dot(priced, { x: "hours", y: "usd", r: (o: Offer) => (o.chosen ? 8 : o.pareto ? 5.5 : 4), symbol: (o: Offer) => (o.pareto ? "diamond" : "circle"), fill: color, stroke: (o: Offer) => (o.chosen ? "var(--ink)" : "var(--page)"), strokeWidth: (o: Offer) => (o.chosen ? 2.5 : 0.8), fillOpacity: (o: Offer) => (o.keeps_limits === false ? 0.35 : 0.95) }),
      ...names.map((n) => Plot.text([n.point], { x: "hours", y: "usd", text: "gpu", dx: n.dx, dy: n.dy, textAnchor: n.anchor, fontSize: small ? 9 : 11, fill: "var(--ink)", stroke: "var(--page)", strokeWidth: 3 })),
      Plot.tip(priced, Plot.pointer({ x: "hours", y: "usd", title: (o) => `${o.gpu}\n${time(o.iteration_ms * 1e3)} per iteration, ${digits(o.samples_per_s)} samples/s\n$${three(o.usd)} per million samples at $${three(o.usd_per_hour ?? 0)} per hour\nbinds: ${BOUND_NAMES[o.bound]}`, ...TIP })),
    ],
  });
}

/** Speed-ups of designs, split by what binds the time that is left. */
export function designChart(designs: DesignAnswer[], width: number): Chart {
  const names = designs.map((d) => d.name);
  const parts = designs.flatMap((d) => Object.entries(d.bottleneck_ms).map(([key, ms]) => ({ name: d.name, key, height: (d.speedup * ms) / d.time_ms, share: ms / d.time_ms, d })));
  const keys = Object.keys(BOTTLENECK_COLORS);
  return draw({
    width, height: Math.min(340, Math.max(260, width * 0.36)), marginLeft: 46, marginRight: 8, marginTop: 24, marginBottom: 40, style: style(width),
    x: { domain: names, label: width < 640 ? "option" : null, tickSize: 0, padding: 0.25, tickFormat: (name: string) => (width < 640 ? name.replace("option ", "") : name) },
    y: { label: "speed-up", labelArrow: "none", grid: true, tickFormat: (v: number) => `${short(v)}x`, ticks: 5 },
    color: { type: "identity" },
    ariaLabel: "Speed-up of each design, split by bottleneck", ariaDescription: "The table below has the same figures.",
    marks: [
      Plot.barY(parts, { x: "name", y: "height", fill: (p) => BOTTLENECK_COLORS[p.key], order: (p: { key: string }) => keys.indexOf(p.key), tip: { channels: {}, format: { fill: false, x: false, y: false }, ...TIP }, title: (p) => `${p.name}: ${digits(p.d.speedup)}x\n${percent(p.share)} of its time bound by ${BOTTLENECK_NAMES[p.key]}` }),
      Plot.text(designs, { x: "name", y: "speedup", text: (d) => `${digits(d.speedup)}x`, dy: -8, fill: "var(--ink)" }),
      Plot.ruleY([0], { stroke: "var(--line)" }),
      Plot.ruleY([1], { stroke: "var(--soft)", strokeDasharray: "3 3" }),
    ],
  });
}

/** Iterations on other GPUs with their intervals. */
export function transferChart(targets: Target[], measured: { gpu: string; ms: number }, width: number): Chart {
  const rows = [...targets].sort((a, b) => a.iteration_ms - b.iteration_ms);
  return draw({
    width, height: 68 + 17 * rows.length, marginLeft: Math.min(130, width * 0.34), marginRight: 60, marginTop: 46, marginBottom: 8, style: style(width),
    x: { type: "log", label: "time of one iteration", labelArrow: "none", labelOffset: 42, axis: "top", ticks: width < 520 ? 3 : 5, tickFormat: (v: number) => shortSi(v / 1e3, "s"), grid: true },
    y: { domain: rows.map((r) => r.gpu), label: null, tickSize: 0 },
    ariaLabel: "The recorded job on other GPUs", ariaDescription: "The table below has the same figures.",
    marks: [
      Plot.ruleX([measured.ms], { stroke: "#d55e00", strokeDasharray: "5 3" }),
      Plot.ruleY(rows, { y: "gpu", x1: "low_ms", x2: "high_ms", stroke: "var(--accent)", strokeOpacity: 0.45, strokeWidth: 5 }),
      Plot.dot(rows, { y: "gpu", x: "iteration_ms", r: 4, fill: (r) => (r.gpu === measured.gpu ? "#d55e00" : "var(--accent)") }),
      Plot.text(rows, { y: "gpu", x: "high_ms", text: (r) => time(r.iteration_ms * 1e3), textAnchor: "start", dx: 5, fill: "var(--ink)", stroke: "var(--page)", strokeWidth: 3 }),
    ],
  });
}

/** Mean errors by family beside those of a plain roofline. */
export function errorChart(rows: Score[], width: number): Chart {
  const order = [...rows].sort((a, b) => a.mean_percent - b.mean_percent);
  return draw({
    width, height: 76 + 26 * order.length, marginLeft: Math.min(190, width * 0.42), marginRight: 70, marginTop: 46, marginBottom: 8, style: style(width),
    x: { label: "mean error in percent", labelArrow: "none", labelOffset: 42, axis: "top", ticks: width < 520 ? 4 : 8, grid: true, domain: [0, Math.max(...order.map((r) => Math.max(r.mean_percent, r.roofline_mean_percent)))] },
    y: { domain: order.map((r) => r.family), label: null, tickSize: 0 },
    ariaLabel: "Mean error of predictions and of a plain roofline", ariaDescription: "The table below has the same figures.",
    marks: [
      Plot.barX(order, { y: "family", x: "mean_percent", fill: "#0072b2", insetTop: 3, insetBottom: 3 }),
      Plot.tickX(order, { y: "family", x: "roofline_mean_percent", stroke: "#d55e00", strokeWidth: 3 }),
      Plot.text(order, { y: "family", x: "mean_percent", text: (r) => `${digits(r.mean_percent)} %`, textAnchor: "start", dx: 5, fill: "var(--ink)", stroke: "var(--page)", strokeWidth: 3 }),
    ],
  });
}
