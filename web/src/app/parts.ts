// Pieces that several pages share: cards, sections, boxes for charts, downloads.
import { el, savePng } from "../dom";
import { Refusal } from "./ask";

export const card = (id: string, title: string, value: string, note: string): HTMLElement =>
  el("div", { class: "card", id }, el("span", {}, title), el("strong", {}, value), el("small", {}, note));

export function section(id: string, title: string, ...children: (Node | null)[]): HTMLElement {
  return el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), ...children);
}

export const list = (items: string[]): HTMLElement => el("ul", {}, ...items.map((t) => el("li", {}, t)));

export function button(id: string, text: string, clicked: () => void): HTMLButtonElement {
  const out = el("button", { type: "button", id }, text);
  out.addEventListener("click", clicked);
  return out;
}

/** Says what went wrong, for eyes and screen readers. */
export function problem(error: unknown): HTMLElement {
  const hint = error instanceof Refusal ? error.hint : null;
  return el("div", { class: "problem", role: "alert" }, el("strong", {}, error instanceof Error ? error.message : String(error)), hint ? el("p", {}, hint) : null);
}

export interface ChartBox { box: HTMLElement; redraw: () => void; svg: () => SVGSVGElement | null; }

/** Widest chart that is drawn; on larger screens everything in it grows alike. */
const MOST = 1100;

/** A box whose chart follows its width. */
export function chartBox(id: string, draw: (width: number) => SVGSVGElement | HTMLElement | null): ChartBox {
  const box = el("div", { class: "chart", id });
  let width = 0;
  let svg: SVGSVGElement | null = null;
  const redraw = (): void => {
    if (width === 0) return;
    const plot = draw(Math.max(280, Math.min(MOST, width)));
    svg = plot instanceof SVGSVGElement ? plot : (plot?.querySelector("svg:last-of-type") as SVGSVGElement | null ?? null);
    if (svg) svg.style.width = `${width}px`;
    box.replaceChildren(...(plot ? [plot] : []));
  };
  new ResizeObserver(() => { if (box.clientWidth !== width) { width = box.clientWidth; redraw(); } }).observe(box);
  return { box, redraw, svg: () => svg };
}

export function pngButton(id: string, chart: ChartBox, name: () => string): HTMLButtonElement {
  return button(id, "Save PNG", () => { const svg = chart.svg(); if (svg) void savePng(svg, `${name()}.png`); });
}

const cell = (value: unknown): string => {
  const text = value === null || value === undefined ? "" : Array.isArray(value) ? value.join("x") : String(value);
  // A text that begins like a formula is one to a spreadsheet.
  const safe = typeof value === "string" && /^[=+\-@]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll("\"", "\"\"")}"` : safe;
};

/** Rows as CSV: all plain fields of the first row are columns. */
export function csvOf(rows: object[]): string {
  const keys = Object.entries(rows[0] ?? {}).filter(([, v]) => v === null || typeof v !== "object" || Array.isArray(v)).map(([k]) => k);
  return [keys.join(","), ...rows.map((r) => keys.map((k) => cell((r as Record<string, unknown>)[k])).join(","))].join("\r\n") + "\r\n";
}

export function csvButton(id: string, rows: () => object[], name: () => string): HTMLButtonElement {
  return button(id, "Save CSV", () => {
    const url = URL.createObjectURL(new Blob([csvOf(rows())], { type: "text/csv" }));
    el("a", { href: url, download: `${name()}.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  });
}

/** Copies a text; says so on the button for a moment. */
export function copyButton(id: string, label: string, text: () => string): HTMLButtonElement {
  const out = button(id, label, () => {
    const done = (): void => { out.textContent = "Copied"; setTimeout(() => { out.textContent = label; }, 1500); };
    navigator.clipboard.writeText(text()).then(done, () => { prompt("Copy this:", text()); });
  });
  return out;
}

/** A slider with its name and value; the value is spoken too. */
export function slider(
  id: string, label: string, range: { min: number; max: number; step: number; value: number }, say: (v: number) => string, moved: (v: number) => void,
): { field: HTMLElement; input: HTMLInputElement; show: (v: number) => void } {
  const input = el("input", { type: "range", id, min: String(range.min), max: String(range.max), step: String(range.step) });
  const text = el("output", { for: id });
  const show = (v: number): void => {
    input.value = String(v);
    text.textContent = say(Number(input.value));
    input.setAttribute("aria-valuetext", text.textContent);
  };
  show(range.value);
  input.addEventListener("input", () => { show(Number(input.value)); moved(Number(input.value)); });
  return { field: el("label", { class: "field" }, el("span", {}, label), el("span", { class: "slide" }, input, text)), input, show };
}

export function numberField(id: string, label: string, value: number | null, placeholder: string, changed: (v: number | null) => void, most = 1048576): HTMLElement {
  const input = el("input", { type: "number", id, min: "1", max: String(most), step: "1", inputmode: "numeric", placeholder });
  if (value !== null) input.value = String(value);
  input.addEventListener("input", () => { if (input.value === "") changed(null); else if (input.validity.valid) changed(Number(input.value)); });
  return el("label", { class: "field" }, el("span", {}, label), input);
}
