// Roofline: the charts of the report, live.
import { el } from "../dom";
import { explorer } from "../explorer";
import type { PageData } from "../types";
import { latest } from "./ask";
import type { Page } from "./main";
import { csvButton, problem } from "./parts";
import { catalogue, DEFAULT_GPU, gpuSelect, jobCopies, question, runForm, runName } from "./run";

/** Choices inside the chart that a link keeps: id of the select and name in the address. */
const KEPT: [string, string][] = [["kind", "kind"], ["level", "level"], ["pipe", "pipe"], ["view", "view"]];

export const roofline: Page = async (root, params) => {
  const lists = await catalogue();
  let data: PageData | null = null;
  const out = el("div", { id: "result" });
  /** Sets a choice as a user would, so that the chart's own code does the rest. */
  let restoring = false;
  const restore = (): void => {
    restoring = true;
    for (const [id, key] of KEPT) {
      const box = out.querySelector<HTMLSelectElement>(`#${id}`);
      const value = params.get(key);
      if (box && value && box.value !== value && [...box.options].some((o) => o.value === value)) {
        box.value = value;
        box.dispatchEvent(new Event("change"));
      }
    }
    restoring = false;
  };
  out.addEventListener("change", (event) => {
    const box = event.target as HTMLSelectElement;
    const kept = KEPT.find(([id]) => id === box.id);
    if (kept && !restoring) params.set({ [kept[1]]: box.value });
  }, true);
  const gpus = (): string[] => [params.get("gpu", DEFAULT_GPU), params.get("other")].filter(Boolean);
  const request = latest<PageData>((answer) => {
    data = answer;
    out.replaceChildren(explorer(answer), el("div", { class: "controls" }, csvButton("csv", () => (data?.views ?? []).flatMap((v) => v.rows.map((r) => ({ gpu: v.gpu, ...r }))), () => runName(params, "roofline")), ...jobCopies("roofline", params, () => [["gpu", gpus().join(",")]])));
    restore();
  }, (error) => { data = null; out.replaceChildren(problem(error)); });
  const changed = (): void => {
    request(question("roofline", params, { gpus: gpus() }));
  };
  const form = runForm(params, lists, true, changed);
  const other = el("div", { class: "controls" }, gpuSelect("other", "Beside it", lists.gpus, params.get("other"), (v) => { params.set({ other: v, view: null }); changed(); }, "no other GPU"));
  root.append(form, other, out);
  changed();
};
