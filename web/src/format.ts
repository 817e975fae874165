// Numbers for people: three significant digits, SI prefixes.

const PREFIXES: [string, number][] = [
  ["E", 1e18], ["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3], ["", 1],
  ["m", 1e-3], ["µ", 1e-6], ["n", 1e-9], ["p", 1e-12], ["f", 1e-15],
];

// Made once: making a formatter costs more than using it a hundred times.
const THREE = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3, useGrouping: false });

export function digits(x: number): string {
  return THREE.format(Number(x.toPrecision(3)));
}

export function si(x: number, unit: string): string {
  if (x === 0 || !Number.isFinite(x)) return `${x} ${unit}`;
  const [prefix, size] = PREFIXES.find(([, s]) => Math.abs(x) >= s * 0.9995) ?? ["f", 1e-15];
  return `${digits(x / size)} ${prefix}${unit}`;
}

export const time = (us: number): string => si(us * 1e-6, "s");
export const percent = (share: number): string => `${digits(100 * share)} %`;
