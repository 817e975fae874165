// API: the OpenAPI document, readable and to be tried.
import { el } from "../dom";
import type { Page } from "./main";
import { button, problem, section } from "./parts";

interface Schema {
  $ref?: string; type?: string | string[]; enum?: (string | number)[]; description?: string; minimum?: number; maximum?: number; default?: unknown;
  properties?: Record<string, Schema>; required?: string[]; items?: Schema; allOf?: Schema[]; oneOf?: Schema[]; additionalProperties?: Schema | boolean;
}
interface Operation {
  operationId: string; summary: string; parameters?: { name: string; description: string }[];
  requestBody?: { content: Record<string, { schema: Schema; example?: unknown }> }; responses: Record<string, { description: string }>;
}
interface Document { info: { title: string; version: string; description: string }; paths: Record<string, Record<string, Operation>>; components: { schemas: Record<string, Schema> }; }

function fields(document: Document, schema: Schema): { name: string; needed: boolean; schema: Schema }[] {
  const direct = schema.$ref ? document.components.schemas[schema.$ref.split("/").at(-1) ?? ""] : schema;
  if (direct.allOf) return direct.allOf.flatMap((part) => fields(document, part));
  return Object.entries(direct.properties ?? {}).map(([name, s]) => ({ name, needed: direct.required?.includes(name) ?? false, schema: s }));
}

function kind(document: Document, s: Schema): string {
  if (s.$ref) return s.$ref.split("/").at(-1) ?? "";
  if (s.oneOf) return s.oneOf.filter((o) => o.type !== "null").map((o) => kind(document, o)).join(" or ");
  const type = Array.isArray(s.type) ? s.type.filter((t) => t !== "null").join(" or ") : s.type ?? "any";
  if (s.items) return `list of ${kind(document, s.items)}`;
  const range = s.minimum !== undefined || s.maximum !== undefined ? ` from ${s.minimum ?? "any"} to ${s.maximum ?? "any"}` : "";
  return type + range;
}

function choices(s: Schema): HTMLElement | null {
  const values = s.enum ?? s.items?.enum ?? (s.properties ? Object.keys(s.properties) : null);
  if (!values) return null;
  const text = values.join(", ");
  return text.length < 90 ? el("code", {}, text) : el("details", {}, el("summary", {}, `${values.length} values`), el("code", {}, text));
}

function attempt(path: string, method: string, example: unknown): HTMLElement {
  const id = `try-${path.split("/").at(-1)}`;
  const body = el("textarea", { id: `${id}-body`, rows: "4", spellcheck: "false", "aria-label": `question to ${path}` });
  body.value = example === undefined || example === null ? "" : JSON.stringify(example, null, 1);
  const out = el("pre", { class: "answer", id: `${id}-answer`, "aria-live": "polite" });
  const send = button(id, "Try", async () => {
    out.textContent = "...";
    const started = performance.now();
    try {
      const response = await fetch(path, method === "get" ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: body.value });
      const text = await response.text();
      let shown = text;
      try { shown = JSON.stringify(JSON.parse(text), null, 1); } catch { /* shown as it is */ }
      out.textContent = `${response.status} in ${(performance.now() - started).toFixed(0)} ms, ${text.length} bytes\n${shown.length > 4000 ? `${shown.slice(0, 4000)}\n...` : shown}`;
    } catch (error) {
      out.replaceChildren(problem(error));
    }
  });
  return el("div", { class: "try" }, method === "get" ? null : body, send, out);
}

// The questions of most use first; those not named here follow.
const FIRST = ["predict", "layer", "compare", "roofline", "explore", "delta", "profile", "gpus", "gpu", "models"];
const place = (path: string): number => { const i = FIRST.indexOf(path.split("/").at(-1) ?? ""); return i < 0 ? FIRST.length : i; };

export const api: Page = async (root) => {
  const document_ = await (await fetch("/api/v1/openapi.json")).json() as Document;
  const example = `curl -s ${location.origin}/api/v1/predict -H 'Content-Type: application/json' -d '{"model": "resnet50", "gpu": "h200"}'`;
  root.append(el("p", {}, document_.info.description),
    el("p", {}, "Version ", el("code", {}, document_.info.version), ", described by the OpenAPI document ", el("a", { href: "/api/v1/openapi.json" }, "/api/v1/openapi.json"), "."), el("pre", {}, example));
  for (const [path, operations] of Object.entries(document_.paths).sort(([a], [b]) => place(a) - place(b))) {
    for (const [method, operation] of Object.entries(operations)) {
      const content = operation.requestBody?.content;
      const json = content?.["application/json"];
      const rows = json ? fields(document_, json.schema) : [];
      root.append(section(`q-${operation.operationId}`, `${method.toUpperCase()} ${path}`, el("p", {}, operation.summary),
        rows.length ? el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ...["field", "what", "type", "values"].map((t) => el("th", { scope: "col", class: "plain" }, t)))),
          el("tbody", {}, ...rows.map((f) => el("tr", {}, el("td", {}, el("code", {}, f.name), f.needed ? " (needed)" : ""), el("td", {}, f.schema.description ?? ""), el("td", {}, kind(document_, f.schema)), el("td", {}, choices(f.schema))))))) : null,
        operation.parameters ? el("ul", {}, ...operation.parameters.map((p) => el("li", {}, el("code", {}, p.name), `: ${p.description}`))) : null,
        el("p", { class: "note" }, Object.entries(operation.responses).map(([code, r]) => `${code}: ${r.description}`).join(". ") + "."),
        json || method === "get" ? attempt(path, method, json?.example) : null));
    }
  }
};
