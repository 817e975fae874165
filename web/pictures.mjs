// The pictures of README.md, made by the program itself: `npm run pictures` (PREFLOP_BIN and CHROMIUM as for the tests).
import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { binary, browser, page } from "./tests/pages.mjs";
import { serve } from "./tests/served.mjs";

const folder = fileURLToPath(new URL("../docs/pictures/", import.meta.url));
mkdirSync(folder, { recursive: true });

const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");

/** What a command prints, as a terminal shows it. */
function terminal(name, ...args) {
  const said = execFileSync(binary, args, { encoding: "utf8", env: { ...process.env, COLUMNS: "90", NO_COLOR: "1" } });
  const lines = [`$ preflop ${args.join(" ")}`, ...said.trimEnd().split("\n")];
  const [high, wide] = [18, 8.45];
  const rows = lines.map((line, i) => `<text x="16" y="${28 + i * high}" xml:space="preserve">${escaped(line)}</text>`);
  const size = [Math.ceil(32 + 90 * wide), 28 + lines.length * high];
  writeFileSync(`${folder}${name}.svg`, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${size[0]} ${size[1]}" font-family="ui-monospace, 'DejaVu Sans Mono', monospace" font-size="14" fill="#e6e6e6"><rect width="100%" height="100%" rx="8" fill="#1b1f24"/>\n${rows.join("\n")}\n</svg>\n`);
}

terminal("predict", "predict", "resnet50", "--gpu", "h200", "--precision", "amp");
execFileSync(binary, ["roofline", "resnet50", "--gpu", "h200", "--precision", "amp", "-o", `${folder}roofline.svg`], { stdio: "ignore" });

const chromium = await browser();
const server = await serve();
try {
  const report = page("picture-report.html", "report", "resnet50", "--gpu", "h200,a100", "--precision", "amp");
  for (const [name, url] of [["report", report.url], ["page", `${server.url}/compare?model=resnet50&precision=amp`]]) {
    const context = await chromium.newContext({ viewport: { width: 1280, height: 1010 }, colorScheme: "light" });
    const tab = await context.newPage();
    await tab.goto(url);
    await tab.waitForSelector("#chart svg");
    await tab.waitForFunction(() => !document.querySelector("[aria-busy]"));
    await tab.waitForTimeout(500);
    await tab.screenshot({ path: `${folder}${name}.jpg`, type: "jpeg", quality: 78 });
    await context.close();
  }
} finally {
  await chromium.close();
  server.stop();
}
