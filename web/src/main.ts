import "./page.css";
import { el } from "./dom";
import { explorer } from "./explorer";
import { reportPage } from "./report";
import type { PageData } from "./types";

function theme(): HTMLElement {
  const root = document.documentElement;
  const dark = (): boolean => root.dataset.theme === "dark" || (!root.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  const button = el("button", { type: "button", id: "theme" });
  const name = (): void => { button.textContent = dark() ? "Light" : "Dark"; };
  button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; name(); });
  name();
  return button;
}

const source = document.getElementById("data");
const app = document.getElementById("app");
if (source && app) {
  const data = JSON.parse(source.textContent ?? "{}") as PageData;
  const gpus = [...new Set(data.views.map((v) => v.machine.title))].join(", ");
  app.append(
    el("header", {}, el("div", {}, el("h1", {}, data.title), el("p", { class: "sub" }, gpus)), theme()),
    el("main", {}, data.report ? reportPage(data, data.report) : explorer(data)));
}
