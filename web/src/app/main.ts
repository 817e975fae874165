// The application: one document, a page for each address.
import "../page.css";
import "./app.css";
import { el } from "../dom";
import { accuracy } from "./accuracy";
import { api } from "./api";
import { offer } from "./core";
import { cluster } from "./cluster";
import { compare } from "./compare";
import { explore } from "./explore";
import { take } from "./files";
import { generate } from "./generate";
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
  { path: "/generate", name: "Language models", title: "How fast does a language model write?", page: generate },
  { path: "/cluster", name: "Clusters", title: "How does training spread over many GPUs?", page: cluster },
  { path: "/explore", name: "Explore", title: "What if the GPU were different?", page: explore },
  { path: "/profile", name: "Profile", title: "Where does a recorded run spend its time?", page: profile },
  { path: "/accuracy", name: "Accuracy", title: "How far off are the predictions?", page: accuracy },
  { path: "/api", name: "API", title: "Ask from a program", page: api, served: true },
];
/** What speaks HTTP needs a server. */
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

// A file may be dropped anywhere; the button is the same for the keyboard.
const chooser = el("input", { type: "file", id: "open-file", class: "visually-hidden", tabindex: "-1", "aria-label": "a model or a recording" });
const opener = el("button", { type: "button", id: "open", title: "a model (.onnx, .pt2, config.json, recorded step) or a recording; or drop it anywhere" }, "Open file");
opener.addEventListener("click", () => chooser.click());
const take_ = async (file: File | undefined): Promise<void> => {
  if (!file) return;
  const turn = ++shown;
  const root = el("div", { class: "page", "aria-busy": "true" }, el("p", { class: "status", role: "status" }, `Reading ${file.name}...`));
  main.replaceChildren(root);
  try {
    const to = await take(file, (model) => new Params().shared(model));
    if (turn !== shown) return;
    go(to);
    await show(true);
  } catch (error) {
    root.replaceChildren(problem(error));
    root.removeAttribute("aria-busy");
  }
};
chooser.addEventListener("change", () => { void take_(chooser.files?.[0]); chooser.value = ""; });
const carriesFile = (event: DragEvent): boolean => event.dataTransfer?.types.includes("Files") ?? false;
addEventListener("dragover", (event) => { if (carriesFile(event)) { event.preventDefault(); document.body.classList.add("dropping"); } });
addEventListener("dragleave", (event) => { if (event.relatedTarget === null) document.body.classList.remove("dropping"); });
addEventListener("drop", (event) => {
  document.body.classList.remove("dropping");
  if (!carriesFile(event)) return;
  event.preventDefault();
  void take_(event.dataTransfer?.files[0]);
});
const skip = el("a", { class: "skip", href: "#main" }, "Skip to the page");
// Behind the `#` of a page on disk stands its state.
skip.addEventListener("click", (event) => { event.preventDefault(); main.focus(); main.scrollIntoView(); });

app?.append(
  skip,
  el("header", { class: "top" }, el("a", { class: "brand", href: address("/predict") }, "Preflop"), nav, el("div", { class: "tools" }, opener, chooser, theme())),
  title, main,
  el("footer", {}, el("p", { class: "note" }, "Predictions are computed here, from datasheets and measurements; nothing is sent anywhere. The address of this page holds its whole state: share it as a link.")));
if (ALONE) offer();
void show(false);
