// One way to draw: Plot, with the names of its parts as screen readers may speak them.
import * as Plot from "@observablehq/plot";

export function draw(options: Plot.PlotOptions): ReturnType<typeof Plot.plot> {
  const plot = Plot.plot(options);
  // Plot names the parts of a chart, but a name needs a role.
  for (const part of plot.querySelectorAll("svg [aria-label], :scope > [aria-label]")) part.setAttribute("role", part.tagName === "g" ? "group" : "img");
  return plot;
}
