// The state of a view is its address: a link shares it, going back restores it.
import { query, stay } from "./place";

/** Parameters that follow from page to page. */
const SHARED = ["model", "gpu", "batch", "seq", "precision", "mode", "optimizer", "run", "layout", "checkpoint", "algorithms"];

export class Params {
  private values = new URLSearchParams(query());

  get(key: string, otherwise = ""): string { return this.values.get(key) ?? otherwise; }

  number(key: string): number | null {
    const text = this.values.get(key);
    const value = Number(text);
    return text === null || text === "" || !Number.isFinite(value) ? null : value;
  }

  /** Sets parameters; `null` or an empty text removes one. The address follows without a new entry in the history. */
  set(changes: Record<string, string | number | null>): void {
    for (const [key, value] of Object.entries(changes)) {
      if (value === null || value === "") this.values.delete(key);
      else this.values.set(key, String(value));
    }
    stay(this.values.toString());
  }

  /** The query of another page with the same job. */
  shared(model?: string): string {
    const out = new URLSearchParams();
    for (const key of SHARED) if (this.values.has(key)) out.set(key, this.get(key));
    // Another model has sizes of its own.
    if (model) { out.set("model", model); out.delete("batch"); out.delete("seq"); }
    const search = out.toString();
    return search ? `?${search}` : "";
  }
}
