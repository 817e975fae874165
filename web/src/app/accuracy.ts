// Accuracy: the scoreboard.
import { el } from "../dom";
import { digits } from "../format";
import { sortable } from "../table";
import type { CrossScore, Score, Scoreboard } from "./answers";
import { ask } from "./ask";
import { errorChart } from "./charts";
import { tag } from "./colors";
import type { Page } from "./main";
import { card, chartBox, csvButton, pngButton, section } from "./parts";

const signed = (x: number): string => `${x > 0 ? "+" : ""}${digits(x)}`;

export const accuracy: Page = async (root, params) => {
  root.append(el("p", { class: "status", role: "status" }, "Predicting every measured row..."));
  const board = await ask<Scoreboard>({ ask: "accuracy" });
  const all = board.rows.filter((r) => r.dtype === "all");
  const whole = all.find((r) => r.family === "iteration");
  const operators = all.find((r) => r.family === "operators");
  const chart = chartBox("chart", (width) => errorChart(all, width));
  const scoreCard = (id: string, title: string, r: Score | undefined): HTMLElement | null =>
    r ? card(id, title, `${digits(r.mean_percent)} %`, `mean error of ${r.n}; a plain roofline ${digits(r.roofline_mean_percent)} %; ${digits(r.coverage_percent)} % inside the 90 % interval`) : null;
  const order = (key: string, fallback: number): [number, { down: boolean; sorted: (by: number, down: boolean) => void }] =>
    [Number(params.get(key, String(fallback))), { down: params.get(`${key}-up`) !== "1", sorted: (by, down) => params.set({ [key]: by === fallback ? null : by, [`${key}-up`]: down ? null : 1 }) }];
  const [first, sorting] = order("sort", 3);
  const [crossFirst, crossSorting] = order("cross", 3);
  root.replaceChildren(
    el("div", { class: "cards" }, ...[scoreCard("iterations", "whole iterations", whole), scoreCard("operators", "operators", operators)].filter((c) => c !== null)),
    section("errors", "Predicted against measured, by family", el("p", { class: "legend" }, tag("#0072b2", "this tool"), tag("#d55e00", "a plain roofline")), chart.box,
      el("div", { class: "controls" }, pngButton("png", chart, () => "accuracy"), csvButton("csv", () => board.rows, () => "accuracy")),
      el("p", { class: "note" }, "These rows were in the fit; the next table says what it does on rows and GPUs it has not seen."),
      sortable<Score>("scores-table", board.rows, [
        { title: "family", value: (r) => r.family, text: (r) => r.family },
        { title: "format", value: (r) => r.dtype, text: (r) => r.dtype },
        { title: "GPU", value: (r) => r.gpu, text: (r) => r.gpu },
        { title: "rows", value: (r) => r.n, text: (r) => String(r.n) },
        { title: "mean %", value: (r) => r.mean_percent, text: (r) => digits(r.mean_percent) },
        { title: "median %", value: (r) => r.median_percent, text: (r) => digits(r.median_percent) },
        { title: "bias %", value: (r) => r.bias_percent, text: (r) => signed(r.bias_percent) },
        { title: "in interval %", value: (r) => r.coverage_percent, text: (r) => digits(r.coverage_percent) },
        { title: "roofline %", value: (r) => r.roofline_mean_percent, text: (r) => digits(r.roofline_mean_percent) },
      ], first, sorting)),
    section("cross", "Cross-validation", sortable<CrossScore>("cross-table", board.cross_validation.filter((r) => r.class === "all"), [
      { title: "fit", value: (r) => r.family, text: (r) => r.family },
      { title: "GPU", value: (r) => r.gpu, text: (r) => r.gpu },
      { title: "how", value: (r) => r.how, text: (r) => r.how },
      { title: "rows", value: (r) => r.n, text: (r) => String(r.n) },
      { title: "mean %", value: (r) => r.mean_percent, text: (r) => digits(r.mean_percent) },
      { title: "median %", value: (r) => r.median_percent, text: (r) => digits(r.median_percent) },
      { title: "bias %", value: (r) => r.bias_percent, text: (r) => signed(r.bias_percent) },
    ], crossFirst, crossSorting)));
};
