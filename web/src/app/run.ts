// The job: model, sizes, formats. Every page that predicts has this form.
import { el, select } from "../dom";
import { digits, si } from "../format";
import type { GpuInfo, ListedModel } from "./answers";
import { dropped, isFile, plainName } from "./files";
import { ask, type Question } from "./ask";
import type { Params } from "./params";
import { copyButton, numberField, slider } from "./parts";

export interface Catalogue { models: ListedModel[]; gpus: GpuInfo[]; }

let kept: Promise<Catalogue> | null = null;

/** Models and GPUs, asked for once. */
export async function catalogue(): Promise<Catalogue> {
  const { models, gpus } = await builtIn();
  return { models: [...dropped(), ...models], gpus };
}

function builtIn(): Promise<Catalogue> {
  kept ??= Promise.all([ask<ListedModel[]>({ ask: "models" }), ask<GpuInfo[]>({ ask: "gpus" })]).then(([models, gpus]) => ({ models, gpus }));
  kept.catch(() => { kept = null; });
  return kept;
}

export const DEFAULT_GPU = "h200";
export const DEFAULT_MODEL = "resnet50";
const DEFAULT_PRECISION = "pytorch";
export const PRECISIONS: [string, string][] = [
  [DEFAULT_PRECISION, "PyTorch's default"], ["fp32", "fp32, no TF32"], ["tf32", "tf32"], ["amp", "amp (autocast)"],
  ["bf16", "bf16"], ["fp16", "fp16"], ["fp8", "fp8"],
];
const IMPLEMENTATIONS = ["foreach", "fused", "single"];
const OPTIMIZERS: [string, string][] = [
  ...["sgd", "adam", "adamw"].flatMap((rule) => IMPLEMENTATIONS.map((how): [string, string] => [`${rule}:${how}`, `${rule}, ${how}`])), ["none", "none"],
];

/** How a job is launched and laid out: name in the address and of the option, label, choices; the first is the default. */
const FORMS: [string, string, [string, string][]][] = [
  ["run", "Launched", [["eager", "eager"], ["graph", "CUDA graph"], ["compile", "torch.compile"], ["compile-graph", "compiled, CUDA graph"]]],
  ["layout", "Layout", [["nchw", "nchw"], ["channels-last", "channels last"]]],
  ["checkpoint", "Checkpoints", [["none", "none"], ["full", "every block"], ["every=2", "every second block"], ["every=4", "every fourth block"]]],
  ["algorithms", "Convolutions chosen by", [["heuristic", "heuristic"], ["autotuned", "autotuning"]]],
];

/** The fields of a question about the job in the address. */
export function run(params: Params): Record<string, unknown> {
  const out: Record<string, unknown> = {
    model: params.get("model", DEFAULT_MODEL), precision: params.get("precision", DEFAULT_PRECISION), mode: params.get("mode", "train"),
  };
  for (const key of ["batch", "seq"]) if (params.number(key) !== null) out[key] = params.number(key);
  for (const key of ["optimizer", ...FORMS.map(([name]) => name)]) if (params.get(key)) out[key] = params.get(key);
  return out;
}

export const question = (kind: string, params: Params, more: Record<string, unknown>): Question => ({ ask: kind, ...run(params), ...more });

const quoted = (word: string): string => (/^[\w./,=:-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

/** The job as words of a command; `more` are its own options. */
function words(command: string, params: Params, more: [string, string][]): string[] {
  const given = ["batch", "seq", "precision", "mode", "optimizer", ...FORMS.map(([name]) => name)].flatMap((key) => (params.get(key) && !more.some(([own]) => own === key) ? [[key, params.get(key)]] : []));
  return [command, plainName(params.get("model", DEFAULT_MODEL)), ...[...more, ...given].flatMap(([key, value]) => [`--${key}`, value])];
}

/** The same question on the command line. */
const asCommand = (all: string[]): string => ["preflop", ...all].map(quoted).join(" ");

/** The same question in Python. */
const asPython = (all: string[]): string =>
  `import json, subprocess\n\ncommand = ${JSON.stringify(["preflop", ...all, "--json"])}\nanswer = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)\n`;

/** Copies of a question for the command line and for Python. `all` are the words behind `preflop`. */
export const copies = (all: () => string[]): HTMLElement[] =>
  [copyButton("copy-command", "Copy as command", () => asCommand(all())), copyButton("copy-python", "Copy as Python", () => asPython(all()))];

/** The same for a question about the job in the address. */
export const jobCopies = (command: string, params: Params, more: () => [string, string][]): HTMLElement[] => copies(() => words(command, params, more()));

/** Words of options that are set. */
export const options = (of: Record<string, string | number | boolean | null | undefined>): string[] =>
  Object.entries(of).flatMap(([key, value]) => (value === null || value === undefined || value === "" || value === false ? [] : value === true ? [`--${key}`] : [`--${key}`, String(value)]));

/** A name for files that are saved. */
export const runName = (params: Params, ...more: string[]): string =>
  [plainName(params.get("model", DEFAULT_MODEL)), ...more, params.get("precision", DEFAULT_PRECISION), params.get("mode", "train")].join("-").replace(/[^a-z0-9]+/gi, "-");

/** A select of options in groups. */
export function grouped(id: string, label: string, groups: Map<string, [string, string][]>, value: string, changed: (v: string) => void): HTMLElement {
  const box = el("select", { id });
  for (const [group, options] of groups) {
    const inner = options.map(([v, text]) => el("option", { value: v }, text));
    if (group) box.append(el("optgroup", { label: group }, ...inner));
    else box.append(...inner);
  }
  box.value = value;
  box.addEventListener("change", () => changed(box.value));
  return el("label", { class: "field" }, el("span", {}, label), box);
}

function byGroup<T>(items: T[], group: (t: T) => string, option: (t: T) => [string, string]): Map<string, [string, string][]> {
  const out = new Map<string, [string, string][]>();
  for (const item of items) out.set(group(item), [...(out.get(group(item)) ?? []), option(item)]);
  return out;
}

const VENDORS: Record<string, string> = { nvidia: "NVIDIA", amd: "AMD" };

export function gpuSelect(id: string, label: string, gpus: GpuInfo[], value: string, changed: (v: string) => void, none?: string): HTMLElement {
  const newest = [...gpus].sort((a, b) => (b.release_year ?? 0) - (a.release_year ?? 0));
  const groups = byGroup(newest, (g) => `${VENDORS[g.vendor] ?? "other"} ${g.architecture}`, (g) => [g.name, `${g.name} (${digits(g.memory_gib)} GiB)`]);
  const all = none === undefined ? groups : new Map([["", [["", none] as [string, string]]], ...groups]);
  // An alias in a link stands for its GPU.
  const known = gpus.some((g) => g.name === value) || value === "" ? value : gpus.find((g) => (g as GpuInfo & { aliases?: string[] }).aliases?.includes(value))?.name ?? value;
  return grouped(id, label, all, known, changed);
}

// 1 to 1024 in eighths of a doubling.
const toBatch = (v: number): number => Math.max(1, Math.round(2 ** (v / 8)));
const toSlider = (batch: number): number => Math.round(8 * Math.log2(batch));

/** A model of the list; a file that was dropped elsewhere is still called by its name. */
export function chosen(models: ListedModel[], name: string): ListedModel & { any_batch?: boolean } {
  const found = models.find((m) => m.name === name) ?? models.find((m) => m.name === DEFAULT_MODEL) ?? models[0];
  return isFile(name) && found.name !== name ? { ...found, name, title: plainName(name), family: "your files", any_batch: true, default_seq: null } : found;
}

/** A select of models, files that were dropped first. */
export function modelSelect(models: ListedModel[], value: string, changed: (v: string) => void): HTMLElement {
  const listed = models.some((m) => m.name === value) ? models : [chosen(models, value), ...models];
  const label = (m: ListedModel): string => (isFile(m.name) ? plainName(m.name) : `${m.name} (${si(m.parameters, "").trim()})`);
  return grouped("model", "Model", byGroup(listed, (m) => m.family, (m) => [m.name, label(m)]), value, changed);
}

/** How it is launched: folded away until something is other than usual. */
function forms(params: Params, set: (changes: Record<string, string | null>) => void): HTMLElement {
  const changed = FORMS.filter(([name]) => params.get(name));
  return el("details", { class: "forms", ...(changed.length ? { open: "" } : {}) }, el("summary", {}, "How it is run"), el("div", { class: "controls" },
    ...FORMS.map(([name, label, choices]) => {
      // A value that only a link can have is listed too; the answer says whether it is one.
      const value = params.get(name, choices[0][0]);
      const listed = choices.some(([v]) => v === value) ? choices : [...choices, [value, value] as [string, string]];
      return select(name, label, listed, value, (v) => set({ [name]: v === choices[0][0] ? null : v }));
    })));
}

/** The form of a job. `changed` is called with the address already set. */
export function runForm(params: Params, { models, gpus }: Catalogue, withGpu: boolean, changed: () => void): HTMLElement {
  const form = el("form", { class: "controls", "aria-label": "job" });
  form.addEventListener("submit", (e) => e.preventDefault());
  const build = (): void => {
    const model = chosen(models, params.get("model", DEFAULT_MODEL));
    const steady = model.family === "your files" && !model.any_batch;
    const set = (changes: Record<string, string | number | null>): void => { params.set(changes); changed(); };
    const batch = params.number("batch") ?? model.default_batch;
    const moved = slider("batch-slider", "Batch", { min: 0, max: 80, step: 1, value: Math.min(80, toSlider(batch)) }, (v) => String(toBatch(v)), (v) => {
      (number.querySelector("input") as HTMLInputElement).value = String(toBatch(v));
      set({ batch: toBatch(v) });
    });
    moved.field.querySelector("output")?.remove();
    const number = numberField("batch", "samples", batch, String(model.default_batch), (v) => { if (v) moved.show(Math.min(80, toSlider(v))); set({ batch: v }); });
    form.replaceChildren(
      modelSelect(models, model.name, (v) => { params.set({ model: v, batch: null, seq: null, layer: null }); build(); changed(); }),
      ...(withGpu ? [gpuSelect("gpu", "GPU", gpus, params.get("gpu", DEFAULT_GPU), (v) => set({ gpu: v }))] : []),
      ...(steady ? [] : [moved.field, number]),
      ...(steady || model.default_seq === null ? [] : [numberField("seq", "Sequence", params.number("seq") ?? model.default_seq, String(model.default_seq), (v) => set({ seq: v }), model.max_seq ?? 1048576)]),
      select("precision", "Precision", PRECISIONS, params.get("precision", DEFAULT_PRECISION), (v) => set({ precision: v })),
      select("mode", "Mode", [["train", "training"], ["infer", "inference"]], params.get("mode", "train"), (v) => { params.set({ mode: v, optimizer: v === "infer" ? null : params.get("optimizer") }); build(); changed(); }),
      ...(params.get("mode", "train") === "infer" ? [] : [select("optimizer", "Optimizer", [["", `default (${model.optimizer}, foreach)`], ...OPTIMIZERS], params.get("optimizer"), (v) => set({ optimizer: v }))]),
      forms(params, set),
    );
  };
  build();
  return form;
}
