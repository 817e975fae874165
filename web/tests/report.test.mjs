import assert from "node:assert/strict";
import { statSync } from "node:fs";
import { after, before, test } from "node:test";
import { browser, open, page } from "./pages.mjs";

let chromium, report;
before(async () => {
  report = page("report.html", "report", "resnet152", "--gpu", "h200,v100", "--precision", "amp", "--usd-per-hour", "3.5");
  chromium = await browser();
});
after(() => chromium.close());

test("the report is small, complete and quick to open", async () => {
  assert.ok(statSync(report.path).size < 2_000_000);
  const { tab, wrong } = await open(chromium, report.url);
  for (const id of ["binds", "helps", "families", "modules", "charts", "gpus", "layers", "unmodelled", "assumptions", "reproduce"]) {
    assert.equal(await tab.locator(`#${id} h2`).count(), 1, id);
  }
  assert.match(await tab.textContent("#headline"), /resnet152.*per iteration/);
  assert.match(await tab.textContent("#command"), /^preflop report resnet152 --gpu h200,v100 --batch 64 --precision amp/);
  // The best of three: a busy machine must not decide.
  let seconds = Infinity;
  for (let i = 0; i < 3; i += 1) {
    const started = performance.now();
    await tab.goto(report.url);
    await tab.waitForSelector("#layers-table tbody tr");
    seconds = Math.min(seconds, (performance.now() - started) / 1000);
  }
  console.log(`opened in ${seconds.toFixed(2)} s`);
  assert.ok(seconds < 1, `${seconds} s`);
  assert.deepEqual(wrong, []);
});

test("the table of layers sorts by a click", async () => {
  const { tab, wrong } = await open(chromium, report.url);
  const layers = JSON.parse(await tab.$eval("#data", (d) => d.textContent)).report.layers;
  const first = () => tab.textContent("#layers-table tbody tr:first-child td:first-child");
  assert.equal(await tab.locator("#layers-table tbody tr").count(), layers.length);
  const most = (key) => layers.reduce((a, b) => (b[key] > a[key] ? b : a)).name;
  assert.equal(await first(), most("time_us"));
  await tab.click("#layers-table th:nth-child(5) button");
  assert.equal(await first(), most("flops"));
  await tab.click("#layers-table th:nth-child(1) button");
  assert.equal(await tab.getAttribute("#layers-table th:nth-child(1)", "aria-sort"), "ascending");
  assert.deepEqual(wrong, []);
});
