// The application: one document, a page for each address.
import "../page.css";
import "./app.css";
import { el } from "../dom";
import { accuracy } from "./accuracy";
import { api } from "./api";
import { compare } from "./compare";
import { explore } from "./explore";
import { Params } from "./params";
import { problem } from "./parts";
import { predict } from "./predict";
import { profile } from "./profile";
import { roofline } from "./roofline";
import { theme } from "./theme";

/** Fills a page from the state in its address. */
export type Page = (root: HTMLElement, params: Params) => Promise<void>;

const PAGES: { path: string; name: string; title: string; page: Page }[] = [
  { path: "/predict", name: "Predict", title: "How long does it take, and why?", page: predict },
  { path: "/compare", name: "Compare", title: "Which GPU for this job?", page: compare },
  { path: "/roofline", name: "Roofline", title: "How far from the roof?", page: roofline },
  { path: "/explore", name: "Explore", title: "What if the GPU were different?", page: explore },
  { path: "/profile", name: "Profile", title: "Where does a recorded run spend its time?", page: profile },
  { path: "/accuracy", name: "Accuracy", title: "How far off are the predictions?", page: accuracy },
  { path: "/api", name: "API", title: "Ask from a program", page: api },
];

const app = document.getElementById("app");
const nav = el("nav", { "aria-label": "pages" });
const title = el("h1", { tabindex: "-1" });
const main = el("main", { id: "main" });
let shown = 0;

async function show(focus: boolean): Promise<void> {
  const at = PAGES.find((p) => p.path === location.pathname) ?? PAGES[0];
  const turn = ++shown;
  const params = new Params();
  document.title = `${at.name} - Preflop`;
  title.textContent = at.title;
  nav.replaceChildren(...PAGES.map((p) => el("a", { href: p.path, ...(p === at ? { "aria-current": "page" } : {}) }, p.name)));
  const root = el("div", { class: `page ${at.name.toLowerCase()}`, "aria-busy": "true" });
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
  history.pushState(null, "", new URL(link.href).pathname + new Params().shared());
  void show(true);
});
addEventListener("popstate", () => void show(false));

app?.append(
  el("a", { class: "skip", href: "#main" }, "Skip to the page"),
  el("header", { class: "top" }, el("a", { class: "brand", href: "/predict" }, "Preflop"), nav, theme()),
  title, main,
  el("footer", {}, el("p", { class: "note" }, "Predictions are computed here, from datasheets and measurements; nothing is sent anywhere. The address of this page holds its whole state: share it as a link.")));
void show(false);
