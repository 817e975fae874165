// The charts: one source for the chart page and the report.
import * as Plot from "@observablehq/plot";
import { draw } from "./draw";
import { digits, percent, shortSi, si, time } from "./format";
import { BOX, FLAG, GUIDE } from "./style";
import { bandwidthAt, bytesAt, LEVELS, LEVEL_NAMES, type Level, type Machine, type Row } from "./types";

/** A row as it is drawn: one call or all of them. */
export interface Mark {
  row: Row;
  gpu: string;
  label: string;
  group: string;
  /** Calls that the drawn work stands for. */
  calls: number;
}

export interface ChartOptions {
  machine: Machine;
  level: Level;
  pipe: string;
  width: number;
  /** Most pixels of height, so that the whole chart fits the window. */
  maxHeight: number;
  perCall: boolean;
  groups: string[];
  style: (group: string) => [string, string];
  /** Join marks of one group in their order. */
  joined: boolean;
  zeroFlopShare: number;
}

interface Point { mark: Mark; x: number; y: number; }

/** Letters stay readable over lines and points. */
const HALO = { stroke: "var(--page)", strokeWidth: 3 };

/** Known to compute nothing: a cast, a copy, a look-up. */
export const isZeroFlop = (m: Mark): boolean => m.row.flops === 0 && m.row.class !== "unknown";

const flagged = (m: Mark): boolean => m.row.above_roof.length > 0;
const radius = (m: Mark, o: ChartOptions): number => o.joined ? 4.5 : 2.5 + 9 * Math.sqrt(Math.min(1, m.row.share * 3));

export function describe(m: Mark): string {
  const r = m.row;
  const known = r.flops > 0 || LEVELS.some((l) => bytesAt(r, l) > 0);
  const each = r.count > 1 ? ` (${digits(r.count)} calls)` : "";
  const lines = [
    `${r.name}${each}`,
    `${r.op}, ${r.dtype}, ${r.phase}`,
    `time ${time(r.time_us)}, ${percent(r.share)} of all`,
    known ? `${si(r.flops, "FLOP")}, ${LEVELS.map((l) => (bytesAt(r, l) ? `${LEVEL_NAMES[l]} ${si(bytesAt(r, l), "B")}` : "")).filter(Boolean).join(", ")}` : "work unknown",
    `t_F ${time(r.compute_bound_us)}, t_B ${time(r.dram_bound_us ?? 0)}, t_0 ${time(r.launch_bound_us)}`,
    `${r.slowdown ? `slowdown ${digits(r.slowdown)}x, ` : ""}binds: ${r.binding}`,
  ];
  if (m.label || m.gpu) lines.push([m.gpu, m.label].filter(Boolean).join(", "));
  if (flagged(m)) lines.push(`above the roof of ${r.above_roof.join(", ")}`);
  return lines.join("\n");
}

function decades(values: number[]): [number, number] {
  const good = values.filter((v) => v > 0 && Number.isFinite(v));
  if (good.length === 0) return [-6, -2];
  const low = Math.floor(Math.log10(Math.min(...good) / 1.4));
  const high = Math.ceil(Math.log10(Math.max(...good) * 1.4));
  return [low, Math.max(high, low + 1)];
}

const range = (low: number, high: number): number[] => Array.from({ length: high - low + 1 }, (_, i) => low + i);

/** Widens one range to as many decades as the other, on both sides. */
function widened([low, high]: [number, number], n: number): [number, number] {
  const more = Math.max(0, n - (high - low));
  return [low - Math.floor(more / 2), high + Math.ceil(more / 2)];
}

/** Dots, flags and what the pointer says; it may say it of more points than are drawn here. */
function common(marks: Point[], o: ChartOptions, pointed: Point[] = marks): Plot.Markish[] {
  const out: Plot.Markish[] = [
    Plot.dot(marks, {
      x: "x", y: "y", r: (p: Point) => radius(p.mark, o), fill: (p: Point) => o.style(p.mark.group)[0],
      symbol: (p: Point) => o.style(p.mark.group)[1], fillOpacity: 0.8, stroke: "var(--page)", strokeWidth: 0.6,
    }),
    Plot.dot(marks.filter((p) => flagged(p.mark)), {
      x: "x", y: "y", r: 6, symbol: "times", stroke: FLAG, strokeWidth: 2,
    }),
    Plot.tip(pointed, Plot.pointer({
      x: "x", y: "y", title: (p: Point) => describe(p.mark), fill: "var(--card)", stroke: "var(--line)", fontSize: 12, lineWidth: 28,
    })),
  ];
  if (o.joined) {
    out.push(Plot.text(marks, { x: "x", y: "y", text: (p: Point) => p.mark.label.replace(/^\D+/, ""), dx: 9, dy: 5, textAnchor: "start", fontSize: 11, fill: "var(--ink)" }));
    out.unshift(Plot.line(marks, { x: "x", y: "y", z: (p: Point) => p.mark.group, stroke: (p: Point) => o.style(p.mark.group)[0], strokeWidth: 2 }));
  }
  return out;
}

// Axes take `text`, not `tickFormat`: D3 leaves out labels of a logarithmic scale that are no powers of ten.

/** The time plane: bytes and FLOPs with their times; work and time joined on one diagonal. */
export function planeChart(marks: Mark[], o: ChartOptions): (SVGSVGElement | HTMLElement) & Plot.Plot {
  const W = bandwidthAt(o.machine, o.level) ?? 1;
  const P = o.machine.roofs.find((r) => r.pipe === o.pipe)?.flops_per_s ?? 1;
  const balance = P / W;
  const unit = (m: Mark): [number, number, number] => [bytesAt(m.row, o.level) / m.calls, m.row.flops / m.calls, (m.row.time_us * 1e-6) / m.calls];
  const drawn = marks.filter((m) => bytesAt(m.row, o.level) > 0 && m.row.flops > 0);
  const timePoint = (m: Mark): Point => {
    const [bytes, flops, t] = unit(m);
    const relative = flops / bytes / balance;
    return relative > 1 ? { mark: m, x: (t / relative) * W, y: t * P } : { mark: m, x: t * W, y: t * relative * P };
  };
  const points = drawn.map(timePoint);
  const rug = marks.filter(isZeroFlop).map((m) => ({ mark: m, x: unit(m)[2] * W, y: 0 }));
  const launches = o.perCall ? 1 : Math.max(1, ...marks.map((m) => m.row.launches / m.calls));
  const boxes = [
    { t: o.machine.device_overhead_us * 1e-6 * launches, side: "device" },
    { t: o.machine.host_overhead_us * 1e-6 * launches, side: "host" },
  ].filter((b, i, all) => b.t > 0 && (i === 0 || b.t !== all[0].t));
  const boxTimes = boxes.map((b) => b.t);
  const quantile = (values: number[]): number => values.sort((a, b) => a - b)[Math.floor(0.03 * values.length)] ?? Infinity;
  let xd = decades([...points.map((p) => p.x / W), ...rug.map((p) => p.x / W), ...boxTimes, quantile(drawn.map((m) => unit(m)[0] / W))]);
  let yd = decades([...points.map((p) => p.y / P), ...boxTimes, quantile(drawn.map((m) => unit(m)[1] / P))]);
  const nx = xd[1] - xd[0], ny = yd[1] - yd[0];
  xd = widened(xd, Math.ceil(ny / 1.2));
  yd = widened(yd, Math.ceil(nx / 1.2));
  const [x0, x1] = [W * 10 ** xd[0], W * 10 ** xd[1]];
  const [y0, y1] = [P * 10 ** yd[0], P * 10 ** yd[1]];
  const small = o.width < 520;
  const margin = { left: small ? 58 : 76, right: small ? 48 : 66, top: 52, bottom: 44 };
  // Decades are of one length, as long as width and height allow.
  const decade = Math.min((o.width - margin.left - margin.right) / (xd[1] - xd[0]), (o.maxHeight - margin.top - margin.bottom) / (yd[1] - yd[0]));
  const width = decade * (xd[1] - xd[0]) + margin.left + margin.right;
  const height = decade * (yd[1] - yd[0]) + margin.top + margin.bottom;
  const every = decade < 46 ? 2 : 1;
  const times = (d: [number, number], rate: number): number[] => range(d[0], d[1]).filter((k) => (k - d[0]) % every === 0).map((k) => rate * 10 ** k);
  const ticks = (a: number, b: number): number[] => range(Math.ceil(Math.log10(a)), Math.floor(Math.log10(b))).filter((k) => k % every === 0).map((k) => 10 ** k);
  const diagonal = (intensity: number): { x: number; y: number }[] => {
    const from = Math.max(x0, y0 / intensity), to = Math.min(x1, y1 / intensity);
    return from < to ? [{ x: from, y: from * intensity }, { x: to, y: to * intensity }] : [];
  };
  const intensities = drawn.map((m) => unit(m)[1] / unit(m)[0]);
  const isoAi = range(Math.floor(Math.log10(Math.min(balance, ...intensities))), Math.ceil(Math.log10(Math.max(balance, ...intensities))))
    .map((k) => ({ k, line: diagonal(10 ** k) })).filter((d) => d.line.length > 0);
  const clear = (k: number): boolean => Math.abs(k - Math.log10(balance)) * decade > 34;
  const isoTime = range(Math.min(xd[0], yd[0]) + 1, Math.max(xd[1], yd[1]) - 1).map((k) => {
    const t = 10 ** k;
    return [
      { x: x0, y: Math.min(t * P, y1), show: t * P > y0 && t * P < y1 && t * W > x0 },
      { x: Math.min(t * W, x1), y: t * P, show: true },
      { x: Math.min(t * W, x1), y: y0, show: t * W > x0 && t * W < x1 && t * P > y0 },
    ];
  });
  const segments = points.map((p) => {
    const [bytes, flops] = unit(p.mark);
    const cut = Math.max(1, x0 / bytes, y0 / flops);
    return { p, x: bytes * cut, y: flops * cut, inside: cut === 1 };
  });
  const color = (m: Mark): string => o.style(m.group)[0];
  return draw({
    width, height, marginLeft: margin.left, marginRight: margin.right, marginTop: margin.top, marginBottom: margin.bottom,
    style: { fontSize: small ? "10px" : "12px", background: "transparent", overflow: "visible" },
    x: { type: "log", domain: [x0, x1], axis: null }, y: { type: "log", domain: [y0, y1], axis: null },
    r: { type: "identity" }, symbol: { type: "identity" }, color: { type: "identity" },
    ariaLabel: `Time plane at ${LEVEL_NAMES[o.level]} and ${o.pipe}`,
    marks: [
      Plot.axisX(ticks(x0, x1), { anchor: "bottom", text: (v: number) => shortSi(v, "B"), label: `${LEVEL_NAMES[o.level]} bytes`, labelAnchor: "center", labelArrow: "none", labelOffset: 38 }),
      Plot.axisX(times(xd, W), { anchor: "top", text: (v: number) => shortSi(v / W, "s"), label: `byte time at ${si(W, "B/s")}`, labelAnchor: "center", labelArrow: "none", labelOffset: 40 }),
      Plot.axisY(ticks(y0, y1), { anchor: "left", text: (v: number) => shortSi(v, small ? "" : "FLOP"), label: "FLOPs", labelAnchor: "top", labelArrow: "none" }),
      Plot.axisY(times(yd, P), { anchor: "right", text: (v: number) => shortSi(v / P, "s"), label: small ? "FLOP time" : `FLOP time at ${si(P, "FLOP/s")}`, labelAnchor: "top", labelArrow: "none" }),
      ...isoTime.flatMap((l) => [
        l[0].show ? Plot.line(l.slice(0, 2), { x: "x", y: "y", stroke: GUIDE, strokeDasharray: "1 3" }) : null,
        l[2].show ? Plot.line([{ x: l[1].x, y: Math.min(l[1].y, y1) }, l[2]].filter((q) => q.y >= y0), { x: "x", y: "y", stroke: GUIDE, strokeDasharray: "1 3" }) : null,
      ]),
      ...isoAi.map((d) => Plot.line(d.line, { x: "x", y: "y", stroke: GUIDE, strokeWidth: 0.7 })),
      Plot.text(isoAi.filter((d) => clear(d.k) && d.line[1].x / d.line[0].x > 10 ** (100 / decade)), {
        x: (d) => d.line[1].x / 10 ** (24 / decade), y: (d) => d.line[1].y / 10 ** (24 / decade),
        text: (d) => `AI ${d.k >= -2 && d.k <= 4 ? String(Number((10 ** d.k).toPrecision(1))) : `1e${d.k}`}`,
        rotate: -45, dy: -6, fill: "var(--soft)", fontSize: 10,
      }),
      Plot.line(diagonal(balance), { x: "x", y: "y", stroke: "var(--ink)", strokeWidth: 1.5, strokeDasharray: "6 4" }),
      Plot.text(small ? [] : diagonal(balance).slice(0, 1), {
        x: (d) => d.x * 10 ** (58 / decade), y: (d) => d.y * 10 ** (58 / decade), text: () => `balance ${digits(balance)} FLOP/B`,
        rotate: -45, dy: -8, fill: "var(--ink)", fontSize: 11, ...HALO,
      }),
      ...boxes.map((b) => Plot.line([[x0, b.t * P], [b.t * W, b.t * P], [b.t * W, y0]], { stroke: BOX, strokeWidth: 1.3, strokeDasharray: "8 3 2 3" })),
      Plot.text(boxes, {
        x: x0, y: (b) => b.t * P, text: (b) => small ? b.side : `${launches > 1 ? `${digits(launches)} launches` : "1 launch"}, ${b.side}`,
        textAnchor: "start", dx: 6, dy: -7, fill: BOX, fontSize: 11, ...HALO,
      }),
      Plot.link(segments, { x1: "x", y1: "y", x2: (s) => s.p.x, y2: (s) => s.p.y, stroke: (s) => color(s.p.mark), strokeWidth: 0.8, strokeOpacity: 0.7 }),
      Plot.dot(segments.filter((s) => s.inside), { x: "x", y: "y", r: 2.5, stroke: (s) => color(s.p.mark), strokeWidth: 1, fill: "var(--page)" }),
      Plot.ruleX(rug, { x: "x", y1: y0, y2: y0 * 10 ** (10 / decade), stroke: "var(--soft)", strokeWidth: 1.2 }),
      rug.length > 0 ? Plot.text([0], { frameAnchor: "bottom-right", dx: -4, dy: -14, text: [`no FLOPs: ${percent(o.zeroFlopShare)} of time`], fill: "var(--soft)", fontSize: 11, ...HALO, x: null as never, y: null as never }) : null,
      ...common(points, o),
      Plot.frame({ stroke: "var(--line)" }),
    ],
  });
}

/** A place of a chart in pixels: left, right, top, bottom. */
type Box = [number, number, number, number];

/** Names of the points that take most time, each beside its point where nothing else is. */
function topNames<P extends Point>(points: P[], taken: Box[], place: (p: P) => [number, number], [wide, high]: [number, number], small: boolean): { p: P; text: string; side: "start" | "end" }[] {
  // No name covers a point.
  const boxes = [...taken, ...points.map((p): Box => { const [x, y] = place(p); return [x - 5, x + 5, y - 5, y + 5]; })];
  const out: { p: P; text: string; side: "start" | "end" }[] = [];
  const free = ([l, r, t, b]: Box): boolean => l > 0 && r < wide && t > 0 && b < high - 18 && boxes.every((o) => r < o[0] || o[1] < l || b < o[2] || o[3] < t);
  for (const p of [...points].sort((a, b) => b.mark.row.share - a.mark.row.share).slice(0, 12)) {
    if (out.length >= (small ? 3 : 6)) break;
    const text = p.mark.row.name;
    const [[x, y], long] = [place(p), text.length * (small ? 5.2 : 6.2)];
    const side = free([x + 9, x + 9 + long, y - 7, y + 7]) ? "start" : free([x - 9 - long, x - 9, y - 7, y + 7]) ? "end" : null;
    if (!text || text.length > 40 || !side) continue;
    boxes.push(side === "start" ? [x + 9, x + 9 + long, y - 7, y + 7] : [x - 9 - long, x - 9, y - 7, y + 7]);
    out.push({ p, text, side });
  }
  return out;
}

/** The classic Roofline, or with several levels its hierarchical form. */
export function rooflineChart(marks: Mark[], o: ChartOptions, levels: Level[]): (SVGSVGElement | HTMLElement) & Plot.Plot {
  const known = levels.filter((l) => bandwidthAt(o.machine, l));
  const points = marks.filter((m) => m.row.flops > 0 && m.row.time_us > 0).flatMap((mark) =>
    known.filter((l) => bytesAt(mark.row, l) > 0).map((level) => ({
      mark, level, x: mark.row.flops / bytesAt(mark.row, level), y: mark.row.flops / (mark.row.time_us * 1e-6),
    })));
  // Roofs of the formats in use, and the chosen one: the others say nothing about this work.
  const inUse = new Set([o.pipe, ...marks.flatMap((m) => Object.entries(m.row.flops_by_pipe).filter(([, flops]) => flops > 0).map(([pipe]) => pipe))]);
  const used = o.machine.roofs.filter((r) => inUse.has(r.pipe));
  const roofs = mergedRoofs(used.length > 0 ? used : o.machine.roofs);
  const top = Math.max(...roofs.map((r) => r.rate));
  const low = Math.min(...roofs.map((r) => r.rate));
  const fastest = Math.max(...known.map((l) => bandwidthAt(o.machine, l) ?? 1));
  const xd = decades([...points.map((p) => p.x), ...known.map((l) => (3 * top) / (bandwidthAt(o.machine, l) ?? 1))]);
  // Operators that take next to no time, or do next to no arithmetic, do not stretch the frame.
  const counted = points.filter((p) => p.mark.row.share >= 1e-3 && p.y > low / 1e5);
  const yd = decades([...counted.map((p) => p.y), top, low]);
  const [x0, x1, y0, y1] = [10 ** xd[0], 10 ** xd[1], 10 ** yd[0], 10 ** yd[1]];
  const shown = points.filter((p) => p.y >= y0);
  const small = o.width < 520;
  const margin = { left: small ? 62 : 90, right: 28, top: 30, bottom: 44 };
  const height = Math.min(o.maxHeight, 620, Math.max(360, o.width * 0.62));
  const perDecade = (height - margin.top - margin.bottom) / (yd[1] - yd[0]);
  // On a phone points come up to the lines' labels: the lines are named in the corner that no point can reach.
  const labelled = small ? [] : roofs.filter((r, i) => i === 0 || r.names.includes(o.pipe) || roofs.slice(0, i).every((q) => Math.log10(q.rate / r.rate) * perDecade > 12));
  const chosen = roofs.find((r) => r.names.includes(o.pipe));
  const slopes = known.map((l) => {
    const rate = bandwidthAt(o.machine, l) ?? 1;
    const from = Math.max(x0, y0 / rate);
    return { level: l, rate, line: [{ x: from, y: from * rate }, { x: top / rate, y: top }] };
  });
  const dash: Record<Level, string> = { dram: "8 4", l2: "2 3", l1: "8 4 2 4" };
  const decade = (o.width - margin.left - margin.right) / (xd[1] - xd[0]);
  const along = 60;
  const angle = -(Math.atan2(perDecade, decade) * 180) / Math.PI;
  const roofNames = labelled.map((r): Box => { const y = Math.log10(y1 / r.rate) * perDecade; const long = (r.names.join(", ").length + 12) * 6; return [(xd[1] - xd[0]) * decade - long, (xd[1] - xd[0]) * decade, y - 14, y]; });
  const corner: Box[] = small ? [[0, 215, 0, 6 + 12 * (1 + slopes.length)]] : [];
  const named = known.length > 1 || o.joined ? [] : topNames(shown, [...roofNames, ...corner], (p) => [Math.log10(p.x / x0) * decade, Math.log10(y1 / p.y) * perDecade], [(xd[1] - xd[0]) * decade, (yd[1] - yd[0]) * perDecade], small);
  return draw({
    width: o.width, height, marginLeft: margin.left, marginRight: margin.right, marginTop: margin.top, marginBottom: margin.bottom,
    style: { fontSize: small ? "10px" : "12px", background: "transparent", overflow: "visible" },
    x: { type: "log", domain: [x0, x1], axis: null }, y: { type: "log", domain: [y0, y1], axis: null },
    r: { type: "identity" }, symbol: { type: "identity" }, color: { type: "identity" },
    ariaLabel: `Roofline of ${o.machine.title}`,
    marks: [
      Plot.axisX(range(xd[0], xd[1]).map((k) => 10 ** k), { text: (v: number) => String(Number(v.toPrecision(1))), label: "arithmetic intensity (FLOP/B)", labelAnchor: "center", labelArrow: "none", labelOffset: 38 }),
      Plot.axisY(range(yd[0], yd[1]).map((k) => 10 ** k), { text: (v: number) => shortSi(v, small ? "" : "FLOP/s"), label: small ? "FLOP/s" : "rate", labelArrow: "none" }),
      Plot.gridX(range(xd[0], xd[1]).map((k) => 10 ** k), { stroke: GUIDE, strokeOpacity: 0.5 }),
      Plot.gridY(range(yd[0], yd[1]).map((k) => 10 ** k), { stroke: GUIDE, strokeOpacity: 0.5 }),
      ...roofs.map((r) => Plot.line([[Math.max(x0, r.rate / fastest), r.rate], [x1, r.rate]], { stroke: r.names.includes(o.pipe) ? "var(--ink)" : "var(--soft)", strokeWidth: r.names.includes(o.pipe) ? 2 : 1 })),
      Plot.text(labelled, { x: x1, y: "rate", text: (r) => `${r.names.join(", ")} ${si(r.rate, "FLOP/s")}`, textAnchor: "end", dx: -4, dy: -7, fill: "var(--soft)", fontSize: 10, ...HALO }),
      small && chosen ? Plot.text([[`thick: ${chosen.names.join(", ")} ${si(chosen.rate, "FLOP/s")}`, ...slopes.map((s) => `${DASH_NAMES[s.level]}: ${LEVEL_NAMES[s.level]} ${si(s.rate, "B/s")}`)].join("\n")], { frameAnchor: "top-left", dx: 5, dy: 5, fill: "var(--soft)", fontSize: 10, lineHeight: 1.2 }) : null,
      ...slopes.map((s) => Plot.line(s.line, { x: "x", y: "y", stroke: "var(--ink)", strokeWidth: 1.3, strokeDasharray: dash[s.level] })),
      // The outermost level is named below its line and the others above theirs, so that close lines keep apart.
      ...(small ? [] : slopes).map((s, i) => Plot.text(s.line.slice(0, 1), {
        x: (d) => d.x * 10 ** (along / decade), y: (d) => d.y * 10 ** (along / decade), text: [`${LEVEL_NAMES[s.level]} ${si(s.rate, "B/s")}`],
        rotate: angle, dy: i === 0 && slopes.length > 1 ? 8 : -7, fill: "var(--ink)", fontSize: 10, ...HALO,
      })),
      known.length > 1 ? Plot.line(shown, { x: "x", y: "y", z: (p) => marks.indexOf(p.mark), stroke: (p) => o.style(p.mark.group)[0], strokeWidth: 0.8, strokeOpacity: 0.6 }) : null,
      ...common(shown.filter((p) => known.length === 1 || p.level === "dram"), { ...o, joined: o.joined && known.length === 1 }, shown),
      // Inner levels are hollow, the innermost smaller.
      known.length > 1 ? Plot.dot(shown.filter((p) => p.level !== "dram"), {
        x: "x", y: "y", r: (p: { level: Level }) => (p.level === "l2" ? 4 : 2.2), stroke: (p: Point) => o.style(p.mark.group)[0], strokeWidth: 1.2, fill: "var(--page)",
      }) : null,
      ...["start", "end"].map((side) => Plot.text(named.filter((n) => n.side === side), { x: (n) => n.p.x, y: (n) => n.p.y, text: "text", textAnchor: side as "start" | "end", dx: side === "start" ? 9 : -9, fill: "var(--ink)", fontSize: small ? 9 : 10, ...HALO })),
      shown.length < points.length ? Plot.text([`${points.length - shown.length} below the frame`], { frameAnchor: "bottom-right", dx: -4, dy: -4, fill: "var(--soft)", fontSize: 11 }) : null,
      Plot.frame({ stroke: "var(--line)" }),
    ],
  });
}

const DASH_NAMES: Record<Level, string> = { dram: "dashed", l2: "dotted", l1: "dash-dotted" };

/** Roofs of one rate are one line. */
function mergedRoofs(roofs: Machine["roofs"]): { rate: number; names: string[] }[] {
  const out: { rate: number; names: string[] }[] = [];
  for (const roof of roofs) {
    const last = out.at(-1);
    if (last && last.rate <= roof.flops_per_s * 1.02) last.names.push(roof.pipe);
    else out.push({ rate: roof.flops_per_s, names: [roof.pipe] });
  }
  return out;
}

/** Horizontal bars of shares of time. */
export function shareBars(rows: { name: string; time_ms: number; share: number; class?: string }[], width: number): SVGSVGElement | HTMLElement {
  const left = Math.min(150, width * 0.36);
  return draw({
    width, height: 30 + 22 * rows.length, marginLeft: left, marginRight: 110, marginTop: 4, marginBottom: 22,
    style: { fontSize: "12px", background: "transparent" },
    x: { axis: null, domain: [0, Math.max(...rows.map((r) => r.share), 1e-9)] },
    y: { domain: rows.map((r) => r.name), label: null, tickSize: 0 },
    marks: [
      Plot.barX(rows, { x: "share", y: "name", fill: "var(--accent)", fillOpacity: 0.85 }),
      Plot.text(rows, { x: "share", y: "name", text: (r) => `${percent(r.share)}  ${time(r.time_ms * 1e3)}`, textAnchor: "start", dx: 5, fill: "var(--ink)" }),
    ],
  });
}
