// A table that sorts by its columns.
import { el } from "./dom";

export interface Column<T> {
  title: string;
  /** What is sorted. */
  value: (row: T) => number | string;
  /** What is shown. */
  text: (row: T) => string;
  hint?: string;
  /** Words that sort by a number: they stay on the left. */
  words?: boolean;
  /** Long words: the column is wide enough that they take few lines. */
  wide?: boolean;
  /** Shown instead of the text. */
  node?: (row: T) => Node;
}

const isNumber = <T>(c: Column<T>, row: T): boolean => !c.words && typeof c.value(row) === "number";

export interface Sorting<T> {
  down?: boolean;
  sorted?: (by: number, down: boolean) => void;
  /** Class of a row. */
  mark?: (row: T) => string;
}

export function sortable<T>(id: string, rows: T[], columns: Column<T>[], first: number, sorting: Sorting<T> = {}): HTMLElement {
  let by = first;
  let down = sorting.down ?? true;
  const body = el("tbody");
  const heads = columns.map((c, i) => {
    const button = el("button", { type: "button", title: c.hint ?? `sort by ${c.title}` }, c.title);
    button.addEventListener("click", () => {
      down = by === i ? !down : typeof c.value(rows[0]) === "number";
      by = i;
      sorting.sorted?.(by, down);
      fill();
    });
    return el("th", { scope: "col", ...(rows.length > 0 && isNumber(c, rows[0]) ? { class: "number" } : {}) }, button);
  });
  const fill = (): void => {
    const value = columns[by].value;
    const sorted = [...rows].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
      return down ? -order : order;
    });
    heads.forEach((h, i) => h.setAttribute("aria-sort", i === by ? (down ? "descending" : "ascending") : "none"));
    body.replaceChildren(...sorted.map((row) => el("tr", sorting.mark ? { class: sorting.mark(row) } : {}, ...columns.map((c) =>
      el("td", isNumber(c, row) ? { class: "number" } : c.wide ? { class: "wide" } : {}, c.node ? c.node(row) : c.text(row))))));
  };
  if (rows.length > 0) fill();
  return el("div", { class: "scroll" }, el("table", { id }, el("thead", {}, el("tr", {}, ...heads)), body));
}
