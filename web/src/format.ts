// Numbers for people: three significant digits, SI prefixes.

const PREFIXES: [string, number][] = [
  ["E", 1e18], ["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3], ["", 1],
  ["m", 1e-3], ["µ", 1e-6], ["n", 1e-9], ["p", 1e-12], ["f", 1e-15],
];

// Made once: making a formatter costs more than using it a hundred times.
const SHORT = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3, useGrouping: false });
const THREE = new Intl.NumberFormat("en-US", { minimumSignificantDigits: 3, maximumSignificantDigits: 3, useGrouping: false });

/** At most three digits: ticks of an axis, places of a slider. */
export const short = (x: number): string => SHORT.format(Number(x.toPrecision(3)));
/** Three digits, also where the last are zeros: columns of figures align. */
export const three = (x: number): string => (x === 0 ? "0" : THREE.format(Number(x.toPrecision(3))));
/** The same for figures that may be counts, which stay whole. */
export const digits = (x: number): string => (Number.isInteger(x) ? short(x) : three(x));

function scaled(x: number, unit: string, text: (x: number) => string): string {
  if (x === 0 || !Number.isFinite(x)) return `${x} ${unit}`;
  const [prefix, size] = PREFIXES.find(([, s]) => Math.abs(x) >= s * 0.9995) ?? ["f", 1e-15];
  return `${text(x / size)} ${prefix}${unit}`;
}

export const si = (x: number, unit: string): string => scaled(x, unit, three);
/** For ticks. */
export const shortSi = (x: number, unit: string): string => scaled(x, unit, short);

export const time = (us: number): string => si(us * 1e-6, "s");
export const percent = (share: number): string => `${three(100 * share)} %`;
