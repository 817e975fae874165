// Colours that stay apart for colour-blind readers (Okabe and Ito 2008), each with a symbol.

export const FAMILY_STYLES: Record<string, [string, string]> = {
  gemm: ["#0072b2", "circle"],
  conv: ["#d55e00", "square"],
  attention: ["#009e73", "triangle"],
  rnn: ["#cc79a7", "diamond"],
  rowwise: ["#e69f00", "triangle2"],
  spatial: ["#56b4e9", "hexagon"],
  elementwise: ["#8a8a00", "star"],
  movement: ["#7b6fd0", "wye"],
  unmodelled: ["#8a8a8a", "times"],
};
const OTHERS = Object.values(FAMILY_STYLES);

/** Colour and symbol of a family, or of the n-th of any other kind of group. */
export function styleOf(group: string, index: number): [string, string] {
  return FAMILY_STYLES[group] ?? OTHERS[index % OTHERS.length];
}

export const GUIDE = "var(--guide)";
export const BOX = "var(--box)";
export const FLAG = "var(--flag)";
