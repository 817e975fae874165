// A recording of 100,000 kernels: its page is put together, says so, and stays quick.
import assert from "node:assert/strict";
import { createWriteStream, statSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { browser, folder, open, page } from "./pages.mjs";

const KERNELS = 100_000;
let chromium, big;

/** A PyTorch profiler trace: products of 5,000 shapes, normalisations, and kernels that no operator asked for. */
async function trace(path) {
  const out = createWriteStream(path);
  const write = (text) => new Promise((done) => { if (out.write(text)) done(); else out.once("drain", done); });
  await write('{"deviceProperties":[{"id":0,"name":"NVIDIA H200","totalGlobalMem":150754820096,"computeMajor":9,"computeMinor":0,"numSms":132}],"traceEvents":[\n');
  let lines = [];
  for (let i = 0; i < KERNELS; i += 1) {
    const [ts, id] = [10 * i, i + 1];
    const [m, n] = [64 * (1 + (i % 100)), 64 * (1 + (Math.floor(i / 100) % 50))];
    const [op, kernel, dims] = i % 3 === 0 ? ["aten::mm", "sm90_xmma_gemm_bf16bf16_tilesize128x128x64", `[[${m},1024],[1024,${n}]]`]
      : i % 3 === 1 ? ["aten::native_layer_norm", "vectorized_layer_norm_kernel", `[[${m},${n}],[],[${n}],[${n}]]`]
        : ["", `custom_kernel_${i % 97}`, ""];
    if (op) lines.push(`{"ph":"X","cat":"cpu_op","name":"${op}","pid":1,"tid":1,"ts":${ts},"dur":6,"args":{"External id":${id},"Input Dims":${dims},"Input type":["c10::BFloat16","c10::BFloat16"]}}`);
    lines.push(`{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":${ts + 1},"dur":3,"args":{"correlation":${id}}}`);
    const us = 2 + (m * n) / 4e5;
    lines.push(`{"ph":"X","cat":"kernel","name":"${kernel}","pid":0,"tid":7,"ts":${ts + 2},"dur":${us.toFixed(3)},"args":{"device":0,"stream":7,"correlation":${id},"grid":[132,1,1],"block":[128,1,1]}}`);
    if (lines.length > 5000 || i === KERNELS - 1) {
      await write(lines.join(",\n") + (i === KERNELS - 1 ? "\n]}\n" : ",\n"));
      lines = [];
    }
  }
  await new Promise((done) => { out.end(done); });
}

before(async () => {
  const path = join(folder, "big.json");
  await trace(path);
  big = { chart: page("big.html", "roofline", path), report: page("big-report.html", "report", path, "--gpu", "h200,a100") };
  chromium = await browser();
});
after(() => chromium.close());

test("100,000 kernels open quickly, are put together, and the page says so", async () => {
  assert.ok(statSync(big.chart.path).size < 3_000_000, `${statSync(big.chart.path).size} bytes`);
  const started = performance.now();
  const { tab, wrong } = await open(chromium, big.chart.url);
  const seconds = (performance.now() - started) / 1000;
  const view = JSON.parse(await tab.$eval("#data", (d) => d.textContent)).views[0];
  assert.equal(view.entries, KERNELS);
  assert.ok(view.merged > 1000 && view.rows.length < 1100, `${view.merged} merged, ${view.rows.length} rows`);
  assert.match(await tab.textContent(".note"), new RegExp(`${KERNELS} calls are drawn as ${view.rows.length} rows; ${view.merged} small rows are put together by family`));
  assert.match(await tab.textContent(".note"), /Times are measured\. Work by share of the time: from recorded shapes/);
  assert.match(await tab.textContent("#status"), /of the time unknown, not drawn/);
  // The share of the time stays whole.
  const share = view.rows.reduce((sum, r) => sum + r.share, 0);
  assert.ok(Math.abs(share - 1) < 1e-3, String(share));
  // Moving the slider redraws: the median of nine.
  const redraws = await tab.evaluate(() => {
    const slider = document.querySelector("#share");
    return Array.from({ length: 9 }, () => {
      const start = performance.now();
      slider.value = "0";
      slider.dispatchEvent(new Event("input"));
      document.querySelector("#chart svg").getBoundingClientRect();
      return performance.now() - start;
    }).sort((a, b) => a - b)[4];
  });
  console.log(`opened in ${seconds.toFixed(2)} s, redrawn in ${redraws.toFixed(0)} ms`);
  assert.ok(redraws < 250, `${redraws} ms`);
  for (const kind of ["roofline", "hierarchical", "plane"]) await tab.selectOption("#kind", kind);
  assert.deepEqual(wrong, []);
});

test("its report is small and complete", async () => {
  assert.ok(statSync(big.report.path).size < 4_000_000, `${statSync(big.report.path).size} bytes`);
  const { tab, wrong } = await open(chromium, big.report.url);
  assert.match(await tab.textContent("#headline"), /big\.json.*per iteration on NVIDIA H200/);
  assert.equal(await tab.locator("#gpus-table tbody tr").count(), 2);
  assert.match(await tab.textContent("#unmodelled"), /custom_kernel_/);
  assert.match(await tab.textContent("#assumptions"), /as recorded \(PyTorch profiler trace\)/);
  assert.deepEqual(wrong, []);
});
