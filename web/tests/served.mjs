// The application, served by the command line, and a browser to open it in.
import { spawn } from "node:child_process";
import { binary } from "./pages.mjs";

/** Starts `preflop serve` on a free port; `stop` ends it. */
export function serve(...args) {
  const child = spawn(binary, ["serve", "--port", "0", "--no-open", "--json", ...args], { stdio: ["ignore", "pipe", "inherit"] });
  return new Promise((resolve, reject) => {
    let text = "";
    child.on("error", reject);
    child.on("exit", (code) => reject(new Error(`preflop serve ended with ${code}`)));
    child.stdout.on("data", (chunk) => {
      text += chunk;
      let answer;
      try { answer = JSON.parse(text); } catch { return; }
      resolve({ url: answer.url.replace(/\/$/, ""), stop: () => child.kill("SIGTERM") });
    });
  });
}

/** Opens a page and collects what goes wrong on it: errors, and any request that leaves the server. */
export async function visit(browser, url, { before, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1366, height: 768 }, ...options });
  if (before) await context.addInitScript(before);
  const tab = await context.newPage();
  const wrong = [];
  const origin = new URL(url).origin;
  tab.on("pageerror", (error) => wrong.push(String(error)));
  tab.on("console", (message) => { if (message.type() === "error" || message.type() === "warning") wrong.push(message.text()); });
  tab.on("request", (request) => { if (/^https?:/.test(request.url()) && !request.url().startsWith(origin)) wrong.push(`asked for ${request.url()}`); });
  await tab.goto(url);
  await ready(tab);
  return { tab, context, wrong };
}

/** Waits until the page has its first answer. */
export async function ready(tab) {
  await tab.waitForFunction(() => !document.querySelector("[aria-busy]") && document.querySelector("#chart svg, .drop, #q-predict, .problem"));
}

export const TRACE = JSON.stringify({
  deviceProperties: [{ id: 0, name: "NVIDIA H200", totalGlobalMem: 150109880320, numSms: 132, warpSize: 32 }],
  traceEvents: [
    { ph: "X", cat: "cpu_op", name: "aten::mm", pid: 1, tid: 1, ts: 0, dur: 40, args: { "Input Dims": [[4096, 4096], [4096, 4096]], "Input type": ["c10::BFloat16", "c10::BFloat16"] } },
    { ph: "X", cat: "cuda_runtime", name: "cudaLaunchKernel", pid: 1, tid: 1, ts: 10, dur: 6, args: { correlation: 7 } },
    { ph: "X", cat: "kernel", name: "nvjet_tst_128x256_64x4_2x1_v_bz_TNT", pid: 0, tid: 7, ts: 20, dur: 190, args: { device: 0, correlation: 7, "registers per thread": 168, "shared memory": 200000, grid: [132, 1, 1], block: [384, 1, 1] } },
    { ph: "X", cat: "kernel", name: "void at::native::vectorized_elementwise_kernel<4>", pid: 0, tid: 7, ts: 220, dur: 80, args: { device: 0, correlation: 99, grid: [16384, 1, 1], block: [128, 1, 1] } },
  ],
});

/** A small language model, as Hugging Face describes it. */
export const CONFIG = JSON.stringify({
  model_type: "llama", hidden_size: 256, intermediate_size: 512, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 1000,
  max_position_embeddings: 4096, rms_norm_eps: 1e-5, hidden_act: "silu", tie_word_embeddings: false,
});

/** Drops a file somewhere on the page, as a user would. */
export async function dropped(tab, name, text) {
  const data = await tab.evaluateHandle(([n, t]) => { const d = new DataTransfer(); d.items.add(new File([t], n.split("/").at(-1))); return d; }, [name, text]);
  await tab.dispatchEvent("main", "drop", { dataTransfer: data });
}
