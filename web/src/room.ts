// What would make a run fit that does not: the verdict first, then the changes in their order.
import { el, unbroken } from "./dom";
import { digits } from "./format";

/** As `Change` of the API. */
export interface Change { change: string; options: string[]; memory_mib: number; fits: boolean; time_ratio: number; }

const gib = (mib: number): string => `${digits(mib / 1024)} GiB`;

/** In red, and in words. */
export const misfit = (gpu: string, needed_mib: number, gpu_memory_mib: number): HTMLElement =>
  el("p", { class: "misfit", id: "misfit" }, `Does not fit: it needs ${gib(needed_mib)} with reserve, ${gpu} has ${gib(gpu_memory_mib)}.`);

/** The list as the tool ranks it; it is not sorted anew. */
export function toFit(id: string, changes: Change[]): HTMLElement {
  if (changes.length === 0) return el("p", { class: "note", id }, "Nothing that was tried makes it fit.");
  const head = [changes.some((c) => c.fits) ? "What would make it fit" : "Nothing tried makes it fit; nearest", "memory", "time of a sample", "option"];
  const row = (c: Change): HTMLElement => el("tr", {}, el("td", { class: "wide" }, c.change), el("td", { class: "number" }, gib(c.memory_mib)),
    el("td", { class: "number" }, `${digits(c.time_ratio)} x`), el("td", {}, el("code", {}, unbroken(c.options.join(" ")))));
  return el("div", { class: "scroll" }, el("table", { id },
    el("thead", {}, el("tr", {}, ...head.map((t, i) => el("th", { scope: "col", class: i === 1 || i === 2 ? "plain number" : "plain" }, t)))),
    el("tbody", {}, ...changes.map(row))));
}
