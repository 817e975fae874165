// Language models: prompts read, tokens written, for so many at once.
import { el, select } from "../dom";
import { digits, time } from "../format";
import { sortable, type Column } from "../table";
import type { GenerateAnswer } from "./answers";
import { latest } from "./ask";
import { tokensChart } from "./charts-tokens";
import type { Page } from "./main";
import { card, chartBox, csvButton, list, numberField, pngButton, problem, section } from "./parts";
import { catalogue, chosen, copies, DEFAULT_GPU, gpuSelect, modelSelect, options, PRECISIONS } from "./run";
import { plainName } from "./files";

type Run = GenerateAnswer["runs"][number];
const DEFAULT = "llama-3-8b";
const BATCHES = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const gib = (mib: number): string => (mib < 1024 ? `${digits(mib)} MiB` : `${digits(mib / 1024)} GiB`);
const ms = (x: number): string => time(x * 1e3);

const COLUMNS: Column<Run>[] = [
  { title: "batch", value: (r) => r.batch, text: (r) => String(r.batch), hint: "sequences at once" },
  { title: "first token", value: (r) => r.ttft_ms, text: (r) => ms(r.ttft_ms), hint: "time to the first token" },
  { title: "per token", value: (r) => r.tpot_ms, text: (r) => ms(r.tpot_ms), hint: "mean over the answer" },
  { title: "90 %", value: (r) => r.tpot_high_ms, text: (r) => `${ms(r.tpot_low_ms)} to ${ms(r.tpot_high_ms)}`, hint: "interval of the time per token" },
  { title: "answer", value: (r) => r.answer_ms, text: (r) => ms(r.answer_ms), hint: "a whole answer" },
  { title: "tokens/s", value: (r) => r.tokens_per_s, text: (r) => digits(r.tokens_per_s) },
  { title: "per user", value: (r) => r.tokens_per_s_per_user, text: (r) => digits(r.tokens_per_s_per_user), hint: "tokens a second of one user" },
  { title: "keys, values", value: (r) => r.kv_mib, text: (r) => gib(r.kv_mib) },
  { title: "memory", value: (r) => r.memory_mib, text: (r) => gib(r.memory_mib) },
  { title: "$/Mtok", value: (r) => r.usd_per_million_tokens ?? Infinity, text: (r) => (r.usd_per_million_tokens === undefined ? "-" : `$${digits(r.usd_per_million_tokens)}`), hint: "dollars of a million written tokens" },
  { title: "verdict", words: true, value: (r) => Number(r.fits) + Number(r.within_limits), text: (r) => (!r.fits ? "does not fit" : r.within_limits ? "fits" : "too slow") },
];

/** The best batch in figures, beside a single user. */
function cards(a: GenerateAnswer): HTMLElement {
  const one = a.runs[0];
  const best = a.runs.find((r) => r.batch === a.goodput_batch);
  return el("div", { class: "cards" },
    card("first-token", "first token", ms(one.ttft_ms), `of ${one.batch === 1 ? "one sequence" : `${one.batch} sequences`}; prompts of ${a.prompt} tokens`),
    card("per-token", "per token", ms(one.tpot_ms), `${digits(one.tokens_per_s_per_user)} tokens/s for ${one.batch === 1 ? "a single user" : "each user"}`),
    card("best", "most tokens", best ? `${digits(best.tokens_per_s)} /s` : "none", best ? `with ${best.batch} at once, ${ms(best.tpot_ms)} per token for each` : "no batch fits and is fast enough"),
    card("kv", "keys and values", gib(one.kv_mib / one.batch), "of one sequence at its end"),
    card("largest", "fit at once", String(a.largest_batch), `sequences in ${gib(a.gpu_memory_mib)}`));
}

function arrived(t: NonNullable<GenerateAnswer["traffic"]>): HTMLElement {
  type Line = { what: string; p50_ms: number; p90_ms: number; p99_ms: number };
  const lines: Line[] = [{ what: "first token", ...t.ttft }, { what: "per token", ...t.tpot }, { what: "whole answer", ...t.latency }];
  return section("traffic", "Requests that arrive", el("p", { id: "traffic-status" },
    `${digits(t.rate)} requests a second: ${t.saturated ? "the queue grows without end" : "the server keeps up"}. ${t.answered} of ${t.arrived} answered, ${digits(t.tokens_per_s)} tokens/s, ${digits(t.goodput_per_s)} requests/s within the limits, ${digits(t.mean_batch)} at once in the mean, up to ${t.longest_queue} waiting.`),
    sortable<Line>("traffic-table", lines, [
      { title: "time", value: (l) => l.what, text: (l) => l.what },
      { title: "median", value: (l) => l.p50_ms, text: (l) => ms(l.p50_ms) },
      { title: "90 %", value: (l) => l.p90_ms, text: (l) => ms(l.p90_ms) },
      { title: "99 %", value: (l) => l.p99_ms, text: (l) => ms(l.p99_ms) },
    ], 1, { down: false }));
}

export const generate: Page = async (root, params) => {
  const lists = await catalogue();
  const models = lists.models.filter((m) => m.generates);
  // A model of another page that writes nothing is none for this one.
  const wanted = (): string => (models.some((m) => m.name === params.get("model")) || params.get("model").startsWith("file:") ? params.get("model") : DEFAULT);
  let shown: GenerateAnswer | null = null;
  const out = el("div", { id: "result", "aria-live": "polite" });
  const chart = chartBox("chart", (width) => (shown ? tokensChart(shown.runs, width) : null));
  const rest = el("div");
  const limit = (key: string): number | null => params.number(key);

  const request = latest<GenerateAnswer>((answer) => {
    shown = answer;
    const where = answer.stack === "served" ? "an inference server" : `PyTorch (${answer.run})`;
    const best = answer.goodput_batch === null ? "None of these batches fits and is fast enough." : `Best of these: ${digits(answer.goodput_tokens_per_s)} tokens/s with ${answer.goodput_batch} at once.`;
    out.replaceChildren(
      el("p", { class: "sub" }, `${answer.model} in ${answer.precision} on ${answer.gpu}, ${where}: prompts of ${answer.prompt}, answers of ${answer.output} tokens`),
      el("p", { class: "status", id: "status", role: "status", "data-tpot": String(answer.runs[0].tpot_ms) }, `${answer.largest_batch === 0 ? "Not one sequence fits." : `${answer.largest_batch} sequences fit at once.`} ${best}`),
      cards(answer));
    chart.redraw();
    rest.replaceChildren(
      section("batches", "By batch", sortable("runs-table", answer.runs, COLUMNS, 0, { down: false, mark: (r) => (!r.fits ? "dim" : r.batch === answer.goodput_batch ? "chosen" : "") })),
      ...(answer.traffic ? [arrived(answer.traffic)] : []),
      ...(answer.notes.length ? [section("notes", "To know", list(answer.notes))] : []));
  }, (error) => { shown = null; chart.redraw(); rest.replaceChildren(); out.replaceChildren(problem(error)); });

  const served = (): boolean => params.get("stack") === "served";
  const fields = (): Record<string, unknown> => ({
    model: wanted(), gpu: params.get("gpu", DEFAULT_GPU), prompt: params.number("prompt") ?? 1024, output: params.number("output") ?? 256, batches: BATCHES,
    stack: params.get("stack", "pytorch"), ...(served() ? { ...(params.get("weights") ? { weights: params.get("weights") } : {}), kv: params.get("kv", "bf16") } : { precision: params.get("format", "bf16"), run: params.get("run", "graph") }),
    ...(limit("ttft") === null ? {} : { ttft_ms: limit("ttft") }), ...(limit("tpot") === null ? {} : { tpot_ms: limit("tpot") }), ...(limit("rate") === null ? {} : { rate_per_s: limit("rate") }),
  });
  const changed = (): void => request({ ask: "generate", ...fields() });
  const words = (): string[] => ["generate", plainName(wanted()), ...options({
    gpu: params.get("gpu", DEFAULT_GPU), prompt: params.number("prompt") ?? 1024, output: params.number("output") ?? 256, batch: "1..256",
    ...(served() ? { stack: "served", weights: params.get("weights"), kv: params.get("kv") } : { precision: params.get("format"), run: params.get("run") }),
    ttft: limit("ttft") === null ? null : `${limit("ttft")}ms`, tpot: limit("tpot") === null ? null : `${limit("tpot")}ms`, rate: limit("rate") === null ? null : `${limit("rate")}/s`,
  })];

  const form = el("form", { class: "controls", "aria-label": "language model" });
  form.addEventListener("submit", (e) => e.preventDefault());
  const set = (changes: Record<string, string | number | null>): void => { params.set(changes); changed(); };
  const build = (): void => {
    const model = chosen(models, wanted());
    form.replaceChildren(
      modelSelect(models, model.name, (v) => set({ model: v })),
      gpuSelect("gpu", "GPU", lists.gpus, params.get("gpu", DEFAULT_GPU), (v) => set({ gpu: v })),
      numberField("prompt", "Prompt tokens", params.number("prompt") ?? 1024, "1024", (v) => set({ prompt: v })),
      numberField("output", "Answer tokens", params.number("output") ?? 256, "256", (v) => set({ output: v })),
      select("stack", "Run by", [["pytorch", "PyTorch"], ["served", "an inference server"]], params.get("stack", "pytorch"), (v) => { params.set({ stack: v === "pytorch" ? null : v }); build(); changed(); }),
      ...(served() ? [
        select("weights", "Weights", [["", "as the model has them"], ...["bf16", "fp8", "fp8_block", "int8", "int4", "nvfp4", "mxfp4"].map((f): [string, string] => [f, f])], params.get("weights", ""), (v) => set({ weights: v || null })),
        select("kv", "Keys, values", ["bf16", "fp8", "int8", "fp4"].map((f) => [f, f]), params.get("kv", "bf16"), (v) => set({ kv: v })),
      ] : [
        select("format", "Precision", PRECISIONS, params.get("format", "bf16"), (v) => set({ format: v })),
        select("run", "Decode steps", [["graph", "CUDA graph"], ["eager", "eager"], ["compile", "compiled"], ["compile-graph", "compiled, CUDA graph"]], params.get("run", "graph"), (v) => set({ run: v })),
      ]),
      numberField("ttft", "First token, at most ms", limit("ttft"), "any", (v) => set({ ttft: v })),
      numberField("tpot", "Per token, at most ms", limit("tpot"), "any", (v) => set({ tpot: v })),
      numberField("rate", "Requests a second", limit("rate"), "none", (v) => set({ rate: v })));
  };
  build();
  const name = (): string => `${plainName(wanted())}-${params.get("gpu", DEFAULT_GPU)}-tokens`.replace(/[^a-z0-9]+/gi, "-");
  root.append(form, out,
    section("curve", "Throughput against speed for one user", chart.box, el("p", { class: "note" }, "Each point is a batch. Up is cheaper, right is faster for whoever waits; hollow points do not fit or break a limit."),
      el("div", { class: "controls" }, pngButton("png", chart, name), csvButton("csv", () => shown?.runs ?? [], name), ...copies(words))),
    rest);
  changed();
};
