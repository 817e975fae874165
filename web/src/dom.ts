// Elements without markup strings: names from a model never become HTML.

type Child = Node | string | null;

export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K, attributes: Record<string, string> = {}, ...children: Child[]
): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  for (const child of children) if (child !== null) node.append(child);
  return node;
}

/** Text in which no option is broken at its hyphens. */
export function unbroken(text: string): HTMLElement {
  return el("span", {}, ...text.split(/(\s+)/).map((word) => (word.startsWith("--") ? el("span", { class: "option" }, word) : word)));
}

/** A select with its label. */
export function select(id: string, label: string, options: [string, string][], value: string, changed: (v: string) => void): HTMLElement {
  const box = el("select", { id });
  for (const [v, text] of options) box.append(el("option", { value: v }, text));
  box.value = value;
  box.addEventListener("change", () => changed(box.value));
  return el("label", { class: "field" }, el("span", {}, label), box);
}

/** Saves an SVG as PNG, with the colours that the page shows now. */
export async function savePng(svg: SVGSVGElement, name: string): Promise<void> {
  const blob = await pngOf(svg);
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const PAINTS = ["fill", "stroke", "font-family", "font-size", "color"];

export async function pngOf(svg: SVGSVGElement): Promise<Blob> {
  const copy = svg.cloneNode(true) as SVGSVGElement;
  const sources = [svg, ...svg.querySelectorAll("*")];
  const targets = [copy, ...copy.querySelectorAll("*")];
  sources.forEach((source, i) => {
    const style = getComputedStyle(source);
    const target = targets[i] as SVGElement;
    for (const paint of PAINTS) target.style.setProperty(paint, style.getPropertyValue(paint));
  });
  copy.querySelectorAll("style").forEach((s) => s.remove());
  const { width, height } = svg.getBoundingClientRect();
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", String(width));
  copy.setAttribute("height", String(height));
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
  await image.decode();
  const canvas = el("canvas");
  const scale = 2;
  canvas.width = Math.ceil(width * scale);
  canvas.height = Math.ceil(height * scale);
  const context = canvas.getContext("2d");
  if (!context) throw new Error("no canvas");
  context.fillStyle = getComputedStyle(document.body).backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.scale(scale, scale);
  context.drawImage(image, 0, 0, width, height);
  return new Promise((resolve, reject) => canvas.toBlob((b) => (b ? resolve(b) : reject(new Error("no PNG"))), "image/png"));
}
