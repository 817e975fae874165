// Accessibility of every page in both themes, by axe; and whatever can be clicked can be reached with the keyboard alone.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import { browser, open, page } from "./pages.mjs";
import { serve, TRACE, visit } from "./served.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const PAGES = {
  misfit: "/predict?model=gpt2-xl&gpu=rtx-4090&batch=4", "misfit-compare": "/compare?model=gpt2-xl&precision=amp&filter=rtx-4090,l4,h200",
  predict: "/predict?model=resnet50&gpu=h200&precision=amp&layer=layer1.0.conv2", compare: "/compare?model=resnet50&precision=amp&budget=200",
  roofline: "/roofline?model=resnet50&gpu=h200&precision=amp", generate: "/generate?model=llama-3-8b&gpu=h200&rate=2", cluster: "/cluster?model=llama-2-7b&node=dgx-h100&nodes=4", explore: "/explore?model=gpt2&base=h100-sxm&dram_bw=2", delta: "/explore?by=delta&mac_per_sm=4", profile: "/profile", accuracy: "/accuracy", api: "/api", nowhere: "/nowhere",
};
let chromium, server, files;
before(async () => {
  files = {
    report: page("axe-report.html", "report", "gpt2", "--gpu", "h200,a100"), chart: page("axe-chart.html", "roofline", "resnet50", "--gpu", "h200"),
    alone: page("axe-alone.html", "page"), live: page("axe-live.html", "report", "vgg16", "--gpu", "v100", "--live"),
  };
  [chromium, server] = await Promise.all([browser(), serve()]);
});
after(async () => {
  await chromium.close();
  server.stop();
});

/** Serious and critical findings, each with where it is. */
async function findings(tab) {
  await tab.evaluate(AXE);
  const { violations } = await tab.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  return violations.filter((v) => ["serious", "critical"].includes(v.impact)).map((v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => n.target.join(" ")).join(" | ")} (${v.nodes.length})`);
}

/** Before anything of a page runs: remembers what listens to clicks. */
function remember() {
  const add = EventTarget.prototype.addEventListener;
  globalThis.listening = new Set();
  EventTarget.prototype.addEventListener = function (type, ...rest) {
    if (["click", "dblclick", "pointerdown", "mousedown"].includes(type) && this instanceof Element) globalThis.listening.add(this);
    return add.call(this, type, ...rest);
  };
}

const CONTROLS = "a[href], button, select, input, textarea, summary, [tabindex='0']";

/** What can be clicked but never has the focus while Tab is pressed, and what listens to clicks but is no control at all. Of charts, tables and the choice of operators
 * tell and do the same. */
async function unreached(tab) {
  const deaf = await tab.evaluate((controls) => {
    const all = document.querySelectorAll(controls);
    for (const [i, e] of [...all].entries()) if (e.checkVisibility() && !e.disabled && e.tabIndex >= 0) e.dataset.stop = String(i);
    document.activeElement?.blur();
    // The list of pages listens for its links.
    return [...globalThis.listening].filter((e) => e.isConnected && e.checkVisibility() && !e.matches(`${controls}, label, nav, svg, svg *, figure`)).map((e) => `no control: ${e.outerHTML.slice(0, 120)}`);
  }, CONTROLS);
  const stops = await tab.locator("[data-stop]").count();
  // Answers that come late add stops on the way; every one that was there must still be reached.
  for (let i = 0; i < stops + 60; i += 1) {
    await tab.keyboard.press("Tab");
    await tab.evaluate(() => { document.activeElement?.removeAttribute("data-stop"); });
  }
  return [...deaf, ...await tab.evaluate(() => [...document.querySelectorAll("[data-stop]")].map((e) => e.outerHTML.slice(0, 120)))];
}

for (const colorScheme of ["light", "dark"]) {
  test(`axe finds nothing serious, ${colorScheme}`, async () => {
    const all = {};
    for (const [name, path] of Object.entries(PAGES)) {
      const { tab, context } = await visit(chromium, server.url + path, { colorScheme });
      if (name === "profile") {
        await tab.setInputFiles("#file", { name: "trace.json", mimeType: "application/json", buffer: Buffer.from(TRACE) });
        await tab.waitForSelector("#transfer-table");
      }
      if (name === "predict") await tab.waitForSelector("#kernels-table");
      if (name === "cluster") await Promise.all(["#ranks-table", "#scale-table"].map((t) => tab.waitForSelector(t)));
      const found = await findings(tab);
      if (found.length > 0) all[name] = found;
      await context.close();
    }
    for (const [name, file] of Object.entries(files)) {
      const { tab, context } = await open(chromium, file.url, { colorScheme });
      const found = await findings(tab);
      if (found.length > 0) all[name] = found;
      await context.close();
    }
    assert.deepEqual(all, {});
  });
}

test("the keyboard alone reaches everything", async () => {
  for (const [name, path] of Object.entries(PAGES)) {
    const { tab, context } = await visit(chromium, server.url + path, { before: remember });
    if (name === "profile") {
      await tab.setInputFiles("#file", { name: "trace.json", mimeType: "application/json", buffer: Buffer.from(TRACE) });
      await tab.waitForSelector("#transfer-table");
    }
    assert.deepEqual(await unreached(tab), [], name);
    await context.close();
  }
  for (const [name, file] of Object.entries(files)) {
    const { tab, context } = await open(chromium, file.url, { before: remember });
    assert.deepEqual(await unreached(tab), [], name);
    await context.close();
  }
});

test("keys do what a click does", async () => {
  const { tab, context, wrong } = await visit(chromium, `${server.url}/compare?model=resnet50&precision=amp`);
  await tab.focus("#gpus-table th:nth-child(8) button");
  await tab.keyboard.press("Enter");
  assert.notEqual(await tab.getAttribute("#gpus-table th:nth-child(8)", "aria-sort"), "none", "a column sorts");
  await tab.focus("#also-fp16");
  await tab.keyboard.press("Space");
  assert.equal(await tab.getAttribute("#also-fp16", "aria-pressed"), "true", "a format is chosen");
  await tab.focus("nav a[data-path='/roofline']");
  await tab.keyboard.press("Enter");
  await tab.waitForSelector("#kind");
  const before = await tab.inputValue("#kind");
  await tab.focus("#kind");
  await tab.keyboard.press("ArrowDown");
  assert.notEqual(await tab.inputValue("#kind"), before, "another chart is drawn");
  await tab.focus(".legend button");
  await tab.keyboard.press("Enter");
  assert.equal(await tab.locator(".legend button.off").count(), 1, "a family is left out");
  for (const key of ["Enter", "Space"]) {
    // Awaited before the key: the browser must be told first that its dialogue is to be caught.
    const chooser = tab.waitForEvent("filechooser");
    await tab.focus("#open");
    await tab.keyboard.press(key);
    assert.ok(await chooser, `${key} opens a file without dropping it`);
  }
  assert.deepEqual(wrong, []);
  await context.close();
});
