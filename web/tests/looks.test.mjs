// Every width and theme: nothing sticks out, no two labels of a chart lie on each other. Screenshots are kept if
// PREFLOP_PAGES names a folder.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { browser, folder, open, page } from "./pages.mjs";

const SIZES = { phone: [390, 844], laptop: [1366, 768], "4k": [3840, 2160] };
let chromium;
const pages = {};
before(async () => {
  pages.chart = page("looks.html", "roofline", "resnet50", "--gpu", "h200", "--precision", "amp");
  pages.sweep = page("looks-sweep.html", "roofline", "bert-base", "--gpu", "h200,a100", "--sweep", "batch=1,2,4,8");
  pages.report = page("looks-report.html", "report", "gpt2", "--gpu", "h200,a100", "--precision", "bf16");
  chromium = await browser();
});
after(() => chromium.close());

/** Pairs of labels that overlap by more than a pixel or two in both directions. */
function overlaps() {
  const labels = [...document.querySelectorAll("#chart svg text")]
    .filter((t) => !t.closest('[aria-label="tip"]') && t.textContent.trim() && !t.getAttribute("transform")?.includes("rotate"))
    .map((t) => ({ text: t.textContent, box: t.getBoundingClientRect() }));
  const pairs = [];
  labels.forEach((a, i) => labels.slice(i + 1).forEach((b) => {
    const wide = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left);
    const high = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top);
    if (wide > 2 && high > 4) pairs.push(`${a.text} / ${b.text}`);
  }));
  return pairs;
}

/** Dots whose middle lies under a label. */
function covered() {
  const labels = [...document.querySelectorAll("#chart svg text")]
    .filter((t) => !t.closest('[aria-label="tip"]') && t.textContent.trim() && !t.getAttribute("transform")?.includes("rotate"))
    .map((t) => ({ text: t.textContent, box: t.getBoundingClientRect() }));
  const dots = [...document.querySelectorAll('#chart svg g[aria-label="dot"] > *')].map((d) => d.getBoundingClientRect());
  return labels.filter((l) => dots.some((d) => {
    const [x, y] = [(d.left + d.right) / 2, (d.top + d.bottom) / 2];
    return x > l.box.left && x < l.box.right && y > l.box.top && y < l.box.bottom;
  })).map((l) => l.text);
}

for (const [size, [width, height]] of Object.entries(SIZES)) {
  for (const colorScheme of ["light", "dark"]) {
    test(`${size}, ${colorScheme}`, async () => {
      for (const name of ["chart", "sweep", "report"]) {
        const { tab, context, wrong } = await open(chromium, pages[name].url, { viewport: { width, height }, colorScheme });
        for (const kind of ["plane", "roofline", "hierarchical"]) {
          await tab.selectOption("#kind", kind);
          assert.deepEqual(await tab.evaluate(overlaps), [], `${name} ${kind}`);
          if (kind === "roofline") assert.deepEqual(await tab.evaluate(covered), [], `${name}: points under labels`);
          // The whole chart fits the window together with its controls; on a phone it may need scrolling.
          if (size !== "phone" && name !== "report") {
            const low = await tab.$eval("#chart svg", (svg) => svg.getBoundingClientRect().bottom - innerHeight);
            assert.ok(low <= 0, `${name} ${kind} ends ${low} px below the window`);
          }
          const wide = await tab.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          assert.ok(wide <= 0, `${name} ${kind} sticks out by ${wide} px`);
          await tab.screenshot({ path: join(folder, `${name}-${kind}-${size}-${colorScheme}.png`), fullPage: name === "report" && kind === "plane" });
        }
        assert.deepEqual(wrong, []);
        await context.close();
      }
    });
  }
}
