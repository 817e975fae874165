// Pages to test, written by the command line, and a browser to open them in.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const root = fileURLToPath(new URL("../..", import.meta.url));
const candidates = [process.env.PREFLOP_BIN, join(root, "target/release/preflop"), join(root, "target/debug/preflop")];
export const binary = candidates.find((path) => path && existsSync(path));
if (!binary) throw new Error("no preflop binary: run `cargo build` or set PREFLOP_BIN");

export const folder = process.env.PREFLOP_PAGES ?? mkdtempSync(join(tmpdir(), "preflop-pages-"));
mkdirSync(folder, { recursive: true });

/** Runs `preflop ARGS -o NAME` and gives the address of the page. */
export function page(name, ...args) {
  const path = join(folder, name);
  execFileSync(binary, [...args, "-o", path], { stdio: ["ignore", "ignore", "inherit"] });
  return { path, url: pathToFileURL(path).href };
}

export function browser() {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--headless", "--no-sandbox"],
  });
}

/** Opens a page and collects what goes wrong on it: errors, and any request that leaves it. */
export async function open(browser, url, { before, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, ...options });
  if (before) await context.addInitScript(before);
  const tab = await context.newPage();
  const wrong = [];
  tab.on("pageerror", (error) => wrong.push(String(error)));
  tab.on("console", (message) => { if (message.type() === "error") wrong.push(message.text()); });
  tab.on("request", (request) => { if (/^https?:/.test(request.url())) wrong.push(`asked for ${request.url()}`); });
  await tab.goto(url);
  await tab.waitForSelector("#chart svg", { timeout: 120_000 });
  return { tab, context, wrong };
}
