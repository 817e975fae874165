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

/** How the fit names rows of a GPU that it did not see, and rows that it held back. What its closed forms alone would say is of interest to its authors only. */
const LEFT_OUT = "GPU left out";
const HELD_BACK = "cross-validated";
/** Families of operators as a reader calls them. */
const FAMILIES: Record<string, string> = {
  gemm: "products", conv: "convolutions", "plain/conv": "convolutions, fp32 before Hopper", rowwise: "softmax and layer norms", rnn: "recurrent layers", elementwise: "elementwise", movement: "copies and look-ups",
  spatial: "batch norms and pooling", attention: "attention", "attention/served": "attention of an inference server", listed: "other operators of PyTorch", experts: "experts", iteration: "whole iterations", gpu_busy: "GPU time of iterations",
};
const named = (family: string): string => {
  const [first, ...rest] = family.split("/");
  return FAMILIES[family] ?? (FAMILIES[first] && rest.length ? `${FAMILIES[first]}, ${rest.join(" ").replace("half", "16 bit").replace("served", "of a server")}` : family);
};
const signed = (x: number): string => `${x > 0 ? "+" : ""}${x.toFixed(1)}`.replace(/^[-+]0\.0$/, "0.0");

export const accuracy: Page = async (root, params) => {
  root.append(el("p", { class: "status", role: "status" }, "Predicting every measured row..."));
  const board = await ask<Scoreboard>({ ask: "accuracy" });
  const all = board.rows.filter((r) => r.dtype === "all");
  const whole = all.find((r) => r.family === "iteration");
  const operators = all.find((r) => r.family === "operators");
  const chart = chartBox("chart", (width) => errorChart(all.map((r) => ({ ...r, family: named(r.family) })), width));
  const scoreCard = (id: string, title: string, r: Score | undefined): HTMLElement | null =>
    r ? card(id, title, `${digits(r.mean_percent)} %`, `mean error of ${r.n}; a plain roofline ${digits(r.roofline_mean_percent)} %; ${digits(r.coverage_percent)} % inside the 90 % interval`) : null;
  const order = (key: string, fallback: number): [number, { down: boolean; sorted: (by: number, down: boolean) => void }] =>
    [Number(params.get(key, String(fallback))), { down: params.get(`${key}-up`) !== "1", sorted: (by, down) => params.set({ [key]: by === fallback ? null : by, [`${key}-up`]: down ? null : 1 }) }];
  const [first, sorting] = order("sort", 3);
  const cross = (how: (r: CrossScore) => boolean, id: string, key: string): HTMLElement => {
    const [by, sorting] = order(key, id === "unseen-table" ? 3 : 2);
    return sortable<CrossScore>(id, board.cross_validation.filter((r) => r.class === "all" && how(r)), [
      { title: "what", value: (r) => named(r.family), text: (r) => named(r.family) },
      ...(id === "unseen-table" ? [{ title: "GPU", value: (r: CrossScore) => r.gpu, text: (r: CrossScore) => r.gpu }] : []),
      { title: "rows", value: (r) => r.n, text: (r) => String(r.n) },
      { title: "mean %", value: (r) => r.mean_percent, text: (r) => r.mean_percent.toFixed(1) },
      { title: "median %", value: (r) => r.median_percent, text: (r) => r.median_percent.toFixed(1) },
      { title: "bias %", value: (r) => r.bias_percent, text: (r) => signed(r.bias_percent) },
    ], by, sorting);
  };
  const unseen = board.cross_validation.filter((r) => r.class === "all" && r.how === LEFT_OUT);
  const worst = unseen.reduce<CrossScore | null>((a, r) => (a === null || r.mean_percent > a.mean_percent ? r : a), null);
  const middle = [...unseen].sort((a, b) => a.mean_percent - b.mean_percent)[Math.floor(unseen.length / 2)];
  root.replaceChildren(
    el("div", { class: "cards" }, ...[
      middle ? card("unseen", "operators on a GPU left out", `${digits(middle.mean_percent)} %`, `the middle of ${unseen.length} families and GPUs; the worst is ${named(worst?.family ?? "")} on ${worst?.gpu} with ${digits(worst?.mean_percent ?? 0)} %`) : null,
      scoreCard("iterations", "whole iterations, in the fit", whole), scoreCard("operators", "operators, in the fit", operators)].filter((c) => c !== null)),
    section("left-out", "GPUs that were left out", el("p", { class: "note" }, "The fit saw nothing of the GPU: what to expect on one that nobody measured."), cross((r) => r.how === LEFT_OUT, "unseen-table", "unseen")),
    section("cross", "Measured GPUs, rows that were left out", el("p", { class: "note" }, "Cross-validated: shapes that the fit did not see, on the GPUs that were measured."), cross((r) => r.how === HELD_BACK, "cross-table", "cross")),
    section("errors", "Rows in the fit: predicted against measured, by family", el("p", { class: "legend" }, tag("#0072b2", "this tool"), tag("#d55e00", "a plain roofline")), chart.box,
      el("div", { class: "controls" }, pngButton("png", chart, () => "accuracy"), csvButton("csv", () => board.rows, () => "accuracy")),
      el("p", { class: "note" }, "Good for finding mistakes, no promise for new shapes: the tables above are that."),
      sortable<Score>("scores-table", board.rows, [
        { title: "family", value: (r) => named(r.family), text: (r) => named(r.family) },
        { title: "format", value: (r) => r.dtype, text: (r) => r.dtype },
        { title: "GPU", value: (r) => r.gpu, text: (r) => r.gpu },
        { title: "rows", value: (r) => r.n, text: (r) => String(r.n) },
        { title: "mean %", value: (r) => r.mean_percent, text: (r) => r.mean_percent.toFixed(1) },
        { title: "median %", value: (r) => r.median_percent, text: (r) => r.median_percent.toFixed(1) },
        { title: "bias %", value: (r) => r.bias_percent, text: (r) => signed(r.bias_percent) },
        { title: "in interval %", value: (r) => r.coverage_percent, text: (r) => r.coverage_percent.toFixed(1) },
        { title: "roofline %", value: (r) => r.roofline_mean_percent, text: (r) => r.roofline_mean_percent.toFixed(1) },
      ], first, sorting)));
};
