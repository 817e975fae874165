// The application: one document, a page for each address.
import "../page.css";
import "./app.css";
import { el } from "../dom";
import { accuracy } from "./accuracy";
import { api } from "./api";
import { offer } from "./core";
import { compare } from "./compare";
import { explore } from "./explore";
import { Params } from "./params";
import { problem } from "./parts";
import { address, ALONE, go, path } from "./place";
import { predict } from "./predict";
import { profile } from "./profile";
import { roofline } from "./roofline";
import { theme } from "./theme";

/** Fills a page from the state in its address. */
export type Page = (root: HTMLElement, params: Params) => Promise<void>;

const ALL: { path: string; name: string; title: string; page: Page; served?: true }[] = [
  { path: "/predict", name: "Predict", title: "How long does it take, and why?", page: predict },
  { path: "/compare", name: "Compare", title: "Which GPU for this job?", page: compare },
  { path: "/roofline", name: "Roofline", title: "How far from the roof?", page: roofline },
  { path: "/explore", name: "Explore", title: "What if the GPU were different?", page: explore },
  { path: "/profile", name: "Profile", title: "Where does a recorded run spend its time?", page: profile, served: true },
  { path: "/accuracy", name: "Accuracy", title: "How far off are the predictions?", page: accuracy },
  { path: "/api", name: "API", title: "Ask from a program", page: api, served: true },
];
/** What reads recordings or speaks HTTP needs a server. */
const PAGES = ALL.filter((p) => !(ALONE && p.served));

/** An address that leads nowhere says so, and what there is. */
const missing = (where: string): (typeof PAGES)[number] => ({
  path: where, name: "Not found", title: "There is no such page",
  page: async (root) => {
    const gone = ALL.some((p) => p.path === where) ? " in a page without a server: start `preflop serve` for it" : "";
    root.append(el("div", { class: "problem", role: "alert" }, el("strong", {}, `There is nothing at ${where}${gone}.`)),
      el("p", {}, "There are: ", ...PAGES.flatMap((p) => [el("a", { href: address(p.path) }, p.name), " "])));
  },
});

const app = document.getElementById("app");
const nav = el("nav", { "aria-label": "pages" });
const title = el("h1", { tabindex: "-1" });
const main = el("main", { id: "main", tabindex: "-1" });
let shown = 0;

async function show(focus: boolean): Promise<void> {
  const here = path();
  const at = PAGES.find((p) => p.path === here) ?? (here === "/" ? PAGES[0] : missing(here));
  const turn = ++shown;
  const params = new Params();
  document.title = `${at.name} - Preflop`;
  title.textContent = at.title;
  nav.replaceChildren(...PAGES.map((p) => el("a", { href: address(p.path), "data-path": p.path, ...(p === at ? { "aria-current": "page" } : {}) }, p.name)));
  const root = el("div", { class: `page ${at.name.toLowerCase().replace(" ", "-")}`, "aria-busy": "true" });
  main.replaceChildren(root);
  if (focus) { title.focus(); scrollTo(0, 0); }
  try {
    await at.page(root, params);
  } catch (error) {
    if (turn === shown) root.replaceChildren(problem(error));
  }
  root.removeAttribute("aria-busy");
}

// Links between pages take the job along; their own state is each page's.
nav.addEventListener("click", (event) => {
  const link = (event.target as HTMLElement).closest("a");
  if (!link || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  go((link.dataset.path ?? "/") + new Params().shared());
  void show(true);
});
addEventListener("popstate", () => void show(false));
const skip = el("a", { class: "skip", href: "#main" }, "Skip to the page");
// Behind the `#` of a page on disk stands its state.
skip.addEventListener("click", (event) => { event.preventDefault(); main.focus(); main.scrollIntoView(); });

app?.append(
  skip,
  el("header", { class: "top" }, el("a", { class: "brand", href: address("/predict") }, "Preflop"), nav, theme()),
  title, main,
  el("footer", {}, el("p", { class: "note" }, "Predictions are computed here, from datasheets and measurements; nothing is sent anywhere. The address of this page holds its whole state: share it as a link.")));
if (ALONE) offer();
void show(false);
