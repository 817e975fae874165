// Compare: one model on every GPU, with money.
import { el, select } from "../dom";
import { digits, three, time } from "../format";
import { toFit } from "../room";
import { sortable, type Column } from "../table";
import type { Offer } from "./answers";
import { latest } from "./ask";
import { paretoChart } from "./charts";
import { BOUND_NAMES } from "./colors";
import type { Page } from "./main";
import { chartBox, csvButton, numberField, pngButton, problem, section, slider } from "./parts";
import { catalogue, gpuSelect, jobCopies, PRECISIONS, question, runForm, runName } from "./run";

const usd = (x: number | null): string => (x === null ? "-" : `$${three(x)}`);
const hours = (h: number): string => (h < 1 ? `${three(h * 60)} min` : h < 48 ? `${three(h)} h` : `${three(h / 24)} d`);

const COLUMNS: Column<Offer>[] = [
  { title: "GPU", value: (o) => o.gpu, text: (o) => o.gpu },
  { title: "batch", value: (o) => o.batch, text: (o) => String(o.batch) },
  { title: "format", value: (o) => o.precision, text: (o) => (o.precision === "pytorch" ? "default" : o.precision) },
  { title: "iteration", value: (o) => o.iteration_ms, text: (o) => time(o.iteration_ms * 1e3) },
  { title: "90 %", value: (o) => o.high_ms, text: (o) => `${time(o.low_ms * 1e3)} to ${time(o.high_ms * 1e3)}` },
  { title: "samples/s", value: (o) => o.samples_per_s, text: (o) => digits(o.samples_per_s) },
  { title: "fits", words: true, value: (o) => (o.fits ? 1 : 0), text: (o) => (o.fits ? "yes" : `no: needs ${digits(o.needed_mib / 1024)} of ${digits(o.gpu_memory_mib / 1024)} GiB`) },
  { title: "binds", value: (o) => o.bound, text: (o) => BOUND_NAMES[o.bound].replace(" bandwidth", "") },
  { title: "$/hour", value: (o) => o.usd_per_hour ?? Infinity, text: (o) => usd(o.usd_per_hour) },
  { title: "$/million", value: (o) => o.usd_per_million_samples ?? Infinity, text: (o) => usd(o.usd_per_million_samples), hint: "dollars of a million samples" },
  { title: "J/sample", value: (o) => o.joules_per_sample, text: (o) => digits(o.joules_per_sample), hint: "an estimate" },
  { title: "run", value: (o) => o.run_hours ?? Infinity, text: (o) => (o.run_hours === null ? "-" : o.run_usd === null ? hours(o.run_hours) : `${hours(o.run_hours)}, ${usd(o.run_usd)}`), hint: "time and cost of the whole run" },
  { title: "front", words: true, value: (o) => (o.pareto ? 1 : 0), text: (o) => (o.pareto ? "yes" : ""), hint: "no other GPU is both faster and cheaper" },
  { title: "evidence", value: (o) => o.evidence, text: (o) => o.evidence.replace(" measured", "").replace("never", "none"), hint: "was this GPU measured, another of its generation, or none" },
  { title: "price of", value: (o) => o.price_date ?? "", text: (o) => [o.price_date, o.price_source?.split(/[ ,:(]/)[0]].filter(Boolean).join(", "), hint: "the date of the price and who asks it; the CSV file has the offer" },
];

/** The order unless another is chosen. */
const BY = "samples/s";
const DEFAULT_SAMPLES = 100_000_000;
// Sliders of money are logarithmic: 20 steps to a decade.
const toUsd = (v: number, least: number): number => Number((least * 10 ** (v / 20)).toPrecision(2));
const toStep = (x: number, least: number): number => Math.round(20 * Math.log10(x / least));

/** The answer in a sentence: the fastest that fits, the cheapest, the best value. */
function verdict(rows: Offer[]): string {
  const fitting = rows.filter((o) => o.fits);
  if (fitting.length === 0) return "No GPU has room.";
  const least = (of: (o: Offer) => number): Offer => fitting.reduce((a, b) => (of(b) < of(a) ? b : a));
  const cost = (o: Offer): number => o.usd_per_million_samples ?? Infinity;
  const [fastest, cheapest, best] = [least((o) => -o.samples_per_s), least(cost), least((o) => cost(o) / o.samples_per_s)];
  const price = (o: Offer): string => (Number.isFinite(cost(o)) ? ` at ${usd(cost(o))} per million samples` : "");
  const money = !Number.isFinite(cost(cheapest)) ? "" : cheapest === fastest ? " It is the cheapest too."
    : ` Cheapest: ${cheapest.gpu}${price(cheapest)}, ${digits(fastest.samples_per_s / cheapest.samples_per_s)} times as long. Best value: ${best.gpu}.`;
  return `Fastest that fits: ${fastest.gpu}, ${time(fastest.iteration_ms * 1e3)} per iteration${price(fastest)}.${money}`;
}

export const compare: Page = async (root, params) => {
  const lists = await catalogue();
  let rows: Offer[] = [];
  const chart = chartBox("chart", (width) => paretoChart(named(), width) ?? el("p", { class: "note" }, "No GPU has both room and a price."));
  const table = section("gpus", "All GPUs");
  const status = el("p", { class: "status", id: "status", role: "status" });
  const failed = el("div");
  const room = el("div", { id: "room" });
  const money = el("div", { class: "controls", role: "group", "aria-label": "money" });

  const typed = el("input", { type: "search", id: "filter", placeholder: "h100, rtx ..", "aria-describedby": "gpus-title" });
  typed.value = params.get("filter");
  typed.addEventListener("input", () => { params.set({ filter: typed.value }); show(rows); typed.focus(); });
  const filter = el("label", { class: "field" }, el("span", {}, "Only GPUs named"), typed);
  /** The GPUs whose names are asked for. */
  const named = (): Offer[] => {
    const wanted = params.get("filter").toLowerCase().split(/[\s,]+/).filter(Boolean);
    return wanted.length === 0 ? rows : rows.filter((o) => wanted.some((w) => `${o.gpu} ${o.title}`.toLowerCase().includes(w)));
  };
  const show = (answer: Offer[]): void => {
    rows = answer;
    failed.replaceChildren();
    chart.redraw();
    const front = rows.filter((o) => o.pareto);
    const chosen = rows.find((o) => o.chosen);
    const budget = params.number("budget");
    status.textContent = [
      verdict(rows), `${rows.filter((o) => o.fits).length} of ${rows.length} GPUs have room; ${front.length} on the front of time and money.`,
      budget === null ? "" : chosen ? `Fastest within $${digits(budget)}: ${chosen.gpu}, ${hours(chosen.run_hours ?? 0)} for ${usd(chosen.run_usd)}.` : `No GPU does the run within $${digits(budget)}.`,
    ].filter(Boolean).join(" ");
    status.dataset.chosen = chosen?.gpu ?? "";
    const listed = named();
    const lacking = listed.filter((o) => !o.fits && o.changes);
    // Where nothing fits this is the answer, so it is open.
    room.replaceChildren(...lacking.map((o) => el("details", rows.some((r) => r.fits) ? {} : { open: "" },
      el("summary", {}, `${o.gpu} has ${digits(o.gpu_memory_mib / 1024)} GiB, ${digits(o.needed_mib / 1024)} GiB are needed: what would make it fit`), toFit(`to-fit-${o.gpu}`, o.changes ?? []))));
    // What is the same for all GPUs needs no column.
    const varies = (of: (o: Offer) => unknown): boolean => new Set(rows.map(of)).size > 1;
    const columns = COLUMNS.filter((c) => (c.title !== "batch" || varies((o) => o.batch)) && (c.title !== "format" || varies((o) => o.precision)));
    const place = (title: string): number => columns.findIndex((c) => c.title === title);
    const sort = place(params.get("sort", BY)) < 0 ? place(BY) : place(params.get("sort", BY));
    table.replaceChildren(el("h2", { id: "gpus-title" }, "All GPUs"), el("p", { class: "note" }, "Click a title to sort. Prices are per GPU, dated, and may have changed. Evidence: was this GPU measured, another of its generation, or none?"),
      filter,
      sortable("gpus-table", listed, columns, sort, {
        down: params.get("up") !== "1", sorted: (by, down) => params.set({ sort: columns[by].title === BY ? null : columns[by].title, up: down ? null : 1 }),
        mark: (o) => (o.chosen ? "chosen" : o.keeps_limits === false || !o.fits ? "dim" : ""),
      }));
  };
  const request = latest<Offer[]>(show, (error) => { rows = []; chart.redraw(); status.textContent = ""; table.replaceChildren(); room.replaceChildren(); failed.replaceChildren(problem(error)); });

  const also = (): string[] => params.get("also").split(",").filter((f) => f && f !== params.get("precision", PRECISIONS[0][0]));
  const asked = (): [string, string][] => {
    const gpus = params.get("filter") ? [["gpus", named().map((o) => o.gpu).join(",")]] : [];
    const formats = also().length ? [["precision", [params.get("precision", PRECISIONS[0][0]), ...also()].join(",")]] : [];
    const pricing = params.get("pricing") ? [["pricing", params.get("pricing")]] : [];
    return [...gpus, ...formats, ...(params.get("auto") ? [["batch", "auto"]] : []), ...pricing] as [string, string][];
  };
  const changed = (): void => {
    const own = params.get("own");
    const price = params.number("price");
    const budget = params.number("budget");
    const auto = params.get("auto") === "1";
    request(question("compare", params, {
      ...(auto ? { auto_batch: true, batch: undefined } : {}), ...(also().length ? { precisions: [params.get("precision", PRECISIONS[0][0]), ...also()] } : {}),
      pricing: params.get("pricing", "on-demand"), samples: params.number("samples") ?? DEFAULT_SAMPLES,
      ...(own && price !== null ? { prices: { [own]: price } } : {}), ...(budget === null ? {} : { budget_usd: budget }),
    }));
  };
  const set = (changes: Record<string, string | number | null>): void => { params.set(changes); changed(); };

  const budget = params.number("budget");
  // The last place of the budget is no budget at all.
  const budgetSlider = slider("budget", "Budget of the run", { min: 0, max: 121, step: 1, value: budget === null ? 121 : Math.min(120, toStep(budget, 1)) },
    (v) => (v > 120 ? "no limit" : `$${toUsd(v, 1)}`), (v) => set({ budget: v > 120 ? null : toUsd(v, 1) }));
  const priceSlider = slider("price", "Your price", { min: 0, max: 80, step: 1, value: toStep(params.number("price") ?? 2, 0.01) },
    (v) => `$${toUsd(v, 0.01)} per hour`, (v) => set({ price: toUsd(v, 0.01) }));
  const ownChanged = (gpu: string): void => {
    const known = rows.find((o) => o.gpu === gpu)?.usd_per_hour ?? 2;
    if (gpu) priceSlider.show(Math.max(0, Math.min(80, toStep(known, 0.01))));
    priceSlider.input.disabled = !gpu;
    set({ own: gpu, price: gpu ? toUsd(Number(priceSlider.input.value), 0.01) : null });
  };
  priceSlider.input.disabled = !params.get("own");
  money.append(
    select("pricing", "Prices", [["on-demand", "on demand, median"], ["cheapest", "on demand, cheapest"], ["spot", "spot, median"], ["purchase", "bought, written off"]], params.get("pricing", "on-demand"), (v) => set({ pricing: v === "on-demand" ? null : v })),
    gpuSelect("own", "Price of", lists.gpus, params.get("own"), ownChanged, "as listed"), priceSlider.field,
    numberField("samples", "Samples of the run", params.number("samples") ?? DEFAULT_SAMPLES, String(DEFAULT_SAMPLES), (v) => set({ samples: v }), 1e12), budgetSlider.field);

  // Several formats and batches: the best of each GPU is taken.
  const toggle = (id: string, text: string, on: () => boolean, flip: () => void): HTMLElement => {
    const out = el("button", { type: "button", id, "aria-pressed": String(on()) }, text);
    out.addEventListener("click", () => { flip(); out.setAttribute("aria-pressed", String(on())); changed(); });
    return out;
  };
  const ways = el("div", { class: "controls ways", role: "group", "aria-label": "ways to run" },
    el("span", { class: "note" }, "Best of each GPU, of also:"),
    ...PRECISIONS.map(([key, text]) => toggle(`also-${key}`, text, () => params.get("also").split(",").includes(key), () => {
      const set_ = new Set(params.get("also").split(",").filter(Boolean));
      if (!set_.delete(key)) set_.add(key);
      params.set({ also: [...set_].join(",") });
    })),
    toggle("auto", "any batch", () => params.get("auto") === "1", () => params.set({ auto: params.get("auto") === "1" ? null : 1 })));

  const name = (): string => runName(params, "gpus");
  root.append(runForm(params, lists, false, changed), ways, money, failed, status, room,
    section("front", "Time against cost", chart.box, el("p", { class: "note" }, "Diamonds are on the front: no other GPU is both faster and cheaper. Faded ones are over the budget."),
      el("div", { class: "controls" }, pngButton("png", chart, () => `${name()}-pareto`), csvButton("csv", () => rows, name), ...jobCopies("compare", params, asked))),
    table);
  changed();
};
