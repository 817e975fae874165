// The chart with its controls: level, roof, families, share of time, isolation, PNG.
import { describe, isZeroFlop, planeChart, rooflineChart, type ChartOptions, type Mark } from "./charts";
import { el, savePng, select } from "./dom";
import { digits, percent } from "./format";
import { stylesOf } from "./style";
import { bandwidthAt, LEVELS, LEVEL_NAMES, type Level, type PageData, type View } from "./types";

type Kind = "plane" | "roofline" | "hierarchical";

interface State {
  kind: Kind;
  level: Level;
  pipe: string;
  view: number | "all";
  hidden: Set<string>;
  minShare: number;
  isolated: string | null;
}

const sum = (xs: number[]): number => xs.reduce((a, b) => a + b, 0);

/** The pipe with most FLOPs. */
function mainPipe(view: View): string {
  const totals = new Map<string, number>();
  for (const row of view.rows) for (const [pipe, f] of Object.entries(row.flops_by_pipe)) totals.set(pipe, (totals.get(pipe) ?? 0) + f);
  const most = [...totals].sort((a, b) => b[1] - a[1])[0]?.[0];
  return most ?? view.machine.roofs[0]?.pipe ?? "";
}

const identity = (m: Mark): string => `${m.row.name}|${m.row.op}|${m.row.dtype}`;

export function explorer(data: PageData): HTMLElement {
  const views = data.views;
  const gpus = [...new Set(views.map((v) => v.gpu))];
  const labels = [...new Set(views.map((v) => v.label))];
  const several = views.length > 1;
  const swept = labels.length > 1 && views.every((v) => v.rows.length < 12);
  const state: State = {
    kind: "roofline", level: "dram", pipe: mainPipe(views[0]), view: several && (swept || labels.length > 1) ? "all" : 0,
    hidden: new Set(), minShare: 0, isolated: null,
  };
  const groupOf = (view: View, family: string, name: string): string => {
    if (state.view !== "all") return family;
    if (swept) return gpus.length > 1 ? `${view.gpu} ${name}` : name;
    return [gpus.length > 1 ? view.gpu : "", view.label].filter(Boolean).join(" ");
  };
  const marksNow = (): Mark[] => {
    const shown = state.view === "all" ? views : [views[state.view]];
    return shown.flatMap((view) => view.rows.map((row) => ({
      row, gpu: gpus.length > 1 ? view.gpu : "", label: view.label, group: groupOf(view, row.family, row.name),
      calls: data.per_call ? Math.max(1, row.count) : 1,
    })));
  };

  const chart = el("div", { class: "chart", id: "chart" });
  const status = el("p", { class: "status", id: "status", role: "status" });
  const legend = el("div", { class: "legend", id: "legend", role: "group", "aria-label": "families" });
  const note = el("p", { class: "note" });
  const controls = el("div", { class: "controls" });
  let svg: SVGSVGElement | null = null;

  const draw = (): void => {
    const all = marksNow();
    const groups = [...new Set(all.map((m) => m.group))];
    const styles = stylesOf(groups);
    const styleOf = (g: string): [string, string] => styles.get(g) ?? ["var(--ink)", "circle"];
    const visible = all.filter((m) => !state.hidden.has(m.group) && m.row.share >= state.minShare && (!state.isolated || identity(m) === state.isolated));
    const view = state.view === "all" ? views[0] : views[state.view];
    const zero = sum(visible.filter(isZeroFlop).map((m) => m.row.share)) / (state.view === "all" ? views.length : 1);
    // The chart fits the window together with its controls; on large screens everything grows alike.
    const room = Math.max(300, chart.clientWidth || 900);
    const grows = Math.max(1, Math.min(room / (state.kind === "plane" ? 860 : 1100), innerHeight / 1000));
    const above = Math.min(chart.getBoundingClientRect().top - root.getBoundingClientRect().top, 0.4 * innerHeight);
    const header = root.offsetTop < 200 ? root.offsetTop : 0;
    const tall = Math.max(420, innerHeight - header - above - 12) / grows;
    const width = Math.min(room / grows, state.kind === "plane" ? 860 : 1100);
    const options: ChartOptions = {
      machine: view.machine, level: state.level, pipe: state.pipe, width, maxHeight: tall,
      perCall: data.per_call, groups, style: styleOf, joined: swept && state.view === "all", zeroFlopShare: zero,
    };
    const plot = state.kind === "plane" ? planeChart(visible, options)
      : rooflineChart(visible, options, state.kind === "roofline" ? [state.level] : LEVELS);
    svg = (plot instanceof SVGSVGElement ? plot : plot.querySelector("svg:last-of-type")) as SVGSVGElement | null;
    if (svg) svg.style.width = `${grows * Number(svg.getAttribute("width"))}px`;
    // A click on the point under the pointer shows it alone; a second click shows all again.
    plot.addEventListener("click", () => {
      const at = (plot as { value?: { mark?: Mark } }).value;
      if (state.isolated) state.isolated = null;
      else if (at?.mark) state.isolated = identity(at.mark);
      else return;
      (controls.querySelector("#alone") as HTMLSelectElement).value = state.isolated ?? "";
      draw();
    });
    chart.replaceChildren(plot);
    const share = sum(visible.map((m) => m.row.share)) / Math.max(1, state.view === "all" ? views.length : 1);
    const unknown = sum(visible.filter((m) => m.row.class === "unknown").map((m) => m.row.share));
    const flags = visible.filter((m) => m.row.above_roof.length > 0).length;
    status.textContent = `${visible.length} of ${all.length} rows, ${percent(share)} of the time`
      + (flags ? `; ${flags} above a roof` : "")
      + (unknown > 0 ? `; work of ${percent(unknown)} of the time unknown, not drawn` : "") + (state.isolated ? "; one row isolated, click the chart for all" : "");
    status.dataset.visible = String(visible.length);
    status.dataset.all = String(all.length);
    if (state.isolated && visible[0]) status.title = describe(visible[0]);
    legend.replaceChildren(...groups.map((g) => {
      const [color, symbol] = styleOf(g);
      const total = sum(all.filter((m) => m.group === g).map((m) => m.row.share)) / (state.view === "all" ? labels.length : 1);
      const on = !state.hidden.has(g);
      const button = el("button", { type: "button", class: on ? "chip" : "chip off", "aria-pressed": String(on), "data-group": g },
        swatch(color, symbol), `${g} `, el("small", {}, percent(total)));
      button.addEventListener("click", () => { if (on) state.hidden.add(g); else state.hidden.delete(g); draw(); });
      button.addEventListener("dblclick", () => { state.hidden = new Set(groups.filter((x) => x !== g)); draw(); });
      return button;
    }));
    const counted = state.view === "all" ? views : [view];
    const merged = sum(counted.map((v) => v.merged));
    const entries = sum(counted.map((v) => v.entries));
    note.textContent = [
      data.per_call ? "Each point is one call of an operator; equal calls are one point." : "Each point is the sum of its calls.",
      `${entries} calls are drawn as ${all.length} rows${merged ? `; ${merged} small rows are put together by family` : ""}.`,
      view.sources ?? "",
      state.kind === "plane" ? "Filled: its time; hollow: its work (bytes, FLOPs); inside a launch box the launch costs more than the work. The dashed diagonal is the machine's balance." : "",
      state.kind === "hierarchical" ? "Filled: DRAM; hollow: L2; small hollow: L1; the points of one operator are joined." : "",
      "Click a point to isolate it, double-click a family to see it alone.",
    ].filter(Boolean).join(" ");
  };

  const rebuild = (): void => {
    const view = state.view === "all" ? views[0] : views[state.view];
    if (!view.machine.roofs.some((r) => r.pipe === state.pipe)) state.pipe = mainPipe(view);
    const levels = LEVELS.filter((l) => bandwidthAt(view.machine, l) && view.rows.some((r) => r[`${l}_bytes`] !== null));
    const slider = el("input", { type: "range", id: "share", min: "0", max: "100", step: "1", value: shareToSlider(state.minShare) });
    const shareText = el("output", { for: "share" }, state.minShare ? `from ${percent(state.minShare)}` : "all");
    slider.addEventListener("input", () => {
      state.minShare = sliderToShare(Number(slider.value));
      shareText.textContent = state.minShare ? `from ${percent(state.minShare)}` : "all";
      draw();
    });
    const png = el("button", { type: "button", id: "png" }, "Save PNG");
    png.addEventListener("click", () => { if (svg) void savePng(svg, `${data.title.replace(/[^a-z0-9]+/gi, "-")}-${state.kind}.png`); });
    const most = [...new Map(marksNow().sort((a, b) => b.row.share - a.row.share).map((m) => [identity(m), m])).entries()].slice(0, 40);
    const alone = select("alone", "Only", [["", "all operators"], ...most.map(([key, m]): [string, string] => [key, `${m.row.name}, ${m.row.op} (${percent(m.row.share)})`])], state.isolated ?? "", (v) => { state.isolated = v || null; draw(); });
    const reset = el("button", { type: "button", id: "reset" }, "Reset");
    reset.addEventListener("click", () => { state.hidden.clear(); state.minShare = 0; state.isolated = null; rebuild(); });
    const viewName = (v: View): string => [gpus.length > 1 ? v.gpu : "", v.label].filter(Boolean).join(", ") || v.gpu;
    controls.replaceChildren(
      select("kind", "Chart", [["roofline", "roofline"], ["hierarchical", "hierarchical"], ["plane", "time plane"]], state.kind, (v) => { state.kind = v as Kind; rebuild(); }),
      ...(several ? [select("view", "Of", [["all", "all together"], ...views.map((v, i): [string, string] => [String(i), viewName(v)])], String(state.view),
        (v) => { state.view = v === "all" ? "all" : Number(v); state.hidden.clear(); state.isolated = null; rebuild(); })] : []),
      ...(state.kind === "hierarchical" ? [] : [select("level", "Level", levels.map((l) => [l, LEVEL_NAMES[l]]), state.level, (v) => { state.level = v as Level; draw(); })]),
      select("pipe", "Roof", view.machine.roofs.map((r) => [r.pipe, `${r.pipe}, ${digits(r.flops_per_s / 1e12)} TFLOP/s`]), state.pipe, (v) => { state.pipe = v; draw(); }),
      alone,
      el("label", { class: "field" }, el("span", {}, "Share of time"), el("span", { class: "slide" }, slider, shareText)),
      reset, png,
    );
    draw();
  };
  const root = el("section", { class: "explorer" }, controls, legend, chart, status, note);
  let width = 0;
  new ResizeObserver(() => { if (chart.clientWidth !== width) { width = chart.clientWidth; draw(); } }).observe(chart);
  rebuild();
  return root;
}

// 0 shows all; the rest is logarithmic from 0.01 % to 50 %.
const sliderToShare = (v: number): number => (v === 0 ? 0 : 1e-4 * 5000 ** (v / 100));
const shareToSlider = (s: number): string => String(s ? Math.round((100 * Math.log(s / 1e-4)) / Math.log(5000)) : 0);

const SHAPES: Record<string, string> = {
  circle: "●", square: "■", triangle: "▲", diamond: "◆", triangle2: "▼", hexagon: "⬢", star: "★", wye: "Y", times: "×",
};

function swatch(color: string, symbol: string): HTMLElement {
  const box = el("i", { class: "swatch", "aria-hidden": "true" }, SHAPES[symbol] ?? "●");
  box.style.color = color;
  return box;
}
