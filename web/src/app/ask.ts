// The one way to ask: a question as JSON, an answer as JSON. A server stands behind it, or the core inside this page.
import { askCore } from "./core";
import { ALONE } from "./place";

export interface Question { ask: string; [field: string]: unknown; }

/** What the other side could not answer, in its own words. */
export class Refusal extends Error {
  constructor(message: string, readonly hint: string | null) { super(message); }
}

type Transport = (question: Question) => Promise<unknown>;

const overHttp: Transport = async ({ ask: kind, ...fields }) => {
  let response: Response;
  try {
    response = await fetch(`/api/v1/${kind}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(fields) });
  } catch {
    throw new Refusal("the server does not answer", "is `preflop serve` still running?");
  }
  return unpack(response);
};

/** The scoreboard predicts every measured row: whoever writes a page without a server writes it in. */
const KEPT = document.getElementById("accuracy-data");

const overCore: Transport = async (question) => {
  if (question.ask === "accuracy" && KEPT) return JSON.parse(KEPT.textContent ?? "null");
  return checked(JSON.parse(await askCore(question)), "the core gave no answer");
};

const transport: Transport = ALONE ? overCore : overHttp;

export async function ask<T>(question: Question): Promise<T> {
  return await transport(question) as T;
}

/** Models and recordings are bytes, not JSON. */
export async function askAbout<T>(file: File, { ask: kind, ...fields }: { ask: "model" | "profile"; from?: string; to?: string[]; host?: number }): Promise<T> {
  if (ALONE) return checked(JSON.parse(await askCore({ ask: kind, name: file.name, ...fields }, file)), "the core gave no answer") as T;
  const query = new URLSearchParams({ name: file.name });
  if (fields.from) query.set("from", fields.from);
  if (fields.to) query.set("to", fields.to.join(","));
  if (fields.host !== undefined) query.set("host", String(fields.host));
  try {
    return await unpack(await fetch(`/api/v1/${kind}?${query}`, { method: "POST", body: file, headers: { "Content-Type": "application/octet-stream" } })) as T;
  } catch (error) {
    if (error instanceof Refusal) throw error;
    throw new Refusal("the upload broke off", "is the file too large, or the server gone?");
  }
}

async function unpack(response: Response): Promise<unknown> {
  const answer = checked(await response.json(), `status ${response.status}`);
  if (!response.ok) throw new Refusal(`status ${response.status}`, null);
  return answer;
}

/** An answer, or the error that it tells of. */
function checked(answer: unknown, otherwise: string): unknown {
  if (answer === null || answer === undefined) throw new Refusal(otherwise, null);
  const { error } = answer as { error?: { message: string; hint: string | null } };
  if (typeof answer === "object" && error) throw new Refusal(error.message ?? otherwise, error.hint ?? null);
  return answer;
}

/**
 * Asks one question at a time. While one is under way only the newest of the next ones is kept, so that a dragged
 * slider is never behind by more than one answer.
 */
export function latest<T>(show: (answer: T) => void, fail: (error: unknown) => void): (question: Question) => void {
  let next: Question | null = null;
  let busy = false;
  const run = async (): Promise<void> => {
    busy = true;
    while (next) {
      const question = next;
      next = null;
      try {
        const answer = await ask<T>(question);
        if (!next) show(answer);
      } catch (error) {
        if (!next) fail(error);
      }
    }
    busy = false;
  };
  return (question) => { next = question; if (!busy) void run(); };
}
