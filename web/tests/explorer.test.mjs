import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { browser, open, page } from "./pages.mjs";

let chromium, one, sweep;
before(async () => {
  one = page("page.html", "roofline", "resnet50", "--gpu", "h200", "--precision", "amp", "--chart", "plane");
  sweep = page("sweep.html", "roofline", "bert-base", "--gpu", "h200,a100", "--sweep", "batch=1,2,4,8", "--chart", "plane");
  chromium = await browser();
});
after(() => chromium.close());

const counts = (tab) => tab.$eval("#status", (s) => [Number(s.dataset.visible), Number(s.dataset.all)]);

test("a family can be hidden, shown and seen alone", async () => {
  const { tab, wrong } = await open(chromium, one.url);
  const rows = JSON.parse(await tab.$eval("#data", (d) => d.textContent)).views[0].rows;
  const convs = rows.filter((r) => r.family === "conv").length;
  assert.ok(convs > 0);
  assert.deepEqual(await counts(tab), [rows.length, rows.length]);
  await tab.click('[data-group="conv"]');
  assert.deepEqual(await counts(tab), [rows.length - convs, rows.length]);
  assert.equal(await tab.getAttribute('[data-group="conv"]', "aria-pressed"), "false");
  await tab.click('[data-group="conv"]');
  assert.deepEqual(await counts(tab), [rows.length, rows.length]);
  await tab.dblclick('[data-group="conv"]');
  assert.deepEqual(await counts(tab), [convs, rows.length]);
  await tab.click("#reset");
  assert.deepEqual(await counts(tab), [rows.length, rows.length]);
  assert.deepEqual(wrong, []);
});

test("a page of the command roofline opens with the classic chart, at the level that was asked for", async () => {
  const classic = page("classic.html", "roofline", "resnet50", "--gpu", "h200", "--precision", "amp", "--level", "l2");
  const { tab, wrong } = await open(chromium, classic.url);
  assert.equal(await tab.inputValue("#kind"), "roofline");
  assert.equal(await tab.inputValue("#level"), "l2");
  assert.match(await tab.textContent("#chart"), /arithmetic intensity/);
  await tab.selectOption("#kind", "plane");
  assert.match(await tab.textContent("#chart"), /L2 bytes/);
  assert.deepEqual(wrong, []);
});

test("the share of time filters rows", async () => {
  const { tab, wrong } = await open(chromium, one.url);
  const rows = JSON.parse(await tab.$eval("#data", (d) => d.textContent)).views[0].rows;
  await tab.$eval("#share", (s) => { s.value = "60"; s.dispatchEvent(new Event("input")); });
  const least = 1e-4 * 5000 ** 0.6;
  assert.deepEqual(await counts(tab), [rows.filter((r) => r.share >= least).length, rows.length]);
  assert.match(await tab.textContent("#status"), /of the time/);
  assert.deepEqual(wrong, []);
});

test("levels, roofs and kinds of chart change the axes", async () => {
  const { tab, wrong } = await open(chromium, one.url);
  const text = () => tab.textContent("#chart");
  assert.match(await text(), /DRAM bytes/);
  await tab.selectOption("#level", "l2");
  assert.match(await text(), /L2 bytes/);
  const label = () => tab.$eval("#chart svg", (s) => s.getAttribute("aria-label"));
  await tab.selectOption("#pipe", "fp32");
  assert.match(await label(), /fp32/);
  await tab.selectOption("#kind", "roofline");
  assert.match(await text(), /arithmetic intensity/);
  await tab.selectOption("#kind", "hierarchical");
  for (const level of ["DRAM", "L2", "L1"]) assert.match(await text(), new RegExp(`${level} [0-9.]+ TB/s`));
  assert.deepEqual(wrong, []);
});

test("hovering explains a point and a click isolates it", async () => {
  const { tab, wrong } = await open(chromium, one.url);
  const all = (await counts(tab))[1];
  const dots = tab.locator('#chart svg g[aria-label="dot"] path, #chart svg g[aria-label="dot"] circle');
  await dots.last().scrollIntoViewIfNeeded();
  const box = await dots.last().boundingBox();
  await tab.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await tab.waitForSelector('#chart g[aria-label="tip"] text');
  assert.match(await tab.textContent('#chart g[aria-label="tip"]'), /time .* of all/);
  await tab.mouse.click(box.x + box.width / 2, box.y + box.height / 2);
  assert.deepEqual(await counts(tab), [1, all]);
  await tab.click("#reset");
  assert.deepEqual(await counts(tab), [all, all]);
  assert.deepEqual(wrong, []);
});

test("the PNG is an image of the chart", async () => {
  const { tab, wrong } = await open(chromium, one.url);
  const [download] = await Promise.all([tab.waitForEvent("download"), tab.click("#png")]);
  assert.match(download.suggestedFilename(), /^resnet50.*plane\.png$/);
  const stream = await download.createReadStream();
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  const bytes = Buffer.concat(chunks);
  assert.equal(bytes.subarray(1, 4).toString(), "PNG");
  assert.ok(bytes.readUInt32BE(16) > 1000, "twice the size of the screen");
  assert.ok(bytes.length > 30_000, `${bytes.length} bytes are an empty picture`);
  assert.deepEqual(wrong, []);
});

test("dark mode follows the system and the button", async () => {
  const { tab, wrong } = await open(chromium, one.url, { colorScheme: "dark" });
  const background = () => tab.$eval("body", (b) => getComputedStyle(b).backgroundColor);
  const dark = await background();
  assert.equal(await tab.textContent("#theme"), "Light");
  await tab.click("#theme");
  assert.notEqual(await background(), dark);
  assert.deepEqual(wrong, []);
});

test("a sweep is drawn as one trajectory per GPU", async () => {
  const { tab, wrong } = await open(chromium, sweep.url);
  assert.deepEqual(await counts(tab), [8, 8]);
  assert.equal(await tab.locator("#legend button").count(), 2);
  assert.ok(await tab.locator('#chart svg g[aria-label="line"] path[stroke-width="2"], #chart svg g[aria-label="line"][stroke-width="2"] path').count() >= 2);
  await tab.selectOption("#view", "0");
  assert.deepEqual(await counts(tab), [1, 1]);
  assert.deepEqual(wrong, []);
});
