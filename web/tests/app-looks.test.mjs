// Every page at every width and theme: nothing sticks out, no two labels of a chart lie on each other. Screenshots are
// kept if PREFLOP_PAGES names a folder.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { browser, folder } from "./pages.mjs";
import { serve, TRACE, visit } from "./served.mjs";

const SIZES = { phone: [390, 844], desktop: [1440, 900], "4k": [3840, 2160] };
const PAGES = {
  misfit: "/predict?model=gpt2-xl&gpu=rtx-4090&batch=4", "misfit-compare": "/compare?model=gpt2-xl&precision=amp&filter=rtx-4090,l4,h200",
  predict: "/predict?model=resnet50&gpu=h200&precision=amp&layer=layer1.0.conv2", compare: "/compare?model=resnet50&precision=amp&budget=200",
  roofline: "/roofline?model=resnet50&gpu=h200&precision=amp", generate: "/generate?model=llama-3-8b&gpu=h200&rate=2", cluster: "/cluster?model=llama-2-7b&node=dgx-h100&nodes=4", explore: "/explore?model=gpt2&base=h100-sxm&dram_bw=2", delta: "/explore?by=delta&mac_per_sm=4", profile: "/profile", accuracy: "/accuracy", api: "/api",
};
let chromium, server;
before(async () => {
  [chromium, server] = await Promise.all([browser(), serve()]);
});
after(async () => {
  await chromium.close();
  server.stop();
});

function overlaps() {
  const labels = [...document.querySelectorAll(".chart svg text")]
    .filter((t) => !t.closest('[aria-label="tip"]') && t.textContent.trim() && !t.getAttribute("transform")?.includes("rotate"))
    .map((t) => ({ chart: t.closest(".chart").id, text: t.textContent, box: t.getBoundingClientRect() }));
  const pairs = [];
  labels.forEach((a, i) => labels.slice(i + 1).forEach((b) => {
    const wide = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left);
    const high = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top);
    if (a.chart === b.chart && wide > 2 && high > 4) pairs.push(`${a.text} / ${b.text}`);
  }));
  return pairs;
}

/** GPUs on the front, by the table, that the chart does not name. */
function unnamed() {
  const place = [...document.querySelectorAll("#gpus-table th")].findIndex((th) => th.textContent === "front");
  const front = [...document.querySelectorAll("#gpus-table tbody tr")].filter((tr) => tr.cells[place].textContent === "yes").map((tr) => tr.cells[0].textContent);
  const names = new Set([...document.querySelectorAll("#chart svg text")].map((t) => t.textContent));
  return front.length > 0 ? front.filter((gpu) => !names.has(gpu)) : ["no GPU at all"];
}

/** Cells and chart labels that are cut; on a large screen also tables that would have to be scrolled sideways. On a phone they may, and their first column stays. */
function clipped(large) {
  const out = [];
  for (const cell of document.querySelectorAll("td, th")) if (cell.scrollWidth > cell.clientWidth + 1) out.push(`cell ${cell.textContent}`);
  for (const box of document.querySelectorAll(".scroll")) {
    if (box.scrollWidth <= box.clientWidth + 1) continue;
    if (large) out.push(`table ${box.querySelector("table").id} by ${box.scrollWidth - box.clientWidth} px`);
    else if (getComputedStyle(box.querySelector("td")).position !== "sticky") out.push(`first column of ${box.querySelector("table").id}`);
  }
  for (const svg of document.querySelectorAll(".chart > svg, .chart figure > svg:last-of-type")) {
    const frame = svg.getBoundingClientRect();
    for (const text of svg.querySelectorAll("text")) {
      const box = text.getBoundingClientRect();
      if (text.textContent.trim() && !text.closest('[aria-label="tip"]') && (box.right > frame.right + 3 || box.left < frame.left - 3)) out.push(`label ${text.textContent}`);
    }
  }
  for (const box of document.querySelectorAll(".card, button, summary, h1, h2")) if (box.checkVisibility() && box.scrollWidth > box.clientWidth + 2) out.push(`box ${box.textContent.slice(0, 40)}`);
  return out;
}

for (const [size, [width, height]] of Object.entries(SIZES)) {
  for (const colorScheme of ["light", "dark"]) {
    test(`${size}, ${colorScheme}`, async () => {
      for (const [name, path] of Object.entries(PAGES)) {
        const { tab, context, wrong } = await visit(chromium, server.url + path, { viewport: { width, height }, colorScheme });
        if (name === "profile") {
          await tab.setInputFiles("#file", { name: "trace.json", mimeType: "application/json", buffer: Buffer.from(TRACE) });
          await tab.waitForSelector("#transfer-table");
        }
        if (name === "predict") await tab.waitForSelector("#kernels-table");
        if (name === "generate") await tab.waitForSelector("#traffic-table");
        if (name === "cluster") await Promise.all(["#ranks-table", "#scale-table"].map((t) => tab.waitForSelector(t)));
        if (name === "explore" || name === "delta") await tab.waitForSelector("#designs-table");
        await tab.waitForTimeout(150);
        const wide = await tab.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        await tab.screenshot({ path: join(folder, `app-${name}-${size}-${colorScheme}.png`), fullPage: name !== "api" });
        assert.ok(wide <= 0, `${name} sticks out by ${wide} px`);
        assert.deepEqual(await tab.evaluate(clipped, size !== "phone"), [], `${name}: clipped`);
        assert.deepEqual(await tab.evaluate(overlaps), [], name);
        if (name === "compare") assert.deepEqual(await tab.evaluate(unnamed), [], `GPUs on the front without a name, ${size}`);
        if (name === "roofline") assert.ok(await tab.locator("#chart svg text", { hasText: /^(layer|conv|bn)/ }).count() > 0, `no operator is named, ${size}`);
        assert.deepEqual(wrong, [], name);
        await context.close();
      }
    });
  }
}
