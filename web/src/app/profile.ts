// Profile: drop a recording, see where its time goes and how it does elsewhere.
import { shareBars } from "../charts";
import { el, select } from "../dom";
import { digits, percent, si, time } from "../format";
import { sortable } from "../table";
import type { Explanation, Part, ProfileAnswer } from "./answers";
import { askAbout } from "./ask";
import { takeRecording } from "./files";
import { ALONE } from "./place";
import { transferChart } from "./charts";
import type { Page } from "./main";
import { card, chartBox, csvButton, list, pngButton, problem, section } from "./parts";
import { catalogue, copies, gpuSelect, options } from "./run";

/** The last answer, so that going to another page and back keeps it. */
let last: { answer: ProfileAnswer; name: string } | null = null;

function bars(id: string, title: string, parts: Part[]): HTMLElement | null {
  if (parts.length === 0) return null;
  return section(id, title, chartBox(`${id}-chart`, (width) => shareBars(parts.slice(0, 12), Math.min(640, width))).box);
}

/** Factors on the recorded host time. */
const HOSTS: [string, string][] = [
  ["", "recorded, profiler left out"], ["1", "recorded, with the profiler"], ["0.8", "a fifth faster"], ["0.5", "twice as fast"], ["0.25", "four times as fast"], ["2", "half as fast"],
];

const IDLE: Record<string, string> = { host_bound_ms: "waiting for the host", launch_gaps_ms: "gaps between launches", sync_ms: "synchronisation", communication_ms: "communication" };

function explained(e: Explanation): HTMLElement {
  const idle = Object.entries(e.idle).filter(([, ms]) => ms > 0).map(([k, ms]) => `${IDLE[k] ?? k} ${time(ms * 1e3)}`);
  return el("div", { id: "explanation" },
    el("p", { class: "lead" }, `${e.source}: ${e.device ?? "an unknown GPU"}${e.gpu ? ` (${e.gpu})` : ""}, ${e.iterations} ${e.iterations === 1 ? "iteration" : "iterations"}`),
    el("div", { class: "cards" },
      card("iteration", "one iteration", time(e.iteration_ms * 1e3), "as recorded"),
      card("busy", "GPU busy", percent(e.gpu_utilisation), `${time(e.gpu_busy_ms * 1e3)} of kernels and copies`),
      card("host", "host", time(e.host_ms * 1e3), `${digits(e.launching.launches)} launches, ${time(e.launching.median_call_us)} each`),
      card("idle", "GPU idle", time(Math.max(0, e.iteration_ms - e.gpu_wall_ms) * 1e3), idle.join(", ") || "nothing to tell"),
      card("unattributed", "without an operator", percent(e.unattributed.kernel_share), `${time(e.unattributed.time_ms * 1e3)} of kernels`)),
    section("advice", "What would help", e.advice.length === 0 ? el("p", {}, "Nothing that shows in this recording.") : list(e.advice.map(advice))),
    el("div", { class: "two" }, bars("families", "Time by family", e.families), bars("phases", "Time by pass", e.phases), bars("dtypes", "Time by number format", e.dtypes), bars("modules", "Time by module", e.modules)),
    section("operators", "Operators", sortable("operators-table", e.operators, [
      { title: "operator", value: (o) => o.name, text: (o) => o.name },
      { title: "pass", value: (o) => o.phase ?? "", text: (o) => o.phase ?? "-" },
      { title: "family", value: (o) => o.family, text: (o) => o.family },
      { title: "calls", value: (o) => o.count, text: (o) => digits(o.count) },
      { title: "time", value: (o) => o.time_ms, text: (o) => time(o.time_ms * 1e3) },
      { title: "share", value: (o) => o.share, text: (o) => percent(o.share) },
      { title: "TFLOP/s", value: (o) => o.tflops ?? 0, text: (o) => (o.tflops === null ? "-" : digits(o.tflops)) },
      { title: "GB/s", value: (o) => o.gbs ?? 0, text: (o) => (o.gbs === null ? "-" : digits(o.gbs)) },
      { title: "of the roof", value: (o) => o.roof_share ?? 0, text: (o) => (o.roof_share === null ? "-" : percent(o.roof_share)), hint: "time at the roof over the time taken" },
    ], 4), el("div", { class: "controls" }, csvButton("csv-operators", () => e.operators, () => "operators"))),
    e.notes.length ? section("notes", "To know about this recording", list(e.notes)) : null);
}

const advice = (a: Explanation["advice"][number]): string => `${a.text} (saves at most ${time(a.saves_ms * 1e3)}, ${percent(a.share)})`;

function elsewhere(answer: ProfileAnswer): HTMLElement {
  const t = answer.transfer;
  if (!t) return section("transfer", "On other GPUs", el("p", {}, `Not known: ${answer.transfer_problem ?? "no GPU"}.`));
  const chart = chartBox("chart", (width) => transferChart(t.targets, { gpu: t.origin, ms: t.measured_ms }, width));
  return section("transfer", "On other GPUs", el("p", { class: "note" }, `Carried over from ${t.origin}, where it took ${time(t.measured_ms * 1e3)} (dashed). Lines are 90 % intervals.`),
    chart.box, el("div", { class: "controls" }, pngButton("png", chart, () => "other-gpus"), csvButton("csv", () => t.targets, () => "other-gpus")),
    sortable("transfer-table", t.targets, [
      { title: "GPU", value: (g) => g.gpu, text: (g) => g.gpu },
      { title: "speed-up", value: (g) => g.speedup, text: (g) => `${digits(g.speedup)}x` },
      { title: "iteration", value: (g) => g.iteration_ms, text: (g) => time(g.iteration_ms * 1e3) },
      { title: "90 %", value: (g) => g.high_ms, text: (g) => `${time(g.low_ms * 1e3)} to ${time(g.high_ms * 1e3)}` },
      { title: "GPU busy", value: (g) => g.gpu_busy_ms, text: (g) => time(g.gpu_busy_ms * 1e3) },
      { title: "to know", words: true, wide: true, value: (g) => g.notes.length, text: (g) => g.notes.join("; ") },
    ], 1));
}

function untimed(u: NonNullable<ProfileAnswer["untimed"]>): HTMLElement {
  return el("div", { id: "explanation" }, el("p", { class: "lead" }, `${u.source} has no GPU times; its operators ask for this work:`),
    sortable("operators-table", u.operators, [
      { title: "operator", value: (o) => o.name, text: (o) => o.name },
      { title: "calls", value: (o) => o.count, text: (o) => digits(o.count) },
      { title: "FLOPs", value: (o) => o.flops, text: (o) => si(o.flops, "FLOP") },
      { title: "bytes", value: (o) => o.bytes, text: (o) => si(o.bytes, "B") },
    ], 2));
}

export const profile: Page = async (root, params) => {
  const lists = await catalogue();
  const out = el("div", { id: "result", "aria-live": "polite" });
  const show = (answer: ProfileAnswer, name: string): void => {
    last = { answer, name };
    out.replaceChildren(...(answer.explanation ? [explained(answer.explanation)] : answer.untimed ? [untimed(answer.untimed)] : []), elsewhere(answer),
      section("ask-again", "The same elsewhere", el("div", { class: "controls" }, ...copies(() => ["transfer", name, ...options({ to: params.get("to", "all"), from: params.get("from"), host: params.number("host") })]))));
  };
  const input = el("input", { type: "file", id: "file", class: "visually-hidden", accept: ".json,.gz,.zst,.sqlite,.csv" });
  const zone = el("label", { class: "drop", for: "file" }, el("strong", {}, "Drop a recording here, or choose one"),
    el("span", {}, "PyTorch profiler JSON, Nsight Compute CSV, Chakra JSON, plain, .gz or .zst" + (ALONE ? ". It is read inside this page and sent nowhere; SQLite files of Nsight Systems need `preflop serve`." : ", Nsight Systems SQLite. It is read by the server you started and kept nowhere.")));
  const send = async (file: File): Promise<void> => {
    out.replaceChildren(el("p", { class: "status", role: "status" }, `Reading ${file.name} (${si(file.size, "B")})...`));
    try {
      const from = params.get("from");
      const to = params.get("to");
      const host = params.number("host");
      show(await askAbout<ProfileAnswer>(file, { ask: "profile", ...(from ? { from } : {}), ...(to ? { to: [to] } : {}), ...(host === null ? {} : { host }) }), file.name);
    } catch (error) {
      out.replaceChildren(problem(error));
    }
  };
  let current: File | null = null;
  const take = (file: File | undefined): void => { if (file) { current = file; void send(file); } };
  input.addEventListener("change", () => take(input.files?.[0]));
  for (const kind of ["dragenter", "dragover"]) zone.addEventListener(kind, (e) => { e.preventDefault(); zone.classList.add("over"); });
  for (const kind of ["dragleave", "drop"]) zone.addEventListener(kind, () => zone.classList.remove("over"));
  root.append(input, zone, el("div", { class: "controls" },
    gpuSelect("from", "Recorded on", lists.gpus, params.get("from"), (v) => { params.set({ from: v }); if (current) void send(current); }, "as the recording says"),
    gpuSelect("to", "Carried to", lists.gpus, params.get("to"), (v) => { params.set({ to: v }); if (current) void send(current); }, "all GPUs"),
    select("host", "Host there", HOSTS, params.get("host"), (v) => { params.set({ host: v }); if (current) void send(current); })), out);
  const given = takeRecording();
  if (given) take(given);
  else if (last) show(last.answer, last.name);
};
