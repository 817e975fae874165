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

/** Colour and symbol of every group: families have their own, the others take what is free; beyond that, new pairs. */
export function stylesOf(groups: string[]): Map<string, [string, string]> {
  const taken = new Set(groups.map((g) => FAMILY_STYLES[g]).filter(Boolean));
  const free = OTHERS.filter((s) => !taken.has(s));
  let next = 0;
  return new Map(groups.map((g) => {
    if (FAMILY_STYLES[g]) return [g, FAMILY_STYLES[g]];
    const i = next++;
    return [g, free[i] ?? [OTHERS[i % OTHERS.length][0], OTHERS[(i + 4) % OTHERS.length][1]]];
  }));
}

export const GUIDE = "var(--guide)";
export const BOX = "var(--box)";
export const FLAG = "var(--flag)";
